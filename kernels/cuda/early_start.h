// Kernels that begin while the kernel before them in the stream still runs, where the GPU can do that
// (compute capability 9.0; "programmatic dependent launch" in the CUDA programming guide). Starting such a
// kernel, and its first instructions, then cost no extra time. On other GPUs it begins like any other.
//
// A kernel that is started early calls wait_for_kernel_before() in every thread, before it writes anything
// and before it reads what earlier kernels write. Before that call it reads only what the kernel right before
// it does not write, such as weights while generating.
#pragma once
#include "kernels/cuda/launch.h"

namespace kernels::cuda {

CUDA_DEVICE void wait_for_kernel_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Once all blocks have come here, or ended, the next kernel may begin, if it is one that is started early.
CUDA_DEVICE void let_next_kernel_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

#ifdef __CUDACC__
// Whether this thread's GPU begins kernels early.
inline bool begins_kernels_early() {
  int gpu = 0, major = 0;
  check(cudaGetDevice(&gpu));
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu));
  return major >= 9;
}
#endif

template <class... Parameters, class... Arguments>
void start_early(const Context& context, const Launch& launch, void (*kernel)(Parameters...),
                 Arguments&&... arguments) {
#ifdef __CUDACC__
  if (!begins_kernels_early()) return start(context, launch, kernel, std::forward<Arguments>(arguments)...);
  if (launch.grid.x == 0 || launch.grid.y == 0 || launch.grid.z == 0) return;  // nothing to do
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(launch.shared_bytes)));
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(launch.grid.x), static_cast<unsigned>(launch.grid.y),
                        static_cast<unsigned>(launch.grid.z));
  config.blockDim = dim3(static_cast<unsigned>(launch.threads));
  config.dynamicSmemBytes = launch.shared_bytes;
  config.stream = context.stream;
  config.attrs = &early;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...));
#else
  start(context, launch, kernel, std::forward<Arguments>(arguments)...);
#endif
}

}  // namespace kernels::cuda
