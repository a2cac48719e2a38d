// Softmax cross-entropy over the vocabulary, loss and gradient in one pass.
#pragma once
#include <cstdint>

namespace kernels::cpu {

// logits (R, V) are replaced by the gradient: (softmax - onehot(target)) * scale. losses (R) = -log
// p[target]. A negative target is ignored: loss 0, gradient 0.
void cross_entropy_forward_backward(float* logits_to_dlogits, float* losses, const std::int32_t* targets,
                                    float scale, std::int64_t R, std::int64_t V);

// losses only; logits are left alone.
void cross_entropy_forward(float* losses, const float* logits, const std::int32_t* targets, std::int64_t R,
                           std::int64_t V);

}  // namespace kernels::cpu
