// Columns [first, first + C) of rows that are `width` wide, on the GPU; as kernels/elementwise.h. Tensors of
// an operation are of one type.
#pragma once
#include "kernels/cuda/launch.h"
#include "kernels/elementwise.h"

namespace kernels::cuda {

using kernels::cpu::Columns;

// out's columns of R rows += scale * inp (R, C).
void add_columns(const Context& context, Tensor out, ConstTensor inp, float scale, std::int64_t R,
                 Columns columns);
// out's columns of R rows = inp (R, C).
void put_columns(const Context& context, Tensor out, ConstTensor inp, std::int64_t R, Columns columns);
// out (R, C) = scale * inp's columns of R rows.
void take_columns(const Context& context, Tensor out, ConstTensor inp, float scale, std::int64_t R,
                  Columns columns);

}  // namespace kernels::cuda
