// Rows of the table of kernels: routing and experts.
#include <vector>

#include "kernels/grouped_matmul.h"
#include "kernels/permute.h"
#include "kernels/quantised.h"
#include "kernels/route.h"
#include "runtime/cpu/kernel_table.h"

namespace runtime {
namespace {

namespace cpu = kernels::cpu;
using K = sim::OpKind;
using R = sim::Role;
using A = Arguments;
using S = RunSettings;

std::vector<std::int64_t> offsets(const A& a) {
  if (const auto known = a.group_offsets(); !known.empty()) return {known.begin(), known.end()};
  if (a.has_capacity()) {
    std::vector<std::int64_t> all;
    for (std::int64_t e = 0; e <= a.grouped_count(); ++e) all.push_back(e * (a.rows() / a.grouped_count()));
    return all;
  }
  return cpu::expert_offsets(a.i32(R::indices), a.rows(), a.grouped_count());
}

// False where the operation is no product of latent attention's heads. up_weight: fp32 or codes.
bool absorbs(const A& a, auto up_weight) {
  const auto of = a.place();
  if (of == sim::Place::absorbs_keys)
    cpu::absorb_keys(a.f32(R::out), a.f32(R::inp), up_weight, a.absorbing());
  else if (of == sim::Place::absorbs_values)
    cpu::absorb_values(a.f32(R::out), a.f32(R::inp), up_weight, a.absorbing());
  else
    return false;
  return true;
}

void grouped_matmul(const A& a, const S&) {
  const float* const weight = a.f32(R::weight);
  if (!absorbs(a, weight))
    cpu::grouped_matmul_forward(a.f32(R::out), a.f32(R::inp), weight, a.f32(R::bias), offsets(a),
                                a.grouped());
}

void grouped_matmul_of_codes(const A& a, const S&) {
  // Rows of the keys' up-projection are summed over: their columns are the result's.
  const bool sums_rows = a.place() == sim::Place::absorbs_keys;
  const kernels::QuantisedWeight weight = a.quantised(sums_rows ? a.cols() : a.inner());
  if (!absorbs(a, weight))
    cpu::grouped_matmul_quantised(a.f32(R::out), a.f32(R::inp), weight, a.f32(R::bias), offsets(a),
                                  a.grouped());
}

constexpr CpuKernelRow kRows[] = {
    {K::route,
     [](const A& a, const S&) {
       cpu::route_forward(a.f32(R::weights), a.i32(R::indices), a.f32(R::logits), a.f32(R::bias), a.route(),
                          a.routing());
     }},
    {K::route_backward,
     [](const A& a, const S&) {
       cpu::route_backward(a.f32(R::dlogits), a.f32(R::dbias), a.f32(R::dweights), a.i32(R::indices),
                           a.f32(R::logits), a.f32(R::bias), a.route(), a.routing());
     }},
    {K::permute,
     [](const A& a, const S&) {
       cpu::permute(a.f32(R::out), a.f32(R::row_weights), a.f32(R::inp), a.f32(R::weights), a.i32(R::indices),
                    a.permutation());
     }},
    {K::unpermute,
     [](const A& a, const S&) {
       cpu::unpermute(a.f32(R::out), a.f32(R::weights), a.f32(R::inp), a.f32(R::row_weights),
                      a.i32(R::indices), a.permutation());
     }},
    {K::grouped_matmul, grouped_matmul},
    {K::grouped_matmul,
     grouped_matmul_of_codes,
     sim::DType::fp32,
     {{{R::weight, kCodes}, {R::weight_scales, kScalesOfCodes}}}},
    {K::grouped_matmul_backward_input,
     [](const A& a, const S&) {
       cpu::grouped_matmul_backward_input(a.f32(R::dinp), a.f32(R::dout), a.f32(R::weight), offsets(a),
                                          a.grouped());
     }},
    {K::grouped_matmul_backward_weight,
     [](const A& a, const S&) {
       cpu::grouped_matmul_backward_weight(a.f32(R::dweight), a.f32(R::dbias), a.f32(R::dout), a.f32(R::inp),
                                           offsets(a), a.grouped());
     }},
    {K::grouped_matmul,
     [](const A& a, const S&) {
       cpu::grouped_matmul_forward(a.b16(R::out), a.b16(R::inp), a.b16(R::weight), a.b16(R::bias), offsets(a),
                                   a.grouped());
     },
     sim::DType::bf16},
    {K::grouped_matmul_backward_input,
     [](const A& a, const S&) {
       cpu::grouped_matmul_backward_input(a.b16(R::dinp), a.b16(R::dout), a.b16(R::weight), offsets(a),
                                          a.grouped());
     },
     sim::DType::bf16},
    {K::grouped_matmul_backward_weight,
     [](const A& a, const S&) {
       cpu::grouped_matmul_backward_weight(a.b16(R::dweight), a.b16(R::dbias), a.b16(R::dout), a.b16(R::inp),
                                           offsets(a), a.grouped());
     },
     sim::DType::bf16},
};

}  // namespace

std::span<const CpuKernelRow> expert_kernels() {
  return kRows;
}

}  // namespace runtime
