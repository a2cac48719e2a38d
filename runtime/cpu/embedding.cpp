// Rows of the table of kernels: embeddings.
#include "kernels/embedding.h"

#include "runtime/cpu/kernel_table.h"

namespace runtime {
namespace {

namespace cpu = kernels::cpu;
using K = sim::OpKind;
using R = sim::Role;
using A = Arguments;
using S = RunSettings;

constexpr CpuKernelRow kRows[] = {
    {K::embedding,
     [](const A& a, const S&) {
       cpu::embedding_forward(a.f32(R::out), a.i32(R::tokens), a.f32(R::weight), a.f32(R::position_weight),
                              a.i32(R::positions), a.embedding());
     }},
    {K::embedding_backward,
     [](const A& a, const S&) {
       cpu::embedding_backward(a.f32(R::dweight), a.f32(R::dposition_weight), a.f32(R::dout),
                               a.i32(R::tokens), a.embedding());
     }},
};

}  // namespace

std::span<const CpuKernelRow> embedding_kernels() {
  return kRows;
}

}  // namespace runtime
