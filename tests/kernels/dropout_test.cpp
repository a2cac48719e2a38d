#include "kernels/dropout.h"

#include <cmath>

#include "kernels/threads.h"
#include "tests/kernels/compare.h"

using kernels::DropoutDraw;
using test::normal_tensor;

TEST_CASE("Dropout keeps as many elements as it says, scaled, and its gradient passes where they were kept") {
  const std::int64_t R = 100, C = 300;
  const auto inp = normal_tensor(R * C, 1), bias = normal_tensor(C, 2), dout = normal_tensor(R * C, 3);
  for (const float probability : {0.0f, 0.1f, 0.7f}) {
    CAPTURE(probability);
    std::vector<float> out(inp.size(), NAN), dinp(inp.size(), NAN);
    std::vector<std::int8_t> mask(inp.size(), 9);
    const DropoutDraw draw{probability, 3, 5, 7};
    kernels::cpu::dropout_forward(out.data(), mask.data(), inp.data(), bias.data(), draw, R, C);
    kernels::cpu::dropout_backward(dinp.data(), dout.data(), mask.data(), probability, R * C);
    double kept = 0;
    for (std::size_t i = 0; i < inp.size(); ++i) {
      const double factor = mask[i] / (1.0 - static_cast<double>(probability));
      const double biased = static_cast<double>(inp[i]) + bias[i % static_cast<std::size_t>(C)];
      CHECK(out[i] == Approx(factor * biased).margin(1e-6));
      CHECK(dinp[i] == Approx(factor * dout[i]).margin(1e-6));
      kept += mask[i];
    }
    // Five standard deviations of a binomial count.
    const double n = static_cast<double>(R * C), p = 1.0 - static_cast<double>(probability);
    CHECK(std::abs(kept - n * p) <= 5 * std::sqrt(n * p * (1 - p)));
  }
}

TEST_CASE("What is dropped depends on seed, step and stream alone, not on threads") {
  const std::int64_t R = 64, C = 512;
  const auto inp = normal_tensor(R * C, 1);
  const auto run = [&](const DropoutDraw& draw, int threads) {
    std::vector<float> out(inp.size(), NAN);
    std::vector<std::int8_t> mask(inp.size());
    kernels::cpu::set_threads(threads);
    kernels::cpu::dropout_forward(out.data(), mask.data(), inp.data(), nullptr, draw, R, C);
    kernels::cpu::set_threads(0);
    return out;
  };
  const DropoutDraw draw{0.3f, 1, 2, 3};
  const auto first = run(draw, 1);
  CHECK(run(draw, 3) == first);
  CHECK(run({0.3f, 2, 2, 3}, 1) != first);
  CHECK(run({0.3f, 1, 3, 3}, 1) != first);
  CHECK(run({0.3f, 1, 2, 4}, 1) != first);
}
