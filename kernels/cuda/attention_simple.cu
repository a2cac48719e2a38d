#include <cmath>

#include "kernels/cuda/attention_arguments.h"
#include "kernels/cuda/attention_schedule.h"
#include "kernels/cuda/attention_simple.h"
#include "kernels/cuda/latent_arguments.h"
#include "kernels/cuda/online_softmax.h"

namespace kernels::cuda::simple {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;

// Sum over d of a[d] b[d], by the warp.
template <class A, class B>
CUDA_DEVICE float warp_dot(const A& a, const B& b, int D) {
  float sum = 0;
#pragma unroll 1
  for (int d = lane_index(); d < D; d += kWarp) sum += to_float(a[d]) * to_float(b[d]);
  return warp_sum(sum);
}

// Queries: Heads or SplitHeads; Keys: KeyHeads or LatentKeyHeads, of any type.
template <class T, class Queries, class Keys>
struct ForwardArguments {
  Queries q;
  Keys kv;
  KvScales scales;
  Heads<T> out;
  float* lse;
  const std::int32_t* positions;
  AttentionSizes s;
};

// The (b, t, head) that a warp works on; t may lie beyond the end.
struct Work {
  int b, t, head;
};
CUDA_DEVICE Work work_of_warp() {
  return {block_index().z, block_index().x * kWarps + warp_index(), block_index().y};
}

// A warp a query. Shared memory: V floats a warp, the output so far.
template <class T, class Queries, class Keys>
CUDA_KERNEL(kThreads)
forward_kernel(ForwardArguments<T, Queries, Keys> a) {
  const AttentionSizes& s = a.s;
  const Work at = work_of_warp();
  if (at.t >= s.length(at.b)) return;
  float* const o = shared_memory<float>() + warp_index() * s.V;
  const int group = at.head / (s.H / s.G);
  const int position = (a.positions != nullptr ? a.positions[at.b] : 0) + at.t;
  const int keys = s.causal ? position + 1 : s.length(at.b);
  const auto query = a.q.of(s.first_row(at.b), at.head).at(at.t);
  const auto k = a.kv.keys_of(at.b, group);
  const auto v = a.kv.values_of(at.b, group);
  const float scale = s.scale * a.scales.of_keys(group), slope = s.slope(at.head);
  for (int d = lane_index(); d < s.V; d += kWarp) o[d] = 0;
  SoftmaxState state;
  if (s.sinks != nullptr) state = {s.sink(at.head), 1};
  for (int key = first_visible_key(position, s.window, s.chunk); key < keys; ++key) {
    const float score = scale * warp_dot(query, k.at(key), s.D) + slope * static_cast<float>(key - position);
    const float before = state.highest;
    state.raise(score);
    const float shrink = exp_below(before, state.highest), weight = exp_below(score, state.highest);
    state.sum += weight;
    const auto value = v.at(key);
#pragma unroll 1
    for (int d = lane_index(); d < s.V; d += kWarp) o[d] = o[d] * shrink + weight * to_float(value[d]);
  }
  T* const out = a.out.of(s.first_row(at.b), at.head).at(at.t);
  const float factor = a.scales.of_values(group) / state.sum;
  for (int d = lane_index(); d < s.V; d += kWarp) out[d] = from_float<T>(o[d] * factor);
  if (a.lse != nullptr && lane_index() == 0)
    a.lse[s.statistic(at.b, at.head, at.t)] = state.highest + logf(state.sum);
}

// A warp a query. Shared memory: D floats a warp.
template <class T, template <class> class KeysOf>
CUDA_KERNEL(kThreads)
backward_queries_kernel(BackwardArguments<T, KeysOf> a) {
  const AttentionSizes& s = a.s;
  const Work at = work_of_warp();
  if (at.t >= s.length(at.b)) return;
  float* const dq = shared_memory<float>() + warp_index() * s.D;
  const int group = at.head / (s.H / s.G), keys = s.causal ? at.t + 1 : s.length(at.b);
  const std::int64_t row = s.first_row(at.b);
  const float lse = a.lse[s.statistic(at.b, at.head, at.t)],
              delta = a.delta[s.statistic(at.b, at.head, at.t)];
  const T* const q = a.q.of(row, at.head).at(at.t);
  const T* const dout = a.dout.of(row, at.head).at(at.t);
  const float slope = s.slope(at.head);
  for (int d = lane_index(); d < s.D; d += kWarp) dq[d] = 0;
  for (int key = first_visible_key(at.t, s.window, s.chunk); key < keys; ++key) {
    const auto k = a.k.of(row, group).at(key);
    const float score = s.scale * warp_dot(q, k, s.D) + slope * static_cast<float>(key - at.t);
    const float dp = warp_dot(dout, a.v.of(row, group).at(key), s.V);
    const float ds = s.scale * expf(score - lse) * (dp - delta);
    for (int d = lane_index(); d < s.D; d += kWarp) dq[d] += ds * to_float(k[d]);
  }
  T* const out = a.dq.of(row, at.head).at(at.t);
  for (int d = lane_index(); d < s.D; d += kWarp) out[d] = from_float<T>(dq[d]);
}

// A warp a key, over all queries of all heads of its group. Shared memory: D + V floats a warp.
template <class T, template <class> class KeysOf>
CUDA_KERNEL_RESIDENT(kThreads, 8)
backward_keys_kernel(BackwardArguments<T, KeysOf> a) {
  const AttentionSizes& s = a.s;
  const Work at = work_of_warp();  // head: of keys
  if (at.t >= s.length(at.b)) return;
  float* const dk = shared_memory<float>() + warp_index() * (s.D + s.V);
  float* const dv = dk + s.D;
  for (int d = lane_index(); d < s.D; d += kWarp) dk[d] = 0;
  for (int d = lane_index(); d < s.V; d += kWarp) dv[d] = 0;
  const int heads = s.H / s.G;
  const std::int64_t row = s.first_row(at.b);
  const auto k = a.k.of(row, at.head).at(at.t);
  const T* const v = a.v.of(row, at.head).at(at.t);
  const int end = end_of_queries(at.t, s.length(at.b), s.window, s.chunk);
  for (int head = at.head * heads; head < (at.head + 1) * heads; ++head) {
    const float slope = s.slope(head);
    for (int t = s.causal ? at.t : 0; t < end; ++t) {
      const T* const q = a.q.of(row, head).at(t);
      const T* const dout = a.dout.of(row, head).at(t);
      const float score = s.scale * warp_dot(q, k, s.D) + slope * static_cast<float>(at.t - t);
      const float dp = warp_dot(dout, v, s.V);
      const float p = expf(score - a.lse[s.statistic(at.b, head, t)]);
      const float ds = s.scale * p * (dp - a.delta[s.statistic(at.b, head, t)]);
#pragma unroll 1
      for (int d = lane_index(); d < s.D || d < s.V; d += kWarp) {
        if (d < s.D) dk[d] += ds * to_float(q[d]);
        if (d < s.V) dv[d] += p * to_float(dout[d]);
      }
    }
  }
  const auto dk_out = a.dk.of(row, at.head).at(at.t);
  T* const dv_out = a.dv.of(row, at.head).at(at.t);
  for (int d = lane_index(); d < s.D; d += kWarp) dk_out[d] = from_float<T>(dk[d]);
  for (int d = lane_index(); d < s.V; d += kWarp) dv_out[d] = from_float<T>(dv[d]);
}

template <class T>
CUDA_KERNEL(kThreads)
row_products_kernel(float* products, Heads<const T> a, Heads<const T> b, AttentionSizes s) {
  const Work at = work_of_warp();
  if (at.t >= s.length(at.b)) return;
  const std::int64_t row = s.first_row(at.b);
  const float product = warp_dot(a.of(row, at.head).at(at.t), b.of(row, at.head).at(at.t), s.D);
  if (lane_index() == 0) products[s.statistic(at.b, at.head, at.t)] = product;
}

Launch a_warp_for_each(std::int64_t B, const AttentionSizes& s, int heads, std::int64_t floats_each) {
  return {.grid = {static_cast<int>(ceil_div(s.T, kWarps)), heads, static_cast<int>(B)},
          .threads = kThreads,
          .shared_bytes = static_cast<std::size_t>(kWarps * floats_each) * sizeof(float)};
}

template <class T, class Queries, class Keys>
void start_forward(const Context& context, std::int64_t B,
                   const ForwardArguments<T, Queries, Keys>& arguments) {
  const AttentionSizes& s = arguments.s;
  start(context, a_warp_for_each(B, s, s.H, s.V), forward_kernel<T, Queries, Keys>, arguments);
}
template <class T, template <class> class KeysOf>
void start_backward(const Context& context, std::int64_t B, const BackwardArguments<T, KeysOf>& arguments) {
  const AttentionSizes& s = arguments.s;
  start(context, a_warp_for_each(B, s, s.H, s.D), backward_queries_kernel<T, KeysOf>, arguments);
  start(context, a_warp_for_each(B, s, s.G, s.D + s.V), backward_keys_kernel<T, KeysOf>, arguments);
}

}  // namespace

void forward(const Context& context, Tensor out, float* lse, ConstTensor qkv, AttentionShape s,
             const AttentionMask& mask) {
  const std::int64_t packed = s.H + 2 * s.G;
  with_type(qkv.type, [&]<class T>(T) {
    const T* const rows = qkv.as<T>();
    const ForwardArguments<T, Heads<const T>, KeyHeads<const T>> arguments{
        packed_heads(rows, packed, 0, s),
        packed_keys(rows, s, mask),
        {},
        packed_heads(out.as<T>(), s.H, 0, s),
        lse,
        nullptr,
        sizes(s, mask)};
    start_forward(context, s.B, arguments);
  });
}

void forward_with_cache(const Context& context, Tensor out, ConstTensor qkv, const KvCache& cache,
                        const std::int32_t* positions, AttentionShape s, ConstTensor sinks) {
  with_type(qkv.type, [&]<class T>(T) {
    with_cached_type<T>(cache, [&]<class K>(K) {
      const ForwardArguments<T, Heads<const T>, KeyHeads<const K>> arguments{
          packed_heads(qkv.as<T>(), s.H + 2 * s.G, 0, s),
          cached_keys<const K>(cache, s),
          {cache.k_scale, cache.v_scale},
          packed_heads(out.as<T>(), s.H, 0, s),
          nullptr,
          positions,
          sizes(s, {.sinks = sinks})};
      start_forward(context, s.B, arguments);
    });
  });
}

void backward(const Context& context, Tensor dqkv, ConstTensor dout, ConstTensor qkv, const float* lse,
              const float* delta, AttentionShape s, const AttentionMask& mask) {
  with_type(qkv.type, [&]<class T>(T) {
    const auto arguments = backward_arguments(dqkv.as<T>(), dout.as<T>(), qkv.as<T>(), lse, delta, s, mask);
    start_backward(context, s.B, arguments);
  });
}

void row_products(const Context& context, float* products, ConstTensor a, ConstTensor b, AttentionShape s,
                  const AttentionMask& mask) {
  with_type(a.type, [&]<class T>(T) {
    const AttentionSizes of_call = sizes(s, mask);
    start(context, a_warp_for_each(s.B, of_call, of_call.H, 0), row_products_kernel<T>, products,
          packed_heads(a.as<T>(), s.H, 0, s), packed_heads(b.as<T>(), s.H, 0, s), of_call);
  });
}

void latent_forward(const Context& context, Tensor out, float* lse, ConstTensor q, ConstTensor kv,
                    LatentShape s) {
  with_type(q.type, [&]<class T>(T) {
    const ForwardArguments<T, Heads<const T>, LatentKeyHeads<const T>> arguments{
        heads_of(q.as<T>(), s.H, s.query()),
        latent_key_heads(kv.as<T>(), s),
        {},
        heads_of(out.as<T>(), s.H, s.V),
        lse,
        nullptr,
        latent_sizes(s)};
    start_forward(context, s.B, arguments);
  });
}

void latent_backward(const Context& context, Tensor dq, Tensor dkv, ConstTensor dout, ConstTensor q,
                     ConstTensor kv, const float* lse, const float* delta, LatentShape s) {
  with_type(q.type, [&]<class T>(T) {
    start_backward(context, s.B,
                   latent_backward_arguments(dq.as<T>(), dkv.as<T>(), dout.as<T>(), q.as<T>(), kv.as<T>(),
                                             lse, delta, s));
  });
}

void latent_with_cache(const Context& context, Tensor out, ConstTensor absorbed, ConstTensor q,
                       const LatentCache& cache, const std::int32_t* positions, LatentShape s) {
  with_type(q.type, [&]<class T>(T) {
    const ForwardArguments<T, SplitHeads<const T>, KeyHeads<const T>> arguments{
        absorbed_queries(absorbed.as<T>(), q.as<T>(), s),
        latent_rows<const T>(cache, s),
        {},
        heads_of(out.as<T>(), s.H, s.L),
        nullptr,
        positions,
        absorbed_sizes(s)};
    start_forward(context, s.B, arguments);
  });
}

}  // namespace kernels::cuda::simple
