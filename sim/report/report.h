// The result of a run. Predicted, measured and recorded results have this one shape, to be compared.
// Totals (MFU, tokens/s, peak, ...) are functions of a report (report/metrics.h) and never stored in it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/enum_names.h"
#include "sim/plan/memory.h"
#include "sim/plan/plan.h"
#include "sim/report/slowdown.h"
#include "sim/units.h"

namespace sim {

inline constexpr int kReportSchemaVersion = 1;

enum class ReportKind { predicted, measured, recorded };
enum class Provenance { measured, calibrated, interpolated, datasheet };
enum class Bound {
  compute,
  memory,
  launch,
  network,
  host,    // its memory and the link to it
  bubble,  // waiting until another pipeline stage has sent
};

// Where a report comes from; enough of the scenario for every metric.
struct Source {
  ReportKind kind{};
  Scenario scenario;     // with the hardware's peaks as they were known
  std::string device;    // "Intel Xeon, 2 threads" / "H100 SXM (predicted)"
  std::string date;      // ISO 8601, empty for predictions
  std::string software;  // version and commit
  std::uint64_t seed = 0;
  std::string calibration;  // which one, empty: none
  Slowdown slowdown;  // of the machine since it was calibrated, as checks before or during the run found it
};

// All executions of one operation in one phase, on one rank: in a training step (measured: the median over
// steps), or in a whole generation. duration is the sum over count.
struct Row {
  std::string id;  // operation
  Phase phase{};
  std::int32_t rank = 0;
  OpKind kind{};
  std::int64_t count = 0;
  Seconds start;                // of the first, from the beginning of the step or generation
  Seconds duration, low, high;  // predicted: 90 % band; measured: 10th and 90th percentile over steps
  Flops flops, model_flops;
  Bytes memory;  // traffic
  Bytes network;
  Bound bound{};
  Provenance provenance{};
  // The operation whose kernel also does this one's work, as its epilogue. That operation's row has the time
  // of both, and this one's duration is 0. Empty: this operation has a kernel of its own.
  std::string fused_into{};
  // The part of an exchange's `duration` in which its rank does nothing else. None: not known (older reports
  // lack the field), or not an exchange between ranks.
  std::optional<Seconds> exposed{};
};

// Category of the memory that a rank keeps in its host. It is not part of the device's peak.
inline constexpr std::string_view kHostMemory = "host";

// One line of the memory ledger at the peak. The device's lines add up to its peak.
struct MemoryLine {
  // A BufferClass's name, "copies", "packing" (arena beyond the live sum), "allocator" (reserved beyond it);
  // outside the arena, "context" (predicted) or "platform" and its parts (measured: "platform.graphs"); or
  // kHostMemory.
  std::string category;
  std::int32_t rank = 0;
  Bytes bytes;
};

struct MemoryTimePoint {
  Seconds time;
  MemoryByClass bytes{};
};

// What a pipeline stage does and when: a pass of a micro-batch through a chunk, or a part of the optimizer.
struct TimelineSlot {
  std::int32_t stage = 0;
  Phase phase{};                         // forward, backward (recompute with it) or optimizer
  bool inputs = false, weights = false;  // which part, where a backward pass comes in two
  std::int32_t micro_batch = 0, chunk = 0;
  Seconds start, end;
  Seconds recompute;  // the part of a backward pass that repeats forward
};

// A finished training step.
struct StepResult {
  std::int64_t step = 0;  // from 1
  double loss = 0;        // mean over the step's tokens, nats
  double grad_norm = 0;   // before clipping
  Seconds duration;
  std::int64_t tokens = 0;
  // Where the workload measures gradient noise: the norm of the mean gradient of the first micro-batch's
  // tokens, before clipping, and the noise scale (economics/noise_scale.h) of the steps so far, in sequences.
  // None: not measured, or not finite. The noise scale is also none while noise hides the gradient.
  std::optional<double> micro_batch_grad_norm{}, noise_scale{};
};

// A generated token of sequence 0 (prefill yields the first).
struct TokenResult {
  std::int64_t index = 0;
  std::int32_t token = 0;
  std::string text;  // text that the token adds, whole characters only
  Seconds duration;  // since the previous token; for the first: time to first token
  // For a text that the model reads: how little it expected this token, as the negative natural logarithm of
  // the token's probability. None: the model chose the token itself.
  std::optional<double> surprise{};  // nats
};

// What a GPU's driver reported at one moment of a run.
struct DeviceSample {
  Seconds time;  // since the run began
  double sm_clock_mhz = 0, memory_clock_mhz = 0;
  double power_w = 0, temperature_c = 0;
  std::string throttle;  // what holds the clock down, separated by commas: "power cap"; empty: nothing
};

struct Report {
  int schema_version = kReportSchemaVersion;
  Source source;
  std::vector<Row> rows;
  Seconds step_time, step_low, step_high;  // a step or a generation, wall clock
  // Predicted training: the part of step_time in which the ranks wait for the slowest of them. Rows and
  // timelines are of a rank of mean speed (cost/stragglers.h).
  Seconds waiting_for_slowest;
  // Measured, where ranks divide experts: rows of the busiest rank over the mean rank's, averaged over layers
  // and passes. It is the measured counterpart of workload.expert_imbalance. 0: not known.
  double expert_imbalance = 0;
  std::vector<MemoryLine> memory;
  std::vector<MemoryTimePoint> memory_timeline;
  std::vector<StepResult> steps;             // measured training
  std::vector<TokenResult> tokens;           // generation: measured, or predicted durations with token -1
  std::vector<DeviceSample> device_samples;  // of runs on a GPU whose driver tells
  std::string message;                       // how it ended, if not well: "interrupted after 12 of 100 steps"
};

// Keys name their units: duration_seconds, memory_bytes; flops has none. A number that is not finite (loss
// of a diverged run) is null. indent -1: one line. A report read back and written again gives the same text.
std::string to_json(const Report& report, int indent = 2);
Report report_from_json(std::string_view json, const std::string& file);  // throws PresetError

}  // namespace sim
