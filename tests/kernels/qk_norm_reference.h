// Norms of queries and keys by their definition, one scalar at a time.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/qk_norm.h"

namespace test {

using kernels::QkNormShape;

// RMSNorm over each part of a row on its own: every head, or all query heads and all key heads.
template <class Real>
struct QkNormed {
  std::vector<Real> out, dinp, dweight;

  QkNormed(const std::vector<Real>& inp, const std::vector<Real>& weight, const std::vector<Real>& dout,
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

}  // namespace test
