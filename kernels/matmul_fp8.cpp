#include "kernels/matmul_fp8.h"

#include <algorithm>

#include "kernels/fp8.h"
#include "kernels/matmul_streamed.h"
#include "kernels/matmul_tiled.h"
#include "kernels/packed_product.h"
#include "kernels/parallel.h"

namespace kernels::cpu {
namespace {

constexpr std::int64_t kWeightRows = 16;  // widened at once: they stay in the second cache
constexpr std::int64_t kRows = 32;        // of the input that are multiplied by these at once

struct Scratch {
  Lines<float> weight;
};

}  // namespace

void matmul_fp8(float* out, const float* inp, Fp8Weight weight, const float* bias, const float* residual,
                MatmulShape s) {
  const auto product = s.M <= kMaxStreamedRows ? matmul_streamed : matmul_tiled;
  const std::int64_t blocks = (s.N + kWeightRows - 1) / kWeightRows;
  parallel_ranges(blocks, kWeightRows * s.K, [=](std::int64_t begin, std::int64_t end) {
    static thread_local Scratch scratch;
    float* const wide = scratch.weight.at_least(kWeightRows * s.K);
    float sums[kRows * kWeightRows];
    for (std::int64_t n = begin * kWeightRows; n < std::min(s.N, end * kWeightRows); n += kWeightRows) {
      const std::int64_t columns = std::min(kWeightRows, s.N - n);
      for (std::int64_t i = 0; i < columns; ++i)
        widen_fp8_row(wide + i * s.K, weight.codes + (n + i) * s.K, cuda::Type::e4m3, weight.scales[n + i],
                      s.K);
      for (std::int64_t m = 0; m < s.M; m += kRows) {
        const std::int64_t rows = std::min(kRows, s.M - m);
        product(sums, inp + m * s.K, wide, bias ? bias + n : nullptr, nullptr, {rows, columns, s.K}, 0,
                columns);
        for (std::int64_t i = 0; i < rows; ++i) {
          const std::int64_t at = (m + i) * s.N + n;
          finish_row<float, float>(out + at, sums + i * columns, nullptr, residual ? residual + at : nullptr,
                                   columns);
        }
      }
    }
  });
}

}  // namespace kernels::cpu
