// Softmax cross-entropy over the vocabulary on the GPU: loss, and the gradient in place of the logits; shapes
// and meanings as kernels/cross_entropy.h.
#pragma once
#include "kernels/cross_entropy.h"
#include "kernels/cuda/launch.h"

namespace kernels::cuda {

// Columns from `words` on are padding. loss_scale: a device scalar that gradients are multiplied by, losses
// are not (fp16); null: 1.
void cross_entropy_forward_backward(const Context& context, Tensor logits_to_dlogits, float* losses,
                                    const std::int32_t* targets, float scale, const float* loss_scale,
                                    std::int64_t R, std::int64_t V, std::int64_t words);

// Where ranks divide the vocabulary: a rank first forms the statistics (R, kLossStatistics) of its columns,
// then loss and gradient of its columns from the statistics (ranks, R, kLossStatistics) of all ranks.
inline constexpr std::int64_t kLossStatistics = 3;
void cross_entropy_statistics(const Context& context, float* statistics, ConstTensor logits,
                              const std::int32_t* targets, std::int64_t R, std::int64_t V,
                              VocabularyPart part);
void cross_entropy_of_part(const Context& context, Tensor logits_to_dlogits, float* losses,
                           const std::int32_t* targets, const float* statistics, std::int64_t ranks,
                           float scale, const float* loss_scale, std::int64_t R, std::int64_t V,
                           VocabularyPart part);

}  // namespace kernels::cuda
