#include "app/cli/scenario_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/cli/exit_code.h"
#include "app/cli/flags.h"
#include "runtime/cuda_backend.h"
#include "runtime/error.h"
#include "runtime/gpu_calibration.h"
#include "runtime/run.h"
#include "runtime/this_machine.h"
#include "sim/cost/calibration_preset.h"
#include "sim/plan/legality.h"
#include "sim/plan/recompute.h"
#include "sim/plan/schedule.h"
#include "sim/scenario/preset.h"

namespace app::cli {

namespace {

constexpr std::string_view kThisMachine = "this-machine";
constexpr std::string_view kOurImplementation = "ridgepoint";

// What a flag names does not exist: the flag is wrong, not a file.
template <typename Load>
auto by_flag(std::string_view flag, Load load) {
  try {
    return load();
  } catch (const sim::PresetError& e) {
    throw UsageError(fmt::format("{}: {}", flag, e.what()));
  }
}

runtime::ModelSource open_model_flag(const std::string& name_or_path) {
  if (std::filesystem::exists(name_or_path)) return runtime::open_model(name_or_path);
  try {
    return runtime::open_model(name_or_path);
  } catch (const std::runtime_error& e) {
    // A name of nothing is the flag's fault; a pretrained model that is not here yet is a missing file.
    const auto pretrained = runtime::pretrained_models();
    const bool known = std::any_of(pretrained.begin(), pretrained.end(),
                                   [&](const runtime::PretrainedModel& m) { return m.name == name_or_path; });
    if (known) throw;
    throw UsageError(fmt::format("--model: {}", e.what()));
  }
}

// The source of a scenario's own model: what its name opens, if that is the same model, else its shape alone.
runtime::ModelSource source_of(const sim::Model& model) {
  try {
    runtime::ModelSource source = runtime::open_model(model.name);
    if (source.model == model) return source;
  } catch (const std::runtime_error&) {
    // A name of its own: a shape without weights.
  }
  return {model, "scenario", std::nullopt, {}};
}

sim::Task task_from(const std::string& text) {
  if (const auto task = sim::task_from_name(text)) return *task;
  throw UsageError(fmt::format("--task is train or generate, not \"{}\"", text));
}

sim::Recompute recompute_from(const std::string& text) {
  if (const auto recompute = sim::recompute_from_name(text)) return *recompute;
  throw UsageError(fmt::format("--recompute is none, selective, full, sqrt or operations, not \"{}\"", text));
}

sim::ContextParallelComm context_parallel_comm_from(const std::string& text) {
  if (const auto comm = sim::context_parallel_comm_from_name(text)) return *comm;
  throw UsageError(fmt::format("--cp-comm is all_gather, ring or all_to_all, not \"{}\"", text));
}

sim::ExpertDispatch expert_dispatch_from(const std::string& text) {
  if (const auto dispatch = sim::expert_dispatch_from_name(text)) return *dispatch;
  throw UsageError(fmt::format("--expert-dispatch is each_expert or each_node, not \"{}\"", text));
}

sim::Optimizer optimizer_from(const std::string& text) {
  if (const auto optimizer = sim::optimizer_from_name(text)) return *optimizer;
  throw UsageError(fmt::format("--optimizer is adamw, adamw_8bit, adafactor, muon or sgd, not \"{}\"", text));
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  while (true) {
    const std::size_t comma = text.find(',');
    words.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return words;
    text.remove_prefix(comma + 1);
  }
}

// Names, as a flag's help lists them.
template <typename Names>
std::string listed(const Names& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

sim::DType dtype_from(const std::string& text, std::string_view flag = "--dtype") {
  if (const auto dtype = sim::dtype_from_name(text)) return *dtype;
  throw UsageError(fmt::format("{} is fp32, tf32, bf16, fp16, fp8, int8 or int4, not \"{}\"", flag, text));
}

int degree(const std::optional<std::int64_t>& flag, int otherwise) {
  if (!flag) return otherwise;
  return static_cast<int>(
      std::clamp<std::int64_t>(*flag, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()));
}

void apply_strategy(const ScenarioFlags& flags, sim::Strategy& strategy) {
  strategy.tensor_parallel = degree(flags.tensor_parallel, strategy.tensor_parallel);
  strategy.pipeline_parallel = degree(flags.pipeline_parallel, strategy.pipeline_parallel);
  strategy.context_parallel = degree(flags.context_parallel, strategy.context_parallel);
  strategy.expert_parallel = degree(flags.expert_parallel, strategy.expert_parallel);
  strategy.expert_tensor_parallel = degree(flags.expert_tensor_parallel, strategy.expert_tensor_parallel);
  strategy.virtual_pipeline = degree(flags.virtual_pipeline, strategy.virtual_pipeline);
  strategy.zero_stage = degree(flags.zero_stage, strategy.zero_stage);
  strategy.data_parallel = degree(flags.data_parallel, strategy.data_parallel);
  strategy.sequence_parallel = flags.sequence_parallel.value_or(strategy.sequence_parallel);
  strategy.schedule = flags.schedule.value_or(strategy.schedule);
  strategy.rank_order = flags.rank_order.value_or(strategy.rank_order);
  strategy.shard_group = degree(flags.shard_group, strategy.shard_group);
  strategy.prefetch = degree(flags.prefetch, strategy.prefetch);
  strategy.gradient_bucket = flags.gradient_bucket.value_or(strategy.gradient_bucket);
  if (flags.expert_dispatch) strategy.expert_dispatch = expert_dispatch_from(*flags.expert_dispatch);
  if (flags.context_parallel_comm)
    strategy.context_parallel_comm = context_parallel_comm_from(*flags.context_parallel_comm);
  if (flags.recompute) strategy.recompute = recompute_from(*flags.recompute);
  strategy.recompute_interval = degree(flags.recompute_interval, strategy.recompute_interval);
  if (flags.recompute_operations) {
    strategy.recompute_operations = words_of(*flags.recompute_operations);
    if (!flags.recompute) strategy.recompute = sim::Recompute::operations;
  }
  strategy.offload_optimizer = flags.offload_optimizer.value_or(strategy.offload_optimizer);
  strategy.offload_activations = flags.offload_activations.value_or(strategy.offload_activations);
  if (!flags.gpus) return;
  // --gpus alone is data parallelism over what the other degrees leave.
  const std::int64_t model_parallel =
      std::int64_t{strategy.tensor_parallel} * strategy.pipeline_parallel * strategy.context_parallel;
  if (!flags.data_parallel && model_parallel > 0 && *flags.gpus % model_parallel == 0)
    strategy.data_parallel = degree(*flags.gpus / model_parallel, 1);
  if (model_parallel * strategy.data_parallel != *flags.gpus)
    throw ConstraintError(
        {{"gpus", fmt::format("{} devices are not dp {} x tp {} x pp {} x cp {} = {}", *flags.gpus,
                              strategy.data_parallel, strategy.tensor_parallel, strategy.pipeline_parallel,
                              strategy.context_parallel, model_parallel * strategy.data_parallel)}});
}

void apply_workload(const ScenarioFlags& flags, const sim::Model& model, int data_parallel,
                    sim::Workload& workload) {
  const bool asks_for_tokens =
      flags.batch_size || flags.prompt_length || flags.max_new_tokens || flags.no_kv_cache;
  if (flags.task) {
    workload.task = task_from(*flags.task);
  } else if (asks_for_tokens) {
    workload.task = sim::Task::generate;
  }
  if (flags.dtype) workload.dtype = dtype_from(*flags.dtype);
  if (flags.optimizer) workload.optimizer = optimizer_from(*flags.optimizer);

  if (flags.seq_len) {
    workload.seq_len = *flags.seq_len;
  } else if (!flags.scenario && model.max_position_embeddings > 0) {
    workload.seq_len = std::min(workload.seq_len, model.max_position_embeddings);
  }
  if (flags.micro_batch) {
    workload.micro_batch_size = *flags.micro_batch;
    if (!flags.global_batch) workload.global_batch_size = *flags.micro_batch * data_parallel;
  } else if (!flags.scenario) {
    workload.global_batch_size = workload.micro_batch_size * data_parallel;
  }
  if (flags.global_batch) workload.global_batch_size = *flags.global_batch;

  workload.batch_size = flags.batch_size.value_or(workload.batch_size);
  workload.prompt_length = flags.prompt_length.value_or(workload.prompt_length);
  workload.max_new_tokens = flags.max_new_tokens.value_or(workload.max_new_tokens);
  if (flags.no_kv_cache) workload.kv_cache = false;
  if (flags.weights_dtype) workload.weights_dtype = dtype_from(*flags.weights_dtype, "--weights-dtype");
  if (flags.kv_dtype) workload.kv_dtype = dtype_from(*flags.kv_dtype, "--kv-dtype");
  workload.weights_group = flags.weights_group.value_or(workload.weights_group);
}

sim::Scenario base_scenario(const ScenarioFlags& flags) {
  if (!flags.scenario) {
    sim::Scenario scenario;
    scenario.implementation = sim::load_implementation_preset(kOurImplementation);
    return scenario;
  }
  const std::string& name = *flags.scenario;
  if (name == "-" || std::filesystem::exists(name)) return read_scenario(read_file(name), name);
  return by_flag("--scenario", [&] { return sim::load_scenario_preset(name); });
}

// Throws runtime::NoDevice with the reason why no GPU can be used.
void require_gpu(const std::string& flag) {
  const runtime::CudaStatus status = runtime::cuda_status();
  if (status.gpus.empty())
    throw runtime::NoDevice(fmt::format("--device {}: {}; cpu is what runs here", flag, status.sentence));
}

// Everything but the hardware.
ResolvedScenario resolve_work(const ScenarioFlags& flags) {
  ResolvedScenario resolved;
  resolved.scenario = base_scenario(flags);
  sim::Scenario& scenario = resolved.scenario;
  if (flags.model) {
    resolved.source = open_model_flag(*flags.model);
  } else if (flags.scenario) {
    resolved.source = source_of(scenario.model);
  } else {
    throw UsageError(
        "--model says which model: a preset such as gpt2-124m, a folder with config.json, or a GGUF file");
  }
  scenario.model = resolved.source.model;
  if (flags.implementation)
    scenario.implementation =
        by_flag("--implementation", [&] { return sim::load_implementation_preset(*flags.implementation); });
  scenario.implementation.head_chunks = degree(flags.head_chunks, scenario.implementation.head_chunks);
  if (flags.workload)
    scenario.workload = by_flag("--workload", [&] { return sim::load_workload_preset(*flags.workload); });
  apply_strategy(flags, scenario.strategy);
  apply_workload(flags, scenario.model, scenario.strategy.data_parallel, scenario.workload);
  if (flags.kv_block) {
    sim::Implementation& engine = scenario.implementation;
    (engine.serving ? engine.serving->kv_block : scenario.workload.kv_block) = *flags.kv_block;
  }
  return resolved;
}

// What is known of its hardware's kernels; and of its clock, where that was measured here.
void calibrate(ResolvedScenario& resolved) {
  sim::Hardware& hardware = resolved.scenario.hardware;
  resolved.calibration = calibration_of(hardware);
  if (resolved.calibration && resolved.calibration->load)
    hardware.sustained_clock = resolved.calibration->hardware.sustained_clock;
}

}  // namespace

void ScenarioFlags::add_to(CLI::App& command) {
  const auto text = [&](const char* flag, std::optional<std::string>& value, const char* type,
                        const char* help) {
    command.add_option(flag, value, help)->type_name(type)->group("Scenario");
  };
  const auto count = [&](const char* flag, std::optional<std::int64_t>& value, const char* group,
                         const char* help, bool binary_k = false) {
    add_count(command, flag, value, help, binary_k)->group(group);
  };
  text("--scenario", scenario, "FILE|PRESET", "where unset flags come from; - is stdin");
  text("--model", model, "PRESET|DIR|GGUF",
       "a preset, a Hugging Face folder, a GGUF file or a pretrained model");
  text("--hardware", hardware, "PRESET", "h100-sxm, a100-sxm-80gb, this-machine, ...");
  text("--implementation", implementation, "PRESET",
       "who carries the work out: ridgepoint (default), pytorch_eager, ...");
  text("--device", device, "cpu|cuda|cuda:N", "what a real run is executed on; cuda is the first GPU");
  text("--workload", workload, "PRESET", "lengths and batch sizes by name");
  text("--task", task, "train|generate", "what is asked of the model");
  text("--dtype", dtype, "TYPE", "of matrix products: fp32, tf32, bf16, fp16, fp8, ...");
  text("--recompute", recompute, "none|selective|full|sqrt|operations",
       "activations computed again in the backward pass");

  count("--seq-len", seq_len, "Training", "tokens of a sequence; 8k is 8,192", true);
  count("--micro-batch", micro_batch, "Training",
        "sequences a device works on at a time; alone it is the global batch too");
  count("--global-batch", global_batch, "Training", "sequences of a step");
  count("--head-chunks", head_chunks, "Training",
        "parts of a micro-batch's rows that head and loss work on in turn, so that only one's logits are "
        "stored");

  count("--prompt-length", prompt_length, "Generation", "tokens of the prompt", true);
  count("--max-new-tokens", max_new_tokens, "Generation", "tokens to generate", true);
  count("--batch-size", batch_size, "Generation", "sequences generated at a time");
  text("--weights-dtype", weights_dtype, "TYPE",
       "how weights are stored: fp8, int8, int4; unset: as --dtype");
  count("--weights-group", weights_group, "Generation", "weights that share a scale; 0: a whole row");
  text("--kv-dtype", kv_dtype, "TYPE", "of the KV cache: fp8, int8; unset: as --dtype");
  count("--kv-block", kv_block, "Generation", "tokens of a block of the KV cache; 0: contiguous");
  command.add_flag("--no-kv-cache", no_kv_cache, "compute the whole sequence again for every token")
      ->group("Generation");

  count("--gpus", gpus, "Strategy",
        "devices; without --dp the other degrees leave the rest to data parallelism");
  count("--dp", data_parallel, "Strategy", "data parallel degree");
  count("--tp", tensor_parallel, "Strategy", "tensor parallel degree");
  count("--pp", pipeline_parallel, "Strategy", "pipeline stages");
  count("--cp", context_parallel, "Strategy", "context parallel degree");
  count("--ep", expert_parallel, "Strategy", "expert parallel degree");
  count("--etp", expert_tensor_parallel, "Strategy", "devices that share an expert: 0 as --tp, or 1");
  count("--vpp", virtual_pipeline, "Strategy", "chunks a pipeline stage holds");
  count("--zero", zero_stage, "Strategy", "ZeRO stage: 0, 1, 2 or 3");
  // Neither is given: what a scenario says stays.
  const auto choice = [&](const std::string& flag, std::optional<bool>& value, const char* help) {
    command
        .add_flag_function(
            fmt::format("--{0},!--no-{0}", flag), [&value](std::int64_t given) { value = given > 0; }, help)
        ->group("Strategy");
  };
  choice("sequence-parallel", sequence_parallel, "split norms along the sequence beside tensor parallelism");
  const auto strategy_text = [&](const char* flag, std::optional<std::string>& value, const char* type,
                                 const std::string& help) {
    command.add_option(flag, value, help)->type_name(type)->group("Strategy");
  };
  strategy_text("--schedule", schedule, "NAME", "of the pipeline: " + listed(sim::schedule_names()));
  count("--shard-group", shard_group, "Strategy",
        "ranks that ZeRO divides states over (hybrid sharding); 0: all data-parallel ranks");
  count("--prefetch", prefetch, "Strategy", "ZeRO 3: units whose parameters are gathered ahead");
  count("--gradient-bucket", gradient_bucket, "Strategy",
        "bytes of layers' gradients reduced as one message; 0: a layer's");
  strategy_text("--expert-dispatch", expert_dispatch, "each_expert|each_node",
                "copies of a token that cross between nodes: one for each expert, or for each node");
  strategy_text("--cp-comm", context_parallel_comm, "all_gather|ring|all_to_all",
                "how context-parallel ranks see each other's keys and values");
  strategy_text("--rank-order", rank_order, "ORDER",
                "which ranks are neighbours, nearest first: tp-cp-ep-dp-pp (default), tp-cp-pp-ep-dp, ...");
  count("--recompute-interval", recompute_interval, "Strategy",
        "with --recompute full: layers between inputs that are kept");
  strategy_text("--recompute-operations", recompute_operations, "LIST",
                "what is computed again, by commas: " + listed(sim::recompute_words()));
  strategy_text("--optimizer", optimizer, "NAME", "adamw (default), adamw_8bit, adafactor, muon or sgd");
  choice("offload-optimizer", offload_optimizer, "states live in the host's memory, which updates");
  choice("offload-activations", offload_activations, "what is kept for backward waits in the host's memory");
}

ResolvedScenario resolve_unchecked(const ScenarioFlags& flags, const runtime::EventSink& sink,
                                   std::stop_token stop) {
  ResolvedScenario resolved = resolve_work(flags);
  const std::string hardware = flags.hardware.value_or(flags.scenario ? "" : "h100-sxm");
  if (hardware == kThisMachine) {
    resolved.scenario.hardware = {};
    resolved.scenario.hardware.name = kThisMachine;
    // This machine's kernels compute in fp32.
    if (!flags.dtype && !flags.scenario) resolved.scenario.workload.dtype = sim::DType::fp32;
  } else if (!hardware.empty()) {
    resolved.scenario.hardware = by_flag("--hardware", [&] { return sim::load_hardware_preset(hardware); });
  }
  fill_this_machine(resolved.scenario, sink, std::move(stop));
  calibrate(resolved);
  return resolved;
}

ResolvedScenario resolve_for_prediction(const ScenarioFlags& flags, const runtime::EventSink& sink,
                                        std::stop_token stop) {
  ResolvedScenario resolved = resolve_unchecked(flags, sink, std::move(stop));
  require_valid(resolved.scenario);
  return resolved;
}

ResolvedScenario resolve_for_run(const ScenarioFlags& flags, sim::Task task) {
  const bool on_gpu = device_of(flags.device).kind == runtime::DeviceChoice::Kind::cuda;
  if (on_gpu) require_gpu(*flags.device);
  if (flags.hardware && *flags.hardware != kThisMachine)
    throw runtime::NoDevice(fmt::format(
        "--hardware: a run is on this machine; what it would be on {} is said by ridgepoint predict",
        *flags.hardware));
  if (flags.task && task_from(*flags.task) != task)
    throw UsageError("--task: train and generate are commands of their own");
  ResolvedScenario resolved = resolve_work(flags);
  resolved.scenario.workload.task = task;
  if (!flags.dtype) resolved.scenario.workload.dtype = on_gpu ? sim::DType::bf16 : sim::DType::fp32;
  return resolved;
}

sim::Hardware hardware_of_gpu(int ordinal) {
  const runtime::CudaStatus status = runtime::cuda_status();
  const std::vector<std::string>& gpus = status.gpus;
  if (gpus.empty()) throw runtime::NoDevice(fmt::format("--device cuda: {}", status.sentence));
  if (ordinal >= static_cast<int>(gpus.size()))
    throw runtime::NoDevice(
        fmt::format("--device cuda:{}: this machine has {} GPUs, counted from 0", ordinal, gpus.size()));
  const std::string& name = gpus[static_cast<std::size_t>(ordinal)];
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

void place_here(ResolvedScenario& resolved, const runtime::DeviceChoice& device,
                const runtime::EventSink& sink, std::stop_token stop) {
  sim::Scenario& scenario = resolved.scenario;
  scenario.hardware = {};  // what is wrong with it is no matter: it will be this machine
  std::vector<sim::Problem> problems = sim::validate(scenario);
  std::erase_if(problems, [](const sim::Problem& problem) { return problem.field.starts_with("hardware."); });
  if (!problems.empty()) throw ConstraintError(problems);
  if (device.kind == runtime::DeviceChoice::Kind::cuda) {
    scenario.hardware = hardware_of_gpu(device.ordinal);
    calibrate(resolved);
  } else {
    // Before this machine is measured for it, which takes a while.
    runtime::require_runnable(scenario, *runtime::make_cpu_device(device.threads));
    resolved.calibration = runtime::this_machine(sink, std::move(stop));
    scenario.hardware = resolved.calibration->hardware;
  }
  require_valid(scenario);
}

sim::Scenario read_scenario(const std::string& json, const std::string& file) {
  nlohmann::json parts = nlohmann::json::parse(json, nullptr, false);
  // What is no JSON object is for sim's reader to explain.
  if (!parts.is_object() || !parts.contains("model") || !parts["model"].is_string())
    return sim::scenario_from_json(json, file);
  // A pretrained model is known to the runtime alone.
  const std::string name = parts["model"].get<std::string>();
  for (const runtime::PretrainedModel& pretrained : runtime::pretrained_models())
    if (pretrained.name == name)
      parts["model"] = nlohmann::json::parse(sim::to_json(runtime::open_model(name).model));
  return sim::scenario_from_json(parts.dump(), file);
}

void fill_this_machine(sim::Scenario& scenario, const runtime::EventSink& sink, std::stop_token stop) {
  if (scenario.hardware.name == kThisMachine && scenario.hardware.peak.empty())
    scenario.hardware = runtime::this_machine(sink, std::move(stop)).hardware;
}

std::optional<sim::Calibration> calibration_of(const sim::Hardware& hardware) {
  if (hardware.name != kThisMachine) {
    if (auto measured_here = runtime::cached_gpu_calibration(hardware.name)) return measured_here;
    return sim::load_calibration_preset(hardware.name);
  }
  std::optional<sim::Calibration> calibration = runtime::cached_this_machine();
  if (calibration && calibration->hardware != hardware) return std::nullopt;  // another machine's
  return calibration;
}

void require_valid(const sim::Scenario& scenario) {
  const std::vector<sim::Problem> problems = sim::validate(scenario);
  if (!problems.empty()) throw ConstraintError(problems);
}

sim::Scenario default_scenario() {
  sim::Scenario scenario = sim::load_scenario_preset("train-gpt-10m-here");
  // Measuring takes a while, and a window must open at once.
  const std::optional<sim::Calibration> calibration = runtime::cached_this_machine();
  scenario.hardware = calibration ? calibration->hardware : sim::load_hardware_preset("h100-sxm");
  return scenario;
}

}  // namespace app::cli
