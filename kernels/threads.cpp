#include "kernels/threads.h"

#include <omp.h>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <cstdint>

#include "kernels/blas.h"

namespace kernels::cpu {

int set_threads(int count) {
  omp_set_num_threads(count > 0 ? count : omp_get_num_procs());
  blas().set_num_threads(omp_get_max_threads());
  return omp_get_max_threads();
}

int threads() {
  return omp_get_max_threads();
}

void flush_denormals() {
#pragma omp parallel
  {
#if defined(__SSE__)
    constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040;  // bits of MXCSR
    _mm_setcsr(_mm_getcsr() | kFlushToZero | kDenormalsAreZero);
#elif defined(__aarch64__)
    std::uint64_t control;
    asm volatile("mrs %0, fpcr" : "=r"(control));
    asm volatile("msr fpcr, %0" : : "r"(control | (std::uint64_t{1} << 24)));  // FPCR.FZ
#endif
  }
}

}  // namespace kernels::cpu
