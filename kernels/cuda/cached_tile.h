// A run of cached keys or values in shared memory, in 16 bits (T: bf16 or f16, as the queries) or e4m3, and a
// warp's products with it. Plain C++ except for the copies: tests on the host check the index maps.
//
// In e4m3 a fragment of B is four neighbouring bytes of a key, or the bytes of two neighbouring columns of
// two values, so no byte is moved between lanes. This changes the order in which a head's elements are summed
// and in which the output's columns come. The queries' fragments and column_of() follow that order.
#pragma once
#include "kernels/cuda/attention_arguments.h"
#include "kernels/cuda/attention_flash.h"
#include "kernels/cuda/shared_tile.h"

namespace kernels::cuda {

template <int D, class K>
struct CachedTile {
  static_assert(sizeof(K) == 2);
  static constexpr int kElements = SharedTile<D>::elements(kCacheRun);
  static constexpr int kVector = 8;  // elements of 16 bytes
  static constexpr int offset(int row, int column) { return SharedTile<D>::offset(row, column); }
  // The output column that column `column` (of 8) of accumulator number n stands for.
  static constexpr int column_of(int n, int column) { return n * 8 + column; }
};

template <int D>
struct CachedTile<D, e4m3> {
  // An odd number of 16-byte units from row to row, as in SharedTile.
  static constexpr int kStride = (D / 16 | 1) * 16;
  static constexpr int kElements = kCacheRun * kStride;
  static constexpr int kVector = 16;
  static constexpr int offset(int row, int column) { return row * kStride + column; }
  static constexpr int column_of(int n, int column) { return n / 2 * 16 + 2 * column + n % 2; }
};

// Begins to copy the run of kCacheRun keys or values from token `first` on, of which `count` are there; the
// rest of the tile becomes zeros. By one warp.
template <int D, class K>
CUDA_DEVICE void copy_cached_run(K* tile, const KeyRows<const K>& source, int first, int count, int columns) {
  using Tile = CachedTile<D, K>;
  constexpr int kVectors = D / Tile::kVector, kAll = kCacheRun * kVectors;
  const K* const from = count > 0 ? source.at(first) : source.first;
#pragma unroll
  for (int step = 0; step < (kAll + kWarp - 1) / kWarp; ++step) {
    const int i = step * kWarp + lane_index();
    if (kAll % kWarp != 0 && i >= kAll) break;
    const int row = i / kVectors, column = i % kVectors * Tile::kVector;
    const bool valid = row < count && column < columns;
    copy_async(tile + Tile::offset(row, column), valid ? from + row * source.row + column : from, valid);
  }
}

// Widens two of four e4m3 bytes to T: bytes 0 and 2, or 1 and 3. Exponent and significand are moved to where
// T has them. The result is the value times a power of two, for subnormal numbers too: 2^-120 in bf16, 2^-8
// in f16 (e4m3's bias is 7, theirs are 127 and 15). A multiplication takes that power out.
template <class T>
inline constexpr int kWideningShift = std::is_same_v<T, f16> ? 7 : 4;  // to T's significand of 10 or 7 bits
template <class T>
CUDA_DEVICE std::uint32_t widen(std::uint32_t signs, std::uint32_t magnitudes) {
  constexpr std::uint32_t kMagnitude = 0x7fu << kWideningShift<T>;
  constexpr std::uint32_t kPower = std::is_same_v<T, f16> ? 0x5c00u : 0x7b80u;  // 2^8, 2^120
  return multiply_pairs<T>((signs & 0x80008000u) | (magnitudes & (kMagnitude << 16 | kMagnitude)),
                           kPower << 16 | kPower);
}
template <class T>
CUDA_DEVICE std::uint32_t widen_even(std::uint32_t bytes) {
  return widen<T>(bytes << 8, bytes << kWideningShift<T>);
}
template <class T>
CUDA_DEVICE std::uint32_t widen_odd(std::uint32_t bytes) {
  return widen<T>(bytes, bytes >> (8 - kWideningShift<T>));
}

// Widens all four, in the order in which they lie.
template <class T>
CUDA_DEVICE void widen_in_order(std::uint32_t& first, std::uint32_t& second, std::uint32_t bytes) {
  const std::uint32_t even = widen_even<T>(bytes), odd = widen_odd<T>(bytes);
  first = (even & 0xffffu) | odd << 16;
  second = even >> 16 | (odd & 0xffff0000u);
}

// Loads the A fragments of a row of queries: row lane / 4 of the tile where half is 0, the row 8 below where
// it is 1; zeros where `from` is null. With e4m3 keys and c = lane % 4, A's columns 2c, 2c + 1, 2c + 8,
// 2c + 9 of 16 are elements 4c, 4c + 2, 4c + 1, 4c + 3.
template <int D, class K, class T>
CUDA_DEVICE void load_query_fragments(std::uint32_t (&q)[D / 16][4], int half, const T* from, int columns) {
  const int c = lane_index() % 4;
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
    std::uint32_t low = 0, high = 0;
    if constexpr (sizeof(K) == 1) {
      if (from != nullptr && k * 16 < columns) {
        const auto* const pairs = reinterpret_cast<const std::uint32_t*>(from + k * 16 + 4 * c);
        low = (pairs[0] & 0xffffu) | pairs[1] << 16;
        high = pairs[0] >> 16 | (pairs[1] & 0xffff0000u);
      }
    } else {
      const auto* const pairs = reinterpret_cast<const std::uint32_t*>(from + k * 16 + 2 * c);
      if (from != nullptr && k * 16 < columns) low = pairs[0];
      if (from != nullptr && k * 16 + 8 < columns) high = pairs[4];
    }
    q[k][half] = low;
    q[k][2 + half] = high;
  }
}

// score (16, kCacheRun) = the queries times the transposed keys.
template <int D, class T>
CUDA_DEVICE void multiply_cached_keys(float (&score)[kCacheRun / 8][4], const std::uint32_t (&q)[D / 16][4],
                                      const T* keys) {
#pragma unroll
  for (int i = 0; i < 4; ++i) score[0][i] = score[1][i] = 0;
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
    std::uint32_t columns[4];
    load_b_transposed<D>(columns, keys, 0, k * 16);
    multiply_add<T>(score[0], q[k], columns[0], columns[1]);
    multiply_add<T>(score[1], q[k], columns[2], columns[3]);
  }
}
template <int D, class T>
CUDA_DEVICE void multiply_cached_keys(float (&score)[kCacheRun / 8][4], const std::uint32_t (&q)[D / 16][4],
                                      const e4m3* keys) {
  using Tile = CachedTile<D, e4m3>;
#pragma unroll
  for (int n = 0; n < kCacheRun / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) score[n][i] = 0;
#pragma unroll
    for (int k = 0; k < D / 16; ++k) {
      const std::uint32_t bytes = *reinterpret_cast<const std::uint32_t*>(
          keys + Tile::offset(n * 8 + lane_index() / 4, k * 16 + lane_index() % 4 * 4));
      multiply_add<T>(score[n], q[k], widen_even<T>(bytes), widen_odd<T>(bytes));
    }
  }
}

// o (16, D; columns as column_of() has them) += p (16, kCacheRun), rounded to T, times the values.
template <int D, class T>
CUDA_DEVICE void multiply_cached_values(float (&o)[D / 8][4], const float (&p)[kCacheRun / 8][4],
                                        const T* values) {
  multiply_scores<D>(o, p, values);
}
template <int D, class T>
CUDA_DEVICE void multiply_cached_values(float (&o)[D / 8][4], const float (&p)[kCacheRun / 8][4],
                                        const e4m3* values) {
  using Tile = CachedTile<D, e4m3>;
  std::uint32_t rows[4];
  accumulators_as_a<T>(rows, p[0], p[1]);
  // Matrices of 8 values by 8 pairs of columns, transposed: a lane gets two values' bytes of a pair of
  // columns. Four a time: values 0-7 and 8-15, of 16 columns and of the next 16.
#pragma unroll
  for (int m = 0; m < D / 16; m += 2) {
    const bool has_next = m + 1 < D / 16;
    const int lane = lane_index(), row = lane % 16, column = (m + (has_next ? lane / 16 : 0)) * 16;
    std::uint32_t bytes[4];
    load_matrices_transposed(bytes, values + Tile::offset(row, column));
#pragma unroll
    for (int next = 0; next < 2; ++next) {
      if (next == 1 && !has_next) continue;
      multiply_add<T>(o[2 * (m + next)], rows, widen_even<T>(bytes[2 * next]),
                      widen_even<T>(bytes[2 * next + 1]));
      multiply_add<T>(o[2 * (m + next) + 1], rows, widen_odd<T>(bytes[2 * next]),
                      widen_odd<T>(bytes[2 * next + 1]));
    }
  }
}

}  // namespace kernels::cuda
