#include "sim/plan/parameters.h"

namespace sim {
namespace {

class ParameterWriter {
 public:
  ParameterWriter(PlanBuilder& builder, bool training) : builder_(builder), training_(training) {}

  Tensor tensor(const std::string& name, std::vector<Extent> shape, bool per_layer, bool replicated) {
    const ElementTypes& types = builder_.types();
    const int zero = training_ ? builder_.strategy().zero_stage : 0;
    std::int64_t elements = 1;
    for (const Extent& e : shape) elements *= e.factor;
    const std::int64_t ranks = shard_ranks(builder_.strategy());
    const std::vector<Extent> shard = zero ? std::vector<Extent>{(elements + ranks - 1) / ranks} : shape;
    const auto held = [&](const std::string& prefix, BufferClass c, DType dtype,
                          const std::vector<Extent>& of_shape, BufferId parameter, BufferId whole) {
      return builder_.add({.name = prefix + name,
                           .buffer_class = c,
                           .dtype = dtype,
                           .shape = of_shape,
                           .lifetime = Lifetime::plan,
                           .per_layer = per_layer,
                           .parameter = parameter,
                           .view_of = whole});
    };
    // Whole for one pass of one micro-batch over one unit.
    const auto whole_for_a_while = [&](const std::string& prefix, BufferClass c, DType dtype) {
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
    if (zero == 3) {
      t.parameter_shard = held("", BufferClass::parameter, types.stored, shard, kNoBuffer, kNoBuffer);
      t.parameter = whole_for_a_while("gathered.", BufferClass::communication, types.stored);
      t.parameter_for_backward =
          whole_for_a_while("gathered_for_backward.", BufferClass::communication, types.stored);
    } else {
      t.parameter = held("", BufferClass::parameter, types.stored, shape, kNoBuffer, kNoBuffer);
      t.parameter_for_backward = t.parameter_shard = t.parameter;
    }
    if (!training_) return t;
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
    t.moment1 = held("moment1.", BufferClass::optimizer, DType::fp32, shard, parameter, kNoBuffer);
    t.moment2 = held("moment2.", BufferClass::optimizer, DType::fp32, shard, parameter, kNoBuffer);
    if (types.master)
      t.master = held("master.", BufferClass::optimizer, DType::fp32, shard, parameter, kNoBuffer);
    return t;
  }

  // Columns of outputs divided over tensor-parallel ranks, and the bias with them.
  Affine column_parallel(const std::string& name, std::int64_t outputs, std::int64_t inputs, bool bias) {
    return linear(name, outputs, inputs, bias, false);
  }
  // Inputs divided; the outputs are partial sums, and the bias is every rank's.
  Affine row_parallel(const std::string& name, std::int64_t outputs, std::int64_t inputs, bool bias) {
    return linear(name, outputs, inputs, bias, true);
  }

  Affine norm(const std::string& name, bool per_layer) {
    const Model& m = builder_.model();
    Affine a;
    a.weight = tensor(name + ".weight", {m.hidden_size}, per_layer, true);
    if (m.norm == Norm::layernorm) a.bias = tensor(name + ".bias", {m.hidden_size}, per_layer, true);
    return a;
  }

  // The last rows of a QKV gradient: keys and values.
  BufferId key_value_rows(const Tensor& qkv_gradient_of, const std::string& name, std::int64_t inputs) {
    const Buffer whole = builder_.buffer(qkv_gradient_of.gradient);
    return builder_.add({.name = "key_value." + name,
                         .buffer_class = whole.buffer_class,
                         .dtype = whole.dtype,
                         .shape = {2 * builder_.model().key_value_size(), inputs},
                         .lifetime = whole.lifetime,
                         .per_layer = true,
                         .per_micro_batch = whole.per_micro_batch,
                         .parameter = whole.parameter,
                         .view_of = qkv_gradient_of.gradient});
  }

 private:
  Affine linear(const std::string& name, std::int64_t outputs, std::int64_t inputs, bool bias,
                bool replicated_bias) {
    Affine a;
    a.weight = tensor(name + ".weight", {outputs, inputs}, true, false);
    if (bias) a.bias = tensor(name + ".bias", {outputs}, true, replicated_bias);
    return a;
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
  if (!tied || head_is_a_copy) group.push_back(head);
  return group;
}

DecoderParameters for_backward(DecoderParameters p) {
  const auto turn = [](Tensor& t) { t.parameter = t.parameter_for_backward; };
  for (Tensor* t : {&p.embedding, &p.position_embedding, &p.head}) turn(*t);
  for (Affine* a :
       {&p.attention_norm, &p.qkv, &p.attention_output, &p.mlp_norm, &p.mlp_up, &p.mlp_down, &p.final_norm}) {
    turn(a->weight);
    turn(a->bias);
  }
  return p;
}

DecoderParameters add_parameters(PlanBuilder& builder, bool training) {
  const Model& m = builder.model();
  ParameterWriter w(builder, training);
  const bool swiglu = m.activation == Activation::swiglu;
  DecoderParameters p;
  p.embedding = w.tensor("embedding.weight", {m.vocab_size, m.hidden_size}, false, false);
  if (m.position == Position::learned)
    p.position_embedding =
        w.tensor("position_embedding.weight", {m.max_position_embeddings, m.hidden_size}, false, true);
  p.attention_norm = w.norm("layer.attention_norm", true);
  p.qkv = w.column_parallel("layer.attention.qkv", m.qkv_size(), m.hidden_size, m.attention_bias);
  p.attention_output =
      w.row_parallel("layer.attention.output", m.hidden_size, m.query_size(), m.attention_output_bias);
  p.mlp_norm = w.norm("layer.mlp_norm", true);
  p.mlp_up = w.column_parallel(swiglu ? "layer.mlp.gate_up" : "layer.mlp.up", m.mlp_up_size(), m.hidden_size,
                               m.mlp_bias);
  p.mlp_down = w.row_parallel("layer.mlp.down", m.hidden_size, m.intermediate_size, m.mlp_bias);
  p.final_norm = w.norm("final_norm", false);
  p.tied = m.tie_word_embeddings;
  p.head = p.tied ? p.embedding : w.tensor("head.weight", {m.vocab_size, m.hidden_size}, false, false);
  p.head_is_a_copy = builder.groups().tied_embedding >= 0;
  if (training && builder.groups().key_value >= 0) {
    p.key_value_gradients.push_back(
        w.key_value_rows(p.qkv.weight, "layer.attention.qkv.weight", m.hidden_size));
    if (p.qkv.bias)
      p.key_value_gradients.push_back(w.key_value_rows(p.qkv.bias, "layer.attention.qkv.bias", 1));
  }
  return p;
}

}  // namespace sim
