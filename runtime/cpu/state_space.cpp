// Rows of the table of kernels: the convolution and the scan of state-space layers.
#include "kernels/causal_conv.h"
#include "kernels/selective_scan.h"
#include "runtime/cpu/kernel_table.h"

namespace runtime {
namespace {

namespace cpu = kernels::cpu;
using K = sim::OpKind;
using R = sim::Role;
using A = Arguments;
using S = RunSettings;

constexpr CpuKernelRow kRows[] = {
    {K::causal_conv,
     [](const A& a, const S&) {
       cpu::causal_conv_forward(a.f32(R::out), a.f32(R::history), a.convolved_part(R::projected),
                                a.projected_columns(), a.f32(R::weight), a.f32(R::bias), a.i32(R::positions),
                                a.conv());
     }},
    {K::causal_conv_backward,
     [](const A& a, const S&) {
       cpu::causal_conv_backward(a.convolved_part(R::dprojected), a.projected_columns(), a.f32(R::dweight),
                                 a.f32(R::dbias), a.f32(R::dout), a.convolved_part(R::projected),
                                 a.projected_columns(), a.f32(R::weight), a.f32(R::bias), a.conv());
     }},
    {K::selective_scan,
     [](const A& a, const S&) {
       cpu::selective_scan_forward(a.f32(R::out), a.f32(R::states), a.f32(R::xbc), a.time_steps(),
                                   a.of_heads(R::head_weights, A::kSkip), a.i32(R::positions), a.scan());
     }},
    {K::selective_scan_backward,
     [](const A& a, const S&) {
       const cpu::ScanGradients gradients{a.f32(R::dxbc),
                                          a.time_part(R::dprojected),
                                          a.projected_columns(),
                                          a.of_heads(R::dhead_weights, A::kTimeBias),
                                          a.of_heads(R::dhead_weights, A::kDecay),
                                          a.of_heads(R::dhead_weights, A::kSkip)};
       cpu::selective_scan_backward(gradients, a.f32(R::chunk_states), a.f32(R::dout), a.f32(R::xbc),
                                    a.time_steps(), a.of_heads(R::head_weights, A::kSkip), a.scan());
     }},
};

}  // namespace

std::span<const CpuKernelRow> state_space_kernels() {
  return kRows;
}

}  // namespace runtime
