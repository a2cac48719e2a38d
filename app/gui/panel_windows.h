// The panels of a desktop, each in a window: docked, floating, closed, or one of them alone.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "app/gui/dock_splits.h"
#include "app/gui/panels/panels.h"

namespace app::gui {

class PanelWindows {
 public:
  // `has_layout`: Dear ImGui has been told where they are; else the shipped layout is made for the size at
  // hand.
  PanelWindows(const std::vector<std::string>& closed, bool has_layout)
      : closed_(closed.begin(), closed.end()), layout_is_old_(!has_layout) {}
  // Makes the panels, whose commands stand where this is called.
  void make(const PanelTools& tools);
  // Adds commands that show, focus and maximise a panel. While one is presented, another takes its place.
  void add_commands(Commands& commands, View& view, const std::function<bool()>& presents);

  // The dock, from the cursor on in the window that is open.
  void draw_dock(const Look& look, const View& view, ImVec2 size);
  // The panels, or the one that is maximised, which stands for the whole desktop.
  // Where the scenario cannot be, panels of predictions are given the context of the last that could, and are
  // greyed.
  void draw(const PanelContext& context, const PanelContext& legal);

  void reset_layout();
  const std::set<std::string>& closed() const { return closed_; }
  // Asks panel after panel; false where none shows such a file.
  bool open(const std::filesystem::path& file);
  // The figures of one panel, or, where `panel` is empty, of all that have any.
  std::vector<PanelFigures> figures(const PanelContext& context, std::string_view panel) const;
  // The state of the panel that has one of this type.
  template <class State>
  State& state() const {
    for (const Made& made : panels_)
      if (auto* panel = dynamic_cast<PanelWith<State>*>(made.panel.get())) return panel->state;
    throw std::logic_error("no panel has this state");
  }

 private:
  struct Made {
    const PanelEntry& entry;
    std::unique_ptr<Panel> panel;
  };
  void draw_window(const Made& made, const PanelContext& context);
  static void draw_maximised(const Made& made, const PanelContext& context);

  std::vector<Made> panels_;
  std::set<std::string> closed_;
  bool layout_is_old_;
  DockSplits splits_;
  // The shipped layout that is shown, until the user changes it: it is made anew where another size asks for
  // another.
  std::optional<int> shipped_;
  std::string places_;  // which panel is docked where
  std::string opened_;  // the window that a file was opened in, until it is in front
};

}  // namespace app::gui
