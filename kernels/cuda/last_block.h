// Lets the last of several blocks to finish combine the results of all.
#pragma once
#include "kernels/cuda/thread.h"

namespace kernels::cuda {

// Called by all threads of a block: whether it is the last of `blocks` to come here; the last one then sees
// what the others wrote. ended counts those that have come, from zero, and is zero again after the last.
CUDA_DEVICE bool ends_last(std::uint32_t* ended, int blocks) {
#ifdef __CUDA_ARCH__
  __threadfence();
#endif
  sync_block();
  bool is_last = false;
  if (thread_index() == 0) {
#ifdef __CUDA_ARCH__
    is_last = atomicAdd(ended, 1u) + 1 == static_cast<std::uint32_t>(blocks);
#else
    is_last = ++*ended == static_cast<std::uint32_t>(blocks);
#endif
    if (is_last) *ended = 0;
  }
  is_last = any_in_block(is_last);
#ifdef __CUDA_ARCH__
  __threadfence();
#endif
  return is_last;
}

}  // namespace kernels::cuda
