// What a software stack keeps and allocates beyond what its operations need: facts of software, each with its
// source in the preset. None of it takes time here; the kernel profile has the cost of copies and casts.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "sim/dtype.h"
#include "sim/enum_names.h"

namespace sim {

// A tensor beside those of the operations. It lives from the operation that makes it to the last that needs
// it, by their ids in the plan. From a forward to a backward operation it is kept for each layer and
// micro-batch; within a pass it is temporary. Its size is a sum over widths, in bytes a token; tensor
// parallelism divides all terms but `hidden`.
struct ExtraTensor {
  std::string name;      // "layer.mlp.gate_activated"
  std::string from, to;  // "layer.mlp.swiglu.forward"; "layer.mlp.swiglu.backward"
  double hidden = 0, query = 0, key_value = 0, feed_forward = 0, vocabulary = 0;
  double hidden_of_rows = 0;            // `hidden` of this rank's rows alone: sequence parallelism divides it
  bool multi_head_only = false;         // only where each query head has its own keys and values
  bool grouped_only = false;            // only where query heads share keys and values
  bool several_sequences_only = false;  // only for micro-batches above 1; one sequence has its layout free
  bool whole_only = false;              // only without tensor parallelism
  bool operator==(const ExtraTensor&) const = default;
};

// A closed form of what a layer keeps for its backward pass, in bytes a token: hidden h + query q + key_value
// g + feed_forward f + heads a + scores a s, with the model's widths.
struct SavedActivations {
  double hidden = 0, query = 0, key_value = 0, feed_forward = 0, heads = 0, scores = 0;
  // The part of `hidden` that all tensor-parallel ranks hold; sequence parallelism, where it is on, divides
  // this part too.
  double hidden_of_every_rank = 0;
  bool operator==(const SavedActivations&) const = default;
};

// How the gradient of a weight reaches the buffer that accumulates it.
enum class WeightGradient {
  accumulated,  // the product adds into it
  hooked,       // made by the product, then added and freed by a hook
  kept,         // made by the product; all are added when the backward pass of the micro-batch is over
  fresh,        // the first micro-batch's product makes it, the optimizer frees it (PyTorch's default)
};

// The allocator: it decides how much device memory is reserved for the live tensors.
enum class AllocatorKind {
  planned,     // one arena, addresses known beforehand
  caching,     // PyTorch's (sim/plan/caching_allocator.h)
  expandable,  // the same with expandable segments
};

struct MemoryProfile {
  std::vector<ExtraTensor> tensors;
  // For stacks whose tensors are not known one by one: what the plan keeps short of this is kept besides.
  std::optional<SavedActivations> saved;
  // The same under selective recompute, where a stack recomputes something other than the attention core.
  std::optional<SavedActivations> saved_selective;
  // The type of logits, whose gradient overwrites them; fp32 where absent.
  std::optional<DType> logits_dtype;
  WeightGradient weight_gradient = WeightGradient::accumulated;
  // The type of sharded parameters (ZeRO 3): FSDP shards fp32 parameters and gathers them in the type of the
  // products.
  std::optional<DType> shard_dtype;
  bool lazy_optimizer = false;  // the first optimizer step allocates the moments
  // Copies of all of a stage's gradients that exist beside them at all times, in bytes a parameter: gradients
  // that an optimizer keeps beside its own, and DDP's buckets (without ZeRO).
  double gradient_copy_bytes = 0, bucket_bytes = 0;
  // One tensor that exists while a stage's gradients are reduced, in bytes a parameter: a copy of all of them
  // in the type that is sent.
  double reduction_copy_bytes = 0;
  // Flat copies of gradients that exist while the optimizer steps, one tensor each, in bytes for each of the
  // rank's own parameters.
  double step_fp16_bytes = 0, step_fp32_bytes = 0;
  // Pipelines under ZeRO 3: what a stage holds undivided between micro-batches, bytes a parameter.
  double whole_in_pipelines = 0;
  AllocatorKind allocator = AllocatorKind::planned;
  double context_gib = 0;  // outside the allocator: CUDA context, libraries, communicators
  bool operator==(const MemoryProfile&) const = default;
};

}  // namespace sim
