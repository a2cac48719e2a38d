// The user's own keys, and everything that the keyboard reaches.
#include <set>

#include "app/gui/scenario_fields.h"
#include "tests/gui/drawn_text.h"
#include "tests/gui/null_desktop.h"
#include "tests/gui/panel_body.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

using namespace app::gui;
using tests::NullDesktop;

namespace {

// In the settings' page of keys, with this in its filter.
void open_keys(NullDesktop& desktop, const char* filter) {
  desktop.press(ImGuiMod_Ctrl | ImGuiKey_Comma);
  REQUIRE(GImGui->OpenPopupStack.Size == 1);
  const ImGuiWindow* window = GImGui->OpenPopupStack.back().Window;
  REQUIRE(window);
  const auto id = [&](std::initializer_list<const char*> path) {
    ImGuiID seed = window->ID;
    for (const char* part : path) seed = ImHashStr(part, 0, seed);
    return seed;
  };
  const int second = 1;
  const ImGuiID segment = ImHashStr("segment", 0, ImHashData(&second, sizeof second, id({"page"})));
  ImGui::ActivateItemByID(segment);
  desktop.frames(3);
  ImGui::ActivateItemByID(id({"##filter"}));
  desktop.frames(2);
  desktop.type(filter);
  desktop.press(ImGuiKey_Tab);
}

// The button with the key of the command that is listed.
ImGuiID key_button(const char* command, const std::string& label) {
  ImGuiID found = 0;
  for (const ImGuiWindow* window : GImGui->Windows) {
    if (!window->Active || std::string_view(window->Name).find("/keys_") == std::string_view::npos) continue;
    const ImGuiID table = ImHashStr("keys", 0, window->ParentWindow->ID);
    found = ImHashStr((label + "##key").c_str(), 0, ImHashStr(command, 0, table));
  }
  return found;
}

}  // namespace

TEST_CASE("every chord that a command has reads back from its words, and words that are no key do not") {
  NullDesktop desktop;
  for (const Command& command : desktop.shell().commands().all()) {
    CAPTURE(command.id, shortcut_text(command.shortcut));
    CHECK(chord_of(shortcut_text(command.shortcut)) == command.shortcut);
  }
  CHECK(chord_of("Ctrl+Shift+PageUp") == (ImGuiMod_Ctrl | ImGuiMod_Shift | ImGuiKey_PageUp));
  CHECK(chord_of("Ctrl++") == (ImGuiMod_Ctrl | ImGuiKey_Equal));
  CHECK_FALSE(chord_of("Ctrl+"));
  CHECK_FALSE(chord_of("Hyper+Q"));
}

TEST_CASE("no two commands are shipped with one key, but where one of them can be done at a time") {
  NullDesktop desktop;
  const Commands& commands = desktop.shell().commands();
  for (const Command& command : commands.all())
    for (const Command* other : commands.sharing(command.id, command.shortcut)) {
      CAPTURE(command.id, other->id, shortcut_text(command.shortcut));
      CHECK((command.enabled && other->enabled));
    }
}

TEST_CASE(
    "a key of the user's own does what its command does, also in the next session, and the old one not") {
  const TemporaryFolder folder;
  {
    NullDesktop desktop;
    Shell& shell = desktop.shell();
    const std::size_t before = shell.revision();
    shell.commands().bind("view.theme", ImGuiMod_Ctrl | ImGuiKey_F9);
    CHECK(shell.revision() > before);
    save_settings(shell.settings(), folder.path());
  }
  NullDesktop desktop(tests::small_scenario(), {1600, 1000}, load_settings(folder.path()));
  Shell& shell = desktop.shell();
  desktop.press(ImGuiKey_F8);
  CHECK(shell.look().theme == app::Theme::dark);
  desktop.press(ImGuiMod_Ctrl | ImGuiKey_F9);
  CHECK(shell.look().theme == app::Theme::light);
  // Commands that are made anew keep it, too.
  shell.commands().bind("file.recent.0", ImGuiKey_F7);
  shell.commands().replace("file.recent.",
                           {{.id = "file.recent.0", .category = "File", .label = "again", .run = [] {}}});
  CHECK(shell.commands().find("file.recent.0")->shortcut == ImGuiKey_F7);
  shell.commands().bind_as_shipped("view.theme");
  CHECK(shell.commands().own_keys().count("view.theme") == 0);
  desktop.press(ImGuiKey_F8);
  CHECK(shell.look().theme == app::Theme::high_contrast);
}

TEST_CASE("a new key is asked for in the settings: conflicts are named, and the key goes to whom one says") {
  NullDesktop desktop;
  Shell& shell = desktop.shell();
  const auto ask = [&](const char* command, const std::string& label) {
    const ImGuiID button = key_button(command, label);
    REQUIRE(button != 0);
    ImGui::ActivateItemByID(button);
    desktop.frames(3);
    REQUIRE(desktop.says("press a key"));
  };
  open_keys(desktop, "smaller");
  ask("view.smaller", "Ctrl+-");
  // Free, and no command's while it is asked for.
  desktop.press(ImGuiMod_Ctrl | ImGuiMod_Shift | ImGuiKey_U);
  CHECK(shell.commands().find("view.smaller")->shortcut == (ImGuiMod_Ctrl | ImGuiMod_Shift | ImGuiKey_U));
  ask("view.smaller", "Ctrl+Shift+U");
  desktop.press(ImGuiKey_F8);
  CHECK(shell.look().theme == app::Theme::dark);
  CHECK(desktop.says("F8 is the key of View: Switch theme."));
  CHECK(shell.commands().find("view.smaller")->shortcut == (ImGuiMod_Ctrl | ImGuiMod_Shift | ImGuiKey_U));
  const ImGuiWindow* window = GImGui->OpenPopupStack.back().Window;
  ImGui::ActivateItemByID(ImHashStr("Give it to Smaller", 0, window->ID));
  desktop.frames(3);
  CHECK(shell.commands().find("view.smaller")->shortcut == ImGuiKey_F8);
  CHECK(shell.commands().find("view.theme")->shortcut == ImGuiKey_None);
  // Escape leaves the key as it was, then the settings.
  ask("view.smaller", "F8");
  desktop.press(ImGuiKey_Escape);
  CHECK(shell.commands().find("view.smaller")->shortcut == ImGuiKey_F8);
  CHECK(GImGui->OpenPopupStack.Size == 1);
  desktop.press(ImGuiKey_Escape);
  desktop.frames(3);
  CHECK(GImGui->OpenPopupStack.Size == 0);
  CHECK(GImGui->ErrorCountCurrentFrame == 0);
}

TEST_CASE("no word of the settings is cut off, at two sizes and scales") {
  const ImVec2 size = GENERATE(ImVec2{1280, 720}, ImVec2{1920, 1080});
  const float scale = GENERATE(1.0f, 1.5f);
  NullDesktop desktop(tests::small_scenario(), size);
  desktop.shell().set_display_scale(scale);
  open_keys(desktop, "tab");
  desktop.frames(3);
  // What lies below a window is not its text.
  for (const std::string& problem : tests::unreadable_text())
    if (problem.starts_with("cut") && problem.find("Popup") != std::string::npos) FAIL_CHECK(problem);
}

TEST_CASE("Tab reaches every field of Configure, Enter opens what is folded") {
  sim::Scenario scenario = tests::small_scenario();
  scenario.workload.task = GENERATE(sim::Task::train, sim::Task::generate);
  NullDesktop desktop(scenario, {1600, 4000});
  const ImGuiWindow* panel = desktop.window_of("scenario");
  REQUIRE(panel);
  const ImGuiWindow* body = tests::body_of(panel);
  REQUIRE(body);
  const auto id = [&](std::initializer_list<std::string> path) {
    ImGuiID seed = body->ID;
    for (const std::string& part : path) seed = ImHashStr(part.c_str(), 0, seed);
    return seed;
  };
  const auto upper = [](std::string words) {
    for (char& c : words) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return words;
  };
  std::set<ImGuiID> folds, reached;
  for (const FieldSection& section : scenario_fields()) {
    folds.insert(id({section.id, "MORE", "fold"}));
    folds.insert(id({section.id, upper(section.title), "fold"}));
  }
  // In the panel by its key, then on and on; twice, since what was folded may lie behind.
  desktop.press(ImGuiKey_1);
  for (int i = 0; i < 600; ++i) {
    desktop.press(ImGuiKey_Tab);
    const ImGuiID now = GImGui->NavId;
    if (!reached.insert(now).second || !folds.count(now)) continue;
    const std::size_t before = desktop.words().size();
    desktop.press(ImGuiKey_Enter);
    if (desktop.words().size() < before) desktop.press(ImGuiKey_Enter);  // it was open
  }
  const int first = 0;
  for (const FieldSection& section : scenario_fields())
    for (const ScenarioField& field : section.fields) {
      if (field.applies && !field.applies(scenario)) continue;
      const ImGuiID choice = id({section.id, field.label, "##choice"});
      const ImGuiID segment = ImHashStr("segment", 0, ImHashData(&first, sizeof first, choice));
      CAPTURE(section.id, field.label);
      CHECK((reached.count(id({section.id, field.label, "##value"})) ||
             reached.count(ImHashStr("###picker", 0, choice)) || reached.count(segment)));
    }
}
