// The CUDA backend as the program finds it when it starts to use it: a shared object beside the program,
// which may be absent, or lack cuBLASLt, a driver or a GPU; each of these is a sentence, none stops the
// program.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda_device.h"

namespace runtime {

struct CudaStatus {
  std::vector<CudaGpu> gpus;  // empty: none can be used
  std::string sentence;       // what there is, or what is missing and what would help
};
CudaStatus cuda_status();

// Throws NoDevice with the sentence above.
std::unique_ptr<Device> open_cuda_device(const CudaDeviceSettings& settings);

// The hardware preset that describes a GPU by its CUDA name ("NVIDIA H200": h200-sxm); empty where none does.
std::string hardware_preset_of_gpu(const std::string& name);

}  // namespace runtime
