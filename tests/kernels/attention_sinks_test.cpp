// A sink is a key of a given score whose value is nothing: laws that follow from it, and finite differences.
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "tests/kernels/compare.h"
#include "tests/kernels/reference.h"

using kernels::AttentionShape;
using test::kForward;
using test::normal_tensor;
using test::to_double;

namespace {

const std::vector<AttentionShape> kShapes = {
    {1, 1, 1, 1, 8}, {2, 17, 4, 2, 16}, {1, 130, 3, 1, 24}, {1, 90, 2, 2, 16, {.window = 20}}};

std::int64_t packed_size(const AttentionShape& s) {
  return s.B * s.T * (s.H + 2 * s.G) * s.D;
}

// out of the softmax without the sink, times the share that the sink leaves.
template <class Real>
std::vector<Real> with_sinks(const std::vector<Real>& qkv, const std::vector<Real>& sinks, AttentionShape s) {
  s.sinks = nullptr;
  std::vector<Real> lse;
  std::vector<Real> out = reference::attention_forward<Real>(qkv, s, nullptr, &lse);
  for (std::int64_t b = 0; b < s.B; ++b)
    for (std::int64_t t = 0; t < s.T; ++t)
      for (std::int64_t h = 0; h < s.H; ++h) {
        const Real score = sinks[static_cast<std::size_t>(h)];
        const Real kept = 1 / (1 + std::exp(score - lse[static_cast<std::size_t>((b * s.H + h) * s.T + t)]));
        for (std::int64_t d = 0; d < s.D; ++d)
          out[static_cast<std::size_t>(((b * s.T + t) * s.H + h) * s.D + d)] *= kept;
      }
  return out;
}

struct Run {
  std::vector<float> out, lse, dqkv, dsinks;
  std::vector<float> standard_out, standard_dqkv, standard_dsinks;
};

Run run(const std::vector<float>& qkv, const std::vector<float>& dout, const AttentionShape& s) {
  Run r{std::vector<float>(dout.size(), NAN),
        std::vector<float>(static_cast<std::size_t>(s.B * s.H * s.T), NAN),
        std::vector<float>(qkv.size(), NAN),
        std::vector<float>(static_cast<std::size_t>(s.H), 0.0f),
        std::vector<float>(dout.size(), NAN),
        std::vector<float>(qkv.size(), NAN),
        std::vector<float>(static_cast<std::size_t>(s.H), 0.0f)};
  kernels::cpu::attention_flash_forward(r.out.data(), r.lse.data(), qkv.data(), s);
  kernels::cpu::attention_flash_backward(r.dqkv.data(), dout.data(), qkv.data(), r.out.data(), r.lse.data(),
                                         s);
  kernels::cpu::attention_sinks_backward(r.dsinks.data(), dout.data(), r.out.data(), r.lse.data(), s);
  std::vector<float> probabilities(static_cast<std::size_t>(s.B * s.H * s.T * s.T), NAN),
      scratch = probabilities;
  kernels::cpu::attention_standard_forward(r.standard_out.data(), probabilities.data(), qkv.data(), s);
  kernels::cpu::attention_standard_backward(r.standard_dqkv.data(), scratch.data(), dout.data(), qkv.data(),
                                            probabilities.data(), s, r.standard_dsinks.data());
  return r;
}

}  // namespace

TEST_CASE("attention with sinks is as accurate as plain loops, over the sequence and over a cache") {
  for (AttentionShape s : kShapes) {
    CAPTURE(s.B, s.T, s.H, s.G, s.mask.window);
    const std::vector<float> qkv = normal_tensor(packed_size(s), 1, 1.5f),
                             sinks = normal_tensor(s.H, 2, 2.0f);
    s.sinks = sinks.data();
    const std::vector<float> plain = with_sinks(qkv, sinks, s);
    const std::vector<double> exact = with_sinks(to_double(qkv), to_double(sinks), s);
    const Run r = run(qkv, plain, s);
    test::check_as_accurate_as_plain(r.out, plain, exact, kForward);
    test::check_as_accurate_as_plain(r.standard_out, plain, exact, kForward);

    std::vector<float> keys(static_cast<std::size_t>(s.B * s.G * s.T * s.D), NAN), values = keys;
    const auto cache = kernels::cpu::contiguous_cache(keys.data(), values.data(), s.T);
    std::vector<float> cached(plain.size(), NAN);
    AttentionShape step = s;
    step.T = 1;
    const std::int64_t width = (s.H + 2 * s.G) * s.D, out_width = s.H * s.D;
    for (std::int64_t t = 0; t < s.T; ++t) {
      std::vector<float> token, out(static_cast<std::size_t>(s.B * out_width), NAN);
      for (std::int64_t b = 0; b < s.B; ++b)
        token.insert(token.end(), qkv.begin() + (b * s.T + t) * width,
                     qkv.begin() + (b * s.T + t + 1) * width);
      const std::vector<std::int32_t> positions(static_cast<std::size_t>(s.B), static_cast<std::int32_t>(t));
      kernels::cpu::kv_append(cache, token.data(), positions.data(), step);
      kernels::cpu::attention_cached(out.data(), token.data(), cache, positions.data(), step);
      for (std::int64_t b = 0; b < s.B; ++b)
        std::copy_n(out.begin() + b * out_width, out_width, cached.begin() + (b * s.T + t) * out_width);
    }
    test::check_as_accurate_as_plain(cached, plain, exact, kForward);
  }
}

TEST_CASE("gradients of attention with sinks are finite differences of its definition in double") {
  for (AttentionShape s : {AttentionShape{1, 5, 2, 1, 4}, AttentionShape{2, 3, 2, 2, 2, {.window = 2}}}) {
    const std::vector<float> qkv = normal_tensor(packed_size(s), 1), sinks = normal_tensor(s.H, 2),
                             dout = normal_tensor(s.B * s.T * s.H * s.D, 3);
    s.sinks = sinks.data();
    const Run r = run(qkv, dout, s);
    std::vector<double> x = to_double(qkv), of_sinks = to_double(sinks);
    const auto loss = [&] {
      const std::vector<double> out = with_sinks(x, of_sinks, s);
      double sum = 0;
      for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * static_cast<double>(dout[i]);
      return sum;
    };
    const auto check = [&](std::vector<double>& values, const std::vector<float>& gradient) {
      constexpr double kStep = 1e-5;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double before = values[i];
        values[i] = before + kStep;
        const double above = loss();
        values[i] = before - kStep;
        const double below = loss();
        values[i] = before;
        CHECK(gradient[i] == Approx((above - below) / (2 * kStep)).epsilon(1e-4).margin(1e-5));
      }
    };
    check(x, r.dqkv);
    check(of_sinks, r.dsinks);
    check(x, r.standard_dqkv);
    check(of_sinks, r.standard_dsinks);
  }
}
