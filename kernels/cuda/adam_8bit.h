// AdamW with moments in 8 bits on the GPU; meanings as kernels/adam_8bit.h, with the same codes and blocks.
#pragma once
#include <span>

#include "kernels/adam_8bit.h"
#include "kernels/cuda/optimizer.h"

namespace kernels::cuda {

// Codes (count), scales one of each kMomentBlock; parameter, gradient, master copy and stream as
// AdamWTensor's.
struct AdamW8BitTensor {
  Tensor parameter;
  ConstTensor gradient;
  std::uint8_t *moment1, *moment2;
  float *scale1, *scale2, *master;
  std::int64_t count;
  std::uint64_t stream;
};
// Rounding and skipped steps as adamw's.
void adamw_8bit(const Context& context, std::span<const AdamW8BitTensor> tensors,
                const double* gradient_scale, const AdamWStep* step, bool decay);

}  // namespace kernels::cuda
