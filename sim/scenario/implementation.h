// How the work is carried out, by `ridgepoint` itself or by other people's software (priced, never run here).
// These are facts of software, each with its source in the preset; none is a fact of a GPU.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "sim/dtype.h"
#include "sim/enum_names.h"
#include "sim/scenario/field.h"
#include "sim/scenario/memory_profile.h"
#include "sim/scenario/serving_implementation.h"
#include "sim/units.h"

namespace sim {

enum class AttentionKind { flash, standard };

// Passes over memory that make fp8 operands of matrix products, in bytes an element: reads for the largest
// magnitude, the cast, and the transposes that Hopper's products need.
struct QuantisationProfile {
  double input_bytes = 0, weight_bytes = 0, gradient_bytes = 0;

  bool operator==(const QuantisationProfile&) const = default;
};

// The kernels that carry out a plan's operations.
struct KernelProfile {
  std::string attention;  // whose kernel, as calibrations call it: "FlashAttention2", "cuDNN"
  // How many times as long products and attention take as calibrations timed; 0: all run at the hardware's
  // limits.
  double slower = 1;
  // Times of operations, by kind ("attention_flash"), in multiples of the kernel that `attention` names; 1
  // where absent.
  std::map<std::string, double> times;
  // Memory traffic of operations, by kind ("swiglu"), in multiples of one fused kernel's; 1 where absent.
  std::map<std::string, double> traffic;
  // Further kernels beside an operation, by its id, in passes over its result (for weights' gradients: over
  // the gradient that they are made from): copies, sums of bias gradients, sums of several users' gradients.
  std::map<std::string, double> side_passes;
  QuantisationProfile quantisation;
  // Bytes that the loss moves for each logit, up to the logits' gradient; 0: those of the plan's operations.
  double loss_bytes_per_logit = 0;
  // Bytes a parameter that add a micro-batch's weight gradients to accumulators; 0: products accumulate.
  double accumulation_bytes_per_parameter = 0;
  // Kernels of a decoder layer without collectives; 0: one for each operation of the plan.
  int launches_forward = 0, launches_backward = 0;

  bool operator==(const KernelProfile&) const = default;
};

// The process that launches kernels. It runs ahead of the device until something makes it wait.
struct HostProfile {
  // 90 % of hosts take between 1 / uncertainty and uncertainty times what is said here.
  double uncertainty = 1.5;
  Seconds launch;      // of one kernel, interpreter and autograd included; 0: the host is never late
  Seconds collective;  // of one collective
  // How much longer a collective of tensor parallelism takes for each other rank of its group. It applies on
  // several nodes, with pipeline stages or with a network that stalls (PipelineProfile::stalls).
  Seconds collective_rank;
  // Time for a decoder layer beside its launches. In backward: modules, autograd functions, hooks; under full
  // recompute: the states of random generators.
  Seconds layer_backward, layer_recompute;
  Seconds unit_hook;                 // for each unit gathered or scattered around its pass (FSDP, ZeRO-3)
  bool waits_around_passes = false;  // before and after a micro-batch's pass (timers, loss.item())
  Seconds wait;                      // cost of one such wait, beyond draining the queue
  Seconds pass;       // for each pass of a micro-batch through a stage's layers (engines' interpreters)
  Seconds step;       // once a step: data, logging, clipping's bookkeeping
  Seconds parameter;  // for each parameter tensor in the optimizer's loop

  bool operator==(const HostProfile&) const = default;
};

struct DataParallelProfile {
  bool overlaps_reduction = true;          // with the backward pass of the last micro-batch; else after it
  bool overlaps_sharded_reduction = true;  // the same under ZeRO 1
  bool overlaps_gather = false;            // of updated parameters, with the next step's forward pass
  bool reduces_whole = false;  // ZeRO 1: whole gradients are all-reduced; a rank then uses its shard
  std::optional<DType> reduction_dtype;  // type of gradients on the network; absent: the gradients' own
  double bucket_mib = 0;                 // size of a message, MiB; 0: one message a unit
  // Passes that copy what is gathered or reduced into or out of flat buffers, bytes for each byte.
  double gather_copy_passes = 0, reduction_copy_passes = 0;
  // Time to copy what is gathered after the update into parameters, for each rank's part of each tensor.
  Seconds gather_part;
  bool gathers_fp8 = false;  // parameters of fp8 products travel in fp8

  bool operator==(const DataParallelProfile&) const = default;
};

// How a collective of tensor parallelism overlaps with the product before or after it.
struct TensorOverlap {
  double under = 0;  // share of the neighbouring product that it may run beside
  int chunks = 0;    // pieces of a pipelined product; one piece's transfer is exposed; 0: bulk

  bool operator==(const TensorOverlap&) const = default;
};

struct TensorParallelProfile {
  TensorOverlap forward_gather, forward_scatter, backward_gather, backward_scatter;
  TensorOverlap input_gather;  // gathers inputs that forward saved in parts, for the weights' gradients
  bool gathers_again = true;   // gathers those inputs; else forward's gathered copy is kept
  TensorOverlap backward_all_reduce;
  int product_pieces = 1;  // rows of a gathered product are worked on in this many pieces; 0: one a rank

  bool operator==(const TensorParallelProfile&) const = default;
};

// Exchanges of tokens with the ranks that hold their experts.
struct ExpertParallelProfile {
  // In schedules that pair passes (Slot::with_next): the share of the passes' compute beside which one
  // micro-batch's exchanges run while the other computes. Alone, or in other schedules, nothing hides them.
  double under = 0;
  int multiprocessors = 0;  // multiprocessors of the device that exchanges occupy while they run
  // In fp8 training, tokens on the way to experts and gradients on the way back to them travel in fp8; what
  // is summed on arrival stays as it is.
  bool dispatches_fp8 = false;
  // Ranks have room for all rows that may come to their experts, whatever tokens choose; else they have room
  // for workload.expert_imbalance times the mean.
  bool room_for_any_choice = false;

  bool operator==(const ExpertParallelProfile&) const = default;
};

struct PipelineProfile {
  int messages_forward = 1, messages_backward = 1;  // for each boundary and micro-batch
  Seconds message;                 // host time of one message beyond its launch (metadata handshakes)
  bool waits = false;              // the host waits for the device at each transfer
  bool waits_interleaved = false;  // it waits where stages have several chunks
  bool in_order = false;           // transfers stand in the compute stream: nothing overlaps them
  bool scatters = false;           // tensor-parallel ranks send a part each, gathered on arrival
  bool balances_head = false;      // layers are dealt out with the head counted by its FLOPs
  // How much longer a transfer between stages on several nodes takes if the network stalls, and whether it
  // stalls. Presets set the time; whoever describes a run sets whether the network stalls.
  Seconds stall;
  bool stalls = false;

  bool operator==(const PipelineProfile&) const = default;
};

// How a software is usually run, for descriptions of runs that leave these fields open.
struct UsualRun {
  int zero_stage = 0;
  int zero_stage_in_pipelines = 0;  // with several stages; 0: the same
  bool sequence_parallel = false;
  std::string recompute = "none";  // none, selective, full
  // Pipelines are interleaved, with one layer in each model chunk; else each stage has one chunk.
  bool interleaves_layers = false;
  // A rank's share of the batch is cut into micro-batches; else it is one micro-batch.
  bool accumulates = true;
  // The hardware preset that the software's authors run on, by the preset that a table names.
  std::map<std::string, std::string> hardware;
  // The stage whose memory it reports, the "fullest" or the "first"; and the reading, what the allocator has
  // "reserved" or what the "device" has given away.
  std::string memory_of = "fullest", memory_reading = "reserved";

  bool operator==(const UsualRun&) const = default;
};

struct Implementation {
  std::string name;  // ridgepoint, megatron_2022, pytorch_eager
  AttentionKind attention = AttentionKind::flash;
  bool dropout = false;  // with masks of one byte an element kept for backward
  bool fused_residual =
      true;  // residual added in the projection's epilogue; otherwise an operation of its own
  // Head, loss and their backward pass work on so many equal parts of a micro-batch's rows, in turn, inside
  // the backward pass: only one part's logits are in memory at a time. 1: all rows at once.
  int head_chunks = 1;
  // In training a rank's rows of embedding and head are padded to a multiple of this: rows of logits then
  // begin where products load whole vectors. Only real words count in the loss.
  int vocabulary_multiple = 1;
  // A layer is computed again up to the last result that the backward pass reads; else all of it.
  bool recompute_stops_early = false;
  // Selective recompute keeps the attention core and every second product of a layer, in their order, and
  // repeats the rest (torchtitan's selective_ac_option "op"); else it repeats the attention core alone.
  bool selective_by_operation = false;
  double recomputed_layers = 1;                  // share of the layers with full recompute
  DType gradient_dtype = DType::bf16;            // in mixed precision; fp32 training keeps fp32
  bool master_weights = true;                    // fp32 copy in mixed precision
  bool runs_here = false;                        // runtime/ can execute the plan
  std::optional<ServingImplementation> serving;  // of inference engines
  KernelProfile kernels;
  HostProfile host;
  DataParallelProfile data_parallel;
  TensorParallelProfile tensor_parallel;
  ExpertParallelProfile expert_parallel;
  PipelineProfile pipeline;
  MemoryProfile memory;
  UsualRun usual;
  std::string source;

  bool operator==(const Implementation&) const = default;
};

// clang-format off
template <>
inline constexpr auto kFields<Implementation> = [] {
  using I = Implementation;
  return std::tuple{
    field("attention", &I::attention, "attention", "attention", "by tiles (flash), or with scores in memory (standard)"),
    field("dropout", &I::dropout, "dropout-masks", "dropout",
          "dropout, whose masks of a byte an element are kept for the backward pass"),
    field("fused_residual", &I::fused_residual, "fused-residual", "fused residual",
          "residuals are added by the product before them; else by an operation of their own"),
    field("head_chunks", &I::head_chunks, "head-chunks", "head chunks",
          "parts of a micro-batch's rows that head and loss work on in turn, so that only one's logits are stored").between(1, kMostHeadChunks).when(trains),
    field("vocabulary_multiple", &I::vocabulary_multiple, "", "", "").between(1, kLargestVocabularyMultiple),
    field("recompute_stops_early", &I::recompute_stops_early, "", "", ""),
    field("selective_by_operation", &I::selective_by_operation, "", "", ""),
    field("recomputed_layers", &I::recomputed_layers, "", "", "").between(0, 1),
    field("gradient_dtype", &I::gradient_dtype, "", "", "").one_of(kGradientTypes),
    field("master_weights", &I::master_weights, "", "", ""),
    field("runs_here", &I::runs_here, "", "", "")};
}();
// clang-format on

}  // namespace sim
