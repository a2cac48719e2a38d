#include "kernels/muon.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/parallel.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

constexpr auto kLinear = static_cast<float>(kMuonLinear), kCubic = static_cast<float>(kMuonCubic),
               kQuintic = static_cast<float>(kMuonQuintic), kStepSize = static_cast<float>(kMuonStepSize);

KERNELS_MULTIVERSION void momentum_range(float* update, const float* gradient, float* moment, float scale,
                                         float beta, std::int64_t begin, std::int64_t end) {
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) {
    const float g = gradient[i] * scale;
    moment[i] += (1.0f - beta) * (g - moment[i]);
    update[i] = g + beta * (moment[i] - g);
  }
}

KERNELS_MULTIVERSION void apply_range(float* parameter, const float* update, float shrink, float rate,
                                      std::int64_t begin, std::int64_t end) {
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) parameter[i] = parameter[i] * shrink - rate * update[i];
}

// to (cols, rows) = from (rows, cols) turned.
void transpose(float* to, const float* from, std::int64_t rows, std::int64_t cols) {
  parallel_ranges(cols, rows, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; ++c)
      for (std::int64_t r = 0; r < rows; ++r) to[c * rows + r] = from[r * cols + c];
  });
}

// A matrix of no more rows than columns.
void orthogonalise_wide(float* x, std::int64_t rows, std::int64_t cols) {
  thread_local std::vector<float> gram, squared, product;
  const auto square = static_cast<std::size_t>(rows * rows), all = static_cast<std::size_t>(rows * cols);
  gram.resize(square);
  squared.resize(square);
  product.resize(all);
  double squares = 0;
  for (std::size_t i = 0; i < all; ++i) squares += static_cast<double>(x[i]) * x[i];
  const auto scale = static_cast<float>(1 / std::max(std::sqrt(squares), 1e-7));
  for (std::size_t i = 0; i < all; ++i) x[i] *= scale;
  for (int iteration = 0; iteration < kMuonIterations; ++iteration) {
    matmul_forward(gram.data(), x, x, nullptr, nullptr, {rows, rows, cols});
    matmul_forward(squared.data(), gram.data(), gram.data(), nullptr, nullptr, {rows, rows, rows});
    for (std::size_t i = 0; i < square; ++i) gram[i] = kCubic * gram[i] + kQuintic * squared[i];
    matmul_backward_input(product.data(), gram.data(), x, false, {rows, rows, cols});
    for (std::size_t i = 0; i < all; ++i) x[i] = kLinear * x[i] + product[i];
  }
  const float step = kStepSize * std::sqrt(static_cast<float>(cols));
  for (std::size_t i = 0; i < all; ++i) x[i] *= step;
}

}  // namespace

void muon_momentum(float* update, const float* gradient, float* moment, std::int64_t count,
                   const float* gradient_scale, const AdamWSettings& settings) {
  const float scale = gradient_scale ? *gradient_scale : 1.0f, beta = settings.beta1;
  parallel_ranges(count, 3, [=](std::int64_t begin, std::int64_t end) {
    momentum_range(update, gradient, moment, scale, beta, begin, end);
  });
}

void orthogonalise(float* update, MuonShape s) {
  thread_local std::vector<float> turned;
  for (std::int64_t m = 0; m < s.matrices; ++m) {
    float* const matrix = update + m * s.rows * s.cols;
    if (s.rows <= s.cols) {
      orthogonalise_wide(matrix, s.rows, s.cols);
      continue;
    }
    turned.resize(static_cast<std::size_t>(s.rows * s.cols));
    transpose(turned.data(), matrix, s.rows, s.cols);
    orthogonalise_wide(turned.data(), s.cols, s.rows);
    transpose(matrix, turned.data(), s.cols, s.rows);
  }
}

void apply_update(float* parameter, const float* update, std::int64_t count, bool decay,
                  const AdamWSettings& settings) {
  const float rate = settings.learning_rate, shrink = decay ? 1.0f - rate * settings.weight_decay : 1.0f;
  parallel_ranges(count, 2, [=](std::int64_t begin, std::int64_t end) {
    apply_range(parameter, update, shrink, rate, begin, end);
  });
}

}  // namespace kernels::cpu
