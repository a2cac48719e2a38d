// Schedules searched side by side against each of them alone.
#include "sim/planner/search.h"
#include "sim/scenario/preset.h"
#include "tests/support/catch.h"

using namespace sim;

TEST_CASE("what a schedule is estimated at does not depend on those that are searched beside it") {
  Scenario s;
  s.model = load_model_preset("tiny-llama");
  s.hardware = load_hardware_preset("h100-sxm");
  s.implementation = load_implementation_preset("ridgepoint");
  s.workload.seq_len = s.model.max_position_embeddings;
  s.workload.global_batch_size = 16;
  SearchSpace all = every_strategy(s, {8});
  all.pipeline_parallel = {2, 4};
  all.virtual_pipeline = {1, 2};
  all.recompute = {{Recompute::none, 1}};
  const SearchOptions options{.most_kept = 10000, .most_points = 0};
  const SearchResult together = search(all, {}, {}, nullptr, options);
  REQUIRE(together.fitting > 0);
  std::int64_t fitting = 0;
  for (const std::string& schedule : all.schedule) {
    SearchSpace one = all;
    one.schedule = {schedule};
    const SearchResult alone = search(one, {}, {}, nullptr, options);
    fitting += alone.fitting;
    std::vector<Seconds> of_it;
    for (const Candidate& c : together.best[Objective::time])
      if (candidate(all, c.index).strategy.schedule == schedule) of_it.push_back(c.step);
    REQUIRE(of_it.size() == alone.best[Objective::time].size());
    for (std::size_t i = 0; i < of_it.size(); ++i) {
      const Candidate& c = alone.best[Objective::time][i];
      CAPTURE(schedule, i, c.index);
      CHECK(of_it[i].value == c.step.value);
    }
  }
  CHECK(fitting == together.fitting);
}
