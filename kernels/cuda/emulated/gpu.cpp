#include "kernels/cuda/gpu.h"

#include <chrono>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace kernels::cuda {

using Clock = std::chrono::steady_clock;

namespace {
constexpr std::int64_t kMemoryBytes = std::int64_t{1} << 30;
}

struct Gpu::Implementation {
  std::vector<Clock::time_point> stamps;
};

int Gpu::count() {
  return 1;
}

std::string Gpu::name_of(int) {
  return "emulated GPU";
}

Gpu::Gpu(int) : implementation_(std::make_unique<Implementation>()) {}
Gpu::~Gpu() = default;

Stream Gpu::stream() const {
  return nullptr;
}

Gpu::Memory Gpu::memory() const {
  return {kMemoryBytes, kMemoryBytes};
}

std::byte* Gpu::allocate(std::int64_t bytes) {
  constexpr std::size_t kAlignment = 256;  // cudaMalloc's
  const std::size_t size = (static_cast<std::size_t>(bytes) + kAlignment) / kAlignment * kAlignment;
  void* const memory = std::aligned_alloc(kAlignment, size);
  if (memory == nullptr) throw CudaError("out of memory");
  std::memset(memory, 0, size);
  return static_cast<std::byte*>(memory);
}

void Gpu::release(std::byte* memory) noexcept {
  std::free(memory);
}

void Gpu::copy_to_device(std::byte* to, std::span<const std::byte> from) {
  std::memcpy(to, from.data(), from.size());
}

void Gpu::copy_from_device(std::span<std::byte> to, const std::byte* from) {
  std::memcpy(to.data(), from, to.size());
}

void Gpu::zero(std::byte* memory, std::int64_t bytes) {
  std::memset(memory, 0, static_cast<std::size_t>(bytes));
}

void Gpu::synchronise() {}

void Gpu::record(std::size_t index) {
  std::vector<Clock::time_point>& stamps = implementation_->stamps;
  if (stamps.size() <= index) stamps.resize(2 * index + 1);
  stamps[index] = Clock::now();
}

double Gpu::seconds_between(std::size_t from, std::size_t to) const {
  const std::vector<Clock::time_point>& stamps = implementation_->stamps;
  return std::chrono::duration<double>(stamps.at(to) - stamps.at(from)).count();
}

// Kernels run where they are started: there is nothing to note.
void Gpu::begin_capture() {
  throw CudaError("an emulated GPU captures nothing");
}
void Gpu::end_capture(std::size_t) {}
void Gpu::replay(std::size_t) {}

}  // namespace kernels::cuda
