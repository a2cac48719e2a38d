// Configure's table of fields.
#include <algorithm>

#include "app/gui/scenario_fields.h"
#include "sim/plan/schedule.h"
#include "tests/gui/null_desktop.h"
#include "tests/support/catch.h"

using namespace app::gui;

namespace {

sim::Scenario divided() {
  sim::Scenario s = tests::small_scenario();
  s.strategy.data_parallel = 2;
  s.strategy.tensor_parallel = 2;
  s.strategy.pipeline_parallel = 2;
  s.workload.global_batch_size = 64;
  return s;
}

const ScenarioField& field_named(const std::string& name) {
  for (const FieldSection& section : scenario_fields())
    for (const ScenarioField& field : section.fields)
      if (field.name == name) return field;
  throw std::out_of_range(name);
}

bool has_problem(const sim::Scenario& s, const std::string& field) {
  const auto problems = sim::validate(s);
  return std::any_of(problems.begin(), problems.end(),
                     [&](const sim::Problem& p) { return p.field == field; });
}

}  // namespace

TEST_CASE("every field reads back what was written to it, and undo gives the scenario back") {
  sim::Scenario before = divided();
  before.model = sim::load_model_preset(GENERATE("gpt2-124m", "mixtral-8x7b"));
  Document document(before);
  for (const FieldSection& section : scenario_fields())
    for (const ScenarioField& field : section.fields) {
      if (field.applies && !field.applies(before)) continue;
      INFO(field.name);
      const std::int64_t now = field.read(before);
      // Another choice; of a number, one that divides into the devices as before.
      const std::int64_t other =
          field.choices.empty() ? now * 2 : (now + 1) % static_cast<std::int64_t>(field.choices.size());
      sim::Scenario next = before;
      field.write(next, other);
      CHECK(field.read(next) == other);
      CHECK_FALSE(next == before);
      document.edit(field.label, next);
      REQUIRE(document.scenario() == next);
      document.undo();
      REQUIRE(document.scenario() == before);
      // Writing what is there changes nothing.
      field.write(next = before, now);
      CHECK(next == before);
    }
}

TEST_CASE("a field that is wrong offers values with which it is not") {
  sim::Scenario s = divided();
  s.strategy.tensor_parallel = 7;
  s.workload.global_batch_size = 63;
  s.strategy.expert_parallel = 4;
  s.strategy.schedule = "interleaved";
  s.strategy.sequence_parallel = true;
  for (const char* name : {"strategy.tensor_parallel", "workload.global_batch_size",
                           "strategy.expert_parallel", "strategy.schedule"}) {
    INFO(name);
    REQUIRE(has_problem(s, name));
    const ScenarioField& field = field_named(name);
    const std::vector<std::int64_t> accepted = accepted_values(s, field);
    CHECK_FALSE(accepted.empty());
    CHECK(std::is_sorted(accepted.begin(), accepted.end()));
    for (const std::int64_t value : accepted) {
      sim::Scenario next = s;
      field.write(next, value);
      CHECK_FALSE(has_problem(next, name));
    }
  }
}

TEST_CASE("devices are data parallel over what the other degrees leave; what does not divide is refused") {
  const ScenarioField& devices = field_named("devices");
  sim::Scenario s = divided();
  REQUIRE(devices.read(s) == 8);
  CHECK(devices.refuses(s, 32).empty());
  devices.write(s, 32);
  CHECK(s.strategy.data_parallel == 8);
  CHECK(s.strategy.devices() == 32);
  CHECK(devices.refuses(s, 30).find("28 or 32") != std::string::npos);
  CHECK(devices.refuses(s, 3).find("4 would do") != std::string::npos);
}

TEST_CASE("every schedule is one click away: with the chunks that it needs, or with the reason why not") {
  const sim::Scenario s = divided();
  for (const std::string_view name : sim::schedule_names()) {
    INFO(name);
    const ScheduleChoice choice = with_schedule(s, name);
    REQUIRE(choice.scenario.has_value() ==
            (choice.refusal.empty() || sim::validate(*choice.scenario).empty()));
    if (!choice.scenario) continue;
    CHECK(choice.scenario->strategy.schedule == name);
    CHECK(sim::validate(*choice.scenario).empty());
    // And back, whatever the chunks are now.
    CHECK(with_schedule(*choice.scenario, "1f1b").scenario);
  }
  sim::Scenario alone = s;
  alone.strategy.pipeline_parallel = 1;
  const ScheduleChoice refused = with_schedule(alone, "gpipe");
  CHECK_FALSE(refused.scenario);
  CHECK(refused.refusal.find("pipeline_parallel") != std::string::npos);
}
