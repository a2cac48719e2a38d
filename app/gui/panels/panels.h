// The panels. Each is a file of this folder that defines its entry, and a line of panels.cpp.
#pragma once
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "app/gui/commands.h"
#include "app/gui/figures/figure.h"
#include "app/gui/jobs/calibrations.h"
#include "app/gui/jobs/study.h"
#include "app/gui/tabs.h"
#include "app/gui/view.h"

namespace app::gui {

// A panel of a desktop: what it shows, with a state of its own.
class Panel {
 public:
  virtual ~Panel() = default;
  // The panel's subject and unit, for the right end of the title row.
  virtual std::string caption(const PanelContext& context) = 0;
  virtual void draw(const PanelContext& context) = 0;
  // Shows a file that the user opened; false where it is none for this panel.
  virtual bool open(const std::filesystem::path& file) = 0;
  // The panel's content as data, for exports; empty where it shows nothing yet.
  virtual std::vector<Figure> figures(const PanelContext& context) = 0;
};

// What a panel is made with; all of it outlives the panel.
struct PanelTools {
  Studies& studies;
  Commands& commands;
  const Tabs& tabs;
  Calibrations& calibrations;
  const std::filesystem::path& settings_directory;  // empty: nothing is kept
};

// Where there is no height for two rows in the middle, lower panels share tabs with the upper ones.
enum class Dock { left, top, upper_left, upper_right, lower_left, lower_right, right };

struct PanelEntry {
  const char* id;     // stable: files, tests and the command line use it
  const char* title;  // a noun
  const char* teaches;
  Dock dock;
  std::unique_ptr<Panel> (*make)(const PanelTools& tools);
  bool bare = false;  // draws its own cards: no title row, no padding
  // Shows what is predicted of the scenario: greyed, and of the last that could be, while this one cannot.
  bool of_prediction = true;
};

// A child window with this in its name is drawn as usual in a greyed panel.
inline constexpr std::string_view kNotGreyed = "not greyed";

std::span<const PanelEntry* const> panels();
const PanelEntry* find_panel(std::string_view id);
// The window's name in ImGui: the id stays when the title changes.
std::string window_name(const PanelEntry& panel);

// The argument of a panel's functions: what all panels get, and the panel's own state.
template <class State>
struct ContextWith : PanelContext {
  State& state;
};

template <class State>
class PanelWith : public Panel {
 public:
  explicit PanelWith(const PanelTools& tools) : state(made(tools)) {}
  State state;

 private:
  static State made(const PanelTools& tools) {
    if constexpr (std::is_constructible_v<State, const PanelTools&>)
      return State(tools);
    else
      return State{};
  }
};

// A panel whose state is made from the tools, where it wants them, and drawn by two functions; a third says
// its figures. A state that has a function open() is asked about files.
template <class State, auto kCaption, auto kDraw, auto kFigures = nullptr>
std::unique_ptr<Panel> panel_of(const PanelTools& tools) {
  struct Drawn final : PanelWith<State> {
    using PanelWith<State>::PanelWith;
    std::string caption(const PanelContext& context) override {
      return kCaption(ContextWith<State>{context, this->state});
    }
    void draw(const PanelContext& context) override { kDraw(ContextWith<State>{context, this->state}); }
    bool open(const std::filesystem::path& file) override {
      if constexpr (requires { this->state.open(file); })
        return this->state.open(file);
      else
        return false;
    }
    std::vector<Figure> figures(const PanelContext& context) override {
      if constexpr (std::is_null_pointer_v<decltype(kFigures)>)
        return {};
      else
        return kFigures(ContextWith<State>{context, this->state});
    }
  };
  return std::make_unique<Drawn>(tools);
}
struct NoState {};

}  // namespace app::gui
