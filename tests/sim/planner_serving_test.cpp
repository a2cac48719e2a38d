// The search of ways to serve against what predict() of serving says of single scenarios, and against brute
// force.
#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/cost/calibration_preset.h"
#include "sim/cost/iteration_cost.h"
#include "sim/cost/static_batch.h"
#include "sim/plan/legality.h"
#include "sim/planner/search_json.h"
#include "sim/planner/serving_search.h"
#include "sim/scenario/preset.h"
#include "sim/serving/engine_limits.h"
#include "sim/serving/simulation.h"
#include "tests/support/catch.h"

using namespace sim;

namespace {

Scenario served(std::string_view model) {
  Scenario s;
  s.model = load_model_preset(model);
  s.hardware = load_hardware_preset("h100-sxm");
  s.implementation = load_implementation_preset("vllm_0.14");
  s.workload.task = Task::generate;
  s.workload.prompt_length = 512;
  s.workload.max_new_tokens = 128;
  return s;
}

ServingSpace small_space(std::string_view model = "llama-3.1-8b") {
  ServingSpace space = every_serving(served(model), {1, 2, 4, 8}, std::nullopt);
  space.weights_dtype = {std::nullopt, DType::fp8};
  space.kv_dtype = {std::nullopt, DType::fp8};
  space.batch_size = {1, 16, 96, 256};
  return space;
}

// The space of a candidate alone.
ServingSpace space_of_one(const ServingSpace& space, std::int64_t index) {
  const ServingChoice choice = candidate(space, index);
  const Strategy& s = choice.scenario.strategy;
  return {.base = space.base,
          .devices = {choice.devices},
          .weights_dtype = {choice.scenario.workload.weights_dtype},
          .kv_dtype = {choice.scenario.workload.kv_dtype},
          .tensor_parallel = {s.tensor_parallel},
          .expert_parallel = {s.expert_parallel},
          .pipeline_parallel = {s.pipeline_parallel},
          .batch_size = {choice.sequences}};
}

const Tariff kTariff{2, 1000};

ServingResult all_of(const ServingSpace& space, const ServingConstraints& constraints = {},
                     const std::optional<ServingTraffic>& traffic = {}) {
  const auto calibration = load_calibration_preset("h100-sxm");
  return search(space, traffic, constraints, kTariff, calibration ? &*calibration : nullptr,
                {.most_kept = static_cast<std::size_t>(size(space))});
}

}  // namespace

TEST_CASE("ways to serve: the chosen is the best of all candidates, each predicted alone") {
  const ServingSpace space = small_space();
  const ServingConstraints constraints{.memory_share = 1,
                                       .memory_reserved = {},
                                       .most_ttft = Seconds{2},
                                       .most_tpot = Seconds{0.02},
                                       .least_tokens_per_second = {},
                                       .most_usd_per_million_tokens = {},
                                       .most_kwh_per_million_tokens = {}};
  const ServingResult found = all_of(space, constraints);
  const auto calibration = load_calibration_preset("h100-sxm");
  double most = 0;
  std::int64_t fitting = 0, best = -1;
  for (std::int64_t i = 0; i < size(space); ++i) {
    const ServingChoice choice = candidate(space, i);
    const Scenario& s = choice.scenario;
    if (choice.devices % choice.devices_of_engine() != 0) continue;
    Scenario one_stage = s;
    one_stage.strategy.pipeline_parallel = 1;
    if (!validate(one_stage).empty()) continue;
    const double length = static_cast<double>(s.workload.prompt_length + s.workload.max_new_tokens);
    if (engine_memory(s).cache_tokens / length < static_cast<double>(s.workload.batch_size)) continue;
    const IterationCost cost(s, calibration ? &*calibration : nullptr);
    const StaticBatchTimes times = static_batch_times(cost, s);
    if (times.first_token.total() > Seconds{2} || times.later_token.total() > Seconds{0.02}) continue;
    ++fitting;
    const double engines = choice.devices / choice.devices_of_engine();
    const double rate = static_cast<double>(s.workload.batch_size * s.workload.max_new_tokens) /
                        times.total.total().value * engines / choice.devices;
    if (rate <= most) continue;
    most = rate;
    best = i;
  }
  REQUIRE(best >= 0);
  CHECK(found.fitting == fitting);
  const ServingCandidate& chosen = found.best[ServingObjective::throughput].front();
  CHECK(chosen.tokens_per_second_per_device() == Approx(most).epsilon(1e-12));
  CHECK(chosen.tpot <= Seconds{0.02});
}

TEST_CASE("ways to serve: candidates are fitting or refused for one reason") {
  const ServingSpace space = small_space();
  const ServingResult found = all_of(space);
  std::int64_t refused = 0;
  for (const auto& [reason, n] : found.refused) refused += n;
  CHECK(found.looked_at == size(space));
  CHECK(found.fitting + refused == found.looked_at);
  CHECK(found.refused.contains("devices"));
}

TEST_CASE("ways to serve: weights and the batch's cache fit the memory that a candidate is said to need") {
  const ServingSpace space = small_space("llama-3.1-70b");
  const ServingResult found = all_of(space);
  REQUIRE(found.fitting > 0);
  for (const ServingCandidate& c : found.best[ServingObjective::latency]) {
    CHECK(c.memory <= space.base.hardware.memory);
    const Scenario s = candidate(space, c.index).scenario;
    const EngineMemory memory = engine_memory(s);
    const double cache = memory.cache_of_token * static_cast<double>(s.workload.batch_size) *
                         static_cast<double>(s.workload.prompt_length + s.workload.max_new_tokens);
    CHECK(static_cast<double>(memory.weights.value) + cache <= static_cast<double>(c.memory.value));
    // With that memory and no more it fits; with a thousandth less it does not.
    ServingSpace exact = space_of_one(space, c.index);
    exact.base.hardware.memory = c.memory;
    CHECK(all_of(exact).fitting == 1);
    exact.base.hardware.memory = Bytes{c.memory.value - c.memory.value / 1000};
    CHECK(all_of(exact).fitting == 0);
  }
}

TEST_CASE("ways to serve: more memory never fits less, stronger constraints never fit more") {
  ServingSpace space = small_space("llama-3.1-70b");
  std::int64_t before = 0;
  for (const double share : {0.4, 0.6, 0.8, 1.0}) {
    ServingConstraints constraints;
    constraints.memory_share = share;
    const std::int64_t fitting = all_of(space, constraints).fitting;
    CHECK(fitting >= before);
    before = fitting;
  }
  CHECK(before > 0);
  std::int64_t weaker = std::numeric_limits<std::int64_t>::max();
  for (const double tpot : {1.0, 0.03, 0.015, 0.001}) {
    ServingConstraints constraints;
    constraints.most_tpot = Seconds{tpot};
    const std::int64_t fitting = all_of(space, constraints).fitting;
    CHECK(fitting <= weaker);
    weaker = fitting;
  }
}

TEST_CASE("ways to serve: no candidate beats one of the front, and each of the others is beaten") {
  const ServingSpace space = small_space();
  const ServingResult found = all_of(space);
  const auto& all = found.best[ServingObjective::throughput];
  REQUIRE(static_cast<std::int64_t>(all.size()) == found.fitting);
  const auto no_worse = [](const ServingCandidate& a, const ServingCandidate& b) {
    return a.tpot <= b.tpot && a.tokens_per_second_per_device() >= b.tokens_per_second_per_device();
  };
  for (const ServingCandidate& c : all) {
    const bool on_front = std::any_of(found.front.begin(), found.front.end(),
                                      [&](const ServingCandidate& f) { return f.index == c.index; });
    const bool matched = std::any_of(found.front.begin(), found.front.end(), [&](const ServingCandidate& f) {
      return f.index != c.index && no_worse(f, c);
    });
    CHECK(on_front != matched);
  }
}

TEST_CASE("ways to serve: ranges of a space merge to the search of all of it, through JSON too") {
  const ServingSpace space = small_space();
  const ServingResult whole = all_of(space);
  const auto calibration = load_calibration_preset("h100-sxm");
  ServingResult merged;
  const std::int64_t step = size(space) / 7 + 1;
  for (std::int64_t begin = 0; begin < size(space); begin += step) {
    const ServingResult part =
        search(space, {}, {}, kTariff, calibration ? &*calibration : nullptr,
               {.most_kept = 20, .begin = begin, .end = begin + step, .on_progress = {}, .stop = {}});
    merge(merged, serving_result_from_json(to_json(part), "a part"), 20);
  }
  CHECK(merged.looked_at == whole.looked_at);
  CHECK(merged.refused == whole.refused);
  CHECK(merged.front == whole.front);
  CHECK(merged.smallest == whole.smallest);
  for (const ServingObjective o : kAll<ServingObjective>) {
    std::vector<ServingCandidate> best = whole.best[o];
    best.resize(std::min<std::size_t>(20, best.size()));
    CHECK(merged.best[o] == best);
  }
}

TEST_CASE("ways to serve: traffic is that of a simulation of one replica with its share of the requests") {
  const Scenario base = served("llama-3.1-8b");
  const ServingTraffic traffic{.requests_per_second = 16, .duration = Seconds{30}, .seed = 3};
  ServingSpace space = every_serving(base, {4}, traffic);
  const ServingResult found = all_of(space, {}, traffic);
  const auto calibration = load_calibration_preset("h100-sxm");
  REQUIRE(found.fitting > 0);
  for (const ServingCandidate& c : found.best[ServingObjective::latency]) {
    const ServingChoice choice = candidate(space, c.index);
    const Scenario& s = choice.scenario;
    const IterationCost cost(s, calibration ? &*calibration : nullptr);
    const Simulation run = simulate({.arrivals = poisson_arrivals(16.0 / choice.replicas(), Seconds{30},
                                                                  {.prompt = 512, .output = 128}, 3)},
                                    engine_limits(s), [&](const Iteration& i) { return cost.iteration(i); });
    std::vector<Seconds> tpot;
    for (const RequestTimes& r : run.requests) tpot.push_back(r.tpot());
    CHECK(c.tpot == percentile(tpot, 0.9));
    CHECK(c.tokens_per_second == 16 * 128);
    // What comes in the simulated time is random: its spread is the root of its number.
    const double expected = 16.0 / choice.replicas() * 30, spread = std::sqrt(expected);
    CHECK(std::abs(static_cast<double>(run.requests.size()) - expected) < 4 * spread);
  }
}

TEST_CASE("ways to serve: more requests than an engine ends a second are refused") {
  const Scenario base = served("llama-3.1-70b");
  const ServingTraffic traffic{.requests_per_second = 1000, .duration = Seconds{5}, .seed = 0};
  ServingSpace space = every_serving(base, {8}, traffic);
  space.tensor_parallel = {8};
  const ServingResult found = all_of(space, {}, traffic);
  CHECK(found.fitting == 0);
  CHECK(found.refused == std::map<std::string, std::int64_t>{{"requests_per_second", 1}});
}

TEST_CASE("ways to serve: a division of experts over ranks is searched where there are experts") {
  const ServingSpace dense = every_serving(served("llama-3.1-8b"), {8}, std::nullopt);
  CHECK(dense.expert_parallel == std::vector<int>{1});
  ServingSpace sparse = every_serving(served("mixtral-8x7b"), {8}, std::nullopt);
  CHECK(sparse.expert_parallel == std::vector<int>{1, 2, 4, 8});
  sparse.batch_size = {32};
  const ServingResult found = all_of(sparse);
  CHECK(std::any_of(found.best[ServingObjective::latency].begin(),
                    found.best[ServingObjective::latency].end(), [&](const ServingCandidate& c) {
                      return candidate(sparse, c.index).scenario.strategy.expert_parallel > 1;
                    }));
}

TEST_CASE("ways to serve: what cannot be searched is said by field") {
  Scenario training = served("llama-3.1-8b");
  training.workload.task = Task::train;
  REQUIRE_THROWS_WITH(all_of(every_serving(training, {1}, {})), contains("workload.task"));
  Scenario no_engine = served("llama-3.1-8b");
  no_engine.implementation = load_implementation_preset("ridgepoint");
  REQUIRE_THROWS_WITH(all_of(every_serving(no_engine, {1}, {})), contains("inference engine"));
  ServingConstraints nothing;
  nothing.memory_share = 0;
  REQUIRE_THROWS_WITH(all_of(small_space(), nothing), contains("memory_share"));
}
