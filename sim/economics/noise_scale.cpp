#include "sim/economics/noise_scale.h"

namespace sim {

NoiseEstimate noise_estimate(double small_batch, double small_squared_norm, double large_batch,
                             double large_squared_norm) {
  return {.squared_gradient = (large_batch * large_squared_norm - small_batch * small_squared_norm) /
                              (large_batch - small_batch),
          .variance = (small_squared_norm - large_squared_norm) / (1 / small_batch - 1 / large_batch)};
}

void NoiseAverage::add(const NoiseEstimate& step) {
  constexpr double kNew = 1.0 / kWindow;
  const auto average = [](double& sum, double value) { sum += kNew * (value - sum); };
  average(sum_.squared_gradient, step.squared_gradient);
  average(sum_.variance, step.variance);
  average(weight_, 1);
}

NoiseEstimate NoiseAverage::mean() const {
  return {sum_.squared_gradient / weight_, sum_.variance / weight_};
}

std::optional<double> NoiseAverage::noise_scale() const {
  if (!(sum_.squared_gradient > 0 && sum_.variance > 0)) return std::nullopt;
  return sum_.variance / sum_.squared_gradient;
}

}  // namespace sim
