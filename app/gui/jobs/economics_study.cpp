#include "app/gui/jobs/economics_study.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "sim/cost/predict.h"
#include "sim/plan/legality.h"
#include "sim/report/metrics.h"
#include "sim/scenario/preset.h"
#include "sim/serving/served_batch.h"

namespace app::gui {
namespace {

constexpr const char* kEngine = "vllm_0.14";

double d(std::int64_t n) {
  return static_cast<double>(n);
}

// The scenario on `times` as many data-parallel devices; on one device, with a smaller batch.
std::optional<sim::Scenario> scaled(const sim::Scenario& scenario, double times) {
  sim::Scenario s = scenario;
  const double replicas = s.strategy.data_parallel * times, batch = d(s.workload.global_batch_size) * times;
  constexpr double kMostDevices = 1 << 20;
  if (replicas * s.strategy.devices() / s.strategy.data_parallel > kMostDevices || batch < 1) return {};
  s.strategy.data_parallel = std::max(1, static_cast<int>(replicas));
  s.workload.global_batch_size = static_cast<std::int64_t>(batch);
  if (s.strategy.data_parallel * s.strategy.context_parallel == 1)
    s.strategy.zero_stage = s.strategy.shard_group = 0;
  if (s.strategy.zero_stage != 3) s.strategy.prefetch = 1;
  if (s.strategy.data_parallel * s.strategy.context_parallel == 1) s.strategy.gradient_bucket = 0;
  if (!sim::validate(s).empty()) return {};
  return s;
}

std::vector<BatchStep> batch_steps(const EconomicsQuestion& question) {
  std::vector<BatchStep> steps;
  if (question.scenario.workload.task != sim::Task::train) return steps;
  constexpr int kHalvings = 8, kDoublings = 6;
  for (int power = -kHalvings; power <= kDoublings; ++power) {
    const auto s = scaled(question.scenario, std::pow(2.0, power));
    if (!s) continue;
    steps.push_back({d(s->workload.global_batch_size * s->workload.seq_len), d(s->strategy.devices()),
                     sim::step_time(sim::predict(*s, question.calibration.get()))});
  }
  return steps;
}

SequenceRate sequence_rate(sim::Scenario s, const sim::Calibration* calibration) {
  constexpr int kMostDevices = 32;
  for (; s.strategy.tensor_parallel <= kMostDevices; s.strategy.tensor_parallel *= 2) {
    if (!sim::validate(s).empty()) break;
    const sim::ServedBatch served = sim::served_batch(s, calibration);
    if (served.requests_that_fit < 1) continue;
    return {1 / served.times.later_token.total().value, s.strategy.tensor_parallel};
  }
  return {};
}

std::vector<PublishedThroughput> throughput_of(const std::vector<sim::PublishedModel>& models,
                                               const EconomicsQuestion& question) {
  std::vector<PublishedThroughput> all;
  sim::Scenario s;
  s.hardware = question.scenario.hardware;
  s.implementation = sim::load_implementation_preset(kEngine);
  s.workload.task = sim::Task::generate;
  s.workload.dtype = s.hardware.has_peak_for(sim::DType::bf16) ? sim::DType::bf16 : sim::DType::fp32;
  s.workload.prompt_length = 512;
  s.workload.max_new_tokens = 128;
  for (std::size_t i = 0; i < models.size(); ++i) {
    s.model = sim::load_model_preset(models[i].preset);
    sim::Scenario quantised = s;
    quantised.workload.weights_dtype = sim::DType::int4;
    quantised.workload.weights_group = 128;
    all.push_back({i, sequence_rate(s, question.calibration.get()),
                   sequence_rate(quantised, question.calibration.get())});
  }
  return all;
}

}  // namespace

double EconomicsStudy::between(double tokens, double (*value)(const BatchStep&)) const {
  if (batches.size() < 2) return value(batches.empty() ? BatchStep{} : batches.front());
  std::size_t after = 1;
  while (after + 1 < batches.size() && batches[after].tokens < tokens) ++after;
  const BatchStep &a = batches[after - 1], &b = batches[after];
  const double share = std::log(tokens / a.tokens) / std::log(b.tokens / a.tokens);
  return std::exp(std::lerp(std::log(value(a)), std::log(value(b)), share));
}

sim::Seconds EconomicsStudy::step(double tokens) const {
  return {between(tokens, [](const BatchStep& b) { return b.step.value; })};
}

double EconomicsStudy::devices(double tokens) const {
  return between(tokens, [](const BatchStep& b) { return b.devices; });
}

EconomicsStudy EconomicsStudies::study(const EconomicsQuestion& question) {
  EconomicsStudy study;
  if (sim::validate(question.scenario).empty()) study.batches = batch_steps(question);
  if (rates_.sites.empty()) rates_ = sim::load_economic_rates();
  study.rates = rates_;
  if (published_.empty()) published_ = sim::load_published_models();
  study.published = published_;
  if (throughput_.empty() || !(hardware_ == question.scenario.hardware)) {
    throughput_ = throughput_of(published_, question);
    hardware_ = question.scenario.hardware;
  }
  study.throughput = throughput_;
  return study;
}

}  // namespace app::gui
