// The gradient noise scale, from gradient norms at two batch sizes (McCandlish et al. 2018, arXiv
// 1812.06162): the size of a batch whose gradient is noise and signal in equal parts. At about this batch,
// the critical one, a run takes twice the least steps and twice the least data (BatchTradeOff, batch_size.h).
// Batches and the scale have one unit, sequences or tokens.
#pragma once
#include <cstdint>
#include <optional>

namespace sim {

// One step's estimates: |G|^2 of the true gradient, and tr(Sigma), the variance of the gradient of a batch of
// one. Both are unbiased, and either may be negative (there, appendix A.1).
struct NoiseEstimate {
  double squared_gradient = 0, variance = 0;
};
NoiseEstimate noise_estimate(double small_batch, double small_squared_norm, double large_batch,
                             double large_squared_norm);

// Averages of both estimates over steps, taken before their ratio: a mean of ratios would be biased (there,
// appendix A.1). The averages are exponential: a step's weight falls by 1 - 1 / kWindow with each later step.
// The first steps are corrected as Adam's moments are. A fresh model's first gradients are so large that they
// count for some hundred steps.
class NoiseAverage {
 public:
  static constexpr std::int64_t kWindow = 50;  // steps

  void add(const NoiseEstimate& step);
  NoiseEstimate mean() const;  // requires a step
  // tr(Sigma) / |G|^2. Nothing before the first step, and where a mean is not above 0 because of noise.
  std::optional<double> noise_scale() const;

 private:
  NoiseEstimate sum_;
  double weight_ = 0;
};

}  // namespace sim
