// What a software stack keeps and allocates beyond what its operations need: facts of software, each with its
// source in the preset. None of it takes time here; what copies and casts cost is the kernel profile's.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "sim/dtype.h"
#include "sim/enum_names.h"

namespace sim {

// A tensor beside those of the operations: from the operation that makes it to the last that needs it, by
// their ids in the plan. From a forward to a backward operation it is kept for each layer and micro-batch;
// within a pass it is temporary. Its size is a sum over widths, in bytes a token; tensor parallelism divides
// all but `hidden`.
struct ExtraTensor {
  std::string name;      // "layer.mlp.gate_activated"
  std::string from, to;  // "layer.mlp.swiglu.forward"; "layer.mlp.swiglu.backward"
  double hidden = 0, query = 0, key_value = 0, feed_forward = 0, vocabulary = 0;
  double hidden_of_rows = 0;            // of this rank's rows of the stream: sequence parallelism divides it
  bool multi_head_only = false;         // where all heads have keys and values of their own
  bool grouped_only = false;            // where query heads share them
  bool several_sequences_only = false;  // micro-batches above 1: layouts that one sequence has for free
  bool whole_only = false;              // without tensor parallelism
  bool operator==(const ExtraTensor&) const = default;
};

// A closed form of what a layer leaves for its backward pass, bytes a token: hidden h + query q + key_value g
// + feed_forward f + heads a + scores a s, with the model's widths.
struct SavedActivations {
  double hidden = 0, query = 0, key_value = 0, feed_forward = 0, heads = 0, scores = 0;
  // The part of `hidden` that tensor-parallel ranks all hold; sequence parallelism divides it too where it is
  // on.
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

// Who hands memory out: what is reserved of the device for what is live.
enum class AllocatorKind {
  planned,     // one arena, addresses known beforehand
  caching,     // PyTorch's (sim/plan/caching_allocator.h)
  expandable,  // the same with expandable segments
};

struct MemoryProfile {
  std::vector<ExtraTensor> tensors;
  // Where the tensors are not known one by one: what the plan keeps less than this is kept beside it.
  std::optional<SavedActivations> saved;
  // The same under selective recompute, where a stack's selection is another than the attention core.
  std::optional<SavedActivations> saved_selective;
  // Logits and their gradient, in place; fp32 where absent.
  std::optional<DType> logits_dtype;
  WeightGradient weight_gradient = WeightGradient::accumulated;
  // The type of parameters as they are sharded (ZeRO 3): FSDP keeps fp32 and gathers in the type of the
  // products.
  std::optional<DType> shard_dtype;
  bool lazy_optimizer = false;  // moments made by the first optimizer step
  // Copies of all of a stage's gradients beside them at all times, bytes a parameter: those that an optimizer
  // keeps below its own, and DDP's buckets (without ZeRO).
  double gradient_copy_bytes = 0, bucket_bytes = 0;
  // For all of a stage's gradients while they are reduced, one tensor, bytes a parameter: their copy in the
  // type that travels.
  double reduction_copy_bytes = 0;
  // For a rank's own parameters while the optimizer steps, bytes a parameter, one tensor each: flat copies of
  // gradients.
  double step_fp16_bytes = 0, step_fp32_bytes = 0;
  // Pipelines under ZeRO 3: what a stage holds whole between micro-batches, bytes a parameter.
  double whole_in_pipelines = 0;
  AllocatorKind allocator = AllocatorKind::planned;
  double context_gib = 0;  // outside the allocator: CUDA context, libraries, communicators
  bool operator==(const MemoryProfile&) const = default;
};

}  // namespace sim
