// Everything the desktop can do, registered once.
#include <algorithm>
#include <cmath>

#include "app/cli/predict_command.h"
#include "app/gui/file_dialogs.h"
#include "app/gui/legal.h"
#include "app/gui/opened_file.h"
#include "app/gui/presets.h"
#include "app/gui/shell.h"
#include "app/gui/start_menu.h"
#include "app/gui/typed_flags.h"
#include "runtime/run.h"
#include "runtime/this_machine.h"
#include "sim/byte_units.h"
#include "sim/format.h"
#include "sim/scenario/preset.h"

namespace app::gui {
namespace {

constexpr float kScaleStep = 0.125f;

// A scenario that is not trained alone but on other hardware keeps its type where the chip has it.
void set_hardware(sim::Scenario& scenario, sim::Hardware hardware) {
  scenario.hardware = std::move(hardware);
  // More ranks than a run here starts.
  if (scenario.hardware.name == sim::kThisMachine && scenario.strategy.devices() > kMostRanksHere) {
    const sim::Strategy one;
    sim::Strategy& s = scenario.strategy;
    s.data_parallel = s.tensor_parallel = s.pipeline_parallel = s.context_parallel = s.expert_parallel = 1;
    s.virtual_pipeline = one.virtual_pipeline;
    s.sequence_parallel = one.sequence_parallel;
    s.zero_stage = one.zero_stage;
    s.schedule = one.schedule;
  }
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

// Each: id, menu, label, what it does; then its shortcut, when it can be done, and what it would act on.
void Shell::add_document_commands() {
  const auto add = [this](Command command) { commands_.add(std::move(command)); };
  add({"file.new",
       "File",
       "New",
       [this] {
         document().edit("New", first_);
         tabs_.current().file.clear();
       },
       ImGuiMod_Ctrl | ImGuiKey_N,
       {},
       [this] { return first_.model.name + " on " + first_.hardware.name; }});
  // A dialog of the system's own; where there is none, files are dropped on the window, or typed in the
  // palette.
  const auto open_file = [this] {
    if (!has_file_dialogs())
      return toast_.say("No file dialog is installed: drop a file on the window, or press " +
                        shortcut_text(commands_.find("view.palette")->shortcut) + " and type open FILE.");
    for (const std::string& file :
         ask_files_to_open("Open a scenario, model, report or table", tabs_.current().file.parent_path(),
                           "Scenario, report, config.json, GGUF, table, exported picture",
                           "*.json *.ndjson *.gguf *.csv *.png *.svg *.html"))
      open(file);
  };
  const auto save_to = [this](const std::filesystem::path& file) {
    try {
      save_scenario(document().scenario(), file);
      hand_over(file);
      tabs_.current().file = file;
      remember(file);
      toast_.say("Saved to " + file.string() + ".");
    } catch (const std::exception& error) {
      toast_.say(error.what());
    }
  };
  const auto save_as = [this, save_to] {
    if (!has_file_dialogs())
      return toast_.say("No file dialog is installed: press " +
                        shortcut_text(commands_.find("view.palette")->shortcut) + " and type save as FILE.");
    const std::string file = ask_file_to_save(
        "Save the scenario", tabs_.current().file.empty() ? "scenario.json" : tabs_.current().file.string());
    if (!file.empty()) save_to(file);
  };
  add({.id = "file.open",
       .category = "File",
       .label = "Open",
       .run = open_file,
       .shortcut = ImGuiMod_Ctrl | ImGuiKey_O,
       .take = [this](const std::string& file) { open(file); }});
  add({"file.save",
       "File",
       "Save",
       [this, save_to, save_as] { tabs_.current().file.empty() ? save_as() : save_to(tabs_.current().file); },
       ImGuiMod_Ctrl | ImGuiKey_S,
       {},
       [this] { return tabs_.current().file.filename().string(); }});
  add({.id = "file.save_as",
       .category = "File",
       .label = "Save as",
       .run = save_as,
       .shortcut = ImGuiMod_Ctrl | ImGuiMod_Shift | ImGuiKey_S,
       .take = [save_to](const std::string& file) { save_to(file); }});
  list_recent_files();
  add_scenario_commands();
  const auto make_it_legal = [this] {
    const auto legal = make_legal(document().scenario());
    if (!legal) return toast_.say("No legal scenario was found near this one: New begins again.");
    const std::string changes = differences(document().scenario(), *legal);
    document().edit("Make it legal: " + changes, *legal);
    toast_.say("Made legal: " + changes + ".");
  };
  add({"edit.make_legal", "Edit", "Make it legal", make_it_legal, ImGuiKey_None,
       [this] { return !sim::validate(document().scenario()).empty(); }});
  add({"edit.undo", "Edit", "Undo", [this] { document().undo(); }, ImGuiMod_Ctrl | ImGuiKey_Z,
       [this] { return document().can_undo(); }, [this] { return std::string(document().undo_label()); }});
  // Several at once: what each would take back stands beside it.
  constexpr std::size_t kMostAtOnce = 12;
  for (std::size_t steps = 2; steps <= kMostAtOnce; ++steps)
    add({.id = "edit.undo_" + std::to_string(steps),
         .category = "Edit",
         .label = "Undo " + std::to_string(steps) + " steps",
         .run =
             [this, steps] {
               for (std::size_t i = 0; i < steps; ++i) document().undo();
             },
         .enabled = [this, steps] { return document().history().undo.size() >= steps; },
         .detail =
             [this, steps] {
               const auto& undo = document().history().undo;
               return undo.size() < steps ? std::string()
                                          : "back to before " + undo[undo.size() - steps].label;
             },
         .in_menu = false,
         .remembered = false});
  add({"edit.redo", "Edit", "Redo", [this] { document().redo(); }, ImGuiMod_Ctrl | ImGuiKey_Y,
       [this] { return document().can_redo(); }, [this] { return std::string(document().redo_label()); }});
  const auto copy_scenario = [this] {
    ImGui::SetClipboardText(sim::to_json(document().scenario()).c_str());
    toast_.say("The scenario is on the clipboard: ridgepoint predict --scenario - reads it.");
  };
  add({"edit.copy_scenario", "Edit", "Copy scenario as JSON", copy_scenario,
       ImGuiMod_Ctrl | ImGuiMod_Shift | ImGuiKey_J});
  // This machine is what was measured of it; before that, what the system says.
  const auto take_text = [this](const std::string& text) {
    try {
      sim::Scenario next = scenario_of_text(document().scenario(), text);
      if (next.hardware.name == sim::kThisMachine && next.hardware.peak.empty())
        set_hardware(next, calibrations_.this_machine() ? calibrations_.this_machine()->hardware
                                                        : unmeasured_machine());
      edit(is_flags(text) ? "Set " + text : "Paste a scenario", std::move(next));
    } catch (const std::exception& error) {
      toast_.say(error.what());
    }
  };
  add({.id = std::string(kFlagsCommand),
       .category = "Edit",
       .label = "Set flags",
       .run = [this] { toast_.say("Type them in the palette: --seq-len 8k --dp 8"); },
       .detail = [] { return std::string("--model llama-3.1-70b --dp 64, as the command line takes them"); },
       .in_menu = false,
       .take = take_text});
  add({.id = "edit.paste_scenario",
       .category = "Edit",
       .label = "Paste a scenario",
       .run =
           [take_text] {
             const char* const text = ImGui::GetClipboardText();
             take_text(text ? text : "");
           },
       .shortcut = ImGuiMod_Ctrl | ImGuiMod_Shift | ImGuiKey_V,
       .detail = [] { return std::string("JSON, or a command line"); }});
  const auto copy_command_line = [this] {
    ImGui::SetClipboardText(cli::predict_command(document().scenario()).c_str());
    toast_.say("Copied: " + cli::predict_command(document().scenario()));
  };
  add({"edit.copy_command_line",
       "Edit",
       "Copy as command line",
       copy_command_line,
       ImGuiMod_Ctrl | ImGuiMod_Shift | ImGuiKey_C,
       {},
       [this] { return cli::predict_command(document().scenario()); }});
}

void Shell::remember(const std::filesystem::path& file) {
  constexpr std::size_t kMost = 8;
  std::error_code unknown;
  const std::filesystem::path whole = std::filesystem::absolute(file, unknown);
  std::erase(recent_files_, whole);
  recent_files_.insert(recent_files_.begin(), whole);
  if (recent_files_.size() > kMost) recent_files_.resize(kMost);
  list_recent_files();
}

void Shell::list_recent_files() {
  std::vector<Command> commands;
  for (std::size_t i = 0; i < recent_files_.size(); ++i)
    commands.push_back({.id = "file.recent." + std::to_string(i),
                        .category = "File",
                        .label = "Open " + recent_files_[i].filename().string() + " again",
                        .run = [this, file = recent_files_[i]] { open(file); },
                        .detail = [file = recent_files_[i]] { return file.parent_path().string(); },
                        .remembered = false});
  commands_.replace("file.recent.", std::move(commands));
}

void Shell::add_run_commands() {
  const auto add = [this](Command command) { commands_.add(std::move(command)); };
  const auto start = [this] {
    try {
      // What is predicted is what will run.
      const sim::Scenario asked = with_prompt_of(runs_.choices, document().scenario());
      if (!(asked == document().scenario()))
        document().edit("prompt as typed, " + sim::format_count(asked.workload.prompt_length) + " tokens",
                        asked);
      runs_.start(document().scenario());
    } catch (const std::exception& error) {
      toast_.say(error.what());
    }
  };
  const auto what_starts = [this] {
    const sim::Scenario& s = document().scenario();
    if (outlook() && !outlook()->refusal.empty()) return outlook()->refusal;
    return (s.workload.task == sim::Task::train ? "train " : "generate with ") + s.model.name + " on " +
           place_text(runs_.choices.place);
  };
  const auto can_start = [this] { return !runs_.active() && (!outlook() || outlook()->refusal.empty()); };
  add({"run.start", "Run", "Start", start, ImGuiKey_F5, can_start, what_starts});
  add({"run.stop", "Run", "Stop", [this] { runs_.stop(); }, ImGuiMod_Shift | ImGuiKey_F5,
       [this] { return runs_.active(); }});
  add({"run.calibrate", "Run", "Measure this machine", [this] { calibrations_.measure(); }, ImGuiKey_None,
       [this] { return !calibrations_.progress().running; },
       [] { return std::string("peaks, bandwidth and every kernel; about a minute"); }});
  add({"run.look_for_devices", "Run", "Look for devices again", [this] { ++looked_for_places_; },
       ImGuiKey_None, [this] { return !places_.progress().running; }});
  list_places();
}

void Shell::play(const Recording& recording) {
  try {
    // What it is predicted to be stands beside it in every panel.
    const sim::Scenario& scenario = recording.source.scenario;
    if (!(scenario == document().scenario())) document().edit("Play " + title_of(recording), scenario);
    runs_.play(recording.file, scenario.workload.task);
  } catch (const std::exception& error) {
    toast_.say(error.what());
  }
}

void Shell::list_places() {
  std::vector<Command> devices, recordings;
  for (const runtime::MachineDevice& device : known_places_.devices)
    for (const sim::DType dtype : device.dtypes)
      devices.push_back({.id = place_command(device.flag, dtype),
                         .category = "Run",
                         .label = "Run on " + place_text(place_on(device, dtype)),
                         .run = [this, place = place_on(device, dtype)] { runs_.choices.place = place; },
                         .enabled = [this] { return !runs_.active(); },
                         .in_menu = false});
  for (std::size_t i = 0; i < known_places_.recordings.size(); ++i)
    recordings.push_back({.id = "run.play." + std::to_string(i),
                          .category = "Run",
                          .label = "Play " + title_of(known_places_.recordings[i]),
                          .run = [this, recording = known_places_.recordings[i]] { play(recording); },
                          .enabled = [this] { return !runs_.active(); },
                          .in_menu = false});
  commands_.replace("run.on.", std::move(devices));
  commands_.replace("run.play.", std::move(recordings));
}

void Shell::take_over_places() {
  const StartPlaces* const newest = places_.result();
  if (!newest || newest == seen_places_) return;
  seen_places_ = newest;
  known_places_ = *newest;
  list_places();
  // The place that was chosen may be gone, or known by its name now.
  RunPlace& place = runs_.choices.place;
  for (const runtime::MachineDevice& device : known_places_.devices)
    if (device.flag == place.device &&
        std::find(device.dtypes.begin(), device.dtypes.end(), place.dtype) != device.dtypes.end()) {
      place.name = device.name;
      return;
    }
  place = {};
}

std::string Shell::bug_report() const {
  const auto line = [](const std::string& what, const std::string& value) {
    return value.empty() ? "" : what + ": " + value + "\n";
  };
  std::string text = line("program", runtime::software_version()) + line("CPU", runtime::cpu_name()) +
                     line("memory", sim::format(runtime::physical_memory()));
  for (const runtime::MachineDevice& device : known_places_.devices)
    text += line("device " + device.flag, device.name);
  const sim::Calibration* const here = calibrations_.this_machine();
  text += line("measured", here ? here->date + ", median error " + sim::format_percent(here->residual.median)
                                : "not yet");
  const ImGuiIO& io = ImGui::GetIO();
  text += line("window", sim::format_count(static_cast<std::int64_t>(io.DisplaySize.x)) + " x " +
                             sim::format_count(static_cast<std::int64_t>(io.DisplaySize.y)) + ", type " +
                             sim::format_percent(user_scale_) + ", theme " + std::string(name(look_.theme)) +
                             (io.BackendRendererName ? std::string(", ") + io.BackendRendererName : ""));
  const RunView& run = runs_.of(document().scenario().workload.task);
  text += line("last run", run.title) + line("its end", run.message);
  text += line("problem", disagreement_);
  return text + line("scenario", cli::predict_command(document().scenario()));
}

void Shell::add_view_commands() {
  const auto add = [this](Command command) { commands_.add(std::move(command)); };
  add({.id = "view.palette",
       .category = "View",
       .label = "Search commands",
       .run = [this] { view_.palette_asked = true; },
       .shortcut = ImGuiMod_Ctrl | ImGuiKey_K,
       .remembered = false});
  const auto set_theme = [this](Theme theme) {
    look_.theme = theme;
    style_is_old_ = true;
  };
  const auto switch_theme = [this, set_theme] {
    set_theme(static_cast<Theme>((static_cast<std::size_t>(look_.theme) + 1) % kThemeNames.size()));
  };
  add({"view.theme", "View", "Switch theme", switch_theme, ImGuiKey_F8, {}, [this] {
         return "now " + std::string(name(look_.theme));
       }});
  for (const std::string_view theme : kThemeNames)
    add({.id = "view.theme." + std::string(theme),
         .category = "View",
         .label = "Theme " + std::string(theme),
         .run = [set_theme, theme] { set_theme(*theme_called(theme)); },
         .in_menu = false});
  add({.id = "view.settings",
       .category = "View",
       .label = "Settings",
       .run = [this] { view_.settings_asked = true; },
       .shortcut = ImGuiMod_Ctrl | ImGuiKey_Comma,
       .detail = [] { return std::string("theme, size, units, motion, and the key of every command"); }});
  const auto switch_bytes = [] {
    sim::write_bytes_in(sim::byte_units() == sim::ByteUnits::binary ? sim::ByteUnits::decimal
                                                                    : sim::ByteUnits::binary);
  };
  add({"view.bytes", "View", "Memory in GiB or GB", switch_bytes, ImGuiKey_None, {}, [] {
         return "now " + std::string(sim::sentence(sim::byte_units()));
       }});
  add({"view.still",
       "View",
       "Reduced motion",
       [this] { view_.still = !view_.still; },
       ImGuiKey_None,
       {},
       [this] { return std::string(view_.still ? "now on: nothing moves of itself" : "now off"); }});
  const auto scale_by = [this](float by) {
    user_scale_ = std::clamp(user_scale_ + by, kLeastScale, kGreatestScale);
    style_is_old_ = true;
  };
  const auto scale_now = [this] { return "now " + sim::format_percent(user_scale_); };
  add({"view.larger",
       "View",
       "Larger",
       [=] { scale_by(kScaleStep); },
       ImGuiMod_Ctrl | ImGuiKey_Equal,
       {},
       scale_now});
  add({"view.smaller",
       "View",
       "Smaller",
       [=] { scale_by(-kScaleStep); },
       ImGuiMod_Ctrl | ImGuiKey_Minus,
       {},
       scale_now});
  add({"view.actual_size",
       "View",
       "Actual size",
       [=, this] { scale_by(1 - user_scale_); },
       ImGuiMod_Ctrl | ImGuiKey_0,
       {},
       scale_now});
  const auto next_convention = [this] {
    view_.convention =
        static_cast<sim::FlopsConvention>((static_cast<int>(view_.convention) + 1) % sim::kFlopsConventions);
  };
  add({"view.next_convention", "View", "Next FLOPs convention", next_convention, ImGuiKey_None, {}, [this] {
         return "now " + std::string(sim::name(view_.convention));
       }});
  const auto restore = [this] {
    view_.maximised.clear();
    end_presentation();
  };
  add({"view.restore", "View", "All panels again", restore, ImGuiKey_Escape,
       [this] { return !view_.maximised.empty(); }});
  const auto reset_layout = [this] {
    panels_.reset_layout();
    view_.maximised.clear();
    end_presentation();
  };
  add({"view.reset_layout", "View", "Reset layout", reset_layout});
  add({"help.shortcuts", "Help", "Shortcuts", [this] { view_.shortcuts_asked = true; }, ImGuiKey_F1});
  add({.id = "help.bug_report",
       .category = "Help",
       .label = "Copy a bug report",
       .run =
           [this] {
             ImGui::SetClipboardText(bug_report().c_str());
             toast_.say(
                 "The report is on the clipboard: this machine, the scenario as a command, and no path.");
           },
       .detail = [] { return std::string("machine, devices, settings and the scenario, without paths"); }});
  add({"app.quit", "Help", "Quit", [this] { wants_close_ = true; }, ImGuiMod_Ctrl | ImGuiKey_Q});
}

void Shell::add_scenario_commands() {
  for (const std::string& name : sim::preset_names(sim::PresetKind::scenario))
    commands_.add({.id = "scenario." + name, .category = "Scenario", .label = name, .run = [this, name] {
                     try {
                       sim::Scenario next = sim::load_scenario_preset(name);
                       const sim::Calibration* here = calibrations_.this_machine();
                       if (next.hardware.name == sim::kThisMachine)
                         next.hardware = here ? here->hardware : unmeasured_machine();
                       document().edit("scenario " + name, std::move(next));
                       tabs_.current().file.clear();  // what was opened stays as it is
                     } catch (const std::exception& error) {
                       toast_.say(error.what());
                     }
                   }});
}

void Shell::add_preset_commands() {
  using Change = std::function<void(sim::Scenario & scenario, const std::string& preset)>;
  const auto add = [this](sim::PresetKind kind, std::string what, const char* category,
                          const std::string& (*now)(const sim::Scenario&), const Change& change) {
    const auto pick = [=, this](const std::string& name) {
      const sim::Scenario& before = document().scenario();
      sim::Scenario next = before;
      change(next, name);
      std::string label = what + " " + now(before) + " \u2192 " + name;
      if (next.workload.dtype != before.workload.dtype)
        label.append(", dtype ").append(sim::name(next.workload.dtype));
      edit(std::move(label), std::move(next));
    };
    for (const std::string& name : preset_choices(kind))
      commands_.add({.id = what + "." + name,
                     .category = category,
                     .label = name,
                     .run =
                         [this, pick, name] {
                           try {
                             pick(name);
                           } catch (const std::exception& error) {
                             toast_.say(
                                 error.what());  // a preset that cannot be read says so when it is picked
                           }
                         },
                     .in_menu = false});
  };
  add(
      sim::PresetKind::model, "model", "Model",
      [](const sim::Scenario& s) -> const std::string& { return s.model.name; },
      [](sim::Scenario& s, const std::string& name) { s.model = load_model_choice(name); });
  add(
      sim::PresetKind::hardware, "hardware", "Hardware",
      [](const sim::Scenario& s) -> const std::string& { return s.hardware.name; },
      [this](sim::Scenario& s, const std::string& name) {
        const sim::Calibration* here = calibrations_.this_machine();
        set_hardware(s, name != sim::kThisMachine ? sim::load_hardware_preset(name)
                        : here                    ? here->hardware
                                                  : unmeasured_machine());
      });
  add(
      sim::PresetKind::implementation, "implementation", "Implementation",
      [](const sim::Scenario& s) -> const std::string& { return s.implementation.name; },
      [](sim::Scenario& s, const std::string& name) {
        s.implementation = sim::load_implementation_preset(name);
      });
}

}  // namespace app::gui
