// Profiles are read and written by one list of their fields.
#include <array>
#include <cmath>

#include "sim/enum_names.h"
#include "sim/scenario/fields_json.h"
#include "sim/scenario/memory_profile_json.h"
#include "sim/scenario/scenario_json.h"

namespace sim {
namespace {

constexpr std::string_view kDtypeWords = "fp32, bf16, fp16, fp8";
constexpr std::array<EnumName<DecodeAttention>, 2> kDecodeAttentions{
    {{DecodeAttention::tabulated, "tabulated"}, {DecodeAttention::block_per_head, "block_per_head"}}};
constexpr std::array<EnumName<Batching>, 3> kBatchings{{{Batching::static_batch, "static"},
                                                        {Batching::prefill_first, "prefill_first"},
                                                        {Batching::mixed, "mixed"}}};
constexpr std::array<EnumName<CacheShareOf>, 2> kCacheShares{
    {{CacheShareOf::free_memory, "free_memory"}, {CacheShareOf::total_memory, "total_memory"}}};

// ---- What each profile holds, under the names of its file. `v(name, field)` reads or writes one.

template <class Visitor, class Profile>
void quantisation_fields(Visitor& v, Profile& p) {
  v("input_bytes", p.input_bytes);
  v("weight_bytes", p.weight_bytes);
  v("gradient_bytes", p.gradient_bytes);
}

template <class Visitor, class Profile>
void kernel_fields(Visitor& v, Profile& p) {
  v("attention", p.attention);
  v("slower", p.slower);
  v("times", p.times);
  v("traffic", p.traffic);
  v("side_passes", p.side_passes);
  v("quantisation", p.quantisation);
  v("loss_bytes_per_logit", p.loss_bytes_per_logit);
  v("accumulation_bytes_per_parameter", p.accumulation_bytes_per_parameter);
  v("launches_forward", p.launches_forward);
  v("launches_backward", p.launches_backward);
}

template <class Visitor, class Profile>
void host_fields(Visitor& v, Profile& p) {
  v("uncertainty", p.uncertainty);
  v("launch", p.launch);
  v("collective", p.collective);
  v("collective_rank", p.collective_rank);
  v("layer_backward", p.layer_backward);
  v("layer_recompute", p.layer_recompute);
  v("unit_hook", p.unit_hook);
  v("waits_around_passes", p.waits_around_passes);
  v("wait", p.wait);
  v("pass", p.pass);
  v("step", p.step);
  v("parameter", p.parameter);
}

template <class Visitor, class Profile>
void data_parallel_fields(Visitor& v, Profile& p) {
  v("overlaps_reduction", p.overlaps_reduction);
  v("overlaps_sharded_reduction", p.overlaps_sharded_reduction);
  v("overlaps_gather", p.overlaps_gather);
  v("reduces_whole", p.reduces_whole);
  v("reduction_dtype", p.reduction_dtype);
  v("bucket_mib", p.bucket_mib);
  v("gather_copy_passes", p.gather_copy_passes);
  v("reduction_copy_passes", p.reduction_copy_passes);
  v("gather_part", p.gather_part);
  v("gathers_fp8", p.gathers_fp8);
}

template <class Visitor, class Profile>
void overlap_fields(Visitor& v, Profile& p) {
  v("under", p.under);
  v("chunks", p.chunks);
}

template <class Visitor, class Profile>
void tensor_parallel_fields(Visitor& v, Profile& p) {
  v("forward_gather", p.forward_gather);
  v("forward_scatter", p.forward_scatter);
  v("backward_gather", p.backward_gather);
  v("backward_scatter", p.backward_scatter);
  v("input_gather", p.input_gather);
  v("gathers_again", p.gathers_again);
  v("backward_all_reduce", p.backward_all_reduce);
  v("product_pieces", p.product_pieces);
}

template <class Visitor, class Profile>
void expert_parallel_fields(Visitor& v, Profile& p) {
  v("under", p.under);
  v("multiprocessors", p.multiprocessors);
  v("dispatches_fp8", p.dispatches_fp8);
}

template <class Visitor, class Profile>
void pipeline_fields(Visitor& v, Profile& p) {
  v("messages_forward", p.messages_forward);
  v("messages_backward", p.messages_backward);
  v("message", p.message);
  v("waits", p.waits);
  v("waits_interleaved", p.waits_interleaved);
  v("in_order", p.in_order);
  v("scatters", p.scatters);
  v("balances_head", p.balances_head);
  v("stall", p.stall);
  v("stalls", p.stalls);
}

template <class Visitor, class Profile>
void serving_fields(Visitor& v, Profile& p) {
  v("product_tables", p.product_tables);
  v("attention_tables", p.attention_tables);
  v("int8_efficiency", p.int8_efficiency);
  v("int4_efficiency", p.int4_efficiency);
  v("product_peak_share", p.product_peak_share);
  v("decode_kernels", p.decode_kernels);
  v("prefill_kernels", p.prefill_kernels);
  v("expert_kernels", p.expert_kernels);
  v("kernel_time", p.kernel_time);
  v("gap", p.gap);
  v("decode_attention", p.decode_attention);
  v("decode_attention_efficiency", p.decode_attention_efficiency);
  v("decode_attention_latency", p.decode_attention_latency);
  v("attends_to_whole_cache", p.attends_to_whole_cache);
  v("standard_prefill_attention", p.standard_prefill_attention);
  v("prefill_copies", p.prefill_copies);
  v("prompt_token_by_token", p.prompt_token_by_token);
  v("whole_head_on_each_rank", p.whole_head_on_each_rank);
  v("quantizes_head", p.quantizes_head);
  v("sampling_passes", p.sampling_passes);
  v("sampling_kernels", p.sampling_kernels);
  v("sorts_vocabulary", p.sorts_vocabulary);
  v("graph_decode", p.graph_decode);
  v("graph_batches", p.graph_batches);
  v("launch", p.launch);
  v("collective_launch", p.collective_launch);
  v("host_step", p.host_step);
  v("host_sequence", p.host_sequence);
  v("host_overlapped", p.host_overlapped);
  v("host_exposed", p.host_exposed);
  v("request_overhead", p.request_overhead);
  v("custom_all_reduce", p.custom_all_reduce);
  v("collective_tables", p.collective_tables);
  v("pipeline_tokens", p.pipeline_tokens);
  v("pipeline_chunk", p.pipeline_chunk);
  v("stage_overhead", p.stage_overhead);
  v("cache_share_of", p.cache_share_of);
  v("cache_share", p.cache_share);
  v("reserved", p.reserved);
  v("kv_block", p.kv_block);
  v("fp8_cache_with_fp8_weights", p.fp8_cache_with_fp8_weights);
  v("batching", p.batching);
  v("chunks_prompts", p.chunks_prompts);
  v("reserves_output", p.reserves_output);
  v("max_sequences", p.max_sequences);
  v("max_tokens", p.max_tokens);
  v("benchmark_limits", p.benchmark_limits);
}

template <class Visitor, class Profile>
void all_reduce_fields(Visitor& v, Profile& p) {
  v("ranks", p.ranks);
  v("up_to", p.up_to);
  v("tables", p.tables);
}

template <class Visitor, class Profile>
void usual_fields(Visitor& v, Profile& p) {
  v("zero_stage", p.zero_stage);
  v("zero_stage_in_pipelines", p.zero_stage_in_pipelines);
  v("sequence_parallel", p.sequence_parallel);
  v("recompute", p.recompute);
  v("interleaves_layers", p.interleaves_layers);
  v("accumulates", p.accumulates);
  v("hardware", p.hardware);
  v("memory_of", p.memory_of);
  v("memory_reading", p.memory_reading);
}

// The profiles; what stands beside them is a row of fields.h.
template <class Visitor, class Profile>
void implementation_fields(Visitor& v, Profile& p) {
  v("kernels", p.kernels);
  v("host", p.host);
  v("data_parallel", p.data_parallel);
  v("tensor_parallel", p.tensor_parallel);
  v("expert_parallel", p.expert_parallel);
  v("pipeline", p.pipeline);
  v("memory", p.memory);
  v("usual", p.usual);
}

template <class Visitor>
void fields(Visitor& v, auto& p) {
  using Profile = std::remove_cvref_t<decltype(p)>;
  if constexpr (std::is_same_v<Profile, QuantisationProfile>) quantisation_fields(v, p);
  if constexpr (std::is_same_v<Profile, KernelProfile>) kernel_fields(v, p);
  if constexpr (std::is_same_v<Profile, HostProfile>) host_fields(v, p);
  if constexpr (std::is_same_v<Profile, DataParallelProfile>) data_parallel_fields(v, p);
  if constexpr (std::is_same_v<Profile, TensorOverlap>) overlap_fields(v, p);
  if constexpr (std::is_same_v<Profile, TensorParallelProfile>) tensor_parallel_fields(v, p);
  if constexpr (std::is_same_v<Profile, ExpertParallelProfile>) expert_parallel_fields(v, p);
  if constexpr (std::is_same_v<Profile, PipelineProfile>) pipeline_fields(v, p);
  if constexpr (std::is_same_v<Profile, UsualRun>) usual_fields(v, p);
  if constexpr (std::is_same_v<Profile, ServingImplementation>) serving_fields(v, p);
  if constexpr (std::is_same_v<Profile, ServingImplementation::CustomAllReduce>) all_reduce_fields(v, p);
}

// ---- Reading: a field that is not there keeps its value.

class Reader {
 public:
  explicit Reader(JsonObject& object) : object_(object) {}

  void operator()(const char* key, std::string& x) { x = object_.text(key, x); }
  void operator()(const char* key, bool& x) { x = object_.boolean(key, x); }
  void operator()(const char* key, int& x) {
    x = object_.small_integer(key, x);
    if (x < 0) object_.fail(key, "must be 0 or more");
  }
  void operator()(const char* key, std::int64_t& x) {
    x = object_.integer(key, x);
    if (x < 0) object_.fail(key, "must be 0 or more");
  }
  void operator()(const char* key, Bytes& x) {
    if (const auto given = object_.quantity(key, unit_suffixes::memory)) x = {std::llround(*given)};
  }
  void operator()(const char* key, DecodeAttention& x) {
    x = object_.word(key, decode_attention_from_name, "tabulated, block_per_head", x);
  }
  void operator()(const char* key, Batching& x) {
    x = object_.word(key, batching_from_name, "static, prefill_first, mixed", x);
  }
  void operator()(const char* key, CacheShareOf& x) {
    x = object_.word(key, cache_share_from_name, "free_memory, total_memory", x);
  }
  void operator()(const char* key, std::vector<std::int64_t>& x) {
    if (!object_.has(key)) return;
    x.clear();
    for (const Json& value : object_.at(key)) {
      const bool more = value.is_number_integer() && value.get<std::int64_t>() > (x.empty() ? 0 : x.back());
      if (!more) object_.fail(key, "must be whole numbers above 0, increasing");
      x.push_back(value.get<std::int64_t>());
    }
  }
  template <class Profile>
  void operator()(const char* key, std::vector<Profile>& x) {
    if (!object_.has(key)) return;
    x.clear();
    for (JsonObject& object : object_.objects(key)) {
      Reader reader(object);
      fields(reader, x.emplace_back());
      object.finish();
    }
  }
  void operator()(const char* key, double& x) {
    x = object_.number(key, x);
    if (!(x >= 0)) object_.fail(key, "must be 0 or more");
  }
  void operator()(const char* key, Seconds& x) {
    if (const auto given = object_.quantity(key, unit_suffixes::short_time)) x = {*given};
    if (!(x.value >= 0)) object_.fail(key, "must be 0 or more");
  }
  void operator()(const char* key, std::optional<DType>& x) {
    if (object_.has_value(key)) x = object_.word(key, dtype_from_name, kDtypeWords);
  }
  void operator()(const char* key, std::map<std::string, double>& x) {
    if (!object_.has(key)) return;
    JsonObject all = object_.object(key);
    for (const auto& item : object_.at(key).items()) {
      const double factor = all.number(item.key());
      if (!(factor >= 0)) all.fail(item.key(), "must be 0 or more");
      x[item.key()] = factor;
    }
  }
  void operator()(const char* key, std::map<std::string, std::string>& x) {
    if (!object_.has(key)) return;
    JsonObject all = object_.object(key);
    for (const auto& item : object_.at(key).items()) x[item.key()] = all.text(item.key());
  }
  void operator()(const char* key, MemoryProfile& x) {
    if (object_.has(key)) x = memory_profile_from(object_.object(key));
  }
  template <class Profile>
  void operator()(const char* key, Profile& x) {
    if (!object_.has(key)) return;
    JsonObject object = object_.object(key);
    Reader reader(object);
    fields(reader, x);
    object.text("source", "");
    object.finish();
  }

 private:
  JsonObject& object_;
};

// ---- Writing.

class Writer {
 public:
  explicit Writer(Json& json) : json_(json) {}

  void operator()(const char* key, Bytes x) {
    put_quantity(json_, key, static_cast<double>(x.value), unit_suffixes::memory);
  }
  void operator()(const char* key, const std::vector<std::int64_t>& x) { json_[key] = x; }
  template <class Profile>
  void operator()(const char* key, const std::vector<Profile>& x) {
    json_[key] = Json::array();
    for (const Profile& profile : x) json_[key].push_back(object_of(profile));
  }
  void operator()(const char* key, const MemoryProfile& x) { json_[key] = json_of(x); }
  void operator()(const char* key, Seconds x) {
    put_quantity(json_, key, x.value, unit_suffixes::short_time);
  }
  template <class Value>
  void operator()(const char* key, const std::map<std::string, Value>& x) {
    json_[key] = Json(x);
  }
  template <class Value>
  void operator()(const char* key, const std::optional<Value>& x) {
    if (x) (*this)(key, *x);
  }
  template <class Value>
  void operator()(const char* key, const Value& x) {
    if constexpr (std::is_arithmetic_v<Value> || std::is_same_v<Value, std::string>) {
      json_[key] = x;
    } else if constexpr (std::is_enum_v<Value>) {
      json_[key] = name(x);
    } else {
      json_[key] = object_of(x);
    }
  }

 private:
  template <class Profile>
  static Json object_of(const Profile& profile) {
    Json object = Json::object();
    Writer writer(object);
    fields(writer, profile);
    return object;
  }

  Json& json_;
};

void check(JsonObject serving, const ServingImplementation& s) {
  if (!(s.cache_share > 0 && s.cache_share <= 1))
    serving.fail("cache_share", "must be above 0 and at most 1");
  if (s.max_sequences < 1) serving.fail("max_sequences", "must be 1 or more");
  if (s.max_tokens < 1) serving.fail("max_tokens", "must be 1 or more");
}

}  // namespace

std::string_view name(DecodeAttention kind) {
  return name_in(kDecodeAttentions, kind);
}
std::string_view name(Batching batching) {
  return name_in(kBatchings, batching);
}
std::string_view name(CacheShareOf of) {
  return name_in(kCacheShares, of);
}
std::optional<DecodeAttention> decode_attention_from_name(std::string_view text) {
  return value_in(kDecodeAttentions, text);
}
std::optional<Batching> batching_from_name(std::string_view text) {
  return value_in(kBatchings, text);
}
std::optional<CacheShareOf> cache_share_from_name(std::string_view text) {
  return value_in(kCacheShares, text);
}

Implementation implementation_from(JsonObject object, const std::string& name) {
  Implementation i;
  i.name = object.text("name", name);
  read_fields(object, i);
  Reader reader(object);
  implementation_fields(reader, i);
  if (object.has_value("serving")) {
    reader("serving", i.serving.emplace());
    check(object.object("serving"), *i.serving);
  }
  i.source = object.text("source", "");
  object.finish();
  return i;
}

Json json_of(const Implementation& i) {
  Json json{{"name", i.name}};
  write_fields(json, i);
  Writer writer(json);
  implementation_fields(writer, i);
  writer("serving", i.serving);
  json["source"] = i.source;
  return json;
}

}  // namespace sim
