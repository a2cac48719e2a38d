#include <algorithm>

#include "kernels/avx512_tile.h"
#include "kernels/packed_tile.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {

#if defined(__x86_64__) && defined(__GNUC__)
namespace {

struct RowsOfNumbers {
  Source<float> from;
  std::int64_t length;

  KERNELS_AVX512 __m512i at(std::int64_t row, std::int64_t k) const {
    return elements(from.data + row * from.stride, k, length);
  }
};

// to (2 pairs, width): row j of from (count, length) becomes column j.
template <std::int64_t width>
KERNELS_AVX512 void turn(PackedWord* to, Source<float> from, std::int64_t count, std::int64_t length,
                         std::int64_t pairs) {
  turn_words<width>(to, RowsOfNumbers{from, length}, count, 2 * pairs);
}

// to (2 pairs, width): column j of from (length, count) stays column j.
template <std::int64_t width>
KERNELS_AVX512 void copy(PackedWord* to, Source<float> from, std::int64_t count, std::int64_t length,
                         std::int64_t pairs) {
  constexpr std::int64_t kLanes = std::min<std::int64_t>(16, width);
  for (std::int64_t k = 0; k < 2 * pairs; ++k, to += width) {
    const float* const row = from.data + k * from.stride;
    ask_for(row + kRowsAhead * from.stride);
    if constexpr (width > kLanes) ask_for(row + kRowsAhead * from.stride + kLanes);
#pragma GCC unroll 2
    for (std::int64_t j = 0; j < width; j += kLanes)
      _mm512_mask_storeu_epi32(to + j, static_cast<__mmask16>(mask_of(kLanes)),
                               elements(row + j, 0, k < length ? std::min(kLanes, count - j) : 0));
  }
}

KERNELS_AVX512 void tile(float* c, std::int64_t c_stride, const PackedWord* a, const PackedWord* b,
                         std::int64_t pairs, bool add) {
  constexpr int kRows = kVectorRows, kVectors = kVectorColumns / 16;
  TileSums sums;
  for (auto& row : sums)
    for (__m512& sum : row) sum = _mm512_setzero_ps();
  for (std::int64_t k = 0; k < 2 * pairs; ++k, a += kRows, b += kVectorColumns) {
    __m512 columns[kVectors];
    for (int j = 0; j < kVectors; ++j) columns[j] = _mm512_castsi512_ps(_mm512_loadu_si512(b + 16 * j));
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const __m512 row = _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(a[i])));
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sums[i][j] = _mm512_fmadd_ps(row, columns[j], sums[i][j]);
    }
  }
  store_tile(c, c_stride, sums, add);
}

}  // namespace

const TileKernels<float>* avx512_fp32_kernels() {
  static const TileKernels<float> kernels = [] {
    TileKernels<float> of = plain_fp32_kernels();
    of.first = {turn<kVectorRows>, copy<kVectorRows>};
    of.second = {turn<kVectorColumns>, copy<kVectorColumns>};
    of.tile = tile;
    of.least_work = 1 << 21;
    return of;
  }();
  static const bool there = __builtin_cpu_supports("x86-64-v4");
  return there ? &kernels : nullptr;
}

#else

const TileKernels<float>* avx512_fp32_kernels() {
  return nullptr;
}

#endif

}  // namespace kernels::cpu
