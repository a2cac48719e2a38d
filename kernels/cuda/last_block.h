// What several blocks have, brought together by the last of them to end.
#pragma once
#include "kernels/cuda/thread.h"

namespace kernels::cuda {

// For all threads of a block: whether it is the last of `blocks` to come here. Then what the others wrote
// before is seen. ended: how many have come, zero before the first and after the last.
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
