// Rows of the table of kernels: activations and what else works element by element.
#include "kernels/elementwise.h"

#include "kernels/activation.h"
#include "runtime/cpu/kernel_table.h"

namespace runtime {
namespace {

namespace cpu = kernels::cpu;
using K = sim::OpKind;
using R = sim::Role;
using A = Arguments;
using S = RunSettings;

constexpr CpuKernelRow kRows[] = {
    {K::squared_relu,
     [](const A& a, const S&) {
       cpu::squared_relu_forward(a.f32(R::out), a.f32(R::inp), a.rows(), a.cols());
     }},
    {K::squared_relu_backward,
     [](const A& a, const S&) {
       cpu::squared_relu_backward(a.f32(R::dinp), a.f32(R::dout), a.f32(R::inp), a.rows(), a.cols());
     }},
    {K::gelu,
     [](const A& a, const S&) { cpu::gelu_forward(a.f32(R::out), a.f32(R::inp), a.rows(), a.cols()); }},
    {K::gelu_backward,
     [](const A& a, const S&) {
       cpu::gelu_backward(a.f32(R::dinp), a.f32(R::dout), a.f32(R::inp), a.rows(), a.cols());
     }},
    {K::swiglu,
     [](const A& a, const S&) { cpu::swiglu_forward(a.f32(R::out), a.f32(R::gate_up), a.rows(), a.cols()); }},
    {K::swiglu_backward,
     [](const A& a, const S&) {
       cpu::swiglu_backward(a.f32(R::dgate_up), a.f32(R::dout), a.f32(R::gate_up), a.rows(), a.cols());
     }},
    {K::add,
     [](const A& a, const S&) { cpu::add(a.f32(R::out), a.f32(R::a), a.f32(R::b), a.rows(), a.cols()); }},
    {K::gather_last,
     [](const A& a, const S&) {
       cpu::gather_last(a.f32(R::out), a.f32(R::inp), a.batch(), a.query_length(), a.cols());
     }},
    {K::zero,
     [](const A& a, const S&) {
       for (std::size_t i = 0; i < a.operands(); ++i) cpu::zero(a.f32(i), a.count(i));
     }},
};

}  // namespace

std::span<const CpuKernelRow> elementwise_kernels() {
  return kRows;
}

}  // namespace runtime
