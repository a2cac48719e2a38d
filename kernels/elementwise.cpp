#include "kernels/elementwise.h"

#include <algorithm>
#include <cstring>

#include "kernels/parallel.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

KERNELS_MULTIVERSION void add_range(float* out, const float* a, const float* b, std::int64_t begin,
                                    std::int64_t end) {
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) out[i] = a[i] + b[i];
}

}  // namespace

void add(float* out, const float* a, const float* b, std::int64_t R, std::int64_t C) {
  parallel_ranges(R * C, 1, [=](std::int64_t begin, std::int64_t end) {
    if (b == nullptr)
      std::copy(a + begin, a + end, out + begin);
    else
      add_range(out, a, b, begin, end);
  });
}

void gather_last(float* out, const float* inp, std::int64_t B, std::int64_t T, std::int64_t C) {
  for (std::int64_t b = 0; b < B; ++b) std::copy_n(inp + (b * T + T - 1) * C, C, out + b * C);
}

void zero(float* out, std::int64_t count) {
  parallel_ranges(count, 1, [=](std::int64_t begin, std::int64_t end) {
    std::memset(out + begin, 0, static_cast<std::size_t>(end - begin) * sizeof(float));
  });
}

}  // namespace kernels::cpu
