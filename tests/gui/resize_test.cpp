// The layout through resizes: as if they had not been.
#include <algorithm>
#include <array>
#include <map>
#include <random>

#include "app/gui/widgets/text.h"
#include "tests/gui/null_desktop.h"
#include "tests/support/catch.h"

using tests::NullDesktop;

namespace {

struct Leaf {
  ImVec2 position, size;
};

// For every panel that is docked.
std::map<std::string, Leaf> places(const NullDesktop& desktop) {
  std::map<std::string, Leaf> found;
  for (const app::gui::PanelEntry* panel : app::gui::panels())
    if (const ImGuiWindow* window = desktop.window_of(panel->id); window && window->DockNode)
      found[panel->id] = {window->DockNode->Pos, window->DockNode->Size};
  return found;
}

}  // namespace

TEST_CASE("any sequence of resizes brings the layout back with the size, and leaves no stub on the way") {
  const ImVec2 first = GENERATE(ImVec2(1280, 720), ImVec2(1920, 1080));
  NullDesktop desktop(tests::small_scenario(), first);
  desktop.frames(4);
  const auto before = places(desktop);
  REQUIRE(before.size() == app::gui::panels().size());
  std::mt19937 random(7);
  const std::array<ImVec2, 6> sizes = {ImVec2(1920, 1080), ImVec2(1000, 640), ImVec2(1280, 720),
                                       ImVec2(2560, 1440), ImVec2(1400, 900), ImVec2(1000, 1400)};
  for (int i = 0; i < 20; ++i) {
    desktop.resize(sizes[random() % sizes.size()]);
    desktop.frames(3);
    for (const auto& [panel, leaf] : places(desktop)) {
      CAPTURE(panel, leaf.size.x, leaf.size.y, i);
      CHECK(leaf.size.x >= 240);
      CHECK(leaf.size.y >= 140);
    }
  }
  desktop.resize(first);
  desktop.frames(4);
  const auto after = places(desktop);
  for (const auto& [panel, leaf] : before) {
    const Leaf& now = after.at(panel);
    CAPTURE(panel, leaf.position.x, leaf.position.y, leaf.size.x, leaf.size.y);
    CAPTURE(now.position.x, now.position.y, now.size.x, now.size.y);
    // Whole pixels of shares.
    CHECK(std::abs(now.position.x - leaf.position.x) <= 2);
    CHECK(std::abs(now.position.y - leaf.position.y) <= 2);
    CHECK(std::abs(now.size.x - leaf.size.x) <= 2);
    CHECK(std::abs(now.size.y - leaf.size.y) <= 2);
  }
}

TEST_CASE("a splitter that was dragged keeps its share of the window through resizes") {
  NullDesktop desktop(tests::small_scenario(), {1600, 1000});
  desktop.frames(4);
  const ImGuiWindow* configure = desktop.window_of("scenario");
  const ImGuiDockNode& node = *configure->DockNode;
  const ImVec2 splitter = {node.Pos.x + node.Size.x + 4, node.Pos.y + node.Size.y / 2};
  ImGuiIO& io = ImGui::GetIO();
  io.AddMousePosEvent(splitter.x, splitter.y);
  desktop.frames(3);
  io.AddMouseButtonEvent(0, true);
  desktop.frames(2);
  io.AddMousePosEvent(splitter.x + 120, splitter.y);
  desktop.frames(3);
  io.AddMouseButtonEvent(0, false);
  desktop.frames(3);
  const float dragged = configure->DockNode->Size.x;
  REQUIRE(dragged > 400);
  desktop.resize({2400, 1000});
  desktop.frames(3);
  CHECK(configure->DockNode->Size.x > 1.3f * dragged);
  desktop.resize({1600, 1000});
  desktop.frames(3);
  CHECK(std::abs(configure->DockNode->Size.x - dragged) <= 2);
}

TEST_CASE("beside a name as wide as it must be those columns stay that are missed most") {
  std::mt19937 random(11);
  std::uniform_real_distribution<float> width(20, 120), any_room(-50, 600);
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<app::gui::Droppable> columns(1 + random() % 6);
    for (std::size_t i = 0; i < columns.size(); ++i)
      columns[i] = {width(random), static_cast<int>(i * 7 % 6)};
    const float room = any_room(random), name = 170;
    const std::vector<bool> shown = app::gui::columns_beside(name, columns, room);
    float taken = name;
    bool any = false;
    for (std::size_t i = 0; i < columns.size(); ++i)
      if (shown[i]) {
        taken += columns[i].width;
        any = true;
      }
    if (any) CHECK(taken <= room);
    for (std::size_t i = 0; i < columns.size(); ++i)
      for (std::size_t j = 0; j < columns.size(); ++j)
        if (shown[i] && !shown[j]) CHECK(columns[j].rank <= columns[i].rank);
  }
}
