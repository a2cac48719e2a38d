// Scenarios as text: typed into the palette, or pasted.
#include "app/gui/typed_flags.h"

#include <filesystem>
#include <string>

#include "app/cli/predict_command.h"
#include "tests/gui/null_desktop.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

using namespace app::gui;
using tests::NullDesktop;

TEST_CASE("flags typed into the palette change what they name, as one undo step, and nothing else") {
  NullDesktop desktop;
  const sim::Scenario before = desktop.shell().document().scenario();
  desktop.press(ImGuiMod_Ctrl | ImGuiKey_K);
  desktop.type("--seq-len 512 --model llama-3.1-8b --recompute full");
  desktop.press(ImGuiKey_Enter);
  desktop.settle();
  const sim::Scenario now = desktop.shell().document().scenario();
  CHECK(now.workload.seq_len == 512);
  CHECK(now.model.num_hidden_layers == 32);
  CHECK(now.strategy.recompute == sim::Recompute::full);
  CHECK(now.hardware == before.hardware);
  CHECK(now.workload.global_batch_size == before.workload.global_batch_size);
  desktop.press(ImGuiMod_Ctrl | ImGuiKey_Z);
  CHECK(desktop.shell().document().scenario() == before);
}

TEST_CASE("what is copied as a command line, or as JSON, is pasted as the same scenario") {
  NullDesktop desktop;
  sim::Scenario other = tests::small_scenario();
  other.model = sim::load_model_preset("llama-3.1-8b");
  other.strategy.data_parallel = 8;
  other.workload.global_batch_size = 32;
  other.workload.dtype = sim::DType::bf16;
  const bool as_json = GENERATE(false, true);
  const std::string text = as_json ? sim::to_json(other) : app::cli::predict_command(other);
  CAPTURE(text);
  ImGui::SetClipboardText(text.c_str());
  desktop.press(ImGuiMod_Ctrl | ImGuiMod_Shift | ImGuiKey_V);
  CHECK(desktop.shell().document().scenario() == other);
}

TEST_CASE("text that is no scenario changes nothing, and says what would be accepted") {
  NullDesktop desktop;
  const sim::Scenario before = desktop.shell().document().scenario();
  for (const char* text : {"hello", "--no-such-flag 3", "--seq-len many", "{\"model\": 7", ""}) {
    CAPTURE(text);
    CHECK_THROWS_AS(scenario_of_text(before, text), std::exception);
    ImGui::SetClipboardText(text);
    desktop.press(ImGuiMod_Ctrl | ImGuiMod_Shift | ImGuiKey_V);
    CHECK(desktop.shell().document().scenario() == before);
  }
  ImGui::SetClipboardText("hello");
  desktop.press(ImGuiMod_Ctrl | ImGuiMod_Shift | ImGuiKey_V);
  CHECK(desktop.says("ridgepoint predict"));
}

TEST_CASE("where no file dialog is, a path typed behind open and save as does what the dialog would") {
  const TemporaryFolder folder;
  NullDesktop desktop;
  const auto file = (folder.path() / "kept.json").string();
  const auto run = [&](const std::string& words) {
    desktop.press(ImGuiMod_Ctrl | ImGuiKey_K);
    desktop.type(words.c_str());
    desktop.press(ImGuiKey_Enter);
    desktop.settle();
  };
  const sim::Scenario saved = desktop.shell().document().scenario();
  run("save as " + file);
  REQUIRE(std::filesystem::exists(file));
  run("--seq-len 256");
  CHECK_FALSE(desktop.shell().document().scenario() == saved);
  run("open " + file);
  CHECK(desktop.shell().document().scenario() == saved);
}
