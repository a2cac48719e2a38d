// Weights in fewer bits than bf16, scaled by their largest absolute value: how they are packed, on the device
// and on the host alike.
#pragma once
#include <cstdint>

#include "kernels/cuda/types.h"

namespace kernels::cuda {

// What a weight matrix (N, K) is stored in.
enum class WeightFormat {
  bf16,
  int8,  // a byte a weight, one fp32 scale a row
  fp8,   // e4m3 (OCP 8-bit floating point), one fp32 scale a row
  int4,  // two a byte, the even column in the low half, as 8 more than they are; one fp32 scale for each
         // group of kInt4Group columns of a row
};
inline constexpr int kInt4Group = 128;

constexpr int bits_of_format(WeightFormat format) {
  return format == WeightFormat::bf16 ? 16 : format == WeightFormat::int4 ? 4 : 8;
}

// The largest value of a format before its scale: the largest weight of a row or group is stored as it.
constexpr float largest_of(WeightFormat format) {
  return format == WeightFormat::int8 ? 127.0f : format == WeightFormat::int4 ? 7.0f : 448.0f;
}

// What a weight of 0 is stored as.
inline constexpr int kInt4Zero = 8;

}  // namespace kernels::cuda
