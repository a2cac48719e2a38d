// Files in and out of the desktop.
#include "app/gui/opened_file.h"

#include <fstream>

#include "runtime/hugging_face_config.h"
#include "sim/cost/predict.h"
#include "tests/gui/null_desktop.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

using tests::NullDesktop;

TEST_CASE("a scenario that is saved opens again as it was, as one undo step") {
  const TemporaryFolder folder;
  const auto file = folder.path() / "mine.json";
  sim::Scenario saved = sim::load_scenario_preset("train-llama-3.1-8b-8-h100");
  saved.workload.seq_len = 2048;
  app::gui::save_scenario(saved, file);
  NullDesktop desktop;
  const sim::Scenario before = desktop.shell().document().scenario();
  desktop.shell().open(file);
  CHECK(desktop.shell().document().scenario() == saved);
  desktop.press(ImGuiMod_Ctrl | ImGuiKey_Z);
  CHECK(desktop.shell().document().scenario() == before);
}

TEST_CASE(
    "a config.json that is dropped brings its model, on the machine and in the strategy that are there") {
  const TemporaryFolder folder;
  const auto file = folder.path() / "config.json";
  const sim::Model model = sim::load_model_preset("llama-3.1-8b");
  std::ofstream(file) << runtime::hugging_face_config(model);
  NullDesktop desktop;
  const sim::Scenario before = desktop.shell().document().scenario();
  desktop.shell().open(file);
  const sim::Scenario& now = desktop.shell().document().scenario();
  CHECK(now.model.num_hidden_layers == model.num_hidden_layers);
  CHECK(now.model.hidden_size == model.hidden_size);
  CHECK(sim::count_parameters(now.model).total == sim::count_parameters(model).total);
  CHECK(now.hardware == before.hardware);
}

TEST_CASE("a report that is opened is shown as a run, and what cannot be read leaves everything as it is") {
  const TemporaryFolder folder;
  sim::Report report = sim::predict(tests::small_scenario());
  report.source.kind = sim::ReportKind::measured;
  std::ofstream(folder.path() / "run.json") << sim::to_json(report);
  std::ofstream(folder.path() / "broken.json") << "{\"model\": 7";
  NullDesktop desktop;
  desktop.shell().open(folder.path() / "run.json");
  desktop.frame();
  CHECK(desktop.shell().runs().of(sim::Task::train).measured);
  const sim::Scenario before = desktop.shell().document().scenario();
  desktop.shell().open(folder.path() / "broken.json");
  desktop.shell().open(folder.path() / "nothing.there");
  CHECK(desktop.shell().document().scenario() == before);
}
