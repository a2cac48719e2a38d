// How an inference engine carries out generation: kernels, launches, host, all-reduce, memory, batching.
// Presets hold what the software does; presets/implementations/README.md says where each fact comes
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
  tabulated,       // splits the cache over the chip, as in the published tables of the named engine
  block_per_head,  // one thread block a head and sequence (FasterTransformer's masked multi-head attention)
};

// When requests join the batch.
enum class Batching {
  static_batch,   // all requests of a batch begin and end together
  prefill_first,  // waiting prompts run in steps of their own, before decoding goes on
  mixed,          // a step decodes all running requests, and fills its token budget with prompts
};
template <>
inline constexpr std::array<std::string_view, 3> kOtherWords<Batching>{"static", "prefill_first", "mixed"};

// What the share of memory for the KV cache is a share of.
enum class CacheShareOf {
  free_memory,   // what weights and activations leave
  total_memory,  // weights, activations and cache together
};

struct ServingImplementation {
  // The software whose published tables stand for its kernels (cost/gpu_calibration.h); empty: the first.
  std::string product_tables, attention_tables;
  // Weights of 8 and 4 bits with 16-bit activations: the bandwidth reached, as a share of that of a 16-bit
  // product that reads as many bytes.
  double int8_efficiency = 1, int4_efficiency = 1;

  // Share of the peak that no product exceeds: the clock under load, and libraries older than the tables.
  double product_peak_share = 1;

  // Kernels of a layer beside matrix products, attention and collectives.
  int decode_kernels = 5, prefill_kernels = 7;
  int expert_kernels = 6;         // further kernels where a router chooses experts
  Seconds kernel_time = us(2.5);  // of a small kernel, from start to start
  Seconds gap;  // between kernels, beyond that of the replayed graphs in which tables were measured
  DecodeAttention decode_attention = DecodeAttention::tabulated;
  // block_per_head: share of the bandwidth that a full chip of blocks reaches, and a kernel's fixed time.
  double decode_attention_efficiency = 0.75;
  Seconds decode_attention_latency = us(7);
  bool attends_to_whole_cache = false;      // also to places of tokens that do not exist yet
  bool standard_prefill_attention = false;  // scores pass through memory
  // Copies of a prompt's queries, keys and values beyond the traffic of the plan's operations: elements a
  // token, in units of a rank's attention width.
  double prefill_copies = 0;
  bool prompt_token_by_token = false;    // no prefill: a step for each token of the prompt
  bool whole_head_on_each_rank = false;  // logits are not divided over tensor-parallel ranks
  bool quantizes_head = false;           // the head's weights are stored in the layers' type
  double sampling_passes = 3;            // over fp32 logits
  int sampling_kernels = 4;
  bool sorts_vocabulary = false;  // for top-p: one thread block sorts each row

  // Who launches kernels: a replayed graph, or the host, operation by operation.
  bool graph_decode = true;
  std::vector<std::int64_t> graph_batches;  // captured sizes, to which a batch is padded; empty: any size
  Seconds launch, collective_launch;        // host time of an operation that no graph holds

  // The host's work between steps.
  Seconds host_step, host_sequence;  // a step, and a sequence in it
  bool host_overlapped = false;      // runs beside the GPU, except for host_exposed
  Seconds host_exposed;
  Seconds request_overhead;  // of a request or static batch: queueing, copies, text

  // All-reduce inside a node: the engine's own kernels up to these bytes, by ranks; NCCL above.
  struct CustomAllReduce {
    int ranks = 2;
    Bytes up_to;
    std::string tables;  // the software whose measurements stand for it
  };
  std::vector<CustomAllReduce> custom_all_reduce;
  std::string collective_tables;  // the NCCL tables that stand for the engine's; empty: the first

  // Pipeline stages: a static batch is cut into as many micro-batches as there are stages, where that divides
  // it. The micro-batches are halved while they have more tokens than this (0: one micro-batch).
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
  bool benchmark_limits = false;     // both limits by trtllm-bench's formulas (serving/engine_limits.h)

  bool operator==(const ServingImplementation&) const = default;
};
inline bool operator==(const ServingImplementation::CustomAllReduce& a,
                       const ServingImplementation::CustomAllReduce& b) {
  return a.ranks == b.ranks && a.up_to == b.up_to;
}

}  // namespace sim
