#include "sim/scenario/scenario_json.h"

#include "sim/scenario/expert_division.h"
#include "sim/scenario/fields_json.h"

namespace sim {
namespace {

constexpr int kScenarioSchemaVersion = 1;

constexpr std::initializer_list<DType> kDtypes{DType::fp64, DType::fp32, DType::tf32,
                                               DType::bf16, DType::fp16, DType::fp8,
                                               DType::int8, DType::int4, DType::int32};

}  // namespace

void fields(auto& v, Like<RopeScaling> auto& s) {
  using P = RopeScaling;
  v.needed("rope_type", s.kind);
  if (s.kind != RopeScaling::Kind::none) v.needed("factor", s.factor);
  if (s.kind == RopeScaling::Kind::yarn) {
    v.needed("original_max_position_embeddings", s.original_max_position_embeddings);
    named<&P::beta_fast, &P::beta_slow, &P::truncate, &P::attention_factor>(v, s);
  }
  if (s.kind != RopeScaling::Kind::llama3) return;
  needed<&P::low_freq_factor, &P::high_freq_factor, &P::original_max_position_embeddings>(v, s);
}

// Under the names of the model's own fields.
void fields(auto& v, Like<MixtureOfExperts> auto& e) {
  using P = MixtureOfExperts;
  named<&P::num_experts, &P::num_experts_per_tok, &P::moe_intermediate_size,
        &P::shared_expert_intermediate_size, &P::shared_expert_gate, &P::router_bias, &P::scoring_func,
        &P::norm_topk_prob, &P::routed_scaling_factor>(v, e);
  v("expert_weights_on", e.weights_on);
  named<&P::first_k_dense_replace, &P::decoder_sparse_step, &P::n_group, &P::topk_group>(v, e);
}

void fields(auto& v, Like<LatentAttention> auto& a) {
  using P = LatentAttention;
  named<&P::q_lora_rank, &P::kv_lora_rank, &P::qk_nope_head_dim, &P::qk_rope_head_dim, &P::v_head_dim>(v, a);
}

void fields(auto& v, Like<StateSpace> auto& s) {
  using P = StateSpace;
  named<&P::mamba_num_heads, &P::mamba_head_dim, &P::ssm_state_size, &P::n_groups, &P::conv_kernel,
        &P::chunk_size>(v, s);
}

void fields(auto& v, Like<Model> auto& m) {
  needed<&Model::norm, &Model::activation, &Model::position, &Model::hidden_size, &Model::intermediate_size,
         &Model::num_hidden_layers, &Model::num_attention_heads>(v, m);
  v("num_key_value_heads", m.num_key_value_heads);
  v("head_dim", m.head_dim);
  v.needed("vocab_size", m.vocab_size);
  v.needed("max_position_embeddings", m.max_position_embeddings);
  named<&Model::tie_word_embeddings, &Model::attention_bias, &Model::attention_output_bias, &Model::mlp_bias,
        &Model::norm_eps, &Model::rope_theta, &Model::rope_scaling, &Model::qk_norm, &Model::attention_sinks>(
      v, m);
  v.unless_zero("attn_logit_softcapping", m.attn_logit_softcapping);
  v.unless_zero("final_logit_softcapping", m.final_logit_softcapping);
  named<&Model::embedding_norm, &Model::parallel_residual, &Model::shared_norm, &Model::sliding_window,
        &Model::sliding_window_pattern, &Model::no_rope_layer_interval>(v, m);
  fields(v, m.moe);
  fields(v, m.latent);
  fields(v, m.state_space);
  v("hybrid_override_pattern", m.hybrid_override_pattern);
  v("source", m.source);
  v.one_of("expert_weights_dtype", m.moe.weights_dtype, kStoredTypes);
  v.unless_zero("expert_weights_group", m.moe.weights_group);
  if (v.kReads || m.norm == Norm::layernorm) v("norm_parameters", m.norm_parameters);
  table_fields(v, m);
}

Model model_from(JsonObject object, const std::string& name) {
  Model m = struct_from<Model>(object, kAnyNumbers);
  m.name = object.text("name", name);
  if (!object.has("num_key_value_heads")) m.num_key_value_heads = m.num_attention_heads;
  const bool heads_divide =
      m.hidden_size > 0 && m.num_attention_heads > 0 && m.hidden_size % m.num_attention_heads == 0;
  if (!object.has("head_dim")) {
    if (m.has_latent_attention()) {
      // Sizes that no model has could overflow their sum in 64 bits. validate() looks at the rest.
      for (const auto& [key, part] : {std::pair{"qk_nope_head_dim", m.latent.qk_nope_head_dim},
                                      {"qk_rope_head_dim", m.latent.qk_rope_head_dim}})
        if (part < 0 || part > kLargestWidth)
          object.fail(key, sentence("must be from 0 to ", kLargestWidth, ", but is ", part));
      m.head_dim = m.latent.qk_nope_head_dim + m.latent.qk_rope_head_dim;
    } else if (heads_divide) {
      m.head_dim = m.hidden_size / m.num_attention_heads;
    } else {
      object.fail("head_dim", "is missing, and num_attention_heads does not divide hidden_size");
    }
  }
  object.finish();
  return m;
}

Json json_of(const Model& m) {
  Json json{{"name", m.name}};
  json.update(FieldWriter::object_of(m));
  return json;
}

void fields(auto& v, Like<Hardware> auto& h) {
  using P = Hardware;
  table_fields(v, h);
  named<&P::memory, &P::memory_bandwidth, &P::last_level_cache, &P::launch, &P::node_link, &P::network_link,
        &P::node_latency, &P::network_latency, &P::network_step, &P::host_link, &P::host_memory_bandwidth,
        &P::source>(v, h);
}

Hardware hardware_from(JsonObject object, const std::string& name) {
  Hardware h = struct_from<Hardware>(object, kAnyNumbers);
  h.name = object.text("name", name);
  h.display_name = object.text("display_name", h.name);
  for (const DType t : kDtypes)
    if (const auto rate = object.quantity(sim::name(t), unit_suffixes::rate)) h.peak[t] = {*rate};
  object.finish();
  return h;
}

Json json_of(const Hardware& h) {
  Json json{{"name", h.name}, {"display_name", h.display_name}};
  for (const auto& [dtype, rate] : h.peak) put_quantity(json, name(dtype), rate.value, unit_suffixes::rate);
  json.update(FieldWriter::object_of(h));
  return json;
}

void fields(auto& v, Like<Workload> auto& w) {
  table_fields(v, w);
}
void fields(auto& v, Like<Strategy> auto& s) {
  table_fields(v, s);
}

Workload workload_from(JsonObject object) {
  Workload w = struct_from<Workload>(object, kAnyNumbers);
  object.text("source", "");  // a preset says what it is modelled on; a workload does not keep it
  object.finish();
  return w;
}

Json json_of(const Workload& w) {
  return FieldWriter::object_of(w);
}

Strategy strategy_from(JsonObject object) {
  Strategy s = struct_from<Strategy>(object, kAnyNumbers);
  object.finish();
  return s;
}

Json json_of(const Strategy& s) {
  return FieldWriter::object_of(s);
}

Scenario scenario_from(JsonObject object) {
  if (object.integer("schema_version", kScenarioSchemaVersion) != kScenarioSchemaVersion)
    object.fail("schema_version", "must be " + std::to_string(kScenarioSchemaVersion));
  object.text("source", "");

  // A part is the name of a preset, or an object that may extend one.
  const auto part = [&object](std::string_view key, PresetKind kind, auto load, auto read) {
    const Json& value = object.at(key);
    if (value.is_string()) {
      try {
        return load(value.get<std::string>());
      } catch (const PresetError& error) {  // the error says what is wrong, not who asked for it
        throw PresetError(object.file() + ": field \"" + object.field(key) + "\": " + error.what());
      }
    }
    if (!value.is_object()) object.fail(key, "must be the name of a preset or an object");
    const Json whole = with_base(kind, value, object.file());
    return read(JsonObject(whole, object.file(), object.field(key)));
  };

  Scenario s;
  s.model = part("model", PresetKind::model, load_model_preset,
                 [](JsonObject o) { return model_from(o, "custom"); });
  s.hardware = part(
      "hardware", PresetKind::hardware,
      [](const std::string& name) {
        if (name != kThisMachine) return load_hardware_preset(name);
        Hardware unmeasured;
        unmeasured.name = name;
        return unmeasured;
      },
      [](JsonObject o) { return hardware_from(o, "custom"); });
  if (object.has("workload"))
    s.workload = part("workload", PresetKind::workload, load_workload_preset, workload_from);
  SaidOfExperts said;
  if (object.has("strategy")) {
    JsonObject strategy = object.object("strategy");
    said = {strategy.has("sequence_parallel"), strategy.has("expert_tensor_parallel")};
    s.strategy = strategy_from(std::move(strategy));
  }
  complete_expert_division(s, said);
  s.implementation = object.has("implementation")
                         ? part("implementation", PresetKind::implementation, load_implementation_preset,
                                [](JsonObject o) { return implementation_from(o, "custom"); })
                         : load_implementation_preset("ridgepoint");
  object.finish();
  return s;
}

Json json_of(const Scenario& s) {
  return {{"schema_version", kScenarioSchemaVersion}, {"model", json_of(s.model)},
          {"hardware", json_of(s.hardware)},          {"strategy", json_of(s.strategy)},
          {"workload", json_of(s.workload)},          {"implementation", json_of(s.implementation)}};
}

Scenario scenario_from_json(std::string_view json, const std::string& file) {
  const Json parsed = with_base(PresetKind::scenario, parse_json(json, file), file);
  return scenario_from(JsonObject(parsed, file));
}
std::string to_json(const Scenario& scenario) {
  return json_of(scenario).dump(2);
}

Model model_from_json(std::string_view json, const std::string& file) {
  const Json parsed = with_base(PresetKind::model, parse_json(json, file), file);
  return model_from(JsonObject(parsed, file), "custom");
}
std::string to_json(const Model& model) {
  return json_of(model).dump(2);
}

}  // namespace sim
