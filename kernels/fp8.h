// Tensors in fp8 on the CPU, each with one scale: rounded from wider tensors by their largest magnitude, and
// widened for the products that read them. The formats are e4m3 and e5m2 of OCP 8-bit floating point
// (Micikevicius et al. 2022, arXiv 2209.05433), as kernels/cuda/types.h has them.
#pragma once
#include <cstdint>

#include "kernels/cuda/types.h"

namespace kernels::cpu {

using cuda::bf16;

// codes (count), e4m3 or e5m2, = inp / scale, to nearest, ties to even. Returns the scale, with which the
// largest magnitude becomes the format's largest value (scaling by abs-max, as torchao's dynamic scaling by
// tensor); for zeros it is 1. It is no less than the smallest normal number, because threads may treat
// smaller ones as zero. NaN stays NaN and is no magnitude. The bits are the same on any number of threads.
float quantise_fp8(std::uint8_t* codes, cuda::Type format, const float* inp, std::int64_t count);
float quantise_fp8(std::uint8_t* codes, cuda::Type format, const bf16* inp, std::int64_t count);

// to (count) = what codes of the format stand for: in bf16 without the scale, which is exact; in fp32 times
// the scale.
void widen_fp8(bf16* to, const std::uint8_t* codes, cuda::Type format, std::int64_t count);
void widen_fp8(float* to, const std::uint8_t* codes, cuda::Type format, float scale, std::int64_t count);
// The second on the calling thread.
void widen_fp8_row(float* to, const std::uint8_t* codes, cuda::Type format, float scale, std::int64_t count);

}  // namespace kernels::cpu
