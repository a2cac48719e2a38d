// Kernels and a whole model's decoding timed alone, each beside what its prediction says.
#pragma once
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/devices.h"
#include "runtime/train.h"
#include "sim/cost/calibration.h"
#include "sim/dtype.h"
#include "sim/report/report.h"

namespace runtime {

enum class BenchKind { gemm, attention, norm, copy, launch, graph_launch, decode };
std::string_view name(BenchKind kind);  // "graph-launch"
std::optional<BenchKind> bench_kind_from_name(std::string_view text);
const std::vector<BenchKind>& all_bench_kinds();

struct GemmSize {
  std::int64_t M, N, K;
};
struct AttentionSize {
  std::int64_t batch, length, heads, kv_heads, head_dim;
};
struct NormSize {
  std::int64_t rows, columns;
};

struct BenchSettings {
  std::vector<BenchKind> kinds;  // empty: all that the device has
  sim::DType dtype = sim::DType::fp32;
  std::vector<GemmSize> gemms;
  std::vector<AttentionSize> attentions;
  std::vector<NormSize> norms;
  std::vector<sim::Bytes> copies;
  std::int64_t launches = 200;               // in a row
  double seconds = 0.3;                      // of timing, each
  std::string decode_model;                  // a preset
  std::optional<sim::DType> decode_weights;  // how they are stored: int8, fp8, int4; else as `dtype`
  std::int64_t decode_batch = 1, decode_prompt = 32, decode_tokens = 16;
  DeviceChoice device;
};
// Sizes that a device of that kind goes through in half a minute.
BenchSettings default_bench_settings(DeviceChoice::Kind kind);

// What was measured, and what was expected.
struct BenchRow {
  BenchKind kind{};
  std::string size;  // "4096 x 4096 x 4096, backward to weights"
  sim::DType dtype{};
  sim::Seconds median, least;
  // Per run. share_of_peak is of the peak that bounds these: the hardware's arithmetic or its bandwidth.
  sim::Flops flops;
  sim::Bytes bytes;
  bool by_arithmetic = false;  // the rate is in FLOP/s, else in bytes a second
  double rate = 0;             // at the median; 0 where there is nothing to divide (launches)
  double share_of_peak = 0;    // of the hardware's; 0: none
  sim::Seconds predicted;
  sim::Provenance provenance{};
};

// Runs the kinds in order, with progress to `sink`. Kinds that the device lacks (graph launches on a CPU) are
// left out; throws NoDevice if settings.kinds asks for one. Ends early, with the rows so far, on a stop
// request. `hardware` describes the device. Predictions use `calibration`, if it is not
// null.
std::vector<BenchRow> bench(const BenchSettings& settings, const sim::Hardware& hardware,
                            const sim::Calibration* calibration, const EventSink& sink,
                            const std::stop_token& stop);

}  // namespace runtime
