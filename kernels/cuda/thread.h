// The names that a kernel's code may use. They have two implementations: instructions of the GPU
// (thread_device.h), and a block of threads emulated on the CPU (thread_emulated.h), so that the same kernel
// sources are tested without a GPU. Kernels use these names alone:
//
//   CUDA_KERNEL(threads) name(...)    a kernel of at most that many threads a block
//   CUDA_KERNEL_RESIDENT(threads, n)  of which n blocks at a time have room for their registers
//   CUDA_DEVICE                       a function of one thread
//   CUDA_GRID_CONSTANT                a kernel's parameter, read in place: threads make no copies of it
//   thread_index() block_index() block_size() grid_size()
//   sync_block()                      barrier of the block; shared memory written before is seen after
//   any_in_block()                    barrier; whether any thread came with true
//   sync_warp() ballot() shuffle() shuffle_xor()   of all 32 lanes
//   add_at()                          atomic sum in any memory, giving what was there before
//   shared_memory<T>()                the block's dynamic shared memory, 16-byte aligned
//   copy_async() commit_copies() wait_for_copies<N>()   16 bytes from global to shared memory (cp.async)
//   load_matrices() load_matrices_transposed() multiply_add()   ldmatrix; mma.m16n8k16 of bf16 or f16
//   not_before()                      keeps the compiler from computing something early
//
// hopper/ adds what sm_90a has beside it.
#pragma once

#ifdef __CUDACC__
#include "kernels/cuda/thread_device.h"
#else
#include "kernels/cuda/thread_emulated.h"
#endif
#include "kernels/cuda/types.h"

namespace kernels::cuda {

inline constexpr int kWarp = 32;

CUDA_DEVICE int lane_index() {
  return thread_index() % kWarp;
}
CUDA_DEVICE int warp_index() {
  return thread_index() / kWarp;
}

CUDA_DEVICE float warp_sum(float x) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) x += shuffle_xor(x, distance);
  return x;
}
CUDA_DEVICE float warp_max(float x) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) x = fmaxf(x, shuffle_xor(x, distance));
  return x;
}

// The sum over the block, known to all of its threads, in an order that depends on the block's size alone.
// `partials` is shared memory for one float a warp; it may be reused after the next barrier.
CUDA_DEVICE float block_sum(float x, float* partials) {
  x = warp_sum(x);
  sync_block();  // an earlier use of the partial sums has been read
  if (lane_index() == 0) partials[warp_index()] = x;
  sync_block();
  float sum = 0;
  for (int warp = 0; warp < block_size() / kWarp; ++warp) sum += partials[warp];
  return sum;
}

CUDA_DEVICE float block_max(float x, float* partials) {
  x = warp_max(x);
  sync_block();
  if (lane_index() == 0) partials[warp_index()] = x;
  sync_block();
  float highest = partials[0];
  for (int warp = 1; warp < block_size() / kWarp; ++warp) highest = fmaxf(highest, partials[warp]);
  return highest;
}

// The sum over the block in double, in a fixed order, known to thread 0; shared memory: a double for each
// thread.
template <int Threads>
CUDA_DEVICE double block_sum_in_double(double x, double* all) {
  sync_block();
  all[thread_index()] = x;
  for (int half = Threads / 2; half > 0; half /= 2) {
    sync_block();
    if (thread_index() < half) all[thread_index()] += all[thread_index() + half];
  }
  return all[0];
}

}  // namespace kernels::cuda
