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
