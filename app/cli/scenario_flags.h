// The flags that describe a scenario, the same for every command, and the scenario that they give.
#pragma once
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/devices.h"
#include "runtime/model_source.h"
#include "runtime/train.h"
#include "runtime/watched_run.h"
#include "sim/cost/calibration.h"
#include "sim/scenario/fields.h"
#include "sim/scenario/overrides.h"
#include "sim/scenario/scenario.h"

namespace CLI {
class App;
}

namespace app::cli {

class Progress;

// The typed flags. What is not typed comes from --scenario, else from the command's default.
struct ScenarioFlags {
  std::optional<std::string> scenario;  // file, preset, or "-" for stdin
  std::optional<std::string> model, hardware, implementation, workload, device;
  std::optional<std::int64_t> gpus;
  struct Typed {
    const sim::AnyField* field;
    std::string text;  // legal text for the field
  };
  std::vector<Typed> fields;             // of sim/scenario/fields.h, each once
  std::vector<sim::Override> overrides;  // --set, in order

  void add_to(CLI::App& command);

  // Throws UsageError for a text that the field does not take.
  void type(const sim::AnyField& field, std::string text);
  // The text typed for the field with a path such as "strategy.zero_stage"; null where nothing was typed.
  const std::string* typed(std::string_view path) const;
};

// Fields that begin with `part` ("model."; "" for all) were read from the file `path`.
struct PartFile {
  std::string part, path;
};

// A scenario with all that is needed to price it and to run it.
struct ResolvedScenario {
  sim::Scenario scenario;
  runtime::ModelSource source;                  // of the model: its shape, and where the weights come from
  std::optional<sim::Calibration> calibration;  // of the scenario's hardware, where there is one
  std::vector<PartFile> files = {};             // the first file whose part holds a field has set it
};

// The scenario of the flags, from the presets or the file that they name; each command begins with it. If its
// hardware is this machine, the hardware has only its name.
ResolvedScenario named_parts(const ScenarioFlags& flags);

// The scenario of named_parts() with the fields that were typed, and what follows from them.
sim::Scenario with_fields(sim::Scenario parts, const ScenarioFlags& flags);

// For predictions: the hardware is h100-sxm unless the flags set it. "this-machine" is measured once, with
// progress to `sink`.
ResolvedScenario resolve_for_prediction(const ScenarioFlags& flags, const runtime::EventSink& sink,
                                        std::stop_token stop);

// The same without checks: a search starts from it.
ResolvedScenario resolve_unchecked(const ScenarioFlags& flags, const runtime::EventSink& sink,
                                   std::stop_token stop);

// The device that --device names; the CPU where the flag is not given. Throws UsageError for an unknown name.
runtime::DeviceChoice device_of(const std::optional<std::string>& flag);

// The preset that describes a GPU of this machine, by the name that the GPU gives itself. Throws
// runtime::NoDevice where there is no such GPU, or no preset of it.
sim::Hardware hardware_of_gpu(int ordinal);

// The settings of a run, with the device that --device names; threads and determinism stay as they were.
template <class Settings>
Settings on_device(Settings settings, const ScenarioFlags& flags) {
  const runtime::DeviceChoice choice = device_of(flags.device);
  settings.device.kind = choice.kind;
  settings.device.ordinal = choice.ordinal;
  settings.device.any_gpu = choice.any_gpu;
  return settings;
}

// For running `task` on this machine, in fp32 on the CPU and in bf16 on a GPU unless --dtype says otherwise.
// The scenario keeps its hardware until place_here(). Throws runtime::NoDevice for a --device that this
// machine lacks and for a --hardware that is not this machine.
ResolvedScenario resolve_for_run(const ScenarioFlags& flags, sim::Task task);

// Makes the device the scenario's hardware: this machine's CPU, measured once with progress to `sink`, or the
// preset of its GPU. Throws ConstraintError, before measuring where that is possible.
void place_here(ResolvedScenario& resolved, const runtime::DeviceChoice& device,
                const runtime::EventSink& sink, std::stop_token stop);

// Probes for half a second how much slower this machine is now than when it was calibrated, and writes a line
// about it; 1 where the difference is noise.
sim::Slowdown note_slowdown(const sim::Calibration& calibration, Progress& progress);

// Puts the machine's speed during the run into the run's report and into the calibration that predicts it;
// writes a line where the speed differs from before.
void take_pace(const runtime::WatchedRun& run, sim::Report& measured, sim::Calibration& calibration,
               Progress& progress);

// Reads a scenario file. Its model may also be a pretrained one, which only the runtime knows.
sim::Scenario read_scenario(const std::string& json, const std::string& file);

// Sets the hardware for predictions: this machine measured, and the clock under load where it was measured.
void settle_hardware(sim::Scenario& scenario, const runtime::EventSink& sink, std::stop_token stop);

// Fills in the peaks where the hardware is "this-machine" by name alone; measured once, progress to `sink`.
void fill_this_machine(sim::Scenario& scenario, const runtime::EventSink& sink, std::stop_token stop);

// The calibration of the hardware; empty where only its datasheet is known.
std::optional<sim::Calibration> calibration_of(const sim::Hardware& hardware);
// The calibration for runs on this machine. For a GPU: of this program's own kernels, measured on that GPU
// or, shipped with the program, on one like it. Otherwise as above.
std::optional<sim::Calibration> calibration_of_runs(const sim::Hardware& hardware);

// Sets this machine's hardware for as many ranks as the strategy has: as measured for them together where
// that was done, else as for one rank, with links through the machine's memory.
void link_ranks(sim::Scenario& scenario);
// Whether the hardware is that of the calibration; the ranks' links may differ.
bool is_hardware_of(const sim::Calibration& calibration, const sim::Hardware& hardware);

inline const sim::Calibration* pointer_to(const std::optional<sim::Calibration>& calibration) {
  return calibration ? &*calibration : nullptr;
}

// Throws ConstraintError with every problem.
void require_valid(const sim::Scenario& scenario);

// The scenario that the desktop opens with: a small model that trains here in seconds.
sim::Scenario default_scenario();

}  // namespace app::cli
