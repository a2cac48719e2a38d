// Quantiles of samples.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace sim {

// The value below which a share (0 to 1) of the samples lies, interpolated between the two samples next to it
// (definition 7 of Hyndman & Fan, "Sample quantiles in statistical packages", 1996). Requires samples.
inline double quantile(std::vector<double> samples, double share) {
  const double at = share * static_cast<double>(samples.size() - 1);
  const auto below = samples.begin() + static_cast<std::ptrdiff_t>(at);
  std::nth_element(samples.begin(), below, samples.end());
  if (below + 1 == samples.end()) return *below;
  const double above = *std::min_element(below + 1, samples.end());
  return *below + (at - std::floor(at)) * (above - *below);
}

}  // namespace sim
