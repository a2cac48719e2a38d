#include "kernels/packed_tile.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

float* numbers(PackedWord* words) {
  return reinterpret_cast<float*>(words);
}
const float* numbers(const PackedWord* words) {
  return reinterpret_cast<const float*>(words);
}

// to (2 pairs, width): column j is row or column j of `count`, which lie `apart`, their elements `step`.
template <std::int64_t width>
void panel(PackedWord* to, const float* from, std::int64_t apart, std::int64_t step, std::int64_t count,
           std::int64_t length, std::int64_t pairs) {
  float* const of = numbers(to);
  for (std::int64_t k = 0; k < 2 * pairs; ++k)
    for (std::int64_t j = 0; j < width; ++j)
      of[k * width + j] = j < count && k < length ? from[j * apart + k * step] : 0.0f;
}
template <std::int64_t width>
void turn(PackedWord* to, Source<float> from, std::int64_t count, std::int64_t length, std::int64_t pairs) {
  panel<width>(to, from.data, from.stride, 1, count, length, pairs);
}
template <std::int64_t width>
void copy(PackedWord* to, Source<float> from, std::int64_t count, std::int64_t length, std::int64_t pairs) {
  panel<width>(to, from.data, 1, from.stride, count, length, pairs);
}

KERNELS_MULTIVERSION void tile(float* c, std::int64_t c_stride, const PackedWord* a, const PackedWord* b,
                               std::int64_t pairs, bool add) {
  constexpr int kPart = 4, kLanes = 16;
  for (std::int64_t i = 0; i < kVectorRows; i += kPart)
    for (std::int64_t j = 0; j < kVectorColumns; j += kLanes) {
      float sums[kPart][kLanes] = {};
      for (std::int64_t k = 0; k < 2 * pairs; ++k)
        for (int r = 0; r < kPart; ++r) {
          const float first = numbers(a)[k * kVectorRows + i + r];
          const float* const second = numbers(b) + k * kVectorColumns + j;
#pragma omp simd
          for (int n = 0; n < kLanes; ++n) sums[r][n] += first * second[n];
        }
      for (int r = 0; r < kPart; ++r)
#pragma omp simd
        for (int n = 0; n < kLanes; ++n) {
          float& to = c[(i + r) * c_stride + j + n];
          to = add ? to + sums[r][n] : sums[r][n];
        }
    }
}

}  // namespace

const TileKernels<float>& plain_fp32_kernels() {
  static constexpr TileKernels<float> kKernels{.rows = kVectorRows,
                                               .columns = kVectorColumns,
                                               .whole_pairs = 1,
                                               .pairs_across = kVectorPairsAcross,
                                               .words = 2,
                                               .most_rows = 256,
                                               .most_columns = 384,
                                               .summed = 384,
                                               .first = {turn<kVectorRows>, copy<kVectorRows>},
                                               .second = {turn<kVectorColumns>, copy<kVectorColumns>},
                                               .tile = tile};
  return kKernels;
}

}  // namespace kernels::cpu
