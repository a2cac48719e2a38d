// Rows of the table of kernels: matrix products.
#include "kernels/matmul.h"
#include "runtime/cpu/kernel_table.h"

namespace runtime {
namespace {

namespace cpu = kernels::cpu;
using K = sim::OpKind;
using R = sim::Role;
using A = Arguments;
using S = RunSettings;

constexpr CpuKernelRow kRows[] = {
    {K::matmul,
     [](const A& a, const S&) {
       cpu::matmul_forward(a.f32(R::out), a.f32(R::inp), a.f32(R::weight), a.f32(R::bias), a.f32(R::residual),
                           a.matmul());
     }},
    {K::matmul_backward_input,
     [](const A& a, const S&) {
       cpu::matmul_backward_input(a.f32(R::dinp), a.f32(R::dout), a.f32(R::weight), a.updates(R::dinp),
                                  a.matmul());
     }},
    {K::matmul_backward_weight,
     [](const A& a, const S&) {
       cpu::matmul_backward_weight(a.f32(R::dweight), a.f32(R::dbias), a.f32(R::dout), a.f32(R::inp),
                                   a.matmul());
     }},
};

}  // namespace

std::span<const CpuKernelRow> product_kernels() {
  return kRows;
}

}  // namespace runtime
