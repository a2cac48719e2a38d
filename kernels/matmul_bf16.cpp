#include "kernels/matmul_bf16.h"

#include <algorithm>
#include <cstddef>

#include "kernels/bf16_panels.h"
#include "kernels/bf16_values.h"
#include "kernels/parallel.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

const Bf16Kernels* kernels_of(Bf16Products path) {
  switch (path) {
    case Bf16Products::plain:
      return &plain_bf16_kernels();
    case Bf16Products::emulated_amx:
      return &emulated_amx_bf16_kernels();
    case Bf16Products::avx512_bf16:
      return avx512_bf16_kernels();
    case Bf16Products::amx:
      return amx_bf16_kernels();
  }
  return nullptr;
}

// Chosen when a product first needs it: a process has to ask the system for AMX, which commands that compute
// nothing do not need.
const Bf16Kernels*& chosen() {
  static const Bf16Kernels* kernels = kernels_of(fastest_bf16_products());
  return kernels;
}

// Up to this many rows, a product is bound by reading its weight once (kernels/matmul.cpp).
constexpr std::int64_t kMaxStreamedRows = 8;

// What becomes of the sums (rows, columns) of the result's block that begins at (row, column).
struct Epilogue {
  bf16* narrow = nullptr;
  float* wide = nullptr;
  std::int64_t stride = 0;
  const bf16 *bias = nullptr, *added = nullptr;  // added (M, N), as the result lies; may be the result
};

KERNELS_INLINE void store(float& out, float x) {
  out = x;
}
KERNELS_INLINE void store(bf16& out, float x) {
  out = rounded(x);
}

// out = sums + bias + added, of which bias and added may be null.
template <class Out>
KERNELS_INLINE void finish_row(Out* out, const float* sums, const bf16* bias, const bf16* added,
                               std::int64_t columns) {
  if (bias && added) {
#pragma omp simd
    for (std::int64_t n = 0; n < columns; ++n) store(out[n], sums[n] + widened(bias[n]) + widened(added[n]));
  } else if (bias || added) {
    const bf16* const only = bias ? bias : added;
#pragma omp simd
    for (std::int64_t n = 0; n < columns; ++n) store(out[n], sums[n] + widened(only[n]));
  } else {
#pragma omp simd
    for (std::int64_t n = 0; n < columns; ++n) store(out[n], sums[n]);
  }
}

// Sums (rows, columns), `stride` apart, of the result from (row, column) on.
KERNELS_MULTIVERSION void finish(const Epilogue& e, const float* sums, std::int64_t stride, std::int64_t row,
                                 std::int64_t column, std::int64_t rows, std::int64_t columns) {
  const bf16* const bias = e.bias ? e.bias + column : nullptr;
  for (std::int64_t i = 0; i < rows; ++i, sums += stride) {
    const std::int64_t at = (row + i) * e.stride + column;
    const bf16* const added = e.added ? e.added + at : nullptr;
    if (e.wide)
      finish_row(e.wide + at, sums, bias, added, columns);
    else
      finish_row(e.narrow + at, sums, bias, added, columns);
  }
}

// Asks for what is added to a tile while its sums are formed.
void ask_for_added(const Epilogue& e, std::int64_t row, std::int64_t column, std::int64_t rows) {
  if (!e.added) return;
  for (std::int64_t i = 0; i < rows; ++i) ask_for(e.added + (row + i) * e.stride + column);
}

// What one task computes of the result: the first factor's rows are packed once, for block after block of the
// second's columns.
struct TaskSize {
  std::int64_t rows, columns;
};

// Rows of which all that is summed is packed at once, in memory that the last cache holds. Smaller tasks
// where there would be too few for the threads. Sums do not depend on how they are cut.
TaskSize task_size(const Bf16Kernels& kernels, std::int64_t M, std::int64_t N, std::int64_t K) {
  constexpr std::int64_t kMostPacked = (std::int64_t{4} << 20) / sizeof(bf16);
  TaskSize task{std::clamp(kMostPacked / K / kernels.rows * kernels.rows, kernels.rows, kernels.most_rows),
                whole(N, kernels.columns)};
  const auto tasks = [&] {
    return ((M + task.rows - 1) / task.rows) * ((N + task.columns - 1) / task.columns);
  };
  const std::int64_t wanted = 4 * omp_get_max_threads();
  while (tasks() < wanted && (task.rows > 64 || task.columns > 2 * kernels.columns)) {
    if (task.rows >= task.columns)
      task.rows = whole(task.rows / 2, kernels.rows);
    else
      task.columns = std::max(2 * kernels.columns, whole(task.columns / 2, kernels.columns));
  }
  return task;
}

struct Scratch {
  Lines<float> sums;
  Lines<Bf16Pair> a, b;
};

// Between rows of sums, so that those of a tile do not share sets of the first cache.
constexpr std::int64_t kPadding = 16;

// The result (M, N) = sum over K of a times b.
void product(Bf16Factor a, Bf16Factor b, const Epilogue& epilogue, std::int64_t M, std::int64_t N,
             std::int64_t K) {
  const Bf16Kernels& kernels = bf16_kernels();
  const TaskSize size = task_size(kernels, M, N, K);
  const std::int64_t across = (N + size.columns - 1) / size.columns;
  const std::int64_t down = (M + size.rows - 1) / size.rows, stride = kernels.most_columns + kPadding;
  parallel_tasks(down * across, [&](std::int64_t task) {
    static thread_local Scratch scratch;
    const std::int64_t row = task / across * size.rows, first = task % across * size.columns;
    const std::int64_t rows = std::min(size.rows, M - row), last = std::min(N, first + size.columns);
    const std::int64_t packed_rows = whole(rows, kernels.rows);
    float* const sums = scratch.sums.at_least(packed_rows * stride);
    Bf16Pair* const panels_a = scratch.a.at_least(packed_rows * pairs_of(kernels, K));
    Bf16Pair* const panels_b = scratch.b.at_least(kernels.most_columns * kernels.summed / 2);
    const auto length_at = [&](std::int64_t k) { return std::min(kernels.summed, K - k); };
    for (std::int64_t k = 0; k < K; k += kernels.summed)
      pack_panels(kernels.first, kernels.rows, panels_a + packed_rows * k / 2, a, row, rows, k, length_at(k),
                  pairs_of(kernels, length_at(k)));
    for (std::int64_t column = first; column < last; column += kernels.most_columns) {
      const std::int64_t columns = std::min(kernels.most_columns, last - column);
      if (kernels.begin_tiles) kernels.begin_tiles();
      for (std::int64_t k = 0; k < K; k += kernels.summed) {
        const std::int64_t pairs = pairs_of(kernels, length_at(k));
        const Bf16Pair* const of_k = panels_a + packed_rows * k / 2;
        pack_panels(kernels.second, kernels.columns, panels_b, b, column, columns, k, length_at(k), pairs);
        const bool is_last = k + kernels.summed >= K;
        for (std::int64_t i = 0; i < rows; i += kernels.rows) {
          float* const of_rows = sums + i * stride;
          const std::int64_t count = std::min(kernels.rows, rows - i);
          for (std::int64_t j = 0; j < columns; j += kernels.columns) {
            if (is_last) ask_for_added(epilogue, row + i, column + j, count);
            kernels.tile(of_rows + j, stride, of_k + i * pairs, panels_b + j * pairs, pairs, k > 0);
          }
          // While their sums are in the first cache, and many columns at once: each row is another page.
          if (is_last) finish(epilogue, of_rows, stride, row + i, column, count, columns);
        }
      }
      if (kernels.end_tiles) kernels.end_tiles();
    }
  });
}

// For few rows: each weight row read once.
void streamed(const Epilogue& epilogue, const bf16* inp, const bf16* weight, MatmulShape s) {
  const auto dots = chosen()->dots;
  parallel_ranges(s.N, s.K, [&](std::int64_t begin, std::int64_t end) {
    float products[kMaxStreamedRows * 4];
    for (std::int64_t n = begin; n < end; n += 4) {
      const std::int64_t count = std::min<std::int64_t>(4, end - n);
      dots(products, inp, weight + n * s.K, s.M, count, s.K);
      finish(epilogue, products, 4, 0, n, s.M, count);
    }
  });
}

// sums (begin..end) += column sums of dout (M, N).
KERNELS_MULTIVERSION void add_column_sums(bf16* sums, const bf16* dout, MatmulShape s, std::int64_t begin,
                                          std::int64_t end) {
  constexpr std::int64_t kColumns = 256;
  for (std::int64_t first = begin; first < end; first += kColumns) {
    const std::int64_t width = std::min(kColumns, end - first);
    float total[kColumns] = {};
    for (std::int64_t m = 0; m < s.M; ++m)
#pragma omp simd
      for (std::int64_t n = 0; n < width; ++n) total[n] += widened(dout[m * s.N + first + n]);
    for (std::int64_t n = 0; n < width; ++n) sums[first + n] = rounded(widened(sums[first + n]) + total[n]);
  }
}

}  // namespace

const char* name(Bf16Products path) {
  switch (path) {
    case Bf16Products::plain:
      return "fp32 multiplications";
    case Bf16Products::emulated_amx:
      return "AMX, emulated";
    case Bf16Products::avx512_bf16:
      return "AVX-512 BF16";
    case Bf16Products::amx:
      return "AMX";
  }
  return "";
}

std::vector<Bf16Products> bf16_products() {
  std::vector<Bf16Products> here;
  for (const Bf16Products path :
       {Bf16Products::plain, Bf16Products::emulated_amx, Bf16Products::avx512_bf16, Bf16Products::amx})
    if (kernels_of(path)) here.push_back(path);
  return here;
}

Bf16Products fastest_bf16_products() {
  return amx_bf16_kernels()      ? Bf16Products::amx
         : avx512_bf16_kernels() ? Bf16Products::avx512_bf16
                                 : Bf16Products::plain;
}

void use_bf16_products(Bf16Products path) {
  chosen() = kernels_of(path);
}

const Bf16Kernels& bf16_kernels() {
  return *chosen();
}

void matmul_forward(WideOrNarrow out, const bf16* inp, const bf16* weight, const bf16* bias,
                    const bf16* residual, MatmulShape s) {
  const Epilogue epilogue{out.narrow, out.wide, s.N, bias, residual};
  if (s.M <= kMaxStreamedRows) return streamed(epilogue, inp, weight, s);
  product({inp, s.K, false}, {weight, s.K, false}, epilogue, s.M, s.N, s.K);
}

void matmul_backward_input(bf16* dinp, const bf16* dout, const bf16* weight, bool accumulate, MatmulShape s) {
  product({dout, s.N, false}, {weight, s.K, true},
          {.narrow = dinp, .stride = s.K, .added = accumulate ? dinp : nullptr}, s.M, s.K, s.N);
}

void matmul_backward_weight(bf16* dweight, bf16* dbias, const bf16* dout, const bf16* inp, MatmulShape s,
                            bool accumulate) {
  if (dbias && !accumulate) std::fill_n(dbias, s.N, bf16{});
  if (dbias)
    parallel_ranges(
        s.N, s.M, [=](std::int64_t begin, std::int64_t end) { add_column_sums(dbias, dout, s, begin, end); });
  product({dout, s.N, true}, {inp, s.K, true},
          {.narrow = dweight, .stride = s.K, .added = accumulate ? dweight : nullptr}, s.N, s.K, s.M);
}

}  // namespace kernels::cpu
