#include "app/gui/jobs/outlook.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>

#include "app/cli/scenario_flags.h"
#include "app/gui/legal.h"
#include "runtime/cuda_backend.h"
#include "runtime/devices.h"
#include "runtime/run.h"
#include "runtime/this_machine.h"
#include "sim/cost/predict.h"
#include "sim/format.h"
#include "sim/plan/legality.h"
#include "sim/report/metrics.h"
#include "sim/scenario/fields.h"
#include "sim/scenario/preset.h"

namespace app::gui {
namespace {

sim::Bytes memory_here() {
  static const sim::Bytes bytes = runtime::physical_memory();
  return bytes;
}

// What the weights take at least, with what training keeps beside those that learn: gradient and two moments.
// Adapters and scales of quantised weights come on top.
sim::Bytes least_memory(const sim::Scenario& s) {
  const sim::Workload& w = s.workload;
  std::int64_t bits = sim::bits(w.dtype);
  double states = 4;
  if (w.task == sim::Task::generate) {
    states = 1;
    sim::for_each_stored_type(
        [&](const auto& field) { bits = std::min(bits, sim::bits((w.*field.member).value_or(w.dtype))); });
  } else if (w.lora_rank > 0) {
    states = 1;
    if (w.frozen_weights != sim::FrozenWeights::as_dtype) bits = 4;  // NF4
  }
  const auto weights = static_cast<double>(sim::count_parameters(s.model).total);
  return {static_cast<std::int64_t>(weights * states * static_cast<double>(bits) / 8)};
}

std::string owner_of(const RunPlace& place) {
  return place.is_gpu() ? "the " + place.name : "this machine";
}

// A GPU's own, or this machine's.
sim::Bytes memory_at(const sim::Scenario& s, const RunPlace& place) {
  return place.is_gpu() ? s.hardware.memory : memory_here();
}

std::string refusal_of(const sim::Scenario& s, const RunPlace& place) {
  std::vector<sim::Problem> problems = sim::validate(s);
  std::erase_if(problems, [](const sim::Problem& p) { return p.field.starts_with("hardware."); });
  if (!problems.empty()) return in_labels(problems.front()) + ".";
  if (const int devices = s.strategy.devices(); devices > kMostRanksHere)
    return sim::format_count(devices) + " devices: a run on this machine starts a process for each, " +
           sim::format_count(kMostRanksHere) + " at most.";
  // Before anything is planned: weights alone tell of the largest.
  const int devices_with_memory = place.is_gpu() ? s.strategy.devices() : 1;
  const sim::Bytes available = {memory_at(s, place).value * devices_with_memory};
  if (const sim::Bytes least = least_memory(s); available.value > 0 && least > available)
    return s.model.name + " needs at least " + sim::format(least) + ", and " + owner_of(place) + " has " +
           sim::format(available) + ".";
  // A GPU is opened by the run alone, which says what there are no kernels for.
  if (place.is_gpu()) return {};
  try {
    runtime::require_runnable(s, *runtime::make_cpu_device(1));
  } catch (const std::exception& error) {
    return in_labels(std::string_view(error.what())) + ".";
  }
  return {};
}

// Largest first; each trains and generates on a laptop.
constexpr std::array<const char*, 4> kRunnable = {"smollm2-135m", "gpt2-124m", "gpt-10m", "tiny-gpt"};

std::optional<sim::Scenario> nearest_of(const sim::Scenario& s) {
  for (const char* name : kRunnable) {
    sim::Scenario next = s;
    try {
      next.model = sim::load_model_preset(name);
    } catch (const std::exception&) {
      continue;
    }
    if (next.model == s.model) continue;
    next.implementation = sim::load_implementation_preset("ridgepoint");
    next.strategy = {};
    next.workload.micro_batch_size = next.workload.global_batch_size = 1;
    next.workload.measure_noise = false;
    next.workload.batch_size = 1;
    next.workload.seq_len =
        std::min<std::int64_t>({next.workload.seq_len, 256, next.model.max_position_embeddings});
    next.workload.prompt_length = std::min<std::int64_t>(next.workload.prompt_length, 64);
    next.workload.max_new_tokens = std::min<std::int64_t>(next.workload.max_new_tokens, 64);
    next.workload.weights_dtype = next.workload.kv_dtype = std::nullopt;
    if (refusal_of(as_run_here(next, nullptr), {}).empty() && sim::validate(next).empty()) return next;
  }
  return std::nullopt;
}

}  // namespace

sim::Scenario as_run_here(sim::Scenario scenario, const sim::Calibration* here, const RunPlace& place) {
  scenario.implementation = sim::load_implementation_preset("ridgepoint");
  scenario.workload.dtype = place.dtype;
  scenario.hardware = here ? here->hardware : sim::Hardware{};
  if (place.is_gpu()) {
    if (const std::string preset = runtime::hardware_preset_of_gpu(place.name); !here && !preset.empty())
      scenario.hardware = sim::load_hardware_preset(preset);
    return scenario;
  }
  cli::link_ranks(scenario);
  return scenario;
}

Outlook outlook_of(const StartQuestion& question) {
  Outlook outlook;
  const RunPlace& place = question.place;
  sim::Scenario here = as_run_here(question.scenario, place.is_gpu() ? nullptr : question.here.get(), place);
  std::shared_ptr<const sim::Calibration> calibration = question.here;
  if (place.is_gpu()) {
    calibration = nullptr;
    if (here.hardware.name.empty()) {
      outlook.refusal = "No hardware preset describes the GPU " + place.name + ".";
    } else if (auto known = cli::calibration_of_runs(here.hardware)) {
      calibration = std::make_shared<const sim::Calibration>(*std::move(known));
    }
  }
  if (outlook.refusal.empty()) outlook.refusal = refusal_of(here, place);
  // A GPU's datasheet prices it where it has not been measured.
  if (outlook.refusal.empty() && (calibration || place.is_gpu())) {
    try {
      const sim::Report report = sim::predict(here, calibration.get());
      // Ranks on the CPU share its memory.
      const std::int64_t sharing = place.is_gpu() ? 1 : here.strategy.devices();
      const sim::Bytes needed = {sim::peak_memory(report).value * sharing},
                       available = memory_at(here, place);
      if (available.value > 0 && needed > available)
        outlook.refusal = "It needs " + sim::format(needed) + ", and " + owner_of(place) + " has " +
                          sim::format(available) + ".";
      const bool train = here.workload.task == sim::Task::train;
      // What has no link to be priced by (a host beside the device, of a machine that is its own host) takes
      // forever in a prediction: no estimate.
      const sim::Seconds expected =
          sim::step_time(report) * (train ? static_cast<double>(question.steps) : 1);
      if (std::isfinite(expected.value)) outlook.expected = expected;
    } catch (const std::exception&) {
      // No estimate: the run itself will say what it cannot do.
    }
  }
  if (!outlook.refusal.empty()) {
    outlook.expected.reset();
    outlook.nearest = nearest_of(question.scenario);
  }
  return outlook;
}

}  // namespace app::gui
