// Operands of products in fp8: tensors rounded to 8 bits, each with its own scale, and their transposes.
// Hopper's tensor cores take 8-bit operands only with the summed dimension contiguous.
#pragma once
#include "kernels/cuda/launch.h"

namespace kernels::cuda {

// out (count), e4m3 or e5m2, = inp / scale, to nearest; scale (a device scalar) is chosen so that the largest
// magnitude becomes the format's largest value (scaling by abs-max, as torchao's dynamic scaling by tensor).
// For zeros it is 1. inp in 16 bits or fp32. kQuantiseBlocks floats of scratch.
inline constexpr int kQuantiseBlocks = 1056;
void quantise(const Context& context, Tensor out, float* scale, ConstTensor inp, std::int64_t count);

// out (C, padded R) = the transpose of inp (R, C), bytes; rows of inp lie ld_inp bytes apart. R is padded
// with zeros to a multiple of kFp8Multiple, of which C and ld_inp are multiples too.
inline constexpr std::int64_t kFp8Multiple = 16;
void transpose_bytes(const Context& context, void* out, const void* inp, std::int64_t R, std::int64_t C,
                     std::int64_t ld_inp);

}  // namespace kernels::cuda
