#include <algorithm>
#include <bit>

#include "kernels/bf16_values.h"
#include "kernels/packed_tile.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

using cuda::bf16;

KERNELS_INLINE float first_of(PackedWord pair) {
  return std::bit_cast<float>(pair << 16);
}
KERNELS_INLINE float second_of(PackedWord pair) {
  return std::bit_cast<float>(pair & 0xffff0000u);
}

// c (rows, columns) = or += sums over pairs of a_at(row, pair) times b_at(pair) (columns).
template <class A, class B>
KERNELS_INLINE void multiply(float* c, std::int64_t c_stride, const A& a_at, const B& b_at,
                             std::int64_t pairs, bool add, std::int64_t rows, std::int64_t columns) {
  constexpr int kPart = 4, kLanes = 16;
  for (std::int64_t i = 0; i < rows; i += kPart)
    for (std::int64_t j = 0; j < columns; j += kLanes) {
      float sums[kPart][kLanes] = {};
      for (std::int64_t p = 0; p < pairs; ++p)
        for (int r = 0; r < kPart; ++r) {
          const PackedWord pair = a_at(i + r, p);
          const float first = first_of(pair), second = second_of(pair);
          const PackedWord* const row = b_at(p) + j;
#pragma omp simd
          for (int n = 0; n < kLanes; ++n)
            sums[r][n] += first * first_of(row[n]) + second * second_of(row[n]);
        }
      for (int r = 0; r < kPart; ++r)
#pragma omp simd
        for (int n = 0; n < kLanes; ++n) {
          float& to = c[(i + r) * c_stride + j + n];
          to = add ? to + sums[r][n] : sums[r][n];
        }
    }
}

// Part `part` of an element.
KERNELS_INLINE PackedWord part_of(bf16 x, int /*part*/) {
  return x.bits;
}
KERNELS_INLINE PackedWord part_of(float x, int part) {
  for (int before = 0; before < part; ++before) x -= widened(rounded(x));
  return rounded(x).bits;
}

// Elements k and k + 1 of `length`, `step` apart; zero beyond.
template <class T>
KERNELS_INLINE PackedWord pair_at(const T* from, std::int64_t step, std::int64_t k, std::int64_t length,
                                  int part = 0) {
  PackedWord pair = k < length ? part_of(from[k * step], part) : 0u;
  if (k + 1 < length) pair |= part_of(from[(k + 1) * step], part) << 16;
  return pair;
}

// to (pairs, width): row j of from (count, length) becomes column j.
template <std::int64_t width>
void turn(PackedWord* to, Bf16Source from, std::int64_t count, std::int64_t length, std::int64_t pairs) {
  for (std::int64_t p = 0; p < pairs; ++p)
    for (std::int64_t j = 0; j < width; ++j)
      to[p * width + j] = j < count ? pair_at(from.data + j * from.stride, 1, 2 * p, length) : 0u;
}

// to (pairs, width): column j of from (length, count) stays column j.
KERNELS_INLINE void interleave(PackedWord* to, Bf16Source from, std::int64_t width, std::int64_t count,
                               std::int64_t length, std::int64_t pairs) {
  for (std::int64_t p = 0; p < pairs; ++p) {
    const bf16* const first = from.data + 2 * p * from.stride;
    PackedWord* const row = to + p * width;
    const std::int64_t there = 2 * p < length ? count : 0;
    if (2 * p + 1 < length) {
      const bf16* const second = first + from.stride;
#pragma omp simd
      for (std::int64_t i = 0; i < there; ++i)
        row[i] = static_cast<PackedWord>(first[i].bits) | (static_cast<PackedWord>(second[i].bits) << 16);
    } else {
      for (std::int64_t i = 0; i < there; ++i) row[i] = first[i].bits;
    }
    for (std::int64_t i = there; i < width; ++i) row[i] = 0u;
  }
}
KERNELS_MULTIVERSION void interleave_rows(PackedWord* to, Bf16Source from, std::int64_t count,
                                          std::int64_t length, std::int64_t pairs) {
  interleave(to, from, kVectorRows, count, length, pairs);
}
KERNELS_MULTIVERSION void interleave_columns(PackedWord* to, Bf16Source from, std::int64_t count,
                                             std::int64_t length, std::int64_t pairs) {
  interleave(to, from, kVectorColumns, count, length, pairs);
}

KERNELS_MULTIVERSION void tile(float* c, std::int64_t c_stride, const PackedWord* a, const PackedWord* b,
                               std::int64_t pairs, bool add) {
  const auto a_at = [a](std::int64_t i, std::int64_t p) { return a[p * kVectorRows + i]; };
  const auto b_at = [b](std::int64_t p) { return b + p * kVectorColumns; };
  multiply(c, c_stride, a_at, b_at, pairs, add, kVectorRows, kVectorColumns);
}

// AMX's panels go in steps of 16 pairs, each part after part: a part of the first factor is (rows, 16), of
// which a tile reads 16 rows; a part of the second is (16, columns).
template <class T>
std::int64_t place_of_step(std::int64_t p, int part) {
  static_assert(kAmxRows == kAmxColumns);
  return (p / kAmxSide * kParts<T> + part) * kAmxSide * kAmxRows;
}
template <class T>
std::int64_t place_of_first(std::int64_t i, std::int64_t p, int part) {
  return place_of_step<T>(p, part) + i * kAmxSide + p % kAmxSide;
}
template <class T>
std::int64_t place_of_second(std::int64_t j, std::int64_t p, int part) {
  return place_of_step<T>(p, part) + p % kAmxSide * kAmxColumns + j;
}

// The panel's rows or columns lie `apart` from each other, and their elements lie `step` apart.
template <class T, auto place>
void amx_panel(PackedWord* to, const T* from, std::int64_t apart, std::int64_t step, std::int64_t count,
               std::int64_t length, std::int64_t pairs) {
  for (std::int64_t i = 0; i < kAmxRows; ++i)
    for (std::int64_t p = 0; p < pairs; ++p)
      for (int part = 0; part < kParts<T>; ++part)
        to[place(i, p, part)] = i < count ? pair_at(from + i * apart, step, 2 * p, length, part) : 0u;
}
template <class T, auto place>
void amx_from_rows(PackedWord* to, Source<T> from, std::int64_t count, std::int64_t length,
                   std::int64_t pairs) {
  amx_panel<T, place>(to, from.data, from.stride, 1, count, length, pairs);
}
template <class T, auto place>
void amx_from_columns(PackedWord* to, Source<T> from, std::int64_t count, std::int64_t length,
                      std::int64_t pairs) {
  amx_panel<T, place>(to, from.data, 1, from.stride, count, length, pairs);
}

template <class T>
void amx_tile(float* c, std::int64_t c_stride, const PackedWord* a, const PackedWord* b, std::int64_t pairs,
              bool add) {
  for (int first = 0; first < kParts<T>; ++first)
    for (int second = 0; first + second < kParts<T>; ++second) {
      const auto a_at = [=](std::int64_t i, std::int64_t p) { return a[place_of_first<T>(i, p, first)]; };
      const auto b_at = [=](std::int64_t p) { return b + place_of_second<T>(0, p, second); };
      multiply(c, c_stride, a_at, b_at, pairs, add || first + second > 0, kAmxRows, kAmxColumns);
    }
}

template <class T>
constexpr TileKernels<T> amx_steps() {
  return {.rows = kAmxRows,
          .columns = kAmxColumns,
          .whole_pairs = kAmxSide,
          .pairs_across = kAmxSide,  // panels lie in parts of as many
          .words = kParts<T>,
          .most_rows = 512,
          .most_columns = 8 * kAmxColumns,
          .summed = kParts<T> > 1 ? 384 : 256,  // sums of parts join in fp32, block by block: fewer of them
          .first = {amx_from_rows<T, place_of_first<T>>, amx_from_columns<T, place_of_first<T>>},
          .second = {amx_from_rows<T, place_of_second<T>>, amx_from_columns<T, place_of_second<T>>},
          .tile = amx_tile<T>};
}

KERNELS_MULTIVERSION void dots(float* products, const bf16* inp, const bf16* weight, std::int64_t rows,
                               std::int64_t count, std::int64_t K) {
  constexpr int kLanes = 16;
  for (std::int64_t m = 0; m < rows; ++m)
    for (std::int64_t n = 0; n < count; ++n) {
      const bf16 *const a = inp + m * K, *const w = weight + n * K;
      float lanes[kLanes] = {};
      const std::int64_t whole = K - K % kLanes;
      for (std::int64_t k = 0; k < whole; k += kLanes)
#pragma omp simd
        for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += widened(a[k + lane]) * widened(w[k + lane]);
      float sum = 0;
      for (const float lane : lanes) sum += lane;
      for (std::int64_t k = whole; k < K; ++k) sum += cuda::to_float(a[k]) * cuda::to_float(w[k]);
      products[m * 4 + n] = sum;
    }
}

}  // namespace

const Bf16Kernels& plain_bf16_kernels() {
  static constexpr Bf16Kernels kKernels{{.rows = kVectorRows,
                                         .columns = kVectorColumns,
                                         .whole_pairs = 1,
                                         .pairs_across = kVectorPairsAcross,
                                         .words = 1,
                                         .most_rows = 256,
                                         .most_columns = 384,
                                         .summed = 384,
                                         .first = {turn<kVectorRows>, interleave_rows},
                                         .second = {turn<kVectorColumns>, interleave_columns},
                                         .tile = tile,
                                         .for_attention = false},
                                        dots,
                                        narrow};
  return kKernels;
}

const Bf16Kernels& emulated_amx_bf16_kernels() {
  static constexpr Bf16Kernels kKernels{amx_steps<bf16>(), dots, narrow};
  return kKernels;
}

const TileKernels<float>& emulated_amx_split_kernels() {
  static constexpr TileKernels<float> kKernels = amx_steps<float>();
  return kKernels;
}

}  // namespace kernels::cpu
