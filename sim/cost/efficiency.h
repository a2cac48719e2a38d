// The share of a datasheet's peaks that kernels are taken to reach where nothing was measured: averages of
// published measurements, and how far single kernels lie from them.
#pragma once
#include "sim/cost/calibration.h"

namespace sim {

struct Efficiency {
  double compute = 1;  // of the peak
  double memory = 1;   // of the bandwidth
  double error = 0;    // 90 % of measured times lie within a factor of 1 + error
};

Efficiency datasheet_efficiency(const KernelSample& shape);

}  // namespace sim
