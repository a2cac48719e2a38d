// What tiles and packing by AVX-512 have in common, whatever the packed words hold.
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/packed_tile.h"

#if defined(__x86_64__) && defined(__GNUC__)
// GCC takes the undefined operands of its own AVX-512 intrinsics for uninitialised variables (bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

#define KERNELS_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma")))

namespace kernels::cpu {

// A mask of the first `left` of 32 elements; the others do not exist.
inline __mmask32 mask_of(std::int64_t left) {
  return left >= 32 ? ~0u : left > 0 ? (1u << left) - 1 : 0u;
}

// 16 elements of a row of `length` from element k on.
KERNELS_AVX512 inline __m512i elements(const float* row, std::int64_t k, std::int64_t length) {
  return _mm512_maskz_loadu_epi32(
      static_cast<__mmask16>(mask_of(std::clamp<std::int64_t>(length - k, 0, 16))), row + k);
}

// The first `lanes` of 16 words.
template <std::int64_t lanes>
KERNELS_AVX512 inline void store_words(PackedWord* to, __m512i words) {
  static_assert(lanes == 8 || lanes == 16);
  if constexpr (lanes == 16)
    _mm512_storeu_si512(to, words);
  else
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_castsi512_si256(words));
}

// Transposes 16 rows of 16 words: first exchanges words, then pairs of words (64 bits), then, in two steps,
// quarters of a register.
KERNELS_AVX512 inline void exchange(__m512i (&r)[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // r[4 q + c]: of rows 4 q .. 4 q + 3 the columns c, c + 4, c + 8, c + 12, one to a quarter.
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512i low01 = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88);
    const __m512i high01 = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xdd);
    const __m512i low23 = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88);
    const __m512i high23 = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xdd);
    t[c] = _mm512_shuffle_i32x4(low01, low23, 0x88);
    t[c + 4] = _mm512_shuffle_i32x4(high01, high23, 0x88);
    t[c + 8] = _mm512_shuffle_i32x4(low01, low23, 0xdd);
    t[c + 12] = _mm512_shuffle_i32x4(high01, high23, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = t[i];
}

// Transposes 8 rows of 16 words into (16, 8) at `to`, and writes only the first `stored` of the 16 rows.
KERNELS_AVX512 inline void store_eight_turned(PackedWord* to, const __m512i (&r)[8], std::int64_t stored) {
  __m512i t[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  const __m512i even = _mm512_set_epi64(13, 12, 5, 4, 9, 8, 1, 0);  // quarters 0 and 2 of both
  const __m512i odd = _mm512_set_epi64(15, 14, 7, 6, 11, 10, 3, 2);
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const int half = c / 2;
    // The columns c, c + 4, c + 8, c + 12 of rows 0 .. 3, and of rows 4 .. 7, one to a quarter.
    const __m512i upper = c % 2 == 0 ? _mm512_unpacklo_epi64(t[half], t[half + 2])
                                     : _mm512_unpackhi_epi64(t[half], t[half + 2]);
    const __m512i lower = c % 2 == 0 ? _mm512_unpacklo_epi64(t[half + 4], t[half + 6])
                                     : _mm512_unpackhi_epi64(t[half + 4], t[half + 6]);
    const __m512i first = _mm512_permutex2var_epi64(upper, even, lower);
    const __m512i second = _mm512_permutex2var_epi64(upper, odd, lower);
    const auto store = [&](int column, __m256i words) __attribute__((always_inline, target("avx512f"))) {
      if (column < stored) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 8 * column), words);
    };
    store(c, _mm512_castsi512_si256(first));
    store(c + 8, _mm512_extracti64x4_epi64(first, 1));
    store(c + 4, _mm512_castsi512_si256(second));
    store(c + 12, _mm512_extracti64x4_epi64(second, 1));
  }
}

// to (words, width): row j becomes column j, of `count` rows. at(j, w) is row j's next 16 words from w on.
template <std::int64_t width, class Rows>
KERNELS_AVX512 void turn_words(PackedWord* to, const Rows& rows, std::int64_t count, std::int64_t words) {
  for (std::int64_t w = 0; w < words; w += 16) {
    const std::int64_t stored = std::min<std::int64_t>(16, words - w);
    if constexpr (width == 8) {
      __m512i r[8];
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) r[i] = i < count ? rows.at(i, w) : _mm512_setzero_si512();
      store_eight_turned(to + w * width, r, stored);
    } else {
      static_assert(width % 16 == 0);
      for (std::int64_t j = 0; j < width; j += 16) {
        __m512i r[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) r[i] = j + i < count ? rows.at(j + i, w) : _mm512_setzero_si512();
        exchange(r);
        for (std::int64_t q = 0; q < stored; ++q) _mm512_storeu_si512(to + (w + q) * width + j, r[q]);
      }
    }
  }
}

// The sums of a tile, in registers.
using TileSums = __m512[kVectorRows][kVectorColumns / 16];

// c (rows c_stride apart) = sums; with add, += instead.
KERNELS_AVX512 __attribute__((always_inline)) inline void store_tile(float* c, std::int64_t c_stride,
                                                                     const TileSums& sums, bool add) {
#pragma GCC unroll 16
  for (int i = 0; i < kVectorRows; ++i)
    for (int j = 0; j < kVectorColumns / 16; ++j) {
      float* const to = c + i * c_stride + 16 * j;
      _mm512_storeu_ps(to, add ? _mm512_add_ps(_mm512_loadu_ps(to), sums[i][j]) : sums[i][j]);
    }
}

// The hardware does not prefetch where a factor's rows are read a few columns at a time. Each row is
// therefore prefetched this many rows before it is needed.
inline constexpr std::int64_t kRowsAhead = 16;

}  // namespace kernels::cpu
#endif
