#include "sim/scenario/fields_json.h"
#include "sim/scenario/listed_fields.h"
#include "sim/scenario/memory_profile_json.h"
#include "sim/scenario/scenario_json.h"

namespace sim {
namespace {

void check(JsonObject serving, const ServingImplementation& s) {
  if (!(s.cache_share > 0 && s.cache_share <= 1))
    serving.fail("cache_share", "must be above 0 and at most 1");
  if (s.max_sequences < 1) serving.fail("max_sequences", "must be 1 or more");
  if (s.max_tokens < 1) serving.fail("max_tokens", "must be 1 or more");
}

}  // namespace

// ---- What each profile holds, under the names of its file.

void fields(auto& v, Like<QuantisationProfile> auto& p) {
  v("input_bytes", p.input_bytes);
  v("weight_bytes", p.weight_bytes);
  v("gradient_bytes", p.gradient_bytes);
}

void fields(auto& v, Like<KernelProfile> auto& p) {
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

void fields(auto& v, Like<HostProfile> auto& p) {
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

void fields(auto& v, Like<DataParallelProfile> auto& p) {
  v("overlaps_reduction", p.overlaps_reduction);
  v("overlaps_sharded_reduction", p.overlaps_sharded_reduction);
  v("overlaps_gather", p.overlaps_gather);
  v("reduces_whole", p.reduces_whole);
  v.word("reduction_dtype", p.reduction_dtype, "fp32, bf16, fp16, fp8");
  v("bucket_mib", p.bucket_mib);
  v("gather_copy_passes", p.gather_copy_passes);
  v("reduction_copy_passes", p.reduction_copy_passes);
  v("gather_part", p.gather_part);
  v("gathers_fp8", p.gathers_fp8);
}

void fields(auto& v, Like<TensorOverlap> auto& p) {
  v("under", p.under);
  v("chunks", p.chunks);
}

void fields(auto& v, Like<TensorParallelProfile> auto& p) {
  v("forward_gather", p.forward_gather);
  v("forward_scatter", p.forward_scatter);
  v("backward_gather", p.backward_gather);
  v("backward_scatter", p.backward_scatter);
  v("input_gather", p.input_gather);
  v("gathers_again", p.gathers_again);
  v("backward_all_reduce", p.backward_all_reduce);
  v("product_pieces", p.product_pieces);
}

void fields(auto& v, Like<ExpertParallelProfile> auto& p) {
  v("under", p.under);
  v("multiprocessors", p.multiprocessors);
  v("dispatches_fp8", p.dispatches_fp8);
  v("room_for_any_choice", p.room_for_any_choice);
}

void fields(auto& v, Like<PipelineProfile> auto& p) {
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

void fields(auto& v, Like<ServingImplementation> auto& p) {
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

void fields(auto& v, Like<ServingImplementation::CustomAllReduce> auto& p) {
  v("ranks", p.ranks);
  v("up_to", p.up_to);
  v("tables", p.tables);
}

void fields(auto& v, Like<UsualRun> auto& p) {
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
void fields(auto& v, Like<Implementation> auto& p) {
  v("kernels", p.kernels);
  v("host", p.host);
  v("data_parallel", p.data_parallel);
  v("tensor_parallel", p.tensor_parallel);
  v("expert_parallel", p.expert_parallel);
  v("pipeline", p.pipeline);
  v("memory", p.memory);
  v("usual", p.usual);
}

Implementation implementation_from(JsonObject object, const std::string& name) {
  Implementation i;
  i.name = object.text("name", name);
  read_fields(object, i);
  FieldReader reader(object, kNotNegative);
  fields(reader, i);
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
  FieldWriter writer(json);
  fields(writer, i);
  writer("serving", i.serving);
  json["source"] = i.source;
  return json;
}

}  // namespace sim
