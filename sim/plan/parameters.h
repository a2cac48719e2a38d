// The tensors that a decoder-only transformer learns, with what training holds beside each.
#pragma once
#include <tuple>
#include <vector>

#include "sim/plan/builder.h"

namespace sim {

// A parameter and, in training, its gradient and optimizer states; absent ones are kNoBuffer.
struct Tensor {
  BufferId parameter = kNoBuffer;
  BufferId gradient = kNoBuffer;
  BufferId moment1 = kNoBuffer, moment2 = kNoBuffer;
  BufferId moment1_scale = kNoBuffer, moment2_scale = kNoBuffer;  // of moments in 8 bits
  BufferId moment_rows = kNoBuffer, moment_columns = kNoBuffer;   // of Adafactor's matrices
  BufferId master = kNoBuffer;
  // Where the host updates parameters: what it receives and what it gives back.
  BufferId host_gradient = kNoBuffer, host_parameter = kNoBuffer;
  // ZeRO: what the optimizer of this rank works on, flattened and padded to a multiple of the ranks; the
  // moments and the master copy are of this size. Without ZeRO, the whole.
  BufferId parameter_shard = kNoBuffer, gradient_shard = kNoBuffer;
  // ZeRO 3 gathers a layer's parameters for each pass: `parameter` is the forward pass's copy, this one the
  // backward pass's. Without ZeRO 3 both are the parameter itself.
  BufferId parameter_for_backward = kNoBuffer;
  bool decay = false;       // weight decay applies: matrices only
  bool replicated = false;  // every rank of a tensor-parallel group holds the same
  bool is_written =
      false;  // its product writes the gradient before anything adds to it (products_write_gradients())
  bool of_experts = false;  // the ranks of the group `expert_data` hold the same
  int zero_stage = 0;       // 0 also where no other rank holds the same
  explicit operator bool() const { return parameter != kNoBuffer; }
  bool learns() const { return gradient != kNoBuffer; }
};

// y = x W^T + b, or a norm's gain and bias; the bias may be absent.
struct Affine {
  Tensor weight, bias;
};

// A weight that may have an adapter (plan/lora.h): columns [first, first + outputs) of a product's result.
struct DecoderParameters;
struct AdapterSite {
  std::string_view target;  // a word of kLoraTargets
  Affine DecoderParameters::*product = nullptr;
  std::int64_t inputs = 0, outputs = 0, first = 0;
  std::int64_t columns = 0;     // of the whole product
  bool divides_inputs = false;  // over tensor-parallel ranks, which otherwise divide the outputs
};
struct Adapter : AdapterSite {
  Tensor down, up;  // (rank, inputs), (outputs, rank)
};

// The structs below are parts of a layer; all(part) ties every parameter of the part.

// A layer with experts: those that a rank holds, (experts, out, in), and what every rank holds.
struct ExpertParameters {
  Tensor router, router_bias;
  Affine up, down;  // up: gate and up together
  Affine shared_up, shared_down;
  Tensor shared_gate;
  static auto all(auto& p) {
    return std::tie(p.router, p.router_bias, p.up, p.down, p.shared_up, p.shared_down, p.shared_gate);
  }
};

// Latent attention. Where queries have no latent, q_up multiplies the hidden state.
struct LatentParameters {
  Affine q_down, q_up, kv_down, kv_up;
  Tensor q_norm, kv_norm;
  static auto all(auto& p) { return std::tie(p.q_down, p.q_up, p.kv_down, p.kv_up, p.q_norm, p.kv_norm); }
};

// A state-space mixer: projection in, convolution of each channel, the gated norm's gain, projection out.
struct StateSpaceParameters {
  Affine in, conv;
  Tensor heads;  // of each head: the time step's bias; the decay's logarithm; the skip
  Tensor norm;
  Affine out;
  static auto all(auto& p) { return std::tie(p.in, p.conv, p.heads, p.norm, p.out); }
};

// What a module of multi-token prediction has beside its layer; embedding and head are the model's.
struct PredictionParameters {
  Affine hidden_norm, embedding_norm, projection, final_norm;
  static auto all(auto& p) { return std::tie(p.hidden_norm, p.embedding_norm, p.projection, p.final_norm); }
};

// Appends to `group` the parameters that exist.
inline void append(std::vector<Tensor>& group, const Tensor& t) {
  if (t) group.push_back(t);
}
inline void append(std::vector<Tensor>& group, const Affine& a) {
  append(group, a.weight);
  append(group, a.bias);
}
template <class Part>
void append(std::vector<Tensor>& group, const Part& part) {
  std::apply([&](const auto&... parameters) { (append(group, parameters), ...); }, Part::all(part));
}

struct DecoderParameters {
  Tensor embedding, position_embedding;
  Affine embedding_norm;
  Affine attention_norm, qkv, attention_output;
  Affine state_space_norm;
  StateSpaceParameters state_space;
  LatentParameters latent;  // in place of qkv
  Affine qk_norm;
  Affine attention_output_norm, mlp_output_norm;  // behind attention and feed-forward
  Tensor sinks;
  ExpertParameters experts;
  Affine mlp_norm, mlp_up, mlp_down;  // mlp_up: gate and up together for SwiGLU
  Affine final_norm;
  std::vector<Adapter> adapters;  // of each layer
  Tensor head;                    // the embedding's where the model ties them
  // Modules of multi-token prediction: each has `prediction` and a layer of its own; the rest is the model's.
  std::vector<DecoderParameters> modules;
  PredictionParameters prediction;

  // The tensors of each unit, which are reduced, updated and gathered together; each tensor comes once. A
  // tied head belongs to the embedding's unit, unless it lies in another pipeline stage and is a copy.
  // Multi-token prediction belongs to the head's unit.
  std::vector<Tensor> embedding_group() const;
  std::vector<Tensor> layer_group(Unit unit) const;
  std::vector<Tensor> head_group() const;

  // Parameters of a layer that sequence-parallel ranks hold alike; each has gradients of its own rows alone.
  std::vector<Tensor> of_own_rows(Unit unit) const;
  // Key and value rows of the QKV gradients, where several ranks hold the same key-value head.
  std::vector<BufferId> key_value_gradients;
  // With multi-token prediction or a tied head, the head's unit works with the embedding, which is a copy
  // where it lies in another stage.
  bool tied = false;
  bool head_uses_embedding = false;
  bool embedding_is_copied = false;
};

// Those of the tensors that learn.
std::vector<Tensor> learning(std::vector<Tensor> tensors);

// The parameters as the backward pass and recomputation read them (parameter_for_backward).
DecoderParameters for_backward(DecoderParameters p);

// The unit of the layer in a module of multi-token prediction.
inline Unit prediction_unit(const Model& whole) {
  return whole.is_expert_layer(whole.num_hidden_layers - 1) ? Unit::expert_layer : Unit::layer;
}
// The beginning of the names of a module's buffers and operations.
std::string module_prefix(std::size_t module);

// The product's name in plans: "layer.mlp.down". That of its weight has ".weight" behind it.
std::string_view name_of(const Model& model, LayerProduct product);

// The parameter whose values a buffer of parameters has, by the name under which files have it.
std::string_view parameter_name(std::string_view buffer);

// The parameters of layers whose kind is `mixed`: weights with types of their own have
// buffers of their own.
DecoderParameters with_mixed_weights(PlanBuilder& builder, DecoderParameters parameters);

// Adds the buffers; names are those of plan/README.md.
DecoderParameters add_parameters(PlanBuilder& builder, bool training);

}  // namespace sim
