#include "sim/validate/inference_row.h"

#include <algorithm>

#include "sim/cost/calibration_preset.h"
#include "sim/scenario/preset.h"
#include "sim/validate/calibrated_device.h"
#include "sim/validate/row_model.h"
#include "sim/validate/software_names.h"
#include "sim/validate/table_words.h"

namespace sim {
namespace {

// Where a row gives no lengths: means of the conversations (ShareGPT) that serving benchmarks send by
// default.
constexpr std::int64_t kUsualPrompt = 220, kUsualOutput = 200;
// Tokens of the busiest rank's experts over the mean, of random tokens: an estimate.
constexpr double kUsualImbalance = 1.2;

std::int64_t count_or(const TableRow& row, std::string_view column, std::int64_t otherwise) {
  return row.count_if_given(column).value_or(otherwise);
}

struct Precision {
  std::optional<DType> dtype;
  std::int64_t group = 0;  // as many weights as 32 bits of scales are for
  bool multiplied_in_fp8 = false;
};

// "bf16", "fp8 (as printed)", "int4 g32", "w4a16", "q4_0", "mxfp4".
Precision precision_of(std::string_view column, std::string_view text) {
  if (text.empty()) return {};
  constexpr double kUsualGroup = 128;
  Precision p{.dtype = dtype_of(column, text)};
  const double usual = p.dtype == DType::int4 ? kUsualGroup : 0;
  p.group = static_cast<std::int64_t>(number_in(meaning("weights_group", text)).value_or(usual));
  // A chip that multiplies 4-bit floating point does so at least as fast as it multiplies fp8.
  p.multiplied_in_fp8 = meaning("products_of_weights", text) == "fp8";
  return p;
}

void set_precision(const TableRow& row, InferenceCase& c) {
  Workload& w = c.scenario.workload;
  const Precision weights = precision_of("precision_weights", row.text("precision_weights"));
  const Precision cache = precision_of("precision_kv", row.text("precision_kv"));
  if (const MixtureOfExperts& moe = c.scenario.model.moe; moe.weights_dtype) {
    // The weights are as published, whatever the table calls them.
    w.dtype = DType::bf16;
    w.expert_weights_dtype = moe.weights_dtype;
    w.weights_group = moe.weights_group;
    if (weights.dtype == DType::fp8 && c.scenario.implementation.serving->fp8_cache_with_fp8_weights)
      w.kv_dtype = DType::fp8;
    return;
  }
  const bool wide = weights.dtype && bits(*weights.dtype) >= 16;
  w.dtype = wide ? *weights.dtype : DType::bf16;
  if (weights.dtype && !wide) {
    w.weights_dtype = weights.dtype;
    w.weights_group = weights.group;
  }
  if (weights.multiplied_in_fp8 && c.scenario.hardware.has_peak_for(DType::fp8)) w.dtype = DType::fp8;
  const bool fp8 = w.weights_dtype == DType::fp8 || w.dtype == DType::fp8;
  if (w.weights_dtype == DType::fp8 && !c.scenario.hardware.has_peak_for(DType::fp8))
    w.weights_dtype = DType::int8;
  if (cache.dtype && *cache.dtype != w.dtype) w.kv_dtype = cache.dtype;
  if (!cache.dtype && fp8 && c.scenario.implementation.serving->fp8_cache_with_fp8_weights)
    w.kv_dtype = DType::fp8;
}

}  // namespace

InferenceCase inference_case(const TableRow& row) {
  InferenceCase c;
  Scenario& s = c.scenario;
  s.workload.task = Task::generate;
  const NamedSoftware software = serving_software(row.text("framework"), row.text("date"));
  c.nearest_engine = software.nearest;
  s.implementation = load_implementation_preset(software.presets.front());
  const std::optional<std::string> device = hardware_preset_of(row.text("gpu"));
  if (!device)
    throw CannotPredict("unknown GPU \"" + std::string(row.text("gpu")) + "\": no hardware preset matches");
  s.hardware = load_hardware_preset(*device);
  c.calibration = load_calibration_preset(*device);
  s.model = model_of_row(row);
  set_precision(row, c);

  const std::int64_t gpus = count_or(row, "num_gpus", 1);
  const std::int64_t pp = count_or(row, "pp", 1), ep = count_or(row, "ep", 1);
  const bool tensor_given = !row.text("tp").empty();
  const std::int64_t tp =
      tensor_given ? count_or(row, "tp", 1) : std::max<std::int64_t>(1, gpus / std::max(pp, ep));
  s.strategy.tensor_parallel = static_cast<int>(tp);
  s.strategy.pipeline_parallel = static_cast<int>(pp);
  // Experts are divided over ranks that each attend to sequences of their own. Where tensor-parallel ranks
  // hold whole experts instead of parts of all, each reads as much.
  if (tp == 1 && s.model.has_experts())
    s.strategy.expert_parallel = s.strategy.data_parallel = static_cast<int>(ep);
  if (s.strategy.expert_parallel > 1) s.workload.expert_imbalance = kUsualImbalance;
  c.replicas = static_cast<int>(std::max<std::int64_t>(1, gpus / (tp * pp)));

  const auto prompt = row.number_if_given("input_len"), output = row.number_if_given("output_len");
  c.assumed_lengths = !prompt;
  s.workload.prompt_length = prompt ? count_or(row, "input_len", 1) : kUsualPrompt;
  s.workload.max_new_tokens = output ? count_or(row, "output_len", 1) : prompt ? 1 : kUsualOutput;
  const std::int64_t batch = count_or(row, "batch", 0), concurrency = count_or(row, "concurrency", 0);
  const bool continuous = s.implementation.serving->batching != Batching::static_batch;
  c.requests_per_second = row.number_if_given("requests_per_second");
  c.load = batch > 0               ? Load::batch
           : concurrency > 0       ? Load::concurrency
           : c.requests_per_second ? Load::rate
           : continuous            ? Load::saturated
                                   : Load::batch;
  // Latencies and rates follow from what is asked of an engine. Nobody has a full load of assumed lengths.
  if (c.load == Load::saturated && c.assumed_lengths)
    throw CannotPredict(
        "none of batch, concurrency, requests_per_second and input_len says what was asked of the engine");
  s.workload.batch_size = batch > 0 ? batch : concurrency > 0 ? concurrency : 1;
  return c;
}

}  // namespace sim
