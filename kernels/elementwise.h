// Small memory-bound operations.
#pragma once
#include <cstdint>

#include "kernels/strided_rows.h"

namespace kernels::cpu {

// out (R, C) = a (R, C) + b (R, C); out may be a or b. Without b it is a copy of a, elsewhere.
void add(float* out, const float* a, const float* b, std::int64_t R, std::int64_t C);

// out (R, C) += bias (C), to each row.
void add_bias(float* out, const float* bias, std::int64_t R, std::int64_t C);

// out (B, C) = the last of each sequence's T rows of inp (B, T, C).
void gather_last(float* out, const float* inp, std::int64_t B, std::int64_t T, std::int64_t C);

// Columns [first, first + C) of rows that are `width` wide.
struct Columns {
  std::int64_t C, width, first;
};
// out's columns of R rows += scale * inp (R, C).
void add_columns(float* out, const float* inp, float scale, std::int64_t R, Columns columns);
// out (R, C) = scale * inp's columns of R rows.
void take_columns(float* out, const float* inp, float scale, std::int64_t R, Columns columns);

// Zeroes count floats, threaded.
void zero(float* out, std::int64_t count);

// Columns of wider rows: R rows of C.
void copy_rows(StridedRows<float> out, StridedRows<const float> inp, std::int64_t R, std::int64_t C);
void zero_rows(StridedRows<float> out, std::int64_t R, std::int64_t C);

}  // namespace kernels::cpu
