// Configure's table of fields.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/gui/scenario_fields.h"
#include "sim/plan/legality.h"
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
  // So that every field applies at one time or another.
  before.workload.task = GENERATE(sim::Task::train, sim::Task::generate);
  if (before.workload.task == sim::Task::generate) {
    before.implementation = sim::load_implementation_preset("vllm_0.14");
  } else {
    before.strategy.recompute = GENERATE(sim::Recompute::full, sim::Recompute::operations);
    if (before.strategy.recompute == sim::Recompute::operations)
      before.strategy.recompute_operations = {"norm"};
    before.strategy.zero_stage = 3;
    before.strategy.context_parallel = 2;
  }
  Document document(before);
  for (const FieldSection& section : scenario_fields())
    for (const ScenarioField& field : section.fields) {
      if (field.applies && !field.applies(before)) continue;
      INFO(field.name);
      const std::int64_t now = field.read(before);
      // Another choice; of a number, one that divides into the devices as before.
      const std::int64_t other = field.choices.empty()
                                     ? (now == 0 ? 2 : now * 2)
                                     : (now + 1) % static_cast<std::int64_t>(field.choices.size());
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

TEST_CASE("every field of a strategy and of a workload that a scenario file has stands in Configure") {
  sim::Scenario s = divided();
  s.workload.weights_dtype = s.workload.kv_dtype = s.workload.expert_weights_dtype =
      s.workload.embedding_dtype = s.workload.head_dtype = sim::DType::fp8;
  s.workload.weights_group = 128;
  std::vector<std::string> names;
  for (const FieldSection& section : scenario_fields())
    for (const ScenarioField& field : section.fields) names.push_back(field.name);
  const auto file = nlohmann::json::parse(sim::to_json(s));
  for (const std::string part : {"strategy", "workload"}) {
    REQUIRE(file[part].size() > 10);
    for (const auto& [key, value] : file[part].items()) {
      INFO(part << "." << key);
      // Files have units behind the names of quantities.
      CHECK(std::any_of(names.begin(), names.end(),
                        [&](const std::string& name) { return (part + "." + key).starts_with(name); }));
    }
  }
}

TEST_CASE("another kind of recompute leaves nothing behind that only the old one has") {
  const ScenarioField& recompute = field_named("strategy.recompute");
  sim::Scenario s = divided();
  s.strategy.recompute = sim::Recompute::full;
  s.strategy.recompute_interval = 4;
  REQUIRE(sim::validate(s).empty());
  for (std::size_t kind = 0; kind < recompute.choices.size(); ++kind) {
    sim::Scenario next = s;
    recompute.write(next, static_cast<std::int64_t>(kind));
    INFO(recompute.choices[kind]);
    CHECK(sim::validate(next).empty());
    recompute.write(next, 0);
    CHECK(sim::validate(next).empty());
  }
}

TEST_CASE("a ratio is typed with decimals, a count as people write it") {
  const NumberStyle ratio{.hundredths = true};
  CHECK(number_text(125, ratio) == "1.25");
  CHECK(number_from_text("1.25", ratio) == 125);
  CHECK(number_from_text("2", ratio) == 200);
  CHECK_FALSE(number_from_text("two", ratio));
  CHECK_FALSE(number_from_text("1.2x", ratio));
  CHECK(number_from_text("8k", {.binary_k = true}) == 8192);
  CHECK(number_from_text("8k", {}) == 8000);
  CHECK(number_from_text(number_text(1234567, {}), {}) == 1234567);
}

TEST_CASE("a rare field shows once it is set") {
  tests::NullDesktop desktop(divided());
  const ScenarioField& bucket = field_named("strategy.gradient_bucket");
  sim::Scenario s = desktop.shell().document().scenario();
  REQUIRE(bucket.applies(s));
  CHECK_FALSE(bucket.is_set(s));
  bucket.write(s, 1 << 20);
  CHECK(bucket.is_set(s));
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

TEST_CASE("devices are data parallel over what the other degrees leave, what does not divide is refused") {
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
  for (const std::string_view name : sim::kScheduleNames) {
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
  // In the words of Configure, whose field has to change.
  CHECK(refused.refusal.find("pipeline above 1") != std::string::npos);
  CHECK(refused.refusal.find('_') == std::string::npos);
}

TEST_CASE("no label and no choice of Configure is written as files write it") {
  for (const FieldSection& section : scenario_fields())
    for (const ScenarioField& field : section.fields) {
      CAPTURE(field.name);
      CHECK(field.label.find('_') == std::string::npos);
      for (const std::string_view choice : field.choices) {
        CAPTURE(choice);
        CHECK((choice.find('_') == std::string_view::npos || sim::from_name<sim::DType>(choice)));
      }
    }
}
