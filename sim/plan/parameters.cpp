#include "sim/plan/parameters.h"

#include <algorithm>
#include <string_view>

#include "sim/plan/lora.h"
#include "sim/plan/optimizer.h"

namespace sim {
namespace {

// Joins two parts of a name with one allocation, because a plan has hundreds of names.
std::string joined(std::string_view a, std::string_view b) {
  std::string both;
  both.reserve(a.size() + b.size());
  both.append(a).append(b);
  return both;
}

class ParameterWriter {
 public:
  ParameterWriter(PlanBuilder& builder, bool training) : builder_(builder), training_(training) {}
  // For one layer beside the model's own layers. `prefix` begins its names.
  ParameterWriter(PlanBuilder& builder, std::string prefix)
      : builder_(builder), training_(true), prefix_(std::move(prefix)), of_one_layer_(true) {}

  // A parameter of experts, of shape (experts that a rank holds, ...).
  Tensor expert_tensor(std::string name, const Shape& shape, DType stored) {
    const bool matrices = shape.size() == 3;
    const int ranks = builder_.expert_data_ranks();
    of_experts_ = true;
    Tensor t = tensor(std::move(name), shape, true, false, stored, ranks, builder_.groups().expert_data);
    of_experts_ = false;
    t.decay = matrices;
    t.of_experts = true;
    return t;
  }
  Tensor tensor(std::string name, const Shape& shape, bool per_layer, bool replicated) {
    return tensor(std::move(name), shape, per_layer, replicated, builder_.types().stored);
  }
  Tensor tensor(std::string name, const Shape& shape, bool per_layer, bool replicated, DType stored) {
    return tensor(std::move(name), shape, per_layer, replicated, stored, shard_ranks(builder_.strategy()),
                  builder_.groups().shard);
  }
  // The `ranks` ranks of `group` hold the same tensor.
  Tensor tensor(std::string name, const Shape& shape, bool of_layer, bool replicated, DType stored,
                std::int64_t ranks, std::int32_t group) {
    name.insert(0, prefix_);
    const bool per_layer = of_layer && !of_one_layer_;
    const ElementTypes& types = builder_.types();
    const bool learns = training_ && (adapters_ || !trains_adapters(builder_.scenario().workload));
    int zero = training_ && ranks > 1 ? builder_.strategy().zero_stage : 0;
    if (!learns && zero < 3) zero = 0;  // there are no gradients and states to divide
    std::int64_t elements = 1;
    for (const Extent& e : shape) elements *= e.factor;
    const Shape shard = zero ? Shape{(elements + ranks - 1) / ranks} : shape;
    const MemoryProfile& profile = builder_.scenario().implementation.memory;
    const Lifetime optimizer_life = profile.lazy_optimizer ? Lifetime::first_use : Lifetime::plan;
    const Lifetime gradient_life =
        profile.weight_gradient == WeightGradient::fresh ? Lifetime::uses : Lifetime::plan;
    const auto held = [&](const char* prefix, BufferClass c, DType dtype, const Shape& of_shape,
                          BufferId parameter, BufferId whole) {
      return builder_.add({.name = prefix + name,
                           .buffer_class = c,
                           .dtype = dtype,
                           .shape = of_shape,
                           .lifetime = c == BufferClass::gradient    ? gradient_life
                                       : c == BufferClass::optimizer ? optimizer_life
                                                                     : Lifetime::plan,
                           .per_layer = per_layer,
                           .parameter = parameter,
                           .view_of = whole,
                           .shard_group = zero > 0 && &of_shape != &shape ? group : -1});
    };
    // The whole tensor lives for one pass of one micro-batch over one unit.
    const auto whole_for_a_while = [&](const char* prefix, BufferClass c, DType dtype) {
      return builder_.add({.name = prefix + name,
                           .buffer_class = c,
                           .dtype = dtype,
                           .shape = shape,
                           .per_layer = per_layer,
                           .per_micro_batch = true});
    };
    Tensor t;
    t.decay = shape.size() == 2;
    t.replicated = replicated;
    t.zero_stage = zero;
    if (zero == 3) {
      t.parameter_shard = held("", BufferClass::parameter, types.shard, shard, kNoBuffer, kNoBuffer);
      t.parameter = whole_for_a_while("gathered.", BufferClass::communication, types.stored);
      t.parameter_for_backward =
          whole_for_a_while("gathered_for_backward.", BufferClass::communication, types.stored);
    } else {
      t.parameter = held("", BufferClass::parameter, stored, shape, kNoBuffer, kNoBuffer);
      t.parameter_for_backward = t.parameter_shard = t.parameter;
    }
    if (!training_) add_scales_of_groups(t.parameter, of_experts_ && shape.size() == 3);
    if (!learns) return t;
    const BufferId parameter = zero == 3 ? t.parameter_shard : t.parameter;
    if (zero == 1 || zero == 2)
      t.parameter_shard = held("shard.", BufferClass::parameter, types.stored, shard, parameter, parameter);
    if (zero >= 2) {
      t.gradient_shard =
          held("gradient.", BufferClass::gradient, types.gradient, shard, parameter, kNoBuffer);
      t.gradient = whole_for_a_while("whole.gradient.", BufferClass::gradient, types.gradient);
    } else {
      t.gradient = held("gradient.", BufferClass::gradient, types.gradient, shape, parameter, kNoBuffer);
      t.gradient_shard = zero == 1 ? held("shard.gradient.", BufferClass::gradient, types.gradient, shard,
                                          parameter, t.gradient)
                                   : t.gradient;
    }
    const bool on_host = builder_.strategy().offload_optimizer;
    const auto state = [&](const char* prefix, DType dtype, const Shape& of_shape) {
      const BufferId b = held(prefix, BufferClass::optimizer, dtype, of_shape, parameter, kNoBuffer);
      builder_.place_on_host(b, on_host);
      return b;
    };
    for (const OptimizerState& s : optimizer_states(builder_.scenario().workload.optimizer, shard, per_layer))
      t.*s.member = state(s.prefix, s.dtype, s.shape);
    if (types.master || on_host) t.master = state("master.", DType::fp32, shard);
    if (on_host) {
      t.host_gradient = state("host.gradient.", types.gradient, shard);
      t.host_parameter = types.stored == DType::fp32 ? t.master : state("host.", types.stored, shard);
    }
    return t;
  }

  // Tensor-parallel ranks divide the output columns, and the bias with them.
  Affine column_parallel(std::string_view name, std::int64_t outputs, std::int64_t inputs, bool bias) {
    return linear(name, builder_.types().weights, outputs, inputs, bias, false);
  }
  Affine column_parallel(LayerProduct product, std::int64_t outputs, std::int64_t inputs, bool bias) {
    return column_parallel(name_of(builder_.model(), product), product, outputs, inputs, bias);
  }
  Affine column_parallel(std::string_view name, LayerProduct product, std::int64_t outputs,
                         std::int64_t inputs, bool bias) {
    return linear(name, stored_weights(product), outputs, inputs, bias, false);
  }
  // Ranks divide the inputs. The outputs are partial sums, and every rank has the bias.
  Affine row_parallel(std::string_view name, std::int64_t outputs, std::int64_t inputs, bool bias) {
    return linear(name, builder_.types().weights, outputs, inputs, bias, true);
  }
  Affine row_parallel(LayerProduct product, std::int64_t outputs, std::int64_t inputs, bool bias) {
    return row_parallel(name_of(builder_.model(), product), product, outputs, inputs, bias);
  }
  Affine row_parallel(std::string_view name, LayerProduct product, std::int64_t outputs, std::int64_t inputs,
                      bool bias) {
    return linear(name, stored_weights(product), outputs, inputs, bias, true);
  }

  // Beside column_parallel products, B is divided with the outputs; beside row_parallel ones, A with the
  // inputs. Every rank has the whole of the other factor, and a part of its gradient.
  Adapter adapter(const AdapterSite& site) {
    const std::int64_t rank = builder_.scenario().workload.lora_rank;
    const std::string name = adapter_name(builder_.model(), site);
    adapters_ = true;
    Adapter a{site, tensor(name + "_down.weight", {rank, site.inputs}, true, !site.divides_inputs),
              tensor(name + "_up.weight", {site.outputs, rank}, true, site.divides_inputs)};
    adapters_ = false;
    return a;
  }

  // The tensor `t`, whose gradient is the result of one product.
  Tensor written(Tensor t) const {
    t.is_written = training_ && products_write_gradients(builder_.scenario());
    return t;
  }

  Affine norm(std::string_view name, bool per_layer) {
    const Model& m = builder_.model();
    Affine a;
    if (m.norm_has_gain()) a.weight = tensor(joined(name, ".weight"), {m.hidden_size}, per_layer, true);
    if (m.norm_has_bias()) a.bias = tensor(joined(name, ".bias"), {m.hidden_size}, per_layer, true);
    return a;
  }
  Affine expert_products(std::string_view name, LayerProduct product, std::int64_t outputs,
                         std::int64_t inputs, bool bias) {
    const ElementTypes& types = builder_.types();
    const DType stored =
        in_all_layers(product, stored_experts(builder_.scenario().workload), types.expert_weights);
    Affine a;
    a.weight = expert_tensor(joined(name, ".weight"), {builder_.experts_held(), outputs, inputs}, stored);
    if (bias) a.bias = expert_tensor(joined(name, ".bias"), {builder_.experts_held(), outputs}, types.stored);
    return a;
  }

  // The last rows of a QKV gradient: keys and values.
  BufferId key_value_rows(const Tensor& qkv_gradient_of, const std::string& name, std::int64_t inputs) {
    const Buffer whole = builder_.buffer(qkv_gradient_of.gradient);
    return builder_.add({.name = "key_value." + prefix_ + name,
                         .buffer_class = whole.buffer_class,
                         .dtype = whole.dtype,
                         .shape = {2 * builder_.model().key_value_size(), inputs},
                         .lifetime = whole.lifetime,
                         .per_layer = whole.per_layer,
                         .per_micro_batch = whole.per_micro_batch,
                         .parameter = whole.parameter,
                         .view_of = qkv_gradient_of.gradient});
  }

 private:
  // Types of weights in layers whose kind is not `mixed`: the product's own one where no layers are listed.
  DType in_all_layers(LayerProduct product, std::optional<DType> common, DType otherwise) const {
    const Workload& w = builder_.scenario().workload;
    const bool generates = w.task == Task::generate && w.mixed_layers.empty();
    return generates ? type_beside(w, product, common).value_or(otherwise) : otherwise;
  }
  DType stored_weights(LayerProduct product) const {
    return in_all_layers(product, builder_.scenario().workload.weights_dtype, builder_.types().weights);
  }

  Affine linear(std::string_view name, DType stored, std::int64_t outputs, std::int64_t inputs, bool bias,
                bool replicated_bias) {
    Affine a;
    a.weight = tensor(joined(name, ".weight"), {outputs, inputs}, true, false, stored);
    if (bias) a.bias = tensor(joined(name, ".bias"), {outputs}, true, replicated_bias);
    a.weight = written(a.weight);
    a.bias = written(a.bias);
    if (training_) add_scales_of_frozen(a.weight.parameter, outputs, outputs * inputs);
    return a;
  }

  // Weights that are read in fewer than 16 bits have a scale for each row or each group of its columns. Our
  // own kernels have four bytes for it: fp32, around zero (runtime/weight_quantisation.h), or on the CPU a
  // scale and a minimum in fp16 (kernels/quantised.h); where it has no zeros, a scale in fp16.
  // Other software has 16 bits, with a zero beside them where integers come in groups (AWQ and GPTQ
  // checkpoints; gpt-fast, quantize.py) and has_zeros(). There, experts in the format that their model was
  // published in have the scales of that format. GGUF's types of blocks have theirs everywhere.
  void add_scales_of_groups(BufferId weight, bool of_experts) {
    const Buffer of = builder_.buffer(weight);
    if (bits(of.dtype) >= 16 || of.shape.size() < 2) return;
    const Scenario& s = builder_.scenario();
    const MixtureOfExperts& e = s.model.moe;
    const bool own_format =
        of_experts && e.weights_group > 0 && e.weights_dtype == of.dtype && !s.implementation.runs_here;
    const std::int64_t group = own_format ? e.weights_group : s.workload.weights_group;
    Shape shape = of.shape;
    const std::int64_t columns = shape.back().factor;
    if (const auto blocks = stored_blocks(of.dtype)) {
      shape[shape.size() - 1] = blocks->scale_bytes(columns);
      return add_beside(weight, "scales.", DType::int8, shape);
    }
    shape[shape.size() - 1] = group > 0 ? (columns + group - 1) / group : 1;
    if (own_format) return add_beside(weight, "scales.", DType::int8, shape);  // MXFP4: an exponent
    const bool zeros = has_zeros(s.workload, of.dtype);
    if (s.implementation.runs_here)
      return add_beside(weight, "scales.", zeros ? DType::fp32 : DType::fp16, shape);
    add_beside(weight, "scales.", builder_.types().stored, shape);
    if (zeros && group > 0 && of.dtype != DType::fp8)
      add_beside(weight, "zeros.", builder_.types().stored, shape);
  }
  void add_beside(BufferId weight, const char* prefix, DType dtype, const Shape& shape) {
    const Buffer of = builder_.buffer(weight);
    builder_.add({.name = prefix + of.name,
                  .buffer_class = BufferClass::parameter,
                  .dtype = dtype,
                  .shape = shape,
                  .lifetime = Lifetime::plan,
                  .per_layer = of.per_layer,
                  .parameter = weight});
  }

  // Adds scales for weights that training reads in fewer than 16 bits and does not change.
  void add_scales_of_frozen(BufferId weight, std::int64_t rows, std::int64_t elements) {
    const std::int64_t blocks = (elements + kFrozenBlock - 1) / kFrozenBlock;
    switch (stored_frozen(builder_.scenario().workload)) {
      case FrozenWeights::as_dtype:
        return;
      case FrozenWeights::int8:
        return add_beside(weight, "scales.", DType::fp32, {rows});
      case FrozenWeights::nf4:
        return add_beside(weight, "scales.", DType::fp32, {blocks});
      case FrozenWeights::nf4_double:
        // Behind the scales of scales is the mean that was subtracted before: one number a weight. The
        // paper's 0.127 bits leave it out; bitsandbytes keeps it as `offset`.
        add_beside(weight, "scales.", DType::int8, {blocks});
        add_beside(weight, "scales_of_scales.", DType::fp32,
                   {(blocks + kFrozenScaleBlock - 1) / kFrozenScaleBlock + 1});
        return;
    }
  }

  PlanBuilder& builder_;
  bool training_;
  bool of_experts_ = false;
  bool adapters_ = false;  // added parameters learn beside weights that do not
  std::string prefix_;
  bool of_one_layer_ = false;
};

constexpr std::string_view kMixedPrefix = "mixed.";

// A layer's weight under another name, in another type.
Tensor in_type(DType type, PlanBuilder& builder, const Tensor& weight) {
  const Buffer& of = builder.buffer(weight.parameter);
  ParameterWriter w(builder, false);
  std::string name = joined(kMixedPrefix, of.name);
  if (weight.of_experts) return w.expert_tensor(std::move(name), Shape(of.shape), type);
  return w.tensor(std::move(name), Shape(of.shape), true, weight.replicated, type);
}

constexpr std::size_t kSomeTensors = 16;  // a unit of most models has no more

LatentParameters add_latent_parameters(ParameterWriter& w, const Model& m) {
  const LatentAttention& a = m.latent;
  const std::string name = "layer.attention.";
  const auto replicated = [&](const std::string& part, std::int64_t outputs, std::int64_t inputs) {
    return Affine{w.written(w.tensor(name + part + ".weight", {outputs, inputs}, true, true)), {}};
  };
  LatentParameters p;
  if (a.q_lora_rank > 0) {
    p.q_down = replicated("q_down", a.q_lora_rank, m.hidden_size);
    p.q_norm = w.tensor(name + "q_norm.weight", {a.q_lora_rank}, true, true);
  }
  p.q_up = w.column_parallel(name + "q_up", m.query_size(), a.q_lora_rank > 0 ? a.q_lora_rank : m.hidden_size,
                             false);
  p.kv_down = replicated("kv_down", a.kv_lora_rank + a.qk_rope_head_dim, m.hidden_size);
  p.kv_norm = w.tensor(name + "kv_norm.weight", {a.kv_lora_rank}, true, true);
  p.kv_up = w.column_parallel(name + "kv_up", m.num_attention_heads * (a.qk_nope_head_dim + a.v_head_dim),
                              a.kv_lora_rank, false);
  return p;
}

ExpertParameters add_expert_parameters(ParameterWriter& w, const Model& m) {
  const MixtureOfExperts& e = m.moe;
  ExpertParameters p;
  p.router = w.written(w.tensor("layer.router.weight", {e.num_experts, m.hidden_size}, true, true));
  if (e.router_bias) p.router_bias = w.tensor("layer.router.bias", {e.num_experts}, true, true);
  p.up = w.expert_products("layer.experts.gate_up", LayerProduct::up, m.up_size(e.moe_intermediate_size),
                           m.hidden_size, m.mlp_bias);
  p.down = w.expert_products("layer.experts.down", LayerProduct::down, m.hidden_size, e.moe_intermediate_size,
                             m.mlp_bias);
  if (const std::int64_t shared = e.shared_expert_intermediate_size; shared > 0) {
    p.shared_up = w.column_parallel("layer.shared_expert.gate_up", LayerProduct::up, m.up_size(shared),
                                    m.hidden_size, m.mlp_bias);
    p.shared_down =
        w.row_parallel("layer.shared_expert.down", LayerProduct::down, m.hidden_size, shared, m.mlp_bias);
    if (e.shared_expert_gate)
      p.shared_gate = w.written(w.tensor("layer.shared_expert.gate.weight", {1, m.hidden_size}, true, true));
  }
  return p;
}

}  // namespace

std::string_view parameter_name(std::string_view buffer) {
  return buffer.substr(buffer.starts_with(kMixedPrefix) ? kMixedPrefix.size() : 0);
}

DecoderParameters with_mixed_weights(PlanBuilder& builder, DecoderParameters p) {
  const Workload& w = builder.scenario().workload;
  const auto mix = [&](LayerProduct product, Affine& a, std::optional<DType> common) {
    if (const auto own = type_beside(w, product, common); own && a.weight)
      a.weight = in_type(*own, builder, a.weight);
  };
  const std::vector<LayerKind> kinds = layer_kinds(builder.scenario());
  const auto any_mixed = [&](bool (*has)(const LayerKind&)) {
    return std::ranges::any_of(kinds, [=](const LayerKind& kind) { return kind.mixed && has(kind); });
  };
  if (any_mixed([](const LayerKind& kind) { return kind.attends(); })) {
    mix(LayerProduct::qkv, p.qkv, w.weights_dtype);
    mix(LayerProduct::output, p.attention_output, w.weights_dtype);
  }
  if (any_mixed([](const LayerKind& kind) { return kind.feeds_forward() && !kind.experts; })) {
    mix(LayerProduct::up, p.mlp_up, w.weights_dtype);
    mix(LayerProduct::down, p.mlp_down, w.weights_dtype);
  }
  if (any_mixed([](const LayerKind& kind) { return kind.experts; })) {
    mix(LayerProduct::up, p.experts.up, stored_experts(w));
    mix(LayerProduct::down, p.experts.down, stored_experts(w));
    mix(LayerProduct::up, p.experts.shared_up, w.weights_dtype);
    mix(LayerProduct::down, p.experts.shared_down, w.weights_dtype);
  }
  return p;
}

std::string_view name_of(const Model& model, LayerProduct product) {
  switch (product) {
    case LayerProduct::qkv:
      return "layer.attention.qkv";
    case LayerProduct::output:
      return "layer.attention.output";
    case LayerProduct::up:
      return is_gated(model.activation) ? "layer.mlp.gate_up" : "layer.mlp.up";
    case LayerProduct::down:
      break;
  }
  return "layer.mlp.down";
}

std::vector<Tensor> DecoderParameters::embedding_group() const {
  std::vector<Tensor> group;
  group.reserve(kSomeTensors);
  group.push_back(embedding);
  append(group, position_embedding);
  append(group, embedding_norm);
  return group;
}

namespace {

// Which parts of a layer's parameters a unit has.
struct UnitParts {
  bool attention, state_space, dense, experts;
};
UnitParts parts_of(Unit unit) {
  const bool whole = unit == Unit::layer || unit == Unit::expert_layer;
  return {.attention = whole || unit == Unit::attention,
          .state_space = unit == Unit::state_space,
          .dense = unit == Unit::layer || unit == Unit::feed_forward,
          .experts = has_experts(unit)};
}

}  // namespace

std::vector<Tensor> DecoderParameters::layer_group(Unit unit) const {
  const UnitParts parts = parts_of(unit);
  std::vector<Tensor> group;
  group.reserve(kSomeTensors);
  if (parts.attention)
    for (const Affine* a : {&attention_norm, &qkv, &qk_norm, &attention_output, &attention_output_norm})
      append(group, *a);
  if (parts.state_space) {
    append(group, state_space_norm);
    append(group, state_space);
  }
  if (parts.dense || parts.experts) {
    append(group, mlp_norm);
    append(group, mlp_output_norm);
  }
  if (parts.attention) {
    append(group, sinks);
    append(group, latent);
  }
  if (parts.dense) {
    append(group, mlp_up);
    append(group, mlp_down);
  }
  if (parts.experts) append(group, experts);
  for (const Adapter& a : adapters) group.insert(group.end(), {a.down, a.up});
  return group;
}

std::vector<Tensor> learning(std::vector<Tensor> tensors) {
  std::erase_if(tensors, [](const Tensor& t) { return !t.learns(); });
  return tensors;
}

std::vector<Tensor> DecoderParameters::of_own_rows(Unit unit) const {
  const UnitParts parts = parts_of(unit);
  std::vector<Tensor> group;
  if (parts.attention) {
    append(group, attention_norm);
    append(group, attention_output_norm);
  }
  if (parts.state_space) append(group, state_space_norm);
  if (parts.dense || parts.experts) {
    append(group, mlp_norm);
    append(group, mlp_output_norm);
  }
  if (parts.attention)
    for (const Tensor& t : {latent.q_down.weight, latent.kv_down.weight, latent.q_norm, latent.kv_norm})
      append(group, t);
  if (parts.experts) {
    append(group, experts.router);
    append(group, experts.router_bias);
  }
  return group;
}

std::vector<Tensor> DecoderParameters::head_group() const {
  std::vector<Tensor> group;
  group.reserve(kSomeTensors);
  append(group, final_norm);
  if (!tied) group.push_back(head);
  if (embedding_is_copied) group.push_back(embedding);
  for (const DecoderParameters& module : modules) {
    append(group, module.prediction);
    for (const Tensor& t : module.layer_group(module.experts.router ? Unit::expert_layer : Unit::layer))
      group.push_back(t);
  }
  return group;
}

namespace {

void read_for_backward(Tensor& t) {
  t.parameter = t.parameter_for_backward;
}
void read_for_backward(Affine& a) {
  read_for_backward(a.weight);
  read_for_backward(a.bias);
}
template <class Part>
void read_for_backward(Part& part) {
  std::apply([](auto&... parameters) { (read_for_backward(parameters), ...); }, Part::all(part));
}

}  // namespace

DecoderParameters for_backward(DecoderParameters p) {
  const auto turn = [](auto&... all) { (read_for_backward(all), ...); };
  turn(p.embedding, p.position_embedding, p.embedding_norm, p.final_norm, p.head);
  turn(p.attention_norm, p.qkv, p.qk_norm, p.sinks, p.attention_output, p.attention_output_norm);
  turn(p.mlp_norm, p.mlp_up, p.mlp_down, p.mlp_output_norm, p.state_space_norm);
  turn(p.experts, p.latent, p.state_space, p.prediction);
  for (Adapter& a : p.adapters) turn(a.down, a.up);
  for (DecoderParameters& module : p.modules) module = for_backward(std::move(module));
  return p;
}

std::string module_prefix(std::size_t module) {
  return module == 0 ? "mtp." : "mtp." + std::to_string(module + 1) + ".";
}

namespace {

void add_attention_parameters(ParameterWriter& w, const Model& m, bool divides_key_values,
                              DecoderParameters& p) {
  if (m.norms_before()) p.attention_norm = w.norm("layer.attention_norm", true);
  if (m.norms_after()) p.attention_output_norm = w.norm("layer.attention_output_norm", true);
  if (m.has_latent_attention())
    p.latent = add_latent_parameters(w, m);
  else
    p.qkv = w.column_parallel(LayerProduct::qkv, m.qkv_size(), m.hidden_size, m.attention_bias);
  p.attention_output =
      w.row_parallel(LayerProduct::output, m.hidden_size, m.value_size(), m.attention_output_bias);
  if (m.qk_norm == QkNorm::per_head)
    p.qk_norm.weight = w.tensor("layer.attention.qk_norm.weight", {2 * m.head_dim}, true, true);
  if (m.qk_norm == QkNorm::all_heads)
    p.qk_norm.weight =
        w.tensor("layer.attention.qk_norm.weight", {m.query_size() + m.key_value_size()}, true, false);
  if (m.attention_sinks) p.sinks = w.tensor("layer.attention.sinks", {m.num_attention_heads}, true, false);
  if (divides_key_values && p.qkv.weight.learns()) {
    p.key_value_gradients.push_back(
        w.key_value_rows(p.qkv.weight, "layer.attention.qkv.weight", m.hidden_size));
    if (p.qkv.bias)
      p.key_value_gradients.push_back(w.key_value_rows(p.qkv.bias, "layer.attention.qkv.bias", 1));
  }
}

// The convolution has few taps. Its weights are no matrices to decay or divide: each channel has its own.
void add_state_space_parameters(ParameterWriter& w, const Model& m, DecoderParameters& p) {
  const StateSpace& s = m.state_space;
  p.state_space_norm = w.norm("layer.state_space_norm", true);
  p.state_space.in = w.column_parallel("layer.state_space.in", s.projection_size(), m.hidden_size, false);
  p.state_space.conv.weight =
      w.tensor("layer.state_space.conv.weight", {s.conv_size(), s.conv_kernel}, true, false);
  p.state_space.conv.bias = w.tensor("layer.state_space.conv.bias", {s.conv_size()}, true, false);
  p.state_space.heads = w.tensor("layer.state_space.heads", {3 * s.mamba_num_heads}, true, false);
  p.state_space.norm = w.tensor("layer.state_space.norm.weight", {s.inner_size()}, true, false);
  p.state_space.out = w.row_parallel("layer.state_space.out", m.hidden_size, s.inner_size(), false);
}

// Adds the parameters of the model's layers, or of one layer beside them: all parts that any of `units` has.
void add_layer_parameters(ParameterWriter& w, const Model& m, const std::vector<Unit>& units,
                          bool divides_key_values, DecoderParameters& p) {
  const auto any = [&](bool UnitParts::*part) {
    return std::ranges::any_of(units, [&](Unit unit) { return parts_of(unit).*part; });
  };
  if (any(&UnitParts::attention)) add_attention_parameters(w, m, divides_key_values, p);
  if (any(&UnitParts::state_space)) add_state_space_parameters(w, m, p);
  const bool dense = any(&UnitParts::dense), experts = any(&UnitParts::experts);
  if ((dense || experts) && !m.shared_norm && m.norms_before()) p.mlp_norm = w.norm("layer.mlp_norm", true);
  if ((dense || experts) && m.norms_after()) p.mlp_output_norm = w.norm("layer.mlp_output_norm", true);
  if (dense) {
    p.mlp_up = w.column_parallel(LayerProduct::up, m.mlp_up_size(), m.hidden_size, m.mlp_bias);
    p.mlp_down = w.row_parallel(LayerProduct::down, m.hidden_size, m.intermediate_size, m.mlp_bias);
  }
  if (experts) p.experts = add_expert_parameters(w, m);
}

DecoderParameters add_module_parameters(PlanBuilder& builder, const DecoderParameters& model,
                                        std::size_t module) {
  const Model& m = builder.model();
  ParameterWriter w(builder, module_prefix(module));
  DecoderParameters p;
  p.embedding = model.embedding;
  p.head = model.head;
  p.tied = model.tied;
  p.prediction.hidden_norm = w.norm("hidden_norm", false);
  p.prediction.embedding_norm = w.norm("embedding_norm", false);
  p.prediction.projection.weight =
      w.written(w.tensor("projection.weight", {m.hidden_size, 2 * m.hidden_size}, false, true));
  p.prediction.final_norm = w.norm("final_norm", false);
  add_layer_parameters(w, m, {prediction_unit(builder.scenario().model)}, builder.groups().key_value >= 0, p);
  return p;
}

}  // namespace

DecoderParameters add_parameters(PlanBuilder& builder, bool training) {
  const Model& m = builder.model();
  ParameterWriter w(builder, training);
  DecoderParameters p;
  p.embedding =
      w.tensor("embedding.weight", {m.vocab_size, m.hidden_size}, false, false, builder.types().embedding);
  if (m.position == Position::learned)
    p.position_embedding =
        w.tensor("position_embedding.weight", {m.max_position_embeddings, m.hidden_size}, false, true);
  if (m.embedding_norm) p.embedding_norm = w.norm("embedding_norm", false);
  const bool divides_key_values = training && builder.groups().key_value >= 0;
  add_layer_parameters(w, m, layer_units(builder.scenario()), divides_key_values, p);
  for (const AdapterSite& site : adapter_sites(m, builder.scenario().workload)) {
    const Adapter& a = p.adapters.emplace_back(w.adapter(site));
    // Ranks that hold the same keys and values hold the same part of B.
    const bool of_heads = site.product == &DecoderParameters::qkv && site.first > 0;
    if (divides_key_values && of_heads) p.key_value_gradients.push_back(a.up.gradient);
  }
  p.final_norm = w.norm("final_norm", false);
  p.tied = m.tie_word_embeddings;
  const auto& serving = builder.scenario().implementation.serving;
  const bool as_layers = !training && serving && serving->quantizes_head;
  p.head = p.tied ? p.embedding
                  : w.tensor("head.weight", {m.vocab_size, m.hidden_size}, false, false,
                             as_layers ? builder.types().weights : builder.types().head);
  // The head's product comes before all else that adds to its gradient.
  p.head = w.written(p.head);
  p.head_uses_embedding = p.tied || (training && m.num_nextn_predict_layers > 0);
  p.embedding_is_copied = p.head_uses_embedding && builder.groups().tied_embedding >= 0;
  const std::int64_t modules = training ? m.num_nextn_predict_layers : 0;
  for (std::int64_t module = 0; module < modules; ++module)
    p.modules.push_back(add_module_parameters(builder, p, static_cast<std::size_t>(module)));
  return p;
}

}  // namespace sim
