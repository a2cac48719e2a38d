#include "kernels/optimizer.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/parallel.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

// What does not change from element to element; bias corrections in double, as torch has them.
struct AdamWStep {
  float gradient_scale, beta1, beta2, one_minus_beta1, one_minus_beta2, step_size, rsqrt_correction2, eps;
};

KERNELS_MULTIVERSION void adamw_range(const AdamWTensor& tensor, const AdamWStep& step, float shrink,
                                      std::int64_t begin, std::int64_t end) {
  float* parameter = tensor.parameter;
  const float* gradient = tensor.gradient;
  float* moment1 = tensor.moment1;
  float* moment2 = tensor.moment2;
  const AdamWStep s = step;
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) {
    const float g = gradient[i] * s.gradient_scale;
    const float m = s.beta1 * moment1[i] + s.one_minus_beta1 * g;
    const float v = s.beta2 * moment2[i] + s.one_minus_beta2 * g * g;
    moment1[i] = m;
    moment2[i] = v;
    parameter[i] = parameter[i] * shrink - s.step_size * m / (std::sqrt(v) * s.rsqrt_correction2 + s.eps);
  }
}

struct LionStep {
  float gradient_scale, beta1, beta2, one_minus_beta1, one_minus_beta2, learning_rate;
};

KERNELS_MULTIVERSION void lion_range(const LionTensor& tensor, const LionStep& step, float shrink,
                                     std::int64_t begin, std::int64_t end) {
  float* parameter = tensor.parameter;
  const float* gradient = tensor.gradient;
  float* moment = tensor.moment;
  const LionStep s = step;
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) {
    const float g = gradient[i] * s.gradient_scale;
    const float direction = s.beta1 * moment[i] + s.one_minus_beta1 * g;
    const float ahead = direction > 0 ? s.learning_rate : 0.0f, back = direction < 0 ? s.learning_rate : 0.0f;
    moment[i] = s.beta2 * moment[i] + s.one_minus_beta2 * g;
    parameter[i] = parameter[i] * shrink - (direction == direction ? ahead - back : direction);
  }
}

KERNELS_MULTIVERSION void sgd_range(const SgdTensor& tensor, float gradient_scale, float momentum,
                                    float learning_rate, float weight_decay, std::int64_t begin,
                                    std::int64_t end) {
  float* parameter = tensor.parameter;
  const float* gradient = tensor.gradient;
  float* moment = tensor.moment;
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) {
    moment[i] = momentum * moment[i] + (gradient[i] * gradient_scale + weight_decay * parameter[i]);
    parameter[i] -= learning_rate * moment[i];
  }
}

KERNELS_MULTIVERSION double squares_in_double(const float* values, std::int64_t begin, std::int64_t end) {
  // Four independent vectors of sums: one would wait for its last addition.
  constexpr int kLanes = 32;
  double lanes[kLanes] = {};
  const std::int64_t whole = end - (end - begin) % kLanes;
  for (std::int64_t i = begin; i < whole; i += kLanes)
#pragma omp simd
    for (int lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      lanes[lane] += value * value;
    }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  for (std::int64_t i = whole; i < end; ++i) sum += static_cast<double>(values[i]) * values[i];
  return sum;
}

float shrink_of(const AdamWSettings& settings) {
  return static_cast<float>(1 - double{settings.learning_rate} * settings.weight_decay);
}

// The unit in which sums of squares are formed and then added in order, whatever the number of threads.
constexpr std::int64_t kNormChunk = 1 << 16;

}  // namespace

void adamw(std::span<const AdamWTensor> tensors, const float* gradient_scale, const AdamWSettings& settings) {
  const double beta1 = settings.beta1, beta2 = settings.beta2;
  const double steps = static_cast<double>(settings.step);
  const AdamWStep step{
      .gradient_scale = gradient_scale ? *gradient_scale : 1.0f,
      .beta1 = settings.beta1,
      .beta2 = settings.beta2,
      .one_minus_beta1 = static_cast<float>(1 - beta1),
      .one_minus_beta2 = static_cast<float>(1 - beta2),
      .step_size = static_cast<float>(settings.learning_rate / (1 - std::pow(beta1, steps))),
      .rsqrt_correction2 = static_cast<float>(1 / std::sqrt(1 - std::pow(beta2, steps))),
      .eps = settings.eps,
  };
  const float shrink = shrink_of(settings);
  for (const AdamWTensor& tensor : tensors) {
    constexpr std::int64_t kStreams = 7;  // four read, three written
    parallel_ranges(tensor.count, kStreams, [&](std::int64_t begin, std::int64_t end) {
      adamw_range(tensor, step, tensor.decay ? shrink : 1.0f, begin, end);
    });
  }
}

void lion(std::span<const LionTensor> tensors, const float* gradient_scale, const AdamWSettings& settings) {
  const LionStep step{
      .gradient_scale = gradient_scale ? *gradient_scale : 1.0f,
      .beta1 = settings.beta1,
      .beta2 = settings.beta2,
      .one_minus_beta1 = static_cast<float>(1 - double{settings.beta1}),
      .one_minus_beta2 = static_cast<float>(1 - double{settings.beta2}),
      .learning_rate = settings.learning_rate,
  };
  const float shrink = shrink_of(settings);
  for (const LionTensor& tensor : tensors) {
    constexpr std::int64_t kStreams = 5;  // three read, two written
    parallel_ranges(tensor.count, kStreams, [&](std::int64_t begin, std::int64_t end) {
      lion_range(tensor, step, tensor.decay ? shrink : 1.0f, begin, end);
    });
  }
}

void sgd(std::span<const SgdTensor> tensors, const float* gradient_scale, const AdamWSettings& settings) {
  const float scale = gradient_scale ? *gradient_scale : 1.0f;
  for (const SgdTensor& tensor : tensors) {
    constexpr std::int64_t kStreams = 5;  // three read, two written
    parallel_ranges(tensor.count, kStreams, [&](std::int64_t begin, std::int64_t end) {
      sgd_range(tensor, scale, settings.beta1, settings.learning_rate,
                tensor.decay ? settings.weight_decay : 0.0f, begin, end);
    });
  }
}

void squared_norm(double* sum_of_squares, std::span<const float* const> gradients,
                  std::span<const std::int64_t> counts) {
  static thread_local std::vector<double> storage;  // one double for 256 KiB of gradients
  for (std::size_t tensor = 0; tensor < gradients.size(); ++tensor) {
    const float* values = gradients[tensor];
    const std::int64_t count = counts[tensor];
    const std::int64_t chunks = (count + kNormChunk - 1) / kNormChunk;
    storage.resize(static_cast<std::size_t>(chunks));
    double* partials = storage.data();
    parallel_ranges(chunks, kNormChunk, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t chunk = begin; chunk < end; ++chunk)
        partials[chunk] =
            squares_in_double(values, chunk * kNormChunk, std::min(count, (chunk + 1) * kNormChunk));
    });
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) *sum_of_squares += partials[chunk];
  }
}

void clip_scale(float* norm, float* scale, const double* sum_of_squares, float max_norm) {
  const double total = std::sqrt(*sum_of_squares);
  *norm = static_cast<float>(total);
  *scale = max_norm > 0 && total > max_norm ? static_cast<float>(max_norm / (total + 1e-6)) : 1.0f;
}

}  // namespace kernels::cpu
