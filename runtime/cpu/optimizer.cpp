// Rows of the table of kernels: the optimizer.
#include "kernels/optimizer.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/adafactor.h"
#include "kernels/adam_8bit.h"
#include "kernels/bf16_rows.h"
#include "kernels/muon.h"
#include "runtime/cpu/kernel_table.h"

namespace runtime {
namespace {

namespace cpu = kernels::cpu;
using K = sim::OpKind;
using R = sim::Role;

// The fp64 buffer between squared_norm, clip_scale and adamw.
enum GradientNorm { kSumOfSquares, kNorm, kClipScale };

void squared_norm(const Arguments& a, const RunSettings&) {
  thread_local std::vector<const float*> gradients;
  thread_local std::vector<std::int64_t> counts;
  gradients.clear();
  counts.clear();
  for (std::size_t i = 1; i < a.operands(); ++i) {
    gradients.push_back(a.f32(i));
    counts.push_back(a.count(i));
  }
  // Where several ranks hold the same gradient, each adds its part of the sum.
  const double part = a.scalar() == 0 ? 1 : double{a.scalar()};
  double squares = 0;
  cpu::squared_norm(&squares, gradients, counts);
  a.as<double>(R::norm)[kSumOfSquares] += part * squares;
}

void clip_scale(const Arguments& a, const RunSettings& settings) {
  double* const norm = a.as<double>(R::norm);
  float norm_f32 = 0, scale_f32 = 1;
  // Gradients in fp16 keep the loss's scale; what moves the parameters divides by it.
  const double loss_scale = settings.loss_scale > 0 ? settings.loss_scale : 1;
  const double squares = norm[kSumOfSquares] / (loss_scale * loss_scale);
  cpu::clip_scale(&norm_f32, &scale_f32, &squares, settings.max_gradient_norm);
  norm[kNorm] = norm_f32;
  norm[kClipScale] = scale_f32 / loss_scale;
}

// A step in fp16 whose gradients overflowed changes nothing.
bool is_skipped(const Arguments& a, const RunSettings& settings) {
  return settings.loss_scale > 0 && !std::isfinite(a.as<double>(R::norm)[kNorm]);
}

template <void (*step)(const Arguments&, const RunSettings&)>
void unless_skipped(const Arguments& a, const RunSettings& settings) {
  if (!is_skipped(a, settings)) step(a, settings);
}

// Only checks whether gradients overflowed.
void find_overflow(const Arguments& a, const RunSettings&) {
  for (std::size_t i = 1; i < a.operands(); ++i) {
    const float* const gradient = a.f32(i);
    if (!std::all_of(gradient, gradient + a.count(i), [](float g) { return std::isfinite(g); }))
      *a.f32(R::found) = 1;
  }
}

void adamw(const Arguments& a, const RunSettings& settings) {
  constexpr std::size_t kGroup = 5;  // parameter, gradient, two moments, master copy: absent in fp32
  thread_local std::vector<kernels::AdamWTensor> tensors;
  tensors.clear();
  for (std::size_t i = 1; i + kGroup <= a.operands(); i += kGroup)
    tensors.push_back({a.f32(i), a.f32(i + 1), a.f32(i + 2), a.f32(i + 3), a.count(i), a.decay()});
  const float scale = static_cast<float>(a.as<double>(R::norm)[kClipScale]);
  cpu::adamw(tensors, &scale, settings.adamw);
}

void lion(const Arguments& a, const RunSettings& settings) {
  constexpr std::size_t kGroup = 4;  // parameter, gradient, moment, master copy: absent in fp32
  thread_local std::vector<kernels::LionTensor> tensors;
  tensors.clear();
  for (std::size_t i = 1; i + kGroup <= a.operands(); i += kGroup)
    tensors.push_back({a.f32(i), a.f32(i + 1), a.f32(i + 2), a.count(i), a.decay()});
  const float scale = static_cast<float>(a.as<double>(R::norm)[kClipScale]);
  cpu::lion(tensors, &scale, settings.adamw);
}

void sgd(const Arguments& a, const RunSettings& settings) {
  constexpr std::size_t kGroup = 4;  // parameter, gradient, moment, master copy: absent in fp32
  thread_local std::vector<kernels::SgdTensor> tensors;
  tensors.clear();
  for (std::size_t i = 1; i + kGroup <= a.operands(); i += kGroup)
    tensors.push_back({a.f32(i), a.f32(i + 1), a.f32(i + 2), a.count(i), a.decay()});
  const float scale = static_cast<float>(a.as<double>(R::norm)[kClipScale]);
  cpu::sgd(tensors, &scale, settings.adamw);
}

// A matrix has as many rows and columns as moments of them. A tensor of several matrices has that many times
// more of both.
void adafactor(const Arguments& a, const RunSettings& settings) {
  constexpr std::size_t kGroup = 5;  // parameter, gradient, moments of rows and columns, master copy
  const float scale = static_cast<float>(a.as<double>(R::norm)[kClipScale]);
  for (std::size_t i = 1; i + kGroup <= a.operands(); i += kGroup) {
    kernels::AdafactorTensor tensor{a.f32(i), a.f32(i + 1), a.f32(i + 2), a.f32(i + 3), 1,
                                    1,        a.count(i),   a.decay()};
    if (tensor.column_moment) {
      tensor.matrices = a.count(i + 2) * a.count(i + 3) / a.count(i);
      tensor.rows = a.count(i + 2) / tensor.matrices;
      tensor.cols = a.count(i + 3) / tensor.matrices;
    }
    cpu::adafactor(tensor, &scale, settings.adamw);
  }
}

void muon_momentum(const Arguments& a, const RunSettings& settings) {
  constexpr std::size_t kGroup = 3;  // update, gradient, moment
  const float scale = static_cast<float>(a.as<double>(R::norm)[kClipScale]);
  for (std::size_t i = 1; i + kGroup <= a.operands(); i += kGroup)
    cpu::muon_momentum(a.f32(i), a.f32(i + 1), a.f32(i + 2), a.count(i), &scale, settings.adamw);
}

void apply_update(const Arguments& a, const RunSettings& settings) {
  constexpr std::size_t kGroup = 3;  // parameter, update, master copy: absent in fp32
  for (std::size_t i = 1; i + kGroup <= a.operands(); i += kGroup)
    cpu::apply_update(a.f32(i), a.f32(i + 1), a.count(i), a.decay(), settings.adamw);
}

void adamw_8bit(const Arguments& a, const RunSettings& settings) {
  constexpr std::size_t kGroup = 7;  // parameter, gradient, two moments, their scales, master copy
  const float scale = static_cast<float>(a.as<double>(R::norm)[kClipScale]);
  for (std::size_t i = 1; i + kGroup <= a.operands(); i += kGroup)
    cpu::adamw_8bit({a.f32(i), a.f32(i + 1), a.as<std::uint8_t>(i + 2), a.as<std::uint8_t>(i + 3),
                     a.f32(i + 4), a.f32(i + 5), a.count(i), a.decay()},
                    &scale, settings.adamw);
}

void squared_norm_bf16(const Arguments& a, const RunSettings&) {
  const double part = a.scalar() == 0 ? 1 : double{a.scalar()};
  double squares = 0;
  for (std::size_t i = 1; i < a.operands(); ++i) cpu::squared_norm(&squares, a.b16(i), a.count(i));
  a.as<double>(R::norm)[kSumOfSquares] += part * squares;
}

void adamw_bf16(const Arguments& a, const RunSettings& settings) {
  constexpr std::size_t kGroup = 5;  // parameter, gradient, two moments, master copy
  const float scale = static_cast<float>(a.as<double>(R::norm)[kClipScale]);
  for (std::size_t i = 1; i + kGroup <= a.operands(); i += kGroup)
    cpu::adamw({a.b16(i), a.b16(i + 1), a.f32(i + 2), a.f32(i + 3), a.f32(i + 4), a.count(i), a.decay()},
               &scale, settings.adamw);
}

constexpr CpuKernelRow kRows[] = {
    {K::squared_norm, squared_norm},
    {K::clip_scale, clip_scale},
    {K::unscale, find_overflow},
    {K::host_read, [](const Arguments&, const RunSettings&) {}},  // the host has it
    {K::adamw, unless_skipped<adamw>},
    {K::lion, unless_skipped<lion>},
    {K::sgd, unless_skipped<sgd>},
    {K::adafactor, unless_skipped<adafactor>},
    {K::muon_momentum, unless_skipped<muon_momentum>},
    {K::orthogonalise,
     [](const Arguments& a, const RunSettings&) {
       cpu::orthogonalise(a.f32(R::update), {a.grouped_count(), a.rows(), a.cols()});
     }},
    {K::apply_update, unless_skipped<apply_update>},
    {K::adamw_8bit,
     unless_skipped<adamw_8bit>,
     sim::DType::fp32,
     {{{R::moment1, types(sim::DType::int8)}, {R::moment2, types(sim::DType::int8)}}}},
    {K::squared_norm, squared_norm_bf16, sim::DType::bf16},
    {K::adamw, adamw_bf16, sim::DType::bf16},
};

}  // namespace

std::span<const CpuKernelRow> optimizer_kernels() {
  return kRows;
}

}  // namespace runtime
