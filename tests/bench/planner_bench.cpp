// How fast the planner searches, and how near its estimates are to predictions.
//
//   planner_bench              the plan of 405B on 16,384 devices, and rates on a real search space
//   planner_bench --plan           the former alone
//   planner_bench --one        microseconds an evaluation on one thread, for whoever compares
//   planner_bench --accuracy [N [SEED]]   errors of N random strategies (10,000) drawn from a seed (1), the
//                                  worst by name; on stderr those that took seconds
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "sim/cost/predict.h"
#include "sim/format.h"
#include "sim/plan/device_memory.h"
#include "sim/planner/search.h"
#include "sim/quantile.h"
#include "tests/sim/random_strategies.h"

namespace {

using namespace sim;

Scenario training(const char* model, std::int64_t seq_len, std::int64_t global_batch) {
  Scenario s;
  s.model = load_model_preset(model);
  s.hardware = load_hardware_preset("h100-sxm");
  s.implementation = load_implementation_preset("ridgepoint");
  s.workload.seq_len = seq_len;
  s.workload.global_batch_size = global_batch;
  return s;
}

// Llama-3.1-70B on 512 devices, with all that can be said about where states lie.
SearchSpace space_of_70b() {
  SearchSpace space = every_strategy(training("llama-3.1-70b", 8192, 1024), {512});
  space.tensor_parallel = {1, 2, 4, 8};
  space.context_parallel = {1, 2};
  space.pipeline_parallel = {1, 2, 4, 8};
  space.virtual_pipeline = {1, 2};
  space.micro_batch_size = {1, 2, 4};
  return space;
}
void with_all_states(SearchSpace& space) {
  space.shard_group = {0, 8, 16, 32, 64, 128};
  space.prefetch = {1, 2, 3, 4, 6, 8};
  space.gradient_bucket = {0};
  for (std::int64_t mib = 25; mib <= 3200; mib *= 2) space.gradient_bucket.push_back(mib << 20);
}

struct Timed {
  SearchResult result;
  double cpu_seconds = 0;
};
Timed timed(const SearchSpace& space, const Constraints& constraints, const Calibration* calibration,
            int threads, std::size_t most_points = SearchOptions{}.most_points) {
  SearchOptions options;
  options.threads = threads;
  options.most_points = most_points;
  const std::clock_t begin = std::clock();
  Timed t{search(space, constraints, {.usd_per_device_hour = 2.5, .watts_per_device = 1000}, calibration,
                 options),
          0};
  t.cpu_seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  return t;
}

std::string words(const Scenario& s) {
  const Strategy& t = s.strategy;
  return s.model.name + " " + s.hardware.name + " " + s.implementation.name + " dp " +
         std::to_string(t.data_parallel) + " tp " + std::to_string(t.tensor_parallel) +
         (t.sequence_parallel ? " sp" : "") + " cp " + std::to_string(t.context_parallel) + " pp " +
         std::to_string(t.pipeline_parallel) + " vpp " + std::to_string(t.virtual_pipeline) + " " +
         t.schedule + " ep " + std::to_string(t.expert_parallel) + " zero " + std::to_string(t.zero_stage) +
         " of " + std::to_string(t.shard_group) + ", micro-batches of " +
         std::to_string(s.workload.micro_batch_size) + ", recompute " + std::string(name(t.recompute));
}

void plan_405b(const Calibration* calibration) {
  SearchSpace space = every_strategy(training("llama-3.1-405b", 8192, 2048), {16384});
  // Tensor parallelism inside a node, and no more than a few ranks or chunks that share one sequence or
  // stage.
  const auto at_most = [](std::vector<int>& values, int most) {
    std::erase_if(values, [most](int v) { return v > most; });
  };
  at_most(space.tensor_parallel, space.base.hardware.devices_per_node);
  at_most(space.context_parallel, 8);
  at_most(space.virtual_pipeline, 8);
  const Timed t = timed(space, {}, calibration, 2);
  const SearchResult& r = t.result;
  std::printf(
      "llama-3.1-405b on 16,384 h100-sxm, two threads: %s candidates, %s legal, %s fit and were evaluated\n",
      format_count(size(space)).c_str(), format_count(r.legal).c_str(), format_count(r.evaluated).c_str());
  std::printf("  %.2f s (%.2f s of CPU)\n", r.seconds, t.cpu_seconds);
  if (r.best[Objective::time].empty()) return;
  const Candidate& best = r.best[Objective::time].front();
  const Scenario winner = candidate(space, best.index);
  const Report report = predict(winner, calibration);
  std::printf("  best: %s: estimated %s a step, predicted %s\n", words(winner).c_str(),
              format(best.step).c_str(), format(report.step_time).c_str());
}

// Choices that come to the same, as sizes of buckets that hold as many layers, are timed once.
std::int64_t different(const std::vector<Candidate>& candidates) {
  std::set<std::pair<double, std::int64_t>> met;
  for (const Candidate& c : candidates) met.emplace(c.step.value, c.memory.value);
  return static_cast<std::int64_t>(met.size());
}

// From nothing, and for each further candidate where blocks are priced: what a larger space takes more. A
// bound of the time says of most candidates that they are beaten; where steps may take no longer than some
// time, each of them is timed. Last, a scatter that keeps them all.
void rates(const Calibration* calibration, int threads) {
  SearchSpace few = space_of_70b();
  few.base.hardware.memory = gib(1e6);  // all fit: of each both time and memory are asked for
  SearchSpace many = few;
  with_all_states(many);
  const auto line = [](const char* what, double evaluations, double seconds, double cpu) {
    std::printf("  %-46s %12.0f %10.3f %14.0f %14.0f\n", what, evaluations, seconds, evaluations / seconds,
                evaluations / cpu);
  };
  const auto n = [](const Timed& t) { return static_cast<double>(t.result.evaluated); };
  std::printf("llama-3.1-70b on 512 h100-sxm, %d thread%s %20s %10s %14s %14s\n", threads,
              threads > 1 ? "s" : " ", "evaluations", "s", "a second", "a CPU second");
  for (const bool each : {false, true}) {
    std::printf(each ? " the time of each\n" : " the time of those that no bound rules out\n");
    Constraints constraints;
    if (each) constraints.slowest_step = Seconds{1e9};
    const Timed small = timed(few, constraints, calibration, threads);
    const Timed large = timed(many, constraints, calibration, threads);
    line("from nothing, few states a pipeline", n(small), small.result.seconds, small.cpu_seconds);
    line("from nothing, many states a pipeline", n(large), large.result.seconds, large.cpu_seconds);
    line("steady: the latter's further candidates", n(large) - n(small),
         large.result.seconds - small.result.seconds, large.cpu_seconds - small.cpu_seconds);
  }
  const Timed all = timed(many, {}, calibration, threads, static_cast<std::size_t>(size(many)));
  line("many states, all of them kept for a scatter", n(all), all.result.seconds, all.cpu_seconds);
  std::printf("  %s of them differ in time or memory\n", format_count(different(all.result.points)).c_str());
}

void accuracy(int count, std::uint64_t seed) {
  RandomStrategies random(seed);
  constexpr double kWithin = 0.005;
  struct Error {
    double time = 0, memory = 0;
    bool planned = false;
    std::string scenario;
  };
  std::vector<Error> errors;
  std::vector<double> estimated, predicted;
  for (int i = 0; i < count; ++i) {
    const std::clock_t begin = std::clock();
    const Scenario s = random.next();
    const Calibration* calibration = random.calibration(s.hardware.name);
    const Plan plan = make_plan(s);
    Bytes peak;
    plan_memory_of_all(plan, Addresses::none, [&](const MemoryPlan& memory) {
      peak = std::max(peak, device_memory(plan, memory).total());
    });
    const Estimate e = estimate(s, calibration);
    estimated.push_back(e.step.value);
    predicted.push_back(predict_step(plan, s.hardware, calibration).seconds.value);
    errors.push_back({error_of(estimated.back(), predicted.back()),
                      error_of(static_cast<double>(e.memory.value), static_cast<double>(peak.value)),
                      s.implementation.memory.allocator == AllocatorKind::planned, described(s)});
    const double took = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    constexpr double kLong = 2;
    if (took > kLong) std::fprintf(stderr, "%d: %.1f s: %s\n", i, took, errors.back().scenario.c_str());
  }
  const auto line = [](const char* what, const std::vector<double>& of) {
    if (of.empty()) return;
    std::printf("%-44s %8zu %11.2f %% %9.3f %% %9.2f %% %9.2f %% %9.1f %%\n", what, of.size(),
                100 * share_within(of, kWithin), 100 * quantile(of, 0.5), 100 * quantile(of, 0.9),
                100 * quantile(of, 0.99), 100 * quantile(of, 1));
  };
  const auto part = [&](double Error::*error, auto chosen) {
    std::vector<double> of;
    for (const Error& e : errors)
      if (chosen(e)) of.push_back(e.*error);
    return of;
  };
  std::printf("%-44s %8s %13s %11s %11s %11s %11s\n", "estimate beside prediction", "", "within 0.5 %",
              "median", "90th", "99th", "worst");
  line("time", part(&Error::time, [](const Error&) { return true; }));
  line("memory, planned arenas", part(&Error::memory, [](const Error& e) { return e.planned; }));
  line("memory, caching allocators", part(&Error::memory, [](const Error& e) { return !e.planned; }));
  std::printf("Kendall's tau of times: %.4f\n", kendalls_tau(estimated, predicted));
  for (const auto error : {&Error::time, &Error::memory}) {
    std::printf("worst %s\n", error == &Error::time ? "times" : "memory");
    std::sort(errors.begin(), errors.end(),
              [&](const Error& a, const Error& b) { return a.*error > b.*error; });
    for (std::size_t i = 0; i < std::min<std::size_t>(10, errors.size()); ++i)
      std::printf("  %6.3f %%  %s\n", 100 * (errors[i].*error), errors[i].scenario.c_str());
  }
}

}  // namespace

int main(int count, char** arguments) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string mode = count > 1 ? arguments[1] : "";
  const std::optional<Calibration> calibration = load_calibration_preset("h100-sxm");
  if (mode == "--accuracy") {
    accuracy(count > 2 ? std::atoi(arguments[2]) : 10000,
             count > 3 ? std::strtoull(arguments[3], nullptr, 10) : 1);
  } else if (mode == "--one") {
    SearchSpace space = space_of_70b();
    with_all_states(space);
    space.tensor_parallel = {8};  // as in the question that is asked
    space.context_parallel = {1};
    space.base.hardware.memory = gib(1e6);
    const Timed t = timed(space, {}, &*calibration, 1);
    std::printf("planner's search, an evaluation of time and memory %.3f\n",
                1e6 * t.result.seconds / static_cast<double>(t.result.evaluated));
  } else {
    plan_405b(&*calibration);
    if (mode == "--plan") return 0;
    for (const int threads : {1, 2}) rates(&*calibration, threads);
  }
}
