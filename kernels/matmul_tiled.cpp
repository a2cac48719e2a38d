#include "kernels/matmul_tiled.h"

#include "kernels/float_vector.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

constexpr int kColumns = 4;  // of a tile: rows of the weight, whose sums are one vector of out

struct Product {
  float* out;
  const float *inp, *weight, *bias, *residual;
  MatmulShape s;
};

// Half of v added to the other half, again and again until four sums are left to add.
template <int lanes>
KERNELS_INLINE Vector<4> four_sums(const Vector<lanes>& v) {
  if constexpr (lanes == 4) {
    return v;
  } else {
    const auto* const values = reinterpret_cast<const float*>(&v);
    return four_sums<lanes / 2>(at<lanes / 2>(values) + at<lanes / 2>(values + lanes / 2));
  }
}

KERNELS_INLINE float sum(const Vector<4>& v) {
  return (v[0] + v[1]) + (v[2] + v[3]);
}

// The sums of a, b, c and d, each in the order of sum().
KERNELS_INLINE Vector<4> sums(const Vector<4>& a, const Vector<4>& b, const Vector<4>& c,
                              const Vector<4>& d) {
  const Vector<4> ab = __builtin_shufflevector(a, b, 0, 4, 2, 6) + __builtin_shufflevector(a, b, 1, 5, 3, 7),
                  cd = __builtin_shufflevector(c, d, 0, 4, 2, 6) + __builtin_shufflevector(c, d, 1, 5, 3, 7);
  return __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
}

template <int rows, int columns, int lanes>
KERNELS_INLINE void tile(const Product& p, std::int64_t m, std::int64_t n) {
  const std::int64_t K = p.s.K;
  const float *const inp = p.inp + m * K, *const weight = p.weight + n * K;
  Vector<lanes> products[rows][columns] = {};
  std::int64_t k = 0;
  for (; k + lanes <= K; k += lanes) {
    Vector<lanes> w[columns];
#pragma GCC unroll 4
    for (int c = 0; c < columns; ++c) {
      w[c] = at<lanes>(weight + c * K + k);
      if (m == 0) ask_for(weight + (columns + c) * K + k);  // the next tile's, which all rows wait for
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r) {
      const Vector<lanes> x = at<lanes>(inp + r * K + k);
#pragma GCC unroll 4
      for (int c = 0; c < columns; ++c) products[r][c] += x * w[c];
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r) {
    float row[columns];
    if constexpr (columns == kColumns)
      at<4>(row) = sums(four_sums<lanes>(products[r][0]), four_sums<lanes>(products[r][1]),
                        four_sums<lanes>(products[r][2]), four_sums<lanes>(products[r][3]));
    else
      row[0] = sum(four_sums<lanes>(products[r][0]));
#pragma GCC unroll 4
    for (int c = 0; c < columns; ++c) {
      for (std::int64_t rest = k; rest < K; ++rest) row[c] += inp[r * K + rest] * weight[c * K + rest];
      const std::int64_t to = (m + r) * p.s.N + n + c;
      p.out[to] = row[c] + (p.bias ? p.bias[n + c] : 0.0f) + (p.residual ? p.residual[to] : 0.0f);
    }
  }
}

// All rows: as many tiles of `rows` as there are, and one of what is left.
template <int rows, int columns, int lanes>
KERNELS_INLINE void all_rows(const Product& p, std::int64_t m, std::int64_t n) {
  for (; m + rows <= p.s.M; m += rows) tile<rows, columns, lanes>(p, m, n);
  if constexpr (rows > 1) all_rows<rows - 1, columns, lanes>(p, m, n);
}

template <int rows, int lanes>
KERNELS_INLINE void all_columns(const Product& p, std::int64_t n, std::int64_t end) {
  for (; n + kColumns <= end; n += kColumns) all_rows<rows, kColumns, lanes>(p, 0, n);
  for (; n < end; ++n) all_rows<rows, 1, lanes>(p, 0, n);
}

struct Tiled {
  // Three rows by four columns take 12 of 16 registers for the sums, five for factors; six rows 24 of 32.
  template <int lanes>
  static KERNELS_INLINE void run(float* out, const float* inp, const float* weight, const float* bias,
                                 const float* residual, MatmulShape s, std::int64_t begin, std::int64_t end) {
    all_columns<lanes == 16 ? 6 : 3, lanes>({out, inp, weight, bias, residual, s}, begin, end);
  }
};

}  // namespace

void matmul_tiled(float* out, const float* inp, const float* weight, const float* bias, const float* residual,
                  MatmulShape s, std::int64_t begin, std::int64_t end) {
  static const auto tiled = with_widest_vectors<Tiled>(matmul_tiled);
  tiled(out, inp, weight, bias, residual, s, begin, end);
}

}  // namespace kernels::cpu
