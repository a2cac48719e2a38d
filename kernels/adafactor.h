// Adafactor (Shazeer, Stern 2018, arXiv 1804.04235) as torch.optim.Adafactor. For a matrix it keeps only the
// means of the second moments over rows and over columns. The step is relative to the parameter's size, and
// clipped by its own root mean square.
#pragma once
#include <cstdint>

#include "kernels/optimizer.h"

namespace kernels {

// With t the step, second moments move by t to this power (torch.optim.Adafactor's default).
inline constexpr double kAdafactorDecayPower = -0.8;

// `matrices` of (rows, cols), one behind the other, are one tensor. A vector has no column_moment, rows 1,
// and second moments (cols) of its own.
struct AdafactorTensor {
  float* parameter;
  const float* gradient;
  float* row_moment;     // (matrices, rows); of a vector (cols)
  float* column_moment;  // (matrices, cols) or null
  std::int64_t matrices, rows, cols;
  bool decay;
};

namespace cpu {

// With t the step: second moments move towards the new squares' means; the step is min(learning_rate, 1 /
// sqrt(t)) times the parameter's root mean square (at least 1e-3), and no greater than that on the average.
// gradient_scale multiplies every gradient first; null means 1. Only learning_rate, weight_decay and step
// of the settings are read. The same bits on any number of threads.
void adafactor(const AdafactorTensor& tensor, const float* gradient_scale, const AdamWSettings& settings);

}  // namespace cpu
}  // namespace kernels
