// Bound by memory: 16 bytes a thread and access where the rows allow it, each tensor touched once.
#include "kernels/cuda/early_start.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/gelu.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 256;

// Calls body(index of the first of Width elements) for all of `count`, which Width divides.
template <int Width, class Body>
CUDA_DEVICE void for_each_vector(std::int64_t count, const Body& body) {
  let_next_kernel_begin();
  wait_for_kernel_before();
  const std::int64_t stride = static_cast<std::int64_t>(grid_size().x) * block_size() * Width;
  for (std::int64_t i = (static_cast<std::int64_t>(block_index().x) * block_size() + thread_index()) * Width;
       i < count; i += stride)
    body(i);
}

template <class T, int Width>
CUDA_KERNEL(kThreads)
add_kernel(T* out, const T* a, const T* b, const T* bias, std::int64_t count, std::int64_t C) {
  for_each_vector<Width>(count, [=](std::int64_t i) {
    float sum[Width], term[Width];
    load<Width>(sum, a + i);
    if (b != nullptr) {
      load<Width>(term, b + i);
#pragma unroll
      for (int w = 0; w < Width; ++w) sum[w] += term[w];
    }
    if (bias != nullptr) {
      load<Width>(term, bias + i % C);
#pragma unroll
      for (int w = 0; w < Width; ++w) sum[w] += term[w];
    }
    store<Width>(out + i, sum);
  });
}

template <class Out, class In, int Width>
CUDA_KERNEL(kThreads)
convert_kernel(Out* out, const In* inp, std::int64_t count) {
  for_each_vector<Width>(count, [=](std::int64_t i) {
    float values[Width];
    load<Width>(values, inp + i);
    store<Width>(out + i, values);
  });
}

template <class T, int Width>
CUDA_KERNEL(kThreads)
gather_last_kernel(T* out, const T* inp, std::int64_t count, std::int64_t T_, std::int64_t C) {
  for_each_vector<Width>(count, [=](std::int64_t i) {
    float values[Width];
    load<Width>(values, inp + (i / C * T_ + T_ - 1) * C + i % C);
    store<Width>(out + i, values);
  });
}

template <class T, int Width>
CUDA_KERNEL(kThreads)
gelu_forward_kernel(T* out, const T* inp, std::int64_t count) {
  for_each_vector<Width>(count, [=](std::int64_t i) {
    float x[Width];
    load<Width>(x, inp + i);
#pragma unroll
    for (int w = 0; w < Width; ++w) x[w] = gelu(x[w]);
    store<Width>(out + i, x);
  });
}

template <class T, int Width>
CUDA_KERNEL(kThreads)
gelu_backward_kernel(T* dinp, const T* dout, const T* inp, std::int64_t count) {
  for_each_vector<Width>(count, [=](std::int64_t i) {
    float x[Width], gradient[Width];
    load<Width>(x, inp + i);
    load<Width>(gradient, dout + i);
#pragma unroll
    for (int w = 0; w < Width; ++w) gradient[w] *= gelu_slope(x[w]);
    store<Width>(dinp + i, gradient);
  });
}

CUDA_DEVICE float sigmoid(float x) {
  return 1 / (1 + expf(-x));
}

// The sizes are (R, F); a row's gate and up lie 2F apart from the next row's.
template <class T, int Width>
CUDA_KERNEL(kThreads)
swiglu_forward_kernel(T* out, const T* gate_up, std::int64_t count, std::int64_t F) {
  for_each_vector<Width>(count, [=](std::int64_t i) {
    const T* const row = gate_up + i / F * 2 * F + i % F;
    float gate[Width], up[Width];
    load<Width>(gate, row);
    load<Width>(up, row + F);
#pragma unroll
    for (int w = 0; w < Width; ++w) up[w] *= gate[w] * sigmoid(gate[w]);
    store<Width>(out + i, up);
  });
}

template <class T, int Width>
CUDA_KERNEL(kThreads)
swiglu_backward_kernel(T* dgate_up, const T* dout, const T* gate_up, std::int64_t count, std::int64_t F) {
  for_each_vector<Width>(count, [=](std::int64_t i) {
    const std::int64_t row = i / F * 2 * F + i % F;
    float gate[Width], up[Width], gradient[Width];
    load<Width>(gate, gate_up + row);
    load<Width>(up, gate_up + row + F);
    load<Width>(gradient, dout + i);
#pragma unroll
    for (int w = 0; w < Width; ++w) {
      const float s = sigmoid(gate[w]);
      const float silu = gate[w] * s;
      const float slope = s + silu * (1 - s);
      gate[w] = gradient[w] * up[w] * slope;
      up[w] = gradient[w] * silu;
    }
    store<Width>(dgate_up + row, gate);
    store<Width>(dgate_up + row + F, up);
  });
}

bool aligned_to_16(const void* p) {
  return reinterpret_cast<std::uintptr_t>(p) % 16 == 0;
}

// Calls body.template operator()<T, Width>() with 16 bytes' worth of elements where `divisor` (the length
// that vectors must not straddle) and the first tensor's address allow it, else with 1.
template <class Body>
void with_vectors(ConstTensor tensor, std::int64_t divisor, const Body& body) {
  with_type(tensor.type, [&]<class T>(T) {
    if (divisor % kVector<T> == 0 && aligned_to_16(tensor.data))
      body.template operator()<T, kVector<T>>();
    else
      body.template operator()<T, 1>();
  });
}

Launch over(std::int64_t items) {
  return {.grid = {blocks_for(items, kThreads), 1, 1}, .threads = kThreads};
}

}  // namespace

void add(const Context& context, Tensor out, ConstTensor a, ConstTensor b, ConstTensor bias, std::int64_t R,
         std::int64_t C) {
  with_vectors(out, bias ? C : R * C, [&]<class T, int Width>() {
    start_early(context, over(R * C / Width), add_kernel<T, Width>, out.as<T>(), a.as<T>(), b.as<T>(),
                bias.as<T>(), R * C, C);
  });
}

void convert(const Context& context, Tensor out, ConstTensor inp, std::int64_t count) {
  with_type(out.type, [&]<class Out>(Out) {
    with_type(inp.type, [&]<class In>(In) {
      constexpr int kWidth = 8;
      if (count % kWidth == 0 && aligned_to_16(out.data) && aligned_to_16(inp.data))
        start_early(context, over(count / kWidth), convert_kernel<Out, In, kWidth>, out.as<Out>(),
                    inp.as<In>(), count);
      else
        start_early(context, over(count), convert_kernel<Out, In, 1>, out.as<Out>(), inp.as<In>(), count);
    });
  });
}

void gather_last(const Context& context, Tensor out, ConstTensor inp, std::int64_t B, std::int64_t T,
                 std::int64_t C) {
  with_vectors(out, C, [&]<class Element, int Width>() {
    start_early(context, over(B * C / Width), gather_last_kernel<Element, Width>, out.as<Element>(),
                inp.as<Element>(), B * C, T, C);
  });
}

void gelu_forward(const Context& context, Tensor out, ConstTensor inp, std::int64_t count) {
  with_vectors(out, count, [&]<class T, int Width>() {
    start_early(context, over(count / Width), gelu_forward_kernel<T, Width>, out.as<T>(), inp.as<T>(), count);
  });
}

void gelu_backward(const Context& context, Tensor dinp, ConstTensor dout, ConstTensor inp,
                   std::int64_t count) {
  with_vectors(dinp, count, [&]<class T, int Width>() {
    start_early(context, over(count / Width), gelu_backward_kernel<T, Width>, dinp.as<T>(), dout.as<T>(),
                inp.as<T>(), count);
  });
}

void swiglu_forward(const Context& context, Tensor out, ConstTensor gate_up, std::int64_t R, std::int64_t F) {
  with_vectors(out, F, [&]<class T, int Width>() {
    start_early(context, over(R * F / Width), swiglu_forward_kernel<T, Width>, out.as<T>(), gate_up.as<T>(),
                R * F, F);
  });
}

void swiglu_backward(const Context& context, Tensor dgate_up, ConstTensor dout, ConstTensor gate_up,
                     std::int64_t R, std::int64_t F) {
  with_vectors(dgate_up, F, [&]<class T, int Width>() {
    start_early(context, over(R * F / Width), swiglu_backward_kernel<T, Width>, dgate_up.as<T>(),
                dout.as<T>(), gate_up.as<T>(), R * F, F);
  });
}

}  // namespace kernels::cuda
