#include "sim/validate/peak_memory.h"

#include <algorithm>
#include <cmath>

#include "sim/plan/device_memory.h"
#include "sim/validate/table_validation.h"
#include "sim/validate/text_search.h"

namespace sim {
namespace {

// Of what a datasheet calls 80 GB the driver leaves 79.1 GiB to programs on A100 and H100
// (torch.cuda.get_device_properties).
constexpr double kUsable = 79.1 / 80;
// Half width of the 90 % band of what the allocator holds: the order of requests within an operation and the
// temporaries of kernels are not in the plan (up to 1.4 layers' worth on the smallest models, and segments of
// 2 to 20 MiB).
constexpr double kRequests = 0.09;
// Of tensors that formulas stand for, and estimated contexts.
constexpr double kFormulas = 0.16;

// Micro-batches that a stage never has in flight change nothing.
Scenario with_few_micro_batches(Scenario s) {
  const Strategy& p = s.strategy;
  const std::int64_t most = std::int64_t{2} * p.pipeline_parallel * p.virtual_pipeline;
  const std::int64_t each = s.workload.micro_batch_size * p.data_parallel;
  s.workload.global_batch_size = std::min(s.workload.global_batch_size, most * each);
  return s;
}

struct Peak {
  Bytes live, reserved, device;
  Bytes limit;  // of what is reserved
  bool fits = true;
};

// Of the fullest stage, or of the first.
Peak peak_of(const Scenario& s, bool of_first_stage) {
  const Plan plan = make_plan(s);
  const double context = s.implementation.memory.context_gib * kGiB;
  const Bytes limit{std::llround(static_cast<double>(s.hardware.memory.value) * kUsable - context)};
  Peak peak;
  peak.limit = limit;
  plan_memory_of_all(plan, Addresses::none, [&](const MemoryPlan& memory) {
    const DeviceMemory device = device_memory(plan, memory, limit);
    peak.fits = peak.fits && device.reserved <= limit;
    if (of_first_stage ? memory.program > 0 : device.total() <= peak.device) return;
    peak.live = device.live;
    peak.reserved = device.reserved;
    peak.device = device.total();
  });
  return peak;
}

MemoryBand band(Bytes value, Bytes low, Bytes high, double width) {
  const auto times = [](Bytes b, double factor) {
    return Bytes{std::llround(static_cast<double>(b.value) * factor)};
  };
  return {value, times(std::min(low, high), 1 - width), times(std::max(low, high), 1 + width)};
}

}  // namespace

PeakMemory peak_memory(const TrainingRow& training) {
  const Scenario s = with_few_micro_batches(training.scenario);
  const Peak peak = peak_of(s, training.memory_of_first_stage);
  Peak other = peak;
  if (training.other_mode) {
    Scenario in_other_mode = s;
    in_other_mode.implementation = *training.other_mode;
    other = peak_of(in_other_mode, training.memory_of_first_stage);
  }
  const bool in_other = training.other_mode && training.other_mode_share >= 1 && other.fits;
  const double share = in_other ? 1 : training.other_mode_share < 1 ? training.other_mode_share : 0;
  const auto typical = [&](Bytes one, Bytes two) {
    return Bytes{one.value + std::llround(share * static_cast<double>(two.value - one.value))};
  };
  const MemoryProfile& profile = s.implementation.memory;
  const double width = profile.tensors.empty() || profile.saved ? kFormulas : kRequests;
  PeakMemory result;
  result.live = band(typical(peak.live, other.live), peak.live, other.live, width);
  result.reserved = band(typical(peak.reserved, other.reserved), peak.reserved, other.reserved, width);
  result.device = band(typical(peak.device, other.device), peak.device, other.device, width);
  result.in_other_mode = in_other;
  result.fits = in_other || (peak.fits && typical(peak.reserved, other.reserved) <= peak.limit);
  return result;
}

Prediction memory_prediction(const TableRow& row, std::string_view column, const PeakMemory& peak) {
  const bool allocated = says(lower(row.text("component")), "allocated");
  // Read off nvidia-smi; other sources print what PyTorch's allocator reserved.
  const bool of_device = says(lower(row.text("source")), "bigscience");
  const MemoryBand& b = allocated ? peak.live : of_device ? peak.device : peak.reserved;
  const auto gib = [](Bytes bytes) { return static_cast<double>(bytes.value) / kGiB; };
  return {column, gib(b.value), gib(b.low), gib(b.high)};
}

Prediction outcome_prediction(const PeakMemory& peak) {
  return {.column = kOutcomeColumn, .words = peak.fits ? kFits : kDoesNotFit};
}

}  // namespace sim
