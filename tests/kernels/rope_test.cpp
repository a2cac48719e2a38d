#include "kernels/rope.h"

#include <numbers>

#include "tests/kernels/compare.h"
#include "tests/kernels/reference.h"

using kernels::RopeScaling;
using kernels::RopeShape;
using test::kForward;
using test::normal_tensor;
using test::to_double;

namespace {

std::vector<double> plain_frequencies(double theta, std::int64_t D) {
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < D / 2; ++i)
    frequencies.push_back(1 / std::pow(theta, 2 * static_cast<double>(i) / static_cast<double>(D)));
  return frequencies;
}

std::vector<float> table_of(double theta, const RopeScaling& scaling, std::int64_t P, std::int64_t D) {
  std::vector<float> table(static_cast<std::size_t>(P * D), NAN);
  kernels::cpu::rope_table(table.data(), theta, scaling, P, D);
  return table;
}

// The angle at position 1 is the frequency: atan2 of its sine and cosine.
std::vector<double> frequencies_of(const RopeScaling& scaling, std::int64_t D) {
  const auto table = table_of(500000, scaling, 2, D);
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < D / 2; ++i)
    frequencies.push_back(
        std::atan2(static_cast<double>(table[D + D / 2 + i]), static_cast<double>(table[D + i])));
  return frequencies;
}

}  // namespace

TEST_CASE("RoPE rotates queries and keys as complex multiplication does, and leaves values alone") {
  for (const RopeShape s :
       {RopeShape{1, 1, 1, 1, 2}, {2, 17, 4, 2, 16}, {1, 65, 3, 1, 80}, {3, 10, 9, 3, 64}}) {
    CAPTURE(s.B, s.T, s.H, s.G, s.D);
    const auto frequencies = plain_frequencies(10000, s.D);
    const auto table = table_of(10000, {}, s.T + 100, s.D);
    const auto qkv = normal_tensor(s.B * s.T * (s.H + 2 * s.G) * s.D, 1);
    std::vector<std::int32_t> positions;
    for (std::int32_t b = 0; b < s.B; ++b) positions.push_back(40 * b + 7);
    const std::vector<std::int32_t> start(positions.size(), 0);
    const auto check = [&](const std::vector<float>& rotated, const std::vector<std::int32_t>& from,
                           double direction) {
      auto plain = qkv;
      auto exact = to_double(qkv);
      reference::rope<float>(plain, frequencies, from, direction, s);
      reference::rope<double>(exact, frequencies, from, direction, s);
      test::check_as_accurate_as_plain(rotated, plain, exact, kForward);
    };
    auto rotated = qkv;
    kernels::cpu::rope_forward(rotated.data(), table.data(), positions.data(), s);
    check(rotated, positions, 1);
    rotated = qkv;
    kernels::cpu::rope_forward(rotated.data(), table.data(), nullptr, s);
    check(rotated, start, 1);
    rotated = qkv;
    kernels::cpu::rope_backward(rotated.data(), table.data(), s);
    check(rotated, start, -1);
  }
}

TEST_CASE(
    "Llama-3.1's RoPE scaling keeps short waves, stretches long ones by the factor, and blends between") {
  const RopeScaling scaling{RopeScaling::Kind::llama3, 8, 1, 4, 8192};
  const std::int64_t D = 128;
  const auto base = frequencies_of({}, D), scaled = frequencies_of(scaling, D);
  int kept = 0, stretched = 0, blended = 0;
  for (std::size_t i = 0; i < base.size(); ++i) {
    CAPTURE(i);
    const double turns = 8192 * base[i] / (2 * std::numbers::pi);
    const double ratio = scaled[i] / base[i];
    if (turns > 4) {
      CHECK(ratio == 1);
      ++kept;
    } else if (turns < 1) {
      CHECK(ratio == Approx(1.0 / 8).epsilon(1e-6));  // fp32 table entries: 2^-24 relative each
      ++stretched;
    } else {
      const double smooth = (turns - 1) / 3;
      CHECK(ratio == Approx((1 - smooth) / 8 + smooth).epsilon(1e-6));
      ++blended;
    }
  }
  CHECK(kept > 0);
  CHECK(stretched > 0);
  CHECK(blended > 0);
}

TEST_CASE("linear RoPE scaling divides every frequency by the factor") {
  const auto base = frequencies_of({}, 64),
             scaled = frequencies_of({RopeScaling::Kind::linear, 4, 1, 4, 0}, 64);
  for (std::size_t i = 0; i < base.size(); ++i) CHECK(scaled[i] == Approx(base[i] / 4).epsilon(1e-6));
}
