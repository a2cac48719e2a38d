// Packing for tiles of products (packed_tile.h), and the memory that packed factors lie in.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/packed_tile.h"

namespace kernels::cpu {

inline std::int64_t whole(std::int64_t count, std::int64_t of) {
  return (count + of - 1) / of * of;
}

// How many pairs `length` summed elements fill, rounded up to what a tile takes.
template <class T>
std::int64_t pairs_of(const TileKernels<T>& kernels, std::int64_t length) {
  return whole((length + 1) / 2, kernels.whole_pairs);
}

// A factor of a product: its element (i, k), i a row or column of the result, k summed over, is at
// data[i * stride + k], or with `transposed` at data[k * stride + i].
template <class T>
struct PackedFactor {
  const T* data;
  std::int64_t stride;
  bool transposed = false;

  // From element (i, k) on.
  Source<T> from(std::int64_t i, std::int64_t k) const {
    return {data + (transposed ? k * stride + i : i * stride + k), stride};
  }
};

// Packs `count` rows or columns of the factor, from `first` on, into panels of `width`; of each, the `length`
// summed elements from `k` on. A panel takes width * pairs * kernels.words words.
template <class T>
void pack_panels(const TileKernels<T>& kernels, const typename TileKernels<T>::Packs& packs,
                 std::int64_t width, PackedWord* to, PackedFactor<T> factor, std::int64_t first,
                 std::int64_t count, std::int64_t k, std::int64_t length, std::int64_t pairs) {
  const auto pack_panel = factor.transposed ? packs.from_columns : packs.from_rows;
  const std::int64_t together = factor.transposed ? kernels.pairs_across : pairs;
  for (std::int64_t p = 0; p < pairs; p += together)
    for (std::int64_t i = 0; i < count; i += width)
      pack_panel(to + kernels.words * (i * pairs + p * width), factor.from(first + i, k + 2 * p),
                 std::min(width, count - i), length - 2 * p, std::min(together, pairs - p));
}

// Memory that grows, from the beginning of a cache line on.
template <class T>
class Lines {
 public:
  T* at_least(std::int64_t count) {
    constexpr std::size_t kLine = 64;
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T) + kLine;
    if (bytes_.size() < bytes) bytes_.resize(bytes);
    void* begin = bytes_.data();
    std::size_t space = bytes_.size();
    return static_cast<T*>(std::align(kLine, bytes - kLine, begin, space));
  }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace kernels::cpu
