#include "kernels/activation.h"

#include "kernels/threads.h"
#include "kernels/vector_math.h"
#include "tests/kernels/compare.h"
#include "tests/kernels/reference.h"

using test::kBackward;
using test::kForward;
using test::normal_tensor;
using test::to_double;

TEST_CASE("exp_approx is within 2 ulp over its range, 0 below it, and keeps NaN") {
  double worst = 0;
  for (float x = -87.33f; x <= 88.0f; x += 1.0f / 1024) {
    const double exact = std::exp(static_cast<double>(x));
    const float nearest = static_cast<float>(exact);
    const double ulp = std::nextafter(nearest, INFINITY) - nearest;
    worst = std::max(worst, std::abs(kernels::cpu::exp_approx(x) - exact) / ulp);
  }
  CHECK(worst <= 2);
  CHECK(kernels::cpu::exp_approx(0.0f) == 1.0f);
  CHECK(kernels::cpu::exp_approx(-88.0f) == 0.0f);
  CHECK(kernels::cpu::exp_approx(-INFINITY) == 0.0f);
  CHECK(std::isfinite(kernels::cpu::exp_approx(INFINITY)));
  CHECK(std::isnan(kernels::cpu::exp_approx(NAN)));
}

TEST_CASE("GELU and its gradient are as accurate as plain loops, also far from zero", "[long]") {
  struct Shape {
    std::int64_t R, F;
  };
  for (const Shape s : {Shape{1, 1}, {3, 17}, {65, 100}, {40, 3072}})
    for (const float deviation : {0.1f, 1.0f, 10.0f}) {
      CAPTURE(s.R, s.F, deviation);
      const auto inp = normal_tensor(s.R * s.F, 1, deviation), dout = normal_tensor(s.R * s.F, 2);
      std::vector<float> out(inp.size(), NAN), dinp(inp.size(), NAN);
      kernels::cpu::gelu_forward(out.data(), inp.data(), s.R, s.F);
      test::check_as_accurate_as_plain(out, reference::gelu_forward(inp),
                                       reference::gelu_forward(to_double(inp)), kForward);
      kernels::cpu::gelu_backward(dinp.data(), dout.data(), inp.data(), s.R, s.F);
      test::check_as_accurate_as_plain(dinp, reference::gelu_backward(dout, inp),
                                       reference::gelu_backward(to_double(dout), to_double(inp)), kBackward);
      auto in_place = dout;
      kernels::cpu::gelu_backward(in_place.data(), in_place.data(), inp.data(), s.R, s.F);
      CHECK(in_place == dinp);
    }
}

TEST_CASE("SwiGLU and its gradient are as accurate as plain loops") {
  struct Shape {
    std::int64_t R, F;
  };
  for (const Shape s : {Shape{1, 1}, {3, 17}, {65, 100}, {20, 1536}}) {
    CAPTURE(s.R, s.F);
    const auto gate_up = normal_tensor(s.R * 2 * s.F, 1, 3.0f), dout = normal_tensor(s.R * s.F, 2);
    std::vector<float> out(dout.size(), NAN), dgate_up(gate_up.size(), NAN);
    kernels::cpu::swiglu_forward(out.data(), gate_up.data(), s.R, s.F);
    test::check_as_accurate_as_plain(out, reference::swiglu_forward(gate_up, s.R, s.F),
                                     reference::swiglu_forward(to_double(gate_up), s.R, s.F), kForward);
    kernels::cpu::swiglu_backward(dgate_up.data(), dout.data(), gate_up.data(), s.R, s.F);
    test::check_as_accurate_as_plain(
        dgate_up, reference::swiglu_backward(dout, gate_up, s.R, s.F),
        reference::swiglu_backward(to_double(dout), to_double(gate_up), s.R, s.F), kBackward);
  }
}

// Where a thread's part begins decides which elements a vector holds and which are left for the scalar end of
// the loop.
TEST_CASE("activations give the same bits however the elements are cut over threads") {
  const std::int64_t R = 7, F = 4999;
  const auto inp = normal_tensor(R * F, 1, 2.0f), dout = normal_tensor(R * F, 2),
             gate_up = normal_tensor(2 * R * F, 3);
  std::vector<std::vector<float>> first;
  for (const int threads : {1, 2, 3, 7}) {
    CAPTURE(threads);
    kernels::cpu::set_threads(threads);
    std::vector<std::vector<float>> results(4, std::vector<float>(inp.size()));
    results[3].resize(gate_up.size());
    kernels::cpu::gelu_forward(results[0].data(), inp.data(), R, F);
    kernels::cpu::gelu_backward(results[1].data(), dout.data(), inp.data(), R, F);
    kernels::cpu::swiglu_forward(results[2].data(), gate_up.data(), R, F);
    kernels::cpu::swiglu_backward(results[3].data(), dout.data(), gate_up.data(), R, F);
    if (first.empty()) first = results;
    CHECK(results == first);
  }
  kernels::cpu::set_threads(0);
}

namespace {

struct RowsOf {
  std::int64_t R, F;
};

// For a gated activation with rows' weights, by its definition; gradients by the chain rule.
struct GatedReference {
  bool gelu;
  bool sigmoid;

  template <class Real>
  Real gate(Real x) const {
    if (!gelu) return x / (1 + std::exp(-x));
    const Real u = std::sqrt(Real(2) / std::acos(Real(-1))) * (x + Real(0.044715) * x * x * x);
    return x / 2 * (1 + std::tanh(u));
  }
  template <class Real>
  Real slope(Real x) const {
    if (!gelu) {
      const Real s = 1 / (1 + std::exp(-x));
      return s + x * s * (1 - s);
    }
    const Real root = std::sqrt(Real(2) / std::acos(Real(-1)));
    const Real t = std::tanh(root * (x + Real(0.044715) * x * x * x));
    return (1 + t) / 2 + x / 2 * (1 - t * t) * root * (1 + 3 * Real(0.044715) * x * x);
  }
  template <class Real>
  struct Result {
    std::vector<Real> out, dgate_up, dweights;
  };
  template <class Real>
  Result<Real> run(const std::vector<Real>& gate_up, const std::vector<Real>& weights,
                   const std::vector<Real>& dout, RowsOf s) const {
    Result<Real> r{std::vector<Real>(dout.size()), std::vector<Real>(gate_up.size()),
                   std::vector<Real>(weights.size())};
    for (std::int64_t row = 0; row < s.R; ++row) {
      const auto at = static_cast<std::size_t>(row);
      const Real w = sigmoid ? 1 / (1 + std::exp(-weights[at])) : weights[at];
      Real dw = 0;
      for (std::int64_t f = 0; f < s.F; ++f) {
        const auto i = static_cast<std::size_t>(row * s.F + f),
                   g = static_cast<std::size_t>(row * 2 * s.F + f), u = g + static_cast<std::size_t>(s.F);
        r.out[i] = w * gate(gate_up[g]) * gate_up[u];
        r.dgate_up[g] = dout[i] * w * slope(gate_up[g]) * gate_up[u];
        r.dgate_up[u] = dout[i] * w * gate(gate_up[g]);
        dw += dout[i] * gate(gate_up[g]) * gate_up[u];
      }
      r.dweights[at] = sigmoid ? dw * w * (1 - w) : dw;
    }
    return r;
  }
};

}  // namespace

TEST_CASE("Gated activations of weighted rows, with their gradients, are as accurate as plain loops") {
  for (const RowsOf s : {RowsOf{1, 1}, {3, 17}, {65, 100}})
    for (const bool gelu : {false, true})
      for (const bool sigmoid : {false, true}) {
        CAPTURE(s.R, s.F, gelu, sigmoid);
        const auto gate_up = normal_tensor(s.R * 2 * s.F, 1, 2.0f), dout = normal_tensor(s.R * s.F, 2),
                   weights = normal_tensor(s.R, 3);
        std::vector<float> out(dout.size(), NAN), dgate_up(gate_up.size(), NAN),
            dweights(weights.size(), NAN);
        const kernels::cpu::RowWeights rows{weights.data(), sigmoid};
        if (gelu) {
          kernels::cpu::geglu_forward(out.data(), gate_up.data(), s.R, s.F, rows);
          kernels::cpu::geglu_backward(dgate_up.data(), dout.data(), gate_up.data(), s.R, s.F, rows,
                                       dweights.data());
        } else {
          kernels::cpu::swiglu_forward(out.data(), gate_up.data(), s.R, s.F, rows);
          kernels::cpu::swiglu_backward(dgate_up.data(), dout.data(), gate_up.data(), s.R, s.F, rows,
                                        dweights.data());
        }
        const GatedReference reference{gelu, sigmoid};
        const auto plain = reference.run(gate_up, weights, dout, s);
        const auto exact = reference.run(to_double(gate_up), to_double(weights), to_double(dout), s);
        test::check_as_accurate_as_plain(out, plain.out, exact.out, kForward);
        test::check_as_accurate_as_plain(dgate_up, plain.dgate_up, exact.dgate_up, kBackward);
        test::check_as_accurate_as_plain(dweights, plain.dweights, exact.dweights, kBackward);
      }
}

TEST_CASE("ReLU is max(x, 0), its gradient passes where x is above 0, and NaN stays") {
  const std::vector<float> inp{-2, -0.0f, 0, 3, NAN}, dout{1, 2, 3, 4, 5};
  std::vector<float> out(5), dinp(5);
  kernels::cpu::relu_forward(out.data(), inp.data(), 1, 5);
  kernels::cpu::relu_backward(dinp.data(), dout.data(), inp.data(), 1, 5);
  CHECK(std::vector<float>(out.begin(), out.end() - 1) == std::vector<float>{0, 0, 0, 3});
  CHECK(std::isnan(out[4]));
  CHECK(dinp == std::vector<float>{0, 0, 0, 4, 5});
}

TEST_CASE("A squared ReLU of weighted rows has the weighted rows' gradients") {
  const std::int64_t R = 3, F = 40;
  const auto inp = normal_tensor(R * F, 1), dout = normal_tensor(R * F, 2), weights = normal_tensor(R, 3);
  std::vector<float> dinp(inp.size(), NAN), dweights(weights.size(), NAN), out(inp.size());
  kernels::cpu::squared_relu_forward(out.data(), inp.data(), R, F);
  kernels::cpu::weigh_rows(out.data(), out.data(), R, F, {weights.data()});
  kernels::cpu::weighted_squared_relu_backward(dinp.data(), dweights.data(), dout.data(), inp.data(), R, F,
                                               {weights.data()});
  for (std::int64_t r = 0; r < R; ++r) {
    double dweight = 0;
    for (std::int64_t f = 0; f < F; ++f) {
      const auto i = static_cast<std::size_t>(r * F + f);
      const double x = std::max(0.0f, inp[i]), w = weights[static_cast<std::size_t>(r)];
      CHECK(out[i] == Approx(w * x * x).epsilon(1e-6));
      CHECK(dinp[i] == Approx(2 * w * x * dout[i]).epsilon(1e-6));
      dweight += dout[i] * x * x;
    }
    CHECK(dweights[static_cast<std::size_t>(r)] == Approx(dweight).epsilon(1e-5));
  }
}
