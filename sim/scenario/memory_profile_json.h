// What a memory profile holds, under the names of its file. Included by .cpp files only.
#pragma once
#include "sim/scenario/fields.h"
#include "sim/scenario/listed_fields.h"
#include "sim/scenario/memory_profile.h"

namespace sim {

void fields(auto& v, Like<ExtraTensor> auto& t) {
  using P = ExtraTensor;
  needed<&P::name, &P::from, &P::to>(v, t);
  unless_zero<&P::hidden, &P::hidden_of_rows, &P::query, &P::key_value, &P::feed_forward, &P::vocabulary,
              &P::multi_head_only, &P::grouped_only, &P::several_sequences_only, &P::whole_only>(v, t);
}

void fields(auto& v, Like<SavedActivations> auto& s) {
  using P = SavedActivations;
  unless_zero<&P::hidden, &P::hidden_of_every_rank, &P::query, &P::key_value, &P::feed_forward, &P::heads,
              &P::scores>(v, s);
}

void fields(auto& v, Like<MemoryProfile> auto& p) {
  using P = MemoryProfile;
  constexpr auto kTypes = words("fp32", "bf16", "fp16");
  v("tensors", p.tensors);
  v("saved_bytes_per_token", p.saved);
  v("saved_bytes_per_token_selective", p.saved_selective);
  v.one_of("logits_dtype", p.logits_dtype, kTypes);
  v("weight_gradient", p.weight_gradient);
  v.one_of("shard_dtype", p.shard_dtype, kTypes);
  v("lazy_optimizer", p.lazy_optimizer);
  unless_zero<&P::gradient_copy_bytes, &P::bucket_bytes, &P::reduction_copy_bytes, &P::step_fp16_bytes,
              &P::step_fp32_bytes, &P::whole_in_pipelines>(v, p);
  v("allocator", p.allocator);
  v("context_gib", p.context_gib);
}

}  // namespace sim
