// What kernels reach of a machine's peaks, measured. An operation's time is
//   launch + max(flops / (peak * u_c(shape)), bytes / (bandwidth * u_m(bytes)))
// with u looked up by kind and shape: exact shape, else interpolated in log space between neighbours, else
// held at the edge. Without a calibration the defaults of cost/predict.h apply and provenance says
// "datasheet".
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "sim/plan/operation.h"
#include "sim/scenario/hardware.h"

namespace sim {

// One kernel timed alone: kind and its dimensions with the variables bound.
struct KernelSample {
  OpKind kind{};
  DType dtype{};
  std::int64_t rows = 0, cols = 0, inner = 0;  // elementwise kinds: rows, cols; matmul: M, N, K
  std::int64_t batch = 0, query_length = 0, kv_length = 0, heads = 0, kv_heads = 0,
               head_dim = 0;  // attention
  Flops flops;
  Bytes bytes;
  Seconds median;
  double spread = 0;  // (90th percentile - 10th) / median
};

struct Calibration {
  int schema_version = 1;
  Hardware hardware;     // with measured peaks
  std::string device;    // "Intel Xeon, 2 threads"
  std::string date;      // ISO 8601
  std::string software;  // kernels' version, BLAS
  Seconds launch;        // fixed cost of an operation
  std::vector<KernelSample> samples;
  double residual_median = 0, residual_p90 = 0;  // of leaving one sample out, as a fraction of its time
};

Calibration calibration_from_json(std::string_view json, const std::string& file);  // throws PresetError
std::string to_json(const Calibration& calibration);

}  // namespace sim
