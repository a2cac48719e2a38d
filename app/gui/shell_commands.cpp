// Everything the desktop can do, registered once.
#include <algorithm>
#include <cmath>

#include "app/gui/command_line.h"
#include "app/gui/presets.h"
#include "app/gui/shell.h"
#include "runtime/this_machine.h"
#include "sim/format.h"
#include "sim/scenario/preset.h"

namespace app::gui {
namespace {

constexpr float kScaleStep = 0.125f;

// A scenario that is not trained alone but on other hardware keeps its type where the chip has it.
void set_hardware(sim::Scenario& scenario, sim::Hardware hardware) {
  scenario.hardware = std::move(hardware);
  if (!scenario.hardware.peak.empty() && !scenario.hardware.peak.count(scenario.workload.dtype))
    scenario.workload.dtype = sim::DType::fp32;
}

// This machine before anything was measured: what the system says, and no peaks.
sim::Hardware unmeasured_machine() {
  sim::Hardware hardware;
  hardware.name = "this-machine";
  hardware.display_name = runtime::cpu_name();
  hardware.memory = runtime::physical_memory();
  return hardware;
}

}  // namespace

void Shell::add_document_commands() {
  const auto add = [this](Command command) { commands_.add(std::move(command)); };
  add({.id = "edit.undo",
       .category = "Edit",
       .label = "Undo",
       .run = [this] { document_.undo(); },
       .shortcut = ImGuiMod_Ctrl | ImGuiKey_Z,
       .enabled = [this] { return document_.can_undo(); },
       .detail = [this] { return std::string(document_.undo_label()); }});
  add({.id = "edit.redo",
       .category = "Edit",
       .label = "Redo",
       .run = [this] { document_.redo(); },
       .shortcut = ImGuiMod_Ctrl | ImGuiKey_Y,
       .enabled = [this] { return document_.can_redo(); },
       .detail = [this] { return std::string(document_.redo_label()); }});
  add({.id = "edit.copy_scenario",
       .category = "Edit",
       .label = "Copy scenario as JSON",
       .run =
           [this] {
             ImGui::SetClipboardText(sim::to_json(document_.scenario()).c_str());
             toast_.say("The scenario is on the clipboard: ridgepoint predict --scenario - reads it.");
           },
       .shortcut = ImGuiMod_Ctrl | ImGuiMod_Shift | ImGuiKey_J});
  add({.id = "edit.copy_command_line",
       .category = "Edit",
       .label = "Copy as command line",
       .run =
           [this] {
             ImGui::SetClipboardText(command_line(document_.scenario()).c_str());
             toast_.say("Copied: " + command_line(document_.scenario()));
           },
       .shortcut = ImGuiMod_Ctrl | ImGuiMod_Shift | ImGuiKey_C,
       .detail = [this] { return command_line(document_.scenario()); }});
}

void Shell::add_run_commands() {
  const auto add = [this](Command command) { commands_.add(std::move(command)); };
  add({.id = "run.start",
       .category = "Run",
       .label = "Start",
       .run =
           [this] {
             try {
               runs_.start(document_.scenario());
             } catch (const std::exception& error) {
               toast_.say(error.what());
             }
           },
       .shortcut = ImGuiKey_F5,
       .enabled = [this] { return !runs_.active(); },
       .detail =
           [this] {
             const bool train = document_.scenario().workload.task == sim::Task::train;
             return (train ? "train " : "generate with ") + document_.scenario().model.name +
                    " on this machine";
           }});
  add({.id = "run.stop",
       .category = "Run",
       .label = "Stop",
       .run = [this] { runs_.stop(); },
       .shortcut = ImGuiMod_Shift | ImGuiKey_F5,
       .enabled = [this] { return runs_.active(); }});
  add({.id = "run.calibrate",
       .category = "Run",
       .label = "Measure this machine",
       .run = [this] { calibrations_.measure(); },
       .enabled = [this] { return !calibrations_.view().running; },
       .detail = [] { return std::string("peaks, bandwidth and every kernel; about a minute"); }});
}

void Shell::add_view_commands() {
  const auto add = [this](Command command) { commands_.add(std::move(command)); };
  add({.id = "view.palette",
       .category = "View",
       .label = "Search commands",
       .run = [this] { view_.palette_open = true; },
       .shortcut = ImGuiMod_Ctrl | ImGuiKey_K,
       .remembered = false});
  add({.id = "view.theme",
       .category = "View",
       .label = "Switch theme",
       .run =
           [this] {
             look_.theme = look_.theme == Theme::dark ? Theme::light : Theme::dark;
             style_is_old_ = true;
           },
       .shortcut = ImGuiMod_Ctrl | ImGuiKey_T,
       .detail = [this] { return std::string(look_.theme == Theme::dark ? "now dark" : "now light"); }});
  const auto scale_by = [this](float by) {
    user_scale_ = std::clamp(user_scale_ + by, kLeastScale, kGreatestScale);
    style_is_old_ = true;
  };
  const auto scale_now = [this] { return "now " + sim::format_percent(user_scale_); };
  add({.id = "view.larger",
       .category = "View",
       .label = "Larger",
       .run = [scale_by] { scale_by(kScaleStep); },
       .shortcut = ImGuiMod_Ctrl | ImGuiKey_Equal,
       .detail = scale_now});
  add({.id = "view.smaller",
       .category = "View",
       .label = "Smaller",
       .run = [scale_by] { scale_by(-kScaleStep); },
       .shortcut = ImGuiMod_Ctrl | ImGuiKey_Minus,
       .detail = scale_now});
  add({.id = "view.actual_size",
       .category = "View",
       .label = "Actual size",
       .run = [this, scale_by] { scale_by(1 - user_scale_); },
       .shortcut = ImGuiMod_Ctrl | ImGuiKey_0,
       .detail = scale_now});
  add({.id = "view.next_convention",
       .category = "View",
       .label = "Next FLOPs convention",
       .run =
           [this] {
             view_.convention = static_cast<sim::FlopsConvention>((static_cast<int>(view_.convention) + 1) %
                                                                  sim::kFlopsConventions);
           },
       .detail = [this] { return "now " + std::string(sim::name(view_.convention)); }});
  add({.id = "view.restore",
       .category = "View",
       .label = "All panels again",
       .run = [this] { view_.maximised.clear(); },
       .shortcut = ImGuiKey_Escape,
       .enabled = [this] { return !view_.maximised.empty(); }});
  add({.id = "view.reset_layout", .category = "View", .label = "Reset layout", .run = [this] {
         panels_.reset_layout();
         view_.maximised.clear();
       }});
  add({.id = "help.shortcuts",
       .category = "Help",
       .label = "Shortcuts",
       .run = [this] { view_.shortcuts_open = true; },
       .shortcut = ImGuiKey_F1});
  add({.id = "app.quit",
       .category = "Help",
       .label = "Quit",
       .run = [this] { wants_close_ = true; },
       .shortcut = ImGuiMod_Ctrl | ImGuiKey_Q});
}

void Shell::add_preset_commands() {
  const auto edit = [this](const std::string& what, const std::string& from, const std::string& to,
                           sim::Scenario next) {
    document_.edit(what + " " + from + " \u2192 " + to, std::move(next));
  };
  // A preset that cannot be read says so when it is picked.
  const auto guarded = [this](auto change) {
    return [this, change] {
      try {
        change();
      } catch (const std::exception& error) {
        toast_.say(error.what());
      }
    };
  };
  for (const std::string& name : preset_choices(sim::PresetKind::model))
    commands_.add({.id = "model." + name,
                   .category = "Model",
                   .label = name,
                   .run = guarded([this, edit, name] {
                     sim::Scenario next = document_.scenario();
                     next.model = load_model_choice(name);
                     edit("model", document_.scenario().model.name, name, std::move(next));
                   }),
                   .in_menu = false});
  for (const std::string& name : preset_choices(sim::PresetKind::hardware))
    commands_.add({.id = "hardware." + name,
                   .category = "Hardware",
                   .label = name,
                   .run = guarded([this, edit, name] {
                     sim::Scenario next = document_.scenario();
                     const sim::Calibration* here = calibrations_.this_machine();
                     if (name != "this-machine")
                       set_hardware(next, sim::load_hardware_preset(name));
                     else
                       set_hardware(next, here ? here->hardware : unmeasured_machine());
                     edit("hardware", document_.scenario().hardware.name, name, std::move(next));
                   }),
                   .in_menu = false});
  for (const std::string& name : preset_choices(sim::PresetKind::implementation))
    commands_.add({.id = "implementation." + name,
                   .category = "Implementation",
                   .label = name,
                   .run = guarded([this, edit, name] {
                     sim::Scenario next = document_.scenario();
                     next.implementation = sim::load_implementation_preset(name);
                     edit("implementation", document_.scenario().implementation.name, name, std::move(next));
                   }),
                   .in_menu = false});
}

}  // namespace app::gui
