#include "sim/scenario/serving_implementation_json.h"

#include <cmath>

#include "sim/enum_names.h"

namespace sim {
namespace {

constexpr std::array<EnumName<DecodeAttention>, 2> kDecodeAttentions{
    {{DecodeAttention::tabulated, "tabulated"}, {DecodeAttention::block_per_head, "block_per_head"}}};
constexpr std::array<EnumName<Batching>, 3> kBatchings{{{Batching::static_batch, "static"},
                                                        {Batching::prefill_first, "prefill_first"},
                                                        {Batching::mixed, "mixed"}}};
constexpr std::array<EnumName<CacheShareOf>, 2> kCacheShares{
    {{CacheShareOf::free_memory, "free_memory"}, {CacheShareOf::total_memory, "total_memory"}}};

Seconds time_of(JsonObject& object, std::string_view stem, Seconds otherwise) {
  return {object.quantity(stem, unit_suffixes::short_time).value_or(otherwise.value)};
}

Bytes bytes_of(JsonObject& object, std::string_view stem, Bytes otherwise) {
  const auto value = object.quantity(stem, unit_suffixes::memory);
  return value ? Bytes{std::llround(*value)} : otherwise;
}

std::vector<std::int64_t> sizes_of(JsonObject& object, std::string_view key) {
  std::vector<std::int64_t> sizes;
  if (!object.has(key)) return sizes;
  for (const Json& value : object.at(key)) {
    if (!value.is_number_integer() || value.get<std::int64_t>() < 1 ||
        (!sizes.empty() && value.get<std::int64_t>() <= sizes.back()))
      object.fail(key, "must be whole numbers above 0, increasing");
    sizes.push_back(value.get<std::int64_t>());
  }
  return sizes;
}

void put_time(Json& json, std::string_view stem, Seconds t) {
  put_quantity(json, stem, t.value, unit_suffixes::short_time);
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

ServingImplementation serving_implementation_from(JsonObject o) {
  ServingImplementation s;
  s.product_tables = o.text("product_tables", s.product_tables);
  s.attention_tables = o.text("attention_tables", s.attention_tables);
  s.int8_efficiency = o.number("int8_efficiency", s.int8_efficiency);
  s.int4_efficiency = o.number("int4_efficiency", s.int4_efficiency);
  s.product_peak_share = o.number("product_peak_share", s.product_peak_share);
  s.decode_kernels = o.small_integer("decode_kernels", s.decode_kernels);
  s.prefill_kernels = o.small_integer("prefill_kernels", s.prefill_kernels);
  s.expert_kernels = o.small_integer("expert_kernels", s.expert_kernels);
  s.kernel_time = time_of(o, "kernel_time", s.kernel_time);
  s.gap = time_of(o, "gap", s.gap);
  s.decode_attention =
      o.word("decode_attention", decode_attention_from_name, "tabulated, block_per_head", s.decode_attention);
  s.decode_attention_efficiency = o.number("decode_attention_efficiency", s.decode_attention_efficiency);
  s.decode_attention_latency = time_of(o, "decode_attention_latency", s.decode_attention_latency);
  s.attends_to_whole_cache = o.boolean("attends_to_whole_cache", s.attends_to_whole_cache);
  s.standard_prefill_attention = o.boolean("standard_prefill_attention", s.standard_prefill_attention);
  s.prefill_copies = o.number("prefill_copies", s.prefill_copies);
  s.prompt_token_by_token = o.boolean("prompt_token_by_token", s.prompt_token_by_token);
  s.whole_head_on_each_rank = o.boolean("whole_head_on_each_rank", s.whole_head_on_each_rank);
  s.quantizes_head = o.boolean("quantizes_head", s.quantizes_head);
  s.sampling_passes = o.number("sampling_passes", s.sampling_passes);
  s.sampling_kernels = o.small_integer("sampling_kernels", s.sampling_kernels);
  s.sorts_vocabulary = o.boolean("sorts_vocabulary", s.sorts_vocabulary);
  s.graph_decode = o.boolean("graph_decode", s.graph_decode);
  s.graph_batches = sizes_of(o, "graph_batches");
  s.launch = time_of(o, "launch", s.launch);
  s.collective_launch = time_of(o, "collective_launch", s.collective_launch);
  s.host_step = time_of(o, "host_step", s.host_step);
  s.host_sequence = time_of(o, "host_sequence", s.host_sequence);
  s.host_overlapped = o.boolean("host_overlapped", s.host_overlapped);
  s.host_exposed = time_of(o, "host_exposed", s.host_exposed);
  s.request_overhead = time_of(o, "request_overhead", s.request_overhead);
  if (o.has("custom_all_reduce"))
    for (JsonObject& rule : o.objects("custom_all_reduce")) {
      s.custom_all_reduce.push_back(
          {static_cast<int>(rule.integer("ranks")), bytes_of(rule, "up_to", Bytes{})});
      rule.finish();
    }
  s.collective_tables = o.text("collective_tables", s.collective_tables);
  s.pipeline_tokens = o.integer("pipeline_tokens", s.pipeline_tokens);
  s.pipeline_chunk = o.integer("pipeline_chunk", s.pipeline_chunk);
  s.stage_overhead = time_of(o, "stage_overhead", s.stage_overhead);
  s.cache_share_of =
      o.word("cache_share_of", cache_share_from_name, "free_memory, total_memory", s.cache_share_of);
  s.cache_share = o.number("cache_share", s.cache_share);
  s.reserved = bytes_of(o, "reserved", s.reserved);
  s.kv_block = o.integer("kv_block", s.kv_block);
  s.fp8_cache_with_fp8_weights = o.boolean("fp8_cache_with_fp8_weights", s.fp8_cache_with_fp8_weights);
  s.batching = o.word("batching", batching_from_name, "static, prefill_first, mixed", s.batching);
  s.chunks_prompts = o.boolean("chunks_prompts", s.chunks_prompts);
  s.reserves_output = o.boolean("reserves_output", s.reserves_output);
  s.max_sequences = o.integer("max_sequences", s.max_sequences);
  s.max_tokens = o.integer("max_tokens", s.max_tokens);
  s.benchmark_limits = o.boolean("benchmark_limits", s.benchmark_limits);
  if (!(s.cache_share > 0 && s.cache_share <= 1)) o.fail("cache_share", "must be above 0 and at most 1");
  if (s.kv_block < 0) o.fail("kv_block", "must be 0 (contiguous) or more");
  if (s.max_sequences < 1) o.fail("max_sequences", "must be 1 or more");
  if (s.max_tokens < 1) o.fail("max_tokens", "must be 1 or more");
  o.finish();
  return s;
}

Json json_of(const ServingImplementation& s) {
  Json json{{"product_tables", s.product_tables},         {"attention_tables", s.attention_tables},
            {"int8_efficiency", s.int8_efficiency},       {"int4_efficiency", s.int4_efficiency},
            {"product_peak_share", s.product_peak_share}, {"decode_kernels", s.decode_kernels},
            {"prefill_kernels", s.prefill_kernels},       {"expert_kernels", s.expert_kernels}};
  put_time(json, "kernel_time", s.kernel_time);
  put_time(json, "gap", s.gap);
  json["decode_attention"] = name(s.decode_attention);
  json["decode_attention_efficiency"] = s.decode_attention_efficiency;
  put_time(json, "decode_attention_latency", s.decode_attention_latency);
  json["attends_to_whole_cache"] = s.attends_to_whole_cache;
  json["standard_prefill_attention"] = s.standard_prefill_attention;
  json["prefill_copies"] = s.prefill_copies;
  json["prompt_token_by_token"] = s.prompt_token_by_token;
  json["whole_head_on_each_rank"] = s.whole_head_on_each_rank;
  json["quantizes_head"] = s.quantizes_head;
  json["sampling_passes"] = s.sampling_passes;
  json["sampling_kernels"] = s.sampling_kernels;
  json["sorts_vocabulary"] = s.sorts_vocabulary;
  json["graph_decode"] = s.graph_decode;
  json["graph_batches"] = s.graph_batches;
  put_time(json, "launch", s.launch);
  put_time(json, "collective_launch", s.collective_launch);
  put_time(json, "host_step", s.host_step);
  put_time(json, "host_sequence", s.host_sequence);
  json["host_overlapped"] = s.host_overlapped;
  put_time(json, "host_exposed", s.host_exposed);
  put_time(json, "request_overhead", s.request_overhead);
  json["custom_all_reduce"] = Json::array();
  for (const auto& rule : s.custom_all_reduce) {
    Json entry{{"ranks", rule.ranks}};
    put_quantity(entry, "up_to", static_cast<double>(rule.up_to.value), unit_suffixes::memory);
    json["custom_all_reduce"].push_back(std::move(entry));
  }
  json["collective_tables"] = s.collective_tables;
  json["pipeline_tokens"] = s.pipeline_tokens;
  json["pipeline_chunk"] = s.pipeline_chunk;
  put_time(json, "stage_overhead", s.stage_overhead);
  json["cache_share_of"] = name(s.cache_share_of);
  json["cache_share"] = s.cache_share;
  put_quantity(json, "reserved", static_cast<double>(s.reserved.value), unit_suffixes::memory);
  json["kv_block"] = s.kv_block;
  json["fp8_cache_with_fp8_weights"] = s.fp8_cache_with_fp8_weights;
  json["batching"] = name(s.batching);
  json["chunks_prompts"] = s.chunks_prompts;
  json["reserves_output"] = s.reserves_output;
  json["max_sequences"] = s.max_sequences;
  json["max_tokens"] = s.max_tokens;
  json["benchmark_limits"] = s.benchmark_limits;
  return json;
}

}  // namespace sim
