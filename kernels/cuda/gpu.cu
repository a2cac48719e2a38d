#include <vector>

#include "kernels/cuda/gpu.h"

namespace kernels::cuda {

namespace {

bool is_idle(cudaStream_t stream) {
  const cudaError_t state = cudaStreamQuery(stream);
  if (state == cudaErrorNotReady) return false;
  check(state);
  return true;
}

}  // namespace

struct Gpu::Implementation {
  struct Aside {
    cudaStream_t stream = nullptr;
    cudaEvent_t begin = nullptr, end = nullptr;
  };

  cudaStream_t stream = nullptr;
  std::vector<Aside> asides;
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
  drop_captures();
  for (const cudaEvent_t event : implementation_->events) cudaEventDestroy(event);
  for (const Implementation::Aside& aside : implementation_->asides) {
    if (aside.begin != nullptr) cudaEventDestroy(aside.begin);
    if (aside.end != nullptr) cudaEventDestroy(aside.end);
    if (aside.stream != nullptr) cudaStreamDestroy(aside.stream);
  }
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

void Gpu::zero_rows(std::byte* memory, std::int64_t stride, std::int64_t width, std::int64_t rows) {
  check(cudaMemset2DAsync(memory, static_cast<std::size_t>(stride), 0, static_cast<std::size_t>(width),
                          static_cast<std::size_t>(rows), implementation_->stream));
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

void Gpu::copy_rows(std::byte* to, std::int64_t to_stride, const std::byte* from, std::int64_t from_stride,
                    std::int64_t width, std::int64_t rows) {
  check(cudaMemcpy2DAsync(to, static_cast<std::size_t>(to_stride), from,
                          static_cast<std::size_t>(from_stride), static_cast<std::size_t>(width),
                          static_cast<std::size_t>(rows), cudaMemcpyDeviceToDevice, implementation_->stream));
}

// The events of an aside are recorded again and again: who waits for one waits for its last record.
void Gpu::queue_aside(std::size_t number, std::function<void(Stream)> work) {
  std::vector<Implementation::Aside>& asides = implementation_->asides;
  if (asides.size() <= number) asides.resize(number + 1);
  Implementation::Aside& aside = asides[number];
  if (aside.stream == nullptr) {
    // Ranks wait for each other's exchanges: they go before the kernels that are queued.
    int least = 0, greatest = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    check(cudaEventCreateWithFlags(&aside.begin, cudaEventDisableTiming));
    check(cudaEventCreateWithFlags(&aside.end, cudaEventDisableTiming));
    check(cudaStreamCreateWithPriority(&aside.stream, cudaStreamNonBlocking, greatest));
  }
  check(cudaEventRecord(aside.begin, implementation_->stream));
  check(cudaStreamWaitEvent(aside.stream, aside.begin, 0));
  work(aside.stream);
  check(cudaEventRecord(aside.end, aside.stream));
}

void Gpu::await_aside(std::size_t number) {
  if (number >= implementation_->asides.size() || implementation_->asides[number].stream == nullptr) return;
  check(cudaStreamWaitEvent(implementation_->stream, implementation_->asides[number].end, 0));
}

bool Gpu::aside_is_done(std::size_t number) const {
  return number >= implementation_->asides.size() || implementation_->asides[number].stream == nullptr ||
         is_idle(implementation_->asides[number].stream);
}

bool Gpu::is_done() const {
  return is_idle(implementation_->stream);
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

void Gpu::drop_captures() noexcept {
  for (const cudaGraphExec_t graph : implementation_->graphs)
    if (graph != nullptr) cudaGraphExecDestroy(graph);
  implementation_->graphs.clear();
}

void Gpu::replay(std::size_t number) {
  check(cudaGraphLaunch(implementation_->graphs.at(number), implementation_->stream));
}

}  // namespace kernels::cuda
