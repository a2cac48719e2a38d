#include "kernels/blas.h"

#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace kernels::cpu {
namespace {

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr)
    throw std::runtime_error("the library of matrix products (OpenBLAS) has no " + std::string(name));
}

Blas load() {
  // The build's own library first: alternatives may name the variant whose threads get in OpenMP's way
  // (cmake/FindOpenBLAS.cmake).
  void* library = dlopen(KERNELS_BLAS_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw std::runtime_error("the library of matrix products cannot be loaded: " + std::string(dlerror()) +
                             "; Debian has it in libopenblas0-openmp");
  Blas blas;
  find(library, "cblas_sgemm", blas.sgemm);
  find(library, "openblas_set_num_threads", blas.set_num_threads);
  find(library, "openblas_get_config", blas.get_config);
  return blas;
}

}  // namespace

const Blas& blas() {
  static const Blas loaded = load();
  return loaded;
}

}  // namespace kernels::cpu
