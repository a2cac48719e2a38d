// Token embedding and rotary position embedding on the GPU; shapes and meanings as kernels/embedding.h and
// kernels/rope.h.
#pragma once
#include "kernels/cuda/launch.h"
#include "kernels/embedding.h"
#include "kernels/rope.h"

namespace kernels::cuda {

// position_weight and positions may be absent.
void embedding_forward(const Context& context, Tensor out, const std::int32_t* tokens, ConstTensor weight,
                       ConstTensor position_weight, const std::int32_t* positions, EmbeddingShape s);

// Adds to dweight, and to dposition_weight where it is present. A token's rows are summed in fp32, in their
// order in the batch and in pieces of 64, and added once: two runs are bit-equal. Scratch memory holds three
// int32 for each row, one for each word, and a row of fp32 for each 64 rows.
void embedding_backward(const Context& context, Tensor dweight, Tensor dposition_weight, ConstTensor dout,
                        const std::int32_t* tokens, EmbeddingShape s);

// In place; direction 1 rotates, -1 rotates back. table is fp32. positions may be null.
void rope(const Context& context, Tensor qkv, const float* table, const std::int32_t* positions,
          float direction, RopeShape s);

}  // namespace kernels::cuda
