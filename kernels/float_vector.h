// Vectors of floats as wide as one register of the instruction set that a function is compiled for. The
// compiler would keep the parts of wider ones in memory.
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

// Kernel::run<lanes>(arguments), which is KERNELS_INLINE, compiled for each instruction set.
template <class Kernel, class... Arguments>
struct WithVectors {
  static void by_4(Arguments... arguments) { Kernel::template run<4>(arguments...); }
#if KERNELS_IS_MULTIVERSION
  __attribute__((target("arch=x86-64-v3"))) static void by_8(Arguments... arguments) {
    Kernel::template run<8>(arguments...);
  }
  __attribute__((target("arch=x86-64-v4"))) static void by_16(Arguments... arguments) {
    Kernel::template run<16>(arguments...);
  }
#endif
};

// Kernel::run for the widest vectors that the processor has registers for. Its arguments are those of `like`.
template <class Kernel, class... Arguments>
auto with_widest_vectors(void (* /*like*/)(Arguments...)) {
  using Kernels = WithVectors<Kernel, Arguments...>;
#if KERNELS_IS_MULTIVERSION
  if (has_wide_vectors()) return &Kernels::by_16;
  if (__builtin_cpu_supports("x86-64-v3")) return &Kernels::by_8;
#endif
  return &Kernels::by_4;
}

}  // namespace kernels::cpu
