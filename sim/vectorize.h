// Marks functions that the compiler emits for several instruction sets. The loader picks the best version
// that the processor has. kernels/vectorize.h does the same for kernels; this library knows nothing of them.
#pragma once

// What such a function calls must be SIM_INLINE to be compiled for the same instruction set. Compilers
// without x86-64-vN levels compile the function once. So do sanitizers, because their run time is not yet up
// when the loader picks.
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && \
    __GNUC__ >= 12 && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define SIM_MULTIVERSION __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define SIM_MULTIVERSION
#endif

#define SIM_INLINE inline __attribute__((always_inline))
