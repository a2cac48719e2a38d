#include "kernels/cuda/gpu.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>
#include <vector>

namespace kernels::cuda {

using Clock = std::chrono::steady_clock;

namespace {

constexpr std::int64_t kMemoryBytes = std::int64_t{1} << 30;

// All emulated GPUs are one.
std::map<std::byte*, std::int64_t>& allocations() {
  static std::map<std::byte*, std::int64_t> sizes;
  return sizes;
}

std::int64_t free_bytes() {
  std::int64_t left = kMemoryBytes;
  for (const auto& [address, size] : allocations()) left -= size;
  return left;
}

}  // namespace

struct Gpu::Implementation {
  std::vector<Clock::time_point> stamps;
  std::vector<std::vector<std::function<void()>>> graphs;
};

int Gpu::count() {
  return 1;
}

std::string Gpu::name_of(int) {
  return "NVIDIA H100, emulated";  // a name that a hardware preset goes with
}

std::string Gpu::pci_bus_id(int) {
  return "0000:17:00.0";  // as tests/support/fake_nvml.cpp has it
}

int Gpu::compute_capability(int) {
  return 90;
}

Gpu::Gpu(int) : implementation_(std::make_unique<Implementation>()) {}
Gpu::~Gpu() = default;

Stream Gpu::stream() const {
  return nullptr;
}

Gpu::Memory Gpu::memory() const {
  return {free_bytes(), kMemoryBytes};
}

std::byte* Gpu::allocate(std::int64_t bytes) {
  constexpr std::size_t kAlignment = 256;  // cudaMalloc's
  const std::size_t size = (static_cast<std::size_t>(bytes) + kAlignment) / kAlignment * kAlignment;
  void* const memory =
      static_cast<std::int64_t>(size) <= free_bytes() ? std::aligned_alloc(kAlignment, size) : nullptr;
  if (memory == nullptr) throw OutOfMemory("out of memory");
  std::memset(memory, 0, size);
  allocations()[static_cast<std::byte*>(memory)] = static_cast<std::int64_t>(size);
  return static_cast<std::byte*>(memory);
}

void Gpu::release(std::byte* memory) noexcept {
  allocations().erase(memory);
  std::free(memory);
}

void Gpu::copy_to_device(std::byte* to, std::span<const std::byte> from) {
  std::memcpy(to, from.data(), from.size());
}

void Gpu::copy_from_device(std::span<std::byte> to, const std::byte* from) {
  std::memcpy(to.data(), from, to.size());
}

void Gpu::zero(std::byte* memory, std::int64_t bytes) {
  emulation::submit([=] { std::memset(memory, 0, static_cast<std::size_t>(bytes)); });
}

std::byte* Gpu::allocate_on_host(std::int64_t bytes) {
  return static_cast<std::byte*>(std::calloc(1, static_cast<std::size_t>(bytes)));
}

void Gpu::release_on_host(std::byte* memory) noexcept {
  std::free(memory);
}

void Gpu::wait_for(std::size_t) {}

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

void Gpu::begin_capture() {
  emulation::begin_capture();
}

void Gpu::end_capture(std::size_t number) {
  auto& graphs = implementation_->graphs;
  if (graphs.size() <= number) graphs.resize(number + 1);
  graphs[number] = emulation::end_capture();
}

void Gpu::replay(std::size_t number) {
  for (const auto& work : implementation_->graphs.at(number)) work();
}

}  // namespace kernels::cuda
