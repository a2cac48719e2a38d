// Rows of the table of kernels: latent attention.
#include "kernels/cuda/latent_attention.h"
#include "runtime/cuda/kernel_entries.h"

namespace runtime {
namespace {

using K = sim::OpKind;
using R = sim::Role;

std::int64_t key_stride(const Call& c, const kernels::LatentShape& s) {
  const std::int64_t stride = c.row_stride(R::key);
  return stride > 0 ? stride : s.P;
}
cuda::LatentCache latent_cache(const Call& c) {
  const OperationView::CacheBlocks blocks = c.cache_blocks(R::cache);
  return {c.tensor(R::cache), blocks.tokens, blocks.table, blocks.of_sequence};
}

constexpr KernelEntry kKernels[] = {
    {K::rope_latent,
     [](const Call& c) {
       const kernels::LatentShape s = c.latent();
       cuda::rope_latent_forward(c.context, c.tensor(R::q), c.tensor(R::key), key_stride(c, s),
                                 c.tensor(R::kv), c.f32(R::table), c.i32(R::positions), s);
     }},
    {K::rope_latent_backward,
     [](const Call& c) {
       cuda::rope_latent_backward(c.context, c.tensor(R::dq), c.tensor(R::dkey), c.tensor(R::dkv),
                                  c.f32(R::table), c.latent());
     }},
    {K::attention_latent,
     [](const Call& c) {
       cuda::attention_latent_forward(c.context, c.tensor(R::out), c.f32(R::lse), c.tensor(R::q),
                                      c.tensor(R::kv), c.latent());
     }},
    {K::attention_latent_backward,
     [](const Call& c) {
       cuda::attention_latent_backward(c.context, c.tensor(R::dq), c.tensor(R::dkv), c.tensor(R::dout),
                                       c.tensor(R::q), c.tensor(R::kv), c.tensor(R::out), c.f32(R::lse),
                                       c.latent());
     }},
    {K::latent_append,
     [](const Call& c) {
       const kernels::LatentShape s = c.cached_latent();
       cuda::latent_append(c.context, latent_cache(c), c.tensor(R::latent), c.tensor(R::key),
                           key_stride(c, s), c.i32(R::positions), s);
     }},
    {K::attention_latent_cached,
     [](const Call& c) {
       cuda::attention_latent_cached(c.context, c.tensor(R::out), c.tensor(R::inp), c.tensor(R::q),
                                     latent_cache(c), c.i32(R::positions), c.cached_latent());
     }},
};

}  // namespace

std::span<const KernelEntry> cuda_latent_kernels() {
  return kKernels;
}

bool is_absorbed(const sim::Operation& operation) {
  return operation.place == sim::Place::absorbs_keys || operation.place == sim::Place::absorbs_values;
}

void absorb(const Call& c) {
  const kernels::LatentShape s = c.absorbing();
  const bool keys = c.operation().place == sim::Place::absorbs_keys;
  cuda::Product p{.M = s.B * s.T, .N = c.cols(), .K = c.inner()};
  p.a = c.tensor(R::inp);
  p.b = c.tensor(R::weight);  // of each head N rows for its keys, then V for its values
  p.out = c.tensor(R::out);
  const std::int64_t inp = keys ? s.query() : s.L, out = keys ? s.L : s.V;
  if (!keys) p.b = from_row(p.b, s.N, s.L);
  p.transpose_b = !keys;
  p.lda = s.H * inp, p.ldb = s.L, p.ldout = s.H * out;
  p.batch = s.H, p.stride_a = inp, p.stride_b = (s.N + s.V) * s.L, p.stride_out = out;
  p.tf32 = c.tf32();
  c.products.run(c.context, p);
}

}  // namespace runtime
