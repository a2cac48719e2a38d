// The presenter's mode: one panel, type that is read from the back of a room, next and back.
#include <algorithm>

#include "app/gui/shell.h"

namespace app::gui {
namespace {

// The smallest type is the body's then: an em of 24.5 pixels, in a line of 29.7. Lines are as thick in
// proportion.
constexpr float kPresenterScale = 2.05f;

// The panel so many places on, around the end.
const PanelEntry& panel_after(std::string_view id, int places) {
  const auto all = panels();
  const auto at =
      std::find_if(all.begin(), all.end(), [&](const PanelEntry* panel) { return id == panel->id; });
  const auto count = static_cast<int>(all.size());
  const int now = at == all.end() ? 0 : static_cast<int>(at - all.begin());
  return *all[static_cast<std::size_t>((now + places + count) % count)];
}

}  // namespace

void Shell::end_presentation() {
  if (!scale_before_) return;
  user_scale_ = *scale_before_;
  scale_before_.reset();
  presenter_screen_.end();
  style_is_old_ = true;
}

void Shell::add_presenter_commands() {
  const auto add = [this](Command command) { commands_.add(std::move(command)); };
  const auto presenting = [this] { return scale_before_.has_value(); };
  const auto present = [this] {
    if (scale_before_) {
      view_.maximised.clear();
      return end_presentation();
    }
    if (view_.maximised.empty()) view_.maximised = exported_panel().id;
    scale_before_ = user_scale_;
    user_scale_ = std::max(user_scale_, kPresenterScale);
    style_is_old_ = true;
  };
  add({"view.present", "View", "Present this panel", present, ImGuiKey_F11, {}, [this] {
         return std::string(exported_panel().title) + ", large; arrows go to the next and back, Esc ends it";
       }});
  const auto go = [this](int places) { view_.maximised = panel_after(view_.maximised, places).id; };
  add({"present.next", "View", "Next panel", [go] { go(1); }, ImGuiKey_RightArrow, presenting});
  add({"present.back", "View", "Previous panel", [go] { go(-1); }, ImGuiKey_LeftArrow, presenting});
  add({"present.black", "View", "Black screen until the next key", [this] { presenter_screen_.show_black(); },
       ImGuiKey_Period, presenting});
  add({"present.pointer", "View", "Pointer that the room sees",
       [this] { presenter_screen_.toggle_pointer(); }, ImGuiKey_L, presenting,
       [this] { return std::string(presenter_screen_.has_pointer() ? "on" : "off"); }});
}

}  // namespace app::gui
