// How the work is carried out: what `ridgepoint` itself runs, or what other people's software does (priced,
// never run here). Facts of software, each with its source in the preset; nothing here is of a GPU.
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

// Passes over memory that make fp8 operands of products, bytes an element: reads for the largest magnitude,
// the cast, and the transposes that Hopper's products need.
struct QuantisationProfile {
  double input_bytes = 0, weight_bytes = 0, gradient_bytes = 0;

  bool operator==(const QuantisationProfile&) const = default;
};

// Kernels that a plan's operations stand for.
struct KernelProfile {
  std::string attention;  // whose kernel, as calibrations call it: "FlashAttention2", "cuDNN"
  // How much longer products and attention take than what calibrations timed; 0: all at the hardware's
  // limits.
  double slower = 1;
  // Times of operations, by kind ("attention_flash"), in multiples of what is named by `attention`; 1 where
  // absent.
  std::map<std::string, double> times;
  // Memory traffic of operations, by kind ("swiglu"), in multiples of one fused kernel's; 1 where absent.
  std::map<std::string, double> traffic;
  // Kernels beside an operation, by its id, in passes over its result (of weights' gradients: over the
  // gradient that they are made from): copies, sums of bias gradients, gradients of several users added up.
  std::map<std::string, double> side_passes;
  QuantisationProfile quantisation;
  // What the loss moves from logits to their gradient, a logit; 0: what the plan's operations move.
  double loss_bytes_per_logit = 0;
  // Passes that add a micro-batch's weight gradients to accumulators, a parameter; 0: products accumulate.
  double accumulation_bytes_per_parameter = 0;
  // Kernels of a decoder layer, collectives not counted; 0: one an operation of the plan.
  int launches_forward = 0, launches_backward = 0;

  bool operator==(const KernelProfile&) const = default;
};

// The process that launches kernels. It runs ahead of the device until something makes it wait.
struct HostProfile {
  // 90 % of hosts take between 1 / uncertainty and uncertainty times what is said here.
  double uncertainty = 1.5;
  Seconds launch;      // of one kernel, interpreter and autograd included; 0: the host is never late
  Seconds collective;  // of one collective
  // How much longer one of tensor parallelism takes for each other rank of its group in a pipeline over
  // several nodes, or on several nodes whose network stalls.
  Seconds collective_rank;
  // For a decoder layer beside its launches: modules, autograd functions, hooks; under full recompute the
  // states of random generators.
  Seconds layer_backward, layer_recompute;
  Seconds unit_hook;                 // of a unit that is gathered or scattered around its pass (FSDP, ZeRO-3)
  bool waits_around_passes = false;  // of a micro-batch, before and after (timers, loss.item())
  Seconds wait;                      // cost of one such wait beside the drained queue
  Seconds pass;       // of each pass of a micro-batch through a stage's layers (engines' interpreters)
  Seconds step;       // once: data, logging, clipping's bookkeeping
  Seconds parameter;  // of each parameter tensor in the optimizer's loop

  bool operator==(const HostProfile&) const = default;
};

struct DataParallelProfile {
  bool overlaps_reduction = true;          // with the backward pass of the last micro-batch; else after it
  bool overlaps_sharded_reduction = true;  // the same under ZeRO 1
  bool overlaps_gather = false;            // of updated parameters, with the next step's forward pass
  bool reduces_whole = false;  // ZeRO 1: all-reduce of whole gradients, of which a rank then uses its shard
  std::optional<DType> reduction_dtype;  // of gradients on the network; else that of the gradients
  double bucket_mib = 0;                 // messages are this large; 0: a unit each
  // Passes over what is gathered, or reduced, that copy it into or out of flat buffers, bytes a byte.
  double gather_copy_passes = 0, reduction_copy_passes = 0;
  // Copies of what is gathered after the update into parameters: one for each rank's part of each tensor.
  Seconds gather_part;
  bool gathers_fp8 = false;  // parameters of fp8 products travel in fp8

  bool operator==(const DataParallelProfile&) const = default;
};

// A collective of tensor parallelism beside the product that it feeds or that feeds it.
struct TensorOverlap {
  double under = 0;  // share of the neighbouring product that it may run beside
  int chunks = 0;    // pieces of a pipelined product, of which one's transfer is exposed; 0: bulk

  bool operator==(const TensorOverlap&) const = default;
};

struct TensorParallelProfile {
  TensorOverlap forward_gather, forward_scatter, backward_gather, backward_scatter;
  TensorOverlap input_gather;  // of what forward saved in parts, for the weights' gradients
  bool gathers_again = true;   // those; else they are kept as forward gathered them
  TensorOverlap backward_all_reduce;
  int product_pieces = 1;  // rows of a gathered product are worked on in this many pieces; 0: one a rank

  bool operator==(const TensorParallelProfile&) const = default;
};

// Exchanges of tokens with the ranks that hold their experts.
struct ExpertParallelProfile {
  // In schedules that pair passes (Slot::with_next): the share of passes' compute that one micro-batch's
  // exchanges run beside, while the other's computes. Alone, or in other schedules, nothing hides them.
  double under = 0;
  int multiprocessors = 0;  // of the device, that exchanges keep while they run
  // In fp8 training, tokens on the way to experts and gradients on the way back to them travel in fp8; what
  // is summed on arrival stays as it is.
  bool dispatches_fp8 = false;
  // Ranks have room for all rows that may come to their experts, however tokens choose; else for
  // workload.expert_imbalance times the mean.
  bool room_for_any_choice = false;

  bool operator==(const ExpertParallelProfile&) const = default;
};

struct PipelineProfile {
  int messages_forward = 1, messages_backward = 1;  // a boundary and micro-batch
  Seconds message;                 // host time of one beyond its launch (metadata handshakes)
  bool waits = false;              // the host waits for the device at each transfer
  bool waits_interleaved = false;  // so it does where stages have several chunks
  bool in_order = false;           // transfers stand in the compute stream: nothing overlaps them
  bool scatters = false;           // tensor-parallel ranks send a part each, gathered on arrival
  bool balances_head = false;      // layers are dealt out with the head counted by its FLOPs
  // How much longer a transfer between stages on several nodes takes if the network stalls, and whether the
  // network does. Presets say how long, whoever knows the run says whether.
  Seconds stall;
  bool stalls = false;

  bool operator==(const PipelineProfile&) const = default;
};

// The usual run of a software, for descriptions that leave these open.
struct UsualRun {
  int zero_stage = 0;
  int zero_stage_in_pipelines = 0;  // with several stages; 0: the same
  bool sequence_parallel = false;
  std::string recompute = "none";  // none, selective, full
  // Pipelines are interleaved, a layer a model chunk; else each stage has one chunk.
  bool interleaves_layers = false;
  // A rank's share of the batch is cut into micro-batches; else it is one.
  bool accumulates = true;
  // The board that its authors run on, by the one that they name: presets of hardware.
  std::map<std::string, std::string> hardware;
  // Whose memory it reports: "fullest" stage's or "first" stage's; and which: what the allocator "reserved"
  // or what the "device" has given away.
  std::string memory_of = "fullest", memory_reading = "reserved";

  bool operator==(const UsualRun&) const = default;
};

struct Implementation {
  std::string name;  // ridgepoint, megatron_2022, pytorch_eager
  AttentionKind attention = AttentionKind::flash;
  bool dropout = false;  // with masks of one byte an element kept for backward
  bool fused_residual =
      true;  // residual added in the projection's epilogue; otherwise an operation of its own
  // Head, loss and their backward pass work on so many equal parts of a micro-batch's rows, one after the
  // other, inside the backward pass: logits of one part alone are ever in memory. 1: all rows at once.
  int head_chunks = 1;
  // In training a rank's rows of embedding and head are padded to a multiple of this, so that rows of logits
  // begin where products load whole vectors. The loss is that of the words alone.
  int vocabulary_multiple = 1;
  // A layer is computed again up to the last result that backward reads ; else all of it.
  bool recompute_stops_early = false;
  // Selective recompute keeps the attention core and every second product of a layer, in their order, and
  // repeats the rest (torchtitan's selective_ac_option "op"); else it repeats the attention core alone.
  bool selective_by_operation = false;
  double recomputed_layers = 1;                  // share of the layers that full recompute is for
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
