// From scenarios that cannot be to ones that can, and what stays on screen meanwhile.
#include "app/gui/legal.h"

#include <algorithm>
#include <random>

#include "app/gui/scenario_fields.h"
#include "sim/format.h"
#include "sim/report/metrics.h"
#include "tests/gui/null_desktop.h"
#include "tests/support/catch.h"
#include "tests/support/changed_fields.h"

using tests::NullDesktop;

namespace {

const app::gui::ScenarioField& field_called(std::string_view name) {
  for (const auto& section : app::gui::scenario_fields())
    for (const auto& field : section.fields)
      if (field.name == name) return field;
  throw std::logic_error("no such field");
}

sim::Scenario with(sim::Scenario s, std::string_view field, std::int64_t value) {
  field_called(field).write(s, value);
  return s;
}

}  // namespace

TEST_CASE("the batch follows devices, as one undo step whose label says both") {
  const sim::Scenario before = sim::load_scenario_preset("train-llama-3.1-8b-8-h100");
  NullDesktop desktop(before);
  // As a hand does: the number is typed into its field.
  const sim::Scenario typed = with(before, "devices", 512);
  REQUIRE_FALSE(sim::validate(typed).empty());
  const sim::Scenario followed = app::gui::with_batch_following(before, typed);
  CHECK(sim::validate(followed).empty());
  CHECK(test::changed_fields(typed, followed) == std::set<std::string>{"workload.global_batch_size"});
  // As many micro-batches a replica.
  CHECK(followed.workload.global_batch_size / followed.strategy.data_parallel ==
        before.workload.global_batch_size / before.strategy.data_parallel);
  // What a batch is typed as is not overruled.
  const sim::Scenario odd = with(before, "workload.global_batch_size", before.workload.global_batch_size + 1);
  CHECK(app::gui::with_batch_following(before, odd) == odd);
}

TEST_CASE("asked for tokens, what was trained on eight devices generates on one, and undo takes both back") {
  const sim::Scenario trained = sim::load_scenario_preset("train-llama-3.1-8b-8-h100");
  NullDesktop desktop(trained);
  const auto& document = desktop.shell().document();
  desktop.press(ImGuiMod_Ctrl | ImGuiKey_K);
  desktop.type("--task generate --batch-size 4");
  desktop.press(ImGuiKey_Enter);
  desktop.settle();
  const sim::Scenario generates = document.scenario();
  CHECK(sim::validate(generates).empty());
  CHECK(test::changed_fields(trained, generates) ==
        std::set<std::string>{"workload.task", "workload.batch_size", "strategy.data_parallel",
                              "strategy.zero_stage"});
  CHECK(desktop.says("What divides training alone goes: "));
  CHECK_THAT(std::string(document.undo_label()), contains("ZeRO 1"));
  desktop.press(ImGuiMod_Ctrl | ImGuiKey_Z);
  CHECK(document.scenario() == trained);

  // What is typed is not overruled, and what generation has stays.
  sim::Scenario typed = trained;
  typed.workload.task = sim::Task::generate;
  typed.strategy.data_parallel = 4;
  CHECK(app::gui::with_division_following(trained, typed).strategy.data_parallel == 4);
  sim::Scenario divided = trained;
  divided.strategy.data_parallel = 1;
  divided.strategy.zero_stage = 0;
  divided.strategy.tensor_parallel = 4;
  divided.strategy.pipeline_parallel = 2;
  sim::Scenario next = divided;
  next.workload.task = sim::Task::generate;
  CHECK(app::gui::with_division_following(divided, next) == next);
}

TEST_CASE("what a change of task took away comes back with the task, but for what was edited meanwhile") {
  const sim::Scenario trained = sim::load_scenario_preset("train-llama-3.1-8b-8-h100");
  NullDesktop desktop(trained);
  const auto& document = desktop.shell().document();
  const auto type = [&](const char* flags) {
    desktop.press(ImGuiMod_Ctrl | ImGuiKey_K);
    desktop.type(flags);
    desktop.press(ImGuiKey_Enter);
    desktop.settle();
  };
  type("--task generate --batch-size 4");
  type("--tp 2");
  type("--prompt-length 512");
  REQUIRE(document.scenario().strategy.data_parallel == 1);
  type("--task train");
  const std::set<std::string> edited = {"workload.batch_size", "strategy.tensor_parallel",
                                        "workload.prompt_length"};
  CHECK(test::changed_fields(trained, document.scenario()) == edited);
  CHECK(desktop.says("What the change of task took away comes back: "));
  CHECK_THAT(std::string(document.undo_label()), contains("ZeRO 0 \u2192 1"));
  desktop.press(ImGuiMod_Ctrl | ImGuiKey_Z);
  CHECK(document.scenario().strategy.data_parallel == 1);
  CHECK(document.scenario().workload.task == sim::Task::generate);
  desktop.press(ImGuiMod_Ctrl | ImGuiKey_Y);
  CHECK(test::changed_fields(trained, document.scenario()) == edited);

  type("--task generate");
  type("--dp 2");
  type("--task train");
  CHECK(document.scenario().strategy.data_parallel == 2);
  CHECK(document.scenario().strategy.zero_stage == trained.strategy.zero_stage);

  // Another scenario has fields of its own.
  type("--task generate");
  REQUIRE(desktop.shell().commands().invoke("scenario.chat-llama-3.1-8b-h100"));
  desktop.settle();
  type("--task train");
  CHECK(document.scenario().strategy.data_parallel == 1);
}

TEST_CASE(
    "a batch typed that does not divide leaves the last legal figures, with the labels of what disagrees") {
  NullDesktop desktop(sim::load_scenario_preset("train-llama-3.1-8b-8-h100"), {1600, 1000});
  desktop.settle();
  auto& document = desktop.shell().document();
  const sim::Scenario legal = document.scenario();
  const std::string tokens = sim::format_count(legal.workload.global_batch_size * legal.workload.seq_len);
  REQUIRE(desktop.says(tokens + " tokens a step"));
  document.edit("batch", with(legal, "workload.global_batch_size", 7));
  desktop.settle();
  const std::string words = desktop.words();
  CHECK_THAT(words, contains("This cannot be: global batch is 7"));
  CHECK_THAT(words, contains(tokens + " tokens a step"));
  CHECK_THAT(words, contains("Greyed figures are of the last scenario that could be"));
  CHECK_THAT(words, !contains("global_batch_size"));
  CHECK_THAT(words, !contains("No prediction yet"));
  REQUIRE(desktop.shell().commands().invoke("edit.make_legal"));
  desktop.settle();
  CHECK(sim::validate(document.scenario()).empty());
  CHECK_FALSE(desktop.says("This cannot be"));
  document.undo();
  document.undo();
  CHECK(document.scenario() == legal);
}

TEST_CASE("Make it legal finds a way from every clash of model, machine and strategy of the presets") {
  const std::vector<std::string> models = {"tiny-gpt", "gpt2-124m", "llama-3.1-8b", "mixtral-8x7b"};
  sim::Hardware here;
  here.name = std::string(sim::kThisMachine);
  here.memory = sim::gib(16);
  here.memory_bandwidth = {5e10};
  here.peak = {{sim::DType::fp32, {1e12}}};
  int wrong = 0;
  for (const std::string& scenario : sim::preset_names(sim::PresetKind::scenario))
    for (const std::string& model : models)
      for (const bool on_this_machine : {false, true}) {
        sim::Scenario s = sim::load_scenario_preset(scenario);
        s.model = sim::load_model_preset(model);
        if (on_this_machine) s.hardware = here;
        if (s.hardware.peak.empty()) continue;  // not measured
        if (sim::validate(s).empty()) continue;
        ++wrong;
        CAPTURE(scenario, model, on_this_machine);
        for (const sim::Problem& problem : sim::validate(s)) UNSCOPED_INFO(app::gui::in_labels(problem));
        const auto legal = app::gui::make_legal(s);
        REQUIRE(legal);
        CHECK(sim::validate(*legal).empty());
        CHECK(legal->model == s.model);
        CHECK(legal->hardware == s.hardware);
      }
  CHECK(wrong > 0);
}

TEST_CASE("Make it legal mends random edits of every field, and changes nothing that is legal") {
  std::mt19937 random(20261123);
  const sim::Scenario begin = sim::load_scenario_preset("train-llama-3.1-8b-8-h100");
  CHECK(app::gui::make_legal(begin) == begin);
  int wrong = 0;
  for (int trial = 0; trial < 200; ++trial) {
    sim::Scenario s = begin;
    for (int edit = 0; edit < 3; ++edit) {
      const auto& sections = app::gui::scenario_fields();
      const auto& section = sections[random() % sections.size()];
      const auto& field = section.fields[random() % section.fields.size()];
      if (section.id == std::string_view("model") || (field.applies && !field.applies(s))) continue;
      const std::int64_t value = field.choices.empty()
                                     ? static_cast<std::int64_t>(1 + random() % 100)
                                     : static_cast<std::int64_t>(random() % field.choices.size());
      if (!field.refuses || field.refuses(s, value).empty()) field.write(s, value);
    }
    if (sim::validate(s).empty()) continue;
    ++wrong;
    const auto legal = app::gui::make_legal(s);
    CAPTURE(app::gui::differences(begin, s));
    REQUIRE(legal);
    CHECK(sim::validate(*legal).empty());
  }
  CHECK(wrong > 20);
}

TEST_CASE("Ctrl+N begins again, and this machine has one device") {
  NullDesktop desktop;
  auto& document = desktop.shell().document();
  const sim::Scenario first = document.scenario();
  REQUIRE(desktop.shell().commands().invoke("scenario.train-llama-3.1-405b-16384-h100"));
  CHECK(document.scenario().strategy.devices() == 16384);
  REQUIRE(desktop.shell().commands().invoke("hardware.this-machine"));
  CHECK(document.scenario().strategy.devices() == 1);
  desktop.press(ImGuiMod_Ctrl | ImGuiKey_N);
  CHECK(document.scenario() == first);
}

TEST_CASE("scenario presets stand first in the palette") {
  NullDesktop desktop;
  const auto found = desktop.shell().commands().search("8b h100");
  REQUIRE_FALSE(found.empty());
  CHECK(found.front()->category == "Scenario");
}
