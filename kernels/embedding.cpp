#include "kernels/embedding.h"

#include <algorithm>

#include "kernels/parallel.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

KERNELS_MULTIVERSION void sum_rows(float* out, const float* a, const float* b, std::int64_t C) {
#pragma omp simd
  for (std::int64_t c = 0; c < C; ++c) out[c] = a[c] + b[c];
}

}  // namespace

void embedding_forward(float* out, const std::int32_t* tokens, const float* weight,
                       const float* position_weight, const std::int32_t* positions, EmbeddingShape s) {
  const bool adds_positions = position_weight && s.first == 0;
  parallel_ranges(s.B * s.T, s.C, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t token = tokens[row] - s.first;
      if (token < 0 || token >= s.V) {
        std::fill_n(out + row * s.C, s.C, 0.0f);
        if (!adds_positions) continue;
      }
      const float* token_row = token < 0 || token >= s.V ? out + row * s.C : weight + token * s.C;
      if (adds_positions) {
        const std::int64_t start = positions ? positions[row / s.T] : 0;
        sum_rows(out + row * s.C, token_row, position_weight + (start + row % s.T) * s.C, s.C);
      } else {
        std::copy_n(token_row, s.C, out + row * s.C);
      }
    }
  });
}

void embedding_backward(float* dweight, float* dposition_weight, const float* dout,
                        const std::int32_t* tokens, EmbeddingShape s) {
  // Threads own columns, not rows: two rows of one token never meet in two threads, and every sum runs in row
  // order whatever the number of threads.
  parallel_ranges(s.C, s.B * s.T, [=](std::int64_t begin, std::int64_t end) {
    const std::int64_t width = end - begin;
    for (std::int64_t row = 0; row < s.B * s.T; ++row) {
      const float* gradient = dout + row * s.C + begin;
      const std::int64_t token = tokens[row] - s.first;
      if (token >= 0 && token < s.V) {
        float* token_row = dweight + token * s.C + begin;
        sum_rows(token_row, token_row, gradient, width);
      }
      if (dposition_weight) {
        float* position_row = dposition_weight + row % s.T * s.C + begin;
        sum_rows(position_row, position_row, gradient, width);
      }
    }
  });
}

}  // namespace kernels::cpu
