#include "sim/scenario/scenario_json.h"

#include <cmath>
#include <limits>

#include "sim/scenario/expert_division.h"
#include "sim/scenario/fields_json.h"

namespace sim {
namespace {

constexpr int kScenarioSchemaVersion = 1;

constexpr std::initializer_list<DType> kDtypes{DType::fp64, DType::fp32, DType::tf32,
                                               DType::bf16, DType::fp16, DType::fp8,
                                               DType::int8, DType::int4, DType::int32};

Bytes bytes_of(JsonObject& object, std::string_view stem) {
  const double value = object.quantity(stem, unit_suffixes::memory).value_or(0);
  // Doubles hold whole numbers up to 2^53, which is 8 PiB.
  if (!(std::fabs(value) <= 0x1p53)) object.fail(stem, "must be less than 8 PiB");
  return {std::llround(value)};
}

RopeScaling rope_scaling_from(JsonObject object) {
  RopeScaling scaling;
  scaling.kind = object.word("rope_type", rope_scaling_from_name, "default, linear, llama3");
  if (scaling.kind != RopeScaling::Kind::none) scaling.factor = object.number("factor");
  if (scaling.kind == RopeScaling::Kind::llama3) {
    scaling.low_freq_factor = object.number("low_freq_factor");
    scaling.high_freq_factor = object.number("high_freq_factor");
    scaling.original_max_position_embeddings = object.integer("original_max_position_embeddings");
  }
  object.finish();
  return scaling;
}

Json json_of(const RopeScaling& scaling) {
  Json json{{"rope_type", name(scaling.kind)}};
  if (scaling.kind != RopeScaling::Kind::none) json["factor"] = scaling.factor;
  if (scaling.kind == RopeScaling::Kind::llama3) {
    json["low_freq_factor"] = scaling.low_freq_factor;
    json["high_freq_factor"] = scaling.high_freq_factor;
    json["original_max_position_embeddings"] = scaling.original_max_position_embeddings;
  }
  return json;
}

MixtureOfExperts mixture_of_experts_from(JsonObject& object) {
  MixtureOfExperts e;
  e.num_experts = object.integer("num_experts", 0);
  e.num_experts_per_tok = object.integer("num_experts_per_tok", 0);
  e.moe_intermediate_size = object.integer("moe_intermediate_size", 0);
  e.shared_expert_intermediate_size = object.integer("shared_expert_intermediate_size", 0);
  e.shared_expert_gate = object.boolean("shared_expert_gate", false);
  if (object.has_value("expert_weights_dtype"))
    e.weights_dtype = object.word("expert_weights_dtype", dtype_from_name, listed(stored_types()));
  e.weights_group = object.integer("expert_weights_group", 0);
  e.router_bias = object.boolean("router_bias", false);
  e.scoring_func =
      object.word("scoring_func", scoring_func_from_name, "softmax, sigmoid", ScoringFunc::softmax);
  e.norm_topk_prob = object.boolean("norm_topk_prob", true);
  e.routed_scaling_factor = object.number("routed_scaling_factor", 1.0);
  e.first_k_dense_replace = object.integer("first_k_dense_replace", 0);
  e.decoder_sparse_step = object.integer("decoder_sparse_step", 1);
  e.n_group = object.integer("n_group", 1);
  e.topk_group = object.integer("topk_group", 1);
  return e;
}

LatentAttention latent_attention_from(JsonObject& object) {
  LatentAttention a;
  a.q_lora_rank = object.integer("q_lora_rank", 0);
  a.kv_lora_rank = object.integer("kv_lora_rank", 0);
  a.qk_nope_head_dim = object.integer("qk_nope_head_dim", 0);
  a.qk_rope_head_dim = object.integer("qk_rope_head_dim", 0);
  a.v_head_dim = object.integer("v_head_dim", 0);
  return a;
}

StateSpace state_space_from(JsonObject& object) {
  StateSpace s;
  s.mamba_num_heads = object.integer("mamba_num_heads", s.mamba_num_heads);
  s.mamba_head_dim = object.integer("mamba_head_dim", s.mamba_head_dim);
  s.ssm_state_size = object.integer("ssm_state_size", s.ssm_state_size);
  s.n_groups = object.integer("n_groups", s.n_groups);
  s.conv_kernel = object.integer("conv_kernel", s.conv_kernel);
  s.chunk_size = object.integer("chunk_size", s.chunk_size);
  return s;
}

}  // namespace

Model model_from(JsonObject object, const std::string& name) {
  Model m;
  m.name = object.text("name", name);
  m.norm = object.word("norm", norm_from_name, "layernorm, rmsnorm");
  m.norm_parameters = object.word("norm_parameters", norm_parameters_from_name, "gain_and_bias, gain, none",
                                  m.norm_parameters);
  m.activation = object.word("activation", activation_from_name, "gelu, relu, squared_relu, swiglu, geglu");
  m.position = object.word("position", position_from_name, "learned, rope, alibi, none");
  m.hidden_size = object.integer("hidden_size");
  m.intermediate_size = object.integer("intermediate_size");
  m.num_hidden_layers = object.integer("num_hidden_layers");
  m.num_attention_heads = object.integer("num_attention_heads");
  m.num_key_value_heads = object.integer("num_key_value_heads", m.num_attention_heads);
  m.latent = latent_attention_from(object);
  const bool heads_divide =
      m.hidden_size > 0 && m.num_attention_heads > 0 && m.hidden_size % m.num_attention_heads == 0;
  if (object.has("head_dim"))
    m.head_dim = object.integer("head_dim");
  else if (m.has_latent_attention())
    m.head_dim = m.latent.qk_nope_head_dim + m.latent.qk_rope_head_dim;
  else if (heads_divide)
    m.head_dim = m.hidden_size / m.num_attention_heads;
  else
    object.fail("head_dim", "is missing, and num_attention_heads does not divide hidden_size");
  m.vocab_size = object.integer("vocab_size");
  m.max_position_embeddings = object.integer("max_position_embeddings");
  m.tie_word_embeddings = object.boolean("tie_word_embeddings", false);
  m.attention_bias = object.boolean("attention_bias", false);
  m.attention_output_bias = object.boolean("attention_output_bias", false);
  m.mlp_bias = object.boolean("mlp_bias", false);
  m.norm_eps = object.number("norm_eps", m.norm_eps);
  m.rope_theta = object.number("rope_theta", m.rope_theta);
  if (object.has("rope_scaling")) m.rope_scaling = rope_scaling_from(object.object("rope_scaling"));
  m.qk_norm = object.word("qk_norm", qk_norm_from_name, "none, per_head, all_heads", m.qk_norm);
  m.attention_sinks = object.boolean("attention_sinks", false);
  m.embedding_norm = object.boolean("embedding_norm", false);
  m.parallel_residual = object.boolean("parallel_residual", false);
  m.shared_norm = object.boolean("shared_norm", false);
  m.sliding_window = object.integer("sliding_window", 0);
  m.sliding_window_pattern = object.integer("sliding_window_pattern", 0);
  m.no_rope_layer_interval = object.integer("no_rope_layer_interval", 0);
  m.moe = mixture_of_experts_from(object);
  m.state_space = state_space_from(object);
  m.hybrid_override_pattern = object.text("hybrid_override_pattern", "");
  read_fields(object, m);
  m.source = object.text("source", "");
  object.finish();
  return m;
}

Json json_of(const Model& m) {
  Json json{{"name", m.name},
            {"norm", name(m.norm)},
            {"activation", name(m.activation)},
            {"position", name(m.position)},
            {"hidden_size", m.hidden_size},
            {"intermediate_size", m.intermediate_size},
            {"num_hidden_layers", m.num_hidden_layers},
            {"num_attention_heads", m.num_attention_heads},
            {"num_key_value_heads", m.num_key_value_heads},
            {"head_dim", m.head_dim},
            {"vocab_size", m.vocab_size},
            {"max_position_embeddings", m.max_position_embeddings},
            {"tie_word_embeddings", m.tie_word_embeddings},
            {"attention_bias", m.attention_bias},
            {"attention_output_bias", m.attention_output_bias},
            {"mlp_bias", m.mlp_bias},
            {"norm_eps", m.norm_eps},
            {"rope_theta", m.rope_theta},
            {"rope_scaling", json_of(m.rope_scaling)},
            {"qk_norm", name(m.qk_norm)},
            {"attention_sinks", m.attention_sinks},
            {"embedding_norm", m.embedding_norm},
            {"parallel_residual", m.parallel_residual},
            {"shared_norm", m.shared_norm},
            {"sliding_window", m.sliding_window},
            {"sliding_window_pattern", m.sliding_window_pattern},
            {"no_rope_layer_interval", m.no_rope_layer_interval},
            {"num_experts", m.moe.num_experts},
            {"num_experts_per_tok", m.moe.num_experts_per_tok},
            {"moe_intermediate_size", m.moe.moe_intermediate_size},
            {"shared_expert_intermediate_size", m.moe.shared_expert_intermediate_size},
            {"shared_expert_gate", m.moe.shared_expert_gate},
            {"router_bias", m.moe.router_bias},
            {"scoring_func", name(m.moe.scoring_func)},
            {"norm_topk_prob", m.moe.norm_topk_prob},
            {"routed_scaling_factor", m.moe.routed_scaling_factor},
            {"first_k_dense_replace", m.moe.first_k_dense_replace},
            {"decoder_sparse_step", m.moe.decoder_sparse_step},
            {"n_group", m.moe.n_group},
            {"topk_group", m.moe.topk_group},
            {"q_lora_rank", m.latent.q_lora_rank},
            {"kv_lora_rank", m.latent.kv_lora_rank},
            {"qk_nope_head_dim", m.latent.qk_nope_head_dim},
            {"qk_rope_head_dim", m.latent.qk_rope_head_dim},
            {"v_head_dim", m.latent.v_head_dim},
            {"mamba_num_heads", m.state_space.mamba_num_heads},
            {"mamba_head_dim", m.state_space.mamba_head_dim},
            {"ssm_state_size", m.state_space.ssm_state_size},
            {"n_groups", m.state_space.n_groups},
            {"conv_kernel", m.state_space.conv_kernel},
            {"chunk_size", m.state_space.chunk_size},
            {"hybrid_override_pattern", m.hybrid_override_pattern},
            {"source", m.source}};
  if (m.moe.weights_dtype) {
    json["expert_weights_dtype"] = name(*m.moe.weights_dtype);
    json["expert_weights_group"] = m.moe.weights_group;
  }
  write_fields(json, m);
  if (m.norm == Norm::layernorm) json["norm_parameters"] = name(m.norm_parameters);
  return json;
}

Hardware hardware_from(JsonObject object, const std::string& name) {
  Hardware h;
  h.name = object.text("name", name);
  h.display_name = object.text("display_name", h.name);
  for (const DType t : kDtypes)
    if (const auto rate = object.quantity(sim::name(t), unit_suffixes::rate)) h.peak[t] = {*rate};
  h.memory = bytes_of(object, "memory");
  h.memory_bandwidth = {object.quantity("memory_bandwidth", unit_suffixes::bandwidth).value_or(0)};
  h.last_level_cache = bytes_of(object, "last_level_cache");
  h.launch = {object.quantity("launch", unit_suffixes::short_time).value_or(0)};
  read_fields(object, h);
  h.node_link = {object.quantity("node_link", unit_suffixes::bandwidth).value_or(0)};
  h.network_link = {object.quantity("network_link", unit_suffixes::bandwidth).value_or(0)};
  h.node_latency = {object.quantity("node_latency", unit_suffixes::short_time).value_or(0)};
  h.network_latency = {object.quantity("network_latency", unit_suffixes::short_time).value_or(0)};
  h.network_step = {object.quantity("network_step", unit_suffixes::short_time).value_or(0)};
  h.host_link = {object.quantity("host_link", unit_suffixes::bandwidth).value_or(0)};
  h.host_memory_bandwidth = {object.quantity("host_memory_bandwidth", unit_suffixes::bandwidth).value_or(0)};
  h.source = object.text("source", "");
  object.finish();
  return h;
}

Json json_of(const Hardware& h) {
  Json json{{"name", h.name}, {"display_name", h.display_name}};
  for (const auto& [dtype, rate] : h.peak) put_quantity(json, name(dtype), rate.value, unit_suffixes::rate);
  put_quantity(json, "memory", static_cast<double>(h.memory.value), unit_suffixes::memory);
  put_quantity(json, "memory_bandwidth", h.memory_bandwidth.value, unit_suffixes::bandwidth);
  put_quantity(json, "last_level_cache", static_cast<double>(h.last_level_cache.value),
               unit_suffixes::memory);
  put_quantity(json, "launch", h.launch.value, unit_suffixes::short_time);
  write_fields(json, h);
  put_quantity(json, "node_link", h.node_link.value, unit_suffixes::bandwidth);
  put_quantity(json, "network_link", h.network_link.value, unit_suffixes::bandwidth);
  put_quantity(json, "node_latency", h.node_latency.value, unit_suffixes::short_time);
  put_quantity(json, "network_latency", h.network_latency.value, unit_suffixes::short_time);
  put_quantity(json, "network_step", h.network_step.value, unit_suffixes::short_time);
  put_quantity(json, "host_link", h.host_link.value, unit_suffixes::bandwidth);
  put_quantity(json, "host_memory_bandwidth", h.host_memory_bandwidth.value, unit_suffixes::bandwidth);
  json["source"] = h.source;
  return json;
}

Workload workload_from(JsonObject object) {
  Workload w;
  read_fields(object, w);
  object.text("source", "");  // a preset says what it is modelled on; a workload does not keep it
  object.finish();
  return w;
}

Json json_of(const Workload& w) {
  Json json;
  write_fields(json, w);
  return json;
}

Strategy strategy_from(JsonObject object) {
  Strategy s;
  read_fields(object, s);
  object.finish();
  return s;
}

Json json_of(const Strategy& s) {
  Json json;
  write_fields(json, s);
  return json;
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
      } catch (const PresetError& error) {  // which says what is wrong, not who asked for it
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

Hardware hardware_from_json(std::string_view json, const std::string& file) {
  const Json parsed = with_base(PresetKind::hardware, parse_json(json, file), file);
  return hardware_from(JsonObject(parsed, file), "custom");
}
std::string to_json(const Hardware& hardware) {
  return json_of(hardware).dump(2);
}

}  // namespace sim
