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

TEST_CASE("GELU and its gradient are as accurate as plain loops, also far from zero") {
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
