// Rows of the table of kernels: embeddings.
#include "kernels/embedding.h"

#include "kernels/bf16_rows.h"
#include "kernels/quantised.h"
#include "runtime/cpu/kernel_table.h"

namespace runtime {
namespace {

namespace cpu = kernels::cpu;
using K = sim::OpKind;
using R = sim::Role;
using A = Arguments;
using S = RunSettings;

kernels::EmbeddingShape part_of(const A& a, const S& settings) {
  kernels::EmbeddingShape shape = a.embedding();
  shape.first = settings.vocabulary.first;
  return shape;
}

constexpr CpuKernelRow kRows[] = {
    {K::embedding,
     [](const A& a, const S& settings) {
       cpu::embedding_forward(a.f32(R::out), a.i32(R::tokens), a.f32(R::weight), a.f32(R::position_weight),
                              a.i32(R::positions), part_of(a, settings));
     }},
    {K::embedding,
     [](const A& a, const S& settings) {
       cpu::embedding_quantised(a.f32(R::out), a.i32(R::tokens), a.quantised(a.hidden()),
                                a.f32(R::position_weight), a.i32(R::positions), part_of(a, settings));
     },
     sim::DType::fp32,
     {{{R::weight, kCodes}, {R::weight_scales, kScalesOfCodes}}}},
    {K::embedding_backward,
     [](const A& a, const S& settings) {
       cpu::embedding_backward(a.f32(R::dweight), a.f32(R::dposition_weight), a.f32(R::dout),
                               a.i32(R::tokens), part_of(a, settings));
     }},
    {K::embedding,
     [](const A& a, const S& settings) {
       cpu::embedding_forward(a.b16(R::out), a.i32(R::tokens), a.b16(R::weight), a.b16(R::position_weight),
                              a.i32(R::positions), part_of(a, settings));
     },
     sim::DType::bf16},
    {K::embedding_backward,
     [](const A& a, const S& settings) {
       cpu::embedding_backward(a.b16(R::dweight), a.b16(R::dposition_weight), a.b16(R::dout),
                               a.i32(R::tokens), part_of(a, settings));
     },
     sim::DType::bf16},
};

}  // namespace

std::span<const CpuKernelRow> embedding_kernels() {
  return kRows;
}

}  // namespace runtime
