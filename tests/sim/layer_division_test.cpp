#include "sim/plan/layer_division.h"

#include <random>
#include <string>

#include "sim/plan/legality.h"
#include "sim/scenario/preset.h"
#include "tests/support/catch.h"

namespace {

sim::Scenario of_stages(int stages, int chunks, int layers, std::string_view schedule, int first, int last) {
  static const sim::Scenario base = [] {
    sim::Scenario of_8b;
    of_8b.model = sim::load_model_preset("llama-3.1-8b");
    of_8b.hardware = sim::load_hardware_preset("h100-sxm");
    of_8b.implementation = sim::load_implementation_preset("mcore_te_2026");
    return of_8b;
  }();
  sim::Scenario s = base;
  s.model.num_hidden_layers = layers;
  s.strategy.pipeline_parallel = stages;
  s.strategy.virtual_pipeline = chunks;
  s.strategy.schedule = schedule;
  s.strategy.first_stage_layers = first;
  s.strategy.last_stage_layers = last;
  s.workload.global_batch_size = 2 * stages;
  return s;
}

std::string refused_field(const sim::Scenario& s) {
  const auto problems = sim::division_problems(s);
  return problems.empty() ? "" : problems.front().field;
}

}  // namespace

TEST_CASE("pieces of a model follow each other, none is empty, and the ends have the layers that are named") {
  std::mt19937 random(7);
  const auto below = [&](unsigned n) { return static_cast<int>(random() % n); };
  int legal = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string_view schedule = sim::kScheduleNames[random() % sim::kScheduleNames.size()];
    const int stages = 2 + below(8), chunks = 1 + below(3), layers = 1 + below(80);
    const sim::Scenario s =
        of_stages(stages, chunks, layers, schedule, below(2) * below(12), below(2) * below(12));
    if (!sim::validate(s).empty()) continue;
    ++legal;
    CAPTURE(schedule, stages, chunks, layers, s.strategy.first_stage_layers, s.strategy.last_stage_layers);
    const sim::Schedule places{.stages = stages, .chunks = chunks, .placement = sim::placement_of(schedule)};
    int next = 0, of_first = 0, of_last = 0;
    for (int p = 0; p < sim::pieces_of(s.strategy); ++p) {
      const sim::LayerRange range = layers_of(s, p);
      REQUIRE(range.first == next);
      REQUIRE(range.last > range.first);
      next = range.last;
      const int stage = places.place_of(p, 0).stage;
      if (stage == 0) of_first += range.last - range.first;
      if (stage == stages - 1) of_last += range.last - range.first;
    }
    REQUIRE(next == layers);
    if (s.strategy.first_stage_layers > 0) REQUIRE(of_first == s.strategy.first_stage_layers);
    if (s.strategy.last_stage_layers > 0) REQUIRE(of_last == s.strategy.last_stage_layers);
  }
  CHECK(legal > 2'000);
}

TEST_CASE("ends that have the layers of an even division change nothing") {
  // Llama 3.1 405B: 126 layers over 16 stages, of which the first and the last have one fewer
  // (arXiv 2407.21783, section 3.3.2).
  const sim::Scenario even = of_stages(16, 1, 126, "1f1b", 0, 0), named = of_stages(16, 1, 126, "1f1b", 7, 7);
  for (int p = 0; p < 16; ++p) {
    CHECK(layers_of(even, p).first == layers_of(named, p).first);
    CHECK(layers_of(even, p).last == layers_of(named, p).last);
  }
}

TEST_CASE("ends whose layers leave the other stages too few or too many are refused with their field") {
  CHECK(refused_field(of_stages(4, 1, 32, "1f1b", 7, 0)).empty());
  CHECK(refused_field(of_stages(4, 1, 32, "1f1b", 15, 15)).empty());
  CHECK(refused_field(of_stages(4, 1, 32, "1f1b", 16, 15)) == "strategy.first_stage_layers");
  CHECK(refused_field(of_stages(4, 1, 32, "1f1b", 0, 30)) == "strategy.last_stage_layers");
  CHECK(refused_field(of_stages(2, 1, 32, "1f1b", 20, 12)).empty());
  CHECK(refused_field(of_stages(2, 1, 32, "1f1b", 20, 11)) == "strategy.first_stage_layers");
  CHECK(refused_field(of_stages(4, 2, 32, "interleaved", 0, 5)) == "strategy.last_stage_layers");
  CHECK(refused_field(of_stages(4, 1, 32, "dualpipe", 6, 0)) == "strategy.first_stage_layers");
  CHECK(refused_field(of_stages(1, 1, 32, "1f1b", 6, 0)) == "strategy.first_stage_layers");
}
