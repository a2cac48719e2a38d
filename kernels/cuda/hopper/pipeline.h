// What sm_90 offers to load tiles without the threads that use them: one instruction copies a box of a tensor
// (TMA), barriers in shared memory count the bytes that arrive (mbarrier), other barriers join only some of a
// block's threads, and threads that copy hand registers to those that multiply. Emulated like thread.h's
// functions: a box arrives when it is waited for, and its destination is NaN from the copy's start until
// then.
#pragma once
#include "kernels/cuda/hopper/tensor_map.h"
#include "kernels/cuda/hopper/warpgroup.h"
#include "kernels/cuda/thread.h"

namespace kernels::cuda {

using PhaseBarrier = std::uint64_t;  // in shared memory; its phases are numbered from 0

// The block's shared memory, from the first multiple of a swizzled tile's alignment on.
template <class T>
CUDA_DEVICE T* aligned_shared_memory() {
  std::byte* const memory = shared_memory<std::byte>();
#ifdef __CUDACC__
  const int beyond = static_cast<int>(shared_address(memory) % SwizzledTile::kAlignment);
#else
  const int beyond = static_cast<int>(reinterpret_cast<std::uintptr_t>(memory) % SwizzledTile::kAlignment);
#endif
  return reinterpret_cast<T*>(memory + (SwizzledTile::kAlignment - beyond) % SwizzledTile::kAlignment);
}

#ifdef __CUDACC__

// Called by one thread; sync_block() must follow before other threads use the barrier.
CUDA_DEVICE void init_barrier(PhaseBarrier* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
               : "memory");
}
CUDA_DEVICE void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
}
CUDA_DEVICE void arrive(PhaseBarrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
CUDA_DEVICE void arrive_and_expect(PhaseBarrier* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}
CUDA_DEVICE void wait_for_phase(PhaseBarrier* barrier, int phase) {
  std::uint32_t has_ended;
  do {
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
        : "=r"(has_ended)
        : "r"(shared_address(barrier)), "r"(phase & 1)
        : "memory");
  } while (has_ended == 0);
}

template <class T>
CUDA_DEVICE void load_box(T* tile, const TensorMap& map, int column, int head, int token, int sequence,
                          PhaseBarrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_address(tile)),
      "l"(reinterpret_cast<std::uint64_t>(&map)), "r"(shared_address(barrier)), "r"(column), "r"(head),
      "r"(token), "r"(sequence)
      : "memory");
}

CUDA_DEVICE void sync_threads(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
CUDA_DEVICE void arrive_threads(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

template <int Registers>
CUDA_DEVICE void keep_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
CUDA_DEVICE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

CUDA_DEVICE int take_number(int* next) {
  return atomicAdd(next, 1);
}
CUDA_DEVICE int read_acquiring(const int* count) {
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(count) : "memory");
  return value;
}
CUDA_DEVICE void wait_for_count(const int* count, int value) {
  while (read_acquiring(count) != value) {
  }
}
CUDA_DEVICE void publish_count(int* count, int value) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(count), "r"(value) : "memory");
}
CUDA_DEVICE void add_to_global(float* to, const float (&x)[4]) {
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x[0]), "f"(x[1]), "f"(x[2]),
               "f"(x[3])
               : "memory");
}

#else

CUDA_DEVICE void init_barrier(PhaseBarrier* barrier, int arrivals) {
  emulation::init_barrier(barrier, arrivals);
}
CUDA_DEVICE void publish_barriers() {}
// Counts this thread's arrival. Threads that wait for the phase see what this one wrote to shared memory.
CUDA_DEVICE void arrive(PhaseBarrier* barrier) {
  emulation::arrive(barrier, 0);
}
CUDA_DEVICE void arrive_and_expect(PhaseBarrier* barrier, int bytes) {
  emulation::arrive(barrier, bytes);
}
// Waits until phase number `phase`, or another of the same parity, has ended.
CUDA_DEVICE void wait_for_phase(PhaseBarrier* barrier, int phase) {
  emulation::wait_for_phase(barrier, phase & 1);
}

// Begins to copy the map's box at these coordinates into a swizzled tile; elements outside of the tensor
// become zeros. The barrier counts the bytes as they arrive.
template <class T>
CUDA_DEVICE void load_box(T* tile, const TensorMap& map, int column, int head, int token, int sequence,
                          PhaseBarrier* barrier) {
  if (reinterpret_cast<std::uintptr_t>(tile) % SwizzledTile::kAlignment != 0)
    throw std::logic_error("a box is copied to where no swizzled tile can begin");
  emulation::copy_with_barrier(barrier, reinterpret_cast<std::byte*>(tile), map.box_bytes(), [=] {
    for (int row = 0; row < map.box_tokens; ++row)
      for (int c = 0; c < SwizzledTile::kColumns; ++c)
        tile[SwizzledTile::offset(row, c)] = T{map.at(column + c, head, token + row, sequence)};
  });
}

// Barriers by number, 1 to 15. `threads` counts both the threads that wait and those that only arrive.
CUDA_DEVICE void sync_threads(int number, int threads) {
  emulation::sync_threads(number, threads);
}
CUDA_DEVICE void arrive_threads(int number, int threads) {
  emulation::arrive_threads(number, threads);
}

// Called by all threads of a warpgroup: it goes on with fewer registers a thread, or waits for more.
template <int Registers>
CUDA_DEVICE void keep_registers() {}
template <int Registers>
CUDA_DEVICE void take_registers() {}

// Returns *next and adds one to it, atomically for all blocks.
CUDA_DEVICE int take_number(int* next) {
  return (*next)++;
}
// Until another block has published this value.
CUDA_DEVICE void wait_for_count(const int* count, int value) {
  if (*count != value) throw std::logic_error("a block waits for one that comes later");
}
// Sets the count. Threads that wait for it then see what this thread wrote to device memory before.
CUDA_DEVICE void publish_count(int* count, int value) {
  *count = value;
}
CUDA_DEVICE void add_to_global(float* to, const float (&x)[4]) {
  for (int i = 0; i < 4; ++i) to[i] += x[i];
}

#endif

// Bytes of `rows` rows of D elements of 16 bits.
template <int D>
constexpr int tile_bytes(int rows) {
  return rows * D * static_cast<int>(size_of(Type::bf16));
}
// Begins to copy the D columns of `rows` rows into tiles side by side: tile_bytes<D>(rows) bytes.
template <int D, class T>
CUDA_DEVICE void load_tiles(T* tiles, int rows, const TensorMap& map, int head, int token, int sequence,
                            PhaseBarrier* barrier) {
#pragma unroll
  for (int column = 0; column < D; column += SwizzledTile::kColumns)
    load_box(tiles + column / SwizzledTile::kColumns * SwizzledTile::elements(rows), map, column, head, token,
             sequence, barrier);
}

// By all lanes of a warp, as one arrival.
CUDA_DEVICE void arrive_as_warp(PhaseBarrier* barrier) {
  sync_warp();
  if (lane_index() == 0) arrive(barrier);
}

}  // namespace kernels::cuda
