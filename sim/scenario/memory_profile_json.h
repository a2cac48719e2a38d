// What a memory profile holds, under the names of its file. Included by .cpp files only.
#pragma once
#include "sim/scenario/listed_fields.h"
#include "sim/scenario/memory_profile.h"

namespace sim {

void fields(auto& v, Like<ExtraTensor> auto& t) {
  v.needed("name", t.name);
  v.needed("from", t.from);
  v.needed("to", t.to);
  v.unless_zero("hidden", t.hidden);
  v.unless_zero("hidden_of_rows", t.hidden_of_rows);
  v.unless_zero("query", t.query);
  v.unless_zero("key_value", t.key_value);
  v.unless_zero("feed_forward", t.feed_forward);
  v.unless_zero("vocabulary", t.vocabulary);
  v.unless_zero("multi_head_only", t.multi_head_only);
  v.unless_zero("grouped_only", t.grouped_only);
  v.unless_zero("several_sequences_only", t.several_sequences_only);
  v.unless_zero("whole_only", t.whole_only);
}

void fields(auto& v, Like<SavedActivations> auto& s) {
  v.unless_zero("hidden", s.hidden);
  v.unless_zero("hidden_of_every_rank", s.hidden_of_every_rank);
  v.unless_zero("query", s.query);
  v.unless_zero("key_value", s.key_value);
  v.unless_zero("feed_forward", s.feed_forward);
  v.unless_zero("heads", s.heads);
  v.unless_zero("scores", s.scores);
}

void fields(auto& v, Like<MemoryProfile> auto& p) {
  constexpr std::string_view kDtypes = "fp32, bf16, fp16";
  v("tensors", p.tensors);
  v("saved_bytes_per_token", p.saved);
  v("saved_bytes_per_token_selective", p.saved_selective);
  v.word("logits_dtype", p.logits_dtype, kDtypes);
  v("weight_gradient", p.weight_gradient);
  v.word("shard_dtype", p.shard_dtype, kDtypes);
  v("lazy_optimizer", p.lazy_optimizer);
  v.unless_zero("gradient_copy_bytes", p.gradient_copy_bytes);
  v.unless_zero("bucket_bytes", p.bucket_bytes);
  v.unless_zero("reduction_copy_bytes", p.reduction_copy_bytes);
  v.unless_zero("step_fp16_bytes", p.step_fp16_bytes);
  v.unless_zero("step_fp32_bytes", p.step_fp32_bytes);
  v.unless_zero("whole_in_pipelines", p.whole_in_pipelines);
  v("allocator", p.allocator);
  v("context_gib", p.context_gib);
}

}  // namespace sim
