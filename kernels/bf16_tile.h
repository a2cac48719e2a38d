// The innermost part of bf16 products (matmul_bf16.h): tiles in registers, and what they read.
#pragma once
#include <cstdint>

#include "kernels/cuda/types.h"

namespace kernels::cpu {

inline constexpr std::int64_t kBf16Rows = 8, kBf16Columns = 48;  // 24 of AVX-512's 32 registers

// Pairs along the summed dimension: pair p of row i is the 32 bits at data + i * row_stride + p *
// pair_stride.
struct Bf16Pairs {
  const std::uint32_t* data;
  std::int64_t row_stride, pair_stride;
};

// c (kBf16Rows, kBf16Columns), stride c_stride, += a (kBf16Rows rows of pairs) times b (pairs, kBf16Columns).
using Bf16Tile = void (*)(float* c, std::int64_t c_stride, Bf16Pairs a, const std::uint32_t* b,
                          std::int64_t pairs);
void plain_bf16_tile(float* c, std::int64_t c_stride, Bf16Pairs a, const std::uint32_t* b,
                     std::int64_t pairs);
Bf16Tile avx512_bf16_tile();

// products[m * 4 + n] = inp row m . weight row n, of `rows` <= 8 rows of K and 4 weight rows; stops at
// `count` weight rows.
using Bf16Dots = void (*)(float* products, const cuda::bf16* inp, const cuda::bf16* weight, std::int64_t rows,
                          std::int64_t count, std::int64_t K);
void plain_bf16_dots(float* products, const cuda::bf16* inp, const cuda::bf16* weight, std::int64_t rows,
                     std::int64_t count, std::int64_t K);
Bf16Dots avx512_bf16_dots();

// to (pairs, kBf16Columns) = pairs along the rows of from (columns, stride), zero beyond `columns` and beyond
// `length` elements.
using Bf16Transpose = void (*)(std::uint32_t* to, const cuda::bf16* from, std::int64_t stride,
                               std::int64_t columns, std::int64_t length);
void plain_bf16_transpose(std::uint32_t* to, const cuda::bf16* from, std::int64_t stride,
                          std::int64_t columns, std::int64_t length);
Bf16Transpose avx512_bf16_transpose();

bool has_avx512_bf16();

}  // namespace kernels::cpu
