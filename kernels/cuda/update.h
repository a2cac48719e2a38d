// How optimizers of any rule update a tensor's elements: master copies, rounding to 16 bits, skipped steps.
#pragma once
#include "kernels/cuda/launch.h"
#include "kernels/cuda/random.h"
#include "kernels/cuda/tensor_group.h"

namespace kernels::cuda {

inline constexpr int kUpdateThreads = 256;

// Bits of fp32's significand that a type does not keep.
template <class P>
inline constexpr int kDroppedBits = 0;
template <>
inline constexpr int kDroppedBits<bf16> = 16;
template <>
inline constexpr int kDroppedBits<f16> = 13;

// Stochastic rounding: random bits added below the kept ones carry with the remainder's probability.
// (fp16's subnormal numbers, below 6e-5, keep fewer bits: they are rounded to nearest.)
template <class P>
CUDA_DEVICE P rounded(float x, bool stochastic, std::uint64_t key) {
  constexpr std::uint32_t kDropped = (1u << kDroppedBits<P>)-1;
  const std::uint32_t bits = bits_of(x);
  if (!stochastic || (bits & 0x7f800000u) == 0x7f800000u) return from_float<P>(x);  // infinity, NaN
  return from_float<P>(float_of((bits + (static_cast<std::uint32_t>(mix(key)) & kDropped)) & ~kDropped));
}

// A tensor's key for a step; with an element's index added, it is the key of that element's rounding.
CUDA_DEVICE std::uint64_t rounding_key(std::uint32_t step, std::uint64_t stream) {
  return mix(mix(step) ^ stream);
}

// A tensor that an optimizer updates. If it has a master copy (fp32), that is updated and the parameter is
// its rounded value. A 16-bit parameter without one is rounded stochastically.
template <class P>
struct Moved {
  P* parameter;
  float* master;  // or null
  std::uint64_t key;

  template <int Width>
  CUDA_DEVICE void load(float (&value)[Width], std::int64_t i) const {
    if (master != nullptr)
      cuda::load<Width>(value, master + i);
    else
      cuda::load<Width>(value, parameter + i);
  }
  CUDA_DEVICE P rounded_at(std::int64_t i, float value) const {
    return rounded<P>(value, master == nullptr, key + static_cast<std::uint64_t>(i));
  }
  // `out`: each value as rounded_at() has it.
  template <int Width>
  CUDA_DEVICE void store(std::int64_t i, const float (&value)[Width], const Pack<P, Width>& out) const {
    if (master != nullptr) cuda::store<Width>(master + i, value);
    *reinterpret_cast<Pack<P, Width>*>(parameter + i) = out;
  }
};

// Moments of a tensor's elements, fp32, (count) each.
template <int N>
struct Moments {
  float* of[N > 0 ? N : 1];
};

// The elements that a thread updates: Width neighbours from `first` on, then again every `stride` elements.
template <int Width>
struct OwnElements {
  std::int64_t first, stride;
};
template <int Width>
CUDA_DEVICE OwnElements<Width> own_elements(int block, int blocks) {
  return {(static_cast<std::int64_t>(block) * block_size() + thread_index()) * Width,
          static_cast<std::int64_t>(blocks) * block_size() * Width};
}
template <int Width>
CUDA_DEVICE OwnElements<Width> own_elements() {
  return own_elements<Width>(block_index().x, grid_size().x);
}

// Calls rule(value, gradient, moments) for each of the thread's own elements; it may change its arguments.
template <int Width, int N, class P, class G, class Rule>
CUDA_DEVICE void move_elements(const Moved<P>& moved, const G* gradient, const Moments<N>& moments,
                               std::int64_t count, const OwnElements<Width>& own, const Rule& rule) {
  for (std::int64_t i = own.first; i < count; i += own.stride) {
    float value[Width], g[Width], m[N > 0 ? N : 1][Width];
    moved.load(value, i);
    load<Width>(g, gradient + i);
#pragma unroll
    for (int n = 0; n < N; ++n) load<Width>(m[n], moments.of[n] + i);
    Pack<P, Width> out;
#pragma unroll
    for (int w = 0; w < Width; ++w) {
      float of_element[N > 0 ? N : 1];
#pragma unroll
      for (int n = 0; n < N; ++n) of_element[n] = m[n][w];
      rule(value[w], g[w], of_element);
#pragma unroll
      for (int n = 0; n < N; ++n) m[n][w] = of_element[n];
      out.values[w] = moved.rounded_at(i + w, value[w]);
    }
#pragma unroll
    for (int n = 0; n < N; ++n) store<Width>(moments.of[n] + i, m[n]);
    moved.store(i, value, out);
  }
}

// How many elements a thread moves at a time.
inline constexpr int kUpdateWidth = 4;
constexpr int update_width(std::int64_t count) {
  return count % kUpdateWidth == 0 ? kUpdateWidth : 1;
}
inline int update_blocks(std::int64_t count) {
  return blocks_for(count / update_width(count), kUpdateThreads);
}

// Calls body.operator()<P, G, Width>(launch): P is the parameter's type, G the type of its gradient or
// update, and launch starts a kernel that updates `count` elements, Width at a time.
template <class Body>
void with_update_types(Type parameter, Type gradient, std::int64_t count, const Body& body) {
  with_type(parameter, [&]<class P>(P) {
    with_type(gradient, [&]<class G>(G) {
      const Launch launch{.grid = {update_blocks(count), 1, 1}, .threads = kUpdateThreads};
      update_width(count) == 1 ? body.template operator()<P, G, 1>(launch)
                               : body.template operator()<P, G, kUpdateWidth>(launch);
    });
  });
}

// The same for tensors with a parameter, a gradient and a count, in groups: body.operator()<P, G, Width>(
// launch, group).
template <class T, class Body>
void update_in_groups(std::span<const T> tensors, const Body& body) {
  const auto alike = [](const T& a, const T& b) {
    return a.parameter.type == b.parameter.type && a.gradient.type == b.gradient.type &&
           update_width(a.count) == update_width(b.count);
  };
  in_groups(
      tensors, alike, [](const T& t) { return update_blocks(t.count); },
      [&](const TensorGroup<T>& group, int blocks) {
        const T& first = group.of[0];
        with_update_types(first.parameter.type, first.gradient.type, first.count,
                          [&]<class P, class G, int Width>(Launch launch) {
                            launch.grid.x = blocks;
                            body.template operator()<P, G, Width>(launch, group);
                          });
      });
}

}  // namespace kernels::cuda
