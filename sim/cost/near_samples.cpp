#include "sim/cost/near_samples.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace sim {
namespace {

constexpr std::size_t kAxes = NearSamples::kAxes;
using Coordinates = NearSamples::Coordinates;
using Sample = NearSamples::Sample;

Coordinates coordinates(const KernelSample& s) {
  const auto log = [](std::int64_t n) { return n > 0 ? std::log(static_cast<double>(n)) : 0.0; };
  if (is_product(s.kind)) {
    // Rows count twice as much as columns: a sample left out is predicted best by those of as many rows.
    constexpr double kOfRows = 2;
    const std::int64_t rows_of_one = s.groups > 0 ? std::max(s.rows / s.groups, std::int64_t{1}) : s.rows;
    return {kOfRows * log(rows_of_one), log(s.cols), log(s.inner)};
  }
  if (is_attention(s.kind))
    return {log(s.batch * s.kv_heads), log(s.heads) - log(s.kv_heads), log(s.query_length), log(s.kv_length),
            log(s.head_dim)};
  return {log(s.bytes.value)};
}

Coordinates difference(const Coordinates& a, const Coordinates& b) {
  Coordinates c{};
  for (std::size_t i = 0; i < kAxes; ++i) c[i] = a[i] - b[i];
  return c;
}

double squared_length(const Coordinates& c) {
  double sum = 0;
  for (const double x : c) sum += x * x;
  return sum;
}

// Solves A x = b for x by elimination. A is symmetric and positive definite.
Coordinates solved(std::array<Coordinates, kAxes> a, Coordinates b) {
  for (std::size_t i = 0; i < kAxes; ++i)
    for (std::size_t row = i + 1; row < kAxes; ++row) {
      const double factor = a[row][i] / a[i][i];
      for (std::size_t col = i; col < kAxes; ++col) a[row][col] -= factor * a[i][col];
      b[row] -= factor * b[i];
    }
  for (std::size_t i = kAxes; i-- > 0;) {
    for (std::size_t col = i + 1; col < kAxes; ++col) b[i] -= a[i][col] * b[col];
    b[i] /= a[i][i];
  }
  return b;
}

// The height over the origin of the plane through samples, by weighted least squares.
double plane_at_origin(std::span<const Sample> samples, double noise) {
  // In units of the variance of the fitted values. Where samples lie in a row, the plane is flat across it.
  constexpr double kRidge = 0.3;
  double all = 0, mean = 0;
  Coordinates centre{};
  const auto weight = [&](const Sample& n) { return 1 / (n.squared_distance + noise); };
  for (const Sample& n : samples) all += weight(n);
  for (const Sample& n : samples) {
    mean += weight(n) / all * n.log_ratio;
    for (std::size_t i = 0; i < kAxes; ++i) centre[i] += weight(n) / all * n.from_shape[i];
  }
  std::array<Coordinates, kAxes> covariance{};
  Coordinates with_ratio{};
  for (std::size_t i = 0; i < kAxes; ++i) covariance[i][i] = kRidge;
  for (const Sample& n : samples) {
    const Coordinates c = difference(n.from_shape, centre);
    for (std::size_t i = 0; i < kAxes; ++i) {
      with_ratio[i] += weight(n) / all * c[i] * (n.log_ratio - mean);
      for (std::size_t j = 0; j < kAxes; ++j) covariance[i][j] += weight(n) / all * c[i] * c[j];
    }
  }
  const Coordinates slope = solved(covariance, with_ratio);
  for (std::size_t i = 0; i < kAxes; ++i) mean -= slope[i] * centre[i];
  return mean;
}

double among_nearest(std::vector<Sample>& all, double noise) {
  constexpr std::size_t kNearest = 8;
  const std::span<Sample> nearest(all.data(), std::min(kNearest, all.size()));
  std::ranges::partial_sort(all, all.begin() + std::ssize(nearest), {}, &Sample::squared_distance);
  const auto [least, most] = std::ranges::minmax(nearest, {}, &Sample::log_ratio);
  return std::clamp(plane_at_origin(nearest, noise), least.log_ratio, most.log_ratio);
}

double along_line(const std::vector<Sample>& all) {
  const Sample* below = nullptr;
  const Sample* above = nullptr;
  const auto at = [](const Sample& n) { return n.from_shape[0]; };
  for (const Sample& n : all) {
    if (at(n) <= 0 && (!below || at(n) > at(*below))) below = &n;
    if (at(n) >= 0 && (!above || at(n) < at(*above))) above = &n;
  }
  if (!below) return above->log_ratio;
  if (!above || at(*above) == at(*below)) return below->log_ratio;
  return std::lerp(below->log_ratio, above->log_ratio, -at(*below) / (at(*above) - at(*below)));
}

}  // namespace

double squared_distance(const KernelSample& a, const KernelSample& b) {
  return squared_length(difference(coordinates(a), coordinates(b)));
}

NearSamples::NearSamples(const KernelSample& shape, double noise)
    : in_space_(is_product(shape.kind) || is_attention(shape.kind)),
      shape_(coordinates(shape)),
      noise_(noise) {}

double NearSamples::add(const KernelSample& timed, double log_ratio) {
  const Coordinates from_shape = difference(coordinates(timed), shape_);
  samples_.push_back({from_shape, squared_length(from_shape), log_ratio});
  return samples_.back().squared_distance;
}

double NearSamples::log_ratio() {
  return in_space_ ? among_nearest(samples_, noise_) : along_line(samples_);
}

}  // namespace sim
