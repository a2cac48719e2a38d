// Token embedding, plus learned positions where the model has them (GPT-2).
#pragma once
#include <cstdint>

namespace kernels {

struct EmbeddingShape {
  std::int64_t B, T, C, V;
  // Where ranks divide the vocabulary: the id of this part's first row. Tokens of other parts give rows of
  // zeros, and positions are added by the part that begins with token 0, so that the parts' sum is the whole.
  std::int64_t first = 0;

  bool has(std::int32_t token) const { return token >= first && token < first + V; }
};

namespace cpu {

// out (B, T, C) = weight[tokens] (V, C) + position_weight[positions[b] + t] (P, C).
// position_weight may be null. positions (B) is where each sequence's new tokens start; null means zero.
void embedding_forward(float* out, const std::int32_t* tokens, const float* weight,
                       const float* position_weight, const std::int32_t* positions, EmbeddingShape s);

// dweight (V, C) += rows of dout (B, T, C) by token, in a fixed order; dposition_weight (P, C) += likewise,
// may be null. Training positions start at zero.
void embedding_backward(float* dweight, float* dposition_weight, const float* dout,
                        const std::int32_t* tokens, EmbeddingShape s);

}  // namespace cpu
}  // namespace kernels
