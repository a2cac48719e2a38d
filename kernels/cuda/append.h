// A token's queries, keys and values on their way into rotation and the KV cache.
#pragma once
#include "kernels/cuda/attention_arguments.h"
#include "kernels/cuda/rotation.h"

namespace kernels::cuda {

// Where keys and values go. T: the type of qkv; K: the cache's.
template <class T, class K>
struct AppendArguments {
  T* qkv;  // written where queries and keys are rotated
  KeyHeads<K> kv;
  KvScales scales;
  const float* table;  // (P, D); null: nothing is rotated
  const std::int32_t* positions;
  AttentionSizes s;
};

// Stores x, Width elements from d on of one head of a token, divided by the cache's scale. Heads 0 .. G - 1
// are keys, the others values.
template <int Width, class T, class K>
CUDA_DEVICE void store_cached(const AppendArguments<T, K>& a, int b, int head, int position, int d,
                              float (&x)[Width]) {
  const bool is_key = head < a.s.G;
  const int group = is_key ? head : head - a.s.G;
  const float inverse = 1 / (is_key ? a.scales.of_keys(group) : a.scales.of_values(group));
#pragma unroll
  for (int w = 0; w < Width; ++w) x[w] *= inverse;
  const KeyRows<K> rows = is_key ? a.kv.keys_of(b, group) : a.kv.values_of(b, group);
  store<Width>(rows.at(position) + d, x);
}

// Rotates pairs of a head's elements, `half` apart, in place. angles: the first pair's cosine at the token's
// position; the sine is `half` behind it (kernels/rope.h). Results are rounded to T, so that the cache gets
// the same bits as after a rotation by a kernel of its own.
template <class T, int Width>
CUDA_DEVICE void rotate(float (&x)[Width], float (&y)[Width], const float* angles, int half) {
  float cosine[Width], sine[Width];
  load<Width>(cosine, angles);
  load<Width>(sine, angles + half);
#pragma unroll
  for (int w = 0; w < Width; ++w) {
    const float first = rotated_first(x[w], y[w], cosine[w], sine[w]);
    y[w] = to_float(from_float<T>(rotated_second(x[w], y[w], cosine[w], sine[w])));
    x[w] = to_float(from_float<T>(first));
  }
}

}  // namespace kernels::cuda
