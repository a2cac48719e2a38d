#include "sim/plan/parameters.h"

namespace sim {
namespace {

class ParameterWriter {
 public:
  ParameterWriter(PlanBuilder& builder, bool training) : builder_(builder), training_(training) {}

  Tensor tensor(const std::string& name, std::vector<Extent> shape, bool per_layer) {
    const ElementTypes& types = builder_.types();
    Tensor t;
    t.decay = shape.size() == 2;
    t.parameter = add(name, BufferClass::parameter, types.stored, shape, per_layer, kNoBuffer);
    if (!training_) return t;
    t.gradient =
        add("gradient." + name, BufferClass::gradient, types.gradient, shape, per_layer, t.parameter);
    t.moment1 = add("moment1." + name, BufferClass::optimizer, DType::fp32, shape, per_layer, t.parameter);
    t.moment2 = add("moment2." + name, BufferClass::optimizer, DType::fp32, shape, per_layer, t.parameter);
    if (types.master)
      t.master = add("master." + name, BufferClass::optimizer, DType::fp32, shape, per_layer, t.parameter);
    return t;
  }

  Affine linear(const std::string& name, std::int64_t outputs, std::int64_t inputs, bool bias) {
    Affine a;
    a.weight = tensor(name + ".weight", {outputs, inputs}, true);
    if (bias) a.bias = tensor(name + ".bias", {outputs}, true);
    return a;
  }

  Affine norm(const std::string& name, bool per_layer) {
    const Model& m = builder_.model();
    Affine a;
    a.weight = tensor(name + ".weight", {m.hidden_size}, per_layer);
    if (m.norm == Norm::layernorm) a.bias = tensor(name + ".bias", {m.hidden_size}, per_layer);
    return a;
  }

 private:
  BufferId add(const std::string& name, BufferClass c, DType dtype, const std::vector<Extent>& shape,
               bool per_layer, BufferId parameter) {
    return builder_.add({.name = name,
                         .buffer_class = c,
                         .dtype = dtype,
                         .shape = shape,
                         .lifetime = Lifetime::plan,
                         .per_layer = per_layer,
                         .parameter = parameter});
  }

  PlanBuilder& builder_;
  bool training_;
};

void append(std::vector<Tensor>& group, const Affine& a) {
  group.push_back(a.weight);
  if (a.bias) group.push_back(a.bias);
}

}  // namespace

std::vector<Tensor> DecoderParameters::embedding_group() const {
  std::vector<Tensor> group{embedding};
  if (position_embedding) group.push_back(position_embedding);
  return group;
}

std::vector<Tensor> DecoderParameters::layer_group() const {
  std::vector<Tensor> group;
  for (const Affine* a : {&attention_norm, &qkv, &attention_output, &mlp_norm, &mlp_up, &mlp_down})
    append(group, *a);
  return group;
}

std::vector<Tensor> DecoderParameters::head_group() const {
  std::vector<Tensor> group;
  append(group, final_norm);
  if (!tied) group.push_back(head);
  return group;
}

DecoderParameters add_parameters(PlanBuilder& builder, bool training) {
  const Model& m = builder.model();
  ParameterWriter w(builder, training);
  const bool swiglu = m.activation == Activation::swiglu;
  DecoderParameters p;
  p.embedding = w.tensor("embedding.weight", {m.vocab_size, m.hidden_size}, false);
  if (m.position == Position::learned)
    p.position_embedding =
        w.tensor("position_embedding.weight", {m.max_position_embeddings, m.hidden_size}, false);
  p.attention_norm = w.norm("layer.attention_norm", true);
  p.qkv = w.linear("layer.attention.qkv", m.qkv_size(), m.hidden_size, m.attention_bias);
  p.attention_output =
      w.linear("layer.attention.output", m.hidden_size, m.query_size(), m.attention_output_bias);
  p.mlp_norm = w.norm("layer.mlp_norm", true);
  p.mlp_up =
      w.linear(swiglu ? "layer.mlp.gate_up" : "layer.mlp.up", m.mlp_up_size(), m.hidden_size, m.mlp_bias);
  p.mlp_down = w.linear("layer.mlp.down", m.hidden_size, m.intermediate_size, m.mlp_bias);
  p.final_norm = w.norm("final_norm", false);
  p.tied = m.tie_word_embeddings;
  p.head = p.tied ? p.embedding : w.tensor("head.weight", {m.vocab_size, m.hidden_size}, false);
  return p;
}

}  // namespace sim
