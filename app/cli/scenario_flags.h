// The flags that say a scenario, the same for every command, and what they come to.
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

// What is not typed comes from --scenario, else from the command's default.
struct ScenarioFlags {
  std::optional<std::string> scenario;  // file, preset, or "-" for stdin
  std::optional<std::string> model, hardware, implementation, workload, device;
  std::optional<std::int64_t> gpus;
  struct Typed {
    const sim::AnyField* field;
    std::string text;  // that the field takes
  };
  std::vector<Typed> fields;             // of sim/scenario/fields.h, each once
  std::vector<sim::Override> overrides;  // --set, in order

  void add_to(CLI::App& command);

  // Throws UsageError for a text that the field does not take.
  void type(const sim::AnyField& field, std::string text);
  // What was typed for the field of a path, "strategy.zero_stage"; null where nothing was.
  const std::string* typed(std::string_view path) const;
};

// Where fields were read: those that begin with `part`, "model." or "" for all, in the file `path`.
struct PartFile {
  std::string part, path;
};

// A scenario with what it takes to price it and to run it.
struct ResolvedScenario {
  sim::Scenario scenario;
  runtime::ModelSource source;                  // its model, and where the weights come from
  std::optional<sim::Calibration> calibration;  // of the scenario's hardware, where there is one
  std::vector<PartFile> files = {};             // the first that holds a field is the one that says it
};

// The scenario of the flags, from the presets or the file that they name: what each command begins with.
// Hardware that is this machine has no more than its name.
ResolvedScenario named_parts(const ScenarioFlags& flags);

// The scenario of named_parts() with the fields that were typed, and what follows from them.
sim::Scenario with_fields(sim::Scenario parts, const ScenarioFlags& flags);

// To price: hardware is h100-sxm unless said otherwise; "this-machine" is measured once, with progress to
// `sink`.
ResolvedScenario resolve_for_prediction(const ScenarioFlags& flags, const runtime::EventSink& sink,
                                        std::stop_token stop);

// The same before anything is checked: what a search starts from.
ResolvedScenario resolve_unchecked(const ScenarioFlags& flags, const runtime::EventSink& sink,
                                   std::stop_token stop);

// What --device names; the CPU where it is not given. Throws UsageError for no name of a device.
runtime::DeviceChoice device_of(const std::optional<std::string>& flag);

// The preset that describes a GPU of this machine, by the name that the GPU gives itself. Throws
// runtime::NoDevice where there is no such GPU, or no preset of it.
sim::Hardware hardware_of_gpu(int ordinal);

// A run's settings on the device that --device names; threads and determinism as they were.
template <class Settings>
Settings on_device(Settings settings, const ScenarioFlags& flags) {
  const runtime::DeviceChoice choice = device_of(flags.device);
  settings.device.kind = choice.kind;
  settings.device.ordinal = choice.ordinal;
  settings.device.any_gpu = choice.any_gpu;
  return settings;
}

// To run `task` here, in fp32 on the CPU and in bf16 on a GPU where --dtype does not say. The hardware stays
// what the scenario says until place_here(). Throws runtime::NoDevice for a --device that this machine lacks
// and for a --hardware that is not this machine.
ResolvedScenario resolve_for_run(const ScenarioFlags& flags, sim::Task task);

// Makes the device the scenario's hardware: this machine's CPU, measured once with progress to `sink`, or the
// preset of its GPU. Throws ConstraintError, before it measures where it can.
void place_here(ResolvedScenario& resolved, const runtime::DeviceChoice& device,
                const runtime::EventSink& sink, std::stop_token stop);

// How much slower this machine is now than it was when it was calibrated, by a probe of half a second, and a
// line about it; 1 where the difference is noise.
sim::Slowdown note_slowdown(const sim::Calibration& calibration, Progress& progress);

// What was found of the machine while it ran goes into the run's report and to what predicts it; a line about
// it where that is another pace than before.
void take_pace(const runtime::WatchedRun& run, sim::Report& measured, sim::Calibration& calibration,
               Progress& progress);

// A scenario file, whose model may also be a pretrained one, which the runtime knows alone.
sim::Scenario read_scenario(const std::string& json, const std::string& file);

// The hardware as predictions take it: this machine measured, and the clock under load where it was measured.
void settle_hardware(sim::Scenario& scenario, const runtime::EventSink& sink, std::stop_token stop);

// Where the hardware is "this-machine" by name alone: its peaks, measured once, with progress to `sink`.
void fill_this_machine(sim::Scenario& scenario, const runtime::EventSink& sink, std::stop_token stop);

// The calibration that belongs to the scenario's hardware; empty: its datasheet is all there is.
std::optional<sim::Calibration> calibration_of(const sim::Hardware& hardware);
// What runs on it here are expected to take: of a GPU, by this program's own kernels, measured on it or, as
// ships with the program, on one like it; else as above.
std::optional<sim::Calibration> calibration_of_runs(const sim::Hardware& hardware);

// This machine's hardware for as many ranks as the strategy has: as they were measured together where they
// were, else as it is for one, with links through its memory.
void link_ranks(sim::Scenario& scenario);
// Whether it is the calibration's, whatever links ranks have.
bool is_hardware_of(const sim::Calibration& calibration, const sim::Hardware& hardware);

inline const sim::Calibration* pointer_to(const std::optional<sim::Calibration>& calibration) {
  return calibration ? &*calibration : nullptr;
}

// Throws ConstraintError with every problem.
void require_valid(const sim::Scenario& scenario);

// What the desktop opens with: a small model that trains here in seconds.
sim::Scenario default_scenario();

}  // namespace app::cli
