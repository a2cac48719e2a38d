// Matrix products by a warpgroup (four warps) of sm_90a: wgmma, whose B, and A where it is not in registers,
// lie in shared memory in tiles swizzled by 128 bytes. Emulated as thread.h's functions are.
#pragma once
#include "kernels/cuda/shared_tile.h"

namespace kernels::cuda {

inline constexpr int kWarpgroup = 128;  // threads

// Rows of 64 bf16, 128 bytes, the 16-byte units of a row exchanged by the row's number modulo 8. Tiles begin
// at multiples of 1024 bytes. Wider matrices are tiles beside each other.
struct SwizzledTile {
  static constexpr int kColumns = 64;
  static constexpr int kAlignment = 1024;
  static constexpr int offset(int row, int column) {
    return row * kColumns + ((column / 8) ^ (row % 8)) * 8 + column % 8;
  }
  static constexpr int elements(int rows) { return rows * kColumns; }
};

// Accumulators (64, 64) of a warpgroup: a warp has 16 rows, as eight 16x8 accumulators side by side.
using WarpgroupSums = float[8][4];

#ifdef __CUDACC__

// Written for sm_90a alone; other architectures get the empty bodies of kernels that are never started there.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Where a tile begins, from row to row of eight rows 1024 bytes, 128-byte swizzle (PTX ISA, "matrix
// descriptor").
CUDA_DEVICE std::uint64_t describe(const bf16* tile) {
  constexpr std::uint64_t kLeading = 1, kStride = 1024 >> 4, kSwizzle128 = 1;
  const std::uint64_t address = (shared_address(tile) & 0x3ffffu) >> 4;
  return address | kLeading << 16 | kStride << 32 | kSwizzle128 << 62;
}

#define WARPGROUP_SUMS(d)                                                                                  \
  "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), \
      "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]),            \
      "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]),            \
      "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]), "+f"(d[6][0]),            \
      "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]),            \
      "+f"(d[7][3])
#define WARPGROUP_REGISTERS                                                                                  \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%" \
  "28,%29,"                                                                                                  \
  "%30,%31}"

CUDA_DEVICE void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
CUDA_DEVICE void finish_products() {
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
}
// What this thread has written to shared memory is seen by the products of all, after a barrier.
CUDA_DEVICE void publish_to_products() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
CUDA_DEVICE void multiply_rows(WarpgroupSums& d, const bf16* a, const bf16* b, int column, bool accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " WARPGROUP_REGISTERS
      ", %32, %33, p, 1, 1, 0, 0;\n}"
      : WARPGROUP_SUMS(d)
      : "l"(describe(a + column)), "l"(describe(b + column)), "r"(static_cast<int>(accumulate)));
}
CUDA_DEVICE void multiply_registers(WarpgroupSums& d, const std::uint32_t (&a)[4], const bf16* b, int row) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " WARPGROUP_REGISTERS
               ", {%32,%33,%34,%35}, %36, 1, 1, 1, 1;"
               : WARPGROUP_SUMS(d)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(describe(b + row * SwizzledTile::kColumns)));
}

#undef WARPGROUP_SUMS
#undef WARPGROUP_REGISTERS

#endif

#else

CUDA_DEVICE void begin_products() {}
CUDA_DEVICE void finish_products() {
  sync_warp();
}
CUDA_DEVICE void publish_to_products() {}

// d (64, 64) = [d +] 16 columns from `column` of a (64, 64) times the transposed 16 columns of b (64, 64).
CUDA_DEVICE void multiply_rows(WarpgroupSums& d, const bf16* a, const bf16* b, int column, bool accumulate) {
  const int lane = lane_index(), first_row = warp_index() % 4 * 16;
  for (int n = 0; n < 8; ++n)
    for (int i = 0; i < 4; ++i) {
      const int row = first_row + lane / 4 + i / 2 * 8, to = n * 8 + lane % 4 * 2 + i % 2;
      double sum = accumulate ? d[n][i] : 0;
      for (int k = column; k < column + 16; ++k)
        sum += static_cast<double>(to_float(a[SwizzledTile::offset(row, k)])) *
               static_cast<double>(to_float(b[SwizzledTile::offset(to, k)]));
      d[n][i] = static_cast<float>(sum);
    }
}

// d (64, 64) += a (64, 16) times 16 rows from `row` of b (64, 64); a as a warp's A fragments of mma.m16n8k16.
CUDA_DEVICE void multiply_registers(WarpgroupSums& d, const std::uint32_t (&a)[4], const bf16* b, int row) {
  for (int n = 0; n < 8; n += 2) {
    std::uint32_t columns[4];
    const Place place = place_by_rows(lane_index());
    load_matrices_transposed(columns, b + SwizzledTile::offset(row + place.row, n * 8 + place.column));
    multiply_add(d[n], a, columns[0], columns[1]);
    multiply_add(d[n + 1], a, columns[2], columns[3]);
  }
}

#endif

}  // namespace kernels::cuda
