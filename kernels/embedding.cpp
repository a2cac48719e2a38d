#include "kernels/embedding.h"

#include <algorithm>

#include "kernels/embedding_rows.h"
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
  embed_rows(
      out, tokens, position_weight, positions, s,
      [=](float* row, std::int64_t token) { std::copy_n(weight + token * s.C, s.C, row); },
      [=](float* row, const float* position) { sum_rows(row, row, position, s.C); });
}

void embedding_backward(float* dweight, float* dposition_weight, const float* dout,
                        const std::int32_t* tokens, EmbeddingShape s) {
  // Threads own columns, not rows: two rows of one token never meet in two threads, and every sum runs in row
  // order whatever the number of threads.
  parallel_ranges(s.C, s.B * s.T, [=](std::int64_t begin, std::int64_t end) {
    const std::int64_t width = end - begin;
    for (std::int64_t row = 0; row < s.B * s.T; ++row) {
      const float* gradient = dout + row * s.C + begin;
      if (s.has(tokens[row])) {
        float* token_row = dweight + (tokens[row] - s.first) * s.C + begin;
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
