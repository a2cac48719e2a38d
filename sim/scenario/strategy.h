// How the work is divided over devices and what is recomputed.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/enum_names.h"

namespace sim {

// What is computed again in the backward pass instead of being kept from the forward pass (plan/recompute.h).
enum class Recompute {
  none,
  selective,   // the attention core alone (Korthikanti et al. 2022)
  full,        // all of every layer, from inputs that are kept every recompute_interval layers
  sqrt,        // full, with the interval nearest to the square root of the layers (Chen et al. 2016)
  operations,  // those that recompute_operations names
};

// How attention sees the tokens of other context-parallel ranks.
enum class ContextParallelComm {
  all_gather,  // keys and values of all ranks are gathered (Llama 3, arXiv 2407.21783, section 3.3.2)
  ring,        // they pass from rank to rank while blocks of attention are computed (Liu et al. 2023)
  all_to_all,  // sequences are exchanged for heads (DeepSpeed-Ulysses, Jacobs et al. 2023)
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
  // Experts are divided over the data- and context-parallel devices, as in Megatron-LM: no further devices.
  int expert_parallel = 1;
  int expert_tensor_parallel = 0;  // devices that share one expert: 0 for tensor_parallel, or 1
  ExpertDispatch expert_dispatch = ExpertDispatch::each_expert;
  int virtual_pipeline = 1;
  int zero_stage = 0;
  // ZeRO: neighbouring data- and context-parallel ranks that states are divided over; those of equal place in
  // their groups hold the same (hybrid sharding). 0: all of them.
  int shard_group = 0;
  int prefetch = 1;  // ZeRO 3: units whose parameters are gathered before their turn
  // Gradients of consecutive layers that are reduced as one message, up to this many bytes; 0: a layer each.
  std::int64_t gradient_bucket = 0;
  bool sequence_parallel = false;
  ContextParallelComm context_parallel_comm = ContextParallelComm::all_gather;
  std::string schedule = "1f1b";  // plan/schedule.h names them
  // Which ranks are neighbours, fastest varying first (Megatron-LM's --order); expert-parallel ranks are some
  // of the data-parallel ones.
  std::string rank_order = std::string(kDefaultRankOrder);
  Recompute recompute = Recompute::none;
  int recompute_interval = 1;                          // full: layers
  std::vector<std::string> recompute_operations = {};  // operations: names in plan/recompute.h
  bool offload_optimizer = false;                      // states live in the host's memory, which updates them
  bool offload_activations = false;                    // what is kept for backward waits in the host's memory

  bool operator==(const Strategy&) const = default;
  int devices_of_expert() const {
    return expert_tensor_parallel == 0 ? tensor_parallel : expert_tensor_parallel;
  }
  int devices() const { return data_parallel * tensor_parallel * pipeline_parallel * context_parallel; }
};

}  // namespace sim
