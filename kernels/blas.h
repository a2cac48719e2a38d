// The BLAS that computes large products: OpenBLAS, loaded when a kernel first needs it. It takes memory and
// starts threads as soon as it is loaded, which commands that compute nothing do not need.
#pragma once
#include <cblas.h>

namespace kernels::cpu {

struct Blas {
  decltype(&cblas_sgemm) sgemm;
  decltype(&openblas_set_num_threads) set_num_threads;
  decltype(&openblas_get_config) get_config;
};

// Tells OpenBLAS which instructions this processor has, by OPENBLAS_CORETYPE, unless the user has set that.
// OpenBLAS identifies processors by their model numbers and knows none newer than itself: version 0.3.21
// takes an Emerald Rapids for a Prescott of 2004, and multiplies at 43 instead of 205 GFLOP/s. The choice
// here is that of its later versions: Cooper Lake's kernels with AVX-512 BF16, Skylake-X's with AVX-512,
// AMD's processors too (github.com/OpenMathLib/OpenBLAS/pull/4303), Haswell's or Zen's with AVX2.
//
// To be called while the process has one thread, before the first product.
void choose_blas_instructions();

// From any thread. Throws std::runtime_error with the reason where the library cannot be loaded.
const Blas& blas();

}  // namespace kernels::cpu
