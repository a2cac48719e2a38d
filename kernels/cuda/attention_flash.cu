// Which of the tiles' kernels (attention_flash_kernels.h) run a call, and on what.
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_arguments.h"
#include "kernels/cuda/attention_flash.h"
#include "kernels/cuda/attention_flash_kernels.h"
#include "kernels/cuda/attention_simple.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kDeltaLanes = 16;  // of a row: 8 elements each

// products, as AttentionSizes::statistic() has it: of each head's row of a and b, with head sizes up to 128
// that are multiples of 8. Grid: (T / 8, H, B).
template <class T>
CUDA_KERNEL(kThreads)
row_products_kernel(float* products, Heads<const T> a, Heads<const T> b, AttentionSizes s) {
  const int batch = block_index().z, head = block_index().y, column = thread_index() % kDeltaLanes * 8;
  const int t = block_index().x * (kThreads / kDeltaLanes) + thread_index() / kDeltaLanes;
  float product = 0;
  if (t < s.length(batch) && column < s.D) {
    float x[8], y[8];
    load<8>(x, a.of(s.first_row(batch), head).at(t) + column);
    load<8>(y, b.of(s.first_row(batch), head).at(t) + column);
#pragma unroll
    for (int i = 0; i < 8; ++i) product += x[i] * y[i];
  }
#pragma unroll
  for (int distance = kDeltaLanes / 2; distance > 0; distance /= 2) product += shuffle_xor(product, distance);
  if (t < s.length(batch) && column == 0) products[s.statistic(batch, head, t)] = product;
}

template <class T, class Keys>
void forward(const Context& context, const flash::ForwardArguments<T, Keys>& arguments, AttentionShape s) {
  with_head_size(s.D, [&]<int D>() {
    arguments.s.is_plain() ? flash::start_forward<D, D, false>(context, arguments, s.B)
                           : flash::start_forward<D, D, true>(context, arguments, s.B);
  });
}

template <class T>
void backward(const Context& context, const BackwardArguments<T>& arguments, AttentionShape s) {
  with_head_size(s.D, [&]<int D>() {
    arguments.s.is_plain() ? flash::start_backward<D, D, false>(context, arguments, s.B)
                           : flash::start_backward<D, D, true>(context, arguments, s.B);
  });
}

}  // namespace

bool flash_takes(Type type, std::int64_t D) {
  return (type == Type::bf16 || type == Type::f16) && D % 8 == 0 && D <= 128;
}

void attention_flash_forward(const Context& context, Tensor out, float* lse, ConstTensor qkv,
                             AttentionShape s, const AttentionMask& mask) {
  if (!flash_takes(qkv.type, s.D)) return simple::forward(context, out, lse, qkv, s, mask);
  const std::int64_t packed = s.H + 2 * s.G;
  with_16_bit_type(qkv.type, [&]<class T>(T) {
    const T* const rows = qkv.as<T>();
    forward<T, KeyHeads<const T>>(context,
                                  {packed_heads(rows, packed, 0, s),
                                   packed_keys(rows, s, mask),
                                   {},
                                   packed_heads(out.as<T>(), s.H, 0, s),
                                   lse,
                                   nullptr,
                                   sizes(s, mask)},
                                  s);
  });
}

void attention_flash_with_cache(const Context& context, Tensor out, ConstTensor qkv, const KvCache& cache,
                                const std::int32_t* positions, AttentionShape s, ConstTensor sinks) {
  with_16_bit_type(qkv.type, [&]<class T>(T) {
    with_cached_type<T>(cache, [&]<class K>(K) {
      forward<T, KeyHeads<const K>>(context,
                                    {packed_heads(qkv.as<T>(), s.H + 2 * s.G, 0, s),
                                     cached_keys<const K>(cache, s),
                                     {cache.k_scale, cache.v_scale},
                                     packed_heads(out.as<T>(), s.H, 0, s),
                                     nullptr,
                                     positions,
                                     sizes(s, {.sinks = sinks})},
                                    s);
    });
  });
}

void attention_deltas(const Context& context, float* delta, ConstTensor dout, ConstTensor out,
                      AttentionShape s, const AttentionMask& mask) {
  if (!flash_takes(dout.type, s.D)) return simple::row_products(context, delta, dout, out, s, mask);
  with_16_bit_type(dout.type, [&]<class T>(T) {
    start(context,
          {.grid = {static_cast<int>(ceil_div(s.T, kThreads / kDeltaLanes)), static_cast<int>(s.H),
                    static_cast<int>(s.B)},
           .threads = kThreads},
          row_products_kernel<T>, delta, packed_heads(dout.as<T>(), s.H, 0, s),
          packed_heads(out.as<T>(), s.H, 0, s), sizes(s, mask));
  });
}

void attention_flash_backward(const Context& context, Tensor dqkv, ConstTensor dout, ConstTensor qkv,
                              ConstTensor out, const float* lse, AttentionShape s,
                              const AttentionMask& mask) {
  float* const delta = context.scratch_for<float>((mask.cu_seqlens != nullptr ? mask.rows : s.B * s.T) * s.H);
  attention_deltas(context, delta, dout, out, s, mask);
  if (!flash_takes(qkv.type, s.D)) return simple::backward(context, dqkv, dout, qkv, lse, delta, s, mask);
  with_16_bit_type(qkv.type, [&]<class T>(T) {
    backward<T>(context, backward_arguments(dqkv.as<T>(), dout.as<T>(), qkv.as<T>(), lse, delta, s, mask), s);
  });
}

}  // namespace kernels::cuda
