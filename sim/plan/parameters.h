// The tensors that a decoder-only transformer learns, with what training holds beside each.
#pragma once
#include <vector>

#include "sim/plan/builder.h"

namespace sim {

// A parameter and, in training, its gradient and optimizer states; absent ones are kNoBuffer.
struct Tensor {
  BufferId parameter = kNoBuffer;
  BufferId gradient = kNoBuffer;
  BufferId moment1 = kNoBuffer, moment2 = kNoBuffer;
  BufferId master = kNoBuffer;
  bool decay = false;  // weight decay applies: matrices only
  explicit operator bool() const { return parameter != kNoBuffer; }
};

// y = x W^T + b, or a norm's gain and bias; the bias may be absent.
struct Affine {
  Tensor weight, bias;
};

struct DecoderParameters {
  Tensor embedding, position_embedding;
  Affine attention_norm, qkv, attention_output;
  Affine mlp_norm, mlp_up, mlp_down;  // mlp_up: gate and up together for SwiGLU
  Affine final_norm;
  Tensor head;  // the embedding's where the model ties them

  // What the optimizer's blocks work on, each tensor once.
  std::vector<Tensor> embedding_group() const;
  std::vector<Tensor> layer_group() const;
  std::vector<Tensor> head_group() const;

  bool tied = false;
};

// Adds the buffers; names are those of plan/README.md.
DecoderParameters add_parameters(PlanBuilder& builder, bool training);

}  // namespace sim
