// Bound by memory: 16 bytes a thread and access where rows allow it. A block has columns of one row in
// forward, and a row in backward, where the gradient of the row's weight is a sum over it.
#include <algorithm>

#include "kernels/cuda/feed_forward.h"
#include "kernels/cuda/gelu.h"
#include "kernels/normal_tail.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

CUDA_DEVICE float sigmoid_of(float x) {
  return 1 / (1 + expf(-x));
}

// gpt-oss's bounds of gate and of what it multiplies (openai/gpt-oss, gpt_oss/torch/model.py).
constexpr float kClamp = 7.0f, kClampedSlope = 1.702f;

// The normal distribution at x, and x times its density, by one exponential.
struct NormalAt {
  float below, times_density;
};
CUDA_DEVICE NormalAt normal_at(float x) {
  const float e = expf(-0.5f * x * x);
  const float tail = e * normal_tail_factor(1 / (1 + 0.25f * fabsf(x)));
  return {x < 0 ? tail : 1 - tail, x * e * kInverseSqrtTwoPi};
}

template <Activation A>
CUDA_DEVICE float value_of(float x) {
  if constexpr (A == Activation::silu) {
    return x * sigmoid_of(x);
  } else if constexpr (A == Activation::clamped_silu) {
    const float gate = x > kClamp ? kClamp : x;
    return gate * sigmoid_of(kClampedSlope * gate);
  } else if constexpr (A == Activation::gelu_exact) {
    return x * normal_at(x).below;
  } else if constexpr (A == Activation::none) {
    return x;
  } else if constexpr (A == Activation::gelu) {
    return gelu(x);
  } else {
    const float positive = x < 0 ? 0.0f : x;  // NaN stays NaN
    return A == Activation::relu ? positive : positive * positive;
  }
}
template <Activation A>
CUDA_DEVICE float slope_of(float x) {
  if constexpr (A == Activation::silu) {
    const float s = sigmoid_of(x);
    return s + x * s * (1 - s);
  } else if constexpr (A == Activation::clamped_silu) {
    const float s = sigmoid_of(kClampedSlope * x);
    return x > kClamp ? 0.0f : s * (1 + kClampedSlope * x * (1 - s));
  } else if constexpr (A == Activation::gelu_exact) {
    const NormalAt n = normal_at(x);
    return n.below + n.times_density;
  } else if constexpr (A == Activation::none) {
    return 1.0f;
  } else if constexpr (A == Activation::gelu) {
    return gelu_slope(x);
  } else if constexpr (A == Activation::relu) {
    return x > 0 ? 1.0f : 0.0f;
  } else {
    return x < 0 ? 0.0f : 2 * x;
  }
}

// What a gate multiplies, and its slope by what is stored.
template <Activation A>
CUDA_DEVICE float multiplied(float up) {
  if constexpr (A != Activation::clamped_silu) return up;
  const float above = up < -kClamp ? -kClamp : up;
  return (above > kClamp ? kClamp : above) + 1;
}
template <Activation A>
CUDA_DEVICE float multiplied_slope(float up) {
  return A == Activation::clamped_silu && (up < -kClamp || up > kClamp) ? 0.0f : 1.0f;
}

// What a row is multiplied by, and its slope by the value that the row's weight is stored as.
struct Factor {
  float value = 1, slope = 1;
};
CUDA_DEVICE Factor factor_of(const float* weights, bool sigmoid, std::int64_t row) {
  if (weights == nullptr) return {};
  if (!sigmoid) return {weights[row], 1};
  const float s = sigmoid_of(weights[row]);
  return {s, s * (1 - s)};
}

template <Activation A, class T, int Width>
CUDA_KERNEL(kThreads)
feed_forward_kernel(T* out, const T* inp, const float* weights, bool sigmoid, std::int64_t F) {
  const std::int64_t row = block_index().x;
  const std::int64_t f = (static_cast<std::int64_t>(block_index().y) * block_size() + thread_index()) * Width;
  if (f >= F) return;
  const float factor = factor_of(weights, sigmoid, row).value;
  const T* const from = inp + row * (is_gated(A) ? 2 * F : F) + f;
  float x[Width], up[Width];
  load<Width>(x, from);
  if constexpr (is_gated(A)) load<Width>(up, from + F);
#pragma unroll
  for (int w = 0; w < Width; ++w) {
    x[w] = value_of<A>(x[w]) * factor;
    if constexpr (is_gated(A)) x[w] *= multiplied<A>(up[w]);
  }
  store<Width>(out + row * F + f, x);
}

// Shared memory: a partial sum for each warp.
template <Activation A, class T, int Width>
CUDA_KERNEL(kThreads)
feed_forward_backward_kernel(T* dinp, float* drow_weights, const T* dout, const T* inp, const float* weights,
                             bool sigmoid, std::int64_t F) {
  const std::int64_t row = block_index().x;
  const Factor factor = factor_of(weights, sigmoid, row);
  const std::int64_t begin = row * (is_gated(A) ? 2 * F : F);
  float sum = 0;
  for (std::int64_t f = static_cast<std::int64_t>(thread_index()) * Width; f < F;
       f += static_cast<std::int64_t>(block_size()) * Width) {
    float x[Width], up[Width], gradient[Width];
    load<Width>(gradient, dout + row * F + f);
    load<Width>(x, inp + begin + f);
    if constexpr (is_gated(A)) load<Width>(up, inp + begin + F + f);
#pragma unroll
    for (int w = 0; w < Width; ++w) {
      const float value = value_of<A>(x[w]), slope = slope_of<A>(x[w]), scaled = gradient[w] * factor.value;
      if constexpr (is_gated(A)) {
        const float by = multiplied<A>(up[w]);
        sum += gradient[w] * value * by;
        x[w] = scaled * by * slope;
        up[w] = scaled * value * multiplied_slope<A>(up[w]);
      } else {
        sum += gradient[w] * value;
        x[w] = scaled * slope;
      }
    }
    store<Width>(dinp + begin + f, x);
    if constexpr (is_gated(A)) store<Width>(dinp + begin + F + f, up);
  }
  if (drow_weights == nullptr) return;
  const float total = block_sum(sum, shared_memory<float>());
  if (thread_index() == 0) drow_weights[row] = total * factor.slope;
}

bool aligned_to_16(const void* p) {
  return reinterpret_cast<std::uintptr_t>(p) % 16 == 0;
}

// Calls body.template operator()<A, T, Width>() for the activation among those.
template <Activation... Among, class Body>
void with_activation(Activation activation, ConstTensor tensor, std::int64_t F, const Body& body) {
  with_type(tensor.type, [&]<class T>(T) {
    const auto of_width = [&]<int Width>() {
      ((activation == Among ? body.template operator()<Among, T, Width>() : void()), ...);
    };
    F % kVector<T> == 0 && aligned_to_16(tensor.data) ? of_width.template operator()<kVector<T>>()
                                                      : of_width.template operator()<1>();
  });
}

template <Activation... Among>
void forward(const Context& context, Activation activation, Tensor out, ConstTensor inp, std::int64_t R,
             std::int64_t F, RowWeights weights) {
  with_activation<Among...>(activation, out, F, [&]<Activation A, class T, int Width>() {
    start(context,
          {.grid = {static_cast<int>(R), static_cast<int>(ceil_div(F, kThreads * Width)), 1},
           .threads = threads_for(ceil_div(F, Width), kThreads)},
          feed_forward_kernel<A, T, Width>, out.as<T>(), inp.as<T>(), weights.values, weights.sigmoid, F);
  });
}

template <Activation... Among>
void backward(const Context& context, Activation activation, Tensor dinp, ConstTensor dout, ConstTensor inp,
              std::int64_t R, std::int64_t F, RowWeights weights, float* drow_weights) {
  with_activation<Among...>(activation, dinp, F, [&]<Activation A, class T, int Width>() {
    start(context,
          {.grid = {static_cast<int>(R), 1, 1},
           .threads = threads_for(ceil_div(F, Width), kThreads),
           .shared_bytes = kWarps * sizeof(float)},
          feed_forward_backward_kernel<A, T, Width>, dinp.as<T>(), drow_weights, dout.as<T>(), inp.as<T>(),
          weights.values, weights.sigmoid, F);
  });
}

}  // namespace

void activation_forward(const Context& context, Activation activation, Tensor out, ConstTensor inp,
                        std::int64_t R, std::int64_t F, RowWeights weights) {
  forward<Activation::relu, Activation::squared_relu, Activation::gelu_exact, Activation::none>(
      context, activation, out, inp, R, F, weights);
}
void activation_backward(const Context& context, Activation activation, Tensor dinp, ConstTensor dout,
                         ConstTensor inp, std::int64_t R, std::int64_t F, RowWeights weights,
                         float* drow_weights) {
  backward<Activation::relu, Activation::squared_relu, Activation::gelu_exact, Activation::none>(
      context, activation, dinp, dout, inp, R, F, weights, drow_weights);
}

void gated_forward(const Context& context, Activation activation, Tensor out, ConstTensor gate_up,
                   std::int64_t R, std::int64_t F, RowWeights weights) {
  forward<Activation::silu, Activation::gelu, Activation::clamped_silu>(context, activation, out, gate_up, R,
                                                                        F, weights);
}
void gated_backward(const Context& context, Activation activation, Tensor dgate_up, ConstTensor dout,
                    ConstTensor gate_up, std::int64_t R, std::int64_t F, RowWeights weights,
                    float* drow_weights) {
  backward<Activation::silu, Activation::gelu, Activation::clamped_silu>(
      context, activation, dgate_up, dout, gate_up, R, F, weights, drow_weights);
}

}  // namespace kernels::cuda
