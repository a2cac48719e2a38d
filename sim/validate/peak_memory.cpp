#include "sim/validate/peak_memory.h"

#include <algorithm>

#include "sim/plan/device_memory.h"
#include "sim/validate/text_search.h"

namespace sim {
namespace {

// Of what a datasheet calls 80 GB the driver leaves 79.1 GiB to programs on A100 and H100 (nvidia-smi 81,559
// MiB less what error correction and the driver keep; torch.cuda.get_device_properties).
constexpr double kUsable = 79.1 / 80;

// Micro-batches that a stage never has in flight change nothing.
Scenario with_few_micro_batches(Scenario s) {
  const Strategy& p = s.strategy;
  const std::int64_t most = std::int64_t{2} * p.pipeline_parallel * p.virtual_pipeline;
  const std::int64_t each = s.workload.micro_batch_size * p.data_parallel;
  s.workload.global_batch_size = std::min(s.workload.global_batch_size, most * each);
  return s;
}

}  // namespace

PeakMemory peak_memory(const TrainingRow& training, ReportedStage stage) {
  const Scenario s = with_few_micro_batches(training.scenario);
  const Plan plan = make_plan(s);
  const MemoryProfile& profile = s.implementation.memory;
  const auto usable = static_cast<double>(s.hardware.memory.value) * kUsable - profile.context_gib * kGiB;
  const Bytes limit{static_cast<std::int64_t>(usable)};
  PeakMemory peak;
  Bytes fullest;
  for (std::size_t p = 0; p < plan.programs.size(); ++p) {
    const MemoryPlan memory = plan_memory(plan, p, Addresses::none);
    const DeviceMemory device = device_memory(plan, memory, limit);
    peak.fits = peak.fits && device.reserved <= limit;
    const bool reported = stage == ReportedStage::first ? p == 0 : device.total() > fullest;
    if (!reported) continue;
    fullest = device.total();
    peak.live = device.live;
    peak.reserved = device.reserved;
    peak.device = device.total();
  }
  return peak;
}

ReportedStage reported_stage(const TableRow& row) {
  const bool nanotron = says_any(lower(row.text("framework")), "nanotron", "ultrascale");
  return nanotron ? ReportedStage::first : ReportedStage::fullest;
}

Bytes reported_bytes(const TableRow& row, const PeakMemory& peak) {
  if (says(lower(row.text("component")), "allocated")) return peak.live;
  if (says(lower(row.text("source")), "bigscience")) return peak.device;
  return peak.reserved;
}

}  // namespace sim
