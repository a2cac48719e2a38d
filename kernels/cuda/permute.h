// Rows of tokens on their way to the experts chosen for them, and back, on the GPU; shapes and meanings as
// kernels/permute.h. Rows are of one type, their weights fp32. Where rows go is found out on the device.
#pragma once
#include "kernels/cuda/launch.h"
#include "kernels/permute.h"

namespace kernels::cuda {

// Where the choices of each expert lie among those ordered by expert, in scratch memory.
struct ExpertOrder {
  const std::int32_t* offsets = nullptr;  // (E + 1)
  const std::int32_t* places = nullptr;   // (count): of each choice, where asked for
  std::int64_t scratch_bytes = 0;         // behind which the rest of the scratch memory is free
};
// indices (count), each at least 0 and below E. Choices of one expert keep their order.
ExpertOrder order_by_expert(const Context& context, const std::int32_t* indices, std::int64_t count,
                            std::int64_t E, bool with_places);

// out (R*K, C) = rows of inp (R, C) by expert; row_weights (R*K) = weights (R, K) in the same order, both or
// neither null.
void permute(const Context& context, Tensor out, float* row_weights, ConstTensor inp, const float* weights,
             const std::int32_t* indices, PermuteShape s);

// out (R, C) = sum of each token's rows of inp (R*K, C), in fp32, first choice first; weights (R, K) =
// row_weights (R*K) in the tokens' order, both or neither null.
void unpermute(const Context& context, Tensor out, float* weights, ConstTensor inp, const float* row_weights,
               const std::int32_t* indices, PermuteShape s);

}  // namespace kernels::cuda
