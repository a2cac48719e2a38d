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

// From any thread. Throws std::runtime_error with the reason where the library cannot be loaded.
const Blas& blas();

}  // namespace kernels::cpu
