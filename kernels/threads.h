// The CPU threads that kernels use.
#pragma once

namespace kernels::cpu {

// Sets OpenMP's and BLAS's thread count (0: all cores) and returns what is in force.
int set_threads(int count);
int threads();

// Flush denormals to zero on the calling thread and on all OpenMP worker threads: a training run whose
// activations decay to denormals is several times slower otherwise.
void flush_denormals();

}  // namespace kernels::cpu
