#include "runtime/cuda_backend.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "runtime/error.h"

namespace runtime {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "libridgepoint_cuda.so";

// RIDGEPOINT_CUDA_BACKEND names another file than the one beside the program.
fs::path backend_file() {
  const char* const named = std::getenv("RIDGEPOINT_CUDA_BACKEND");
  if (named != nullptr && *named != '\0') return named;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return program.parent_path() / kFile;
}

// Loaded once, and never unloaded: CUDA keeps threads and exit handlers in it. Throws NoDevice.
const CudaBackend& backend() {
  static const CudaBackend* const loaded = [] {
    const fs::path file = backend_file();
    std::error_code error;
    const bool there = fs::exists(file, error);
    if (!there && file.filename() != kFile)
      throw NoDevice("RIDGEPOINT_CUDA_BACKEND must name the CUDA backend, and there is no file " +
                     file.string());
    if (!there)
      throw NoDevice(
          "this program was built without the CUDA backend, which takes CUDA's compiler (nvcc) and cuBLASLt: "
          "GPUs are "
          "predicted, the CPU is measured");
    void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
      throw NoDevice(std::string("the CUDA backend does not load: ") + dlerror() +
                     "; cuBLASLt is in the CUDA toolkit 13, and in NVIDIA's package nvidia-cublas on PyPI");
    using Backend = const CudaBackend* (*)();
    const auto entry = reinterpret_cast<Backend>(dlsym(library, "ridgepoint_cuda_backend"));
    if (entry == nullptr || std::string_view(entry()->version) != kCudaBackendVersion)
      throw NoDevice(file.string() + " is the CUDA backend of another version of this program");
    return entry();
  }();
  return *loaded;
}

}  // namespace

CudaStatus cuda_status() {
  CudaStatus status;
  try {
    status.gpus = backend().gpus();
  } catch (const NoDevice& reason) {
    status.sentence = reason.what();
    return status;
  }
  for (const CudaGpu& gpu : status.gpus) status.sentence += (status.sentence.empty() ? "" : ", ") + gpu.name;
  return status;
}

std::unique_ptr<Device> open_cuda_device(const CudaDeviceSettings& settings) {
  return backend().open(settings);
}

std::string hardware_preset_of_gpu(const std::string& name) {
  struct Known {
    std::string_view part, preset;
  };
  // As CUDA's device properties name them; the more specific first.
  constexpr Known kKnown[] = {
      {"H200", "h200-sxm"},
      {"B200", "b200-sxm"},
      {"H100 NVL", "h100-nvl"},
      {"H100 PCIe", "h100-pcie"},
      {"H100", "h100-sxm"},
      {"H800", "h800-sxm"},
      {"A100-SXM4-80GB", "a100-sxm-80gb"},
      {"A100-SXM4-40GB", "a100-sxm-40gb"},
      {"A100 80GB PCIe", "a100-pcie-80gb"},
      {"A100-PCIE-40GB", "a100-pcie-40gb"},
      {"L40S", "l40s"},
      {"RTX 4090", "rtx-4090"},
  };
  for (const Known& known : kKnown)
    if (name.find(known.part) != std::string::npos) return std::string(known.preset);
  return {};
}

}  // namespace runtime
