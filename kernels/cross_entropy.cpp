#include "kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/parallel.h"
#include "kernels/vector_math.h"

namespace kernels::cpu {
namespace {

KERNELS_MULTIVERSION float row_max(const float* row, std::int64_t V) {
  float highest = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : highest)
  for (std::int64_t v = 0; v < V; ++v) highest = row[v] > highest ? row[v] : highest;
  return highest;
}

KERNELS_MULTIVERSION float sum_exp(const float* row, float highest, std::int64_t V) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t v = 0; v < V; ++v) sum += exp_approx(row[v] - highest);
  return sum;
}

// row becomes exp(row - highest); returns the sum.
KERNELS_MULTIVERSION float exponentiate(float* row, float highest, std::int64_t V) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t v = 0; v < V; ++v) {
    row[v] = exp_approx(row[v] - highest);
    sum += row[v];
  }
  return sum;
}

KERNELS_MULTIVERSION void multiply(float* row, float factor, std::int64_t V) {
#pragma omp simd
  for (std::int64_t v = 0; v < V; ++v) row[v] *= factor;
}

// row becomes cap * tangents, which are tanh(row / cap).
KERNELS_MULTIVERSION void cap_row(float* row, float* tangents, float cap, std::int64_t V) {
  const float of_cap = 1.0f / cap;
#pragma omp simd
  for (std::int64_t v = 0; v < V; ++v) {
    tangents[v] = tanh_approx(row[v] * of_cap);
    row[v] = cap * tangents[v];
  }
}

// A capped row's gradient becomes that of the row before.
KERNELS_MULTIVERSION void uncap_gradient(float* gradient, const float* tangents, std::int64_t V) {
#pragma omp simd
  for (std::int64_t v = 0; v < V; ++v) gradient[v] *= 1.0f - tangents[v] * tangents[v];
}

float* scratch(std::int64_t count) {
  static thread_local std::vector<float> storage;
  if (storage.size() < static_cast<std::size_t>(count)) storage.resize(static_cast<std::size_t>(count));
  return storage.data();
}

// Reading a logit and one exponential: about this many floats' worth of memory traffic.
constexpr std::int64_t kCostPerLogit = 4;

}  // namespace

void cross_entropy_forward_backward(float* logits_to_dlogits, float* losses, const std::int32_t* targets,
                                    float scale, std::int64_t R, std::int64_t V, std::int64_t words,
                                    float cap) {
  parallel_ranges(R, kCostPerLogit * V, [=](std::int64_t begin, std::int64_t end) {
    float* const tangents = cap > 0 ? scratch(words) : nullptr;
    for (std::int64_t r = begin; r < end; ++r) {
      float* row = logits_to_dlogits + r * V;
      const std::int32_t target = targets[r];
      if (target < 0) {
        losses[r] = 0;
        std::fill_n(row, V, 0.0f);
        continue;
      }
      if (tangents) cap_row(row, tangents, cap, words);
      const float highest = row_max(row, words);
      const float target_logit = row[target];
      const float sum = exponentiate(row, highest, words);
      losses[r] = std::log(sum) - (target_logit - highest);
      multiply(row, scale / sum, words);
      std::fill(row + words, row + V, 0.0f);
      row[target] -= scale;
      if (tangents) uncap_gradient(row, tangents, words);
    }
  });
}

void cap_logits(float* logits, float cap, std::int64_t R, std::int64_t V) {
  parallel_ranges(R, kCostPerLogit * V, [=](std::int64_t begin, std::int64_t end) {
    float* const tangents = scratch(V);
    for (std::int64_t r = begin; r < end; ++r) cap_row(logits + r * V, tangents, cap, V);
  });
}

void cross_entropy_forward(float* losses, const float* logits, const std::int32_t* targets, std::int64_t R,
                           std::int64_t V) {
  parallel_ranges(R, kCostPerLogit * V, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* row = logits + r * V;
      if (targets[r] < 0) {
        losses[r] = 0;
        continue;
      }
      const float highest = row_max(row, V);
      losses[r] = std::log(sum_exp(row, highest, V)) - (row[targets[r]] - highest);
    }
  });
}

void cross_entropy_statistics(float* statistics, const float* logits, const std::int32_t* targets,
                              std::int64_t R, std::int64_t V, VocabularyPart part, float cap) {
  parallel_ranges(R, kCostPerLogit * V, [=](std::int64_t begin, std::int64_t end) {
    float* const capped = cap > 0 ? scratch(2 * part.count) : nullptr;
    for (std::int64_t r = begin; r < end; ++r) {
      const float* row = logits + r * V;
      if (capped) {
        std::copy_n(row, part.count, capped);
        cap_row(capped, capped + part.count, cap, part.count);
        row = capped;
      }
      const std::int64_t target = targets[r] - part.first;
      float* of_row = statistics + 3 * r;
      of_row[0] = row_max(row, part.count);
      of_row[1] = sum_exp(row, of_row[0], part.count);
      of_row[2] = target >= 0 && target < part.count ? row[target] : 0;
    }
  });
}

void cross_entropy_of_part(float* logits_to_dlogits, float* losses, const std::int32_t* targets,
                           const float* statistics, std::int64_t ranks, float scale, std::int64_t R,
                           std::int64_t V, VocabularyPart part, float cap) {
  parallel_ranges(R, kCostPerLogit * V, [=](std::int64_t begin, std::int64_t end) {
    float* const tangents = cap > 0 ? scratch(part.count) : nullptr;
    for (std::int64_t r = begin; r < end; ++r) {
      float* row = logits_to_dlogits + r * V;
      if (targets[r] < 0) {
        losses[r] = 0;
        std::fill_n(row, V, 0.0f);
        continue;
      }
      float highest = -std::numeric_limits<float>::infinity(), sum = 0, target_logit = 0;
      for (std::int64_t i = 0; i < ranks; ++i) highest = std::max(highest, statistics[3 * (i * R + r)]);
      for (std::int64_t i = 0; i < ranks; ++i) {
        const float* of_part = statistics + 3 * (i * R + r);
        sum += of_part[1] * std::exp(of_part[0] - highest);
        target_logit += of_part[2];
      }
      losses[r] = std::log(sum) - (target_logit - highest);
      if (tangents) cap_row(row, tangents, cap, part.count);
      exponentiate(row, highest, part.count);
      multiply(row, scale / sum, part.count);
      std::fill(row + part.count, row + V, 0.0f);
      const std::int64_t target = targets[r] - part.first;
      if (target >= 0 && target < part.count) row[target] -= scale;
      if (tangents) uncap_gradient(row, tangents, part.count);
    }
  });
}

}  // namespace kernels::cpu
