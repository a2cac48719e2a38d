#include "runtime/sample_runs.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "runtime/calibration_limits.h"
#include "runtime/other_load.h"
#include "runtime/short_run.h"
#include "sim/cost/work.h"
#include "sim/plan/memory.h"
#include "sim/plan/programs.h"
#include "sim/quantile.h"
#include "sim/scenario/preset.h"

namespace runtime {
namespace {

constexpr std::int64_t kSteps = 3, kGenerations = 3;  // of which the median counts

// Where executions differ by more than this, as with contexts that grow from token to token, their mean says
// something only about kinds that stream.
constexpr double kSameWork = 1.3;

// Attention of one new token reads a cache that other cores wrote, and attention of a prompt does not.
using What = std::tuple<sim::OpKind, sim::DType, std::optional<sim::DType>, bool>;

What what(const sim::KernelSample& sample) {
  return {sample.kind, sample.dtype, sample.stored, sample.query_length == 1};
}

// Executions of one operation in a phase.
struct Executions {
  std::vector<sim::KernelSample> shapes;

  // The executions as one sample, where they are alike enough.
  std::optional<sim::KernelSample> mean() const {
    sim::KernelSample mean = shapes[shapes.size() / 2];
    double flops = 0, bytes = 0, least = std::numeric_limits<double>::infinity(), most = 0;
    for (const sim::KernelSample& shape : shapes) {
      const double work = shape.flops.value + static_cast<double>(shape.bytes.value);
      least = std::min(least, work);
      most = std::max(most, work);
      flops += shape.flops.value;
      bytes += static_cast<double>(shape.bytes.value);
    }
    if (most <= kSameWork * least) return mean;
    if (sim::is_product(mean.kind) || sim::is_attention(mean.kind)) return std::nullopt;
    const auto count = static_cast<double>(shapes.size());
    mean.flops = {flops / count};
    mean.bytes = {std::llround(bytes / count)};
    return mean;
  }
};

std::map<std::pair<sim::Phase, std::string>, Executions> executions_of(const sim::Plan& plan,
                                                                       sim::Bytes working_set) {
  std::map<std::pair<sim::Phase, std::string>, Executions> all;
  for (const sim::Action& action : plan.programs.front().actions)
    for (const sim::Operation& op : plan.blocks[static_cast<std::size_t>(action.block)].operations) {
      const sim::Work work = sim::work_of(plan, op, action.variables);
      all[{action.phase, op.id}].shapes.push_back(
          sim::kernel_shape(op, action.variables, work, working_set, sim::narrow_storage(plan, op)));
    }
  return all;
}

bool within_limits(const sim::Scenario& scenario) {
  constexpr double kForwardAndBackward = 6;  // FLOPs a weight and token
  const sim::Workload& w = scenario.workload;
  const bool trains = w.task == sim::Task::train;
  const std::int64_t tokens = trains ? w.global_batch_size * w.seq_len : w.batch_size * w.prompt_length;
  const std::int64_t active = sim::count_parameters(scenario.model).active;
  return kForwardAndBackward * static_cast<double>(active) * static_cast<double>(tokens) <=
         calibration_limits().run_flops;
}

std::vector<sim::Scenario> runs_of(const std::string& series_preset, const sim::Hardware& hardware) {
  std::vector<sim::Scenario> scenarios;
  for (const sim::ScenarioSeries& series : sim::load_series_preset(series_preset).series)
    for (const sim::SeriesPoint& point : series.points) {
      if (!hardware.has_peak_for(point.scenario.workload.dtype) || !within_limits(point.scenario)) continue;
      scenarios.push_back(point.scenario);
      scenarios.back().hardware = hardware;
    }
  return scenarios;
}

}  // namespace

std::vector<sim::Scenario> calibrating_runs(const sim::Hardware& hardware) {
  return runs_of("calibration", hardware);
}

std::vector<sim::Scenario> gpu_calibrating_runs(const sim::Hardware& hardware) {
  return runs_of("gpu_calibration", hardware);
}

namespace {

// Samples by their rows' places in the report, which are the same each time that a scenario runs.
std::map<std::size_t, sim::KernelSample> samples_by_row(const sim::Report& measured, sim::Bytes working_set) {
  const auto executions = executions_of(sim::make_plan(measured.source.scenario), working_set);
  std::set<std::string> fused;  // main operations' kernels did more than their own work
  for (const sim::Row& row : measured.rows) fused.insert(row.fused_into);
  std::map<std::size_t, sim::KernelSample> samples;
  for (std::size_t r = 0; r < measured.rows.size(); ++r) {
    const sim::Row& row = measured.rows[r];
    if (!row.fused_into.empty() || fused.count(row.id) > 0) continue;
    const auto of = executions.find({row.phase, row.id});
    // A recomputation may cover only a part of the operation.
    if (of == executions.end() || row.phase == sim::Phase::recompute || !(row.duration.value > 0)) continue;
    std::optional<sim::KernelSample> sample = of->second.mean();
    if (!sample) continue;
    sample->median = row.duration * (1.0 / static_cast<double>(of->second.shapes.size()));
    sample->spread = (row.high - row.low) / row.duration;
    samples.emplace(r, *sample);
  }
  return samples;
}

// Runs each scenario once, and once more those that were disturbed.
class RunSampler {
 public:
  RunSampler(const std::vector<sim::Scenario>& scenarios, const DeviceChoice& device,
             const Sampling& sampling, const EventSink& sink, const std::stop_token& stop,
             const sim::Calibration& calibration)
      : scenarios_(scenarios),
        device_(device),
        sampling_(sampling),
        sink_(sink),
        stop_(stop),
        calibration_(calibration),
        found_(scenarios.size()) {}

  // The samples of each run's rows, one for each time that the run ran.
  using Found = std::vector<std::map<std::size_t, std::vector<TimedSample>>>;
  const Found& run() {
    std::vector<std::size_t> all(scenarios_.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    pass(pass(all));
    return found_;
  }

 private:
  // Returns the runs that were disturbed.
  std::vector<std::size_t> pass(const std::vector<std::size_t>& turn) {
    std::vector<std::size_t> disturbed;
    std::vector<TimedSample*> known_times, new_times;
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t done = 0; done < turn.size() && !stop_.stop_requested(); ++done) {
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
      const double each = done > 0 ? spent.count() / static_cast<double>(done) : 0;
      if (sink_)
        sink_(sim::ProgressEvent{sampling_.what,
                                 static_cast<std::int64_t>(done),
                                 static_cast<std::int64_t>(turn.size()),
                                 {each * static_cast<double>(turn.size() - done)}});
      const std::size_t i = turn[done];
      const TimedPiece* const known = sampling_.pieces ? sampling_.pieces->next() : nullptr;
      const TimedPiece piece = known ? *known : run_one(scenarios_[i]);
      if (stop_.stop_requested()) break;
      if (sampling_.pieces && !known) sampling_.pieces->add(piece);
      for (const auto& [row, timed] : piece)
        (known ? known_times : new_times).push_back(&found_[i][row].emplace_back(timed));
      if (!piece.empty() && piece.front().second.load > kDisturbance) disturbed.push_back(i);
    }
    share_pace(known_times);
    share_pace(new_times);
    return disturbed;
  }

  // The samples of a run by their rows; none where it was stopped.
  TimedPiece run_one(const sim::Scenario& scenario) {
    const sim::Bytes memory = sim::plan_memory(sim::make_plan(scenario), 0, sim::Addresses::none).live_peak;
    const bool is_held = sim::share_from_memory(calibration_, memory) < 0.5;
    const sim::Bytes working_set = is_held ? sampling_.rotation : sampling_.memory;
    OtherLoad others;
    const Pace before = sampling_.pace ? sampling_.pace->look() : Pace{};
    const sim::Report measured =
        short_run(scenario, {.steps = kSteps, .generations = kGenerations, .slowdown = {}, .device = device_},
                  {}, stop_);
    if (stop_.stop_requested()) return {};
    const Pace pace = between(before, sampling_.pace ? sampling_.pace->look() : Pace{});
    const double load = sampling_.threads > 0 ? others.look(sampling_.threads).missed : 0;
    TimedPiece piece;
    for (const auto& [row, sample] : samples_by_row(measured, working_set))
      piece.emplace_back(row, TimedSample{sample, pace, load});
    return piece;
  }

  const std::vector<sim::Scenario>& scenarios_;
  const DeviceChoice& device_;
  const Sampling& sampling_;
  const EventSink& sink_;
  const std::stop_token& stop_;
  const sim::Calibration& calibration_;
  Found found_;
};

}  // namespace

std::vector<sim::KernelSample> samples_of(const sim::Report& measured, sim::Bytes working_set) {
  std::vector<sim::KernelSample> samples;
  for (const auto& [row, sample] : samples_by_row(measured, working_set)) samples.push_back(sample);
  return samples;
}

std::vector<TimedSample> sample_runs(const std::vector<sim::Scenario>& scenarios, const DeviceChoice& device,
                                     const Sampling& sampling, const EventSink& sink,
                                     const std::stop_token& stop, sim::Calibration& calibration) {
  std::vector<TimedSample> of_known;
  std::set<What> known;
  for (const sim::KernelSample& sample : calibration.samples) known.insert(what(sample));
  RunSampler sampler(scenarios, device, sampling, sink, stop, calibration);
  for (const auto& of_run : sampler.run())
    for (const auto& [row, times] : of_run) {
      const TimedSample found = typical(times);
      if (known.count(what(found.sample)) > 0) {
        of_known.push_back(found);
        continue;
      }
      calibration.samples.push_back(found.sample);
      if (sampling.paces) sampling.paces->push_back(found.pace);
    }
  return of_known;
}

sim::Seconds longer_in_runs(const sim::Calibration& calibration, std::span<const sim::KernelSample> in_runs) {
  constexpr double kShort = 1.6e-4;  // seconds: of longer ones, other errors are larger
  std::vector<double> longer;
  for (const sim::KernelSample& in_run : in_runs)
    if (const auto alone = sim::calibrated_time(calibration, in_run); alone && alone->value < kShort)
      longer.push_back(in_run.median.value - alone->value);
  return {longer.empty() ? 0.0 : std::max(0.0, sim::quantile(std::move(longer), 0.5))};
}

}  // namespace runtime
