// Rows of the table of kernels: attention, its rotary embedding and its cache.
#include "kernels/attention.h"

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
constexpr ElementTypes kCached = types(sim::DType::fp32, sim::DType::bf16, sim::DType::fp8);
constexpr ElementTypes kCached16 = types(sim::DType::bf16, sim::DType::fp8);

constexpr CpuKernelRow kRows[] = {
    {K::rope,
     [](const A& a, const S&) {
       cpu::rope_forward(a.f32(R::qkv), a.f32(R::table), a.i32(R::positions), a.rope());
     }},
    {K::rope_backward,
     [](const A& a, const S&) { cpu::rope_backward(a.f32(R::dqkv), a.f32(R::table), a.rope()); }},
    {K::attention_flash,
     [](const A& a, const S&) {
       cpu::attention_flash_forward(a.f32(R::out), a.f32(R::lse), a.f32(R::qkv), a.attention());
     }},
    {K::attention_flash_backward,
     [](const A& a, const S&) {
       cpu::attention_flash_backward(a.f32(R::dqkv), a.f32(R::dout), a.f32(R::qkv), a.f32(R::out),
                                     a.f32(R::lse), a.attention());
     }},
    {K::attention_standard,
     [](const A& a, const S&) {
       cpu::attention_standard_forward(a.f32(R::out), a.f32(R::probabilities), a.f32(R::qkv), a.attention());
     }},
    {K::attention_standard_backward,
     [](const A& a, const S&) {
       cpu::attention_standard_backward(a.f32(R::dqkv), a.f32(R::dprobabilities), a.f32(R::dout),
                                        a.f32(R::qkv), a.f32(R::probabilities), a.attention());
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
    {K::rope,
     [](const A& a, const S&) {
       cpu::rope_forward(a.b16(R::qkv), a.f32(R::table), a.i32(R::positions), a.rope());
     },
     sim::DType::bf16},
    {K::rope_backward,
     [](const A& a, const S&) { cpu::rope_backward(a.b16(R::dqkv), a.f32(R::table), a.rope()); },
     sim::DType::bf16},
    {K::attention_flash,
     [](const A& a, const S&) {
       cpu::attention_flash_forward(a.b16(R::out), a.f32(R::lse), a.b16(R::qkv), a.attention());
     },
     sim::DType::bf16},
    {K::attention_flash_backward,
     [](const A& a, const S&) {
       cpu::attention_flash_backward(a.b16(R::dqkv), a.b16(R::dout), a.b16(R::qkv), a.b16(R::out),
                                     a.f32(R::lse), a.attention());
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
       cpu::attention_cached(a.b16(R::out), a.b16(R::qkv), a.kv_cache(), a.i32(R::positions), a.attention());
     },
     sim::DType::bf16,
     {{{R::k_cache, kCached16}, {R::v_cache, kCached16}}}},
};

}  // namespace

std::span<const CpuKernelRow> attention_kernels() {
  return kRows;
}

}  // namespace runtime
