// Head and loss without the logits of all rows in memory: some rows at a time, whose logits become the loss's
// gradient in scratch memory and are used up there. Logits are a training step's largest tensor: (rows, V).
#pragma once
#include "kernels/cuda/launch.h"
#include "kernels/cuda/products.h"

namespace kernels::cuda {

struct ChunkedHead {
  Tensor dhidden;              // (R, C), written
  Tensor dweight;              // (V, C), added to
  float* losses;               // (R), as kernels/cuda/cross_entropy.h
  ConstTensor hidden, weight;  // (R, C), (V, C), of one 16-bit type or fp32; logits are of it too
  const std::int32_t* targets;
  float scale;
  const float* loss_scale;  // may be null
  std::int64_t R, C, V;
};

// As many rows at a time as half of the scratch memory holds, at most `rows_at_once`. The weight's gradient
// is a sum of as many products as there are chunks, each rounded to its type; all else has the bits of one
// chunk.
void head_and_loss_chunked(const Context& context, Products& products, const ChunkedHead& head,
                           std::int64_t rows_at_once);

}  // namespace kernels::cuda
