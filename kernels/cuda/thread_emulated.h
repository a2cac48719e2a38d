// The CPU's side of thread.h: each thread of a block is a fiber, run in turn on the calling thread until it
// waits for others. Behaviour that a GPU leaves undefined is made visible here. Shared memory begins as NaN.
// The destination of an asynchronous copy is NaN from the copy's start until a thread waits for it. Blocks
// can run their threads in several orders; all give the same result exactly when no barrier is missing
// between threads that share memory.
#pragma once
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/cuda/types.h"

#define CUDA_KERNEL(threads) static void
#define CUDA_KERNEL_RESIDENT(threads, blocks) static void
#define CUDA_DEVICE inline
#define CUDA_GRID_CONSTANT const

namespace kernels::cuda {

struct Index3 {
  int x, y, z;
};

namespace emulation {

enum class Order { ascending, descending, shuffled };

// The order in which a block's threads take turns, from now on. Shuffled, warps also get far ahead of others.
void set_order(Order order);

// Calls body as every thread of every block. Throws std::logic_error where threads wait for each other for
// ever, as at a barrier that some of them never reach.
void run(Index3 grid, int threads, std::size_t shared_bytes, const std::function<void()>& body);

// Does the work, or notes it while a capture is under way (gpu.h): kernels, products, zeroing.
void submit(std::function<void()> work);
// How often this thread has called submit(): what a GPU would have launched.
std::int64_t submitted();
void begin_capture();
bool is_capturing();
std::vector<std::function<void()>> end_capture();

// The thread that runs.
struct Thread {
  int thread, threads;
  Index3 block, grid;
  std::byte* shared;
};
const Thread& current();

// Returns whether any thread of the block came with true.
bool block_barrier(bool own = false);
void copy_async(void* to, const void* from, bool valid);
void commit_copies();
void wait_for_copies(int pending);

// Barriers by number, of as many threads as come to them (PTX ISA, "bar").
void sync_threads(int number, int threads);
void arrive_threads(int number, int threads);

// A barrier in shared memory whose phase ends when all arrivals and all bytes that it expects have come (PTX
// ISA, "mbarrier"). What is shorter than a barrier's 64 bits is never its state.
void init_barrier(std::uint64_t* barrier, int arrivals);
void arrive(std::uint64_t* barrier, int bytes_to_expect);
void wait_for_phase(std::uint64_t* barrier, int parity);
// A copy of `bytes` to shared memory that the barrier expects, carried out once a thread waits for it.
void copy_with_barrier(std::uint64_t* barrier, std::byte* to, int bytes, std::function<void()> copy);

// Matrix products that are carried out when they are waited for, in their order.
void add_product(std::function<void()> product);
void commit_products();
void wait_for_products(int pending);

// Hands the `bytes` that each lane has at `own` to all lanes of its warp. Returns them by lane,
// kExchangeBytes apart; they stay valid until the warp's second exchange after this one.
const std::byte* exchange(const void* own, std::size_t bytes);
inline constexpr std::size_t kExchangeBytes = 64;

}  // namespace emulation

CUDA_DEVICE int thread_index() {
  return emulation::current().thread;
}
CUDA_DEVICE int block_size() {
  return emulation::current().threads;
}
CUDA_DEVICE Index3 block_index() {
  return emulation::current().block;
}
CUDA_DEVICE Index3 grid_size() {
  return emulation::current().grid;
}

CUDA_DEVICE void sync_block() {
  emulation::block_barrier();
}
CUDA_DEVICE bool any_in_block(bool own) {
  return emulation::block_barrier(own);
}
CUDA_DEVICE std::uint32_t ballot(bool own) {
  const std::byte* const lanes = emulation::exchange(&own, sizeof own);
  std::uint32_t set = 0;
  for (std::size_t lane = 0; lane < 32; ++lane)
    set |= static_cast<std::uint32_t>(lanes[lane * emulation::kExchangeBytes]) << lane;
  return set;
}
CUDA_DEVICE void sync_warp() {
  const char nothing = 0;
  emulation::exchange(&nothing, sizeof nothing);
}
template <class T>
CUDA_DEVICE T shuffle(T x, int lane) {
  return *reinterpret_cast<const T*>(emulation::exchange(&x, sizeof x) +
                                     static_cast<std::size_t>(lane) * emulation::kExchangeBytes);
}
template <class T>
CUDA_DEVICE T shuffle_xor(T x, int mask) {
  return shuffle(x, (emulation::current().thread % 32) ^ mask);
}

template <class T>
CUDA_DEVICE T* shared_memory() {
  return reinterpret_cast<T*>(emulation::current().shared);
}

// Returns x, but the compiler cannot compute anything from the result before this point. Values needed late,
// or in each round of a loop, are then not kept in registers until their use.
CUDA_DEVICE int not_before(int x) {
  return x;
}

CUDA_DEVICE void add_to_shared(std::uint64_t* sum, std::uint64_t x) {
  *sum += x;
}

CUDA_DEVICE int add_at(int* place, int x) {
  const int before = *place;
  *place += x;
  return before;
}

CUDA_DEVICE void copy_async(void* to, const void* from, bool valid) {
  emulation::copy_async(to, from, valid);
}
CUDA_DEVICE void commit_copies() {
  emulation::commit_copies();
}
template <int Pending>
CUDA_DEVICE void wait_for_copies() {
  emulation::wait_for_copies(Pending);
}

void load_matrices(std::uint32_t (&to)[4], const void* row);
void load_matrices_transposed(std::uint32_t (&to)[4], const void* row);
// T: bf16 or f16.
template <class T>
void multiply_add(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1);
template <class T>
std::uint32_t multiply_pairs(std::uint32_t a, std::uint32_t b);

CUDA_DEVICE float exp2_fast(float x) {
  return std::exp2(x);
}

}  // namespace kernels::cuda
