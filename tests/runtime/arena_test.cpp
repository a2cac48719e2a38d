#include "runtime/arena.h"

#include <algorithm>

#include "runtime/run.h"
#include "runtime/this_machine.h"
#include "tests/runtime/small_run.h"
#include "tests/support/catch.h"

using runtime::Arena;

TEST_CASE("An arena is zeroed, aligned, and knows how far it was touched") {
  const auto device = runtime::make_cpu_device(1);
  Arena arena(*device, sim::Bytes{10000});
  REQUIRE(reinterpret_cast<std::uintptr_t>(arena.at({0})) % sim::kArenaAlignment == 0);
  REQUIRE(std::all_of(arena.at({0}), arena.at({10000}), [](std::byte b) { return b == std::byte{}; }));
  REQUIRE(arena.high_water().value == 0);
  arena.touch({512}, {100});
  arena.touch({0}, {8});
  CHECK(arena.high_water().value == 612);
  REQUIRE_THROWS_AS(arena.touch({9999}, {2}), std::out_of_range);
  CHECK(arena.high_water().value == 612);
}

TEST_CASE("Only touched memory is resident") {
  const auto device = runtime::make_cpu_device(1);
  constexpr std::int64_t kSize = 64 << 20, kHugePage = 2 << 20;
  Arena arena(*device, sim::Bytes{kSize});
  REQUIRE(arena.resident().value == 0);
  *arena.at({kSize / 2}) = std::byte{1};
  CHECK(arena.resident().value > 0);
  CHECK(arena.resident().value <= kHugePage);
}

TEST_CASE("What operations touch ends exactly where the plan says: training, random scenarios") {
  const auto seed = GENERATE(range(0u, 8u));
  sim::Scenario scenario = tests::training(tests::random_model(seed), 8 + 8 * (seed % 3), 1 + seed % 2, 2);
  scenario.strategy.recompute = static_cast<sim::Recompute>(seed % 3);
  runtime::Run run(scenario, 1);
  run.fill_parameters(tests::drawn(scenario.model), seed);
  run.executor().run(0, {});
  CHECK(run.executor().arena().high_water() == run.memory().arena);
  CHECK(run.executor().arena().size() == run.memory().arena);
}

TEST_CASE("What operations touch ends exactly where the plan says: generation, random scenarios") {
  const auto seed = GENERATE(range(0u, 8u));
  sim::Scenario scenario = tests::generation(tests::random_model(seed), 6, 1 + seed % 2);
  scenario.workload.kv_cache = seed % 3 != 0;
  runtime::Run run(scenario, 1);
  run.fill_parameters(tests::drawn(scenario.model), seed);
  for (std::size_t s = 0; s < run.executor().program().sections.size(); ++s) run.executor().run(s, {});
  CHECK(run.executor().arena().high_water() == run.memory().arena);
}

TEST_CASE("The ledger adds up to the high-water mark and the platform's own line") {
  const sim::Scenario scenario = tests::training(tests::small_llama());
  runtime::Run run(scenario, 1);
  run.fill_parameters(tests::drawn(scenario.model), 1);
  run.executor().run(0, {});
  sim::Report report;
  run.add_memory(report, run.executor().stamps());
  sim::Bytes sum, platform;
  for (const sim::MemoryLine& line : report.memory)
    (line.category == "platform" ? platform : sum) += line.bytes;
  CHECK(sum == run.executor().arena().high_water());
  CHECK(platform.value > 0);
  CHECK(platform < runtime::resident_memory());
}
