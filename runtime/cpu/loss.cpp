// Rows of the table of kernels: the loss and sampling.
#include "kernels/bf16_rows.h"
#include "kernels/cross_entropy.h"
#include "kernels/sampling.h"
#include "runtime/cpu/kernel_table.h"

namespace runtime {
namespace {

namespace cpu = kernels::cpu;
using K = sim::OpKind;
using R = sim::Role;
using A = Arguments;
using S = RunSettings;

constexpr CpuKernelRow kRows[] = {
    {K::cross_entropy_statistics,
     [](const A& a, const S& settings) {
       cpu::cross_entropy_statistics(a.f32(R::statistics), a.f32(R::logits), a.i32(R::targets), a.rows(),
                                     a.vocab(), settings.vocabulary);
     }},
    {K::cross_entropy,
     [](const A& a, const S& settings) {
       if (const BoundOperand* const all = a.find(R::statistics); all && all->data) {
         const std::int64_t ranks = all->bytes / static_cast<std::int64_t>(3 * sizeof(float)) / a.rows();
         return cpu::cross_entropy_of_part(a.f32(R::logits), a.f32(R::losses), a.i32(R::targets),
                                           a.f32(R::statistics), ranks, a.scalar(), a.rows(), a.vocab(),
                                           settings.vocabulary);
       }
       cpu::cross_entropy_forward_backward(a.f32(R::logits), a.f32(R::losses), a.i32(R::targets), a.scalar(),
                                           a.rows(), a.vocab());
     }},
    {K::sample,
     [](const A& a, const S& settings) {
       cpu::sample(a.i32(R::tokens), a.f32(R::logits), settings.sampling, settings.sampling_step, a.rows(),
                   a.vocab());
     }},
    {K::cross_entropy,
     [](const A& a, const S&) {
       cpu::cross_entropy_forward_backward(a.b16(R::logits), a.f32(R::losses), a.i32(R::targets), a.scalar(),
                                           a.rows(), a.vocab());
     },
     sim::DType::bf16},
};

}  // namespace

std::span<const CpuKernelRow> loss_kernels() {
  return kRows;
}

}  // namespace runtime
