// Files in and out of the desktop.
#include "app/gui/opened_file.h"

#include <array>
#include <fstream>

#include "app/gui/figures/carried.h"
#include "app/gui/png.h"
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

TEST_CASE("a file that nests without end opens as nothing, in a sentence that names it") {
  const TemporaryFolder folder;
  const auto file = folder.write("deep.json", "{\"report\": " + std::string(200'000, '['));
  CHECK_THROWS_WITH(app::gui::read_opened(file), contains("deep.json: is nested too deeply"));
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

TEST_CASE("an export opens again as the scenario that it is of: a picture, a drawing, a page") {
  const TemporaryFolder folder;
  sim::Scenario scenario = tests::small_scenario();
  scenario.model.source = "a name with ]]>, R&D <b> and </script> and \"quotes\"";
  const std::string ending = GENERATE(".png", ".svg", ".html");
  const auto file = folder.path() / ("export" + ending);
  if (ending == ".png") {
    const std::array<std::uint8_t, 16> pixels{};
    app::gui::write_png(file, 2, 2, pixels, {app::gui::kCarriedInPng, sim::to_json(scenario)});
  } else {
    NullDesktop of(scenario);
    of.settle();
    const auto format = app::gui::format_with_ending(ending);
    app::gui::write_text(file.string(), of.shell().exported("memory", *format));
  }
  NullDesktop desktop(sim::load_scenario_preset("train-llama-3.1-8b-8-h100"));
  desktop.shell().open(file);
  CHECK(desktop.shell().document().scenario() == scenario);
}

TEST_CASE("a picture that carries nothing, or is cut off within what it carries, changes nothing") {
  const TemporaryFolder folder;
  const std::array<std::uint8_t, 16> pixels{};
  app::gui::write_png(folder.path() / "plain.png", 2, 2, pixels);
  app::gui::write_png(
      folder.path() / "whole.png", 2, 2, pixels,
      {app::gui::kCarriedInPng, sim::to_json(sim::load_scenario_preset("train-gpt-10m-here"))});
  std::ifstream in(folder.path() / "whole.png", std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  NullDesktop desktop;
  const sim::Scenario before = desktop.shell().document().scenario();
  desktop.shell().open(folder.path() / "plain.png");
  for (const std::size_t length : {0ul, 7ul, 20ul, 45ul, 60ul, 400ul}) {
    std::ofstream(folder.path() / "cut.png", std::ios::binary) << whole.substr(0, length);
    desktop.shell().open(folder.path() / "cut.png");
  }
  CHECK(desktop.shell().document().scenario() == before);
}

TEST_CASE("what was opened stands in the menu File the newest first, once each, also in the next session") {
  const TemporaryFolder folder;
  const auto file = [&](const char* name) { return folder.path() / name; };
  app::gui::save_scenario(sim::load_scenario_preset("train-llama-3.1-8b-8-h100"), file("a.json"));
  app::gui::save_scenario(sim::load_scenario_preset("chat-llama-3.1-8b-h100"), file("b.json"));
  app::gui::Settings kept;
  {
    NullDesktop desktop;
    for (const char* name : {"a.json", "b.json", "a.json", "not_there.json"})
      desktop.shell().open(file(name));
    kept = desktop.shell().settings();
  }
  CHECK(kept.recent_files == std::vector<std::filesystem::path>{file("a.json"), file("b.json")});
  app::gui::save_settings(kept, folder.path());
  NullDesktop desktop(tests::small_scenario(), {1600, 1000}, app::gui::load_settings(folder.path()));
  CHECK(desktop.shell().commands().find("file.recent.1")->label == "Open b.json again");
  desktop.shell().commands().invoke("file.recent.1");
  CHECK(desktop.shell().document().scenario().workload.task == sim::Task::generate);
  CHECK(desktop.shell().commands().find("file.recent.0")->label == "Open b.json again");
}
