#include "runtime/measured_series.h"

#include <algorithm>
#include <cmath>
#include <exception>

#include "runtime/devices.h"
#include "runtime/generate.h"
#include "runtime/machine_probe.h"
#include "runtime/model_source.h"
#include "runtime/run.h"
#include "sim/cost/predict.h"
#include "sim/plan/legality.h"
#include "sim/quantile.h"
#include "sim/report/compare.h"
#include "sim/report/metrics.h"

namespace runtime {
namespace {

constexpr std::int64_t kFewestSteps = 5, kMostSteps = 60;
constexpr double kSmallestShare = 0.01;  // of a run, for an operation to be judged

ModelSource without_weights(const sim::Model& model) {
  return {model, "series", std::nullopt, {}};
}

sim::Report train_for(const sim::Scenario& scenario, const sim::Report& predicted, sim::Seconds seconds,
                      const EventSink& sink, const std::stop_token& stop) {
  TrainSettings settings;
  settings.steps =
      std::clamp(static_cast<std::int64_t>(seconds / sim::step_time(predicted)), kFewestSteps, kMostSteps);
  settings.slowdown = predicted.source.slowdown;
  return train(scenario, without_weights(scenario.model), settings, sink, stop);
}

sim::Report generate_once(const sim::Scenario& scenario, const sim::Report& predicted, const EventSink& sink,
                          const std::stop_token& stop) {
  GenerateSettings settings;
  for (std::int64_t i = 0; i < scenario.workload.prompt_length; ++i)
    settings.prompt.push_back(static_cast<std::int32_t>(i * 7919 % scenario.model.vocab_size));
  settings.ignore_eos = true;  // as many tokens as were predicted
  settings.slowdown = predicted.source.slowdown;
  return generate(scenario, without_weights(scenario.model), settings, sink, stop).report;
}

void add(ErrorsOf& errors, sim::Seconds predicted, sim::Seconds low, sim::Seconds high,
         sim::Seconds measured) {
  if (!(measured.value > 0)) return;
  errors.errors.push_back(std::abs(predicted / measured - 1));
  errors.inside_band += measured >= low && measured <= high;
}

}  // namespace

SeriesRun run_of_series(sim::Scenario scenario, const sim::Calibration& calibration, sim::Seconds seconds,
                        const EventSink& sink, const std::stop_token& stop) {
  SeriesRun run;
  scenario.hardware = calibration.hardware;
  try {
    if (const std::vector<sim::Problem> problems = sim::validate(scenario); !problems.empty())
      throw DoesNotFit(problems.front().field + ": " + problems.front().message);
    require_runnable(scenario, *make_cpu_device(0));
    sim::Calibration now = calibration;
    if (const auto slowdown = probe_this_machine(calibration); slowdown && !is_steady(*slowdown))
      now.slowdown = *slowdown;
    run.predicted = sim::predict(scenario, &now);
    run.measured = scenario.workload.task == sim::Task::train
                       ? train_for(scenario, run.predicted, seconds, sink, stop)
                       : generate_once(scenario, run.predicted, sink, stop);
  } catch (const std::exception& error) {
    run.why_not = error.what();
  }
  return run;
}

sim::Seconds judged_time(const sim::Report& report) {
  const sim::Workload& workload = report.source.scenario.workload;
  if (workload.task == sim::Task::generate && workload.kv_cache)
    if (const auto token = sim::tpot(report)) return *token;
  return sim::step_time(report);
}

double ErrorsOf::median() const {
  return errors.empty() ? 0 : sim::quantile(errors, 0.5);
}
double ErrorsOf::p90() const {
  return errors.empty() ? 0 : sim::quantile(errors, 0.9);
}

SeriesErrors errors_of(const std::vector<SeriesRun>& runs) {
  SeriesErrors all;
  for (const SeriesRun& run : runs) {
    if (!run.why_not.empty()) {
      ++all.refused;
      continue;
    }
    ++all.ran;
    const bool training = run.measured.source.scenario.workload.task == sim::Task::train;
    const sim::Seconds predicted = judged_time(run.predicted), measured = judged_time(run.measured);
    // The band of a token is as wide as its generation's.
    const double low = run.predicted.step_low / sim::step_time(run.predicted);
    const double high = run.predicted.step_high / sim::step_time(run.predicted);
    add(training ? all.steps : all.tokens, predicted, predicted * low, predicted * high, measured);
    all.memory_equal += sim::planned_memory(run.predicted) == sim::planned_memory(run.measured);
    const sim::Seconds least = sim::step_time(run.measured) * kSmallestShare;
    for (const sim::ComparedRow& row : sim::compare(run.predicted, run.measured).rows)
      if (row.a && row.b && row.b->duration > least)
        add(all.operations, row.a->duration, row.a->low, row.a->high, row.b->duration);
  }
  return all;
}

}  // namespace runtime
