#include <vector>

#include "kernels/cuda/gpu.h"

namespace kernels::cuda {

struct Gpu::Implementation {
  cudaStream_t stream = nullptr;
  std::vector<cudaEvent_t> events;
  std::vector<cudaGraphExec_t> graphs;
};

int Gpu::count() {
  int count = 0;
  check(cudaGetDeviceCount(&count));
  return count;
}

std::string Gpu::name_of(int ordinal) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, ordinal));
  return properties.name;
}

std::string Gpu::pci_bus_id(int ordinal) {
  char id[16] = {};  // as the CUDA runtime's documentation has it: 13 characters and a zero
  check(cudaDeviceGetPCIBusId(id, sizeof id, ordinal));
  return id;
}

int Gpu::compute_capability(int ordinal) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, ordinal));
  return 10 * properties.major + properties.minor;
}

Gpu::Gpu(int ordinal) : implementation_(std::make_unique<Implementation>()) {
  check(cudaSetDevice(ordinal));
  check(cudaStreamCreateWithFlags(&implementation_->stream, cudaStreamNonBlocking));
}

Gpu::~Gpu() {
  for (const cudaGraphExec_t graph : implementation_->graphs)
    if (graph != nullptr) cudaGraphExecDestroy(graph);
  for (const cudaEvent_t event : implementation_->events) cudaEventDestroy(event);
  cudaStreamDestroy(implementation_->stream);
}

Stream Gpu::stream() const {
  return implementation_->stream;
}

Gpu::Memory Gpu::memory() const {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total));
  return {static_cast<std::int64_t>(free), static_cast<std::int64_t>(total)};
}

std::byte* Gpu::allocate(std::int64_t bytes) {
  void* memory = nullptr;
  const std::size_t size = bytes > 0 ? static_cast<std::size_t>(bytes) : 1;
  if (const cudaError_t error = cudaMalloc(&memory, size); error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // it is no error of what comes next
    throw OutOfMemory(cudaGetErrorString(error));
  } else {
    check(error);
  }
  check(cudaMemsetAsync(memory, 0, size, implementation_->stream));
  return static_cast<std::byte*>(memory);
}

void Gpu::release(std::byte* memory) noexcept {
  cudaFree(memory);
}

void Gpu::copy_to_device(std::byte* to, std::span<const std::byte> from) {
  check(cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice, implementation_->stream));
  synchronise();
}

void Gpu::copy_from_device(std::span<std::byte> to, const std::byte* from) {
  check(cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDeviceToHost, implementation_->stream));
  synchronise();
}

void Gpu::zero(std::byte* memory, std::int64_t bytes) {
  check(cudaMemsetAsync(memory, 0, static_cast<std::size_t>(bytes), implementation_->stream));
}

std::byte* Gpu::allocate_on_host(std::int64_t bytes) {
  void* memory = nullptr;  // at the same address on the host and on the device (unified addressing)
  check(cudaHostAlloc(&memory, static_cast<std::size_t>(bytes), cudaHostAllocMapped));
  return static_cast<std::byte*>(memory);
}

void Gpu::release_on_host(std::byte* memory) noexcept {
  cudaFreeHost(memory);
}

void Gpu::wait_for(std::size_t index) {
  check(cudaEventSynchronize(implementation_->events.at(index)));
}

void Gpu::synchronise() {
  check(cudaStreamSynchronize(implementation_->stream));
}

void Gpu::record(std::size_t index) {
  std::vector<cudaEvent_t>& events = implementation_->events;
  while (events.size() <= index) {
    cudaEvent_t event = nullptr;
    check(cudaEventCreate(&event));
    events.push_back(event);
  }
  check(cudaEventRecord(events[index], implementation_->stream));
}

double Gpu::seconds_between(std::size_t from, std::size_t to) const {
  float milliseconds = 0;
  check(
      cudaEventElapsedTime(&milliseconds, implementation_->events.at(from), implementation_->events.at(to)));
  return static_cast<double>(milliseconds) * 1e-3;
}

void Gpu::begin_capture() {
  check(cudaStreamBeginCapture(implementation_->stream, cudaStreamCaptureModeThreadLocal));
}

void Gpu::end_capture(std::size_t number) {
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(implementation_->stream, &graph));
  std::vector<cudaGraphExec_t>& graphs = implementation_->graphs;
  if (graphs.size() <= number) graphs.resize(number + 1);
  if (graphs[number] != nullptr) check(cudaGraphExecDestroy(graphs[number]));
  graphs[number] = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&graphs[number], graph, 0);
  cudaGraphDestroy(graph);
  check(error);
  // What the graph takes of the device's memory it takes now, not at its first launch.
  check(cudaGraphUpload(graphs[number], implementation_->stream));
}

void Gpu::replay(std::size_t number) {
  check(cudaGraphLaunch(implementation_->graphs.at(number), implementation_->stream));
}

}  // namespace kernels::cuda
