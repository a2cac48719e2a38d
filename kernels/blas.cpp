#include "kernels/blas.h"

#include <dlfcn.h>
#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>
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

// OpenBLAS takes a buffer for each of its threads when it is loaded, and one for each thread that calls it. A
// buffer is 128 MiB (BUFFER_SIZE of its common_x86_64.h), mostly only addresses; without room OpenBLAS tries
// for ever (blas_memory_alloc in its driver/others/memory.c). Throws std::bad_alloc instead.
void require_room() {
  constexpr std::size_t kBuffer = std::size_t{129} << 20, kLibrary = std::size_t{64} << 20;
  const auto threads = static_cast<std::size_t>(std::min(omp_get_max_threads(), omp_get_num_procs()));
  const std::size_t bytes = kLibrary + 2 * threads * kBuffer;
  void* const room =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) throw std::bad_alloc();
  munmap(room, bytes);
}

// Makes OpenBLAS take the buffers of calling threads while there is still the room checked above: what else
// takes memory before their first product could leave them none.
void take_buffers(const Blas& blas) {
#pragma omp parallel
  {
    constexpr int kSide = 32;
    float operand[kSide * kSide] = {}, result[kSide * kSide];
#pragma omp barrier
    blas.sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, kSide, kSide, kSide, 1, operand, kSide, operand,
               kSide, 0, result, kSide);
  }
}

Blas load() {
  choose_blas_instructions();
  require_room();
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
  take_buffers(blas);
  return blas;
}

}  // namespace

void choose_blas_instructions() {
#if defined(__x86_64__) && defined(__GNUC__)
  constexpr const char* kVariable = "OPENBLAS_CORETYPE";
  if (const char* set = std::getenv(kVariable); set != nullptr && *set != '\0') return;
  if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("x86-64-v4"))
    setenv(kVariable, "Cooperlake", 1);
  else if (__builtin_cpu_supports("x86-64-v4"))
    setenv(kVariable, "SkylakeX", 1);
  else if (__builtin_cpu_supports("x86-64-v3"))
    setenv(kVariable, __builtin_cpu_is("amd") ? "Zen" : "Haswell", 1);
#endif
}

const Blas& blas() {
  static const Blas loaded = load();
  return loaded;
}

}  // namespace kernels::cpu
