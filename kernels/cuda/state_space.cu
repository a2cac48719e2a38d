// The convolution and the gated norm are bound by memory: a thread has an element, a warp a group of columns.
// Gradients of parameters are sums down the rows: a pass of their own, by partial sums.
#include <algorithm>

#include "kernels/cuda/norm.h"
#include "kernels/cuda/state_space.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr std::int64_t kRowsEach = 32, kMostParts = 264;  // of sums down the rows

CUDA_DEVICE float sigmoid_of(float x) {
  return 1 / (1 + expf(-x));
}

// Inputs of the convolution: rows, and before a sequence's first token the history, null where it is zero.
template <class T>
struct ConvInput {
  const T *inp, *history, *weight, *bias;
  std::int64_t stride;
  const std::int32_t* first_positions;
  CausalConvShape s;

  CUDA_DEVICE bool has_history(std::int64_t b) const {
    return history != nullptr && first_positions != nullptr && first_positions[b] != 0;
  }
  // Input of sequence b's token t, which may lie before its first.
  CUDA_DEVICE float at(std::int64_t b, std::int64_t t, std::int64_t c) const {
    if (t >= 0) return to_float(inp[(b * s.T + t) * stride + c]);
    return has_history(b) ? to_float(history[(b * (s.K - 1) + (s.K - 1) + t) * s.C + c]) : 0.0f;
  }
  CUDA_DEVICE float pre(std::int64_t b, std::int64_t t, std::int64_t c) const {
    float sum = bias != nullptr ? to_float(bias[c]) : 0.0f;
#pragma unroll 1
    for (std::int64_t k = 0; k < s.K; ++k) sum += to_float(weight[c * s.K + k]) * at(b, t - (s.K - 1) + k, c);
    return sum;
  }
  // The gradient of SiLU's argument.
  CUDA_DEVICE float dpre(const T* dout, std::int64_t b, std::int64_t t, std::int64_t c) const {
    const float x = pre(b, t, c), gate = sigmoid_of(x);
    return to_float(dout[(b * s.T + t) * s.C + c]) * gate * (1 + x * (1 - gate));
  }
};

// Calls body(b, t, c) for all elements.
template <class Body>
CUDA_DEVICE void for_each_element(const CausalConvShape& s, const Body& body) {
  const std::int64_t stride = static_cast<std::int64_t>(grid_size().x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(block_index().x) * kThreads + thread_index();
       i < s.B * s.T * s.C; i += stride)
    body(i / (s.T * s.C), i / s.C % s.T, i % s.C);
}

template <class T>
CUDA_KERNEL(kThreads)
causal_conv_kernel(T* out, ConvInput<T> from) {
  for_each_element(from.s, [&](std::int64_t b, std::int64_t t, std::int64_t c) {
    const float x = from.pre(b, t, c);
    out[(b * from.s.T + t) * from.s.C + c] = from_float<T>(x * sigmoid_of(x));
  });
}

// Keeps the inputs before the token after the last. A thread has a channel of a sequence, oldest first: it
// has already read what it moves up.
template <class T>
CUDA_KERNEL(kThreads)
keep_history_kernel(T* history, ConvInput<T> from) {
  const CausalConvShape& s = from.s;
  const std::int64_t i = static_cast<std::int64_t>(block_index().x) * kThreads + thread_index();
  if (i >= s.B * s.C) return;
  const std::int64_t b = i / s.C, c = i % s.C;
  for (std::int64_t k = 0; k + 1 < s.K; ++k)
    history[(b * (s.K - 1) + k) * s.C + c] = from_float<T>(from.at(b, s.T - (s.K - 1) + k, c));
}

template <class T>
CUDA_KERNEL(kThreads)
causal_conv_backward_kernel(T* dinp, std::int64_t dinp_stride, const T* dout, ConvInput<T> from) {
  const CausalConvShape& s = from.s;
  for_each_element(s, [&](std::int64_t b, std::int64_t t, std::int64_t c) {
    float sum = 0;
    for (std::int64_t later = 0; later < s.K && t + later < s.T; ++later)
      sum += to_float(from.weight[c * s.K + s.K - 1 - later]) * from.dpre(dout, b, t + later, c);
    dinp[(b * s.T + t) * dinp_stride + c] = from_float<T>(sum);
  });
}

// dtaps (blocks along y, C, K), dbias (blocks along y, C): sums over each block's rows, which are contiguous.
template <class T>
CUDA_KERNEL(kThreads)
causal_conv_sums_kernel(float* dtaps, float* dbias, const T* dout, ConvInput<T> from) {
  const CausalConvShape& s = from.s;
  const std::int64_t c = static_cast<std::int64_t>(block_index().x) * kThreads + thread_index();
  if (c >= s.C) return;
  const std::int64_t rows = s.B * s.T, part = block_index().y;
  const std::int64_t begin = rows * part / grid_size().y, end = rows * (part + 1) / grid_size().y;
  for (std::int64_t k = 0; k <= s.K; ++k) {  // a tap a pass; the last is the bias's
    float sum = 0;
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t b = row / s.T, t = row % s.T;
      const float gradient = from.dpre(dout, b, t, c);
      sum += k < s.K ? gradient * from.at(b, t - (s.K - 1) + k, c) : gradient;
    }
    if (k < s.K)
      dtaps[(part * s.C + c) * s.K + k] = sum;
    else
      dbias[part * s.C + c] = sum;
  }
}

// A warp a group of a row.
template <class T>
CUDA_KERNEL(kThreads)
gated_norm_kernel(T* out, float* rstd_out, const T* inp, const T* gate, std::int64_t gate_stride,
                  const T* weight, float eps, GatedNormShape s) {
  const std::int64_t group = static_cast<std::int64_t>(block_index().x) * kWarps + warp_index();
  if (group >= s.R * s.G) return;
  const std::int64_t row = group / s.G, width = s.C / s.G, first = group % s.G * width;
  const auto gated = [&](std::int64_t c) {
    const float g = to_float(gate[row * gate_stride + c]);
    return to_float(inp[row * s.C + c]) * g * sigmoid_of(g);
  };
  float squares = 0;
  for (std::int64_t c = first + lane_index(); c < first + width; c += kWarp) squares += gated(c) * gated(c);
  const float rstd = 1 / sqrtf(warp_sum(squares) / static_cast<float>(width) + eps);
  if (rstd_out != nullptr && lane_index() == 0) rstd_out[group] = rstd;
  for (std::int64_t c = first + lane_index(); c < first + width; c += kWarp)
    out[row * s.C + c] = from_float<T>(gated(c) * rstd * to_float(weight[c]));
}

template <class T>
CUDA_KERNEL(kThreads)
gated_norm_backward_kernel(T* dinp, T* dgate, std::int64_t dgate_stride, const T* dout, const T* inp,
                           const T* gate, std::int64_t gate_stride, const T* weight, const float* rstd_in,
                           GatedNormShape s) {
  const std::int64_t group = static_cast<std::int64_t>(block_index().x) * kWarps + warp_index();
  if (group >= s.R * s.G) return;
  const std::int64_t row = group / s.G, width = s.C / s.G, first = group % s.G * width;
  const float rstd = rstd_in[group];
  float sum = 0;
  for (std::int64_t c = first + lane_index(); c < first + width; c += kWarp) {
    const float g = to_float(gate[row * gate_stride + c]);
    sum += to_float(dout[row * s.C + c]) * to_float(weight[c]) * to_float(inp[row * s.C + c]) * g *
           sigmoid_of(g) * rstd;
  }
  const float slope = warp_sum(sum) / static_cast<float>(width);
  for (std::int64_t c = first + lane_index(); c < first + width; c += kWarp) {
    const float x = to_float(inp[row * s.C + c]), g = to_float(gate[row * gate_stride + c]),
                open = sigmoid_of(g), silu = g * open;
    const float du = rstd * (to_float(dout[row * s.C + c]) * to_float(weight[c]) - x * silu * rstd * slope);
    dinp[row * s.C + c] = from_float<T>(du * silu);
    dgate[row * dgate_stride + c] = from_float<T>(du * x * open * (1 + g * (1 - open)));
  }
}

// partials (blocks along y, C)
template <class T>
CUDA_KERNEL(kThreads)
gated_norm_sums_kernel(float* partials, const T* dout, const T* inp, const T* gate, std::int64_t gate_stride,
                       const float* rstd, GatedNormShape s) {
  const std::int64_t c = static_cast<std::int64_t>(block_index().x) * kThreads + thread_index();
  if (c >= s.C) return;
  const std::int64_t part = block_index().y, group = c / (s.C / s.G);
  float sum = 0;
  for (std::int64_t row = s.R * part / grid_size().y; row < s.R * (part + 1) / grid_size().y; ++row) {
    const float g = to_float(gate[row * gate_stride + c]);
    sum += to_float(dout[row * s.C + c]) * to_float(inp[row * s.C + c]) * g * sigmoid_of(g) *
           rstd[row * s.G + group];
  }
  partials[part * s.C + c] = sum;
}

Launch over(std::int64_t items) {
  return {.grid = {blocks_for(items, kThreads), 1, 1}, .threads = kThreads};
}
Launch columns_by_parts(std::int64_t C, int parts) {
  return {.grid = {static_cast<int>(ceil_div(C, kThreads)), parts, 1}, .threads = kThreads};
}
int parts_of(std::int64_t rows) {
  return static_cast<int>(std::clamp<std::int64_t>(rows / kRowsEach, 1, kMostParts));
}
std::int64_t bytes_of(std::int64_t floats) {
  return floats * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace

void causal_conv_forward(const Context& context, Tensor out, Tensor history, ConstColumns inp,
                         ConstTensor weight, ConstTensor bias, const std::int32_t* first_positions,
                         CausalConvShape s) {
  with_type(out.type, [&]<class T>(T) {
    const ConvInput<T> from{
        inp.first.as<T>(), history.as<T>(), weight.as<T>(), bias.as<T>(), inp.stride, first_positions, s};
    start(context, over(s.B * s.T * s.C), causal_conv_kernel<T>, out.as<T>(), from);
    if (history)
      start(context, {.grid = {static_cast<int>(ceil_div(s.B * s.C, kThreads)), 1, 1}, .threads = kThreads},
            keep_history_kernel<T>, history.as<T>(), from);
  });
}

void causal_conv_backward(const Context& context, WritableColumns dinp, Tensor dweight, Tensor dbias,
                          ConstTensor dout, ConstColumns inp, ConstTensor weight, ConstTensor bias,
                          CausalConvShape s) {
  const int parts = parts_of(s.B * s.T);
  float* const dtaps = context.scratch_for<float>(parts * s.C * (s.K + 1));
  float* const of_bias = dtaps + parts * s.C * s.K;
  with_type(dout.type, [&]<class T>(T) {
    const ConvInput<T> from{inp.first.as<T>(), nullptr, weight.as<T>(), bias.as<T>(), inp.stride, nullptr, s};
    start(context, columns_by_parts(s.C, parts), causal_conv_sums_kernel<T>, dtaps, of_bias, dout.as<T>(),
          from);
    start(context, over(s.B * s.T * s.C), causal_conv_backward_kernel<T>, dinp.first.as<T>(), dinp.stride,
          dout.as<T>(), from);
  });
  const Context rest = context.behind(bytes_of(parts * s.C * (s.K + 1)));
  add_column_sums(rest, dweight, {dtaps, Type::f32}, nullptr, parts, s.C * s.K);
  if (dbias) add_column_sums(rest, dbias, {of_bias, Type::f32}, nullptr, parts, s.C);
}

void gated_norm_forward(const Context& context, Tensor out, float* rstd, ConstTensor inp, ConstColumns gate,
                        ConstTensor weight, float eps, GatedNormShape s) {
  with_type(out.type, [&]<class T>(T) {
    start(context, {.grid = {static_cast<int>(ceil_div(s.R * s.G, kWarps)), 1, 1}, .threads = kThreads},
          gated_norm_kernel<T>, out.as<T>(), rstd, inp.as<T>(), gate.first.as<T>(), gate.stride,
          weight.as<T>(), eps, s);
  });
}

void gated_norm_backward(const Context& context, Tensor dinp, WritableColumns dgate, Tensor dweight,
                         ConstTensor dout, ConstTensor inp, ConstColumns gate, ConstTensor weight,
                         const float* rstd, GatedNormShape s) {
  const int parts = parts_of(s.R);
  float* const partials = context.scratch_for<float>(parts * s.C);
  with_type(dout.type, [&]<class T>(T) {
    start(context, {.grid = {static_cast<int>(ceil_div(s.R * s.G, kWarps)), 1, 1}, .threads = kThreads},
          gated_norm_backward_kernel<T>, dinp.as<T>(), dgate.first.as<T>(), dgate.stride, dout.as<T>(),
          inp.as<T>(), gate.first.as<T>(), gate.stride, weight.as<T>(), rstd, s);
    start(context, columns_by_parts(s.C, parts), gated_norm_sums_kernel<T>, partials, dout.as<T>(),
          inp.as<T>(), gate.first.as<T>(), gate.stride, rstd, s);
  });
  add_column_sums(context.behind(bytes_of(parts * s.C)), dweight, {partials, Type::f32}, nullptr, parts, s.C);
}

}  // namespace kernels::cuda
