// What flash and decode attention share: a warp's products with tiles in shared memory, and one step of the
// online softmax over its 16 rows of scores.
#pragma once
#include "kernels/cuda/attention.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/shared_tile.h"

namespace kernels::cuda {

// s (Tiles of 8 columns) = a's 16 rows from `row` times the transposed rows of b.
template <int D, class T, int Tiles>
CUDA_DEVICE void multiply_rows(float (&s)[Tiles][4], const T* a, int row, const T* b) {
#pragma unroll
  for (int n = 0; n < Tiles; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) s[n][i] = 0;
#pragma unroll
  for (int k = 0; k < D; k += 16) {
    std::uint32_t rows[4], columns[4];
    load_a<D>(rows, a, row, k);
#pragma unroll
    for (int n = 0; n < Tiles; n += 2) {
      load_b_transposed<D>(columns, b, n * 8, k);
      multiply_add<T>(s[n], rows, columns[0], columns[1]);
      multiply_add<T>(s[n + 1], rows, columns[2], columns[3]);
    }
  }
}

// o (16, D) += s (16, Tiles * 8), rounded to T, times the rows of b.
template <int D, class T, int Tiles>
CUDA_DEVICE void multiply_scores(float (&o)[D / 8][4], const float (&s)[Tiles][4], const T* b) {
#pragma unroll
  for (int k = 0; k < Tiles; k += 2) {
    std::uint32_t rows[4], columns[4];
    accumulators_as_a<T>(rows, s[k], s[k + 1]);
#pragma unroll
    for (int n = 0; n < D / 8; n += 2) {
      load_b<D>(columns, b, k * 8, n * 8);
      multiply_add<T>(o[n], rows, columns[0], columns[1]);
      multiply_add<T>(o[n + 1], rows, columns[2], columns[3]);
    }
  }
}

// Raises `highest` (of a lane's two rows, in units of the exponent) to the new maximum; score (16, Tiles * 8)
// becomes exp2(score * to_exponent - highest). sum (this lane's share) is rescaled and added to; the caller
// rescales earlier output by `shrink`. A row that has seen no key keeps sum 0.
template <int Tiles>
CUDA_DEVICE void exponentiate(float (&score)[Tiles][4], float (&highest)[2], float (&sum)[2],
                              float (&shrink)[2], float to_exponent) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float most = score[0][2 * half];
#pragma unroll
    for (int n = 0; n < Tiles; ++n) most = fmaxf(most, fmaxf(score[n][2 * half], score[n][2 * half + 1]));
    most = fmaxf(most, shuffle_xor(most, 1));
    most = fmaxf(most, shuffle_xor(most, 2));
    const float raised = fmaxf(highest[half], most * to_exponent);
    const float base = raised == -INFINITY ? 0 : raised;
    shrink[half] = exp2_fast(highest[half] - base);
    highest[half] = raised;
    float added = 0;
#pragma unroll
    for (int n = 0; n < Tiles; ++n)
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        score[n][i] = exp2_fast(score[n][i] * to_exponent - base);
        added += score[n][i];
      }
    sum[half] = sum[half] * shrink[half] + added;
  }
}
template <int Columns>
CUDA_DEVICE void scale_rows(float (&o)[Columns][4], const float (&factor)[2]) {
#pragma unroll
  for (int n = 0; n < Columns; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) o[n][i] *= factor[i / 2];
}
// exponentiate(), and then scale_rows() of o (16, Columns * 8).
template <int Columns, int Tiles>
CUDA_DEVICE void raise_and_exponentiate(float (&score)[Tiles][4], float (&highest)[2], float (&sum)[2],
                                        float (&o)[Columns][4], float to_exponent) {
  float shrink[2];
  exponentiate(score, highest, sum, shrink, to_exponent);
  scale_rows(o, shrink);
}

// Writes a warp's 16 rows of accumulators, from `row` on, times a factor for a lane's first and second row.
// Rows from `rows` on and columns from `columns` on are not written. For each two tiles of 8 columns the four
// lanes of a row exchange values until each lane has four neighbouring columns: a store is then 8 bytes, and
// 32 a row.
template <int D, class To>
CUDA_DEVICE void store_rows(const To& to, int row, int rows, int columns, const float (&o)[D / 8][4],
                            const float (&factor)[2]) {
  using T = std::remove_reference_t<decltype(to.at(0)[0])>;
  const int lane = not_before(lane_index());
  const bool in_right_tile = (lane & 2) != 0, in_right_half = (lane & 1) != 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = row + lane / 4 + half * 8;
#pragma unroll
    for (int n = 0; n < D / 8; n += 2) {
      const std::uint32_t left =
          pack_pair<T>(o[n][2 * half] * factor[half], o[n][2 * half + 1] * factor[half]);
      const std::uint32_t right =
          pack_pair<T>(o[n + 1][2 * half] * factor[half], o[n + 1][2 * half + 1] * factor[half]);
      // Pair lane % 2 of the tile's four pairs of columns, and the pair two further on.
      const std::uint32_t other_tiles = shuffle_xor(in_right_tile ? left : right, 2);
      const std::uint32_t near = in_right_tile ? other_tiles : left,
                          far = in_right_tile ? right : other_tiles;
      const std::uint32_t other_halves = shuffle_xor(in_right_half ? near : far, 1);
      const Pack<std::uint32_t, 2> pairs{in_right_half ? other_halves : near,
                                         in_right_half ? far : other_halves};
      const int column = (n + (in_right_tile ? 1 : 0)) * 8 + (in_right_half ? 4 : 0);
      if (r < rows && column < columns) *reinterpret_cast<Pack<std::uint32_t, 2>*>(to.at(r) + column) = pairs;
    }
  }
}

// Calls body.template operator()<D>() with the smallest tile width that holds the head size.
template <class Body>
void with_head_size(std::int64_t D, const Body& body) {
  if (D <= 64)
    body.template operator()<64>();
  else if (D <= 80)
    body.template operator()<80>();
  else if (D <= 96)
    body.template operator()<96>();
  else
    body.template operator()<128>();
}

// delta, shaped as lse: for each row of each head, the sum of dout * out. The gradients of all scores of the
// row use it.
void attention_deltas(const Context& context, float* delta, ConstTensor dout, ConstTensor out,
                      AttentionShape s, const AttentionMask& mask);

// Any number of new tokens; requires flash_takes().
void attention_flash_with_cache(const Context& context, Tensor out, ConstTensor qkv, const KvCache& cache,
                                const std::int32_t* positions, AttentionShape s, ConstTensor sinks);

}  // namespace kernels::cuda
