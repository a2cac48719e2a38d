// Rows of the table of kernels: attention, its rotary embedding and its cache.
#include "kernels/attention.h"

#include <vector>

#include "kernels/attention_segments.h"
#include "kernels/bf16_rows.h"
#include "kernels/rope.h"
#include "runtime/cpu/kernel_table.h"

namespace runtime {
namespace {

namespace cpu = kernels::cpu;
using K = sim::OpKind;
using R = sim::Role;
using A = Arguments;
using S = RunSettings;

// Caches may be of these types beside elements in fp32, and in bf16.
constexpr ElementTypes kCached = types(sim::DType::fp32, sim::DType::bf16, sim::DType::fp8, sim::DType::int8);
constexpr ElementTypes kCached16 = types(sim::DType::bf16, sim::DType::fp8, sim::DType::int8);

// Keys and values of context-parallel ranks: in rows of their own; a rank's own may be in its packed qkv.
std::int64_t packed_width(const kernels::AttentionShape& s) {
  return (s.H + 2 * s.G) * s.D;
}
cpu::SegmentKeys own_keys(const A& a, float* dqkv, const S& settings) {
  const kernels::AttentionShape s = a.attention();
  return {settings.context, a.f32(R::qkv) + s.H * s.D, dqkv ? dqkv + s.H * s.D : nullptr, packed_width(s)};
}
// The keys and values of all ranks, one after the other: (ranks, B, T, 2 G D).
std::vector<cpu::SegmentKeys> keys_of_all(const A& a, float* dkv, const S& settings) {
  const kernels::AttentionShape s = a.attention();
  const std::int64_t stride = 2 * s.G * s.D, of_rank = s.B * s.T * stride;
  std::vector<cpu::SegmentKeys> keys;
  for (std::int64_t r = 0; r < settings.context.ranks; ++r)
    keys.push_back({{settings.context.ranks, r},
                    a.f32(R::all_kv) + r * of_rank,
                    dkv ? dkv + r * of_rank : nullptr,
                    stride});
  return keys;
}
// The keys that have come so many steps round the ring, with the rank that they came from.
cpu::SegmentKeys keys_of_other(const A& a, float* dkv, const S& settings) {
  const kernels::AttentionShape s = a.attention();
  const std::int64_t ranks = settings.context.ranks, steps = static_cast<std::int64_t>(a.scalar());
  return {{ranks, (settings.context.rank + ranks - steps) % ranks}, a.f32(R::other_kv), dkv, 2 * s.G * s.D};
}
// The first of the heads that this rank attends with, where ranks divide heads for attention alone: sinks are
// given for all heads.
std::int64_t first_head(const A& a, const S& settings) {
  return settings.context.ranks > 1 ? settings.context.rank * a.attention().H : 0;
}
template <class Number>
Number* from_head(Number* of_all, std::int64_t first) {
  return of_all ? of_all + first : nullptr;
}
kernels::AttentionShape with_own_sinks(const A& a, const S& settings) {
  kernels::AttentionShape s = a.attention();
  s.sinks = from_head(s.sinks, first_head(a, settings));
  return s;
}

void flash_forward(const A& a, const S& settings) {
  if (!a.f32(R::all_kv))
    return cpu::attention_flash_forward(a.f32(R::out), a.f32(R::lse), a.f32(R::qkv),
                                        with_own_sinks(a, settings));
  cpu::attention_segments_forward(a.f32(R::out), a.f32(R::lse), a.f32(R::qkv), settings.context,
                                  keys_of_all(a, nullptr, settings), a.attention());
}

void sinks_backward(const A& a, float* dsinks, const kernels::AttentionShape& s) {
  if (dsinks) cpu::attention_sinks_backward(dsinks, a.f32(R::dout), a.f32(R::out), a.f32(R::lse), s);
}

void flash_backward(const A& a, const S& settings) {
  if (!a.f32(R::all_kv)) {
    const kernels::AttentionShape s = with_own_sinks(a, settings);
    cpu::attention_flash_backward(a.f32(R::dqkv), a.f32(R::dout), a.f32(R::qkv), a.f32(R::out), a.f32(R::lse),
                                  s);
    return sinks_backward(a, from_head(a.f32(R::dsinks), first_head(a, settings)), s);
  }
  const kernels::AttentionShape s = a.attention();
  cpu::attention_segments_backward(a.f32(R::dqkv), false, a.f32(R::dout), a.f32(R::qkv), a.f32(R::out),
                                   a.f32(R::lse), settings.context, keys_of_all(a, a.f32(R::dkv), settings),
                                   s);
  sinks_backward(a, a.f32(R::dsinks), s);
}

void partial_forward(const A& a, const S& settings) {
  const cpu::SegmentKeys keys =
      a.f32(R::other_kv) ? keys_of_other(a, nullptr, settings) : own_keys(a, nullptr, settings);
  cpu::attention_segments_forward(a.f32(R::out), a.f32(R::lse), a.f32(R::qkv), settings.context,
                                  std::span(&keys, 1), a.attention());
}

void partial_backward(const A& a, const S& settings) {
  const kernels::AttentionShape s = a.attention();
  float *const dqkv = a.f32(R::dqkv), *const dkv = a.f32(R::dkv);
  const bool own = a.f32(R::other_kv) == nullptr;
  const cpu::SegmentKeys keys = own ? own_keys(a, dqkv, settings) : keys_of_other(a, dkv, settings);
  cpu::attention_segments_backward(dqkv, !own, a.f32(R::dout), a.f32(R::qkv), a.f32(R::out), a.f32(R::lse),
                                   settings.context, std::span(&keys, 1), s);
  sinks_backward(a, a.f32(R::dsinks), s);
}

constexpr CpuKernelRow kRows[] = {
    {K::rope,
     [](const A& a, const S&) {
       cpu::rope_forward(a.f32(R::qkv), a.f32(R::table), a.i32(R::positions), a.rope());
     }},
    {K::rope_backward,
     [](const A& a, const S&) { cpu::rope_backward(a.f32(R::dqkv), a.f32(R::table), a.rope()); }},
    {K::attention_flash, flash_forward},
    {K::attention_flash_backward, flash_backward},
    {K::attention_partial, partial_forward},
    {K::attention_partial_backward, partial_backward},
    {K::attention_merge,
     [](const A& a, const S&) {
       cpu::attention_merge(a.f32(R::out), a.f32(R::lse), a.f32(R::part), a.f32(R::part_lse), a.attention());
     }},
    {K::attention_standard,
     [](const A& a, const S&) {
       cpu::attention_standard_forward(a.f32(R::out), a.f32(R::probabilities), a.f32(R::qkv), a.attention());
     }},
    {K::attention_standard_backward,
     [](const A& a, const S&) {
       cpu::attention_standard_backward(a.f32(R::dqkv), a.f32(R::dprobabilities), a.f32(R::dout),
                                        a.f32(R::qkv), a.f32(R::probabilities), a.attention(),
                                        a.f32(R::dsinks));
     }},
    {K::kv_append,
     [](const A& a, const S&) {
       cpu::kv_append(a.kv_cache(), a.f32(R::qkv), a.i32(R::positions), a.attention());
     },
     sim::DType::fp32,
     {{{R::k_cache, kCached}, {R::v_cache, kCached}}}},
    {K::attention_cached,
     [](const A& a, const S&) {
       cpu::attention_cached(a.f32(R::out), a.f32(R::qkv), a.kv_cache(), a.i32(R::positions), a.attention());
     },
     sim::DType::fp32,
     {{{R::k_cache, kCached}, {R::v_cache, kCached}}}},
    {K::rope_latent,
     [](const A& a, const S&) {
       cpu::rope_latent_forward(a.f32(R::q), a.strided(R::key, a.latent().P), a.f32(R::kv), a.f32(R::table),
                                a.i32(R::positions), a.latent());
     },
     sim::DType::fp32,
     {},
     true},
    {K::rope_latent_backward,
     [](const A& a, const S&) {
       cpu::rope_latent_backward(a.f32(R::dq), a.f32(R::dkey), a.f32(R::dkv), a.f32(R::table), a.latent());
     }},
    {K::attention_latent,
     [](const A& a, const S&) {
       cpu::attention_latent_forward(a.f32(R::out), a.f32(R::lse), a.f32(R::q), a.f32(R::kv), a.latent());
     }},
    {K::attention_latent_backward,
     [](const A& a, const S&) {
       cpu::attention_latent_backward(a.f32(R::dq), a.f32(R::dkv), a.f32(R::dout), a.f32(R::q), a.f32(R::kv),
                                      a.f32(R::out), a.f32(R::lse), a.latent());
     }},
    {K::latent_append,
     [](const A& a, const S&) {
       cpu::latent_append(a.latent_cache(), a.f32(R::latent), a.strided_read(R::key, a.cached_latent().P),
                          a.i32(R::positions), a.cached_latent());
     },
     sim::DType::fp32,
     {},
     true},
    {K::attention_latent_cached,
     [](const A& a, const S&) {
       cpu::attention_latent_cached(a.f32(R::out), a.f32(R::inp), a.f32(R::q), a.latent_cache(),
                                    a.i32(R::positions), a.cached_latent());
     }},
    {K::rope,
     [](const A& a, const S&) {
       cpu::rope_forward(a.b16(R::qkv), a.f32(R::table), a.i32(R::positions), a.rope());
     },
     sim::DType::bf16},
    {K::rope_backward,
     [](const A& a, const S&) { cpu::rope_backward(a.b16(R::dqkv), a.f32(R::table), a.rope()); },
     sim::DType::bf16},
    {K::attention_flash,
     [](const A& a, const S& settings) {
       cpu::attention_flash_forward(a.b16(R::out), a.f32(R::lse), a.b16(R::qkv), a.attention(),
                                    from_head(a.b16(R::sinks), first_head(a, settings)));
     },
     sim::DType::bf16},
    {K::attention_flash_backward,
     [](const A& a, const S& settings) {
       cpu::attention_flash_backward(a.b16(R::dqkv), a.b16(R::dout), a.b16(R::qkv), a.b16(R::out),
                                     a.f32(R::lse), a.attention());
       const std::int64_t first = first_head(a, settings);
       if (a.b16(R::dsinks))
         cpu::attention_sinks_backward(a.b16(R::dsinks) + first, a.b16(R::dout), a.b16(R::out), a.f32(R::lse),
                                       a.b16(R::sinks) + first, a.attention());
     },
     sim::DType::bf16},
    {K::kv_append,
     [](const A& a, const S&) {
       cpu::kv_append(a.kv_cache(), a.b16(R::qkv), a.i32(R::positions), a.attention());
     },
     sim::DType::bf16,
     {{{R::k_cache, kCached16}, {R::v_cache, kCached16}}}},
    {K::attention_cached,
     [](const A& a, const S&) {
       cpu::attention_cached(a.b16(R::out), a.b16(R::qkv), a.kv_cache(), a.i32(R::positions), a.attention(),
                             a.b16(R::sinks));
     },
     sim::DType::bf16,
     {{{R::k_cache, kCached16}, {R::v_cache, kCached16}}}},
};

}  // namespace

std::span<const CpuKernelRow> attention_kernels() {
  return kRows;
}

}  // namespace runtime
