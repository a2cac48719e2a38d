#include "sim/validate/training_scenario.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>

#include "sim/plan/legality.h"
#include "sim/plan/schedule.h"
#include "sim/scenario/preset.h"
#include "sim/validate/calibrated_device.h"
#include "sim/validate/network_names.h"
#include "sim/validate/row_model.h"
#include "sim/validate/stack_names.h"
#include "sim/validate/text_search.h"

namespace sim {
namespace {

std::optional<int> count_if_given(const TableRow& row, std::string_view column) {
  const std::optional<double> number = row.number_if_given(column);
  if (!number) return std::nullopt;
  constexpr double kMost = 1 << 24;
  if (*number < 1 || *number > kMost || *number != std::floor(*number))
    throw CannotPredict(std::string(column) + " must be a whole number of 1 or more");
  return static_cast<int>(*number);
}

int degree(const TableRow& row, std::string_view column) {
  return count_if_given(row, column).value_or(1);
}

// The number after one of the words: "grad_accum=16", "local batch 2 per DP rank".
std::optional<int> number_after(std::string_view text, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words) {
    const std::size_t at = text.find(word);
    if (at == std::string_view::npos) continue;
    std::size_t i = at + word.size();
    const auto is_digit = [&] { return i < text.size() && text[i] >= '0' && text[i] <= '9'; };
    constexpr std::size_t kNear = 24;  // "local (per DP rank) batch 32"
    while (i < text.size() && i < at + word.size() + kNear && !is_digit() && text[i] != ';') ++i;
    int value = 0;
    if (is_digit() && std::from_chars(text.data() + i, text.data() + text.size(), value).ec == std::errc() &&
        value > 0)
      return value;
  }
  return std::nullopt;
}

std::optional<int> zero_stage_in(std::string_view cell) {
  const std::string z = lower(cell);
  if (says_any(z, "fsdp=true")) return 3;
  if (says_any(z, "zero3", "zero-3", "zero 3", "full_shard", "stage 3")) return 3;
  if (says_any(z, "zero2", "zero-2", "zero 2", "shard_grad_op", "stage 2")) return 2;
  if (says_any(z, "zero1", "zero-1", "zero 1", "distributed optimizer", "dist", "stage 1")) return 1;
  if (says_any(z, "zero0", "zero-0", "none", "ddp")) return 0;
  if (says_any(z, "fsdp", "hsdp")) return 3;
  if (z.size() == 1 && z[0] >= '0' && z[0] <= '3') return z[0] - '0';
  return std::nullopt;
}

// What a stack does where a row does not say: NVIDIA's recipes shard the optimizer, FSDP shards everything.
int usual_zero_stage(const std::string& stack) {
  if (stack.starts_with("mcore_te") || stack == "llmc" || stack == "internevo_2024" || stack == "gpt_neox" ||
      stack == "megatron_deepspeed" || stack == "megascale" || stack == "flash_script")
    return 1;
  const bool shards_all = stack.starts_with("torchtitan") || stack.starts_with("llm_foundry") ||
                          stack.starts_with("hf_") || stack == "fms_fsdp" || stack == "olmo_core" ||
                          stack == "easycontext" || stack == "metaseq" || stack.starts_with("maxtext") ||
                          stack.starts_with("pax") || stack == "lit_gpt";
  return shards_all ? 3 : 0;
}

// FSDP in Llama 3's pipeline: parameters stay gathered from the first micro-batch to the last (arXiv
// 2407.21783, section 3.3.2), and what micro-batches add to gradients is reduced once, with the last, as
// PyTorch's pipelines do (torch/distributed/pipelining/stage.py, backward_maybe_with_nosync). What is
// exchanged, and when, is then that of ZeRO 1.
bool exchanges_once_in_pipeline(const std::string& stack) {
  return stack == "meta_2024";
}

Recompute recompute_in(std::string_view cell, const std::string& stack) {
  const std::string r = lower(cell);
  if (says(r, "full") || says_any(r, "every 2nd", "every second", "every other")) return Recompute::full;
  if (says(r, "selective") || says(r, "core_attn")) return Recompute::selective;
  if (r == "y" || r == "yes" || r == "true" || says(r, "checkpoint") || says(r, "block"))
    return Recompute::full;
  if (r.empty() && (stack == "easycontext" || stack == "colossalai" || stack == "megatron_2021" ||
                    stack == "gpt_neox" || stack == "metaseq"))
    return Recompute::full;
  // Its Llama configurations select by operation unless told otherwise.
  if (r.empty() && stack.starts_with("torchtitan")) return Recompute::selective;
  return Recompute::none;
}

// What "selective" means to a stack that names operations (words of plan/recompute.h): torchtitan's policy,
// or LLMQ's flags. Empty: the attention core.
std::vector<std::string> recomputed_operations(const Implementation& stack, const std::string& notes) {
  if (stack.selective_by_operation) return {"norm", "qkv", "attention_output", "mlp_up", "activation"};
  std::vector<std::string> words;
  if (stack.name != "llmq") return words;
  if (says(notes, "--recompute-norm")) words.push_back("norm");
  if (says(notes, "--recompute-qkv")) words.push_back("qkv");
  if (says(notes, "--recompute-ffn")) words.push_back("mlp_up");
  if (says_any(notes, "--recompute-ffn", "--recompute-swiglu")) words.push_back("activation");
  return words;
}

DType dtype_in(std::string_view cell, const Hardware& hardware) {
  const std::string p = lower(cell);
  if (says_any(p, "fp8", "float8", "mxfp8")) {
    if (!hardware.has_peak_for(DType::fp8)) throw CannotPredict("the gpu computes nothing in fp8");
    return DType::fp8;
  }
  if (says_any(p, "bf16", "bfloat16")) return DType::bf16;  // "bf16 (fp32 gradients)"
  if (says_any(p, "fp16", "float16", "half")) return DType::fp16;
  if (says(p, "tf32")) return DType::tf32;
  if (says_any(p, "fp32", "float32")) return DType::fp32;
  return DType::bf16;
}

bool sequence_parallel_in(std::string_view cell, const std::string& stack) {
  const std::string s = lower(cell);
  if (s.starts_with("y") || s == "true" || s == "1") return true;
  if (!s.empty()) return false;
  return stack.starts_with("mcore_te") || stack.starts_with("nanotron") || stack.starts_with("torchtitan");
}

// Engines that fold a rank's whole share of the batch into one micro-batch unless told otherwise.
bool accumulates(const std::string& stack) {
  return !(stack.starts_with("torchtitan") || stack == "fms_fsdp" || stack == "easycontext");
}

// The network is part of the device. Hugging Face's cluster, on which nanotron was measured, and Amazon's
// instances have Elastic Fabric Adapters.
std::string gpu_of(const TableRow& row, const std::string& stack) {
  std::string gpu(row.text("gpu"));
  const std::string network = lower(row.text("interconnect"));
  const bool hugging_face = network.empty() && (stack == "nanotron_2025" || stack == "picotron");
  if (hugging_face || says_any(network, "efa", "aws", "p5")) gpu += " EFA";
  // torchtitan's authors measure on H100 of 96 GB and 500 W, also where they print another size.
  if (stack.starts_with("torchtitan") && gpu.starts_with("H100") &&
      !says(lower(row.text("notes")), "third-party"))
    return "H100-96GB HBM2e 2.4TB/s 500W";
  return gpu;
}

// As many sequences as make a micro-batch large enough for full speed, of those that divide a rank's share.
std::int64_t largest_micro_batch(const TableRow& row, std::int64_t share) {
  constexpr double kTokens = 16384;
  const double length = row.number_if_given("seq_len").value_or(kTokens);
  std::int64_t best = 1;
  for (std::int64_t micro = 1; micro <= share && static_cast<double>(micro) * length <= kTokens; ++micro)
    if (share % micro == 0) best = micro;
  return best;
}

struct Batch {
  std::int64_t micro = 1, global = 1;
  bool guessed = false;
};

Batch batch_of(const TableRow& row, const std::string& notes, const std::string& stack, const Strategy& s) {
  const auto micro = count_if_given(row, "micro_batch"), global = count_if_given(row, "global_batch");
  const auto accumulation = number_after(notes, {"grad_accum", "grad accum", "gradient accumulation"});
  const auto local = number_after(notes, {"local batch", "local (per dp rank) batch", "batch per dp rank",
                                          "max-batch bar", "per-gpu batch"});
  Batch b;
  const std::int64_t replicas = s.data_parallel;
  const std::int64_t share = global ? *global / replicas : local ? *local : 0;
  if (micro)
    b.micro = *micro;
  else if (share > 0 && accumulation && share % *accumulation == 0)
    b.micro = share / *accumulation;
  else if (share > 0 && s.pipeline_parallel == 1)
    b.micro = !global || !accumulates(stack) ? share : largest_micro_batch(row, share);
  if (global) {
    b.global = *global;
    // What does not divide is the row's own rounding: the largest micro-batch that does.
    if (share > 0 && b.global % (b.micro * replicas) != 0) b.micro = std::gcd(b.micro, share);
    b.global = std::max<std::int64_t>(1, share) * replicas;
  } else {
    b.guessed = !local && !accumulation;
    const std::int64_t rounds = accumulation ? *accumulation
                                : share > 0  ? std::max<std::int64_t>(1, share / b.micro)
                                             : std::int64_t{4} * s.pipeline_parallel;
    b.global = b.micro * replicas * (s.pipeline_parallel > 1 || accumulation || share > 0 ? rounds : 1);
  }
  return b;
}

}  // namespace

TrainingRow training_row(const TableRow& row) {
  const std::string notes = lower(row.text("notes"));
  const StackOfRow stack = stack_of(row.text("framework"), row.text("date"), notes,
                                    row.text(row.text("source").empty() ? "id" : "source"));
  const CalibratedDevice& device = calibrated_device(gpu_of(row, stack.preset));
  if (says(notes, "lora")) throw CannotPredict("low-rank adapters train other tensors than the model's");

  TrainingRow result;
  result.calibration = &device.calibration;
  result.nearest_stack = stack.nearest;
  Scenario& s = result.scenario;
  s.model = model_of_row(row);
  s.hardware = device.hardware;
  s.hardware.devices_per_node = count_if_given(row, "gpus_per_node").value_or(s.hardware.devices_per_node);
  if (const auto link = network_link_of(row.text("interconnect"), s.hardware.devices_per_node))
    s.hardware.network_link = *link;
  s.implementation = load_implementation_preset(stack.preset);
  // Its bf16 optimizer was written at the end of February 2022; BLOOM's engineers tried fp16 before.
  const bool in_fp16 = stack.preset == "megatron_deepspeed" && !row.text("date").empty() &&
                       row.text("date") < "2022-03" && !says(lower(row.text("precision")), "bf16");
  if (in_fp16) s.implementation = load_implementation_preset("megatron_deepspeed_fp16");
  // "bf16 PURE": FSDP reduces gradients in bf16; "DEFAULT" in fp32 (composer, get_mixed_precision).
  if (stack.preset.starts_with("llm_foundry") && says(notes, "pure"))
    s.implementation.data_parallel.reduction_dtype = DType::bf16;
  // "selective (every 2nd layer)": whole layers, and the others not at all.
  if (const std::string recompute = lower(row.text("recompute"));
      says_any(recompute, "every 2nd", "every second", "every other"))
    s.implementation.recomputed_layers = 0.5;
  // Scales by rows and columns are found in passes of their own, and stay with their rank (torchao, float8).
  if (stack.preset.starts_with("torchtitan") && says(lower(row.text("precision")), "rowwise")) {
    s.implementation.kernels.quantisation = {.input_bytes = 8, .weight_bytes = 8, .gradient_bytes = 8};
    s.implementation.data_parallel.gathers_fp8 = false;
  }
  const std::string attention = lower(row.text("attention"));
  if (says_any(attention, "flash", "cudnn", "fa2", "fa3")) s.implementation.attention = AttentionKind::flash;

  Strategy& p = s.strategy;
  const int gpus = count_if_given(row, "num_gpus").value_or(0);
  if (gpus == 0) throw CannotPredict("num_gpus is not given");
  p.tensor_parallel = degree(row, "tp");
  p.pipeline_parallel = degree(row, "pp");
  p.context_parallel = degree(row, "cp");
  p.virtual_pipeline = p.pipeline_parallel > 1 ? degree(row, "vpp") : 1;
  // Llama 3 (section 3.3.2): interleaved, a chunk a layer or so.
  if (stack.preset == "meta_2024" && row.text("vpp").empty())
    p.virtual_pipeline =
        static_cast<int>(std::max<std::int64_t>(1, s.model.num_hidden_layers / p.pipeline_parallel));
  p.expert_parallel = degree(row, "ep");
  const int model_ranks = p.tensor_parallel * p.pipeline_parallel * p.context_parallel;
  if (gpus % model_ranks != 0) throw CannotPredict("tp x pp x cp does not divide num_gpus");
  p.data_parallel = gpus / model_ranks;
  p.sequence_parallel =
      p.tensor_parallel > 1 && sequence_parallel_in(row.text("sequence_parallel"), stack.preset);
  p.schedule = p.virtual_pipeline > 1 ? "interleaved" : "1f1b";
  p.zero_stage = zero_stage_in(row.text("zero_stage")).value_or(usual_zero_stage(stack.preset));
  if (p.pipeline_parallel > 1 && p.zero_stage > 1 && exchanges_once_in_pipeline(stack.preset))
    p.zero_stage = 1;
  if (p.data_parallel * p.context_parallel == 1) p.zero_stage = 0;
  p.recompute = recompute_in(row.text("recompute"), stack.preset);
  if (p.recompute == Recompute::selective) {
    std::vector<std::string> operations = recomputed_operations(s.implementation, notes);
    if (!operations.empty()) {
      p.recompute = Recompute::operations;
      p.recompute_operations = std::move(operations);
    }
  }

  Workload& w = s.workload;
  w.task = Task::train;
  w.dtype = dtype_in(row.text("precision"), s.hardware);
  w.seq_len = count_if_given(row, "seq_len").value_or(static_cast<int>(s.model.max_position_embeddings));
  if (s.model.position == Position::learned)
    s.model.max_position_embeddings = std::max(s.model.max_position_embeddings, w.seq_len);
  const Batch batch = batch_of(row, notes, stack.preset, p);
  w.micro_batch_size = batch.micro;
  w.global_batch_size = batch.global;
  result.guessed_batch = batch.guessed;

  // The playbook's sweep ran tensor parallelism in two ways and does not say which. Of runs of one stage on
  // up to 256 GPUs most hold as much as where the gathered inputs of products are kept, and so do 13 of 17 of
  // TP 32 on 512, but one of 19 of a lower degree; of runs of several stages on up to 128 about a third, and
  // as many lie between.
  if (stack.preset == "nanotron_2025") {
    result.memory_of_first_stage = true;
    if (p.tensor_parallel > 1) result.other_mode = load_implementation_preset("nanotron_2025_gathered");
    const int devices = s.strategy.devices();
    const bool staged = p.pipeline_parallel > 1;
    const bool most_keep = !staged && (devices <= 256 || p.tensor_parallel > 16);
    result.other_mode_share = most_keep ? 1 : staged && devices <= 128 ? 0.3 : 0;
    // Nor does it say which pipelines ran while transfers stalled: on up to 256 GPUs mostly those of two of
    // its series, 23 of 26 and 23 of 24, and one in eight of all others.
    const double parameters = static_cast<double>(count_parameters(s.model).total);
    const bool of_replicas = p.zero_stage == 0 && p.data_parallel > 1 && batch.micro == 1 && devices >= 32 &&
                             devices <= 128 && parameters > 2e9;
    const bool of_batches = devices == 256 && batch.micro > 1 && parameters > 5e9;
    if (staged && (of_replicas || of_batches)) s.implementation.pipeline.stalls_from_ranks = 1;
  }

  // An interleaved schedule of micro-batches that the stages do not divide runs as the plain one.
  const auto micro_batches = w.global_batch_size / (w.micro_batch_size * p.data_parallel);
  if (p.virtual_pipeline > 1 &&
      !schedule_problems(p.schedule, p.pipeline_parallel, p.virtual_pipeline, micro_batches).empty()) {
    p.schedule = "1f1b";
    p.virtual_pipeline = 1;
  }
  if (const std::vector<Problem> problems = validate(s); !problems.empty())
    throw CannotPredict(problems.front().field + " " + problems.front().message);
  return result;
}

}  // namespace sim
