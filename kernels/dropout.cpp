#include "kernels/dropout.h"

#include "kernels/counter_random.h"
#include "kernels/parallel.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

// By 24 random bits, as many as a float holds exactly.
KERNELS_MULTIVERSION void drop(float* out, std::int8_t* mask, const float* inp, const float* bias,
                               std::uint64_t key, std::int64_t first, float probability, std::int64_t C) {
  const float factor = 1.0f / (1.0f - probability);
  for (std::int64_t c = 0; c < C; ++c) {
    const auto bits = static_cast<float>(mix(key + static_cast<std::uint64_t>(first + c)) >> 40);
    const bool keeps = bits * 0x1p-24f >= probability;
    const float value = inp[c] + (bias ? bias[c] : 0.0f);
    mask[c] = keeps ? 1 : 0;
    out[c] = keeps ? value * factor : 0.0f;
  }
}

KERNELS_MULTIVERSION void drop_gradient(float* dinp, const float* dout, const std::int8_t* mask, float factor,
                                        std::int64_t begin, std::int64_t end) {
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) dinp[i] = mask[i] ? dout[i] * factor : 0.0f;
}

constexpr std::int64_t kDrawCost = 6;

}  // namespace

void dropout_forward(float* out, std::int8_t* mask, const float* inp, const float* bias,
                     const DropoutDraw& draw, std::int64_t R, std::int64_t C) {
  const std::uint64_t key = mix(mix(draw.seed ^ mix(draw.step)) ^ draw.stream);
  const float probability = draw.probability;
  parallel_ranges(R, kDrawCost * C, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      drop(out + r * C, mask + r * C, inp + r * C, bias, key, r * C, probability, C);
  });
}

void dropout_backward(float* dinp, const float* dout, const std::int8_t* mask, float probability,
                      std::int64_t count) {
  parallel_ranges(count, 2, [=](std::int64_t begin, std::int64_t end) {
    drop_gradient(dinp, dout, mask, 1.0f / (1.0f - probability), begin, end);
  });
}

}  // namespace kernels::cpu
