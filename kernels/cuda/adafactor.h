// Adafactor on the GPU; meanings as kernels/adafactor.h. Sums are formed in an order that depends on the
// shape alone.
#pragma once
#include <span>

#include "kernels/adafactor.h"
#include "kernels/cuda/optimizer.h"

namespace kernels::cuda {

// Parameter, gradient, master copy and stream as AdamWTensor's, moments as kernels::AdafactorTensor's.
struct AdafactorTensor {
  Tensor parameter;
  ConstTensor gradient;
  float *row_moment, *column_moment, *master;
  std::int64_t matrices, rows, cols;
  std::uint64_t stream;
};
// Rounding and skipped steps as adamw's. Scratch for the largest tensor: a float for each 64 elements of a
// column and each 128 of a row, and some doubles.
void adafactor(const Context& context, std::span<const AdafactorTensor> tensors, const double* gradient_scale,
               const AdamWStep* step, bool decay);

}  // namespace kernels::cuda
