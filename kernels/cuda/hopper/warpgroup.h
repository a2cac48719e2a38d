// Matrix products by a warpgroup (four warps) of sm_90a: wgmma. B lies in shared memory, in tiles swizzled by
// 128 bytes; so does A where it is not in registers. Products run asynchronously: until they have been waited
// for, no thread may touch the sums, the registers of A, or the tiles. Emulated like the functions of
// thread.h: a product is carried out when it is waited for.
#pragma once
#include <cstring>

#include "kernels/cuda/shared_tile.h"

namespace kernels::cuda {

inline constexpr int kWarpgroup = 128;  // threads

// Rows of 64 elements of 16 bits, 128 bytes, the 16-byte units of a row exchanged by the row's number
// modulo 8. Tiles begin at multiples of 1024 bytes. Wider matrices are tiles beside each other.
struct SwizzledTile {
  static constexpr int kColumns = 64;
  static constexpr int kAlignment = 1024;
  static constexpr int offset(int row, int column) {
    return row * kColumns + ((column >> 3 ^ (row & 7)) << 3) +
           (column & 7);  // as bits: cheaper of a signed int
  }
  static constexpr int elements(int rows) { return rows * kColumns; }
};

// Accumulators (64, Columns) of a warpgroup: a warp has 16 rows, as 16x8 accumulators side by side.
template <int Columns>
using WarpgroupSums = float[Columns / 8][4];

#ifdef __CUDACC__

// The matrix descriptor of a tile (PTX ISA, "matrix descriptor"): its address, 1024 bytes from eight rows to
// the next eight, 128-byte swizzle. `next` is the bytes to the tile with the next 64 columns ("leading
// dimension byte offset"), used only where the product's N runs along the columns of several tiles.
template <class T>
CUDA_DEVICE std::uint64_t describe(const T* tile, int next = 16) {
  constexpr std::uint64_t kStride = 1024 >> 4, kSwizzle128 = 1;
  const std::uint64_t address = (shared_address(tile) & 0x3ffffu) >> 4;
  return address | static_cast<std::uint64_t>(next >> 4) << 16 | kStride << 32 | kSwizzle128 << 62;
}

// clang-format off
#define TILE(d, n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define SUMS_64(d) TILE(d, 0), TILE(d, 1), TILE(d, 2), TILE(d, 3), TILE(d, 4), TILE(d, 5), TILE(d, 6), TILE(d, 7)
#define SUMS_128(d) SUMS_64(d), TILE(d, 8), TILE(d, 9), TILE(d, 10), TILE(d, 11), TILE(d, 12), TILE(d, 13), TILE(d, 14), TILE(d, 15)
#define REGISTERS_64 \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}"
#define REGISTERS_128 \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}"
// clang-format on

// Makes a statement with the instruction for elements of T. `product` is a macro that is given the types in
// the instruction's name, the only part that differs.
#define IN_TYPE(T, product)             \
  if constexpr (std::is_same_v<T, f16>) \
    product(".f32.f16.f16 ");           \
  else                                  \
    product(".f32.bf16.bf16 ")

template <class T>
CUDA_DEVICE void multiply_described(float (&d)[8][4], std::uint64_t a, std::uint64_t b, bool accumulate) {
#define PRODUCT(types)                                                                            \
  asm volatile(                                                                                   \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"                                                \
      "wgmma.mma_async.sync.aligned.m64n64k16" types REGISTERS_64 ", %32, %33, p, 1, 1, 0, 0;\n}" \
      : SUMS_64(d)                                                                                \
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)))
  IN_TYPE(T, PRODUCT);
#undef PRODUCT
}
template <class T>
CUDA_DEVICE void multiply_described(float (&d)[8][4], const std::uint32_t (&a)[4], std::uint64_t b) {
#define PRODUCT(types)                                                     \
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16" types REGISTERS_64 \
               ", {%32,%33,%34,%35}, %36, 1, 1, 1, 1;"                     \
               : SUMS_64(d)                                                \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
  IN_TYPE(T, PRODUCT);
#undef PRODUCT
}

template <class T>
CUDA_DEVICE void multiply_described(float (&d)[16][4], std::uint64_t a, std::uint64_t b, bool accumulate) {
#define PRODUCT(types)                                                                              \
  asm volatile(                                                                                     \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                                  \
      "wgmma.mma_async.sync.aligned.m64n128k16" types REGISTERS_128 ", %64, %65, p, 1, 1, 0, 0;\n}" \
      : SUMS_128(d)                                                                                 \
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)))
  IN_TYPE(T, PRODUCT);
#undef PRODUCT
}
template <class T>
CUDA_DEVICE void multiply_described(float (&d)[16][4], const std::uint32_t (&a)[4], std::uint64_t b) {
#define PRODUCT(types)                                                       \
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16" types REGISTERS_128 \
               ", {%64,%65,%66,%67}, %68, 1, 1, 1, 1;"                       \
               : SUMS_128(d)                                                 \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
  IN_TYPE(T, PRODUCT);
#undef PRODUCT
}

template <class T>
CUDA_DEVICE void multiply_described_transposed(float (&d)[8][4], std::uint64_t a, std::uint64_t b,
                                               bool accumulate) {
#define PRODUCT(types)                                                                            \
  asm volatile(                                                                                   \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"                                                \
      "wgmma.mma_async.sync.aligned.m64n64k16" types REGISTERS_64 ", %32, %33, p, 1, 1, 1, 1;\n}" \
      : SUMS_64(d)                                                                                \
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)))
  IN_TYPE(T, PRODUCT);
#undef PRODUCT
}

#undef IN_TYPE
#undef TILE
#undef SUMS_64
#undef SUMS_128
#undef REGISTERS_64
#undef REGISTERS_128

// To be called after registers that products read or add to were written, before the first such product.
CUDA_DEVICE void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
CUDA_DEVICE void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Keeps the compiler from moving any use of the sums to before this point.
template <int N>
CUDA_DEVICE void hold(float (&d)[N][4]) {
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(d[n][i])::"memory");
}
// Waits until at most Pending of the committed groups still run; `sums` are those of the groups that ended.
template <int Pending, class... Sums>
CUDA_DEVICE void wait_for_products(Sums&... sums) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
  (hold(sums), ...);
}
// Makes this thread's writes to shared memory visible to the products of all threads, after a barrier.
CUDA_DEVICE void publish_to_products() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

template <int N, class T>
CUDA_DEVICE void multiply_rows(float (&d)[N][4], const T* a, const T* b, int column, bool accumulate) {
  multiply_described<T>(d, describe(a + column), describe(b + column), accumulate);
}
template <class T>
CUDA_DEVICE void multiply_columns(WarpgroupSums<64>& d, const T* a, const T* b, int row, bool accumulate) {
  multiply_described_transposed<T>(d, describe(a + row * SwizzledTile::kColumns),
                                   describe(b + row * SwizzledTile::kColumns), accumulate);
}
template <int N, class T>
CUDA_DEVICE void multiply_registers(float (&d)[N][4], const std::uint32_t (&a)[4], const T* b, int row,
                                    int tile) {
  multiply_described<T>(d, a, describe(b + row * SwizzledTile::kColumns, tile * static_cast<int>(sizeof(T))));
}

#else

CUDA_DEVICE void begin_products() {}
CUDA_DEVICE void commit_products() {
  emulation::commit_products();
}
template <int Pending, class... Sums>
CUDA_DEVICE void wait_for_products(Sums&...) {
  emulation::wait_for_products(Pending);
  sync_warp();
}
CUDA_DEVICE void publish_to_products() {}

// d = [d +] a (half, k) of this lane's two rows times b (k, column), over 16 k.
template <int N, class A, class B>
CUDA_DEVICE void add_products(float (&d)[N][4], bool accumulate, const A& a, const B& b) {
  for (int n = 0; n < N; ++n)
    for (int i = 0; i < 4; ++i) {
      const Place place = accumulator_place(lane_index(), i);
      double sum = accumulate ? d[n][i] : 0;
      for (int k = 0; k < 16; ++k)
        sum += static_cast<double>(a(i / 2, k)) * static_cast<double>(b(k, n * 8 + place.column));
      d[n][i] = static_cast<float>(sum);
    }
}

// d (64, 8 N) = [d +] 16 columns from `column` of a (64, 64) times the transposed 16 columns of b (8 N, 64).
template <int N, class T>
CUDA_DEVICE void multiply_rows(float (&d)[N][4], const T* a, const T* b, int column, bool accumulate) {
  emulation::add_product([&d, a, b, column, accumulate] {
    const int row = warp_index() % 4 * 16 + lane_index() / 4;
    add_products(
        d, accumulate,
        [&](int half, int k) { return to_float(a[SwizzledTile::offset(row + half * 8, column + k)]); },
        [&](int k, int n) { return to_float(b[SwizzledTile::offset(n, column + k)]); });
  });
}

// d (64, 64) = [d +] the transposed 16 rows from `row` of a (.., 64) times the same rows of b (.., 64).
template <class T>
CUDA_DEVICE void multiply_columns(WarpgroupSums<64>& d, const T* a, const T* b, int row, bool accumulate) {
  emulation::add_product([&d, a, b, row, accumulate] {
    const int m = warp_index() % 4 * 16 + lane_index() / 4;
    add_products(
        d, accumulate,
        [&](int half, int k) { return to_float(a[SwizzledTile::offset(row + k, m + half * 8)]); },
        [&](int k, int n) { return to_float(b[SwizzledTile::offset(row + k, n)]); });
  });
}

// d (64, 8 N) += a (64, 16) times 16 rows from `row` of b, whose columns are tiles `tile` elements apart; a
// as a warp's A fragments of mma.m16n8k16.
template <int N, class T>
CUDA_DEVICE void multiply_registers(float (&d)[N][4], const std::uint32_t (&a)[4], const T* b, int row,
                                    int tile) {
  emulation::add_product([&d, &a, b, row, tile] {
    const std::byte* const lanes = emulation::exchange(&a, sizeof a);
    std::uint32_t rows[4][4];  // of the four lanes that hold this lane's rows
    for (std::size_t c = 0; c < 4; ++c)
      std::memcpy(rows[c],
                  lanes + (static_cast<std::size_t>(lane_index()) / 4 * 4 + c) * emulation::kExchangeBytes,
                  sizeof rows[c]);
    add_products(
        d, true,
        [&](int half, int k) {
          const std::uint32_t pair = rows[k % 8 / 2][half + k / 8 * 2];
          return to_float(T{static_cast<std::uint16_t>(k % 2 == 0 ? pair & 0xffffu : pair >> 16)});
        },
        [&](int k, int n) {
          return to_float(b[n / SwizzledTile::kColumns * tile +
                            SwizzledTile::offset(row + k, n % SwizzledTile::kColumns)]);
        });
  });
}

#endif

}  // namespace kernels::cuda
