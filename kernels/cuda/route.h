// A router's choice on the GPU; shapes and meanings as kernels/route.h. Logits, weights and their gradients
// are fp32; bias and dbias are of the parameters' and of their gradients' types.
#pragma once
#include "kernels/cuda/launch.h"
#include "kernels/route.h"

namespace kernels::cuda {

// Experts whose scores a block of warps keeps in shared memory; for more, route_forward() throws CudaError.
inline constexpr std::int64_t kMostRoutedExperts = 1024;

// weights, indices (R, K), best first; logits (R, E); bias (E) may be absent. E <= kMostRoutedExperts.
void route_forward(const Context& context, float* weights, std::int32_t* indices, const float* logits,
                   ConstTensor bias, RouteShape s, const RouteSettings& settings);

// dlogits (R, E) = gradient; dbias (E) += the softmax's, where neither bias nor dbias is absent.
void route_backward(const Context& context, float* dlogits, Tensor dbias, const float* dweights,
                    const std::int32_t* indices, const float* logits, ConstTensor bias, RouteShape s,
                    const RouteSettings& settings);

}  // namespace kernels::cuda
