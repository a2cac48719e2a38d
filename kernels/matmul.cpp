#include "kernels/matmul.h"

#include <algorithm>

#include "kernels/blas_product.h"
#include "kernels/matmul_packed.h"
#include "kernels/matmul_streamed.h"
#include "kernels/matmul_tiled.h"
#include "kernels/parallel.h"
#include "kernels/threads.h"
#include "kernels/tile_product.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

KERNELS_MULTIVERSION void add_rows(float* out, const float* a, const float* b, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

// out (M, N) = bias + residual, whichever of the two exist, or zeros: a product is then added to it.
void preload(float* out, const float* bias, const float* residual, MatmulShape s) {
  parallel_ranges(s.M, s.N, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t m = begin; m < end; ++m) {
      float* row = out + m * s.N;
      const float* residual_row = residual ? residual + m * s.N : nullptr;
      if (bias && residual)
        add_rows(row, bias, residual_row, s.N);
      else if (bias || residual)
        std::copy_n(bias ? bias : residual_row, s.N, row);
      else
        std::fill_n(row, s.N, 0.0f);
    }
  });
}

// sums (begin..end) += column sums of dout (M, N).
KERNELS_MULTIVERSION void add_column_sums(float* sums, const float* dout, MatmulShape s, std::int64_t begin,
                                          std::int64_t end) {
  constexpr std::int64_t kColumns = 1024;  // of partial sums, on the stack: a page of each row in one go
  constexpr std::int64_t kRows = 64;       // summed before they join the total: keeps rounding errors short
  for (std::int64_t first = begin; first < end; first += kColumns) {
    const std::int64_t width = std::min(kColumns, end - first);
    for (std::int64_t top = 0; top < s.M; top += kRows) {
      const std::int64_t bottom = std::min(s.M, top + kRows);
      float partial[kColumns] = {};
      std::int64_t m = top;
      for (; m + 4 <= bottom; m += 4) {
        const float *a = dout + m * s.N + first, *b = a + s.N, *c = b + s.N, *d = c + s.N;
#pragma omp simd
        for (std::int64_t n = 0; n < width; ++n) partial[n] = partial[n] + a[n] + b[n] + c[n] + d[n];
      }
      for (; m < bottom; ++m)
#pragma omp simd
        for (std::int64_t n = 0; n < width; ++n) partial[n] += dout[m * s.N + first + n];
#pragma omp simd
      for (std::int64_t n = 0; n < width; ++n) sums[first + n] += partial[n];
    }
  }
}

void forward_of_few(float* out, const float* inp, const float* weight, const float* bias,
                    const float* residual, MatmulShape s) {
  const auto kernel = s.M <= kMaxStreamedRows ? matmul_streamed : matmul_tiled;
  parallel_ranges(s.N, s.K, [=](std::int64_t begin, std::int64_t end) {
    kernel(out, inp, weight, bias, residual, s, begin, end);
  });
}

// How many of M rows, the last ones, are better left to kernels here. OpenBLAS gives each thread a part of
// the rows, and its kernels take eights: two threads of an AMD EPYC took 1.3 to 1.9 times as long for 28, 44,
// 60 or 76 rows as for 4 more, and one thread no longer.
std::int64_t uneven_rows(std::int64_t M, std::int64_t most) {
  constexpr std::int64_t kRowsOfKernel = 8;
  const int team = threads();
  const std::int64_t rest = team > 1 ? M % (kRowsOfKernel * team) : 0;
  return rest <= most ? rest : 0;
}

// dinp (M, K) = dout (M, N) * weight (N, K) for few rows: a strip of the weight's columns at a time, with so
// many rows that it stays in the second cache while all of dinp's rows pass.
void backward_input_of_few(float* dinp, const float* dout, const float* weight, bool accumulate,
                           MatmulShape s) {
  constexpr std::int64_t kRows = 128;  // of the weight
  parallel_ranges(s.K, s.N, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = 0; n < s.N; n += kRows)
      tile_product({dinp + begin, s.K}, {dout + n, s.N}, {weight + n * s.K + begin, s.K}, accumulate || n > 0,
                   s.M, end - begin, std::min(kRows, s.N - n));
  });
}

}  // namespace

void matmul_forward(float* out, const float* inp, const float* weight, const float* bias,
                    const float* residual, MatmulShape s) {
  if (takes_packed_product(s.M, s.N, s.K))
    return packed_fp32_product({out, s.N, bias, residual}, {inp, s.K}, {weight, s.K, true}, s.M, s.N, s.K);
  const bool few = s.M <= (threads() > 1 ? kMaxTiledRows : kMaxTiledRowsAlone);
  const std::int64_t first = few ? 0 : s.M - uneven_rows(s.M, kMaxTiledRows);
  if (first < s.M)
    forward_of_few(out + first * s.N, inp + first * s.K, weight, bias,
                   residual ? residual + first * s.N : nullptr, {s.M - first, s.N, s.K});
  if (first == 0) return;
  s.M = first;
  if (bias || residual != out) preload(out, bias, residual, s);
  add_product({out, s.N}, {inp, s.K}, {weight, s.K, true}, s.M, s.N, s.K);
}

void matmul_backward_input(float* dinp, const float* dout, const float* weight, bool accumulate,
                           MatmulShape s) {
  if (takes_packed_product(s.M, s.K, s.N))
    return packed_fp32_product({dinp, s.K, nullptr, accumulate ? dinp : nullptr}, {dout, s.N}, {weight, s.K}, s.M,
                         s.K, s.N);
  constexpr std::int64_t kMostRows = 12;  // more are as fast with a BLAS, though uneven
  // Rows of a weight that are whole pages apart share a set of the first cache, so a strip of them does not
  // stay there.
  constexpr std::int64_t kPage = 4096 / sizeof(float);
  const std::int64_t rest = uneven_rows(s.M, kMostRows);
  const std::int64_t first = rest == s.M || s.K % kPage != 0 ? s.M - rest : s.M;
  if (first < s.M)
    backward_input_of_few(dinp + first * s.K, dout + first * s.N, weight, accumulate,
                          {s.M - first, s.N, s.K});
  if (first == 0) return;
  if (!accumulate) preload(dinp, nullptr, nullptr, {first, s.K, s.N});
  add_product({dinp, s.K}, {dout, s.N}, {weight, s.K}, first, s.K, s.N);
}

void matmul_backward_weight(float* dweight, float* dbias, const float* dout, const float* inp, MatmulShape s,
                            bool accumulate) {
  if (dbias && !accumulate) std::fill_n(dbias, s.N, 0.0f);
  if (dbias)
    parallel_ranges(
        s.N, s.M, [=](std::int64_t begin, std::int64_t end) { add_column_sums(dbias, dout, s, begin, end); });
  if (takes_packed_product(s.N, s.K, s.M))
    return packed_fp32_product({dweight, s.K, nullptr, accumulate ? dweight : nullptr}, {dout, s.N, true},
                         {inp, s.K}, s.N, s.K, s.M);
  if (!accumulate) preload(dweight, nullptr, nullptr, {s.N, s.K, s.M});
  add_product({dweight, s.K}, {dout, s.N, true}, {inp, s.K}, s.N, s.K, s.M);
}

}  // namespace kernels::cpu
