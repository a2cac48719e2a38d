// Tables of what training steps hold at most, by category, as PyTorch's memory profiler tells tensors apart:
// of a run on one device, the first step apart from the later ones.
#include <algorithm>
#include <array>

#include "sim/plan/legality.h"
#include "sim/plan/memory.h"
#include "sim/scenario/preset.h"
#include "sim/validate/row_model.h"
#include "sim/validate/row_reader.h"
#include "sim/validate/text_search.h"

namespace sim {
namespace {

// A table without these columns is the profile of Hugging Face's Ultra-Scale Playbook: Llama 3.2 1B in fp32,
// PyTorch eager, AdamW, 9,216 tokens on one device (its first activations are 9,216 x 2,048 x 4 bytes).
constexpr const char* kProfiledModel = "llama-3.2-1b";
constexpr std::int64_t kProfiledSequences = 9, kProfiledLength = 1024;
constexpr const char* kProfiledStack = "transformers_fp32";

// Half width of the 90 % band, as of peaks of device memory (peak_memory.cpp): requests that are in no plan.
constexpr double kRequests = 0.09;

std::int64_t count_or(const TableRow& row, std::string_view column, std::int64_t otherwise) {
  const std::optional<double> given = row.number_if_given(column);
  if (!given) return otherwise;
  if (*given < 1) throw CannotPredict(std::string(column) + " must be 1 or more");
  return static_cast<std::int64_t>(*given);
}

Scenario scenario_of(const TableRow& row) {
  Scenario s;
  s.model = row.text("model_name").empty() ? load_model_preset(kProfiledModel) : model_of_row(row);
  s.hardware = load_hardware_preset("h100-sxm");  // memory does not depend on it
  s.implementation = load_implementation_preset(kProfiledStack);
  s.workload.dtype = DType::fp32;
  s.workload.micro_batch_size = s.workload.global_batch_size =
      count_or(row, "micro_batch", kProfiledSequences);
  s.workload.seq_len = count_or(row, "seq_len", kProfiledLength);
  return s;
}

std::vector<Prediction> predict_step_memory(const TableRow& row) {
  const Scenario s = scenario_of(row);
  if (const std::vector<Problem> problems = validate(s); !problems.empty())
    throw CannotPredict(problems.front().field + " " + problems.front().message);
  const Plan plan = make_plan(s);
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
