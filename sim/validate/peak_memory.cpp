#include "sim/validate/peak_memory.h"

#include <algorithm>
#include <cmath>

#include "sim/plan/device_memory.h"
#include "sim/validate/table_validation.h"
#include "sim/validate/table_words.h"

namespace sim {
namespace {

// A datasheet's 80 GB are 79.1 GiB to programs on A100 and H100; the driver takes the rest
// (torch.cuda.get_device_properties).
constexpr double kUsable = 79.1 / 80;
// Half width of the 90 % band of what the allocator holds: the order of requests within an operation and the
// temporaries of kernels are not in the plan (up to 1.4 layers' worth on the smallest models, and segments of
// 2 to 20 MiB).
constexpr double kRequests = 0.09;
// The same where formulas stand for tensors, and contexts are estimated.
constexpr double kFormulas = 0.16;

// Micro-batches that a stage never has in flight change nothing, so they are left out.
Scenario with_few_micro_batches(Scenario s) {
  const Strategy& p = s.strategy;
  const std::int64_t most = std::int64_t{2} * p.pipeline_parallel * p.virtual_pipeline;
  const std::int64_t each = s.workload.micro_batch_size * p.data_parallel;
  s.workload.global_batch_size = std::min(s.workload.global_batch_size, most * each);
  return s;
}

struct Peak {
  Bytes live, reserved, device;
  bool fits = true;
};

// The peak of the fullest stage, or of the first.
Peak peak_of(const Scenario& s) {
  const Plan plan = make_plan(s);
  const bool of_first_stage = s.implementation.usual.memory_of == "first";
  const double context = s.implementation.memory.context_gib * kGiB;
  const Bytes limit{std::llround(static_cast<double>(s.hardware.memory.value) * kUsable - context)};
  Peak peak;
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

// The band from the least memory that a mode takes to the most.
MemoryBand band(const std::vector<Peak>& modes, const Peak& estimate, Bytes Peak::*which, double width) {
  MemoryBand band{estimate.*which, estimate.*which, estimate.*which};
  for (const Peak& mode : modes) {
    band.low = std::min(band.low, mode.*which);
    band.high = std::max(band.high, mode.*which);
  }
  const auto times = [](Bytes b, double factor) {
    return Bytes{std::llround(static_cast<double>(b.value) * factor)};
  };
  return {band.value, times(band.low, 1 - width), times(band.high, 1 + width)};
}

}  // namespace

PeakMemory peak_memory(const TrainingRow& training) {
  std::vector<Peak> modes;
  for (const Scenario& mode : training.modes)
    // Stalls take no memory.
    if (!mode.implementation.pipeline.stalls) modes.push_back(peak_of(with_few_micro_batches(mode)));
  if (modes.empty()) modes.push_back(peak_of(with_few_micro_batches(training.scenario())));
  const Peak& estimate =
      *std::min_element(modes.begin(), training.guessed_micro_batch ? modes.end() : modes.begin() + 1,
                        [](const Peak& a, const Peak& b) { return a.reserved < b.reserved; });
  const MemoryProfile& profile = training.scenario().implementation.memory;
  const double width = profile.tensors.empty() || profile.saved ? kFormulas : kRequests;
  return {.live = band(modes, estimate, &Peak::live, width),
          .reserved = band(modes, estimate, &Peak::reserved, width),
          .device = band(modes, estimate, &Peak::device, width),
          .fits = estimate.fits,
          .reads_device = training.scenario().implementation.usual.memory_reading == "device"};
}

Prediction memory_prediction(const TableRow& row, std::string_view column, const PeakMemory& peak) {
  const bool allocated = lower(row.text("component")) == "allocated";
  const std::string reading = lower(row.text("memory_reading"));
  const bool of_device = reading.empty() ? peak.reads_device : reading == "device";
  const MemoryBand& b = allocated ? peak.live : of_device ? peak.device : peak.reserved;
  const auto gib = [](Bytes bytes) { return static_cast<double>(bytes.value) / kGiB; };
  return {column, gib(b.value), gib(b.low), gib(b.high)};
}

Prediction outcome_prediction(const PeakMemory& peak) {
  return {.column = kOutcomeColumn, .words = peak.fits ? kFits : kDoesNotFit};
}

}  // namespace sim
