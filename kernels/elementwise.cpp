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

KERNELS_MULTIVERSION void add_scaled_row(float* out, const float* inp, float scale, std::int64_t C) {
#pragma omp simd
  for (std::int64_t c = 0; c < C; ++c) out[c] += scale * inp[c];
}

KERNELS_MULTIVERSION void scaled_row(float* out, const float* inp, float scale, std::int64_t C) {
#pragma omp simd
  for (std::int64_t c = 0; c < C; ++c) out[c] = scale * inp[c];
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

void add_bias(float* out, const float* bias, std::int64_t R, std::int64_t C) {
  parallel_ranges(R, C, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) add_range(out + r * C, out + r * C, bias, 0, C);
  });
}

void gather_last(float* out, const float* inp, std::int64_t B, std::int64_t T, std::int64_t C) {
  for (std::int64_t b = 0; b < B; ++b) std::copy_n(inp + (b * T + T - 1) * C, C, out + b * C);
}

void add_columns(float* out, const float* inp, float scale, std::int64_t R, Columns columns) {
  parallel_ranges(R, columns.C, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      add_scaled_row(out + r * columns.width + columns.first, inp + r * columns.C, scale, columns.C);
  });
}

void take_columns(float* out, const float* inp, float scale, std::int64_t R, Columns columns) {
  parallel_ranges(R, columns.C, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      scaled_row(out + r * columns.C, inp + r * columns.width + columns.first, scale, columns.C);
  });
}

void zero(float* out, std::int64_t count) {
  parallel_ranges(count, 1, [=](std::int64_t begin, std::int64_t end) {
    std::memset(out + begin, 0, static_cast<std::size_t>(end - begin) * sizeof(float));
  });
}

void copy_rows(StridedRows<float> out, StridedRows<const float> inp, std::int64_t R, std::int64_t C) {
  parallel_ranges(R, C, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) std::copy_n(inp.row(r), C, out.row(r));
  });
}

void zero_rows(StridedRows<float> out, std::int64_t R, std::int64_t C) {
  parallel_ranges(R, C, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) std::fill_n(out.row(r), C, 0.0f);
  });
}

}  // namespace kernels::cpu
