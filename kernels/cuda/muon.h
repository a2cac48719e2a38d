// Muon on the GPU; meanings as kernels/muon.h.
#pragma once
#include <span>

#include "kernels/cuda/optimizer.h"
#include "kernels/cuda/products.h"
#include "kernels/muon.h"

namespace kernels::cuda {

// (count) each: update and gradient of their own types, the moment fp32.
struct MuonMomentumTensor {
  Tensor update;
  ConstTensor gradient;
  float* moment;
  std::int64_t count;
};
// Where gradient_scale is 0 the step is skipped: moments stay, updates are 0.
void muon_momentum(const Context& context, std::span<const MuonMomentumTensor> tensors,
                   const double* gradient_scale, const AdamWStep* step);

// Every product is rounded to update's type, with fp32 sums, or TF32's operands. Needs scratch memory for
// rows cols + 2 r^2 elements of a matrix, r the lesser of rows and cols; works on as many matrices at once as
// half of it holds.
void orthogonalise(const Context& context, Products& products, Tensor update, MuonShape s, bool tf32);

// (count) each; types, master copies, rounding and skipped steps as adamw's.
struct MuonTensor {
  Tensor parameter;
  ConstTensor update;
  float* master;
  std::int64_t count;
  std::uint64_t stream;
};
void apply_update(const Context& context, std::span<const MuonTensor> tensors, const double* gradient_scale,
                  const AdamWStep* step, bool decay);

}  // namespace kernels::cuda
