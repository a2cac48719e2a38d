// Softmax cross-entropy over the vocabulary, loss and gradient in one pass.
#pragma once
#include <cstdint>

namespace kernels {

// Where ranks divide the vocabulary: this rank's columns are ids [first, first + count); columns beyond
// `count` are padding.
struct VocabularyPart {
  std::int64_t first = 0, count = 0;
};

namespace cpu {

// logits (R, V) are replaced by the gradient: (softmax - onehot(target)) * scale. losses (R) = -log
// p[target]. A negative target is ignored: loss 0, gradient 0. Columns from `words` on are padding: gradient
// 0. With a cap, logits are cap tanh(logit / cap), and the gradient is that of what they were before.
void cross_entropy_forward_backward(float* logits_to_dlogits, float* losses, const std::int32_t* targets,
                                    float scale, std::int64_t R, std::int64_t V, std::int64_t words,
                                    float cap = 0);

// logits (R, V) become cap tanh(logit / cap).
void cap_logits(float* logits, float cap, std::int64_t R, std::int64_t V);

// losses only; logits are left alone.
void cross_entropy_forward(float* losses, const float* logits, const std::int32_t* targets, std::int64_t R,
                           std::int64_t V);

// For a part of each row, statistics (R, 3): the largest logit, the sum of exp(logit - largest), and the
// target's logit, or 0 where the target is in another part (Megatron-LM's vocab_parallel_cross_entropy). With
// a cap, those of cap tanh(logit / cap); logits are left as they are.
void cross_entropy_statistics(float* statistics, const float* logits, const std::int32_t* targets,
                              std::int64_t R, std::int64_t V, VocabularyPart part, float cap = 0);

// As cross_entropy_forward_backward() of a part of each row, given the statistics (ranks, R, 3) of all parts
// with the same cap. Padding has gradient 0.
void cross_entropy_of_part(float* logits_to_dlogits, float* losses, const std::int32_t* targets,
                           const float* statistics, std::int64_t ranks, float scale, std::int64_t R,
                           std::int64_t V, VocabularyPart part, float cap = 0);

}  // namespace cpu
}  // namespace kernels
