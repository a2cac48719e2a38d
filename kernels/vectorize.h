// How the CPU kernels are vectorised: plain loops over rows and tiles, marked `#pragma omp simd`, inside
// functions that the compiler emits for several instruction sets; the loader picks the best one that the
// processor has. So one binary runs anywhere and still uses AVX-512 where it is.
#pragma once
#include <cstddef>

// KERNELS_MULTIVERSION marks such a function. What it calls must be KERNELS_INLINE to be compiled for the
// same instruction set. A `#pragma omp parallel` must stay outside: the compiler moves its body into a
// function of its own, which would be compiled for the baseline. Elsewhere than on x86-64 (AArch64 has its
// vectors in the baseline), under compilers that lack the attribute's x86-64-vN levels, and under sanitizers
// (their run time is not yet up when the loader resolves), the function is compiled once.
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && \
    __GNUC__ >= 12 && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define KERNELS_MULTIVERSION __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#define KERNELS_IS_MULTIVERSION 1
#else
#define KERNELS_MULTIVERSION
#define KERNELS_IS_MULTIVERSION 0
#endif

#define KERNELS_INLINE inline __attribute__((always_inline))

namespace kernels::cpu {

// Whether multiversioned functions run with 32 registers of 16 floats (AVX-512): for blocks that are cut to
// the registers.
inline bool has_wide_vectors() {
#if KERNELS_IS_MULTIVERSION
  static const bool wide = __builtin_cpu_supports("x86-64-v4");
  return wide;
#elif defined(__AVX512F__)
  return true;
#else
  return false;
#endif
}

// Asks for a cache line into the second cache. Nothing has to lie there.
KERNELS_INLINE void ask_for(const void* line) {
  __builtin_prefetch(line, 0, 2);
}

// The same into the first cache, for what is read next.
KERNELS_INLINE void ask_first_cache_for(const void* line) {
  __builtin_prefetch(line, 0, 3);
}

// Asks for the cache line kAhead bytes behind `at`, when `at` is read: for a weight that a product of a few
// rows reads as one sequence. The processor's own prefetching stops at the end of each page, and the more
// rows a product has, the fewer loads of the weight the processor sees ahead.
KERNELS_INLINE void ask_ahead(const void* at) {
  constexpr std::size_t kAhead = 8192;  // bytes
  ask_for(static_cast<const std::byte*>(at) + kAhead);
}

}  // namespace kernels::cpu
