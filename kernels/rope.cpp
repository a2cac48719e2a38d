#include "kernels/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/parallel.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

// YaRN (Peng et al. 2023, arXiv 2309.00071, section 3.2): dimensions that turn more than beta_fast times
// within the original length stay, those that turn less than beta_slow times are stretched, those between are
// blended.
double yarn_frequency(double theta, std::int64_t i, std::int64_t rotated, const RopeScaling& s) {
  const auto pair_of_turns = [&](double turns) {
    return static_cast<double>(rotated) *
           std::log(s.original_max_position_embeddings / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(theta));
  };
  double low = pair_of_turns(s.beta_fast), high = pair_of_turns(s.beta_slow);
  if (s.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(rotated - 1));
  if (low == high) high += 0.001;
  const double stretched = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
  const double frequency = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotated));
  return stretched * frequency / s.factor + (1 - stretched) * frequency;
}

double scaled_frequency(double frequency, const RopeScaling& scaling) {
  switch (scaling.kind) {
    case RopeScaling::Kind::none:
    case RopeScaling::Kind::yarn:
      return frequency;
    case RopeScaling::Kind::linear:
      return frequency / scaling.factor;
    case RopeScaling::Kind::llama3: {
      // Long waves are stretched by factor, short ones kept, those between blended (Hugging Face
      // transformers, modeling_rope_utils._compute_llama3_parameters).
      const double wavelength = 2 * std::numbers::pi / frequency;
      const double turns = scaling.original_max_position_embeddings / wavelength;
      if (turns < scaling.low_freq_factor) return frequency / scaling.factor;
      if (turns > scaling.high_freq_factor) return frequency;
      const double blend =
          (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
      return (1 - blend) * frequency / scaling.factor + blend * frequency;
    }
  }
  return frequency;
}

// Rotates `heads` vectors of D that lie one after the other, by the table's angles times direction (1 or -1).
KERNELS_MULTIVERSION void rotate_heads(float* heads, const float* cosines, const float* sines,
                                       float direction, std::int64_t count, std::int64_t D) {
  const std::int64_t half = D / 2;
  for (std::int64_t head = 0; head < count; ++head) {
    float* first = heads + head * D;
    float* second = first + half;
#pragma omp simd
    for (std::int64_t i = 0; i < half; ++i) {
      const float x = first[i], y = second[i];
      const float sine = direction * sines[i];
      first[i] = x * cosines[i] - y * sine;
      second[i] = y * cosines[i] + x * sine;
    }
  }
}

void rotate(float* qkv, const float* table, const std::int32_t* positions, float direction, RopeShape s) {
  const std::int64_t row_width = (s.H + 2 * s.G) * s.D;
  parallel_ranges(s.B * s.T, row_width, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t start = positions ? positions[row / s.T] : 0;
      const float* cosines = table + (start + row % s.T) * s.D;
      rotate_heads(qkv + row * row_width, cosines, cosines + s.D / 2, direction, s.H + s.G, s.D);
    }
  });
}

}  // namespace

void rope_table(float* table, double theta, const RopeScaling& scaling, std::int64_t P, std::int64_t D,
                std::int64_t rotated) {
  const std::int64_t half = D / 2;
  if (rotated == 0) rotated = D;
  const bool yarn = scaling.kind == RopeScaling::Kind::yarn;
  const double factor = !yarn                          ? 1.0
                        : scaling.attention_factor > 0 ? scaling.attention_factor
                        : scaling.factor > 1           ? 0.1 * std::log(scaling.factor) + 1
                                                       : 1.0;
  for (std::int64_t i = 0; i < half; ++i) {
    const bool turns = i < rotated / 2;
    const double frequency =
        !turns ? 0.0
        : yarn ? yarn_frequency(theta, i, rotated, scaling)
               : scaled_frequency(
                     std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotated)), scaling);
    for (std::int64_t p = 0; p < P; ++p) {
      const double angle = static_cast<double>(p) * frequency;
      table[p * D + i] = static_cast<float>((turns ? factor : 1.0) * std::cos(angle));
      table[p * D + half + i] = static_cast<float>((turns ? factor : 1.0) * std::sin(angle));
    }
  }
}

void rope_forward(float* qkv, const float* table, const std::int32_t* positions, RopeShape s) {
  rotate(qkv, table, positions, 1.0f, s);
}

void rope_backward(float* dqkv, const float* table, RopeShape s) {
  rotate(dqkv, table, nullptr, -1.0f, s);
}

}  // namespace kernels::cpu
