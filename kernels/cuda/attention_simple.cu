#include <cmath>

#include "kernels/cuda/attention_arguments.h"
#include "kernels/cuda/attention_simple.h"
#include "kernels/cuda/online_softmax.h"

namespace kernels::cuda::simple {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;

// Sum over d of a[d] b[d], by the warp.
template <class A, class B>
CUDA_DEVICE float warp_dot(const A* a, const B* b, int D) {
  float sum = 0;
  for (int d = lane_index(); d < D; d += kWarp) sum += to_float(a[d]) * to_float(b[d]);
  return warp_sum(sum);
}

template <class T>
struct ForwardArguments {
  Heads<const T> q, k, v;
  Heads<T> out;
  float* lse;
  const std::int32_t* positions;
  AttentionSizes s;
};

// The (b, t, head) that a warp works on; t may lie beyond the end.
struct Place {
  int b, t, head;
};
CUDA_DEVICE Place warp_place() {
  return {block_index().z, block_index().x * kWarps + warp_index(), block_index().y};
}

// A warp a query. Shared memory: D floats a warp, the output so far.
template <class T>
CUDA_KERNEL(kThreads)
forward_kernel(ForwardArguments<T> a) {
  const AttentionSizes& s = a.s;
  const Place at = warp_place();
  if (at.t >= s.T) return;
  float* const o = shared_memory<float>() + warp_index() * s.D;
  const int group = at.head / (s.H / s.G);
  const int position = (a.positions != nullptr ? a.positions[at.b] : 0) + at.t;
  for (int d = lane_index(); d < s.D; d += kWarp) o[d] = 0;
  SoftmaxState state;
  for (int key = 0; key <= position; ++key) {
    const float score = s.scale * warp_dot(a.q.at(at.b, at.head, at.t), a.k.at(at.b, group, key), s.D);
    const float before = state.highest;
    state.raise(score);
    const float shrink = exp_below(before, state.highest), weight = exp_below(score, state.highest);
    state.sum += weight;
    const T* const value = a.v.at(at.b, group, key);
    for (int d = lane_index(); d < s.D; d += kWarp) o[d] = o[d] * shrink + weight * to_float(value[d]);
  }
  T* const out = a.out.at(at.b, at.head, at.t);
  for (int d = lane_index(); d < s.D; d += kWarp) out[d] = from_float<T>(o[d] / state.sum);
  if (a.lse != nullptr && lane_index() == 0)
    a.lse[(static_cast<std::int64_t>(at.b) * s.H + at.head) * s.T + at.t] = state.highest + logf(state.sum);
}

// A warp a query. Shared memory: D floats a warp.
template <class T>
CUDA_KERNEL(kThreads)
backward_queries_kernel(BackwardArguments<T> a) {
  const AttentionSizes& s = a.s;
  const Place at = warp_place();
  if (at.t >= s.T) return;
  float* const dq = shared_memory<float>() + warp_index() * s.D;
  const int group = at.head / (s.H / s.G);
  const float lse = a.lse[a.statistic(at.b, at.head, at.t)],
              delta = a.delta[a.statistic(at.b, at.head, at.t)];
  for (int d = lane_index(); d < s.D; d += kWarp) dq[d] = 0;
  for (int key = 0; key <= at.t; ++key) {
    const T* const k = a.k.at(at.b, group, key);
    const float score = s.scale * warp_dot(a.q.at(at.b, at.head, at.t), k, s.D);
    const float dp = warp_dot(a.dout.at(at.b, at.head, at.t), a.v.at(at.b, group, key), s.D);
    const float ds = s.scale * expf(score - lse) * (dp - delta);
    for (int d = lane_index(); d < s.D; d += kWarp) dq[d] += ds * to_float(k[d]);
  }
  T* const out = a.dq.at(at.b, at.head, at.t);
  for (int d = lane_index(); d < s.D; d += kWarp) out[d] = from_float<T>(dq[d]);
}

// A warp a key, over all queries of all heads of its group. Shared memory: 2 D floats a warp.
template <class T>
CUDA_KERNEL(kThreads)
backward_keys_kernel(BackwardArguments<T> a) {
  const AttentionSizes& s = a.s;
  const Place at = warp_place();  // head: of keys
  if (at.t >= s.T) return;
  float* const dk = shared_memory<float>() + 2 * warp_index() * s.D;
  float* const dv = dk + s.D;
  for (int d = lane_index(); d < s.D; d += kWarp) dk[d] = dv[d] = 0;
  const int heads = s.H / s.G;
  for (int head = at.head * heads; head < (at.head + 1) * heads; ++head)
    for (int t = at.t; t < s.T; ++t) {
      const T* const q = a.q.at(at.b, head, t);
      const T* const dout = a.dout.at(at.b, head, t);
      const float score = s.scale * warp_dot(q, a.k.at(at.b, at.head, at.t), s.D);
      const float dp = warp_dot(dout, a.v.at(at.b, at.head, at.t), s.D);
      const float p = expf(score - a.lse[a.statistic(at.b, head, t)]);
      const float ds = s.scale * p * (dp - a.delta[a.statistic(at.b, head, t)]);
      for (int d = lane_index(); d < s.D; d += kWarp) {
        dk[d] += ds * to_float(q[d]);
        dv[d] += p * to_float(dout[d]);
      }
    }
  T* const dk_out = a.dk.at(at.b, at.head, at.t);
  T* const dv_out = a.dv.at(at.b, at.head, at.t);
  for (int d = lane_index(); d < s.D; d += kWarp) {
    dk_out[d] = from_float<T>(dk[d]);
    dv_out[d] = from_float<T>(dv[d]);
  }
}

template <class T>
CUDA_KERNEL(kThreads)
row_products_kernel(float* products, Heads<const T> a, Heads<const T> b, AttentionSizes s) {
  const Place at = warp_place();
  if (at.t >= s.T) return;
  const float product = warp_dot(a.at(at.b, at.head, at.t), b.at(at.b, at.head, at.t), s.D);
  if (lane_index() == 0) products[(static_cast<std::int64_t>(at.b) * s.H + at.head) * s.T + at.t] = product;
}

Launch a_warp_for_each(AttentionShape s, std::int64_t heads, std::int64_t floats_each) {
  return {.grid = {static_cast<int>(ceil_div(s.T, kWarps)), static_cast<int>(heads), static_cast<int>(s.B)},
          .threads = kThreads,
          .shared_bytes = static_cast<std::size_t>(kWarps * floats_each) * sizeof(float)};
}

}  // namespace

void forward(const Context& context, Tensor out, float* lse, ConstTensor qkv, AttentionShape s) {
  const std::int64_t packed = s.H + 2 * s.G;
  with_type(qkv.type, [&]<class T>(T) {
    const T* const rows = qkv.as<T>();
    const ForwardArguments<T> arguments{packed_heads(rows, packed, 0, s),
                                        packed_heads(rows, packed, s.H, s),
                                        packed_heads(rows, packed, s.H + s.G, s),
                                        packed_heads(out.as<T>(), s.H, 0, s),
                                        lse,
                                        nullptr,
                                        sizes(s)};
    start(context, a_warp_for_each(s, s.H, s.D), forward_kernel<T>, arguments);
  });
}

void forward_with_cache(const Context& context, Tensor out, ConstTensor qkv, ConstTensor k_cache,
                        ConstTensor v_cache, const std::int32_t* positions, AttentionShape s,
                        std::int64_t capacity) {
  with_type(qkv.type, [&]<class T>(T) {
    const ForwardArguments<T> arguments{packed_heads(qkv.as<T>(), s.H + 2 * s.G, 0, s),
                                        cache_heads(k_cache.as<T>(), capacity, s),
                                        cache_heads(v_cache.as<T>(), capacity, s),
                                        packed_heads(out.as<T>(), s.H, 0, s),
                                        nullptr,
                                        positions,
                                        sizes(s)};
    start(context, a_warp_for_each(s, s.H, s.D), forward_kernel<T>, arguments);
  });
}

void backward(const Context& context, Tensor dqkv, ConstTensor dout, ConstTensor qkv, const float* lse,
              const float* delta, AttentionShape s) {
  with_type(qkv.type, [&]<class T>(T) {
    const auto arguments = backward_arguments(dqkv.as<T>(), dout.as<T>(), qkv.as<T>(), lse, delta, s);
    start(context, a_warp_for_each(s, s.H, s.D), backward_queries_kernel<T>, arguments);
    start(context, a_warp_for_each(s, s.G, 2 * s.D), backward_keys_kernel<T>, arguments);
  });
}

void row_products(const Context& context, float* products, ConstTensor a, ConstTensor b, AttentionShape s) {
  with_type(a.type, [&]<class T>(T) {
    start(context, a_warp_for_each(s, s.H, 0), row_products_kernel<T>, products,
          packed_heads(a.as<T>(), s.H, 0, s), packed_heads(b.as<T>(), s.H, 0, s), sizes(s));
  });
}

}  // namespace kernels::cuda::simple
