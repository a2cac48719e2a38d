#include "sim/scenario/memory_profile.h"

#include "sim/enum_names.h"
#include "sim/scenario/memory_profile_json.h"

namespace sim {
namespace {

constexpr std::array<EnumName<WeightGradient>, 4> kWeightGradients{
    {{WeightGradient::accumulated, "accumulated"},
     {WeightGradient::hooked, "hooked"},
     {WeightGradient::kept, "kept"},
     {WeightGradient::fresh, "fresh"}}};
constexpr std::array<EnumName<AllocatorKind>, 3> kAllocators{{{AllocatorKind::planned, "planned"},
                                                              {AllocatorKind::caching, "caching"},
                                                              {AllocatorKind::expandable, "expandable"}}};

// The widths and conditions of an extra tensor under the names of its file.
template <class Tensor, class Visit>
void for_each_width(Tensor& t, Visit visit) {
  visit("hidden", t.hidden);
  visit("hidden_of_rows", t.hidden_of_rows);
  visit("query", t.query);
  visit("key_value", t.key_value);
  visit("feed_forward", t.feed_forward);
  visit("vocabulary", t.vocabulary);
}
template <class Tensor, class Visit>
void for_each_condition(Tensor& t, Visit visit) {
  visit("multi_head_only", t.multi_head_only);
  visit("grouped_only", t.grouped_only);
  visit("several_sequences_only", t.several_sequences_only);
  visit("whole_only", t.whole_only);
}

template <class Saved, class Visit>
void for_each_coefficient(Saved& s, Visit visit) {
  visit("hidden", s.hidden);
  visit("hidden_of_every_rank", s.hidden_of_every_rank);
  visit("query", s.query);
  visit("key_value", s.key_value);
  visit("feed_forward", s.feed_forward);
  visit("heads", s.heads);
  visit("scores", s.scores);
}

template <class Profile, class Visit>
void for_each_copy(Profile& p, Visit visit) {
  visit("gradient_copy_bytes", p.gradient_copy_bytes);
  visit("bucket_bytes", p.bucket_bytes);
  visit("reduction_copy_bytes", p.reduction_copy_bytes);
  visit("step_fp16_bytes", p.step_fp16_bytes);
  visit("step_fp32_bytes", p.step_fp32_bytes);
  visit("whole_in_pipelines", p.whole_in_pipelines);
}

SavedActivations saved_from(JsonObject object) {
  SavedActivations s;
  for_each_coefficient(s, [&](std::string_view key, double& bytes) { bytes = object.number(key, bytes); });
  object.finish();
  return s;
}

Json json_of(const SavedActivations& s) {
  Json json = Json::object();
  for_each_coefficient(s, [&](const char* key, double bytes) {
    if (bytes != 0) json[key] = bytes;
  });
  return json;
}

ExtraTensor tensor_from(JsonObject object) {
  ExtraTensor t;
  t.name = object.text("name");
  t.from = object.text("from");
  t.to = object.text("to");
  for_each_width(t, [&](std::string_view key, double& width) { width = object.number(key, width); });
  for_each_condition(t, [&](std::string_view key, bool& holds) { holds = object.boolean(key, holds); });
  object.finish();
  return t;
}

Json json_of(const ExtraTensor& t) {
  Json json{{"name", t.name}, {"from", t.from}, {"to", t.to}};
  for_each_width(t, [&](const char* key, double width) {
    if (width != 0) json[key] = width;
  });
  for_each_condition(t, [&](const char* key, bool holds) {
    if (holds) json[key] = true;
  });
  return json;
}

}  // namespace

std::string_view name(WeightGradient kind) {
  return name_in(kWeightGradients, kind);
}
std::optional<WeightGradient> weight_gradient_from_name(std::string_view text) {
  return value_in(kWeightGradients, text);
}
std::string_view name(AllocatorKind kind) {
  return name_in(kAllocators, kind);
}
std::optional<AllocatorKind> allocator_from_name(std::string_view text) {
  return value_in(kAllocators, text);
}

MemoryProfile memory_profile_from(JsonObject object) {
  constexpr std::string_view kDtypes = "fp32, bf16, fp16";
  MemoryProfile p;
  if (object.has("tensors"))
    for (JsonObject& tensor : object.objects("tensors")) p.tensors.push_back(tensor_from(std::move(tensor)));
  if (object.has_value("saved_bytes_per_token")) p.saved = saved_from(object.object("saved_bytes_per_token"));
  if (object.has_value("saved_bytes_per_token_selective"))
    p.saved_selective = saved_from(object.object("saved_bytes_per_token_selective"));
  if (object.has_value("logits_dtype"))
    p.logits_dtype = object.word("logits_dtype", dtype_from_name, kDtypes);
  p.weight_gradient = object.word("weight_gradient", weight_gradient_from_name,
                                  "accumulated, hooked, kept, fresh", p.weight_gradient);
  if (object.has_value("shard_dtype")) p.shard_dtype = object.word("shard_dtype", dtype_from_name, kDtypes);
  p.lazy_optimizer = object.boolean("lazy_optimizer", p.lazy_optimizer);
  for_each_copy(p, [&](std::string_view key, double& bytes) { bytes = object.number(key, bytes); });
  p.allocator = object.word("allocator", allocator_from_name, "planned, caching, expandable", p.allocator);
  p.context_gib = object.number("context_gib", p.context_gib);
  object.text("source", "");
  object.finish();
  return p;
}

Json json_of(const MemoryProfile& p) {
  Json json;
  json["tensors"] = Json::array();
  for (const ExtraTensor& t : p.tensors) json["tensors"].push_back(json_of(t));
  if (p.saved) json["saved_bytes_per_token"] = json_of(*p.saved);
  if (p.saved_selective) json["saved_bytes_per_token_selective"] = json_of(*p.saved_selective);
  json["logits_dtype"] = p.logits_dtype ? Json(name(*p.logits_dtype)) : Json();
  json["weight_gradient"] = name(p.weight_gradient);
  json["shard_dtype"] = p.shard_dtype ? Json(name(*p.shard_dtype)) : Json();
  json["lazy_optimizer"] = p.lazy_optimizer;
  for_each_copy(p, [&](const char* key, double bytes) {
    if (bytes != 0) json[key] = bytes;
  });
  json["allocator"] = name(p.allocator);
  json["context_gib"] = p.context_gib;
  return json;
}

}  // namespace sim
