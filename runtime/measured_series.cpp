#include "runtime/measured_series.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <utility>

#include "runtime/devices.h"
#include "runtime/machine_probe.h"
#include "runtime/run.h"
#include "runtime/short_run.h"
#include "sim/cost/predict.h"
#include "sim/plan/legality.h"
#include "sim/quantile.h"
#include "sim/report/compare.h"
#include "sim/report/metrics.h"

namespace runtime {
namespace {

constexpr std::int64_t kFewestSteps = 5, kMostSteps = 60;
constexpr double kSmallestShare = 0.01;  // of a run, for an operation to be judged

// A run during which the machine became faster or slower says little of either: it is repeated.
constexpr int kMostRuns = 3;

double times_apart(const sim::Slowdown& a, const sim::Slowdown& b) {
  const auto apart = [](double x, double y) { return std::max(x / y, y / x); };
  return std::max(apart(a.arithmetic, b.arithmetic), apart(a.memory, b.memory));
}

std::int64_t steps_for(sim::Seconds seconds, const sim::Report& predicted) {
  return std::clamp(static_cast<std::int64_t>(seconds / sim::step_time(predicted)), kFewestSteps, kMostSteps);
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
  SeriesRun steadiest;
  scenario.hardware = calibration.hardware;
  double least_apart = std::numeric_limits<double>::infinity();
  try {
    if (const std::vector<sim::Problem> problems = sim::validate(scenario); !problems.empty())
      throw DoesNotFit(problems.front().field + ": " + problems.front().message);
    require_runnable(scenario, *make_cpu_device(0));
    sim::Slowdown before = probe_this_machine(calibration).value_or(sim::Slowdown{});
    for (int run = 0; run < kMostRuns && least_apart > sim::kSteadyWithin && !stop.stop_requested(); ++run) {
      sim::Calibration now = calibration;
      if (!is_steady(before)) now.slowdown = before;
      SeriesRun one{.predicted = sim::predict(scenario, &now), .measured = {}, .why_not = {}};
      one.measured = short_run(
          scenario, {.steps = steps_for(seconds, one.predicted), .threads = 0, .slowdown = now.slowdown},
          sink, stop);
      const sim::Slowdown after = probe_this_machine(calibration).value_or(sim::Slowdown{});
      const double apart = times_apart(before, after);
      if (apart < least_apart) steadiest = std::move(one);
      least_apart = std::min(least_apart, apart);
      before = after;
    }
  } catch (const std::exception& error) {
    steadiest.why_not = error.what();
  }
  return steadiest;
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
