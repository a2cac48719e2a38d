// Softmax cross-entropy over the vocabulary on the GPU: loss, and the gradient in place of the logits; shapes
// and meanings as kernels/cross_entropy.h.
#pragma once
#include "kernels/cuda/launch.h"

namespace kernels::cuda {

// Columns from `words` on are padding. loss_scale: a device scalar that gradients are multiplied by, losses
// are not (fp16); null: 1.
void cross_entropy_forward_backward(const Context& context, Tensor logits_to_dlogits, float* losses,
                                    const std::int32_t* targets, float scale, const float* loss_scale,
                                    std::int64_t R, std::int64_t V, std::int64_t words);

}  // namespace kernels::cuda
