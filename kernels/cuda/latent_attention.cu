// Rotation of latents' keys, and attention to expanded keys and values by the kernels of flash attention.
#include "kernels/cuda/append.h"
#include "kernels/cuda/attention_flash_kernels.h"
#include "kernels/cuda/attention_simple.h"
#include "kernels/cuda/early_start.h"
#include "kernels/cuda/latent_arguments.h"
#include "kernels/cuda/latent_attention.h"
#include "kernels/cuda/strided_rows.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 256;

template <class T>
struct RotationArguments {
  T* q;       // (rows, H, N + P)
  T* key;     // (rows, P), key_stride elements apart
  T* copies;  // (rows, H, P); forward: may be null
  const float* table;
  const std::int32_t* positions;
  std::int64_t key_stride;
  int T_, H, N, P;
};

// Rotates the rotary parts of a token's queries. `back`: by the transposed rotation, in which the two
// elements of a pair change places.
template <int Width, class T>
CUDA_DEVICE void rotate_queries(const RotationArguments<T>& a, std::int64_t row, const float* angles,
                                bool back) {
  const int half = a.P / 2, parts = half / Width;
  for (int i = thread_index(); i < a.H * parts; i += block_size()) {
    const int d = i % parts * Width;
    T* const first = a.q + (row * a.H + i / parts) * (a.N + a.P) + a.N + d;
    float x[Width], y[Width];
    load<Width>(x, first);
    load<Width>(y, first + half);
    if (back)
      rotate<T>(y, x, angles + d, half);
    else
      rotate<T>(x, y, angles + d, half);
    store<Width>(first, x);
    store<Width>(first + half, y);
  }
}

// A block a token.
template <int Width, class T>
CUDA_KERNEL(kThreads)
rope_latent_kernel(RotationArguments<T> a) {
  let_next_kernel_begin();
  wait_for_kernel_before();
  const std::int64_t row = block_index().x;
  const int half = a.P / 2;
  const std::int64_t position = (a.positions != nullptr ? a.positions[row / a.T_] : 0) + row % a.T_;
  const float* const angles = a.table + position * a.P;
  T* const key = a.key + row * a.key_stride;
  for (int d = thread_index() * Width; d < half; d += block_size() * Width) {
    float x[Width], y[Width];
    load<Width>(x, key + d);
    load<Width>(y, key + half + d);
    rotate<T>(x, y, angles + d, half);
    store<Width>(key + d, x);
    store<Width>(key + half + d, y);
  }
  rotate_queries<Width>(a, row, angles, false);
  if (a.copies == nullptr) return;
  sync_block();  // the key is rotated
  for (int i = thread_index() * Width; i < a.H * a.P; i += block_size() * Width) {
    float x[Width];
    load<Width>(x, key + i % a.P);
    store<Width>(a.copies + row * a.H * a.P + i, x);
  }
}

// A block a token. Shared memory: P floats for each part of the heads.
template <int Width, class T>
CUDA_KERNEL(kThreads)
rope_latent_backward_kernel(RotationArguments<T> a) {
  const std::int64_t row = block_index().x;
  const int half = a.P / 2, vectors = a.P / Width;
  const int parts = block_size() > vectors ? block_size() / vectors : 1;
  const float* const angles = a.table + row % a.T_ * a.P;
  float* const sums = shared_memory<float>();  // (parts, P)
  for (int i = thread_index(); i < parts * vectors; i += block_size()) {
    const int part = i / vectors, d = i % vectors * Width;
    float sum[Width] = {};
    for (int head = part; head < a.H; head += parts) {
      float x[Width];
      load<Width>(x, a.copies + (row * a.H + head) * a.P + d);
#pragma unroll
      for (int w = 0; w < Width; ++w) sum[w] += x[w];
    }
#pragma unroll
    for (int w = 0; w < Width; ++w) sums[part * a.P + d + w] = sum[w];
  }
  rotate_queries<Width>(a, row, angles, true);
  sync_block();
  for (int d = thread_index(); d < half; d += block_size()) {
    float x[1] = {}, y[1] = {};
    for (int i = 0; i < parts; ++i) {
      x[0] += sums[i * a.P + d];
      y[0] += sums[i * a.P + half + d];
    }
    rotate<T>(y, x, angles + d, half);
    T* const key = a.key + row * a.key_stride;
    key[d] = from_float<T>(x[0]);
    key[half + d] = from_float<T>(y[0]);
  }
}

template <class T>
struct LatentAppendArguments {
  KeyHeads<T> cache;
  const T *latent, *key;
  const std::int32_t* positions;
  std::int64_t key_stride;
  int T_, L, P;
};

// A block a token.
template <int Width, class T>
CUDA_KERNEL(kThreads)
latent_append_kernel(LatentAppendArguments<T> a) {
  let_next_kernel_begin();
  wait_for_kernel_before();
  const std::int64_t row = block_index().x;
  const int b = block_index().x / a.T_, t = block_index().x % a.T_;
  T* const to = a.cache.keys_of(b, 0).at(a.positions[b] + t);
  for (int i = thread_index() * Width; i < a.L + a.P; i += block_size() * Width) {
    float x[Width];
    load<Width>(x, i < a.L ? a.latent + row * a.L + i : a.key + row * a.key_stride + i - a.L);
    store<Width>(to + i, x);
  }
}

template <class T>
RotationArguments<T> rotation_arguments(Tensor q, Tensor key, std::int64_t key_stride, T* copies,
                                        const float* table, const std::int32_t* positions, LatentShape s) {
  return {q.as<T>(),
          key.as<T>(),
          copies,
          table,
          positions,
          key_stride,
          static_cast<int>(s.T),
          static_cast<int>(s.H),
          static_cast<int>(s.N),
          static_cast<int>(s.P)};
}

// Calls body.template operator()<Width>() with how many elements rotate at a time.
template <class T, class Body>
void with_width(LatentShape s, std::int64_t key_stride, const void* key, const void* copies,
                const Body& body) {
  constexpr int kWidth = kVector<T>;
  const bool fits = s.N % kWidth == 0 && s.P / 2 % kWidth == 0 && key_stride % kWidth == 0 &&
                    is_vector_aligned(key) && is_vector_aligned(copies);
  fits ? body.template operator()<kWidth>() : body.template operator()<1>();
}

// Where expanded keys and values hold their copies of the rotary key.
template <class T>
T* copies_of(T* kv, LatentShape s) {
  return kv == nullptr ? nullptr : kv + s.B * s.T * s.H * (s.N + s.V);
}

// Whether the kernels for tensor cores take this shape.
bool tiles_take(Type type, LatentShape s) {
  return (type == Type::bf16 || type == Type::f16) && s.N % 8 == 0 && s.P % 8 == 0 && s.V % 8 == 0 &&
         s.query() <= 192 && s.V <= 128 && latent_sizes(s).is_plain();
}

// Calls body.template operator()<D, V>() with the smallest tiles that hold the head sizes.
template <class Body>
void with_head_sizes(LatentShape s, const Body& body) {
  s.query() <= 96 && s.V <= 64 ? body.template operator()<96, 64>() : body.template operator()<192, 128>();
}

}  // namespace

void rope_latent_forward(const Context& context, Tensor q, Tensor key, std::int64_t key_stride, Tensor kv,
                         const float* table, const std::int32_t* positions, LatentShape s) {
  with_type(q.type, [&]<class T>(T) {
    T* const copies = copies_of(kv.as<T>(), s);
    const auto arguments = rotation_arguments(q, key, key_stride, copies, table, positions, s);
    with_width<T>(s, key_stride, key.data, copies, [&]<int Width>() {
      start_early(context,
                  {.grid = {static_cast<int>(s.B * s.T), 1, 1},
                   .threads = threads_for(ceil_div(s.H * s.P, Width), kThreads)},
                  rope_latent_kernel<Width, T>, arguments);
    });
  });
}

void rope_latent_backward(const Context& context, Tensor dq, Tensor dkey, ConstTensor dkv, const float* table,
                          LatentShape s) {
  with_type(dq.type, [&]<class T>(T) {
    T* const copies = copies_of(const_cast<T*>(dkv.as<T>()), s);  // read only
    const auto arguments = rotation_arguments(dq, dkey, s.P, copies, table, nullptr, s);
    with_width<T>(s, s.P, dkey.data, copies, [&]<int Width>() {
      const int threads = threads_for(ceil_div(s.H * s.P, Width), kThreads);
      start(context,
            {.grid = {static_cast<int>(s.B * s.T), 1, 1},
             .threads = threads,
             .shared_bytes =
                 static_cast<std::size_t>(std::max<std::int64_t>(threads * Width, s.P)) * sizeof(float)},
            rope_latent_backward_kernel<Width, T>, arguments);
    });
  });
}

void attention_latent_forward(const Context& context, Tensor out, float* lse, ConstTensor q, ConstTensor kv,
                              LatentShape s) {
  if (!tiles_take(q.type, s)) return simple::latent_forward(context, out, lse, q, kv, s);
  with_16_bit_type(q.type, [&]<class T>(T) {
    const flash::ForwardArguments<T, LatentKeyHeads<const T>> arguments{heads_of(q.as<T>(), s.H, s.query()),
                                                                        latent_key_heads(kv.as<T>(), s),
                                                                        {},
                                                                        heads_of(out.as<T>(), s.H, s.V),
                                                                        lse,
                                                                        nullptr,
                                                                        latent_sizes(s)};
    with_head_sizes(s, [&]<int D, int V>() { flash::start_forward<D, V, false>(context, arguments, s.B); });
  });
}

void attention_latent_backward(const Context& context, Tensor dq, Tensor dkv, ConstTensor dout, ConstTensor q,
                               ConstTensor kv, ConstTensor out, const float* lse, LatentShape s) {
  float* const delta = context.scratch_for<float>(s.B * s.T * s.H);
  attention_deltas(context, delta, dout, out, {s.B, s.T, s.H, s.H, s.V}, {});
  if (!tiles_take(q.type, s)) return simple::latent_backward(context, dq, dkv, dout, q, kv, lse, delta, s);
  with_16_bit_type(q.type, [&]<class T>(T) {
    const auto arguments = latent_backward_arguments(dq.as<T>(), dkv.as<T>(), dout.as<T>(), q.as<T>(),
                                                     kv.as<T>(), lse, delta, s);
    with_head_sizes(s, [&]<int D, int V>() { flash::start_backward<D, V, false>(context, arguments, s.B); });
  });
}

void latent_append(const Context& context, const LatentCache& cache, ConstTensor latent, ConstTensor key,
                   std::int64_t key_stride, const std::int32_t* positions, LatentShape s) {
  with_type(latent.type, [&]<class T>(T) {
    const LatentAppendArguments<T> arguments{
        latent_rows<T>(cache, s), latent.as<T>(),        key.as<T>(),          positions, key_stride,
        static_cast<int>(s.T),    static_cast<int>(s.L), static_cast<int>(s.P)};
    const auto launch = [&]<int Width>() {
      start_early(context,
                  {.grid = {static_cast<int>(s.B * s.T), 1, 1},
                   .threads = threads_for(ceil_div(s.cached(), Width), kThreads)},
                  latent_append_kernel<Width, T>, arguments);
    };
    constexpr int kWidth = kVector<T>;
    const bool fits =
        s.L % kWidth == 0 && s.P % kWidth == 0 && key_stride % kWidth == 0 && is_vector_aligned(key.data);
    fits ? launch.template operator()<kWidth>() : launch.template operator()<1>();
  });
}

}  // namespace kernels::cuda
