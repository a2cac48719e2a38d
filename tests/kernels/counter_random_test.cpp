#include "kernels/counter_random.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "tests/support/catch.h"

TEST_CASE(
    "Normal values are Box and Muller's of the stream's numbers, by the library's functions, to an ulp") {
  constexpr std::uint64_t kKey = 20261127;
  constexpr double kDeviation = 0.02;
  const std::int64_t count = GENERATE(0, 1, 2, 7, 100'001);
  std::vector<float> values(static_cast<std::size_t>(count) + 1, 7.0f);
  kernels::cpu::fill_normal(values.data(), count, kKey, kDeviation);
  CHECK(values.back() == 7.0f);
  values.pop_back();
  const auto uniform = [](std::uint64_t bits) { return (static_cast<double>(bits) + 1) * 0x1p-32; };
  std::uint64_t state = kKey;
  for (std::size_t i = 0; i < values.size(); i += 2) {
    const std::uint64_t bits = kernels::cpu::mix(state);
    state += kernels::cpu::kGamma;
    const double radius = kDeviation * std::sqrt(-2 * std::log(uniform(bits >> 32))),
                 angle = 2 * std::numbers::pi * uniform(bits & 0xffffffffu);
    for (std::size_t part = 0; part < std::min<std::size_t>(2, values.size() - i); ++part) {
      const auto exact = static_cast<float>(radius * (part == 0 ? std::cos(angle) : std::sin(angle)));
      const float value = values[i + part];
      REQUIRE(std::nextafter(value, -1.0f) <= exact);
      REQUIRE(exact <= std::nextafter(value, 1.0f));
    }
  }
}

TEST_CASE("SplitMix64's numbers are those of its authors' reference") {
  // The first three of seed 1234567 (Vigna, splitmix64.c, prng.di.unimi.it).
  std::uint64_t state = 1234567;
  for (const std::uint64_t expected :
       {6457827717110365317ull, 3203168211198807973ull, 9817491932198370423ull}) {
    CHECK(kernels::cpu::mix(state) == expected);
    state += kernels::cpu::kGamma;
  }
}
