#include "kernels/muon.h"

#include <cmath>

#include "tests/kernels/compare.h"

using test::normal_tensor;
using test::to_double;

namespace {

template <class Real>
using Matrix = std::vector<Real>;

// a (n, k) times b (m, k) transposed.
template <class Real>
Matrix<Real> times_transposed(const Matrix<Real>& a, const Matrix<Real>& b, std::size_t n, std::size_t m,
                              std::size_t k) {
  Matrix<Real> out(n * m);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < m; ++j)
      for (std::size_t l = 0; l < k; ++l) out[i * m + j] += a[i * k + l] * b[j * k + l];
  return out;
}
template <class Real>
Matrix<Real> transposed(const Matrix<Real>& a, std::size_t n, std::size_t m) {
  Matrix<Real> out(a.size());
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < m; ++j) out[j * n + i] = a[i * m + j];
  return out;
}

// By the definition, without turning tall matrices: the polynomial of X X^T times X.
template <class Real>
Matrix<Real> orthogonal(Matrix<Real> x, std::size_t rows, std::size_t cols) {
  Real squares = 0;
  for (const Real value : x) squares += value * value;
  for (Real& value : x) value /= std::sqrt(squares);
  for (int iteration = 0; iteration < 5; ++iteration) {
    const auto gram = times_transposed(x, x, rows, rows, cols);
    auto factor = times_transposed(gram, gram, rows, rows, rows);
    for (std::size_t i = 0; i < factor.size(); ++i)
      factor[i] = Real(-4.7750) * gram[i] + Real(2.0315) * factor[i];
    const auto more = times_transposed(factor, transposed(x, rows, cols), rows, cols, rows);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = Real(3.4445) * x[i] + more[i];
  }
  for (Real& value : x) value *= Real(0.2) * std::sqrt(Real(std::max(rows, cols)));
  return x;
}

}  // namespace

TEST_CASE("Orthogonalised matrices, wide, square and tall, are as accurate as plain loops") {
  struct Size {
    std::size_t rows, cols;
  };
  for (const Size s : {Size{1, 1}, {3, 20}, {24, 24}, {50, 17}}) {
    CAPTURE(s.rows, s.cols);
    const std::size_t one = s.rows * s.cols;
    const auto update = normal_tensor(static_cast<std::int64_t>(2 * one), 1);
    auto both = update;
    kernels::cpu::orthogonalise(both.data(),
                                {2, static_cast<std::int64_t>(s.rows), static_cast<std::int64_t>(s.cols)});
    for (const std::size_t m : {std::size_t{0}, one}) {
      const auto begin = static_cast<std::ptrdiff_t>(m), end = static_cast<std::ptrdiff_t>(m + one);
      const Matrix<float> of{update.begin() + begin, update.begin() + end};
      test::check_as_accurate_as_plain({both.begin() + begin, both.begin() + end},
                                       orthogonal(of, s.rows, s.cols),
                                       orthogonal(to_double(of), s.rows, s.cols), test::kBackward);
    }
  }
}

TEST_CASE("All singular values of an orthogonalised matrix come near one another: its rows' squares too") {
  const std::size_t rows = 16, cols = 256;
  auto matrix = normal_tensor(static_cast<std::int64_t>(rows * cols), 3);
  for (std::size_t c = 0; c < cols; ++c) matrix[c] *= 20;  // one direction far greater than the others
  kernels::cpu::orthogonalise(matrix.data(), {1, rows, cols});
  const auto gram = times_transposed(to_double(matrix), to_double(matrix), rows, rows, cols);
  // Jordan's coefficients bring singular values into [0.7, 1.2]; the step's size is 0.2 sqrt(cols).
  const double step = 0.04 * cols;
  for (std::size_t r = 0; r < rows; ++r) {
    CHECK(gram[r * rows + r] > 0.45 * step);
    CHECK(gram[r * rows + r] < 1.5 * step);
  }
}

TEST_CASE("Muon's momentum moves towards gradients and looks one step ahead, decay shrinks before the step") {
  const kernels::AdamWSettings settings{0.1f, 0.9f, 0.95f, 1e-8f, 0.5f, 1};
  const float scale = 2;
  std::vector<float> gradient{1, -2}, moment{0.5f, 4}, update(2, NAN), parameter{10, -10};
  kernels::cpu::muon_momentum(update.data(), gradient.data(), moment.data(), 2, &scale, settings);
  for (std::size_t i = 0; i < 2; ++i) {
    const double g = 2.0 * gradient[i], before = i == 0 ? 0.5 : 4, after = 0.9 * before + 0.1 * g;
    CHECK(moment[i] == Approx(after));
    CHECK(update[i] == Approx(0.9 * after + 0.1 * g));
  }
  std::vector<float> without = parameter;
  kernels::cpu::apply_update(parameter.data(), update.data(), 2, true, settings);
  kernels::cpu::apply_update(without.data(), update.data(), 2, false, settings);
  CHECK(parameter[0] == Approx(10 * 0.95 - 0.1 * update[0]));
  CHECK(without[1] == Approx(-10 - 0.1 * update[1]));
}
