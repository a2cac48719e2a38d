#include "sim/validate/training_scenario.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "sim/plan/schedule.h"
#include "sim/scenario/expert_division.h"
#include "sim/scenario/fields.h"
#include "sim/scenario/preset.h"
#include "sim/validate/calibrated_device.h"
#include "sim/validate/network_names.h"
#include "sim/validate/row_model.h"
#include "sim/validate/software_names.h"
#include "sim/validate/table_words.h"

namespace sim {
namespace {

std::optional<int> count_if_given(const TableRow& row, std::string_view column) {
  const std::optional<std::int64_t> count = row.count_if_given(column);
  return count ? std::optional(static_cast<int>(*count)) : std::nullopt;
}

int degree(const TableRow& row, std::string_view column) {
  return count_if_given(row, column).value_or(1);
}

std::optional<int> zero_stage_in(std::string_view cell) {
  const bool is_digit = cell.size() == 1 && cell[0] >= '0' && cell[0] <= '3';
  const std::string stage = is_digit ? std::string(cell) : meaning("zero_stage", cell);
  return stage.empty() ? std::nullopt : std::optional(stage[0] - '0');
}

// "selective (every 2nd layer)": every second layer is recomputed whole, the others not at all.
bool every_second_layer(std::string_view recompute) {
  return meaning("recompute", recompute) == "every_second_layer";
}

Recompute recompute_of(const TableRow& row, const UsualRun& usual) {
  const std::string_view given = row.text("recompute"), cell = given.empty() ? usual.recompute : given;
  if (every_second_layer(cell) || row.flag_if_given("recompute") == true) return Recompute::full;
  return from_name<Recompute>(meaning("recompute", cell)).value_or(Recompute::none);
}

// The operations (words of plan/recompute.h) that selective recompute repeats: those that the column lists,
// or those of torchtitan's policy. Empty: the attention core.
std::vector<std::string> recomputed_operations(const TableRow& row, const Implementation& stack) {
  std::vector<std::string> operations = words_in(row.text("recomputed_operations"));
  if (operations.empty() && stack.selective_by_operation)
    return {"norm", "qkv", "attention_output", "mlp_up", "activation"};
  return operations;
}

DType precision_of(const TableRow& row, const Hardware& hardware) {
  const std::string word = meaning("dtype", row.text("precision"));
  if (word.empty()) return DType::bf16;
  const DType dtype = *from_name<DType>(word);
  if (dtype == DType::fp8 && !hardware.has_peak_for(dtype))
    throw CannotPredict("the gpu computes nothing in fp8");
  return dtype;
}

// The network is part of the device: instances with Elastic Fabric Adapters are devices of their own. Where
// the row says nothing of its network, the board is the one that runs of the software have.
std::string gpu_of(const TableRow& row, const UsualRun& usual) {
  const std::string gpu(row.text("gpu")), network(row.text("interconnect"));
  if (const std::string word = meaning("network_of_device", network); !word.empty()) return gpu + " " + word;
  const std::optional<std::string> preset = hardware_preset_of(gpu);
  const auto board = usual.hardware.find(preset.value_or(""));
  return board == usual.hardware.end() || !network.empty() ? gpu : board->second;
}

// As many sequences as a micro-batch needs for full speed.
std::int64_t full_micro_batch(const TableRow& row) {
  constexpr double kTokens = 16384;
  return std::max<std::int64_t>(
      1, static_cast<std::int64_t>(kTokens / row.number_if_given("seq_len").value_or(kTokens)));
}

std::int64_t largest_divisor(std::int64_t of, std::int64_t at_most) {
  std::int64_t divisor = std::min(of, at_most);
  while (of % divisor != 0) --divisor;
  return divisor;
}

struct Batch {
  std::int64_t micro = 1, global = 1;
  bool guessed = false;
};

Batch batch_of(const TableRow& row, const UsualRun& usual, const Strategy& s) {
  const auto micro = count_if_given(row, "micro_batch"), global = count_if_given(row, "global_batch");
  const std::int64_t replicas = s.data_parallel;
  const std::int64_t share = global ? std::max<std::int64_t>(1, *global / replicas) : 0;
  Batch b;
  if (micro)
    b.micro = *micro;
  else if (!global)
    b.micro = full_micro_batch(row);
  else if (s.pipeline_parallel == 1)
    b.micro = usual.accumulates ? largest_divisor(share, full_micro_batch(row)) : share;
  if (global) {
    b.global = share * replicas;
    // A batch that does not divide was rounded by the row: take the largest micro-batch that divides it.
    if (*global % (b.micro * replicas) != 0) b.micro = std::gcd(b.micro, share);
  } else {
    b.guessed = true;
    b.global = b.micro * replicas * (s.pipeline_parallel > 1 ? 4 * s.pipeline_parallel : 1);
  }
  return b;
}

// The strategy whose degrees the row gives, as its software runs it.
void set_strategy(const TableRow& row, Scenario& s) {
  const UsualRun& usual = s.implementation.usual;
  Strategy& p = s.strategy;
  const int gpus = static_cast<int>(row.count("num_gpus"));
  p.tensor_parallel = degree(row, "tp");
  p.pipeline_parallel = degree(row, "pp");
  p.context_parallel = degree(row, "cp");
  p.expert_parallel = degree(row, "ep");
  const bool staged = p.pipeline_parallel > 1;
  const int layers_of_stage =
      static_cast<int>(std::max<std::int64_t>(1, s.model.num_hidden_layers / p.pipeline_parallel));
  const bool by_layer = usual.interleaves_layers && row.text("vpp").empty();
  p.virtual_pipeline = !staged ? 1 : by_layer ? layers_of_stage : degree(row, "vpp");
  p.schedule = !row.text("schedule").empty() ? row.text("schedule")
               : p.virtual_pipeline > 1      ? "interleaved"
                                             : "1f1b";
  p.expert_dispatch = usual_dispatch(s.model);
  const int model_ranks = p.tensor_parallel * p.pipeline_parallel * p.context_parallel;
  if (gpus % model_ranks != 0) throw CannotPredict("tp x pp x cp does not divide num_gpus");
  p.data_parallel = gpus / model_ranks;
  p.sequence_parallel =
      p.tensor_parallel > 1 && row.flag_if_given("sequence_parallel").value_or(usual.sequence_parallel);
  p.zero_stage = zero_stage_in(row.text("zero_stage")).value_or(usual.zero_stage);
  if (staged && p.zero_stage > 1 && usual.zero_stage_in_pipelines > 0)
    p.zero_stage = usual.zero_stage_in_pipelines;
  if (p.data_parallel * p.context_parallel == 1) p.zero_stage = 0;
  p.recompute = recompute_of(row, usual);
  if (every_second_layer(row.text("recompute"))) s.implementation.recomputed_layers = 0.5;
  if (p.recompute != Recompute::selective) return;
  p.recompute_operations = recomputed_operations(row, s.implementation);
  if (!p.recompute_operations.empty()) p.recompute = Recompute::operations;
}

// LoRA, where the row has a rank; targets and types by the words of the fields.
void set_adapters(const TableRow& row, Workload& w) {
  w.lora_rank = count_if_given(row, "lora_rank").value_or(0);
  if (const std::vector<std::string> targets = words_in(row.text("lora_targets")); !targets.empty())
    w.lora_targets = targets;
  const std::string_view frozen = row.text("frozen_weights");
  if (frozen.empty()) return;
  const auto type = from_name<FrozenWeights>(frozen);
  if (!type) throw CannotPredict("frozen_weights must be " + listed(words_of<FrozenWeights>()));
  w.frozen_weights = *type;
}

// The row's run by one preset's software; on a network that does not stall, unless the row says that it did.
Scenario scenario_of(const TableRow& row, const std::string& preset, bool& guessed_batch) {
  Scenario s;
  s.implementation = load_implementation_preset(preset);
  s.model = model_of_row(row);
  s.hardware = calibrated_device(gpu_of(row, s.implementation.usual)).hardware;
  s.hardware.devices_per_node = count_if_given(row, "gpus_per_node").value_or(s.hardware.devices_per_node);
  if (const auto link = network_link_of(row.text("interconnect"), s.hardware.devices_per_node))
    s.hardware.network_link = *link;
  if (meaning("attention", row.text("attention")) == "flash")
    s.implementation.attention = AttentionKind::flash;
  s.implementation.pipeline.stalls = row.flag_if_given("stalled").value_or(false);
  set_strategy(row, s);

  Workload& w = s.workload;
  Strategy& p = s.strategy;
  w.task = Task::train;
  complete_expert_division(s, {.sequence_parallel = !row.text("sequence_parallel").empty()});
  w.dtype = precision_of(row, s.hardware);
  w.seq_len = count_if_given(row, "seq_len").value_or(static_cast<int>(s.model.max_position_embeddings));
  if (s.model.position == Position::learned)
    s.model.max_position_embeddings = std::max(s.model.max_position_embeddings, w.seq_len);
  const Batch batch = batch_of(row, s.implementation.usual, p);
  w.micro_batch_size = batch.micro;
  w.global_batch_size = batch.global;
  guessed_batch = batch.guessed;
  set_adapters(row, w);

  // An interleaved schedule of micro-batches that the stages do not divide runs as the plain one.
  const auto micro_batches = w.global_batch_size / (w.micro_batch_size * p.data_parallel);
  if (p.virtual_pipeline > 1 &&
      !schedule_problems(p.schedule, p.pipeline_parallel, p.virtual_pipeline, micro_batches).empty()) {
    p.schedule = "1f1b";
    p.virtual_pipeline = 1;
  }
  require_legal(s);
  return s;
}

bool may_stall(const TableRow& row, const Scenario& s) {
  return row.text("stalled").empty() && s.implementation.pipeline.stall.value > 0 &&
         s.strategy.devices() > s.hardware.devices_per_node &&
         s.strategy.pipeline_parallel * s.strategy.tensor_parallel > 1;
}

// Only fp16 training has fp16 gradients.
bool can_be(const TableRow& row, const Scenario& s) {
  return row.text("precision").empty() || s.implementation.gradient_dtype != DType::fp16 ||
         s.workload.dtype == DType::fp16;
}

NamedSoftware software_of(const TableRow& row) {
  if (const std::string preset(row.text("implementation")); !preset.empty()) {
    const std::vector<std::string> known = preset_names(PresetKind::implementation);
    if (std::ranges::find(known, preset) == known.end())
      throw CannotPredict("implementation \"" + preset + "\" is no preset");
    return {{preset}};
  }
  // Where the framework is not named, the source or the id may tell which software it was.
  for (const char* column : {"framework", "source", "id"})
    if (!row.text(column).empty()) return training_software(row.text(column), row.text("date"));
  return training_software("", row.text("date"));
}

}  // namespace

ExpertDispatch usual_dispatch(const Model& model) {
  return model.moe.topk_group < model.moe.n_group ? ExpertDispatch::each_node : ExpertDispatch{};
}

TrainingRow training_row(const TableRow& row) {
  const NamedSoftware software = software_of(row);
  TrainingRow result;
  result.nearest_stack = software.nearest;
  result.guessed_micro_batch = row.text("micro_batch").empty() && row.text("global_batch").empty();
  for (const std::string& preset : software.presets) {
    Scenario s = scenario_of(row, preset, result.guessed_batch);
    if (!can_be(row, s) && &preset != &software.presets.back()) continue;
    result.modes.push_back(s);
    if (result.guessed_micro_batch && s.workload.micro_batch_size > 1) {
      Scenario least = s;
      least.workload.global_batch_size /= least.workload.micro_batch_size;
      least.workload.micro_batch_size = 1;
      result.modes.push_back(std::move(least));
    }
    if (!may_stall(row, s)) continue;
    s.implementation.pipeline.stalls = true;
    result.modes.push_back(std::move(s));
  }
  result.calibration = &calibrated_device(result.scenario().hardware.name);
  return result;
}

}  // namespace sim
