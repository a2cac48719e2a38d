#include "app/cli/scenario_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/cli/exit_code.h"
#include "app/cli/flags.h"
#include "app/cli/progress.h"
#include "runtime/cuda_backend.h"
#include "runtime/error.h"
#include "runtime/gpu_calibration.h"
#include "runtime/machine_probe.h"
#include "runtime/run.h"
#include "runtime/this_machine.h"
#include "sim/cost/calibration_preset.h"
#include "sim/cost/refit.h"
#include "sim/foreign_text.h"
#include "sim/plan/legality.h"
#include "sim/scenario/expert_division.h"
#include "sim/scenario/fields.h"
#include "sim/scenario/preset.h"

namespace app::cli {

namespace {

using sim::kThisMachine;
constexpr std::string_view kOurImplementation = "ridgepoint";

// If a flag names something that does not exist, the flag is wrong, not a file.
template <typename Load>
auto by_flag(std::string_view flag, sim::PresetKind kind, const std::string& name, Load load) {
  if (sim::find_preset(kind, name)) return load(name);
  try {
    return load(name);
  } catch (const sim::PresetError& e) {
    throw UsageError(fmt::format("{}: {}", flag, e.what()));
  }
}

runtime::ModelSource open_model_flag(const std::string& name_or_path) {
  const bool is_name = name_or_path.find('/') == std::string::npos;
  if (std::filesystem::exists(name_or_path) ||
      (is_name && sim::find_preset(sim::PresetKind::model, name_or_path)))
    return runtime::open_model(name_or_path);
  try {
    return runtime::open_model(name_or_path);
  } catch (const std::system_error&) {  // the file or folder exists, but reading it fails
    throw;
  } catch (const std::runtime_error& e) {
    // An unknown name is the flag's fault. A pretrained model that is not here yet is a missing file.
    const auto pretrained = runtime::pretrained_models();
    const bool known = std::any_of(pretrained.begin(), pretrained.end(),
                                   [&](const runtime::PretrainedModel& m) { return m.name == name_or_path; });
    if (known) throw;
    throw UsageError(fmt::format("--model: {}", e.what()));
  }
}

// The source of a scenario's model: what its name opens, if that is the same model, else only its shape.
runtime::ModelSource source_of(const sim::Model& model) {
  try {
    runtime::ModelSource source = runtime::open_model(model.name);
    if (source.model == model) return source;
  } catch (const std::runtime_error&) {
    // The name is the scenario's own: a shape without weights.
  }
  return {model, "scenario", std::nullopt, {}};
}

// With --gpus alone, data parallelism takes the devices that the other degrees leave.
void share_devices(const ScenarioFlags& flags, sim::Strategy& s) {
  if (!flags.gpus) return;
  const std::int64_t of_a_replica = sim::saturated_product(
      std::int64_t{s.tensor_parallel}, std::int64_t{s.pipeline_parallel}, std::int64_t{s.context_parallel});
  if (!flags.typed("strategy.data_parallel") && of_a_replica > 0 && *flags.gpus % of_a_replica == 0)
    s.data_parallel = static_cast<int>(std::clamp<std::int64_t>(
        *flags.gpus / of_a_replica, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()));
  const std::int64_t all = sim::saturated_product(of_a_replica, std::int64_t{s.data_parallel});
  if (all == *flags.gpus) return;
  const bool countable = all < std::numeric_limits<std::int64_t>::max();
  throw ConstraintError(
      {{"gpus", fmt::format("{} devices are not dp {} x tp {} x pp {} x cp {} = {}", *flags.gpus,
                            s.data_parallel, s.tensor_parallel, s.pipeline_parallel, s.context_parallel,
                            countable ? std::to_string(all) : "more than can be counted")}});
}

// Fills in what the flags leave open about the work, from what they say.
void complete(const ScenarioFlags& flags, sim::Scenario& s) {
  sim::Workload& w = s.workload;
  const auto typed = [&](const char* path) { return flags.typed(path) != nullptr; };
  const bool asks_for_tokens = typed("workload.batch_size") || typed("workload.prompt_length") ||
                               typed("workload.max_new_tokens") || typed("workload.kv_cache");
  if (asks_for_tokens && !typed("workload.task")) w.task = sim::Task::generate;
  if (typed("strategy.recompute_operations") && !typed("strategy.recompute"))
    s.strategy.recompute = sim::Recompute::operations;
  if (!typed("workload.seq_len") && !flags.scenario && s.model.max_position_embeddings > 0)
    w.seq_len = std::min(w.seq_len, s.model.max_position_embeddings);
  if (!typed("workload.global_batch_size") &&
      (typed("workload.micro_batch_size") || (!flags.scenario && !flags.workload)))
    w.global_batch_size = sim::saturated_product(w.micro_batch_size, std::int64_t{s.strategy.data_parallel});
  sim::complete_expert_division(
      s, {typed("strategy.sequence_parallel"), typed("strategy.expert_tensor_parallel")});
}

// Applies the --set flags for these parts.
sim::Scenario with_overrides(const sim::Scenario& s, const ScenarioFlags& flags,
                             std::initializer_list<std::string_view> parts) {
  std::vector<sim::Override> of_parts;
  for (const sim::Override& o : flags.overrides)
    if (std::ranges::find(parts, std::string_view(o.path).substr(0, o.path.find('.'))) != parts.end())
      of_parts.push_back(o);
  try {
    return sim::with_overrides(s, of_parts, "--set");
  } catch (const sim::PresetError& e) {
    throw UsageError(e.what());
  }
}

void set_fields(const ScenarioFlags& flags, sim::Scenario& s) {
  for (const auto& [field, text] : flags.fields) field->set(s, text);
}

sim::Scenario base_scenario(const ScenarioFlags& flags) {
  if (!flags.scenario) {
    sim::Scenario scenario;
    scenario.implementation = sim::load_implementation_preset(kOurImplementation);
    return scenario;
  }
  const std::string& name = *flags.scenario;
  if (name == "-" || std::filesystem::exists(name)) return read_scenario(read_file(name), name);
  return by_flag("--scenario", sim::PresetKind::scenario, name, sim::load_scenario_preset);
}

// The files that the parts of a scenario were read from: those of the presets that flags name, else the
// scenario's own file.
std::vector<PartFile> files_of(const ScenarioFlags& flags, const std::string& hardware) {
  std::vector<PartFile> files;
  const auto add = [&](std::string_view part, sim::PresetKind kind, const std::optional<std::string>& name) {
    if (!name) return;
    if (const auto file = sim::find_preset(kind, *name)) files.push_back({std::string(part), file->string()});
  };
  add("model.", sim::PresetKind::model, flags.model);
  add("hardware.", sim::PresetKind::hardware, hardware);
  add("implementation.", sim::PresetKind::implementation, flags.implementation);
  add("workload.", sim::PresetKind::workload, flags.workload);
  if (flags.scenario && std::filesystem::exists(*flags.scenario))
    files.push_back({"", *flags.scenario});
  else
    add("", sim::PresetKind::scenario, flags.scenario);
  std::erase_if(files, [](const PartFile& file) { return file.path.empty(); });
  return files;
}

// Reports what is wrong with a scenario, with the file that says it. A field that was typed is in no file.
[[noreturn]] void refuse(std::vector<sim::Problem> problems, const std::vector<PartFile>& files,
                         const ScenarioFlags* flags) {
  for (sim::Problem& problem : problems) {
    if (flags && flags->typed(problem.field)) continue;
    const auto from = std::ranges::find_if(
        files, [&](const PartFile& file) { return problem.field.starts_with(file.part); });
    if (from != files.end()) problem.message += " (in " + from->path + ")";
  }
  throw ConstraintError(problems);
}

// Throws runtime::NoDevice with the reason why no GPU can be used.
void require_gpu(const std::string& flag) {
  const runtime::CudaStatus status = runtime::cuda_status();
  if (status.gpus.empty())
    throw runtime::NoDevice(fmt::format("--device {}: {}; cpu is what runs here", flag, status.sentence));
}

}  // namespace

void ScenarioFlags::type(const sim::AnyField& field, std::string text) {
  sim::Scenario any;
  if (!field.set(any, text))
    throw UsageError(fmt::format("--{} takes {}, not \"{}\"", field.flag, field.accepted(), text));
  std::erase_if(fields, [&](const Typed& t) { return t.field == &field; });
  fields.push_back({&field, std::move(text)});
}

const std::string* ScenarioFlags::typed(std::string_view path) const {
  const sim::AnyField* const field = sim::field_at(path);
  for (const Typed& t : fields)
    if (t.field == field) return &t.text;
  return nullptr;
}

namespace {

const char* group_of(const sim::AnyField& f) {
  if (f.part == "workload") {
    const bool generates = f.applies == sim::generates || f.applies == sim::generates_with_experts ||
                           f.applies == sim::keeps_cache;
    return !f.applies || f.applies == sim::has_experts ? "Scenario" : generates ? "Generation" : "Training";
  }
  if (f.part == "strategy") return "Strategy";
  return f.part == "model" ? "Model" : f.part == "hardware" ? "Hardware" : "Implementation";
}

void add_field(CLI::App& command, ScenarioFlags& flags, const sim::AnyField& f) {
  using Kind = sim::AnyField::Kind;
  std::string help(f.help);
  if (f.kind == Kind::toggle) {
    command
        .add_flag_function(
            fmt::format("--{0},!--no-{0}", f.flag),
            [&flags, &f](std::int64_t given) { flags.type(f, given > 0 ? "true" : "false"); }, help)
        ->group(group_of(f));
    return;
  }
  std::string type = f.kind == Kind::number     ? "N"
                     : f.kind == Kind::fraction ? "X"
                     : f.kind == Kind::words    ? "LIST"
                                                : fmt::format("{}", fmt::join(f.words, "|"));
  constexpr std::size_t kLongest = 34;
  if (type.empty()) type = "TEXT";
  if (f.kind == Kind::words || type.size() > kLongest) {
    help += fmt::format(": {}", fmt::join(f.words, ", "));
    if (f.kind != Kind::words) type = "NAME";
  }
  command
      .add_option_function<std::string>(
          fmt::format("--{}", f.flag), [&flags, &f](const std::string& text) { flags.type(f, text); }, help)
      ->type_name(type)
      ->group(group_of(f));
}

sim::Override override_of(const std::string& text) {
  constexpr std::array<std::string_view, 5> kParts{"model", "hardware", "strategy", "workload",
                                                   "implementation"};
  const std::size_t equals = text.find('=');
  const std::string path = text.substr(0, equals);
  if (equals == std::string::npos ||
      std::ranges::find(kParts, std::string_view(path).substr(0, path.find('.'))) == kParts.end())
    throw UsageError(
        fmt::format("--set takes PATH=VALUE, as model.num_hidden_layers=4; a path begins with {}, not \"{}\"",
                    sim::listed(kParts), text));
  return {path, text.substr(equals + 1)};
}

}  // namespace

void ScenarioFlags::add_to(CLI::App& command) {
  const auto text = [&](const char* flag, std::optional<std::string>& value, const char* type,
                        const char* help) {
    command.add_option(flag, value, help)->type_name(type)->group("Scenario");
  };
  text("--scenario", scenario, "FILE|PRESET", "where unset flags come from; - is stdin");
  text("--model", model, "PRESET|DIR|GGUF",
       "a preset, a Hugging Face folder, a GGUF file or a pretrained model");
  text("--hardware", hardware, "PRESET", "h100-sxm, a100-sxm-80gb, this-machine, ...");
  text("--implementation", implementation, "PRESET",
       "who carries the work out: ridgepoint (default), pytorch_eager, ...");
  text("--device", device, "cpu|cuda|cuda:N", "what a real run is executed on; cuda is the first GPU");
  text("--workload", workload, "PRESET", "lengths and batch sizes by name");
  add_count(command, "--gpus", gpus,
            "devices; without --dp the other degrees leave the rest to data parallelism")
      ->group("Strategy");
  for (const sim::AnyField& field : sim::all_fields())
    if (!field.flag.empty()) add_field(command, *this, field);
  command
      .add_option_function<std::vector<std::string>>(
          "--set",
          [this](const std::vector<std::string>& all) {
            for (const std::string& one : all) overrides.push_back(override_of(one));
          },
          "any field of a scenario's file, as model.num_hidden_layers=4 (ridgepoint schema scenario); may be "
          "given several times")
      ->type_name("PATH=VALUE")
      ->expected(1)
      ->take_all()
      ->group("Scenario");
}

ResolvedScenario named_parts(const ScenarioFlags& flags) {
  ResolvedScenario resolved;
  resolved.scenario = base_scenario(flags);
  sim::Scenario& scenario = resolved.scenario;
  const bool shaped = std::ranges::any_of(flags.overrides, [](const auto& o) { return o.path == "model"; });
  if (flags.model) {
    resolved.source = open_model_flag(*flags.model);
    scenario.model = resolved.source.model;
  } else if (!flags.scenario && !shaped) {
    throw UsageError(
        "--model says which model: a preset such as gpt2-124m, a folder with config.json, or a GGUF file");
  }
  if (flags.implementation)
    scenario.implementation = by_flag("--implementation", sim::PresetKind::implementation,
                                      *flags.implementation, sim::load_implementation_preset);
  if (flags.workload)
    scenario.workload =
        by_flag("--workload", sim::PresetKind::workload, *flags.workload, sim::load_workload_preset);
  const std::string hardware = flags.hardware.value_or(flags.scenario ? "" : "h100-sxm");
  if (hardware == kThisMachine) {
    scenario.hardware = {};
    scenario.hardware.name = kThisMachine;
    // This machine's kernels compute in fp32.
    if (!flags.scenario) scenario.workload.dtype = sim::DType::fp32;
  } else if (!hardware.empty()) {
    scenario.hardware = by_flag("--hardware", sim::PresetKind::hardware, hardware, sim::load_hardware_preset);
  }
  resolved.files = files_of(flags, hardware);
  return resolved;
}

sim::Scenario with_fields(sim::Scenario s, const ScenarioFlags& flags) {
  s = with_overrides(std::move(s), flags, {"model"});
  const std::int64_t contiguous = s.workload.kv_block;
  set_fields(flags, s);
  share_devices(flags, s.strategy);
  complete(flags, s);
  // Engines have a block size of their own.
  if (flags.typed("workload.kv_block") && s.implementation.serving)
    s.implementation.serving->kv_block = std::exchange(s.workload.kv_block, contiguous);
  return with_overrides(std::move(s), flags, {"hardware", "strategy", "workload", "implementation"});
}

// A file's weights are multiplied as they are stored, unless flags or a scenario say otherwise.
void store_as_file(const runtime::StoredTypes& stored, const ScenarioFlags& flags, sim::Scenario& scenario) {
  bool said = flags.scenario || flags.workload || std::ranges::any_of(flags.overrides, [](const auto& o) {
                return o.path.starts_with("workload");
              });
  const auto if_typed = [&](std::string_view field) {
    said = said || flags.typed("workload." + std::string(field));
  };
  sim::for_each_stored_type([&](const auto& field) { if_typed(field.name); });
  for (const char* field : {"dtype", "weights_group", "weights_zeros", "mixed_layers"}) if_typed(field);
  if (!said) stored.set(scenario.workload);
}

ResolvedScenario resolve_unchecked(const ScenarioFlags& flags, const runtime::EventSink& sink,
                                   std::stop_token stop) {
  ResolvedScenario resolved = named_parts(flags);
  settle_hardware(resolved.scenario, sink, std::move(stop));
  resolved.scenario = with_fields(std::move(resolved.scenario), flags);
  if (flags.hardware == kThisMachine && resolved.scenario.workload.task == sim::Task::generate)
    store_as_file(resolved.source.stored, flags, resolved.scenario);
  resolved.calibration = calibration_of(resolved.scenario.hardware);
  if (resolved.source.model != resolved.scenario.model) resolved.source = source_of(resolved.scenario.model);
  return resolved;
}

ResolvedScenario resolve_for_prediction(const ScenarioFlags& flags, const runtime::EventSink& sink,
                                        std::stop_token stop) {
  ResolvedScenario resolved = resolve_unchecked(flags, sink, std::move(stop));
  if (auto problems = sim::validate(resolved.scenario); !problems.empty())
    refuse(std::move(problems), resolved.files, &flags);
  return resolved;
}

ResolvedScenario resolve_for_run(const ScenarioFlags& flags, sim::Task task) {
  const bool on_gpu = device_of(flags.device).kind == runtime::DeviceChoice::Kind::cuda;
  if (on_gpu) require_gpu(*flags.device);
  if (flags.hardware && *flags.hardware != kThisMachine)
    throw runtime::NoDevice(fmt::format(
        "--hardware: a run is on this machine; what it would be on {} is said by ridgepoint predict",
        *flags.hardware));
  const std::string* const typed_task = flags.typed("workload.task");
  if (typed_task && *typed_task != sim::name(task))
    throw UsageError("--task: train and generate are commands of their own");
  ScenarioFlags here = flags;
  here.hardware.reset();
  ResolvedScenario resolved = named_parts(here);
  resolved.scenario.workload.dtype = on_gpu ? sim::DType::bf16 : sim::DType::fp32;
  resolved.scenario = with_fields(std::move(resolved.scenario), here);
  resolved.scenario.workload.task = task;
  if (!on_gpu && task == sim::Task::generate) store_as_file(resolved.source.stored, here, resolved.scenario);
  if (resolved.source.model != resolved.scenario.model) resolved.source = source_of(resolved.scenario.model);
  return resolved;
}

sim::Hardware hardware_of_gpu(int ordinal) {
  const runtime::CudaStatus status = runtime::cuda_status();
  const std::vector<runtime::CudaGpu>& gpus = status.gpus;
  if (gpus.empty()) throw runtime::NoDevice(fmt::format("--device cuda: {}", status.sentence));
  if (ordinal >= static_cast<int>(gpus.size()))
    throw runtime::NoDevice(
        fmt::format("--device cuda:{}: this machine has {} GPUs, counted from 0", ordinal, gpus.size()));
  const std::string& name = gpus[static_cast<std::size_t>(ordinal)].name;
  const std::string preset = runtime::hardware_preset_of_gpu(name);
  if (preset.empty())
    throw runtime::NoDevice(
        fmt::format("no hardware preset describes the GPU {}; --hardware lists those there are", name));
  return sim::load_hardware_preset(preset);
}

runtime::DeviceChoice device_of(const std::optional<std::string>& flag) {
  if (!flag) return {};
  if (const auto choice = runtime::device_choice_from_name(*flag)) return *choice;
  throw UsageError(fmt::format("--device is cpu, cuda or cuda:N, not \"{}\"", *flag));
}

void link_ranks(sim::Scenario& scenario) {
  const int ranks = scenario.strategy.devices();
  sim::Hardware& hardware = scenario.hardware;
  if (hardware.name == kThisMachine && hardware.devices_per_node != ranks)
    if (const auto measured =
            ranks > 1 ? runtime::cached_machine_of_ranks(ranks) : runtime::cached_this_machine())
      hardware = measured->hardware;
  if (scenario.strategy.offload_optimizer || scenario.strategy.offload_activations) {
    // The host's memory is also the device's: a copy both reads and writes it.
    if (hardware.host_link.value == 0) hardware.host_link = {hardware.memory_bandwidth.value / 2};
    if (hardware.host_memory_bandwidth.value == 0) hardware.host_memory_bandwidth = hardware.memory_bandwidth;
  }
  if (ranks == 1) return;
  hardware.devices_per_node = ranks;
  // Each byte of a message is written and read twice.
  if (hardware.node_link.value == 0) hardware.node_link = {hardware.memory_bandwidth.value / 4};
}

bool is_hardware_of(const sim::Calibration& calibration, const sim::Hardware& hardware) {
  sim::Hardware linked = calibration.hardware;
  linked.devices_per_node = hardware.devices_per_node;
  linked.node_link = hardware.node_link;
  linked.host_link = hardware.host_link;
  linked.host_memory_bandwidth = hardware.host_memory_bandwidth;
  return linked == hardware;
}

sim::Slowdown note_slowdown(const sim::Calibration& calibration, Progress& progress) {
  const sim::Slowdown now = runtime::probe_this_machine(calibration).value_or(sim::Slowdown{});
  if (runtime::is_steady(now)) return {};
  progress.note(runtime::slowdown_sentence(now));
  return now;
}

void take_pace(const runtime::WatchedRun& run, sim::Report& measured, sim::Calibration& calibration,
               Progress& progress) {
  if (!run.meanwhile()) return;
  const sim::Slowdown meanwhile = *run.meanwhile(), before = calibration.slowdown;
  measured.source.slowdown = calibration.slowdown = meanwhile;
  const std::string sentence = runtime::meanwhile_sentence(before, meanwhile);
  if (!sentence.empty()) progress.note(sentence);
}

void place_here(ResolvedScenario& resolved, const runtime::DeviceChoice& device,
                const runtime::EventSink& sink, std::stop_token stop) {
  sim::Scenario& scenario = resolved.scenario;
  scenario.hardware = {};  // its problems do not matter: this machine replaces it
  std::vector<sim::Problem> problems = sim::validate(scenario);
  std::erase_if(problems, [](const sim::Problem& problem) { return problem.field.starts_with("hardware."); });
  if (!problems.empty()) refuse(std::move(problems), resolved.files, nullptr);
  if (device.kind == runtime::DeviceChoice::Kind::cuda) {
    scenario.hardware = hardware_of_gpu(device.ordinal);
    resolved.calibration = calibration_of_runs(scenario.hardware);
    if (resolved.calibration && resolved.calibration->load)
      scenario.hardware.sustained_clock = resolved.calibration->hardware.sustained_clock;
  } else {
    // This check comes before this machine is measured, which takes a while.
    runtime::require_runnable(scenario, *runtime::make_cpu_device(device.threads));
    resolved.calibration = runtime::this_machine(sink, stop);
    if (stop.stop_requested()) return;  // measured only in part: not enough to begin
    scenario.hardware = resolved.calibration->hardware;
    link_ranks(scenario);
    if (auto measured = calibration_of(scenario.hardware)) resolved.calibration = std::move(measured);
  }
  require_valid(scenario);
}

sim::Scenario read_scenario(const std::string& json, const std::string& file) {
  nlohmann::json parts;
  if (!sim::nested_too_deep(json)) parts = nlohmann::json::parse(json, nullptr, false);
  // sim's reader explains what is wrong with text that is no JSON object.
  if (!parts.is_object() || !parts.contains("model") || !parts["model"].is_string())
    return sim::scenario_from_json(json, file);
  // Only the runtime knows pretrained models.
  const std::string name = parts["model"].get<std::string>();
  for (const runtime::PretrainedModel& pretrained : runtime::pretrained_models())
    if (pretrained.name == name)
      parts["model"] = nlohmann::json::parse(sim::to_json(runtime::open_model(name).model));
  return sim::scenario_from_json(parts.dump(), file);
}

void settle_hardware(sim::Scenario& scenario, const runtime::EventSink& sink, std::stop_token stop) {
  fill_this_machine(scenario, sink, std::move(stop));
  sim::Hardware& hardware = scenario.hardware;
  const auto measured = hardware.name == kThisMachine ? runtime::cached_this_machine()
                                                      : runtime::cached_gpu_calibration(hardware.name);
  if (measured && measured->load) hardware.sustained_clock = measured->hardware.sustained_clock;
}

void fill_this_machine(sim::Scenario& scenario, const runtime::EventSink& sink, std::stop_token stop) {
  if (scenario.hardware.name != kThisMachine || !scenario.hardware.peak.empty()) return;
  scenario.hardware = runtime::this_machine(sink, std::move(stop)).hardware;
  link_ranks(scenario);
}

namespace {

// The first calibration of a GPU that exists, in the order of the sources. Later sources are not read.
template <class... Sources>
std::optional<sim::Calibration> first_of(const std::string& gpu, const Sources&... sources) {
  std::optional<sim::Calibration> found;
  ((found = sources(gpu)) || ...);
  return found;
}

// The published calibration, as it ships or as the user has refitted it.
std::optional<sim::Calibration> published_calibration(const std::string& hardware) {
  std::optional<sim::Calibration> calibration = sim::load_calibration_preset(hardware);
  if (!calibration || !calibration->gpu) return calibration;
  if (const std::optional<sim::Refit> refit = runtime::cached_refit(hardware)) {
    sim::apply(*refit, *calibration->gpu);
    calibration->software += ", refitted to " + refit->rows_of;
    calibration->date = refit->date;
  }
  return calibration;
}

}  // namespace

std::optional<sim::Calibration> calibration_of(const sim::Hardware& hardware) {
  if (hardware.name != kThisMachine)
    return first_of(hardware.name, runtime::cached_gpu_calibration, published_calibration);
  if (hardware.devices_per_node > 1)
    if (auto of_ranks = runtime::cached_machine_of_ranks(hardware.devices_per_node);
        of_ranks && is_hardware_of(*of_ranks, hardware))
      return of_ranks;
  std::optional<sim::Calibration> calibration = runtime::cached_this_machine();
  if (calibration && !is_hardware_of(*calibration, hardware)) return std::nullopt;  // another machine's
  return calibration;
}

std::optional<sim::Calibration> calibration_of_runs(const sim::Hardware& hardware) {
  if (hardware.name != kThisMachine)
    return first_of(hardware.name, runtime::cached_gpu_calibration, sim::load_measured_preset,
                    sim::load_calibration_preset);
  return calibration_of(hardware);
}

void require_valid(const sim::Scenario& scenario) {
  const std::vector<sim::Problem> problems = sim::validate(scenario);
  if (!problems.empty()) throw ConstraintError(problems);
}

sim::Scenario default_scenario() {
  sim::Scenario scenario = sim::load_scenario_preset("train-gpt-10m-here");
  // Measuring takes a while, but a window must open at once.
  const std::optional<sim::Calibration> calibration = runtime::cached_this_machine();
  scenario.hardware = calibration ? calibration->hardware : sim::load_hardware_preset("h100-sxm");
  return scenario;
}

}  // namespace app::cli
