#include "runtime/measured_series.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "runtime/devices.h"
#include "runtime/machine_probe.h"
#include "runtime/run.h"
#include "runtime/short_run.h"
#include "sim/cost/predict.h"
#include "sim/plan/legality.h"
#include "sim/quantile.h"
#include "sim/report/compare.h"
#include "sim/report/metrics.h"
#include "sim/report/step_parts.h"

namespace runtime {
namespace {

// The fewest training steps and generations, whose median counts, and the most of both.
constexpr std::int64_t kFewestSteps = 5, kFewestGenerations = 3, kMostRepetitions = 60;
constexpr double kSmallestShare = 0.01;  // of a run, for an operation to be judged

// If the machine was faster or slower during a run than before or after it, the run says little of either: it
// is repeated.
constexpr int kMostRuns = 3;

double times_apart(const sim::Slowdown& a, const sim::Slowdown& b) {
  const auto apart = [](double x, double y) { return std::max(x / y, y / x); };
  return std::max(apart(a.arithmetic, b.arithmetic), apart(a.memory, b.memory));
}

// All ranks act on what the first one finds.
sim::Slowdown of_first(const sim::Slowdown& own, Communicator* among) {
  if (!among) return own;
  return {among->of_first(own.arithmetic), among->of_first(own.memory), among->of_first(own.error)};
}

std::int64_t repetitions_for(sim::Seconds seconds, const sim::Report& predicted, std::int64_t fewest) {
  return std::clamp(static_cast<std::int64_t>(seconds / sim::step_time(predicted)), fewest, kMostRepetitions);
}

}  // namespace

SeriesRun run_of_series(sim::Scenario scenario, const sim::Calibration& calibration, sim::Seconds seconds,
                        const EventSink& sink, const std::stop_token& stop, const ShortRun& like) {
  Communicator* const among = like.among;
  SeriesRun steadiest;
  scenario.hardware = calibration.hardware;
  double least_apart = std::numeric_limits<double>::infinity();
  std::vector<double> each_time;
  bool runs = false;
  try {
    if (const int ranks = among ? among->size() : 1; scenario.strategy.devices() != ranks)
      throw DoesNotFit("it takes " + std::to_string(scenario.strategy.devices()) + " ranks, and " +
                       std::to_string(ranks) + " run");
    if (const std::vector<sim::Problem> problems = sim::validate(scenario); !problems.empty())
      throw DoesNotFit(problems.front().field + ": " + problems.front().message);
    require_runnable(scenario, *open_device(like.device));
    runs = true;
    // A GPU's pace is not checked: it is its own, and its power cap slows the calibration just as much.
    const bool on_cpu = like.device.kind == DeviceChoice::Kind::cpu;
    MachineProbe probe(on_cpu ? calibration : sim::Calibration{});
    sim::Slowdown before = of_first(probe.look(), among);
    const int most_runs = like.learning_steps > 0 ? 1 : kMostRuns;  // the loss is the same every time
    for (int run = 0; run < most_runs && least_apart > sim::kSteadyWithin &&
                      !Communicator::any_of(among, stop.stop_requested());
         ++run) {
      sim::Calibration now = calibration;
      now.slowdown = before;
      SeriesRun one{.predicted = sim::predict(scenario, &now), .measured = {}, .why_not = {}};
      ShortRun as = like;
      as.steps = repetitions_for(seconds, one.predicted, kFewestSteps);
      as.generations = repetitions_for(seconds, one.predicted, kFewestGenerations);
      as.slowdown = now.slowdown;
      // Only the first of several ranks hears of steps, and the others compute meanwhile.
      const EventSink probing = among ? sink : EventSink([&](const sim::Event& event) {
        if (sink) sink(event);
        if (const std::optional<double> times = times_as_predicted(event, one.predicted)) probe.ended(*times);
      });
      probe.begin();
      one.measured = short_run(scenario, as, probing, stop);
      const sim::Slowdown after = of_first(probe.look(), among);
      now.slowdown = one.measured.source.slowdown = of_first(probe.of_run(), among);
      // How tokens choose experts depends on the workload: the prediction takes it as it was in the run.
      sim::Scenario as_run = scenario;
      if (one.measured.expert_imbalance > 0) as_run.workload.expert_imbalance = one.measured.expert_imbalance;
      one.predicted = sim::predict(as_run, &now);
      each_time.push_back(judged_time(one.measured) / judged_time(one.predicted));
      const double apart = times_apart(before, after);
      if (apart < least_apart) steadiest = std::move(one);
      least_apart = std::min(least_apart, apart);
      before = after;
    }
  } catch (const std::exception& error) {
    if (among && runs) throw;  // the others are within it, and have to be told
    steadiest.why_not = error.what();
  }
  steadiest.each_time = std::move(each_time);
  return steadiest;
}

double ErrorsOf::median() const {
  return errors.empty() ? 0 : sim::quantile(errors, 0.5);
}
double ErrorsOf::p90() const {
  return errors.empty() ? 0 : sim::quantile(errors, 0.9);
}

std::vector<JudgedTime> judged_times(const SeriesRun& run) {
  if (!run.why_not.empty()) return {};
  const bool training = run.measured.source.scenario.workload.task == sim::Task::train;
  const sim::Seconds predicted = judged_time(run.predicted);
  // The band of a token is as wide as its generation's.
  const sim::Seconds whole = sim::step_time(run.predicted);
  std::vector<JudgedTime> times{{.what = training ? JudgedThing::step : JudgedThing::token,
                                 .operation = {},
                                 .predicted = predicted,
                                 .low = predicted * (run.predicted.step_low / whole),
                                 .high = predicted * (run.predicted.step_high / whole),
                                 .measured = judged_time(run.measured)}};
  const sim::Seconds least = sim::step_time(run.measured) * kSmallestShare;
  for (const sim::ComparedRow& row : sim::compare(run.predicted, run.measured).rows)
    if (row.a && row.b && row.a->count == row.b->count && row.b->duration > least)
      times.push_back({.what = JudgedThing::operation,
                       .operation = std::string(sim::name(row.phase)) + " " + row.title(),
                       .predicted = row.a->duration,
                       .low = row.a->low,
                       .high = row.a->high,
                       .measured = row.b->duration});
  return times;
}

SeriesErrors errors_of(const std::vector<SeriesRun>& runs) {
  SeriesErrors all;
  for (const SeriesRun& run : runs) {
    if (!run.why_not.empty()) {
      ++all.refused;
      continue;
    }
    ++all.ran;
    for (std::size_t i = 1; i < run.each_time.size(); ++i)
      all.repeats.push_back(std::abs(run.each_time[i] / run.each_time[i - 1] - 1));
    if (run.measured.source.scenario.strategy.devices() > 1) {
      const auto apart = [&](sim::StepPart part) {
        return sim::step_parts(run.predicted).share(part) - sim::step_parts(run.measured).share(part);
      };
      all.bubbles.push_back(apart(sim::StepPart::bubble));
      all.exposed.push_back(apart(sim::StepPart::network));
    }
    all.memory_equal += sim::planned_memory(run.predicted) == sim::planned_memory(run.measured);
    for (const JudgedTime& time : judged_times(run)) {
      if (!(time.measured.value > 0)) continue;
      ErrorsOf& errors = time.what == JudgedThing::step    ? all.steps
                         : time.what == JudgedThing::token ? all.tokens
                                                           : all.operations;
      errors.errors.push_back(std::abs(time.predicted / time.measured - 1));
      errors.inside_band += time.measured >= time.low && time.measured <= time.high;
    }
  }
  return all;
}

}  // namespace runtime
