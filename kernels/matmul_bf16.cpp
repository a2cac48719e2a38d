#include "kernels/matmul_bf16.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "kernels/bf16_tile.h"
#include "kernels/parallel.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

Bf16Products chosen = fastest_bf16_products();

bool by_instructions() {
  return chosen == Bf16Products::avx512_bf16;
}

// Up to this many rows, a product is bound by reading its weight once (kernels/matmul.cpp).
constexpr std::int64_t kMaxStreamedRows = 8;

// A block of the result and of what it sums lies in the second cache: 256 KiB of sums, 128 KiB of a factor
// each.
constexpr std::int64_t kSummed = 256;
constexpr std::int64_t kMostRows = 256, kMostColumns = 5 * kBf16Columns;

// A factor of a product: its element (i, k), i a row or column of the result, k summed over, is at
// data[i * stride + k], or with `transposed` at data[k * stride + i].
struct Factor {
  const bf16* data;
  std::int64_t stride;
  bool transposed;
};

// What becomes of the sums (rows, columns) of the result's block that begins at (row, column).
struct Epilogue {
  bf16* narrow = nullptr;
  float* wide = nullptr;
  std::int64_t stride = 0;
  const bf16 *bias = nullptr, *added = nullptr;  // added (M, N), as the result lies; may be the result
};

KERNELS_INLINE float widened(bf16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}
// To nearest, ties to even; NaN stays NaN. Without branches, so that loops vectorise.
KERNELS_INLINE std::uint16_t rounded(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t nearest = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40u;
  return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : nearest);
}

KERNELS_MULTIVERSION void finish_row(const Epilogue& e, float* sums, std::int64_t row, std::int64_t column,
                                     std::int64_t columns) {
  const std::int64_t at = row * e.stride + column;
  if (e.bias) {
    const bf16* const bias = e.bias + column;
#pragma omp simd
    for (std::int64_t n = 0; n < columns; ++n) sums[n] += widened(bias[n]);
  }
  if (e.added) {
    const bf16* const added = e.added + at;
#pragma omp simd
    for (std::int64_t n = 0; n < columns; ++n) sums[n] += widened(added[n]);
  }
  if (e.wide) {
    std::copy_n(sums, columns, e.wide + at);
    return;
  }
  bf16* const out = e.narrow + at;
#pragma omp simd
  for (std::int64_t n = 0; n < columns; ++n) out[n].bits = rounded(sums[n]);
}

// to (pairs, width) = pairs of rows k of from, element i of each: columns side by side. Zero beyond `count`
// columns and `length` rows.
KERNELS_MULTIVERSION void interleave(std::uint32_t* to, const bf16* from, std::int64_t stride,
                                     std::int64_t width, std::int64_t count, std::int64_t length) {
  for (std::int64_t p = 0; p < (length + 1) / 2; ++p) {
    const bf16* const first = from + 2 * p * stride;
    std::uint32_t* const row = to + p * width;
    if (2 * p + 1 < length) {
      const bf16* const second = first + stride;
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i)
        row[i] =
            static_cast<std::uint32_t>(first[i].bits) | (static_cast<std::uint32_t>(second[i].bits) << 16);
    } else {
      for (std::int64_t i = 0; i < count; ++i) row[i] = first[i].bits;
    }
    std::fill(row + count, row + width, 0u);
  }
}

// Rows of a as the tile reads them: in panels of kBf16Rows, (pairs, kBf16Rows).
void pack_rows(std::uint32_t* to, Factor a, std::int64_t row, std::int64_t rows, std::int64_t k,
               std::int64_t length) {
  const std::int64_t pairs = (length + 1) / 2;
  for (std::int64_t i = 0; i < rows; i += kBf16Rows, to += pairs * kBf16Rows) {
    const std::int64_t count = std::min(kBf16Rows, rows - i);
    if (a.transposed) {
      interleave(to, a.data + k * a.stride + row + i, a.stride, kBf16Rows, count, length);
      continue;
    }
    for (std::int64_t r = 0; r < kBf16Rows; ++r) {
      const bf16* const from = a.data + (row + i + std::min(r, count - 1)) * a.stride + k;
      for (std::int64_t p = 0; p < pairs; ++p) {
        std::uint32_t pair = 0;
        std::memcpy(&pair, from + 2 * p, 2 * p + 1 < length ? sizeof pair : sizeof(bf16));
        to[p * kBf16Rows + r] = pair;
      }
    }
  }
}

void pack_columns(std::uint32_t* to, Factor b, std::int64_t column, std::int64_t columns, std::int64_t k,
                  std::int64_t length) {
  const Bf16Transpose transpose = by_instructions() ? avx512_bf16_transpose() : plain_bf16_transpose;
  const std::int64_t pairs = (length + 1) / 2;
  for (std::int64_t j = 0; j < columns; j += kBf16Columns, to += pairs * kBf16Columns) {
    const std::int64_t count = std::min(kBf16Columns, columns - j);
    if (b.transposed)
      interleave(to, b.data + k * b.stride + column + j, b.stride, kBf16Columns, count, length);
    else
      transpose(to, b.data + (column + j) * b.stride + k, b.stride, count, length);
  }
}

struct BlockSize {
  std::int64_t rows, columns;
};

// Smaller blocks where there would be too few for the threads. Sums do not depend on how they are cut.
BlockSize block_size(std::int64_t M, std::int64_t N) {
  BlockSize block{kMostRows, kMostColumns};
  const auto blocks = [&] {
    return ((M + block.rows - 1) / block.rows) * ((N + block.columns - 1) / block.columns);
  };
  const std::int64_t wanted = 4 * omp_get_max_threads();
  while (blocks() < wanted && (block.rows > 64 || block.columns > 2 * kBf16Columns)) {
    if (block.rows >= block.columns)
      block.rows /= 2;
    else
      block.columns = std::max(2 * kBf16Columns, (block.columns / 2 / kBf16Columns) * kBf16Columns);
  }
  return block;
}

struct Scratch {
  std::vector<float> sums;
  std::vector<std::uint32_t> a, b;
};

// The result (M, N) = sum over K of a times b.
void product(Factor a, Factor b, const Epilogue& epilogue, std::int64_t M, std::int64_t N, std::int64_t K) {
  const BlockSize block = block_size(M, N);
  const std::int64_t across = (N + block.columns - 1) / block.columns;
  const std::int64_t down = (M + block.rows - 1) / block.rows;
  const Bf16Tile tile = by_instructions() ? avx512_bf16_tile() : plain_bf16_tile;
  parallel_tasks(down * across, [&](std::int64_t task) {
    static thread_local Scratch scratch;
    scratch.sums.resize(static_cast<std::size_t>(kMostRows * kMostColumns));
    scratch.a.resize(static_cast<std::size_t>(kMostRows * kSummed / 2));
    scratch.b.resize(static_cast<std::size_t>(kMostColumns * kSummed / 2));
    const std::int64_t row = task / across * block.rows, column = task % across * block.columns;
    const std::int64_t rows = std::min(block.rows, M - row), columns = std::min(block.columns, N - column);
    float* const sums = scratch.sums.data();
    std::fill_n(sums, (rows + kBf16Rows - 1) / kBf16Rows * kBf16Rows * kMostColumns, 0.0f);
    for (std::int64_t k = 0; k < K; k += kSummed) {
      const std::int64_t length = std::min(kSummed, K - k), pairs = (length + 1) / 2;
      pack_columns(scratch.b.data(), b, column, columns, k, length);
      pack_rows(scratch.a.data(), a, row, rows, k, length);
      for (std::int64_t j = 0; j < columns; j += kBf16Columns)
        for (std::int64_t i = 0; i < rows; i += kBf16Rows)
          tile(sums + i * kMostColumns + j, kMostColumns, {scratch.a.data() + i * pairs, 1, kBf16Rows},
               scratch.b.data() + j * pairs, pairs);
    }
    for (std::int64_t i = 0; i < rows; ++i)
      finish_row(epilogue, sums + i * kMostColumns, row + i, column, columns);
  });
}

// For few rows: each weight row read once.
void streamed(const Epilogue& epilogue, const bf16* inp, const bf16* weight, MatmulShape s) {
  const Bf16Dots dots = by_instructions() ? avx512_bf16_dots() : plain_bf16_dots;
  parallel_ranges(s.N, s.K, [&](std::int64_t begin, std::int64_t end) {
    float products[kMaxStreamedRows * 4];
    for (std::int64_t n = begin; n < end; n += 4) {
      const std::int64_t count = std::min<std::int64_t>(4, end - n);
      dots(products, inp, weight + n * s.K, s.M, count, s.K);
      for (std::int64_t m = 0; m < s.M; ++m) finish_row(epilogue, products + m * 4, m, n, count);
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
    for (std::int64_t n = 0; n < width; ++n)
      sums[first + n].bits = rounded(widened(sums[first + n]) + total[n]);
  }
}

}  // namespace

const char* name(Bf16Products path) {
  return path == Bf16Products::avx512_bf16 ? "AVX-512 BF16" : "plain";
}

Bf16Products fastest_bf16_products() {
  return has_avx512_bf16() ? Bf16Products::avx512_bf16 : Bf16Products::plain;
}

void use_bf16_products(Bf16Products path) {
  chosen = path;
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
  product({dout, s.N, true}, {inp, s.K, true}, {.narrow = dweight, .stride = s.K, .added = accumulate ? dweight : nullptr},
          s.N, s.K, s.M);
}

}  // namespace kernels::cpu
