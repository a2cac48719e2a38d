#include <algorithm>
#include <cmath>

#include "kernels/cuda/optimizer.h"
#include "kernels/cuda/random.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWidth = 4;

// Bits of fp32's significand that a type does not keep.
template <class P>
inline constexpr int kDroppedBits = 0;
template <>
inline constexpr int kDroppedBits<bf16> = 16;
template <>
inline constexpr int kDroppedBits<f16> = 13;

// Adding random bits below those that the type keeps carries into them with the probability of the remainder.
// (fp16's subnormal numbers, below 6e-5, keep fewer: they are rounded to nearest.)
template <class P>
CUDA_DEVICE P rounded(float x, bool stochastic, std::uint64_t key) {
  constexpr std::uint32_t kDropped = (1u << kDroppedBits<P>)-1;
  const std::uint32_t bits = bits_of(x);
  if (!stochastic || (bits & 0x7f800000u) == 0x7f800000u) return from_float<P>(x);  // infinity, NaN
  return from_float<P>(float_of((bits + (static_cast<std::uint32_t>(mix(key)) & kDropped)) & ~kDropped));
}

template <class P, class G, int Width>
CUDA_KERNEL(kThreads)
adamw_kernel(P* parameter, const G* gradient, float* moment1, float* moment2, float* master,
             std::int64_t count, const double* gradient_scale, const AdamWStep* step, bool decay,
             std::uint64_t stream) {
  if (*gradient_scale == 0) return;
  const AdamWStep s = *step;
  const float scale = static_cast<float>(*gradient_scale);
  const float shrink = decay ? s.shrink : 1.0f;
  const std::uint64_t key = mix(mix(s.step) ^ stream);
  const std::int64_t stride = static_cast<std::int64_t>(grid_size().x) * block_size() * Width;
  for (std::int64_t i = (static_cast<std::int64_t>(block_index().x) * block_size() + thread_index()) * Width;
       i < count; i += stride) {
    float value[Width], g[Width], m[Width], v[Width];
    if (master != nullptr)
      load<Width>(value, master + i);
    else
      load<Width>(value, parameter + i);
    load<Width>(g, gradient + i);
    load<Width>(m, moment1 + i);
    load<Width>(v, moment2 + i);
    Pack<P, Width> out;
#pragma unroll
    for (int w = 0; w < Width; ++w) {
      g[w] *= scale;
      m[w] = s.beta1 * m[w] + s.one_minus_beta1 * g[w];
      v[w] = s.beta2 * v[w] + s.one_minus_beta2 * g[w] * g[w];
      value[w] = value[w] * shrink - s.step_size * m[w] / (sqrtf(v[w]) * s.rsqrt_correction2 + s.eps);
      out.values[w] = rounded<P>(value[w], master == nullptr, key + static_cast<std::uint64_t>(i + w));
    }
    store<Width>(moment1 + i, m);
    store<Width>(moment2 + i, v);
    if (master != nullptr) store<Width>(master + i, value);
    *reinterpret_cast<Pack<P, Width>*>(parameter + i) = out;
  }
}

template <class P, class G, int Width>
CUDA_KERNEL(kThreads)
lion_kernel(P* parameter, const G* gradient, float* moment, float* master, std::int64_t count,
            const double* gradient_scale, const AdamWStep* step, bool decay, std::uint64_t stream) {
  if (*gradient_scale == 0) return;
  const AdamWStep s = *step;
  const float scale = static_cast<float>(*gradient_scale);
  const float shrink = decay ? s.shrink : 1.0f;
  const std::uint64_t key = mix(mix(s.step) ^ stream);
  const std::int64_t stride = static_cast<std::int64_t>(grid_size().x) * block_size() * Width;
  for (std::int64_t i = (static_cast<std::int64_t>(block_index().x) * block_size() + thread_index()) * Width;
       i < count; i += stride) {
    float value[Width], g[Width], m[Width];
    if (master != nullptr)
      load<Width>(value, master + i);
    else
      load<Width>(value, parameter + i);
    load<Width>(g, gradient + i);
    load<Width>(m, moment + i);
    Pack<P, Width> out;
#pragma unroll
    for (int w = 0; w < Width; ++w) {
      g[w] *= scale;
      const float direction = s.beta1 * m[w] + s.one_minus_beta1 * g[w];
      const float signed_step = direction > 0   ? s.learning_rate
                                : direction < 0 ? -s.learning_rate
                                                : direction;  // zero or NaN
      m[w] = s.beta2 * m[w] + s.one_minus_beta2 * g[w];
      value[w] = value[w] * shrink - signed_step;
      out.values[w] = rounded<P>(value[w], master == nullptr, key + static_cast<std::uint64_t>(i + w));
    }
    store<Width>(moment + i, m);
    if (master != nullptr) store<Width>(master + i, value);
    *reinterpret_cast<Pack<P, Width>*>(parameter + i) = out;
  }
}

// The unit in which squares are summed, a block each.
constexpr std::int64_t kNormChunk = 1 << 16;

// The sum over the block in a fixed order, known to thread 0; shared memory: a double for each thread.
CUDA_DEVICE double block_sum_in_double(double x, double* all) {
  sync_block();
  all[thread_index()] = x;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    sync_block();
    if (thread_index() < half) all[thread_index()] += all[thread_index() + half];
  }
  return all[0];
}

template <class G>
CUDA_KERNEL(kThreads)
squares_kernel(double* partials, const G* gradient, std::int64_t count) {
  const std::int64_t begin = block_index().x * kNormChunk;
  const std::int64_t end = begin + kNormChunk < count ? begin + kNormChunk : count;
  double sum = 0;
  for (std::int64_t i = begin + thread_index(); i < end; i += kThreads) {
    const double x = to_float(gradient[i]);
    sum += x * x;
  }
  sum = block_sum_in_double(sum, shared_memory<double>());
  if (thread_index() == 0) partials[block_index().x] = sum;
}

CUDA_KERNEL(kThreads)
add_squares_kernel(GradientNorm* norm, const double* partials, std::int64_t count, double factor) {
  double sum = 0;
  for (std::int64_t i = thread_index(); i < count; i += kThreads) sum += partials[i];
  sum = block_sum_in_double(sum, shared_memory<double>());
  if (thread_index() == 0) norm->sum_of_squares += factor * sum;
}

CUDA_KERNEL(kWarp) clip_scale_kernel(GradientNorm* norm, const AdamWStep* step) {
  if (thread_index() != 0) return;
  const double loss_scale = step->loss_scale > 0 ? step->loss_scale : 1.0;
  const double total = sqrt(norm->sum_of_squares) / loss_scale;
  const double most = step->max_gradient_norm;
  norm->norm = total;
  const bool overflowed = step->loss_scale > 0 && !(total < INFINITY);
  const double clip = most > 0 && total > most ? most / (total + 1e-6) : 1.0;
  norm->clip_scale = overflowed ? 0.0 : clip / loss_scale;
}

template <class G, int Width>
CUDA_KERNEL(kThreads)
find_overflow_kernel(float* found, const G* gradient, std::int64_t count) {
  bool any = false;
  const std::int64_t stride = static_cast<std::int64_t>(grid_size().x) * block_size() * Width;
  for (std::int64_t i = (static_cast<std::int64_t>(block_index().x) * block_size() + thread_index()) * Width;
       i < count; i += stride) {
    float g[Width];
    load<Width>(g, gradient + i);
#pragma unroll
    for (int w = 0; w < Width; ++w) any |= !(fabsf(g[w]) < INFINITY);
  }
  if (any_in_block(any) && thread_index() == 0) *found = 1;
}

}  // namespace

AdamWStep adamw_step(const AdamWSettings& settings, float max_gradient_norm, float loss_scale) {
  const double beta1 = settings.beta1, beta2 = settings.beta2, steps = static_cast<double>(settings.step);
  return {
      .beta1 = settings.beta1,
      .beta2 = settings.beta2,
      .one_minus_beta1 = static_cast<float>(1 - beta1),
      .one_minus_beta2 = static_cast<float>(1 - beta2),
      .step_size = static_cast<float>(settings.learning_rate / (1 - std::pow(beta1, steps))),
      .rsqrt_correction2 = static_cast<float>(1 / std::sqrt(1 - std::pow(beta2, steps))),
      .eps = settings.eps,
      .learning_rate = settings.learning_rate,
      .shrink = static_cast<float>(1 - double{settings.learning_rate} * settings.weight_decay),
      .max_gradient_norm = max_gradient_norm,
      .loss_scale = loss_scale,
      .step = static_cast<std::uint32_t>(settings.step),
  };
}

void adamw(const Context& context, std::span<const AdamWTensor> tensors, const double* gradient_scale,
           const AdamWStep* step, bool decay) {
  for (const AdamWTensor& tensor : tensors) {
    with_type(tensor.parameter.type, [&]<class P>(P) {
      with_type(tensor.gradient.type, [&]<class G>(G) {
        const auto launch = [&]<int Width>() {
          start(context, {.grid = {blocks_for(tensor.count / Width, kThreads), 1, 1}, .threads = kThreads},
                adamw_kernel<P, G, Width>, tensor.parameter.as<P>(), tensor.gradient.as<G>(), tensor.moment1,
                tensor.moment2, tensor.master, tensor.count, gradient_scale, step, decay, tensor.stream);
        };
        tensor.count % kWidth == 0 ? launch.template operator()<kWidth>() : launch.template operator()<1>();
      });
    });
  }
}

void lion(const Context& context, std::span<const LionTensor> tensors, const double* gradient_scale,
          const AdamWStep* step, bool decay) {
  for (const LionTensor& tensor : tensors) {
    with_type(tensor.parameter.type, [&]<class P>(P) {
      with_type(tensor.gradient.type, [&]<class G>(G) {
        const auto launch = [&]<int Width>() {
          start(context, {.grid = {blocks_for(tensor.count / Width, kThreads), 1, 1}, .threads = kThreads},
                lion_kernel<P, G, Width>, tensor.parameter.as<P>(), tensor.gradient.as<G>(), tensor.moment,
                tensor.master, tensor.count, gradient_scale, step, decay, tensor.stream);
        };
        tensor.count % kWidth == 0 ? launch.template operator()<kWidth>() : launch.template operator()<1>();
      });
    });
  }
}

void add_squares(const Context& context, GradientNorm* norm, std::span<const GradientTensor> gradients,
                 double factor) {
  std::int64_t chunks = 0;
  for (const GradientTensor& g : gradients) chunks += ceil_div(g.count, kNormChunk);
  double* const partials = context.scratch_for<double>(chunks);
  constexpr std::size_t kShared = kThreads * sizeof(double);
  std::int64_t chunk = 0;
  for (const GradientTensor& g : gradients) {
    const std::int64_t own = ceil_div(g.count, kNormChunk);
    with_type(g.gradient.type, [&]<class G>(G) {
      start(context, {.grid = {static_cast<int>(own), 1, 1}, .threads = kThreads, .shared_bytes = kShared},
            squares_kernel<G>, partials + chunk, g.gradient.as<G>(), g.count);
    });
    chunk += own;
  }
  start(context, {.threads = kThreads, .shared_bytes = kShared}, add_squares_kernel, norm, partials, chunks,
        factor);
}

void find_overflow(const Context& context, float* found, std::span<const GradientTensor> gradients) {
  for (const GradientTensor& g : gradients)
    with_type(g.gradient.type, [&]<class G>(G) {
      const auto launch = [&]<int Width>() {
        start(context, {.grid = {blocks_for(g.count / Width, kThreads), 1, 1}, .threads = kThreads},
              find_overflow_kernel<G, Width>, found, g.gradient.as<G>(), g.count);
      };
      g.count % kVector<G> == 0 ? launch.template operator()<kVector<G>>() : launch.template operator()<1>();
    });
}

void clip_scale(const Context& context, GradientNorm* norm, const AdamWStep* step) {
  start(context, {.threads = kWarp}, clip_scale_kernel, norm, step);
}

}  // namespace kernels::cuda
