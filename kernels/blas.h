// The BLAS that computes large products: OpenBLAS, loaded when a kernel first needs it. It takes memory and
// starts threads as soon as it is loaded, which commands that compute nothing do not need.
#pragma once
#include <cblas.h>

#include <cstdint>

namespace kernels::cpu {

struct Blas {
  decltype(&cblas_sgemm) sgemm;
  decltype(&openblas_set_num_threads) set_num_threads;
  decltype(&openblas_get_config) get_config;
};

// From any thread. Throws std::runtime_error with the reason where the library cannot be loaded.
const Blas& blas();

// A size as it takes them.
inline int blas_int(std::int64_t n) {
  return static_cast<int>(n);
}

}  // namespace kernels::cpu
