// Starting a kernel: on a CUDA stream, or as emulated threads (thread.h).
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include "kernels/cuda/thread.h"
#include "kernels/cuda/types.h"

namespace kernels::cuda {

// The CUDA runtime's stream; opaque here, so that code that starts kernels needs none of its headers.
using Stream = struct CUstream_st*;

struct Launch {
  Index3 grid{1, 1, 1};
  int threads = 256;
  std::size_t shared_bytes = 0;
};

// What the CUDA runtime refused, in its words.
struct CudaError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The device has not that much memory left.
struct OutOfMemory : CudaError {
  using CudaError::CudaError;
};

// The alignment of arrays in scratch memory that lie behind one another: cudaMalloc's.
inline constexpr std::int64_t kScratchAlignment = 256;

// What kernels need beside their operands: a stream, and device memory for partial results. Only one
// operation at a time uses that memory.
struct Context {
  Stream stream = nullptr;
  std::byte* scratch = nullptr;
  std::int64_t scratch_bytes = 0;

  // The scratch memory as an array of T. Throws CudaError where it is too small.
  template <class T>
  T* scratch_for(std::int64_t count) const {
    if (count * static_cast<std::int64_t>(sizeof(T)) > scratch_bytes)
      throw CudaError("an operation needs " + std::to_string(count * static_cast<std::int64_t>(sizeof(T))) +
                      " bytes of scratch memory, the device keeps " + std::to_string(scratch_bytes));
    return reinterpret_cast<T*>(scratch);
  }

  // The same context without the first `bytes` of its scratch memory, rounded up to the alignment.
  Context behind(std::int64_t bytes) const {
    const std::int64_t used = (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
    return {stream, scratch + used, scratch_bytes - used};
  }
};

// Arrays in scratch memory, one behind the other.
struct ScratchArrays {
  Context rest;

  template <class T>
  T* next(std::int64_t count) {
    T* const array = rest.scratch_for<T>(count);
    rest = rest.behind(count * static_cast<std::int64_t>(sizeof(T)));
    return array;
  }
};

#ifdef __CUDACC__
inline void check(cudaError_t error) {
  if (error != cudaSuccess) throw CudaError(cudaGetErrorString(error));
}
#endif

template <class... Parameters, class... Arguments>
void start(const Context& context, const Launch& launch, void (*kernel)(Parameters...),
           Arguments&&... arguments) {
  if (launch.grid.x == 0 || launch.grid.y == 0 || launch.grid.z == 0) return;  // nothing to do
#ifdef __CUDACC__
  constexpr std::size_t kWithoutAsking = 48 << 10;
  if (launch.shared_bytes > kWithoutAsking)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(launch.shared_bytes)));
  const dim3 grid(static_cast<unsigned>(launch.grid.x), static_cast<unsigned>(launch.grid.y),
                  static_cast<unsigned>(launch.grid.z));
  kernel<<<grid, static_cast<unsigned>(launch.threads), launch.shared_bytes, context.stream>>>(
      static_cast<Parameters>(arguments)...);
  check(cudaGetLastError());
#else
  (void)context;
  emulation::submit(
      [launch, kernel, copies = std::tuple<Parameters...>(static_cast<Parameters>(arguments)...)] {
        emulation::run(launch.grid, launch.threads, launch.shared_bytes, [&] { std::apply(kernel, copies); });
      });
#endif
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// Blocks of a kernel whose threads walk over `items` by strides of the whole grid: enough for every
// multiprocessor of the largest GPU here to be full, and no more than there is work for.
inline constexpr std::int64_t kMostBlocks = 132 * 8;
inline int blocks_for(std::int64_t items, int threads) {
  const std::int64_t needed = ceil_div(items, threads);
  return static_cast<int>(needed < kMostBlocks ? needed : kMostBlocks);
}

// A block that covers a row of `items`: whole warps, at most `most` threads.
inline int threads_for(std::int64_t items, int most) {
  const std::int64_t warps = ceil_div(items, kWarp);
  const std::int64_t threads = warps * kWarp;
  return static_cast<int>(threads < most ? (threads > 0 ? threads : kWarp) : most);
}

// Calls body(T{}) with the C++ type of `type`. Throws CudaError for the 8-bit formats.
template <class Body>
void with_type(Type type, const Body& body) {
  switch (type) {
    case Type::f32:
      return body(float{});
    case Type::bf16:
      return body(bf16{});
    case Type::f16:
      return body(f16{});
    default:
      throw CudaError("an operation that is no matrix product was given a tensor in fp8");
  }
}

// The same for bf16 and f16, which tensor cores take with fp32 sums and no scale; else throws CudaError.
template <class Body>
void with_16_bit_type(Type type, const Body& body) {
  if (type == Type::bf16) return body(bf16{});
  if (type == Type::f16) return body(f16{});
  throw CudaError("a tensor that is not in 16 bits was given for one that is");
}

// The same for the 8-bit formats; throws CudaError for all others.
template <class Body>
void with_fp8_type(Type type, const Body& body) {
  if (type == Type::e4m3) return body(e4m3{});
  if (type == Type::e5m2) return body(e5m2{});
  throw CudaError("a tensor that is not in fp8 was given for one that is");
}
template <class Body>
void with_any_type(Type type, const Body& body) {
  is_fp8(type) ? with_fp8_type(type, body) : with_type(type, body);
}

}  // namespace kernels::cuda
