#include "sim/scenario/fields_json.h"
#include "sim/scenario/memory_profile_json.h"
#include "sim/scenario/scenario_json.h"

namespace sim {
namespace {

// Factors, shares, bytes an element: beyond a million, sums of bytes are no whole numbers any more.
constexpr LegalNumbers kOfSoftware{0, 0, 0, kAnyNumbers.most_count, "must be 0 or more", 1e6};

void check(JsonObject serving, const ServingImplementation& s) {
  if (!(s.cache_share > 0 && s.cache_share <= 1))
    serving.fail("cache_share", "must be above 0 and at most 1");
  if (s.max_sequences < 1) serving.fail("max_sequences", "must be 1 or more");
  if (s.max_tokens < 1) serving.fail("max_tokens", "must be 1 or more");
}

}  // namespace

// ---- What each profile holds, under the names of its file.

void fields(auto& v, Like<QuantisationProfile> auto& p) {
  named<&QuantisationProfile::input_bytes, &QuantisationProfile::weight_bytes,
        &QuantisationProfile::gradient_bytes>(v, p);
}

void fields(auto& v, Like<KernelProfile> auto& p) {
  using P = KernelProfile;
  named<&P::attention, &P::slower, &P::times, &P::traffic, &P::side_passes, &P::quantisation,
        &P::loss_bytes_per_logit, &P::accumulation_bytes_per_parameter, &P::launches_forward,
        &P::launches_backward>(v, p);
}

void fields(auto& v, Like<HostProfile> auto& p) {
  using P = HostProfile;
  named<&P::uncertainty, &P::launch, &P::collective, &P::collective_rank, &P::layer_backward,
        &P::layer_recompute, &P::unit_hook, &P::waits_around_passes, &P::wait, &P::pass, &P::step,
        &P::parameter>(v, p);
}

void fields(auto& v, Like<DataParallelProfile> auto& p) {
  using P = DataParallelProfile;
  named<&P::overlaps_reduction, &P::overlaps_sharded_reduction, &P::overlaps_gather, &P::reduces_whole>(v, p);
  v.one_of("reduction_dtype", p.reduction_dtype, words("fp32", "bf16", "fp16", "fp8"));
  named<&P::bucket_mib, &P::gather_copy_passes, &P::reduction_copy_passes, &P::gather_part, &P::gathers_fp8>(
      v, p);
}

void fields(auto& v, Like<TensorOverlap> auto& p) {
  v("under", p.under);
  v("chunks", p.chunks);
}

void fields(auto& v, Like<TensorParallelProfile> auto& p) {
  using P = TensorParallelProfile;
  named<&P::forward_gather, &P::forward_scatter, &P::backward_gather, &P::backward_scatter, &P::input_gather,
        &P::gathers_again, &P::backward_all_reduce, &P::product_pieces>(v, p);
}

void fields(auto& v, Like<ExpertParallelProfile> auto& p) {
  using P = ExpertParallelProfile;
  named<&P::under, &P::multiprocessors, &P::dispatches_fp8, &P::room_for_any_choice>(v, p);
}

void fields(auto& v, Like<PipelineProfile> auto& p) {
  using P = PipelineProfile;
  named<&P::messages_forward, &P::messages_backward, &P::message, &P::waits, &P::waits_interleaved,
        &P::in_order, &P::scatters, &P::balances_head, &P::stall, &P::stalls>(v, p);
}

void fields(auto& v, Like<ServingImplementation> auto& p) {
  using P = ServingImplementation;
  named<&P::product_tables, &P::attention_tables, &P::int8_efficiency, &P::int4_efficiency,
        &P::product_peak_share, &P::decode_kernels, &P::prefill_kernels, &P::expert_kernels, &P::kernel_time,
        &P::gap, &P::decode_attention, &P::decode_attention_efficiency, &P::decode_attention_latency,
        &P::attends_to_whole_cache, &P::standard_prefill_attention, &P::prefill_copies,
        &P::prompt_token_by_token, &P::whole_head_on_each_rank, &P::quantizes_head, &P::sampling_passes,
        &P::sampling_kernels, &P::sorts_vocabulary, &P::graph_decode, &P::graph_batches, &P::launch,
        &P::collective_launch, &P::host_step, &P::host_sequence, &P::host_overlapped, &P::host_exposed,
        &P::request_overhead, &P::custom_all_reduce, &P::collective_tables, &P::pipeline_tokens,
        &P::pipeline_chunk, &P::stage_overhead, &P::cache_share_of, &P::cache_share, &P::reserved,
        &P::kv_block, &P::fp8_cache_with_fp8_weights, &P::batching, &P::chunks_prompts, &P::reserves_output,
        &P::max_sequences, &P::max_tokens, &P::benchmark_limits>(v, p);
}

void fields(auto& v, Like<ServingImplementation::CustomAllReduce> auto& p) {
  named<&ServingImplementation::CustomAllReduce::ranks, &ServingImplementation::CustomAllReduce::up_to,
        &ServingImplementation::CustomAllReduce::tables>(v, p);
}

void fields(auto& v, Like<UsualRun> auto& p) {
  using P = UsualRun;
  named<&P::zero_stage, &P::zero_stage_in_pipelines, &P::sequence_parallel, &P::recompute,
        &P::interleaves_layers, &P::accumulates, &P::hardware, &P::memory_of, &P::memory_reading>(v, p);
}

// The profiles. The fields beside them are rows of fields.h.
void fields(auto& v, Like<Implementation> auto& p) {
  using P = Implementation;
  named<&P::kernels, &P::host, &P::data_parallel, &P::tensor_parallel, &P::expert_parallel, &P::pipeline,
        &P::memory, &P::usual>(v, p);
}

Implementation implementation_from(JsonObject object, const std::string& name) {
  Implementation i;
  i.name = object.text("name", name);
  FieldReader of_table(object, kAnyNumbers);
  table_fields(of_table, i);
  FieldReader reader(object, kOfSoftware);
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
  FieldWriter writer(json);
  table_fields(writer, i);
  fields(writer, i);
  writer("serving", i.serving);
  json["source"] = i.source;
  return json;
}

}  // namespace sim
