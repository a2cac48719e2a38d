// A warp norms one vector: a head, or all query or all key heads of a row. What it reads a second time is in
// the first cache by then. The gradients of the gains are sums down the rows: a pass of their own, a thread
// for each gain, before dqkv changes.
#include <algorithm>

#include "kernels/cuda/norm.h"
#include "kernels/cuda/qk_norm.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;

// Vectors of a row that are normed by themselves: `width` elements from `begin` on, their first gain, and the
// place of their rstd among the row's. A row ends with its values, which have no norm.
struct Part {
  std::int64_t begin, gain, width, statistic;
};
CUDA_HOST_DEVICE std::int64_t normed_parts(QkNormShape s) {
  return s.all_heads ? 2 : s.H + s.G;
}
CUDA_HOST_DEVICE Part part_of(std::int64_t i, QkNormShape s) {
  if (s.all_heads) return i == 0 ? Part{0, 0, s.H * s.D, 0} : Part{s.H * s.D, s.H * s.D, s.G * s.D, s.H};
  return {i * s.D, i < s.H ? 0 : s.D, s.D, i};
}

// Each element's gain; 1 where there are no gains.
template <bool WithoutGains, int Width, class T>
CUDA_DEVICE void load_gains(float (&gain)[Width], const T* weight, std::int64_t first) {
  if constexpr (WithoutGains) {
#pragma unroll
    for (int w = 0; w < Width; ++w) gain[w] = 1;
  } else {
    load<Width>(gain, weight + first);
  }
}

template <class T, int Width, bool WithoutGains>
CUDA_KERNEL(kThreads)
qk_norm_kernel(T* out, float* rstd_out, const T* inp, const T* weight, float eps, QkNormShape s) {
  const std::int64_t index = static_cast<std::int64_t>(block_index().x) * kWarps + warp_index();
  const std::int64_t parts = normed_parts(s) + 1;
  const std::int64_t row = index / parts, i = index % parts;
  if (row >= s.R) return;
  const std::int64_t first = row * (s.H + 2 * s.G) * s.D;
  constexpr int kStride = kWarp * Width;
  if (i == parts - 1) {
    if (out == inp) return;
    const std::int64_t values = first + (s.H + s.G) * s.D;
    for (std::int64_t c = lane_index() * Width; c < s.G * s.D; c += kStride) {
      float x[Width];
      load<Width>(x, inp + values + c);
      store<Width>(out + values + c, x);
    }
    return;
  }
  const Part part = part_of(i, s);
  const T* const from = inp + first + part.begin;
  float squares = 0;
  for (std::int64_t c = lane_index() * Width; c < part.width; c += kStride) {
    float x[Width];
    load<Width>(x, from + c);
#pragma unroll
    for (int w = 0; w < Width; ++w) squares += x[w] * x[w];
  }
  const float rstd = 1 / sqrtf(warp_sum(squares) / static_cast<float>(part.width) + eps);
  if (rstd_out != nullptr && lane_index() == 0) rstd_out[row * (s.H + s.G) + part.statistic] = rstd;
  for (std::int64_t c = lane_index() * Width; c < part.width; c += kStride) {
    float x[Width], gain[Width];
    load<Width>(x, from + c);
    load_gains<WithoutGains>(gain, weight, part.gain + c);
#pragma unroll
    for (int w = 0; w < Width; ++w) x[w] *= rstd * gain[w];
    store<Width>(out + first + part.begin + c, x);
  }
}

template <class T, int Width, bool WithoutGains>
CUDA_KERNEL(kThreads)
qk_norm_backward_kernel(T* dqkv, const T* inp, const T* weight, const float* rstd_in, QkNormShape s) {
  const std::int64_t index = static_cast<std::int64_t>(block_index().x) * kWarps + warp_index();
  const std::int64_t row = index / normed_parts(s);
  if (row >= s.R) return;
  const Part part = part_of(index % normed_parts(s), s);
  const std::int64_t first = row * (s.H + 2 * s.G) * s.D + part.begin;
  const float rstd = rstd_in[row * (s.H + s.G) + part.statistic];
  constexpr int kStride = kWarp * Width;
  float sum = 0;
  for (std::int64_t c = lane_index() * Width; c < part.width; c += kStride) {
    float gradient[Width], x[Width], gain[Width];
    load<Width>(gradient, dqkv + first + c);
    load<Width>(x, inp + first + c);
    load_gains<WithoutGains>(gain, weight, part.gain + c);
#pragma unroll
    for (int w = 0; w < Width; ++w) sum += gradient[w] * gain[w] * x[w] * rstd;
  }
  const float slope = warp_sum(sum) / static_cast<float>(part.width);
  for (std::int64_t c = lane_index() * Width; c < part.width; c += kStride) {
    float gradient[Width], x[Width], gain[Width];
    load<Width>(gradient, dqkv + first + c);
    load<Width>(x, inp + first + c);
    load_gains<WithoutGains>(gain, weight, part.gain + c);
#pragma unroll
    for (int w = 0; w < Width; ++w) gradient[w] = rstd * (gradient[w] * gain[w] - x[w] * rstd * slope);
    store<Width>(dqkv + first + c, gradient);
  }
}

// partials (blocks along y, gains): of each block's rows, which are contiguous.
template <class T>
CUDA_KERNEL(kThreads)
qk_norm_gains_kernel(float* partials, const T* dqkv, const T* inp, const float* rstd_in, std::int64_t gains,
                     QkNormShape s) {
  const std::int64_t gain = static_cast<std::int64_t>(block_index().x) * kThreads + thread_index();
  if (gain >= gains) return;
  const std::int64_t begin = s.R * block_index().y / grid_size().y,
                     end = s.R * (block_index().y + 1) / grid_size().y;
  // The vectors that this gain belongs to: all heads of its kind, or the one vector that it is a part of.
  const bool of_keys = gain >= (s.all_heads ? s.H * s.D : s.D);
  const std::int64_t heads = s.all_heads ? 1 : of_keys ? s.G : s.H;
  const std::int64_t column = s.all_heads ? gain : of_keys ? s.H * s.D + gain - s.D : gain;
  const std::int64_t statistic = of_keys ? s.H : 0;
  float sum = 0;
  for (std::int64_t row = begin; row < end; ++row)
    for (std::int64_t head = 0; head < heads; ++head) {
      const std::int64_t at = row * (s.H + 2 * s.G) * s.D + column + head * s.D;
      sum += to_float(dqkv[at]) * to_float(inp[at]) * rstd_in[row * (s.H + s.G) + statistic + head];
    }
  partials[block_index().y * gains + gain] = sum;
}

// Calls body.operator()<elements of a vector, whether there are no gains>().
template <class T, class Body>
void with_vectors(QkNormShape s, ConstTensor weight, const Body& body) {
  const auto call = [&]<int Width>() {
    weight ? body.template operator()<Width, false>() : body.template operator()<Width, true>();
  };
  s.D % kVector<T> == 0 ? call.template operator()<kVector<T>>() : call.template operator()<1>();
}

Launch warps_for(std::int64_t vectors) {
  return {.grid = {static_cast<int>(ceil_div(vectors, kWarps)), 1, 1}, .threads = kThreads};
}

}  // namespace

void qk_norm_forward(const Context& context, Tensor out, float* rstd, ConstTensor inp, ConstTensor weight,
                     float eps, QkNormShape s) {
  with_type(inp.type, [&]<class T>(T) {
    with_vectors<T>(s, weight, [&]<int Width, bool WithoutGains>() {
      start(context, warps_for(s.R * (normed_parts(s) + 1)), qk_norm_kernel<T, Width, WithoutGains>,
            out.as<T>(), rstd, inp.as<T>(), weight.as<T>(), eps, s);
    });
  });
}

void qk_norm_backward(const Context& context, Tensor dqkv, Tensor dweight, ConstTensor inp,
                      ConstTensor weight, const float* rstd, QkNormShape s) {
  with_type(inp.type, [&]<class T>(T) {
    if (dweight) {
      const std::int64_t gains = s.all_heads ? (s.H + s.G) * s.D : 2 * s.D;
      constexpr std::int64_t kRowsEach = 8;
      const int parts = static_cast<int>(std::clamp<std::int64_t>(s.R / kRowsEach, 1, kQkNormParts));
      float* const partials = context.scratch_for<float>(parts * gains);
      start(context, {.grid = {static_cast<int>(ceil_div(gains, kThreads)), parts, 1}, .threads = kThreads},
            qk_norm_gains_kernel<T>, partials, dqkv.as<T>(), inp.as<T>(), rstd, gains, s);
      add_column_sums(context.behind(parts * gains * static_cast<std::int64_t>(sizeof(float))), dweight,
                      {partials, Type::f32}, nullptr, parts, gains);
    }
    with_vectors<T>(s, weight, [&]<int Width, bool WithoutGains>() {
      start(context, warps_for(s.R * normed_parts(s)), qk_norm_backward_kernel<T, Width, WithoutGains>,
            dqkv.as<T>(), inp.as<T>(), weight.as<T>(), rstd, s);
    });
  });
}

}  // namespace kernels::cuda
