// Tables of what training steps hold at most, by category, as PyTorch's memory profiler tells tensors apart:
// of a run on one device, the first step apart from the later ones.
#include <algorithm>

#include "sim/plan/memory.h"
#include "sim/scenario/preset.h"
#include "sim/validate/calibrated_device.h"
#include "sim/validate/row_model.h"
#include "sim/validate/row_reader.h"

namespace sim {
namespace {

// The run that a row describes, by model_name, implementation, precision, seq_len and micro_batch. What a
// table lacks, as exports of profilers do, is the published profile's.
Scenario profiled_run(const TableRow& row) {
  Scenario s = load_scenario_preset("profile-llama-3.2-1b");
  if (!row.text("model_name").empty()) s.model = model_of_row(row);
  if (const std::string_view stack = row.text("implementation"); !stack.empty())
    s.implementation = load_implementation_preset(stack);
  if (const std::string_view precision = row.text("precision"); !precision.empty())
    s.workload.dtype = dtype_of("precision", precision);
  if (!row.text("seq_len").empty()) s.workload.seq_len = static_cast<std::int64_t>(row.positive("seq_len"));
  if (!row.text("micro_batch").empty())
    s.workload.micro_batch_size = s.workload.global_batch_size =
        static_cast<std::int64_t>(row.positive("micro_batch"));
  require_legal(s);
  return s;
}

// Half width of the 90 % band, as of peaks of device memory (peak_memory.cpp): requests that are in no plan.
constexpr double kRequests = 0.09;

std::vector<Prediction> predict_step_memory(const TableRow& row) {
  const Plan plan = make_plan(profiled_run(row));
  const Step step = row.positive("step") < 2 ? Step::first : Step::later;
  const MemoryPlan memory = plan_memory(plan, 0, Addresses::none, step);
  MemoryByClass most{};
  for (const MemoryPoint& point : memory_timeline(plan, memory))
    for (std::size_t c = 0; c < most.size(); ++c) most[c] = std::max(most[c], point.bytes[c]);
  const auto of = [&](BufferClass c) { return most[static_cast<std::size_t>(c)]; };
  std::vector<Prediction> predictions;
  const auto add = [&](std::string_view column, Bytes bytes) {
    const double gib = static_cast<double>(bytes.value) / kGiB;
    if (gib > 0) predictions.push_back({column, gib, gib * (1 - kRequests), gib * (1 + kRequests)});
  };
  add("total_gib", memory.live_peak);
  add("parameter_gib", of(BufferClass::parameter));
  add("optimizer_state_gib", of(BufferClass::optimizer));
  add("activation_gib", of(BufferClass::activation));
  add("gradient_gib", of(BufferClass::gradient));
  return predictions;
}

}  // namespace

RowReader memory_step_rows() {
  return {.what = "memory of steps",
          .needs = {"step", "parameter_gib", "optimizer_state_gib", "activation_gib", "gradient_gib",
                    "total_gib"},
          .measured = {{"total_gib"},
                       {"parameter_gib"},
                       {"optimizer_state_gib"},
                       {"activation_gib"},
                       {"gradient_gib"}},
          .predict = predict_step_memory};
}

}  // namespace sim
