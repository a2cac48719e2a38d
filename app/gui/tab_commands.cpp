// What is done with tabs, and what of them is kept for the next session.
#include <charconv>

#include "app/cli/scenario_flags.h"
#include "app/gui/shell.h"
#include "sim/scenario/preset.h"

namespace app::gui {
namespace {

SavedTab kept(const Tab& tab) {
  const auto newest = [](const std::vector<UndoStep>& steps) {
    return std::vector<UndoStep>(steps.size() > kKeptSteps ? steps.end() - kKeptSteps : steps.begin(),
                                 steps.end());
  };
  const History& history = tab.document.history();
  SavedTab saved{.scenario = tab.document.scenario(),
                 .history = {newest(history.undo), newest(history.redo)},
                 .file = tab.file};
  for (const Pin& pin : tab.pins.all())
    saved.pins.push_back({pin.letter, pin.scenario(), pin.measured() ? pin.report : nullptr});
  saved.baseline = tab.pins.baseline_index();
  return saved;
}

// As people count: "1" is the first.
std::optional<std::size_t> index_in(const std::string& text) {
  std::size_t number = 0;
  const auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (bad != std::errc() || end != text.data() + text.size() || number == 0) return std::nullopt;
  return number - 1;
}

}  // namespace

std::vector<SavedTab> Shell::kept_tabs() const {
  std::vector<SavedTab> saved;
  for (std::size_t i = 0; i < tabs_.count(); ++i) saved.push_back(kept(tabs_.at(i)));
  return saved;
}

// This machine may have been measured anew since.
Tab Shell::restored(const SavedTab& saved) {
  Tab tab{Document(as_of_now(saved.scenario), saved.history)};
  tab.file = saved.file;
  std::vector<Pin> pins;
  for (const SavedPin& pin : saved.pins) {
    std::shared_ptr<const sim::Report> report = pin.measured;
    if (!report) {
      const sim::Scenario scenario = as_of_now(pin.scenario);
      const auto calibration = calibrations_.of(scenario.hardware);
      report = make_prediction(scenario, calibration.get(), [] { return true; }).report;
    }
    if (report) pins.push_back({pin.letter, std::move(report)});
  }
  tab.pins = Pins(std::move(pins), saved.baseline);
  return tab;
}

sim::Scenario Shell::as_of_now(sim::Scenario scenario) const {
  const sim::Calibration* const here = calibrations_.this_machine();
  if (here && scenario.hardware.name == here->hardware.name) {
    scenario.hardware = here->hardware;
    cli::link_ranks(scenario);
  }
  return scenario;
}

void Shell::restore(const std::vector<SavedTab>& saved, std::size_t shown) {
  if (saved.empty()) return;
  tabs_ = Tabs(restored(saved.front()));
  for (std::size_t i = 1; i < saved.size(); ++i) tabs_.add(restored(saved[i]));
  tabs_.show(shown);
}

void Shell::open_in_tab(const std::string& label, sim::Scenario scenario, const std::filesystem::path& file) {
  if (const auto open = tabs_.with_file(file))
    tabs_.show(*open);
  else if (!tabs_.current().is_untouched() && tabs_.add({Document(document().scenario())}))
    tabs_.show(tabs_.count() - 1);
  document().edit(label, std::move(scenario));
  tabs_.current().file = file;
  tab_changed();
}

void Shell::tab_changed() {
  disagreement_.clear();
  view_.selection = {};
  follow_this_machine();  // it may have been measured since this tab was shown
}

bool Shell::follow_this_machine() {
  sim::Scenario now = as_of_now(document().scenario());
  if (now == document().scenario()) return false;
  document().edit("this machine as measured now", std::move(now));
  return true;
}

void Shell::add_tab_commands() {
  const auto add = [this](Command command) { commands_.add(std::move(command)); };
  const auto several = [this] { return tabs_.count() > 1; };
  const auto has_room = [this] { return tabs_.count() < Tabs::kMost; };
  const auto show = [this](std::size_t i) {
    tabs_.show(i);
    tab_changed();
  };
  const auto open = [this, show](Tab tab) {
    if (tabs_.add(std::move(tab))) show(tabs_.count() - 1);
  };
  add({"tab.new", "File", "New tab", [this, open] { open({Document(first_)}); }, ImGuiMod_Ctrl | ImGuiKey_T,
       has_room, [this] { return first_.model.name + " on " + first_.hardware.name; }});
  add({"tab.duplicate", "File", "Duplicate tab",
       [this, open] {
         // With its history and its pins, and no file: Save asks for one.
         open({document(), pins(), {}, tabs_.current().legal});
       },
       ImGuiMod_Ctrl | ImGuiMod_Shift | ImGuiKey_D, has_room, [this] { return tabs_.name(tabs_.index()); }});
  const auto close = [this](std::size_t i) {
    if (i >= tabs_.count()) return toast_.say("There are " + std::to_string(tabs_.count()) + " tabs.");
    const std::string name = tabs_.name(i);
    if (!tabs_.close(i)) return;
    tab_changed();
    toast_.say("Closed " + name + ". " + shortcut_text(commands_.find("tab.reopen")->shortcut) +
               " opens it again.");
  };
  add({.id = "tab.close",
       .category = "File",
       .label = "Close tab",
       .run = [this, close] { close(tabs_.index()); },
       .shortcut = ImGuiMod_Ctrl | ImGuiKey_W,
       .enabled = several,
       .detail = [this] { return tabs_.name(tabs_.index()); },
       .take =
           [this, close](const std::string& number) {
             if (const auto i = index_in(number)) return close(*i);
             toast_.say("Close tab takes a number, the first tab is 1, not " + number + ".");
           }});
  const auto reopen = [this] {
    tabs_.reopen();
    tab_changed();
  };
  add({"tab.reopen", "File", "Reopen closed tab", reopen, ImGuiMod_Ctrl | ImGuiMod_Shift | ImGuiKey_T,
       [this] { return tabs_.can_reopen(); }});
  const auto step = [this, show](std::size_t by) { show((tabs_.index() + by) % tabs_.count()); };
  add({"tab.next", "View", "Next tab", [step] { step(1); }, ImGuiMod_Ctrl | ImGuiKey_Tab, several});
  add({"tab.previous", "View", "Previous tab", [this, step] { step(tabs_.count() - 1); },
       ImGuiMod_Ctrl | ImGuiMod_Shift | ImGuiKey_Tab, several});
  add({"tab.move_left", "View", "Move tab left", [this] { tabs_.move(tabs_.index(), tabs_.index() - 1); },
       ImGuiMod_Ctrl | ImGuiMod_Shift | ImGuiKey_PageUp, [this] { return tabs_.index() > 0; }});
  add({"tab.move_right", "View", "Move tab right", [this] { tabs_.move(tabs_.index(), tabs_.index() + 1); },
       ImGuiMod_Ctrl | ImGuiMod_Shift | ImGuiKey_PageDown,
       [this] { return tabs_.index() + 1 < tabs_.count(); }});
  constexpr std::size_t kWithKey = 9;
  for (std::size_t i = 0; i < Tabs::kMost; ++i) {
    const auto key = static_cast<ImGuiKey>(ImGuiKey_1 + static_cast<int>(i));
    add({.id = "tab.show." + std::to_string(i + 1),
         .category = "View",
         .label = "Tab " + std::to_string(i + 1),
         .run = [show, i] { show(i); },
         .shortcut = i < kWithKey ? ImGuiMod_Ctrl | key : ImGuiKey_None,
         .enabled = [this, several, i] { return several() && i < tabs_.count(); },
         .detail = [this, i] { return i < tabs_.count() ? tabs_.name(i) : std::string(); },
         .in_menu = false,
         .remembered = false});
  }
}

}  // namespace app::gui
