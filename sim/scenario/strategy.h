// How the work is divided over devices and what is recomputed.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/enum_names.h"
#include "sim/saturated.h"
#include "sim/scenario/field.h"

namespace sim {

// What is computed again in the backward pass instead of being kept from the forward pass (plan/recompute.h).
enum class Recompute {
  none,
  selective,   // the attention core alone (Korthikanti et al. 2022)
  full,        // all of every layer, from inputs that are kept every recompute_interval layers
  sqrt,        // full, with the interval nearest to the square root of the layers (Chen et al. 2016)
  operations,  // the operations that recompute_operations names
};

// How attention sees the tokens of other context-parallel ranks.
enum class ContextParallelComm {
  all_gather,  // keys and values of all ranks are gathered (Llama 3, arXiv 2407.21783, section 3.3.2)
  ring,        // keys and values pass between ranks while attention's blocks are computed (Liu et al. 2023)
  all_to_all,  // ranks trade parts of the sequence for heads (DeepSpeed-Ulysses, Jacobs et al. 2023)
};

// How tokens reach experts on other nodes.
enum class ExpertDispatch {
  each_expert,  // a copy for each of a token's experts (Megatron-LM's all-to-all dispatcher)
  each_node,    // one copy for each node, whose ranks pass it on among themselves (DeepSeek-V3, DeepEP)
};

inline constexpr std::string_view kDefaultRankOrder = "tp-cp-ep-dp-pp";

struct Strategy {
  int data_parallel = 1;
  int tensor_parallel = 1;
  int pipeline_parallel = 1;
  int context_parallel = 1;
  // Experts are divided over the data- and context-parallel devices, as in Megatron-LM; they add no devices.
  int expert_parallel = 1;
  int expert_tensor_parallel = 0;  // devices that share one expert: 0 for tensor_parallel, or 1
  ExpertDispatch expert_dispatch = ExpertDispatch::each_expert;
  int virtual_pipeline = 1;
  // Layers of the pipeline's first and last stage, which also have embedding and head (Megatron-LM's
  // --decoder-first-pipeline-num-layers and --decoder-last-pipeline-num-layers). The other stages share the
  // rest. 0: an even share.
  int first_stage_layers = 0, last_stage_layers = 0;
  int zero_stage = 0;
  // ZeRO: the number of neighbouring data- and context-parallel ranks that states are divided over; ranks at
  // the same place in their groups hold the same states (hybrid sharding). 0: all ranks.
  int shard_group = 0;
  int prefetch = 1;  // ZeRO 3: units whose parameters are gathered before their turn
  // Gradients of consecutive layers are reduced as one message of at most so many bytes; 0: one a layer.
  std::int64_t gradient_bucket = 0;
  bool sequence_parallel = false;
  ContextParallelComm context_parallel_comm = ContextParallelComm::all_gather;
  std::string schedule = "1f1b";  // plan/schedule.h names them
  // Which ranks are neighbours, fastest varying first (Megatron-LM's --order). Expert-parallel ranks are a
  // part of the data-parallel ranks.
  std::string rank_order = std::string(kDefaultRankOrder);
  Recompute recompute = Recompute::none;
  int recompute_interval = 1;                          // full: layers
  std::vector<std::string> recompute_operations = {};  // operations: names in plan/recompute.h
  bool offload_optimizer = false;                      // states live in host memory; the host updates them
  bool offload_activations = false;                    // what is kept for backward waits in the host's memory

  bool operator==(const Strategy&) const = default;
  int devices_of_expert() const {
    return expert_tensor_parallel == 0 ? tensor_parallel : expert_tensor_parallel;
  }
  int devices() const {
    return saturated_product(data_parallel, tensor_parallel, pipeline_parallel, context_parallel);
  }
};

// clang-format off
template <>
inline constexpr auto kFields<Strategy> = [] {
  using S = Strategy;
  using enum FieldSearch;
  return std::tuple{
    field("data_parallel", &S::data_parallel, "dp", "data",
          "data parallel degree").between(1, kMostDevices).searched(always).when(has_replicas),
    field("tensor_parallel", &S::tensor_parallel, "tp", "tensor",
          "tensor parallel degree").between(1, kMostDevices).searched(always),
    field("pipeline_parallel", &S::pipeline_parallel, "pp", "pipeline",
          "pipeline stages").between(1, kMostDevices).searched(always).when(trains),
    field("virtual_pipeline", &S::virtual_pipeline, "vpp", "chunks",
          "model chunks that a pipeline stage holds").between(1, kMostDevices).searched(always).when(trains),
    field("first_stage_layers", &S::first_stage_layers, "first-stage-layers", "first stage",
          "layers of the pipeline's first stage; 0: an even share").between(0, kMostLayers).when(trains).seldom_set(),
    field("last_stage_layers", &S::last_stage_layers, "last-stage-layers", "last stage",
          "layers of the pipeline's last stage; 0: an even share").between(0, kMostLayers).when(trains).seldom_set(),
    field("context_parallel", &S::context_parallel, "cp", "context",
          "context parallel degree").between(1, kMostDevices).searched(always).when(trains),
    field("expert_parallel", &S::expert_parallel, "ep", "expert",
          "expert parallel degree").between(1, kMostDevices).searched(always).when(has_experts),
    field("expert_tensor_parallel", &S::expert_tensor_parallel, "etp", "expert tensor",
          "devices that share an expert: 0 as --tp, or 1").between(0, kMostDevices).searched(always).when(trains_experts),
    field("expert_dispatch", &S::expert_dispatch, "expert-dispatch", "dispatch to",
          "copies of a token that cross between nodes: one for each expert, or for each node").when(divides_experts).seldom_set(),
    field("zero_stage", &S::zero_stage, "zero", "ZeRO",
          "ZeRO stage: 0, 1, 2 or 3").between(0, 3).searched(always).when(trains),
    field("shard_group", &S::shard_group, "shard-group", "shard group",
          "ranks that ZeRO divides states over (hybrid sharding); 0: all data-parallel ranks").between(0, kMostDevices).searched(always).when(divides_states).seldom_set(),
    field("prefetch", &S::prefetch, "prefetch", "prefetch",
          "ZeRO 3: units whose parameters are gathered ahead").between(0, kMostLayers).searched(allowed).when(gathers_parameters).seldom_set(),
    field("gradient_bucket", &S::gradient_bucket, "gradient-bucket", "bucket",
          "bytes of layers' gradients reduced as one message; 0: a layer's").between(0, kMostBucketBytes).in(FieldUnit::bytes).searched(allowed).when(reduces_gradients).seldom_set(),
    field("sequence_parallel", &S::sequence_parallel, "sequence-parallel", "seq. parallel",
          "divide norms along the sequence beside tensor parallelism").searched(always).when(trains),
    field("context_parallel_comm", &S::context_parallel_comm, "cp-comm", "context comm.",
          "how context-parallel ranks see each other's keys and values").searched(allowed).when(divides_sequences).seldom_set(),
    field("schedule", &S::schedule, "schedule", "schedule",
          "of the pipeline").one_of(kScheduleNames).searched(always).when(trains),
    field("rank_order", &S::rank_order, "rank-order", "rank order",
          "which ranks are neighbours, nearest first: tp-cp-ep-dp-pp (default), tp-cp-pp-ep-dp, ...").searched(allowed).when(trains).seldom_set(),
    field("recompute", &S::recompute, "recompute", "recompute",
          "activations computed again in the backward pass").searched(always).when(trains),
    field("recompute_interval", &S::recompute_interval, "recompute-interval", "interval",
          "with --recompute full: layers between inputs that are kept").between(1, kMostLayers).searched(always).when(keeps_inputs_at_intervals),
    field("recompute_operations", &S::recompute_operations, "recompute-operations", "operations",
          "what is computed again, by commas").one_of(kRecomputeWords).when(recomputes_operations),
    field("offload_optimizer", &S::offload_optimizer, "offload-optimizer", "offload opt.",
          "states live in the host's memory, which updates them").searched(always).when(trains).seldom_set(),
    field("offload_activations", &S::offload_activations, "offload-activations", "offload act.",
          "what is kept for the backward pass waits in the host's memory").searched(allowed).when(trains).seldom_set()};
}();
// clang-format on

}  // namespace sim
