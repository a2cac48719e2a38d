// Rows of the table of kernels: norms.
#include "kernels/bf16_rows.h"
#include "kernels/gated_norm.h"
#include "kernels/layernorm.h"
#include "kernels/qk_norm.h"
#include "kernels/rmsnorm.h"
#include "runtime/cpu/kernel_table.h"

namespace runtime {
namespace {

namespace cpu = kernels::cpu;
using K = sim::OpKind;
using R = sim::Role;
using A = Arguments;
using S = RunSettings;

constexpr CpuKernelRow kRows[] = {
    {K::layernorm,
     [](const A& a, const S&) {
       cpu::layernorm_forward(a.f32(R::out), a.f32(R::mean), a.f32(R::rstd), a.f32(R::inp), a.f32(R::weight),
                              a.f32(R::bias), a.scalar(), a.rows(), a.hidden());
     }},
    {K::layernorm_backward,
     [](const A& a, const S&) {
       cpu::layernorm_backward(a.f32(R::dinp), a.f32(R::dweight), a.f32(R::dbias), a.f32(R::dout),
                               a.f32(R::inp), a.f32(R::weight), a.f32(R::mean), a.f32(R::rstd), a.rows(),
                               a.hidden());
     }},
    {K::rmsnorm,
     [](const A& a, const S&) {
       cpu::rmsnorm_forward(a.strided(R::out, a.hidden()), a.f32(R::rstd), a.strided_read(R::inp, a.hidden()),
                            a.f32(R::weight), a.scalar(), a.rows(), a.hidden());
     },
     sim::DType::fp32,
     {},
     true},
    {K::rmsnorm_backward,
     [](const A& a, const S&) {
       cpu::rmsnorm_backward(a.strided(R::dinp, a.hidden()), a.f32(R::dweight),
                             a.strided_read(R::dout, a.hidden()), a.strided_read(R::inp, a.hidden()),
                             a.f32(R::weight), a.f32(R::rstd), a.rows(), a.hidden());
     },
     sim::DType::fp32,
     {},
     true},
    {K::qk_norm,
     [](const A& a, const S&) {
       cpu::qk_norm_forward(a.f32(R::out), a.f32(R::rstd), a.f32(R::inp), a.f32(R::weight), a.scalar(),
                            a.qk_norm());
     }},
    {K::qk_norm_backward,
     [](const A& a, const S&) {
       cpu::qk_norm_backward(a.f32(R::dqkv), a.f32(R::dweight), a.f32(R::inp), a.f32(R::weight),
                             a.f32(R::rstd), a.qk_norm());
     }},
    {K::qk_norm,
     [](const A& a, const S&) {
       cpu::qk_norm_forward(a.b16(R::out), a.f32(R::rstd), a.b16(R::inp), a.b16(R::weight), a.scalar(),
                            a.qk_norm());
     },
     sim::DType::bf16},
    {K::qk_norm_backward,
     [](const A& a, const S&) {
       cpu::qk_norm_backward(a.b16(R::dqkv), a.b16(R::dweight), a.b16(R::inp), a.b16(R::weight),
                             a.f32(R::rstd), a.qk_norm());
     },
     sim::DType::bf16},
    {K::gated_norm,
     [](const A& a, const S&) {
       cpu::gated_norm_forward(a.f32(R::out), a.f32(R::rstd), a.f32(R::inp), a.f32(R::projected),
                               a.projected_columns(), a.f32(R::weight), a.scalar(), a.gated_norm());
     }},
    {K::gated_norm_backward,
     [](const A& a, const S&) {
       cpu::gated_norm_backward(a.f32(R::dinp), a.f32(R::dprojected), a.projected_columns(),
                                a.f32(R::dweight), a.f32(R::dout), a.f32(R::inp), a.f32(R::projected),
                                a.projected_columns(), a.f32(R::weight), a.f32(R::rstd), a.gated_norm());
     }},
    {K::layernorm,
     [](const A& a, const S&) {
       cpu::layernorm_forward(a.b16(R::out), a.f32(R::mean), a.f32(R::rstd), a.b16(R::inp), a.b16(R::weight),
                              a.b16(R::bias), a.scalar(), a.rows(), a.hidden());
     },
     sim::DType::bf16},
    {K::layernorm_backward,
     [](const A& a, const S&) {
       cpu::layernorm_backward(a.b16(R::dinp), a.b16(R::dweight), a.b16(R::dbias), a.b16(R::dout),
                               a.b16(R::inp), a.b16(R::weight), a.f32(R::mean), a.f32(R::rstd), a.rows(),
                               a.hidden());
     },
     sim::DType::bf16},
    {K::rmsnorm,
     [](const A& a, const S&) {
       cpu::rmsnorm_forward(a.b16(R::out), a.f32(R::rstd), a.b16(R::inp), a.b16(R::weight), a.scalar(),
                            a.rows(), a.hidden());
     },
     sim::DType::bf16},
    {K::rmsnorm_backward,
     [](const A& a, const S&) {
       cpu::rmsnorm_backward(a.b16(R::dinp), a.b16(R::dweight), a.b16(R::dout), a.b16(R::inp),
                             a.b16(R::weight), a.f32(R::rstd), a.rows(), a.hidden());
     },
     sim::DType::bf16},
};

}  // namespace

std::span<const CpuKernelRow> norm_kernels() {
  return kRows;
}

}  // namespace runtime
