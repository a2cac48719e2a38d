// Products whose factors are packed for a processor's tiles: how they are cut for threads and caches. What an
// element is packed as is bf16_tile.h's affair.
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/bf16_panels.h"
#include "kernels/bf16_values.h"
#include "kernels/parallel.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {

// What one task computes of the result. More columns than one block of the second factor has: the first
// factor's rows are packed once for block after block. Otherwise both are packed block by block of what is
// summed.
struct TaskSize {
  std::int64_t rows, columns;
};

// Rows of which all that is summed is packed at once, in memory that the last cache holds; where these would
// be few, the second factor would be packed again too often for them. Smaller tasks where there would be too
// few for the threads. Sums do not depend on how they are cut.
template <class T>
TaskSize task_size(const TileKernels<T>& kernels, std::int64_t M, std::int64_t N, std::int64_t K) {
  constexpr std::int64_t kMostPacked = (std::int64_t{4} << 20) / (kParts<T> * sizeof(cuda::bf16));
  const std::int64_t at_once = kMostPacked / K / kernels.rows * kernels.rows;
  TaskSize task{std::min(at_once, kernels.most_rows), whole(N, kernels.columns)};
  if (task.rows < kernels.most_rows / 4 || task.columns <= kernels.most_columns)
    task = {kernels.most_rows, std::min(task.columns, kernels.most_columns)};
  const auto tasks = [&] {
    return ((M + task.rows - 1) / task.rows) * ((N + task.columns - 1) / task.columns);
  };
  // No more than that: each packs the second factor again.
  const std::int64_t wanted = 2 * omp_get_max_threads();
  while (tasks() < wanted && (task.rows > 64 || task.columns > 2 * kernels.columns)) {
    if (task.rows >= task.columns)
      task.rows = whole(task.rows / 2, kernels.rows);
    else
      task.columns = std::max(2 * kernels.columns, whole(task.columns / 2, kernels.columns));
  }
  return task;
}

struct PackedScratch {
  Lines<float> sums;
  Lines<Bf16Pair> a, b;
};

// Between rows of sums, so that those of a tile do not share sets of the first cache.
inline constexpr std::int64_t kPadding = 16;

// A row of the result: out = sums + bias + added, of which bias and added may be null.
template <class Out, class T>
KERNELS_INLINE void finish_row(Out* out, const float* sums, const T* bias, const T* added,
                               std::int64_t columns) {
  if (bias && added) {
#pragma omp simd
    for (std::int64_t n = 0; n < columns; ++n) store(out[n], sums[n] + widened(bias[n]) + widened(added[n]));
  } else if (bias || added) {
    const T* const only = bias ? bias : added;
#pragma omp simd
    for (std::int64_t n = 0; n < columns; ++n) store(out[n], sums[n] + widened(only[n]));
  } else {
#pragma omp simd
    for (std::int64_t n = 0; n < columns; ++n) store(out[n], sums[n]);
  }
}

// The result (M, N) = sum over K of a times b. The epilogue says what becomes of the sums:
//   finish(sums, stride, row, column, rows, columns): those (rows, columns), `stride` apart, are the result's
//     from (row, column) on;
//   ask_for_added(row, column, rows): so will be those of a tile, whose sums are formed now.
template <class T, class Epilogue>
void packed_product(const TileKernels<T>& kernels, PackedFactor<T> a, PackedFactor<T> b,
                    const Epilogue& epilogue, std::int64_t M, std::int64_t N, std::int64_t K) {
  const TaskSize size = task_size(kernels, M, N, K);
  const std::int64_t across = (N + size.columns - 1) / size.columns;
  const std::int64_t down = (M + size.rows - 1) / size.rows, stride = kernels.most_columns + kPadding;
  parallel_tasks(down * across, [&](std::int64_t task) {
    static thread_local PackedScratch scratch;
    const std::int64_t row = task / across * size.rows, first = task % across * size.columns;
    const std::int64_t rows = std::min(size.rows, M - row), last = std::min(N, first + size.columns);
    const std::int64_t packed_rows = whole(rows, kernels.rows);
    float* const sums = scratch.sums.at_least(packed_rows * stride);
    const bool at_once = size.columns > kernels.most_columns;
    const std::int64_t pairs_at_once = pairs_of(kernels, at_once ? K : std::min(kernels.summed, K));
    Bf16Pair* const panels_a = scratch.a.at_least(kParts<T> * packed_rows * pairs_at_once);
    Bf16Pair* const panels_b = scratch.b.at_least(kParts<T> * kernels.most_columns * kernels.summed / 2);
    const auto rows_at = [&](std::int64_t k) {
      return panels_a + (at_once ? kParts<T> * packed_rows * k / 2 : 0);
    };
    const auto length_at = [&](std::int64_t k) { return std::min(kernels.summed, K - k); };
    const auto pack_rows = [&](std::int64_t k) {
      pack_panels<T>(kernels.first, kernels.rows, rows_at(k), a, row, rows, k, length_at(k),
                     pairs_of(kernels, length_at(k)));
    };
    if (at_once)
      for (std::int64_t k = 0; k < K; k += kernels.summed) pack_rows(k);
    for (std::int64_t column = first; column < last; column += kernels.most_columns) {
      const std::int64_t columns = std::min(kernels.most_columns, last - column);
      if (kernels.begin_tiles) kernels.begin_tiles();
      for (std::int64_t k = 0; k < K; k += kernels.summed) {
        const std::int64_t pairs = pairs_of(kernels, length_at(k));
        if (!at_once) pack_rows(k);
        pack_panels<T>(kernels.second, kernels.columns, panels_b, b, column, columns, k, length_at(k), pairs);
        const bool is_last = k + kernels.summed >= K;
        for (std::int64_t i = 0; i < rows; i += kernels.rows) {
          float* const of_rows = sums + i * stride;
          const std::int64_t count = std::min(kernels.rows, rows - i);
          for (std::int64_t j = 0; j < columns; j += kernels.columns) {
            if (is_last) epilogue.ask_for_added(row + i, column + j, count);
            kernels.tile(of_rows + j, stride, rows_at(k) + kParts<T> * i * pairs,
                         panels_b + kParts<T> * j * pairs, pairs, k > 0);
          }
          // While their sums are in the first cache, and many columns at once: each row is another page.
          if (is_last) epilogue.finish(of_rows, stride, row + i, column, count, columns);
        }
      }
      if (kernels.end_tiles) kernels.end_tiles();
    }
  });
}

}  // namespace kernels::cpu
