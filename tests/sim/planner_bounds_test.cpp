// What lets a search pass over candidates: times that they take at least, and an end of what it draws.
#include <algorithm>

#include "sim/cost/predict.h"
#include "sim/plan/builder.h"
#include "sim/plan/legality.h"
#include "sim/planner/candidate_walk.h"
#include "sim/planner/collector.h"
#include "sim/planner/step_estimator.h"
#include "sim/report/metrics.h"
#include "tests/sim/random_strategies.h"
#include "tests/support/catch.h"

using namespace sim;

namespace {

// With exchanges that hide and such that do not, schedules of all sorts, several devices' memory full.
SearchSpace space_of_8b() {
  Scenario s;
  s.model = load_model_preset("llama-3.1-8b");
  s.hardware = load_hardware_preset("a100-sxm-80gb");
  s.implementation = load_implementation_preset("torchtitan_2025");
  s.workload.seq_len = 8192;
  s.workload.global_batch_size = 128;
  SearchSpace space = every_strategy(s, {32});
  space.recompute = {{Recompute::none}, {Recompute::full}};
  space.micro_batch_size = {1, 4};
  space.prefetch = {1, 3};
  std::erase_if(space.virtual_pipeline, [](int chunks) { return chunks > 2; });
  std::erase_if(space.tensor_parallel, [](int ranks) { return ranks > 8; });
  std::erase_if(space.context_parallel, [](int ranks) { return ranks > 1; });
  return space;
}

}  // namespace

TEST_CASE(
    "no step is faster than the times that it takes at least, the second of which is above the first, and "
    "its "
    "memory lies within its bounds") {
  RandomStrategies random(11);
  constexpr double kRounding = 1e-9;
  for (int i = 0; i < 500; ++i) {
    const Scenario s = random.next();
    StepEstimator estimator(s, random.calibration(s.hardware.name));
    if (estimator.must_run(s.strategy)) continue;
    StepPasses passes = estimator.passes(s);
    StepPipeline pipeline(s, passes, estimator.schedule(s));
    const StepStates& states = estimator.states(s);
    const double of_compute = pipeline.least_time().value, of_states = pipeline.least_time(s, states).value,
                 time = pipeline.time(s, states).value;
    CAPTURE(i, s.model.name, s.implementation.name, s.strategy.schedule, s.strategy.zero_stage);
    CHECK(of_compute > 0);
    CHECK(of_compute <= of_states);
    CHECK(of_states <= time * (1 + kRounding));
    const PipelineMemory::Bounds bounds = pipeline.memory_bounds(s, states);
    const Bytes memory = pipeline.memory(s, states);
    CHECK(bounds.least <= memory);
    CHECK(memory <= bounds.most);
  }
}

TEST_CASE("the best and the front are the same whether all candidates are timed or those that may be there") {
  const SearchSpace space = space_of_8b();
  const Tariff tariff{.usd_per_device_hour = 2, .watts_per_device = 700};
  const std::optional<Calibration> calibration = load_calibration_preset("a100-sxm-80gb");
  SearchOptions options;
  options.most_points = 0;
  const SearchResult some = search(space, {}, tariff, &*calibration, options);
  options.most_points = static_cast<std::size_t>(size(space));  // drawing a candidate takes its time
  const SearchResult all = search(space, {}, tariff, &*calibration, options);
  REQUIRE(some.evaluated > 1000);
  CHECK(some.evaluated == all.evaluated);
  CHECK(some.best == all.best);
  CHECK(some.front == all.front);
  CHECK(some.fastest == all.fastest);
  CHECK(some.smallest == all.smallest);

  // And a scatter of few is of the same candidates as a choice from all.
  options.most_points = 100;
  REQUIRE(most_drawn(space, options.most_points) < most_drawn(space, options.most_points * 1000));
  std::vector<Candidate> few = all.points;
  cut_points(few, options.most_points);
  CHECK(search(space, {}, tariff, &*calibration, options).points == few);
}

TEST_CASE("states that are divided over all ranks are the same under the number of these ranks") {
  RandomStrategies random(23);
  int divided = 0;
  for (int i = 0; i < 900; ++i) {
    Scenario s = random.next();
    const Calibration* const calibration = random.calibration(s.hardware.name);
    s.strategy.shard_group = 0;
    Scenario numbered = s;
    numbered.strategy.shard_group = data_ranks(s.strategy);
    StepEstimator estimator(s, calibration);
    if (s.strategy.zero_stage == 0 || !validate(numbered).empty() || estimator.must_run(s.strategy)) continue;
    CAPTURE(i, s.model.name, s.strategy.zero_stage, data_ranks(s.strategy));
    ++divided;
    CHECK(&estimator.states(s) == &estimator.states(numbered));
    // As the plans have it, which nothing shares.
    const Report all = predict(s, calibration), by_number = predict(numbered, calibration);
    CHECK(all.step_time == by_number.step_time);
    CHECK(peak_memory(all) == peak_memory(by_number));
  }
  CHECK(divided > 20);
}

TEST_CASE("states are refused where validate() refuses them, whatever is gathered ahead or put in a bucket") {
  SearchSpace space = space_of_8b();
  space.tensor_parallel = {1, 8};
  space.sequence_parallel = {false};
  space.micro_batch_size = {1};
  space.virtual_pipeline = {1};
  space.shard_group = {-1, 0, 1, 3, 8};
  space.prefetch = {-1, 0, 1, 2, 5};
  space.gradient_bucket = {-1, 0, 1, 1 << 30};
  space.recompute = {{Recompute::none}};
  std::int64_t legal = 0;
  for (std::int64_t i = 0; i < size(space); ++i) {
    const Scenario s = candidate(space, i);
    legal += validate(s).empty() && said_twice(space, s.strategy).empty() ? 1 : 0;
  }
  REQUIRE(legal > 0);
  SearchOptions options;
  options.most_points = 0;
  CHECK(search(space, {}, {}, nullptr, options).legal == legal);
}
