#include "kernels/qk_norm.h"

#include <algorithm>

#include "kernels/threads.h"
#include "tests/kernels/compare.h"
#include "tests/kernels/reference.h"

using kernels::QkNormShape;
using test::normal_tensor;

namespace {

// RMSNorm over each part of a row on its own: every head, or all query heads and all key heads.
template <class Real>
struct Normed {
  std::vector<Real> out, dinp, dweight;

  Normed(const std::vector<Real>& inp, const std::vector<Real>& weight, const std::vector<Real>& dout,
         Real eps, QkNormShape s)
      : out(inp), dinp(dout), dweight(weight.size(), Real(1)) {
    const std::int64_t row = (s.H + 2 * s.G) * s.D;
    const std::int64_t parts = s.all_heads ? 2 : s.H + s.G;
    for (std::int64_t r = 0; r < s.R; ++r)
      for (std::int64_t p = 0; p < parts; ++p) {
        const bool keys = s.all_heads ? p == 1 : p >= s.H;
        const std::int64_t width = !s.all_heads ? s.D : keys ? s.G * s.D : s.H * s.D;
        const std::int64_t begin = r * row + (s.all_heads ? p * s.H * s.D : p * s.D);
        const std::int64_t gain = !keys ? 0 : s.all_heads ? s.H * s.D : s.D;
        const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
        Real squares = 0, mean = 0;
        for (std::int64_t c = 0; c < width; ++c) squares += inp[at(begin + c)] * inp[at(begin + c)];
        const Real rstd = 1 / std::sqrt(squares / static_cast<Real>(width) + eps);
        for (std::int64_t c = 0; c < width; ++c) {
          const Real normed = inp[at(begin + c)] * rstd;
          out[at(begin + c)] = normed * weight[at(gain + c)];
          mean += dout[at(begin + c)] * weight[at(gain + c)] * normed / static_cast<Real>(width);
          dweight[at(gain + c)] += dout[at(begin + c)] * normed;
        }
        for (std::int64_t c = 0; c < width; ++c)
          dinp[at(begin + c)] =
              rstd * (dout[at(begin + c)] * weight[at(gain + c)] - inp[at(begin + c)] * rstd * mean);
      }
  }
};

}  // namespace

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
    const Normed<float> plain(inp, weight, dout, kEps, s);
    const Normed<double> exact(test::to_double(inp), test::to_double(weight), test::to_double(dout), kEps, s);
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
