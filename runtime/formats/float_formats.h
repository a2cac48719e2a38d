// 16-bit floats as bits. Widening to fp32 is exact: every fp16 and bf16 value is an fp32 value.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace runtime {

// bfloat16 is the upper half of an fp32.
inline float bf16_to_f32(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// To nearest, ties to even; NaN stays NaN.
inline std::uint16_t f32_to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (x != x) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// IEEE 754 binary16: 1 sign, 5 exponent (bias 15), 10 fraction bits.
inline float f16_to_f32(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu;
  const std::uint32_t fraction = bits & 0x3ffu;
  if (exponent == 0) {  // zero and subnormals: fraction * 2^-24
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  const std::uint32_t wide_exponent = exponent == 0x1f ? 0xffu : exponent + (127 - 15);
  return std::bit_cast<float>(sign | (wide_exponent << 23) | (fraction << 13));
}

// To nearest, ties to even; beyond 65,504 it is infinity; NaN stays NaN.
inline std::uint16_t f32_to_f16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  const auto half = [&](std::uint32_t rest) { return static_cast<std::uint16_t>(sign | rest); };
  if (magnitude > 0x7f800000u) return half(0x7e00u);
  if (std::bit_cast<float>(magnitude) >= 65520.0f) return half(0x7c00u);
  // Below the normal numbers, adding a half puts the last place that fp16 keeps at fp32's last.
  if (std::bit_cast<float>(magnitude) < 0x1p-14f)
    return half(std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
                std::bit_cast<std::uint32_t>(0.5f));
  return half((magnitude + 0xfffu + ((magnitude >> 13) & 1u) - ((127u - 15u) << 23)) >> 13);
}

// A little-endian T at any alignment. Ridgepoint runs on little-endian machines only.
static_assert(std::endian::native == std::endian::little);
template <typename T>
T load_unaligned(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace runtime
