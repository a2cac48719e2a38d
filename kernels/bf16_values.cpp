#include "kernels/bf16_values.h"

namespace kernels::cpu {

KERNELS_MULTIVERSION void widen(float* to, const bf16* from, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) to[i] = widened(from[i]);
}

KERNELS_MULTIVERSION void narrow(bf16* to, const float* from, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) to[i] = rounded(from[i]);
}

}  // namespace kernels::cpu
