// Quantiles of samples.
#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

namespace sim {

// The value below which a share (0 to 1) of the samples lies, interpolated between the two next to it
// (Hyndman & Fan, "Sample quantiles in statistical packages", 1996: their seventh). Requires samples.
inline double quantile(std::vector<double> samples, double share) {
  std::sort(samples.begin(), samples.end());
  const double at = share * static_cast<double>(samples.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, samples.size() - 1);
  return samples[below] + (at - static_cast<double>(below)) * (samples[above] - samples[below]);
}

}  // namespace sim
