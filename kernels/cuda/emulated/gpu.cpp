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

// RIDGEPOINT_EMULATED_GPUS: how many, for ranks that have one each.
int Gpu::count() {
  const char* const text = std::getenv("RIDGEPOINT_EMULATED_GPUS");
  const int count = text != nullptr ? std::atoi(text) : 1;
  return count > 0 ? count : 1;
}

std::string Gpu::name_of(int) {
  return "NVIDIA H100, emulated";  // a name that a hardware preset goes with
}

std::string Gpu::pci_bus_id(int ordinal) {
  // The first as tests/support/fake_nvml.cpp has it.
  return ordinal == 0 ? "0000:17:00.0" : "0000:17:00." + std::to_string(ordinal);
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

void Gpu::zero_rows(std::byte* memory, std::int64_t stride, std::int64_t width, std::int64_t rows) {
  emulation::submit([=] {
    for (std::int64_t row = 0; row < rows; ++row)
      std::memset(memory + row * stride, 0, static_cast<std::size_t>(width));
  });
}

std::byte* Gpu::allocate_on_host(std::int64_t bytes) {
  return static_cast<std::byte*>(std::calloc(1, static_cast<std::size_t>(bytes)));
}

void Gpu::release_on_host(std::byte* memory) noexcept {
  std::free(memory);
}

void Gpu::wait_for(std::size_t) {}

void Gpu::copy_rows(std::byte* to, std::int64_t to_stride, const std::byte* from, std::int64_t from_stride,
                    std::int64_t width, std::int64_t rows) {
  emulation::submit([=] {
    for (std::int64_t row = 0; row < rows; ++row)
      std::memmove(to + row * to_stride, from + row * from_stride, static_cast<std::size_t>(width));
  });
}

// There is one order: what is queued aside is done at once.
void Gpu::queue_aside(std::size_t, std::function<void(Stream)> work) {
  emulation::submit([work = std::move(work)] { work(nullptr); });
}
void Gpu::await_aside(std::size_t) {}
bool Gpu::aside_is_done(std::size_t) const {
  return true;
}

bool Gpu::is_done() const {
  return true;
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

void Gpu::begin_capture() {
  emulation::begin_capture();
}

void Gpu::end_capture(std::size_t number) {
  auto& graphs = implementation_->graphs;
  if (graphs.size() <= number) graphs.resize(number + 1);
  graphs[number] = emulation::end_capture();
}

void Gpu::drop_captures() noexcept {
  implementation_->graphs.clear();
}

void Gpu::replay(std::size_t number) {
  for (const auto& work : implementation_->graphs.at(number)) work();
}

}  // namespace kernels::cuda
