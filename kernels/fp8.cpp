#include "kernels/fp8.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "kernels/bf16_values.h"
#include "kernels/parallel.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

using cuda::e4m3;
using cuda::e5m2;
using cuda::Type;

KERNELS_MULTIVERSION float largest_magnitude(const float* values, std::int64_t count) {
  float largest = 0;
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < count; ++i) {
    const float magnitude = cuda::float_of(cuda::bits_of(values[i]) & 0x7fffffffu);
    largest = magnitude > largest ? magnitude : largest;  // false for NaN
  }
  return largest;
}

template <class Fp8>
KERNELS_INLINE void round_all(std::uint8_t* codes, const float* values, float scale, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) codes[i] = cuda::from_float<Fp8>(values[i] / scale).bits;
}
KERNELS_MULTIVERSION void round_to_e4m3(std::uint8_t* codes, const float* values, float scale,
                                        std::int64_t count) {
  round_all<e4m3>(codes, values, scale, count);
}
KERNELS_MULTIVERSION void round_to_e5m2(std::uint8_t* codes, const float* values, float scale,
                                        std::int64_t count) {
  round_all<e5m2>(codes, values, scale, count);
}

// Exact: the lower half of such a value in fp32 is zero.
template <class Fp8>
KERNELS_INLINE void widen_all(bf16* to, const std::uint8_t* codes, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = {static_cast<std::uint16_t>(cuda::bits_of(cuda::to_float(Fp8{codes[i]})) >> 16)};
}
KERNELS_MULTIVERSION void widen_e4m3(bf16* to, const std::uint8_t* codes, std::int64_t count) {
  widen_all<e4m3>(to, codes, count);
}
KERNELS_MULTIVERSION void widen_e5m2(bf16* to, const std::uint8_t* codes, std::int64_t count) {
  widen_all<e5m2>(to, codes, count);
}

template <class Fp8>
KERNELS_INLINE void widen_all(float* to, const std::uint8_t* codes, float scale, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) to[i] = scale * cuda::to_float(Fp8{codes[i]});
}
KERNELS_MULTIVERSION void widen_e4m3_scaled(float* to, const std::uint8_t* codes, float scale,
                                            std::int64_t count) {
  widen_all<e4m3>(to, codes, scale, count);
}
KERNELS_MULTIVERSION void widen_e5m2_scaled(float* to, const std::uint8_t* codes, float scale,
                                            std::int64_t count) {
  widen_all<e5m2>(to, codes, scale, count);
}

// Calls body(first, values, count) for parts of [begin, end), whose values in fp32 stay in the first cache.
template <class Body>
void in_fp32(const float* inp, std::int64_t begin, std::int64_t end, const Body& body) {
  body(begin, inp + begin, end - begin);
}
template <class Body>
void in_fp32(const bf16* inp, std::int64_t begin, std::int64_t end, const Body& body) {
  constexpr std::int64_t kAtOnce = 2048;
  float values[kAtOnce];
  for (std::int64_t first = begin; first < end; first += kAtOnce) {
    const std::int64_t count = std::min(kAtOnce, end - first);
    widen(values, inp + first, count);
    body(first, values, count);
  }
}

template <class T>
float quantise(std::uint8_t* codes, Type format, const T* inp, std::int64_t count) {
  std::atomic<float> largest = 0;
  parallel_ranges(count, 1, [&](std::int64_t begin, std::int64_t end) {
    float own = 0;
    in_fp32(inp, begin, end, [&](std::int64_t, const float* values, std::int64_t length) {
      own = std::max(own, largest_magnitude(values, length));
    });
    for (float others = largest; own > others && !largest.compare_exchange_weak(others, own);) {
    }
  });
  const float scale =
      largest > 0 ? std::max(largest / cuda::largest_of(format), std::numeric_limits<float>::min()) : 1.0f;
  const auto round = format == Type::e4m3 ? round_to_e4m3 : round_to_e5m2;
  parallel_ranges(count, 1, [&](std::int64_t begin, std::int64_t end) {
    in_fp32(inp, begin, end, [&](std::int64_t first, const float* values, std::int64_t length) {
      round(codes + first, values, scale, length);
    });
  });
  return scale;
}

}  // namespace

float quantise_fp8(std::uint8_t* codes, Type format, const float* inp, std::int64_t count) {
  return quantise(codes, format, inp, count);
}
float quantise_fp8(std::uint8_t* codes, Type format, const bf16* inp, std::int64_t count) {
  return quantise(codes, format, inp, count);
}

void widen_fp8(bf16* to, const std::uint8_t* codes, Type format, std::int64_t count) {
  const auto widen_part = format == Type::e4m3 ? widen_e4m3 : widen_e5m2;
  parallel_ranges(count, 1, [&](std::int64_t begin, std::int64_t end) {
    widen_part(to + begin, codes + begin, end - begin);
  });
}
void widen_fp8_row(float* to, const std::uint8_t* codes, Type format, float scale, std::int64_t count) {
  const auto widen_row = format == Type::e4m3 ? widen_e4m3_scaled : widen_e5m2_scaled;
  widen_row(to, codes, scale, count);
}
void widen_fp8(float* to, const std::uint8_t* codes, Type format, float scale, std::int64_t count) {
  parallel_ranges(count, 1, [&](std::int64_t begin, std::int64_t end) {
    widen_fp8_row(to + begin, codes + begin, format, scale, end - begin);
  });
}

}  // namespace kernels::cpu
