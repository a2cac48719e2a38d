// Vectors of floats as wide as one register of the instruction set that a function is compiled for: of wider
// ones the compiler keeps the parts in memory.
#pragma once
#include "kernels/vectorize.h"

namespace kernels::cpu {

template <int lanes>
struct VectorOf {
  // May lie anywhere.
  using Type __attribute__((vector_size(lanes * sizeof(float)), aligned(alignof(float)), may_alias)) = float;
};
template <int lanes>
using Vector = typename VectorOf<lanes>::Type;

template <int lanes>
KERNELS_INLINE const Vector<lanes>& at(const float* from) {
  return *reinterpret_cast<const Vector<lanes>*>(from);
}
template <int lanes>
KERNELS_INLINE Vector<lanes>& at(float* to) {
  return *reinterpret_cast<Vector<lanes>*>(to);
}

}  // namespace kernels::cpu
