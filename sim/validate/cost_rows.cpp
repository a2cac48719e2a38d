// Tables of what whole training runs took: hours of accelerators, energy, carbon, money, days. They name the
// model, the number of tokens and the device, but mostly say nothing of how it was trained. A run whose row
// gives its batch is predicted as the step that its columns describe (training_scenario.h). Any other run is
// predicted by the fastest strategy of its time's software, without a loss to what else a budget is spent on.
#include <algorithm>
#include <cmath>
#include <optional>

#include "sim/cost/predict.h"
#include "sim/economics/run_cost.h"
#include "sim/planner/search.h"
#include "sim/scenario/preset.h"
#include "sim/validate/calibrated_device.h"
#include "sim/validate/row_model.h"
#include "sim/validate/row_reader.h"
#include "sim/validate/software_names.h"
#include "sim/validate/table_words.h"
#include "sim/validate/training_scenario.h"

namespace sim {
namespace {

constexpr double kTera = 1e12;
// Pre-training of language models steps over about as many tokens (Llama 2: 4 M, section 2.2 of arXiv
// 2307.09288), in sequences of at most so many (Llama 3: 8,192 before its context is lengthened).
constexpr std::int64_t kTokensOfStep = std::int64_t{4} << 20, kLongestSequence = 8192;
// Where a row does not say how many devices: as many as train for two months at 40 % of their peak, as the
// runs of Llama 3 405B (54 days) and DeepSeek-V3 (under two months) did.
constexpr double kUsualDays = 60, kUsualShareOfPeak = 0.4;
constexpr double kFewestDevices = 8, kMostDevices = 16384;
// Published runs reached from 21.3 to 46.2 % of the peak (Chowdhery et al. 2022, arXiv 2204.02311, table 3):
// the slowest takes so many times the hours of the fastest.
constexpr double kSlowestRun = 46.2 / 21.3;

double number_of(const TableRow& row, std::string_view column) {
  const std::optional<double> value = row.number_if_given(column);
  if (!value || !(*value > 0))
    throw LeftAside("no inputs to predict from: " + std::string(column) + " is not given");
  return *value;
}

Model model_of_run(const TableRow& row) {
  try {
    return model_of_row(row);
  } catch (const CannotPredict&) {
    throw LeftAside("no inputs to predict from: model \"" + std::string(row.text("model_name")) +
                    "\" is no preset");
  }
}

int usual_devices(const Model& model, double tokens, const Hardware& hardware, DType dtype) {
  constexpr double kSecondsOfDay = 24 * 3600;
  const double flops = 6 * static_cast<double>(count_parameters(model).active) * tokens;
  const double of_one = hardware.peak_for(dtype).value * kUsualShareOfPeak * kUsualDays * kSecondsOfDay;
  return static_cast<int>(
      std::exp2(std::round(std::log2(std::clamp(flops / of_one, kFewestDevices, kMostDevices)))));
}

// Few enough strategies that a table takes seconds, with what large runs are reported to use.
SearchSpace strategies_of(const Scenario& base, int devices) {
  SearchSpace space = space_of(base);
  space.devices = {devices};
  space.tensor_parallel = {1, 2, 4, 8};
  space.sequence_parallel = {false, true};
  space.pipeline_parallel = {1, 2, 4, 8, 16};
  if (base.model.has_experts()) space.expert_parallel = {1, 8, 64};
  space.zero_stage = {1, 3};
  space.micro_batch_size = {1, 2, 4};
  space.recompute = {{Recompute::none}, {Recompute::selective}, {Recompute::full}};
  return space;
}

struct Run {
  double tokens_per_second = 0;
  double low = 1, high = 1;  // the step's band, over the step
};

Run run_of(const Scenario& s, const Calibration& calibration) {
  const StepTime step = predict_step(make_plan(s), s.hardware, &calibration);
  const double tokens = static_cast<double>(s.workload.global_batch_size * s.workload.seq_len);
  return {tokens / step.seconds.value, step.low / step.seconds, step.high / step.seconds};
}

Run fastest_run(const Scenario& base, int devices, const Calibration& calibration) {
  const SearchSpace space = strategies_of(base, devices);
  const SearchResult found = search(space, {}, {}, &calibration, {.most_kept = 1, .most_points = 0});
  if (found.best[Objective::time].empty())
    throw CannotPredict("no strategy on " + std::to_string(devices) + " devices fits their memory");
  return run_of(candidate(space, found.best[Objective::time].front().index), calibration);
}

// A run of the Megatron-LM of its time, with the usual number of tokens in a step.
Scenario usual_run(const TableRow& row, const Model& model, const Hardware& hardware, int devices) {
  Scenario s;
  s.model = model;
  s.hardware = hardware;
  s.implementation =
      load_implementation_preset(training_software("Megatron-LM", row.text("date")).presets.front());
  const bool fp8 = meaning("dtype", row.text("precision")) == "fp8" && s.hardware.has_peak_for(DType::fp8);
  s.workload.dtype = fp8 ? DType::fp8 : DType::bf16;
  s.workload.seq_len = std::min(model.max_position_embeddings, kLongestSequence);
  // The batch is a multiple of the devices, because each may have sequences of its own.
  const std::int64_t sequences = kTokensOfStep / s.workload.seq_len;
  s.workload.global_batch_size = (sequences + devices - 1) / devices * devices;
  s.strategy.expert_dispatch = usual_dispatch(model);
  return s;
}

std::vector<Prediction> predict_run(const TableRow& row) {
  const double tokens = number_of(row, "tokens_t") * kTera;
  const Model model = model_of_run(row);
  const Calibration& device = calibrated_device(row.text("gpu"));
  const std::optional<double> given = row.number_if_given("num_gpus");
  const int devices = given && *given >= 1 ? static_cast<int>(*given)
                                           : usual_devices(model, tokens, device.hardware, DType::bf16);

  const bool says_how = !row.text("global_batch").empty();
  const Run run = says_how ? run_of(training_row(row).scenario(), device)
                           : fastest_run(usual_run(row, model, device.hardware, devices), devices, device);

  const EconomicRates rates = load_economic_rates();
  const std::string_view named = row.text("site");
  const Site* const site = rates.site(named.empty() ? "world" : named);
  if (!site) throw CannotPredict("site \"" + std::string(named) + "\" is none of presets/economics.json");
  const HourlyPrice* const price = rates.price_of(device.hardware.name);
  const Reliability reliability;
  const double power = number_in(row.text("gpu_power_w")).value_or(device.hardware.power_w);
  const RunCost cost =
      cost_of_run({.tokens = tokens,
                   .tokens_per_second = run.tokens_per_second,
                   .devices = static_cast<double>(devices),
                   .power_w = power,
                   .usd_per_device_hour = price ? price->usd() : 0,
                   .site = *site,
                   .goodput = goodput(reliability, devices, best_checkpoint_interval(reliability, devices))});

  std::vector<Prediction> predictions;
  const auto add = [&](std::string_view column, double value) {
    if (value > 0) predictions.push_back({column, value, value * run.low, value * run.high * kSlowestRun});
  };
  add("gpu_hours", cost.device_hours);
  add("energy_mwh", cost.mwh);
  add("co2_t", cost.tonnes_co2e);
  add("cost_usd", cost.usd);
  if (given) add("wall_clock_days", cost.days);
  return predictions;
}

}  // namespace

RowReader cost_rows() {
  return {.what = "training runs",
          .needs = {"gpu", "model_name", "tokens_t", "gpu_hours"},
          .measured = {{"gpu_hours"}, {"energy_mwh"}, {"co2_t"}, {"cost_usd"}, {"wall_clock_days"}},
          .predict = predict_run};
}

}  // namespace sim
