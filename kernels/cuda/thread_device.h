// The GPU's side of thread.h. Instructions by their names in the PTX ISA.
#pragma once
#include <cstdint>

#include "kernels/cuda/types.h"

#define CUDA_KERNEL(threads) __global__ void __launch_bounds__(threads)
#define CUDA_KERNEL_RESIDENT(threads, blocks) __global__ void __launch_bounds__(threads, blocks)
#define CUDA_DEVICE __device__ __forceinline__
#define CUDA_GRID_CONSTANT const __grid_constant__

namespace kernels::cuda {

struct Index3 {
  int x, y, z;
};
CUDA_DEVICE int thread_index() {
  return static_cast<int>(threadIdx.x);
}
CUDA_DEVICE int block_size() {
  return static_cast<int>(blockDim.x);
}
CUDA_DEVICE Index3 block_index() {
  return {static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.z)};
}
CUDA_DEVICE Index3 grid_size() {
  return {static_cast<int>(gridDim.x), static_cast<int>(gridDim.y), static_cast<int>(gridDim.z)};
}

CUDA_DEVICE void sync_block() {
  __syncthreads();
}
CUDA_DEVICE bool any_in_block(bool own) {
  return __syncthreads_or(own);
}
CUDA_DEVICE std::uint32_t ballot(bool own) {
  return __ballot_sync(0xffffffffu, own);
}
CUDA_DEVICE void sync_warp() {
  __syncwarp();
}
template <class T>
CUDA_DEVICE T shuffle_xor(T x, int mask) {
  return __shfl_xor_sync(0xffffffffu, x, mask);
}
template <class T>
CUDA_DEVICE T shuffle(T x, int lane) {
  return __shfl_sync(0xffffffffu, x, lane);
}

template <class T>
CUDA_DEVICE T* shared_memory() {
  extern __shared__ __align__(16) std::byte dynamic_shared_memory[];
  return reinterpret_cast<T*>(dynamic_shared_memory);
}

CUDA_DEVICE int not_before(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

// Sums of integers by many threads at once: the result does not depend on their order.
CUDA_DEVICE void add_to_shared(std::uint64_t* sum, std::uint64_t x) {
  atomicAdd(reinterpret_cast<unsigned long long*>(sum), static_cast<unsigned long long>(x));
}

CUDA_DEVICE int add_at(int* place, int x) {
  return atomicAdd(place, x);
}

CUDA_DEVICE std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

// Where not valid, 16 zero bytes are written and `from` is not read.
CUDA_DEVICE void copy_async(void* to, const void* from, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(bytes)
               : "memory");
}
CUDA_DEVICE void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until at most Pending of this thread's committed groups are under way.
template <int Pending>
CUDA_DEVICE void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

// Loads four 8x8 matrices of 16-bit elements. Lane l gives the address of row l % 8 of matrix l / 8. to[i]
// gets elements (lane / 4, 2 (lane % 4)) and the one right of it of matrix i; transposed: of its transpose.
CUDA_DEVICE void load_matrices(std::uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}
CUDA_DEVICE void load_matrices_transposed(std::uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}

// d (16, 8) += a (16, 16) b (16, 8), T bf16 or f16 with fp32 sums; layouts as PTX ISA, "mma.m16n8k16".
template <class T>
CUDA_DEVICE void multiply_add(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                              std::uint32_t b1) {
  static_assert(std::is_same_v<T, bf16> || std::is_same_v<T, f16>);
  if constexpr (std::is_same_v<T, f16>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The products of two pairs of bf16 or f16.
template <class T>
CUDA_DEVICE std::uint32_t multiply_pairs(std::uint32_t a, std::uint32_t b) {
  static_assert(std::is_same_v<T, bf16> || std::is_same_v<T, f16>);
  std::uint32_t products;
  if constexpr (std::is_same_v<T, f16>)
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(products) : "r"(a), "r"(b));
  else  // an instruction without a sum is of sm_90; -0 changes no product
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(products) : "r"(a), "r"(b), "r"(0x80008000u));
  return products;
}

// 2^x by the special function unit, 2 ulp; -inf gives 0.
CUDA_DEVICE float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace kernels::cuda
