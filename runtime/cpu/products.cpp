// Rows of the table of kernels: matrix products.
#include "kernels/matmul.h"
#include "kernels/matmul_bf16.h"
#include "kernels/matmul_fp8.h"
#include "kernels/quantised.h"
#include "runtime/cpu/kernel_table.h"

namespace runtime {
namespace {

namespace cpu = kernels::cpu;
using K = sim::OpKind;
using R = sim::Role;
using A = Arguments;
using S = RunSettings;

// Of factors that were widened from fp8; otherwise both are 1.
cpu::FactorScales scales(const A& a, R first, R second) {
  return {a.scale(first), a.scale(second)};
}

constexpr CpuKernelRow kRows[] = {
    {K::matmul,
     [](const A& a, const S&) {
       cpu::matmul_forward(a.f32(R::out), a.f32(R::inp), a.f32(R::weight), a.f32(R::bias), a.f32(R::residual),
                           a.matmul());
     }},
    {K::matmul,
     [](const A& a, const S&) {
       cpu::matmul_quantised(a.f32(R::out), a.f32(R::inp), a.quantised(a.inner()), a.f32(R::bias),
                             a.f32(R::residual), a.matmul());
     },
     sim::DType::fp32,
     {{{R::weight, kCodes}, {R::weight_scales, kScalesOfCodes}}}},
    {K::matmul,
     [](const A& a, const S&) {
       cpu::matmul_fp8(a.f32(R::out), a.f32(R::inp), {a.as<std::uint8_t>(R::weight), a.f32(R::weight_scales)},
                       a.f32(R::bias), a.f32(R::residual), a.matmul());
     },
     sim::DType::fp32,
     {{{R::weight, types(sim::DType::fp8)}}}},
    {K::matmul_backward_input,
     [](const A& a, const S&) {
       cpu::matmul_backward_input(a.f32(R::dinp), a.f32(R::dout), a.f32(R::weight), a.updates(R::dinp),
                                  a.matmul());
     }},
    {K::matmul_backward_weight,
     [](const A& a, const S&) {
       cpu::matmul_backward_weight(a.f32(R::dweight), a.f32(R::dbias), a.f32(R::dout), a.f32(R::inp),
                                   a.matmul(), a.updates(R::dweight));
     }},
    // In generation the head's logits are fp32.
    {.kind = K::matmul,
     .kernel =
         [](const A& a, const S&) {
           const bool wide = a.dtype(R::out) == sim::DType::fp32;
           cpu::matmul_forward({wide ? nullptr : a.b16(R::out), wide ? a.f32(R::out) : nullptr},
                               a.b16(R::inp), a.b16(R::weight), a.b16(R::bias), a.b16(R::residual),
                               a.matmul(), scales(a, R::inp, R::weight));
         },
     .element = sim::DType::bf16,
     .others = {{{R::out, types(sim::DType::bf16, sim::DType::fp32)}}},
     .scales = true},
    {.kind = K::matmul_backward_input,
     .kernel =
         [](const A& a, const S&) {
           cpu::matmul_backward_input(a.b16(R::dinp), a.b16(R::dout), a.b16(R::weight), a.updates(R::dinp),
                                      a.matmul(), scales(a, R::dout, R::weight));
         },
     .element = sim::DType::bf16,
     .scales = true},
    {.kind = K::matmul_backward_weight,
     .kernel =
         [](const A& a, const S&) {
           cpu::matmul_backward_weight(a.b16(R::dweight), a.b16(R::dbias), a.b16(R::dout), a.b16(R::inp),
                                       a.matmul(), a.updates(R::dweight), scales(a, R::dout, R::inp));
         },
     .element = sim::DType::bf16,
     .scales = true},
};

}  // namespace

std::span<const CpuKernelRow> product_kernels() {
  return kRows;
}

}  // namespace runtime
