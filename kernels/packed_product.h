// How a product whose factors are packed for a processor's tiles is cut for threads and caches. packed_tile.h
// says what an element is packed as.
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/bf16_values.h"
#include "kernels/packed_panels.h"
#include "kernels/parallel.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {

// Which factor all threads together pack as a whole before the tasks begin. Each task itself packs its part
// of any other factor.
enum class PackedTogether { none, first, second };

// How a product is cut into tasks.
struct ProductPlan {
  std::int64_t rows, columns;  // of a task
  PackedTogether together = PackedTogether::none;
};

// The most bytes that a factor packed by all threads together may take, and that the rows packed at once by
// one task may take. The last-level cache holds both.
inline constexpr std::int64_t kMostPackedTogether = std::int64_t{16} << 20;
inline constexpr std::int64_t kMostPackedByTask = std::int64_t{4} << 20;

// Divides `count` rows or columns into equal parts, as few as possible, of at most `most` each and a multiple
// of `multiple` in number. Returns a part's size, rounded up to whole tiles of `tile`.
inline std::int64_t evenly(std::int64_t count, std::int64_t most, std::int64_t tile,
                           std::int64_t multiple = 1) {
  const std::int64_t parts = whole((count + most - 1) / most, multiple);
  return whole((count + parts - 1) / parts, tile);
}

// All threads together pack the smaller factor, if it is small enough; tasks divide the other one's rows or
// columns, so that each element is packed once. If neither is small enough, a task takes some rows and packs
// them over the whole of K at once, or, if these would be too few, packs both factors block by block of K.
// The sums do not depend on how the product is cut.
template <class T>
ProductPlan product_plan(const TileKernels<T>& kernels, std::int64_t M, std::int64_t N, std::int64_t K) {
  const std::int64_t bytes = sizeof(PackedWord) * kernels.words * pairs_of(kernels, K);  // of a row or column
  const std::int64_t whole_rows = whole(M, kernels.rows), whole_columns = whole(N, kernels.columns);
  const auto may_be_packed = [&](std::int64_t count) { return count * bytes <= kMostPackedTogether; };
  const std::int64_t rows_at_once = kMostPackedByTask / bytes / kernels.rows * kernels.rows;
  ProductPlan plan{std::min(rows_at_once, kernels.most_rows), whole_columns};
  if (M < N && may_be_packed(whole_rows)) {
    plan = {std::min(whole_rows, 2 * kernels.most_rows), whole_columns, PackedTogether::first};
  } else if (may_be_packed(whole_columns)) {
    plan.together = PackedTogether::second;
    if (N <= kernels.most_columns) plan.rows = kernels.most_rows;
  } else if (plan.rows < kernels.most_rows / 4 || plan.columns <= kernels.most_columns) {
    plan = {kernels.most_rows, std::min(plan.columns, kernels.most_columns)};
  }
  const auto tasks = [&] {
    return ((M + plan.rows - 1) / plan.rows) * ((N + plan.columns - 1) / plan.columns);
  };
  // Two tasks a thread, so that a slow thread holds up the others less; no more, because each task packs.
  const std::int64_t wanted = 2 * omp_get_max_threads(), least_columns = 2 * kernels.columns;
  constexpr std::int64_t kLeastRows = 64;
  while (tasks() < wanted && (plan.rows > kLeastRows || plan.columns > least_columns)) {
    // Halves the side of the factor that tasks pack; where they pack both, the longer side.
    const bool halves_rows = plan.together == PackedTogether::none ? plan.rows >= plan.columns
                                                                   : plan.together == PackedTogether::second;
    if (plan.rows > kLeastRows && (halves_rows || plan.columns <= least_columns))
      plan.rows = whole(plan.rows / 2, kernels.rows);
    else
      plan.columns = std::max(least_columns, whole(plan.columns / 2, kernels.columns));
  }
  // Every thread gets the same number of tasks.
  if (plan.columns >= N) plan.rows = evenly(M, plan.rows, kernels.rows, omp_get_max_threads());
  if (plan.rows >= M) plan.columns = evenly(N, plan.columns, kernels.columns, omp_get_max_threads());
  return plan;
}

struct PackedScratch {
  Lines<float> sums;
  Lines<PackedWord> a, b;
};

// Floats between rows of sums: without them a tile's rows would share sets of the L1 cache.
inline constexpr std::int64_t kPadding = 16;

// A row of the result: out = scale * sums + bias + added, of which bias and added may be null.
template <class Out, class T>
KERNELS_INLINE void finish_row(Out* out, const float* sums, const T* bias, const T* added,
                               std::int64_t columns, float scale = 1) {
  if (bias && added) {
#pragma omp simd
    for (std::int64_t n = 0; n < columns; ++n)
      store(out[n], scale * sums[n] + widened(bias[n]) + widened(added[n]));
  } else if (bias || added) {
    const T* const only = bias ? bias : added;
#pragma omp simd
    for (std::int64_t n = 0; n < columns; ++n) store(out[n], scale * sums[n] + widened(only[n]));
  } else {
#pragma omp simd
    for (std::int64_t n = 0; n < columns; ++n) store(out[n], scale * sums[n]);
  }
}

// Where a factor's packed elements lie: one block of the summed dimension after another, with all `count`
// rows or columns in each block.
struct Panels {
  PackedWord* begin = nullptr;
  std::int64_t count = 0;  // whole tiles
  std::int64_t words = 1;  // of a pair

  // From row or column i on, in the block that begins at element k and has `pairs`.
  PackedWord* at(std::int64_t k, std::int64_t i, std::int64_t pairs) const {
    return begin + words * (count * k / 2 + i * pairs);
  }
};

// Packs all of a factor on all threads, into the calling thread's memory, which its next call reuses.
template <class T>
Panels pack_together(const TileKernels<T>& kernels, const typename TileKernels<T>::Packs& packs,
                     std::int64_t width, PackedFactor<T> factor, std::int64_t count, std::int64_t K) {
  static thread_local Lines<PackedWord> memory;
  const std::int64_t whole_count = whole(count, width);
  const Panels to{memory.at_least(kernels.words * whole_count * pairs_of(kernels, K)), whole_count,
                  kernels.words};
  const std::int64_t each = kernels.most_columns / width * width;
  const std::int64_t parts = (count + each - 1) / each, blocks = (K + kernels.summed - 1) / kernels.summed;
  parallel_tasks(parts * blocks, [&](std::int64_t task) {
    const std::int64_t k = task / parts * kernels.summed, first = task % parts * each;
    const std::int64_t length = std::min(kernels.summed, K - k), pairs = pairs_of(kernels, length);
    pack_panels<T>(kernels, packs, width, to.at(k, first, pairs), factor, first,
                   std::min(each, count - first), k, length, pairs);
  });
  return to;
}

// The result (M, N) = sum over K of a times b. The epilogue says what becomes of the sums:
//   finish(sums, stride, row, column, rows, columns): these (rows, columns) sums, whose rows are `stride`
//     floats apart, are complete; they belong at (row, column) of the result;
//   ask_for(row, column, rows): prefetches for a tile whose sums are being formed now.
template <class T, class Epilogue>
void packed_product(const TileKernels<T>& kernels, PackedFactor<T> a, PackedFactor<T> b,
                    const Epilogue& epilogue, std::int64_t M, std::int64_t N, std::int64_t K) {
  const ProductPlan plan = product_plan(kernels, M, N, K);
  const std::int64_t across = (N + plan.columns - 1) / plan.columns;
  const std::int64_t down = (M + plan.rows - 1) / plan.rows, stride = kernels.most_columns + kPadding;
  const std::int64_t all_pairs = pairs_of(kernels, K);
  const bool in_place = kernels.tile_of_rows && !a.transposed && K % (2 * kernels.whole_pairs) == 0;
  const bool first_together = plan.together == PackedTogether::first && !in_place;
  const bool second_together = plan.together == PackedTogether::second;
  Panels together{};
  if (first_together) together = pack_together<T>(kernels, kernels.first, kernels.rows, a, M, K);
  if (second_together) together = pack_together<T>(kernels, kernels.second, kernels.columns, b, N, K);
  parallel_tasks(down * across, [&](std::int64_t task) {
    static thread_local PackedScratch scratch;
    const std::int64_t row = task / across * plan.rows, first = task % across * plan.columns;
    const std::int64_t rows = std::min(plan.rows, M - row), last = std::min(N, first + plan.columns);
    float* const sums = scratch.sums.at_least(whole(rows, kernels.rows) * stride);
    // Rows before this one are read where they lie. The rest, less than a tile, is packed.
    const std::int64_t first_packed = in_place ? rows / kernels.rows * kernels.rows : 0;
    const std::int64_t packed_rows = whole(rows - first_packed, kernels.rows);
    // Rows are packed once for all blocks of columns; with only one, memory for one block of K is enough.
    const bool rows_at_once = !first_together && plan.columns > kernels.most_columns;
    const auto length_at = [&](std::int64_t k) { return std::min(kernels.summed, K - k); };
    const Panels own_rows{
        first_together ? nullptr
                       : scratch.a.at_least(kernels.words * packed_rows *
                                            (rows_at_once ? all_pairs : pairs_of(kernels, length_at(0)))),
        packed_rows, kernels.words};
    const Panels own_columns{
        second_together ? nullptr
                        : scratch.b.at_least(kernels.words * kernels.most_columns * kernels.summed / 2),
        kernels.most_columns, kernels.words};
    const auto rows_at = [&](std::int64_t k, std::int64_t pairs) {
      return first_together ? together.at(k, row, pairs) : own_rows.at(rows_at_once ? k : 0, 0, pairs);
    };
    const auto pack_rows = [&](std::int64_t k) {
      const std::int64_t pairs = pairs_of(kernels, length_at(k));
      pack_panels<T>(kernels, kernels.first, kernels.rows, rows_at(k, pairs), a, row + first_packed,
                     rows - first_packed, k, length_at(k), pairs);
    };
    if (rows_at_once)
      for (std::int64_t k = 0; k < K; k += kernels.summed) pack_rows(k);
    const std::int64_t block = evenly(last - first, kernels.most_columns, kernels.columns);
    for (std::int64_t column = first; column < last; column += block) {
      const std::int64_t columns = std::min(block, last - column);
      if (kernels.begin_tiles) kernels.begin_tiles();
      for (std::int64_t k = 0; k < K; k += kernels.summed) {
        const std::int64_t pairs = pairs_of(kernels, length_at(k));
        if (!first_together && !rows_at_once) pack_rows(k);
        PackedWord* const panels_b =
            second_together ? together.at(k, column, pairs) : own_columns.at(0, 0, pairs);
        if (!second_together)
          pack_panels<T>(kernels, kernels.second, kernels.columns, panels_b, b, column, columns, k,
                         length_at(k), pairs);
        const PackedWord* const panels_a = rows_at(k, pairs);
        const bool is_last = k + kernels.summed >= K;
        for (std::int64_t i = 0; i < rows; i += kernels.rows) {
          float* const of_rows = sums + i * stride;
          const std::int64_t count = std::min(kernels.rows, rows - i);
          for (std::int64_t j = 0; j < columns; j += kernels.columns) {
            if (is_last) epilogue.ask_for(row + i, column + j, count);
            const PackedWord* const panel_b = panels_b + kernels.words * j * pairs;
            if (i < first_packed)
              kernels.tile_of_rows(of_rows + j, stride, a.from(row + i, k), panel_b, pairs, k > 0);
            else
              kernels.tile(of_rows + j, stride, panels_a + kernels.words * (i - first_packed) * pairs,
                           panel_b, pairs, k > 0);
          }
          // Now, with the sums in the L1 cache; many columns at once, because each row is another page.
          if (is_last) epilogue.finish(of_rows, stride, row + i, column, count, columns);
        }
      }
      if (kernels.end_tiles) kernels.end_tiles();
    }
  });
}

}  // namespace kernels::cpu
