#include "kernels/bf16_tile.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/vectorize.h"

#if defined(__x86_64__) && defined(__GNUC__)
// GCC takes the undefined operands of its own AVX-512 intrinsics for uninitialised variables (bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#define KERNELS_X86 1
#else
#define KERNELS_X86 0
#endif

namespace kernels::cpu {
namespace {

using cuda::bf16;

KERNELS_INLINE float first_of(std::uint32_t pair) {
  return std::bit_cast<float>(pair << 16);
}
KERNELS_INLINE float second_of(std::uint32_t pair) {
  return std::bit_cast<float>(pair & 0xffff0000u);
}

}  // namespace

KERNELS_MULTIVERSION void plain_bf16_tile(float* c, std::int64_t c_stride, Bf16Pairs a,
                                          const std::uint32_t* b, std::int64_t pairs) {
  constexpr int kRows = 4, kColumns = 16;
  for (std::int64_t i = 0; i < kBf16Rows; i += kRows)
    for (std::int64_t j = 0; j < kBf16Columns; j += kColumns) {
      float sums[kRows][kColumns] = {};
      for (std::int64_t p = 0; p < pairs; ++p)
        for (int r = 0; r < kRows; ++r) {
          const std::uint32_t pair = a.data[(i + r) * a.row_stride + p * a.pair_stride];
          const float first = first_of(pair), second = second_of(pair);
          const std::uint32_t* const row = b + p * kBf16Columns + j;
#pragma omp simd
          for (int n = 0; n < kColumns; ++n)
            sums[r][n] += first * first_of(row[n]) + second * second_of(row[n]);
        }
      for (int r = 0; r < kRows; ++r)
#pragma omp simd
        for (int n = 0; n < kColumns; ++n) c[(i + r) * c_stride + j + n] += sums[r][n];
    }
}

KERNELS_MULTIVERSION void plain_bf16_dots(float* products, const bf16* inp, const bf16* weight,
                                          std::int64_t rows, std::int64_t count, std::int64_t K) {
  constexpr int kLanes = 16;
  for (std::int64_t m = 0; m < rows; ++m)
    for (std::int64_t n = 0; n < count; ++n) {
      const bf16 *const a = inp + m * K, *const w = weight + n * K;
      float lanes[kLanes] = {};
      const std::int64_t whole = K - K % kLanes;
      for (std::int64_t k = 0; k < whole; k += kLanes)
#pragma omp simd
        for (int lane = 0; lane < kLanes; ++lane)
          lanes[lane] += std::bit_cast<float>(static_cast<std::uint32_t>(a[k + lane].bits) << 16) *
                         std::bit_cast<float>(static_cast<std::uint32_t>(w[k + lane].bits) << 16);
      float sum = 0;
      for (const float lane : lanes) sum += lane;
      for (std::int64_t k = whole; k < K; ++k) sum += cuda::to_float(a[k]) * cuda::to_float(w[k]);
      products[m * 4 + n] = sum;
    }
}

void plain_bf16_transpose(std::uint32_t* to, const bf16* from, std::int64_t stride, std::int64_t columns,
                          std::int64_t length) {
  for (std::int64_t p = 0; p < (length + 1) / 2; ++p)
    for (std::int64_t j = 0; j < kBf16Columns; ++j) {
      std::uint32_t pair = 0;
      if (j < columns) {
        pair = from[j * stride + 2 * p].bits;
        if (2 * p + 1 < length) pair |= static_cast<std::uint32_t>(from[j * stride + 2 * p + 1].bits) << 16;
      }
      to[p * kBf16Columns + j] = pair;
    }
}

#if KERNELS_X86

namespace {

#define KERNELS_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma")))

KERNELS_BF16 inline __m512bh pairs_of(__m512i bits) {
  return reinterpret_cast<__m512bh>(bits);
}

KERNELS_BF16 void tile(float* c, std::int64_t c_stride, Bf16Pairs a, const std::uint32_t* b,
                       std::int64_t pairs) {
  __m512 sums[kBf16Rows][3];
  for (auto& row : sums)
    for (__m512& sum : row) sum = _mm512_setzero_ps();
  for (std::int64_t p = 0; p < pairs; ++p) {
    const __m512bh b0 = pairs_of(_mm512_loadu_si512(b)), b1 = pairs_of(_mm512_loadu_si512(b + 16)),
                   b2 = pairs_of(_mm512_loadu_si512(b + 32));
    b += kBf16Columns;
#pragma GCC unroll 8
    for (int i = 0; i < kBf16Rows; ++i) {
      const __m512bh pair =
          pairs_of(_mm512_set1_epi32(static_cast<int>(a.data[i * a.row_stride + p * a.pair_stride])));
      sums[i][0] = _mm512_dpbf16_ps(sums[i][0], pair, b0);
      sums[i][1] = _mm512_dpbf16_ps(sums[i][1], pair, b1);
      sums[i][2] = _mm512_dpbf16_ps(sums[i][2], pair, b2);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kBf16Rows; ++i)
    for (int j = 0; j < 3; ++j) {
      float* const to = c + i * c_stride + 16 * j;
      _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), sums[i][j]));
    }
}

template <int kRows>
KERNELS_BF16 void dots_of(float* products, const bf16* inp, const bf16* weight, std::int64_t count,
                          std::int64_t K) {
  for (std::int64_t n = 0; n < count; ++n) {
    const bf16* const w = weight + n * K;
    __m512 sums[kRows];
    for (int m = 0; m < kRows; ++m) sums[m] = _mm512_setzero_ps();
    constexpr std::int64_t kLanes = 32;
    for (std::int64_t k = 0; k < K; k += kLanes) {
      const std::int64_t left = std::min(kLanes, K - k);
      const __mmask32 mask = left == kLanes ? ~0u : (1u << left) - 1;
      const __m512bh row = pairs_of(_mm512_maskz_loadu_epi16(mask, w + k));
      for (int m = 0; m < kRows; ++m)
        sums[m] = _mm512_dpbf16_ps(sums[m], row, pairs_of(_mm512_maskz_loadu_epi16(mask, inp + m * K + k)));
    }
    for (int m = 0; m < kRows; ++m) products[m * 4 + n] = _mm512_reduce_add_ps(sums[m]);
  }
}

KERNELS_BF16 void dots(float* products, const bf16* inp, const bf16* weight, std::int64_t rows,
                       std::int64_t count, std::int64_t K) {
  constexpr decltype(&dots_of<1>) kOf[] = {dots_of<1>, dots_of<2>, dots_of<3>, dots_of<4>,
                                           dots_of<5>, dots_of<6>, dots_of<7>, dots_of<8>};
  kOf[rows - 1](products, inp, weight, count, K);
}

// 16 rows of 16 pairs change places with columns: by 32-bit pairs, by 64, by quarters of a register twice.
KERNELS_BF16 void transpose_16(std::uint32_t* to, const bf16* from, std::int64_t stride) {
  __m512i r[16], t[16];
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(from + i * stride);
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // r[4 q + c]: of rows 4 q .. 4 q + 3 the columns c, c + 4, c + 8, c + 12, one to a quarter.
  for (int c = 0; c < 4; ++c) {
    const __m512i low01 = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88);
    const __m512i high01 = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xdd);
    const __m512i low23 = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88);
    const __m512i high23 = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xdd);
    _mm512_storeu_si512(to + c * kBf16Columns, _mm512_shuffle_i32x4(low01, low23, 0x88));
    _mm512_storeu_si512(to + (c + 4) * kBf16Columns, _mm512_shuffle_i32x4(high01, high23, 0x88));
    _mm512_storeu_si512(to + (c + 8) * kBf16Columns, _mm512_shuffle_i32x4(low01, low23, 0xdd));
    _mm512_storeu_si512(to + (c + 12) * kBf16Columns, _mm512_shuffle_i32x4(high01, high23, 0xdd));
  }
}

KERNELS_BF16 void transpose(std::uint32_t* to, const bf16* from, std::int64_t stride, std::int64_t columns,
                            std::int64_t length) {
  const std::int64_t whole = columns == kBf16Columns ? length - length % 32 : 0;
  for (std::int64_t k = 0; k < whole; k += 32)
    for (std::int64_t j = 0; j < kBf16Columns; j += 16)
      transpose_16(to + k / 2 * kBf16Columns + j, from + j * stride + k, stride);
  if (whole < length)
    plain_bf16_transpose(to + whole / 2 * kBf16Columns, from + whole, stride, columns, length - whole);
}

}  // namespace

Bf16Tile avx512_bf16_tile() {
  return tile;
}
Bf16Dots avx512_bf16_dots() {
  return dots;
}
Bf16Transpose avx512_bf16_transpose() {
  return transpose;
}
bool has_avx512_bf16() {
  return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
}

#else

Bf16Tile avx512_bf16_tile() {
  return nullptr;
}
Bf16Dots avx512_bf16_dots() {
  return nullptr;
}
Bf16Transpose avx512_bf16_transpose() {
  return nullptr;
}
bool has_avx512_bf16() {
  return false;
}

#endif

}  // namespace kernels::cpu
