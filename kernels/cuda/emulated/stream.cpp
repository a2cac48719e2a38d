#include "kernels/cuda/stream.h"

#include <chrono>
#include <cstring>

#include "kernels/cuda/thread_emulated.h"

namespace kernels::cuda {

bool is_capturing(const Context&) {
  return emulation::is_capturing();
}

double seconds_of(const Context&, const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void copy_to_host(const Context&, std::span<std::byte> to, const void* from) {
  std::memcpy(to.data(), from, to.size());
}

}  // namespace kernels::cuda
