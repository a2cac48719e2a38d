// Rows of the table of kernels: the loss and sampling.
#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/bf16_rows.h"
#include "kernels/bf16_values.h"
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

// The scale of a token's gradient, with what fp16's loss is multiplied by.
float scale_of(const A& a, const S& settings) {
  return settings.loss_scale > 0 ? a.scalar() * settings.loss_scale : a.scalar();
}

// The statistics of all ranks' parts of the vocabulary; null where it is not divided.
const BoundOperand* statistics_of_parts(const A& a) {
  const BoundOperand* const all = a.find(R::statistics);
  return all && all->data ? all : nullptr;
}
void loss_of_part(const A& a, float* logits, const BoundOperand& all, const S& settings) {
  const std::int64_t ranks = all.bytes / static_cast<std::int64_t>(3 * sizeof(float)) / a.rows();
  cpu::cross_entropy_of_part(logits, a.f32(R::losses), a.i32(R::targets), a.f32(R::statistics), ranks,
                             scale_of(a, settings), a.rows(), a.vocab(), settings.vocabulary, a.cap());
}

void hide_padding(const A& a, std::int64_t vocabulary) {
  if (vocabulary == 0 || vocabulary >= a.vocab()) return;
  for (std::int64_t row = 0; row < a.rows(); ++row)
    std::fill(a.f32(R::logits) + row * a.vocab() + vocabulary, a.f32(R::logits) + (row + 1) * a.vocab(),
              -std::numeric_limits<float>::infinity());
}

std::vector<float> wide_logits(const A& a) {
  std::vector<float> logits(static_cast<std::size_t>(a.rows() * a.vocab()));
  cpu::widen(logits.data(), a.b16(R::logits), a.rows() * a.vocab());
  return logits;
}

constexpr CpuKernelRow kRows[] = {
    {K::cross_entropy_statistics,
     [](const A& a, const S& settings) {
       cpu::cross_entropy_statistics(a.f32(R::statistics), a.f32(R::logits), a.i32(R::targets), a.rows(),
                                     a.vocab(), settings.vocabulary, a.cap());
     }},
    {K::cross_entropy,
     [](const A& a, const S& settings) {
       if (const BoundOperand* const all = statistics_of_parts(a))
         return loss_of_part(a, a.f32(R::logits), *all, settings);
       cpu::cross_entropy_forward_backward(a.f32(R::logits), a.f32(R::losses), a.i32(R::targets),
                                           scale_of(a, settings), a.rows(), a.vocab(), a.words(), a.cap());
     }},
    {K::sample,
     [](const A& a, const S& settings) {
       if (a.cap() > 0) cpu::cap_logits(a.f32(R::logits), a.cap(), a.rows(), a.vocab());
       hide_padding(a, settings.sampled_vocabulary);
       cpu::sample(a.i32(R::tokens), a.f32(R::logits), settings.sampling, settings.sampling_step, a.rows(),
                   a.vocab());
     }},
    {K::cross_entropy_statistics,
     [](const A& a, const S& settings) {
       const std::vector<float> logits = wide_logits(a);
       cpu::cross_entropy_statistics(a.f32(R::statistics), logits.data(), a.i32(R::targets), a.rows(),
                                     a.vocab(), settings.vocabulary, a.cap());
     },
     sim::DType::bf16},
    {K::cross_entropy,
     [](const A& a, const S& settings) {
       if (const BoundOperand* const all = statistics_of_parts(a)) {
         std::vector<float> logits = wide_logits(a);
         loss_of_part(a, logits.data(), *all, settings);
         return cpu::narrow(a.b16(R::logits), logits.data(), a.rows() * a.vocab());
       }
       cpu::cross_entropy_forward_backward(a.b16(R::logits), a.f32(R::losses), a.i32(R::targets),
                                           scale_of(a, settings), a.rows(), a.vocab(), a.words(), a.cap());
     },
     sim::DType::bf16},
};

}  // namespace

std::span<const CpuKernelRow> loss_kernels() {
  return kRows;
}

}  // namespace runtime
