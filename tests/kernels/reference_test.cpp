// The oracle is checked too: its gradients against central differences of its forward passes, in double.
#include "tests/kernels/reference.h"

#include <functional>

#include "tests/kernels/compare.h"

using test::normal_tensor;
using test::to_double;
using Doubles = std::vector<double>;

namespace {

// d/dx of weights . forward(x), by central differences.
Doubles numerical_gradient(Doubles x, const Doubles& weights,
                           const std::function<Doubles(const Doubles&)>& forward) {
  constexpr double h = 1e-5;
  Doubles gradient;
  for (double& element : x) {
    const double before = element;
    const auto weighted = [&](double value) {
      element = value;
      const Doubles out = forward(x);
      REQUIRE(out.size() == weights.size());
      double sum = 0;
      for (std::size_t i = 0; i < out.size(); ++i) sum += weights[i] * out[i];
      return sum;
    };
    const double above = weighted(before + h);
    gradient.push_back((above - weighted(before - h)) / (2 * h));
    element = before;
  }
  return gradient;
}

// Central differences are off by h^2 f'''/6, about 1e-10 here, and by rounding 2^-53 |f| / h, about 1e-10 for
// |f| of 10.
constexpr double kFiniteDifferenceError = 1e-8;

void check_close(const Doubles& analytic, const Doubles& numerical) {
  REQUIRE(analytic.size() == numerical.size());
  double worst = 0, largest = 1;
  for (std::size_t i = 0; i < analytic.size(); ++i) {
    worst = std::max(worst, std::abs(analytic[i] - numerical[i]));
    largest = std::max(largest, std::abs(numerical[i]));
  }
  CHECK(worst <= kFiniteDifferenceError * largest);
}

Doubles random_doubles(std::int64_t count, unsigned seed) {
  return to_double(normal_tensor(count, seed));
}

}  // namespace

TEST_CASE("the reference's matmul gradients match finite differences") {
  const kernels::MatmulShape s{3, 5, 4};
  const Doubles inp = random_doubles(12, 1), weight = random_doubles(20, 2), bias = random_doubles(5, 3),
                dout = random_doubles(15, 4);
  check_close(reference::matmul_backward_input(reference::zeros<double>(12), dout, weight, s),
              numerical_gradient(inp, dout, [&](const Doubles& x) {
                return reference::matmul_forward<double>(x, weight, bias, {}, s);
              }));
  auto dweight = reference::zeros<double>(20), dbias = reference::zeros<double>(5);
  reference::matmul_backward_weight(dweight, dbias, dout, inp, s);
  check_close(dweight, numerical_gradient(weight, dout, [&](const Doubles& x) {
                return reference::matmul_forward<double>(inp, x, bias, {}, s);
              }));
  check_close(dbias, numerical_gradient(bias, dout, [&](const Doubles& x) {
                return reference::matmul_forward<double>(inp, weight, x, {}, s);
              }));
}

TEST_CASE("the reference's norm gradients match finite differences") {
  const std::int64_t R = 3, C = 7;
  const double eps = 1e-5;
  const Doubles inp = random_doubles(R * C, 1), weight = random_doubles(C, 2), bias = random_doubles(C, 3),
                dout = random_doubles(R * C, 4);
  {
    auto dinp = reference::zeros<double>(R * C), dweight = reference::zeros<double>(C),
         dbias = reference::zeros<double>(C);
    reference::layernorm_backward(dinp, dweight, dbias, dout, inp, weight, eps, R, C);
    check_close(dinp, numerical_gradient(inp, dout, [&](const Doubles& x) {
                  return reference::layernorm_forward(x, weight, bias, eps, R, C);
                }));
    check_close(dweight, numerical_gradient(weight, dout, [&](const Doubles& x) {
                  return reference::layernorm_forward(inp, x, bias, eps, R, C);
                }));
    check_close(dbias, numerical_gradient(bias, dout, [&](const Doubles& x) {
                  return reference::layernorm_forward(inp, weight, x, eps, R, C);
                }));
  }
  auto dinp = reference::zeros<double>(R * C), dweight = reference::zeros<double>(C);
  reference::rmsnorm_backward(dinp, dweight, dout, inp, weight, eps, R, C);
  check_close(dinp, numerical_gradient(inp, dout, [&](const Doubles& x) {
                return reference::rmsnorm_forward(x, weight, eps, R, C);
              }));
  check_close(dweight, numerical_gradient(weight, dout, [&](const Doubles& x) {
                return reference::rmsnorm_forward(inp, x, eps, R, C);
              }));
}

TEST_CASE("the reference's activation gradients match finite differences") {
  const Doubles inp = random_doubles(20, 1), dout = random_doubles(20, 2);
  check_close(reference::gelu_backward(dout, inp),
              numerical_gradient(inp, dout, [](const Doubles& x) { return reference::gelu_forward(x); }));
  const Doubles gate_up = random_doubles(2 * 2 * 5, 3), dswiglu = random_doubles(2 * 5, 4);
  check_close(reference::swiglu_backward(dswiglu, gate_up, 2, 5),
              numerical_gradient(gate_up, dswiglu,
                                 [](const Doubles& x) { return reference::swiglu_forward(x, 2, 5); }));
}

TEST_CASE("the reference's attention gradients match finite differences") {
  for (const kernels::AttentionShape& s :
       {kernels::AttentionShape{1, 1, 1, 1, 2}, {2, 5, 4, 2, 3}, {1, 6, 3, 1, 4}}) {
    const Doubles qkv = random_doubles(s.B * s.T * (s.H + 2 * s.G) * s.D, 1),
                  dout = random_doubles(s.B * s.T * s.H * s.D, 2);
    check_close(
        reference::attention_backward(dout, qkv, s),
        numerical_gradient(qkv, dout, [&](const Doubles& x) { return reference::attention_forward(x, s); }));
  }
}

TEST_CASE("the reference's cross-entropy gradient matches finite differences") {
  const std::int64_t R = 3, V = 6;
  const std::vector<std::int32_t> targets = {2, -1, 5};
  const Doubles logits = random_doubles(R * V, 1);
  Doubles gradient = logits;
  reference::cross_entropy(gradient, targets, 0.5, R, V);
  check_close(gradient, numerical_gradient(logits, Doubles(3, 0.5), [&](Doubles x) {
                return reference::cross_entropy(x, targets, 1.0, R, V);
              }));
}

TEST_CASE("the reference's embedding gradients match finite differences") {
  const kernels::EmbeddingShape s{2, 3, 4, 5};
  const std::vector<std::int32_t> tokens = {1, 4, 1, 0, 1, 3}, positions = {0, 0};
  const Doubles weight = random_doubles(20, 1), position_weight = random_doubles(12, 2),
                dout = random_doubles(24, 3);
  auto dweight = reference::zeros<double>(20), dposition_weight = reference::zeros<double>(12);
  reference::embedding_backward(dweight, dposition_weight, dout, tokens, s);
  check_close(dweight, numerical_gradient(weight, dout, [&](const Doubles& x) {
                return reference::embedding_forward(tokens, x, position_weight, positions, s);
              }));
  check_close(dposition_weight, numerical_gradient(position_weight, dout, [&](const Doubles& x) {
                return reference::embedding_forward(tokens, weight, x, positions, s);
              }));
}
