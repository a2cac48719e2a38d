// One panel for a room: large type, next and back, and the desktop as it was afterwards.
#include <set>

#include "app/gui/widgets/text.h"
#include "tests/gui/null_desktop.h"
#include "tests/support/catch.h"

using namespace app::gui;

TEST_CASE(
    "presenting shows one panel in type of at least 24 pixels, arrows walk through all, and Esc gives all "
    "back") {
  tests::NullDesktop desktop(tests::small_scenario(), {1920, 1080});
  Shell& shell = desktop.shell();
  const float before = shell.look().scale;
  desktop.press(ImGuiKey_RightArrow);
  CHECK(shell.view().maximised.empty());
  shell.commands().invoke("panel.memory");
  desktop.frames(3);
  desktop.press(ImGuiKey_F11);
  desktop.settle();
  CHECK(shell.view().maximised == "memory");
  CHECK(text_size_of(shell.look(), TextRole::caption, "x").y >= 24);
  CHECK(shell.settings().scale == before);
  std::set<std::string> seen;
  for (std::size_t i = 0; i < panels().size(); ++i) {
    seen.insert(shell.view().maximised);
    CHECK(GImGui->ErrorCountCurrentFrame == 0);
    desktop.press(ImGuiKey_RightArrow);
  }
  CHECK(seen.size() == panels().size());
  CHECK(shell.view().maximised == "memory");
  desktop.press(ImGuiKey_LeftArrow);
  CHECK(shell.view().maximised != "memory");
  desktop.press(ImGuiKey_Escape);
  CHECK(shell.view().maximised.empty());
  CHECK(shell.look().scale == before);
}

TEST_CASE(
    "a full stop blacks the screen of who presents, and the next key gives it back and does nothing else") {
  tests::NullDesktop desktop(tests::small_scenario(), {1280, 720});
  Shell& shell = desktop.shell();
  desktop.press(ImGuiKey_Period);
  CHECK(ImGui::FindWindowByName("##black") == nullptr);  // nobody presents
  shell.commands().invoke("maximise.memory");
  desktop.press(ImGuiKey_F11);
  desktop.settle();
  desktop.press(ImGuiKey_Period);
  const ImGuiWindow* const black = ImGui::FindWindowByName("##black");
  REQUIRE(black);
  CHECK(black->Active);
  CHECK(GImGui->Windows.back() == black);
  CHECK(black->Size.x == 1280);
  CHECK(black->Size.y == 720);
  ImGui::GetIO().AddKeyEvent(ImGuiKey_RightArrow, true);
  desktop.frames(40);
  CHECK(black->Active);  // held, it repeats
  ImGui::GetIO().AddKeyEvent(ImGuiKey_RightArrow, false);
  desktop.frames(2);
  CHECK_FALSE(black->Active);
  CHECK(shell.view().maximised == "memory");
  desktop.press(ImGuiKey_Period);
  desktop.click({640, 360});
  CHECK_FALSE(black->Active);
  desktop.press(ImGuiKey_Period);
  desktop.press(ImGuiKey_Escape);
  CHECK(shell.view().maximised == "memory");
  desktop.press(ImGuiKey_RightArrow);
  CHECK(shell.view().maximised != "memory");
}

TEST_CASE(
    "who presents has a pointer for the room by a key, and a click shows as a ring that goes by itself") {
  tests::NullDesktop desktop(tests::small_scenario(), {1280, 720});
  Shell& shell = desktop.shell();
  shell.commands().invoke("maximise.memory");
  desktop.press(ImGuiKey_F11);
  desktop.settle();
  const auto on_top = [] { return ImGui::GetForegroundDrawList(ImGui::GetMainViewport())->VtxBuffer.Size; };
  ImGui::GetIO().AddMousePosEvent(300, 20);
  desktop.frames(3);
  REQUIRE(on_top() == 0);
  desktop.press(ImGuiKey_L);
  CHECK(on_top() > 0);
  desktop.press(ImGuiKey_L);
  CHECK(on_top() == 0);
  desktop.click({300, 20});
  CHECK(on_top() > 0);
  CHECK(shell.changes_in().has_value());
  desktop.frames(60);
  CHECK(on_top() == 0);
  CHECK_FALSE(shell.changes_in().has_value());
}
