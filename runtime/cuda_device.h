// A GPU as a Device. In the program it comes from the backend (cuda_backend.h); tests of the emulated GPU
// make it directly.
#pragma once
#include <memory>

#include "runtime/device.h"

namespace runtime {

struct CudaDeviceSettings {
  int ordinal = 0;
  // The same algorithms in every process: two runs give the same bits. Otherwise matrix products are those
  // that were fastest when this process first met their shape.
  bool deterministic = false;
  // For partial results of kernels, and for operands that must change their type first.
  sim::Bytes scratch{std::int64_t{128} << 20};
};

// Throws NoDevice with CUDA's reason where there is none.
std::unique_ptr<Device> make_cuda_device(const CudaDeviceSettings& settings);

}  // namespace runtime
