// A GPU as a Device. The program loads it from the backend, a shared object (cuda_backend.h); tests of the
// emulated GPU link it.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "runtime/device.h"

namespace runtime {

struct CudaDeviceSettings {
  int ordinal = 0;
  // The same algorithms in every process: two runs give the same bits. Otherwise matrix products are those
  // that were fastest when this process first met their shape.
  bool deterministic = false;
  // For partial results of kernels, and for operands that must change their type first. 0: a 128th of the
  // GPU's memory, from 128 MiB to 1 GiB, which holds the sums of attention's backward pass over 64k tokens of
  // 32 heads of 128 on an H100, and gradients of an 8B model's largest weights.
  sim::Bytes scratch{};
};

// Throws NoDevice where there is no such GPU, with CUDA's reason.
std::unique_ptr<Device> make_cuda_device(const CudaDeviceSettings& settings);

// Types that a GPU of that compute capability (80: A100, 90: H100) forms matrix products in; those before
// Ada and Hopper have none in fp8.
std::span<const sim::DType> cuda_dtypes(int compute_capability);

// A GPU as CUDA tells of it, without a context on it.
struct CudaGpu {
  std::string name;
  std::vector<sim::DType> dtypes;  // cuda_dtypes()
};
// Those that this process can use, at least one. Throws NoDevice with CUDA's reason otherwise.
std::vector<CudaGpu> cuda_gpus();

// What the shared object hands out, by `extern "C" const CudaBackend* ridgepoint_cuda_backend()`. Program and
// backend share C++ types: they are of one build, which the version stands for.
struct CudaBackend {
  const char* version;
  std::vector<CudaGpu> (*gpus)();
  std::unique_ptr<Device> (*open)(const CudaDeviceSettings& settings);
};
inline constexpr const char* kCudaBackendVersion = RIDGEPOINT_VERSION;

}  // namespace runtime
