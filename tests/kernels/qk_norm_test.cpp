#include "kernels/qk_norm.h"

#include <algorithm>

#include "kernels/threads.h"
#include "tests/kernels/compare.h"
#include "tests/kernels/qk_norm_reference.h"

using kernels::QkNormShape;
using test::normal_tensor;
using test::QkNormed;

TEST_CASE("Norms of queries and keys, by head and over all heads, are as accurate as plain loops") {
  for (const QkNormShape s :
       {QkNormShape{1, 1, 1, 8}, {5, 4, 2, 16}, {70, 6, 3, 24}, {33, 4, 4, 64, true}, {40, 6, 2, 10, true}}) {
    CAPTURE(s.R, s.H, s.G, s.D, s.all_heads);
    const std::int64_t width = (s.H + 2 * s.G) * s.D, gains = s.all_heads ? (s.H + s.G) * s.D : 2 * s.D;
    const auto inp = normal_tensor(s.R * width, 1, 3.0f), weight = normal_tensor(gains, 2),
               dout = normal_tensor(s.R * width, 3);
    constexpr float kEps = 1e-6f;
    std::vector<float> out(inp.size(), NAN), rstd(static_cast<std::size_t>(s.R * (s.H + s.G)), NAN);
    kernels::cpu::qk_norm_forward(out.data(), rstd.data(), inp.data(), weight.data(), kEps, s);
    const auto backward = [&] {
      std::vector<float> gradients = dout, dweight(weight.size(), 1);
      kernels::cpu::qk_norm_backward(gradients.data(), dweight.data(), inp.data(), weight.data(), rstd.data(),
                                     s);
      gradients.insert(gradients.end(), dweight.begin(), dweight.end());
      return gradients;
    };
    const QkNormed<float> plain(inp, weight, dout, kEps, s);
    const QkNormed<double> exact(test::to_double(inp), test::to_double(weight), test::to_double(dout), kEps, s);
    test::check_as_accurate_as_plain(out, plain.out, exact.out, test::kForward);
    const auto both = backward();
    const auto middle = both.begin() + static_cast<std::ptrdiff_t>(inp.size());
    test::check_as_accurate_as_plain({both.begin(), middle}, plain.dinp, exact.dinp, test::kBackward);
    test::check_as_accurate_as_plain({middle, both.end()}, plain.dweight, exact.dweight, test::kBackward);
    kernels::cpu::set_threads(3);
    CHECK(backward() == both);
    kernels::cpu::set_threads(0);

    std::vector<float> without(inp.size(), NAN);
    kernels::cpu::qk_norm_forward(without.data(), nullptr, inp.data(), weight.data(), kEps, s);
    CHECK(without == out);
  }
}
