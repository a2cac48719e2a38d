// Activations of single families, against their definitions in double and differences of those.
#include <cmath>

#include "kernels/activation.h"
#include "kernels/qk_norm.h"
#include "kernels/rope.h"
#include "tests/kernels/compare.h"

using test::kBackward;
using test::kForward;
using test::normal_tensor;
using test::to_double;

namespace {

template <class Real>
Real exact_gelu(Real x) {
  return x / 2 * (1 + std::erf(x / std::sqrt(Real(2))));
}
template <class Real>
Real exact_gelu_slope(Real x) {
  const Real density = std::exp(-x * x / 2) / std::sqrt(2 * std::acos(Real(-1)));
  return (1 + std::erf(x / std::sqrt(Real(2)))) / 2 + x * density;
}

// gpt-oss's: gate and up clamped, then gate * sigmoid(1.702 gate) * (up + 1).
template <class Real>
struct Clamped {
  Real gate, up;
  Real g() const { return std::min(gate, Real(7)); }
  Real u() const { return std::max(Real(-7), std::min(up, Real(7))); }
  Real sigmoid() const { return 1 / (1 + std::exp(-Real(1.702) * g())); }
  Real value() const { return g() * sigmoid() * (u() + 1); }
  Real slope_of_gate() const {
    return gate > 7 ? Real(0) : (u() + 1) * sigmoid() * (1 + Real(1.702) * g() * (1 - sigmoid()));
  }
  Real slope_of_up() const { return std::abs(up) > 7 ? Real(0) : g() * sigmoid(); }
};

template <class Real>
struct ClampedRows {
  std::vector<Real> out, dgate_up, dweights;
  ClampedRows(const std::vector<Real>& gate_up, const std::vector<Real>& weights,
              const std::vector<Real>& dout, std::size_t F)
      : out(dout.size()), dgate_up(gate_up.size()), dweights(weights.size()) {
    for (std::size_t r = 0; r < weights.size(); ++r)
      for (std::size_t f = 0; f < F; ++f) {
        const std::size_t g = r * 2 * F + f, u = g + F, i = r * F + f;
        const Clamped<Real> at{gate_up[g], gate_up[u]};
        out[i] = weights[r] * at.value();
        dgate_up[g] = dout[i] * weights[r] * at.slope_of_gate();
        dgate_up[u] = dout[i] * weights[r] * at.slope_of_up();
        dweights[r] += dout[i] * at.value();
      }
  }
};

}  // namespace

TEST_CASE("GELU by the error function and its gradient are as accurate as plain loops, also far from zero") {
  for (const float deviation : {0.1f, 1.0f, 4.0f, 30.0f}) {
    CAPTURE(deviation);
    const std::int64_t R = 37, F = 201;
    const auto inp = normal_tensor(R * F, 1, deviation), dout = normal_tensor(R * F, 2);
    std::vector<float> out(inp.size(), NAN), dinp(inp.size(), NAN), plain, plain_gradient;
    std::vector<double> exact, exact_gradient;
    for (std::size_t i = 0; i < inp.size(); ++i) {
      plain.push_back(exact_gelu(inp[i]));
      exact.push_back(exact_gelu(static_cast<double>(inp[i])));
      plain_gradient.push_back(dout[i] * exact_gelu_slope(inp[i]));
      exact_gradient.push_back(dout[i] * exact_gelu_slope(static_cast<double>(inp[i])));
    }
    kernels::cpu::gelu_exact_forward(out.data(), inp.data(), R, F);
    test::check_as_accurate_as_plain(out, plain, exact, kForward);
    kernels::cpu::gelu_exact_backward(dinp.data(), dout.data(), inp.data(), R, F);
    test::check_as_accurate_as_plain(dinp, plain_gradient, exact_gradient, kBackward);
    auto in_place = dout;
    kernels::cpu::gelu_exact_backward(in_place.data(), in_place.data(), inp.data(), R, F);
    CHECK(in_place == dinp);
  }
}

TEST_CASE("The references' slopes are the differences of their values") {
  constexpr double h = 1e-6;
  for (const double x : {-8.2, -3.0, -0.4, 0.0, 0.7, 2.5, 6.9, 7.5})
    for (const double up : {-7.4, -1.2, 0.3, 7.1}) {
      CAPTURE(x, up);
      CHECK(exact_gelu_slope(x) == Approx((exact_gelu(x + h) - exact_gelu(x - h)) / (2 * h)).margin(1e-8));
      const auto value = [&](double dx, double du) { return Clamped<double>{x + dx, up + du}.value(); };
      const Clamped<double> at{x, up};
      CHECK(at.slope_of_gate() == Approx((value(h, 0) - value(-h, 0)) / (2 * h)).margin(1e-7));
      CHECK(at.slope_of_up() == Approx((value(0, h) - value(0, -h)) / (2 * h)).margin(1e-7));
    }
}

TEST_CASE("Clamped SwiGLU of weighted rows, with its gradients, is as accurate as plain loops") {
  const std::int64_t R = 21, F = 67;
  const auto gate_up = normal_tensor(R * 2 * F, 1, 5.0f), dout = normal_tensor(R * F, 2),
             weights = normal_tensor(R, 3);
  std::vector<float> out(dout.size(), NAN), dgate_up(gate_up.size(), NAN), dweights(weights.size(), NAN);
  kernels::cpu::clamped_swiglu_forward(out.data(), gate_up.data(), R, F, {weights.data()});
  kernels::cpu::clamped_swiglu_backward(dgate_up.data(), dout.data(), gate_up.data(), R, F, {weights.data()},
                                        dweights.data());
  const auto width = static_cast<std::size_t>(F);
  const ClampedRows<float> plain(gate_up, weights, dout, width);
  const ClampedRows<double> exact(to_double(gate_up), to_double(weights), to_double(dout), width);
  test::check_as_accurate_as_plain(out, plain.out, exact.out, kForward);
  test::check_as_accurate_as_plain(dgate_up, plain.dgate_up, exact.dgate_up, kBackward);
  test::check_as_accurate_as_plain(dweights, plain.dweights, exact.dweights, kBackward);
}

TEST_CASE("Gradients of weighed rows are the weights times theirs, and their products with the rows") {
  const std::int64_t R = 9, F = 130;
  const auto inp = normal_tensor(R * F, 1), dout = normal_tensor(R * F, 2), weights = normal_tensor(R, 3);
  std::vector<float> out(inp.size(), NAN), dinp(inp.size(), NAN), dweights(weights.size(), NAN);
  kernels::cpu::weigh_rows(out.data(), inp.data(), R, F, {weights.data()});
  kernels::cpu::weigh_rows_backward(dinp.data(), dweights.data(), dout.data(), inp.data(), weights.data(), R,
                                    F);
  for (std::size_t r = 0; r < weights.size(); ++r) {
    double sum = 0, largest = 0;
    for (std::size_t f = 0; f < static_cast<std::size_t>(F); ++f) {
      const std::size_t i = r * static_cast<std::size_t>(F) + f;
      CHECK(out[i] == weights[r] * inp[i]);
      CHECK(dinp[i] == weights[r] * dout[i]);
      sum += static_cast<double>(dout[i]) * inp[i];
      largest += std::abs(static_cast<double>(dout[i]) * inp[i]);
    }
    CHECK(dweights[r] == Approx(sum).margin(static_cast<double>(F) * 0x1p-24 * largest));
  }
}

TEST_CASE("A norm of queries and keys without gains is that with gains of 1 up to rounding") {
  const kernels::QkNormShape s{12, 4, 2, 24};
  const std::int64_t size = s.R * (s.H + 2 * s.G) * s.D;
  const auto inp = normal_tensor(size, 1, 2.0f), dout = normal_tensor(size, 2);
  const std::vector<float> ones(static_cast<std::size_t>(2 * s.D), 1.0f);
  const auto run = [&](const float* gains) {
    std::vector<float> out(inp.size(), NAN), rstd(static_cast<std::size_t>(s.R * (s.H + s.G)), NAN),
        dgains(ones.size()), gradient = dout;
    kernels::cpu::qk_norm_forward(out.data(), rstd.data(), inp.data(), gains, 1e-5f, s);
    kernels::cpu::qk_norm_backward(gradient.data(), gains ? dgains.data() : nullptr, inp.data(), gains,
                                   rstd.data(), s);
    out.insert(out.end(), gradient.begin(), gradient.end());
    return out;
  };
  const std::vector<float> without = run(nullptr);
  CHECK(test::worst_error(without, to_double(run(ones.data()))) < 16 * 0x1p-24);
}

TEST_CASE("The first pairs of a partly rotated head turn as a smaller head does, and the others stay") {
  const std::int64_t P = 30, D = 16, rotated = 6;
  std::vector<float> table(P * D, NAN), of_smaller(P * rotated, NAN);
  kernels::cpu::rope_table(table.data(), 10000, {}, P, D, rotated);
  kernels::cpu::rope_table(of_smaller.data(), 10000, {}, P, rotated);
  for (std::int64_t p = 0; p < P; ++p)
    for (std::int64_t i = 0; i < D / 2; ++i) {
      const auto cosine = static_cast<std::size_t>(p * D + i), sine = cosine + D / 2;
      const auto smaller = static_cast<std::size_t>(p * rotated + i);
      CHECK(table[cosine] == (i < rotated / 2 ? of_smaller[smaller] : 1.0f));
      CHECK(table[sine] == (i < rotated / 2 ? of_smaller[smaller + rotated / 2] : 0.0f));
    }
}

TEST_CASE("YaRN keeps what turns often within the original length and stretches what turns seldom") {
  const std::int64_t D = 64;
  const kernels::RopeScaling scaling{.kind = kernels::RopeScaling::Kind::yarn,
                                     .factor = 8,
                                     .original_max_position_embeddings = 4096,
                                     .beta_fast = 32,
                                     .beta_slow = 1,
                                     .truncate = false,
                                     .attention_factor = 1};
  std::vector<float> table(2 * D, NAN);
  kernels::cpu::rope_table(table.data(), 10000, scaling, 2, D);
  double before = 2;
  for (std::int64_t i = 0; i < D / 2; ++i) {
    CAPTURE(i);
    const auto at = static_cast<std::size_t>(D + i);
    const double frequency =
        std::atan2(static_cast<double>(table[at + D / 2]), static_cast<double>(table[at]));
    const double plain = std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(D));
    const double turns = 4096 * plain / (2 * std::acos(-1.0));
    if (turns > 32) CHECK(frequency == Approx(plain).epsilon(1e-5));
    if (turns < 1) CHECK(frequency == Approx(plain / 8).epsilon(1e-5));
    CHECK(frequency >= plain / 8 * (1 - 1e-5));
    CHECK(frequency < before);
    before = frequency;
  }
}
