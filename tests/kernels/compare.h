// Random tensors, and the one rule by which a kernel's result is held to the double reference.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "tests/support/catch.h"

namespace test {

inline std::vector<float> normal_tensor(std::int64_t count, unsigned seed, float deviation = 1.0f) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> distribution(0.0f, deviation);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = distribution(generator);
  return values;
}

inline std::vector<std::int32_t> random_ids(std::int64_t count, std::int32_t below, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_int_distribution<std::int32_t> distribution(0, below - 1);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  for (std::int32_t& id : ids) id = distribution(generator);
  return ids;
}

inline std::vector<double> to_double(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

// Largest absolute difference from the reference; infinity where a value is not finite.
inline double worst_error(const std::vector<float>& values, const std::vector<double>& exact) {
  REQUIRE(values.size() == exact.size());
  double worst = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double error = std::abs(values[i] - exact[i]);
    worst = std::isnan(error) ? INFINITY : std::max(worst, error);
  }
  return worst;
}

inline double mean_square_error(const std::vector<float>& values, const std::vector<double>& exact) {
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) sum += (values[i] - exact[i]) * (values[i] - exact[i]);
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

// How much worse than the plain fp32 loops a kernel may be. Other summation orders and fused operations move
// rounding errors about; they must not add up to another order of magnitude.
inline constexpr double kForward = 2, kBackward = 3;

// The rule: the error against the double reference, as a root mean square, is at most `factor` times that of
// the plain fp32 loops; the worst one, which scatters with the draw, a quarter more than that. Where those come out nearly exact by luck (short sums, one element) the comparison would be against
// zero: an error of four roundings of the tensor's largest element, what the few operations of even the
// shortest expression here make, always passes.
inline void check_as_accurate_as_plain(const std::vector<float>& kernel, const std::vector<float>& plain,
                                       const std::vector<double>& exact, double factor) {
  double largest = 0;
  for (const double value : exact) largest = std::max(largest, std::abs(value));
  const double floor = 4 * 0x1p-24 * largest;
  constexpr double kScatter = 1.25;
  CHECK(worst_error(kernel, exact) <= std::max(kScatter * factor * worst_error(plain, exact), floor));
  const double root_mean_square = std::sqrt(mean_square_error(kernel, exact));
  CHECK(root_mean_square <= std::max(factor * std::sqrt(mean_square_error(plain, exact)), floor));
}

}  // namespace test
