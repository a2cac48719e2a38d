// Element types of the CUDA kernels, on the device and on the host alike.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#ifdef __CUDACC__
#define CUDA_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define CUDA_HOST_DEVICE inline
#endif

namespace kernels::cuda {

// Numbers are added up and passed between operations in the first three; the 8-bit formats (OCP 8-bit
// floating point: Micikevicius et al. 2022, arXiv 2209.05433) are what matrix products read, each tensor with
// a scale.
enum class Type { f32, bf16, f16, e4m3, e5m2 };

constexpr const char* name_of(Type type) {
  constexpr const char* kNames[] = {"fp32", "bf16", "fp16", "e4m3", "e5m2"};
  return kNames[static_cast<int>(type)];
}

constexpr bool is_fp8(Type type) {
  return type == Type::e4m3 || type == Type::e5m2;
}
constexpr std::int64_t size_of(Type type) {
  return type == Type::f32 ? 4 : is_fp8(type) ? 1 : 2;
}
// The largest finite value of an 8-bit format.
CUDA_HOST_DEVICE constexpr float largest_of(Type fp8) {
  return fp8 == Type::e4m3 ? 448.0f : 57344.0f;
}

// An array on the device whose element type is known when the program runs; null where it is absent.
struct Tensor {
  void* data = nullptr;
  Type type = Type::f32;

  explicit operator bool() const { return data != nullptr; }
  template <class T>
  CUDA_HOST_DEVICE T* as() const {
    return static_cast<T*>(data);
  }
};
struct ConstTensor {
  const void* data = nullptr;
  Type type = Type::f32;

  ConstTensor() = default;
  ConstTensor(const void* d, Type t) : data(d), type(t) {}
  ConstTensor(Tensor t) : data(t.data), type(t.type) {}  // NOLINT: a tensor may be read
  explicit operator bool() const { return data != nullptr; }
  template <class T>
  CUDA_HOST_DEVICE const T* as() const {
    return static_cast<const T*>(data);
  }
};

template <class AnyTensor>
AnyTensor from_row(AnyTensor tensor, std::int64_t row, std::int64_t cols) {
  tensor.data =
      const_cast<std::byte*>(static_cast<const std::byte*>(tensor.data)) + row * cols * size_of(tensor.type);
  return tensor;
}

CUDA_HOST_DEVICE std::uint32_t bits_of(float x) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(x);
#else
  return std::bit_cast<std::uint32_t>(x);
#endif
}

CUDA_HOST_DEVICE float float_of(std::uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

// The upper half of an fp32.
struct bf16 {
  std::uint16_t bits;
};

CUDA_HOST_DEVICE float to_float(float x) {
  return x;
}
CUDA_HOST_DEVICE float to_float(bf16 x) {
  return float_of(static_cast<std::uint32_t>(x.bits) << 16);
}

// IEEE 754 binary16: a sign, 5 bits of exponent with bias 15, 10 of significand.
struct f16 {
  std::uint16_t bits;
};

CUDA_HOST_DEVICE float to_float(f16 x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
#else
  const std::uint32_t sign = (x.bits & 0x8000u) << 16, magnitude = x.bits & 0x7fffu;
  if (magnitude < 0x400u)  // subnormal: multiples of 2^-24
    return float_of(sign | bits_of(static_cast<float>(magnitude) * 0x1p-24f));
  constexpr std::uint32_t kInfinity = 0x7c00u, kRebias = (127 - 15) << 23;
  return float_of(sign | ((magnitude << 13) + (magnitude < kInfinity ? kRebias : 2 * kRebias)));
#endif
}

CUDA_HOST_DEVICE int count_bits(std::uint32_t x) {
#ifdef __CUDA_ARCH__
  return __popc(x);
#else
  return std::popcount(x);
#endif
}

// To nearest, ties to even; NaN stays NaN.
CUDA_HOST_DEVICE bf16 to_bf16(float x) {
#ifdef __CUDA_ARCH__
  bf16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
#else
  const std::uint32_t bits = bits_of(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
#endif
}

// To nearest, ties to even; beyond 65,504 it is infinity; NaN stays NaN.
CUDA_HOST_DEVICE f16 to_f16(float x) {
#ifdef __CUDA_ARCH__
  f16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
#else
  const std::uint32_t bits = bits_of(x), magnitude = bits & 0x7fffffffu;
  const auto signed_as_x = [&](std::uint32_t half) {
    return f16{static_cast<std::uint16_t>(((bits >> 16) & 0x8000u) | half)};
  };
  if (magnitude > 0x7f800000u) return signed_as_x(0x7e00u);
  if (magnitude >= bits_of(65520.0f)) return signed_as_x(0x7c00u);
  // Below the normal numbers, adding a half puts the last place that fp16 keeps at fp32's last.
  if (magnitude < bits_of(0x1p-14f)) return signed_as_x(bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f));
  return signed_as_x((magnitude + 0xfffu + ((magnitude >> 13) & 1u) - ((127u - 15u) << 23)) >> 13);
#endif
}

// The 8-bit formats of OCP: e4m3 has 4 bits of exponent (bias 7), no infinity and one NaN; e5m2 is fp16's
// upper half.
struct e4m3 {
  std::uint8_t bits;
};
struct e5m2 {
  std::uint8_t bits;
};

// Widening avoids fp32's own subnormal numbers, which threads may treat as zero.
// as_f16() gives an e4m3 divided by 2^8: the two biases differ by 8, which holds for subnormal numbers too.
CUDA_HOST_DEVICE f16 as_f16(e4m3 x) {
  const std::uint32_t sign = (x.bits & 0x80u) << 8, magnitude = x.bits & 0x7fu;
  return {static_cast<std::uint16_t>(sign | (magnitude == 0x7fu ? 0x7e00u : magnitude << 7))};
}
CUDA_HOST_DEVICE float to_float(e4m3 x) {
#ifdef __CUDA_ARCH__
  return to_float(as_f16(x)) * 0x1p8f;  // a conversion of the GPU's own, and fewest registers
#else
  // Signed, and with one choice at the end, so that the compiler can vectorise it.
  const std::uint32_t sign = (x.bits & 0x80u) << 24, magnitude = x.bits & 0x7fu;
  constexpr std::uint32_t kRebias = (127 - 7) << 23;
  const float subnormal = static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-9f;
  const std::uint32_t number = magnitude < 8 ? bits_of(subnormal) : (magnitude << 20) + kRebias;
  return float_of(sign | (magnitude == 0x7fu ? 0x7fc00000u : number));
#endif
}
CUDA_HOST_DEVICE float to_float(e5m2 x) {
  return to_float(f16{static_cast<std::uint16_t>(x.bits << 8)});
}

// Rounds an fp32 magnitude (its bits) within the range of a format with `Significand` stored significand
// bits, whose smallest normal number is 2^(1 - Bias): to nearest, ties to even.
template <int Significand, int Bias>
CUDA_HOST_DEVICE std::uint8_t round_to_8_bits(std::uint32_t magnitude) {
  constexpr int kDropped = 23 - Significand;
  constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - Bias) << 23;
  // Below the normal numbers, adding this puts the last place that the format keeps at fp32's last.
  constexpr std::uint32_t kSmall = static_cast<std::uint32_t>(127 + 1 - Bias - Significand + 23) << 23;
  if (magnitude < (static_cast<std::uint32_t>(127 + 1 - Bias) << 23))
    return static_cast<std::uint8_t>(bits_of(float_of(magnitude) + float_of(kSmall)) - kSmall);
  const std::uint32_t half = (1u << (kDropped - 1)) - 1, odd = (magnitude >> kDropped) & 1u;
  return static_cast<std::uint8_t>((magnitude + half + odd - kRebias) >> kDropped);
}

// To nearest, ties to even; beyond the largest value it is that; NaN stays NaN.
CUDA_HOST_DEVICE e4m3 to_e4m3(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  std::uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  return {static_cast<std::uint8_t>(pair)};
#else
  const std::uint32_t bits = bits_of(x), magnitude = bits & 0x7fffffffu, sign = (bits >> 24) & 0x80u;
  if (magnitude > 0x7f800000u) return {static_cast<std::uint8_t>(sign | 0x7fu)};
  if (magnitude >= bits_of(largest_of(Type::e4m3))) return {static_cast<std::uint8_t>(sign | 0x7eu)};
  return {static_cast<std::uint8_t>(sign | round_to_8_bits<3, 7>(magnitude))};
#endif
}
CUDA_HOST_DEVICE e5m2 to_e5m2(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  std::uint16_t pair;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  return {static_cast<std::uint8_t>(pair)};
#else
  const std::uint32_t bits = bits_of(x), magnitude = bits & 0x7fffffffu, sign = (bits >> 24) & 0x80u;
  if (magnitude > 0x7f800000u) return {static_cast<std::uint8_t>(sign | 0x7fu)};
  if (magnitude >= bits_of(largest_of(Type::e5m2))) return {static_cast<std::uint8_t>(sign | 0x7bu)};
  return {static_cast<std::uint8_t>(sign | round_to_8_bits<2, 15>(magnitude))};
#endif
}

template <class T>
CUDA_HOST_DEVICE T from_float(float x);
template <>
CUDA_HOST_DEVICE float from_float<float>(float x) {
  return x;
}
template <>
CUDA_HOST_DEVICE bf16 from_float<bf16>(float x) {
  return to_bf16(x);
}
template <>
CUDA_HOST_DEVICE f16 from_float<f16>(float x) {
  return to_f16(x);
}
template <>
CUDA_HOST_DEVICE e4m3 from_float<e4m3>(float x) {
  return to_e4m3(x);
}
template <>
CUDA_HOST_DEVICE e5m2 from_float<e5m2>(float x) {
  return to_e5m2(x);
}

// Two bf16 or f16 in one register, the first in the lower half: what matrix instructions take. In f16, what
// is beyond 65,504 becomes infinity.
template <class T>
CUDA_HOST_DEVICE std::uint32_t pack_pair(float first, float second) {
  static_assert(sizeof(T) == 2);
#ifdef __CUDA_ARCH__
  std::uint32_t packed;
  if constexpr (std::is_same_v<T, f16>)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(second), "f"(first));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(second), "f"(first));
  return packed;
#else
  return from_float<T>(first).bits | static_cast<std::uint32_t>(from_float<T>(second).bits) << 16;
#endif
}

// Width elements of T, loaded and stored by as few instructions as their alignment allows.
template <class T, int Width>
struct alignas(sizeof(T) * Width > 16 ? 16 : sizeof(T) * Width) Pack {
  T values[Width];
};

template <int Width, class T>
CUDA_HOST_DEVICE void load(float (&to)[Width], const T* from) {
  const Pack<T, Width> pack = *reinterpret_cast<const Pack<T, Width>*>(from);
#ifdef __CUDA_ARCH__  // compilers of the host do not know it
#pragma unroll
#endif
  for (int i = 0; i < Width; ++i) to[i] = to_float(pack.values[i]);
}

template <int Width, class T>
CUDA_HOST_DEVICE void store(T* to, const float (&from)[Width]) {
  Pack<T, Width> pack;
#ifdef __CUDA_ARCH__  // compilers of the host do not know it
#pragma unroll
#endif
  for (int i = 0; i < Width; ++i) pack.values[i] = from_float<T>(from[i]);
  *reinterpret_cast<Pack<T, Width>*>(to) = pack;
}

// 16 bytes of T.
template <class T>
inline constexpr int kVector = 16 / static_cast<int>(sizeof(T));

}  // namespace kernels::cuda
