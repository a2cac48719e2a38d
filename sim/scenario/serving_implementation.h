// How an inference engine carries out generation: kernels, launches, host, all-reduce, memory, batching.
// Presets fill it from what the software does; presets/implementations/README.md says where each fact is
// from.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/enum_names.h"
#include "sim/units.h"

namespace sim {

// What the decode step's attention kernel does.
enum class DecodeAttention {
  tabulated,       // splits the cache over the chip: as the published tables of the named engine
  block_per_head,  // one thread block a head and sequence (FasterTransformer's masked multi-head attention)
};

// When requests join the batch.
enum class Batching {
  static_batch,   // a batch begins and ends together
  prefill_first,  // waiting prompts run in steps of their own, before decoding goes on
  mixed,          // a step decodes all that run, and fills its token budget with prompts
};
template <>
inline constexpr std::array<std::string_view, 3> kOtherWords<Batching>{"static", "prefill_first", "mixed"};

// What the share of memory for the KV cache is a share of.
enum class CacheShareOf {
  free_memory,   // what weights and activations leave
  total_memory,  // weights, activations and cache together
};

struct ServingImplementation {
  // Whose published tables stand for its kernels (cost/gpu_calibration.h); empty: the first there are.
  std::string product_tables, attention_tables;
  // Weights of 8 and 4 bits under 16-bit activations: share that is reached of the bandwidth of a 16-bit product
  // with as many bytes.
  double int8_efficiency = 1, int4_efficiency = 1;

  // Share of the peak that no product passes: clocks under load, and libraries older than the tables.
  double product_peak_share = 1;

  // Kernels of a layer beside matrix products, attention and collectives.
  int decode_kernels = 5, prefill_kernels = 7;
  int expert_kernels = 6;         // more of them where a router chooses experts
  Seconds kernel_time = us(2.5);  // of a small one, from start to start
  Seconds gap;  // between kernels, beyond that of the replayed graphs in which tables were measured
  DecodeAttention decode_attention = DecodeAttention::tabulated;
  // block_per_head: share of the bandwidth that a full chip of blocks reaches, and a kernel's fixed time.
  double decode_attention_efficiency = 0.75;
  Seconds decode_attention_latency = us(7);
  bool attends_to_whole_cache = false;      // also to tokens that are not there yet
  bool standard_prefill_attention = false;  // scores pass through memory
  // Copies of a prompt's queries, keys and values beside what the plan's operations pass: elements a token,
  // in units of a rank's attention width.
  double prefill_copies = 0;
  bool prompt_token_by_token = false;    // no prefill: a step for each token of the prompt
  bool whole_head_on_each_rank = false;  // logits are not divided over tensor-parallel ranks
  bool quantizes_head = false;           // the head's weights are stored as the layers'
  double sampling_passes = 3;            // over fp32 logits
  int sampling_kernels = 4;
  bool sorts_vocabulary = false;  // for top-p: each row by one thread block

  // Launching: a replayed graph, or the host, operation by operation.
  bool graph_decode = true;
  std::vector<std::int64_t> graph_batches;  // captured sizes, to which a batch is padded; empty: any size
  Seconds launch, collective_launch;        // host time of an operation that no graph holds

  // The host's work between steps.
  Seconds host_step, host_sequence;  // a step, and a sequence in it
  bool host_overlapped = false;      // runs beside the GPU, of which host_exposed still shows
  Seconds host_exposed;
  Seconds request_overhead;  // of a request or static batch: queueing, copies, text

  // All-reduce inside a node: kernels of the engine's own up to these bytes, by ranks; NCCL beyond.
  struct CustomAllReduce {
    int ranks = 2;
    Bytes up_to;
    std::string tables;  // the software whose measurements stand for it
  };
  std::vector<CustomAllReduce> custom_all_reduce;
  std::string collective_tables;  // NCCL's that stands for the engine's; empty: the first there is

  // Pipeline stages: a static batch is cut into as many micro-batches as there are stages where that divides
  // it, and these are halved while they have more tokens than this (0: one micro-batch).
  std::int64_t pipeline_tokens = 0;
  std::int64_t pipeline_chunk = 0;  // prompts pass the stages in chunks of so many tokens; 0: whole
  Seconds stage_overhead;           // between stages, beside what is sent

  // Memory.
  CacheShareOf cache_share_of = CacheShareOf::free_memory;
  double cache_share = 0.9;
  Bytes reserved;             // context, libraries, graphs, activations beyond the token budget's
  std::int64_t kv_block = 0;  // tokens; 0: contiguous, a sequence's whole length at once
  bool fp8_cache_with_fp8_weights = false;

  // Batching.
  Batching batching = Batching::static_batch;
  bool chunks_prompts = false;
  bool reserves_output = false;      // a request starts when blocks for all of its output are free
  std::int64_t max_sequences = 256;  // running at a time
  std::int64_t max_tokens = 8192;    // of a step
  bool benchmark_limits = false;     // both by trtllm-bench's formulas (serving/engine_limits.h)

  bool operator==(const ServingImplementation&) const = default;
};
inline bool operator==(const ServingImplementation::CustomAllReduce& a,
                       const ServingImplementation::CustomAllReduce& b) {
  return a.ranks == b.ranks && a.up_to == b.up_to;
}

}  // namespace sim
