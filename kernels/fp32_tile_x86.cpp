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
  const std::int64_t copied = std::clamp<std::int64_t>(length, 0, 2 * pairs);
  for (std::int64_t j = 0; j < width; j += kLanes) {
    const auto there = static_cast<__mmask16>(mask_of(std::min(kLanes, count - j)));
    const float* row = from.data + j;
    PackedWord* line = to + j;
    for (std::int64_t k = 0; k < copied; ++k, row += from.stride, line += width) {
      ask_for(row + kRowsAhead * from.stride);
      store_words<kLanes>(line, _mm512_maskz_loadu_epi32(there, row));
    }
  }
  std::fill_n(to + copied * width, (2 * pairs - copied) * width, 0);
}

// Element (i, k) of the first factor is at(i, k).
template <class Rows>
KERNELS_AVX512 __attribute__((always_inline)) inline void tile_of(float* c, std::int64_t c_stride,
                                                                  const Rows& at, const PackedWord* b,
                                                                  std::int64_t length, bool add) {
  constexpr int kRows = kVectorRows, kVectors = kVectorColumns / 16;
  TileSums sums;
  for (auto& row : sums)
    for (__m512& sum : row) sum = _mm512_setzero_ps();
  for (std::int64_t k = 0; k < length; ++k, b += kVectorColumns) {
    __m512 columns[kVectors];
    for (int j = 0; j < kVectors; ++j) columns[j] = _mm512_castsi512_ps(_mm512_loadu_si512(b + 16 * j));
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const __m512 row = _mm512_set1_ps(at(i, k));
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sums[i][j] = _mm512_fmadd_ps(row, columns[j], sums[i][j]);
    }
  }
  store_tile(c, c_stride, sums, add);
}

KERNELS_AVX512 void tile(float* c, std::int64_t c_stride, const PackedWord* a, const PackedWord* b,
                         std::int64_t pairs, bool add) {
  const float* const panel = reinterpret_cast<const float*>(a);
  const auto at = [=](int i, std::int64_t k) { return panel[k * kVectorRows + i]; };
  tile_of(c, c_stride, at, b, 2 * pairs, add);
}

KERNELS_AVX512 void tile_of_rows(float* c, std::int64_t c_stride, Source<float> a, const PackedWord* b,
                                 std::int64_t pairs, bool add) {
  const float* rows[kVectorRows];
#pragma GCC unroll 8
  for (int i = 0; i < kVectorRows; ++i) rows[i] = a.data + i * a.stride;
  const auto at = [&](int i, std::int64_t k) { return rows[i][k]; };
  tile_of(c, c_stride, at, b, 2 * pairs, add);
}

}  // namespace

const TileKernels<float>* avx512_fp32_kernels() {
  static const TileKernels<float> kernels = [] {
    TileKernels<float> of = plain_fp32_kernels();
    of.first = {turn<kVectorRows>, copy<kVectorRows>};
    of.second = {turn<kVectorColumns>, copy<kVectorColumns>};
    of.tile = tile;
    of.tile_of_rows = tile_of_rows;
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
