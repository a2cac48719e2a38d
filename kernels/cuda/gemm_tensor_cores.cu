// A block makes a tile of 128 x 128 of the output; its eight warps, two by four, 64 x 32 each. Both inputs
// pass through shared memory in slices of 32 along K, kStages of them under way: the copy of a slice is
// started two slices before it is multiplied.
#include "kernels/cuda/gemm_tensor_cores.h"
#include "kernels/cuda/shared_tile.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTile = 128;  // rows and columns of a block
constexpr int kSlice = 32;  // along K
constexpr int kStages = 3;
constexpr int kWarpsAcross = 4;
constexpr int kWarpRows = 64, kWarpColumns = kTile / kWarpsAcross;
using Slice = SharedTile<kSlice>;

// Shared memory: (kStages, 2, 128, 32).
CUDA_KERNEL(kThreads)
gemm_tensor_cores_kernel(bf16* out, const bf16* inp, const bf16* weight, int M, int N, int K) {
  bf16* const stages = shared_memory<bf16>();
  const int first_row = block_index().y * kTile, first_column = block_index().x * kTile;
  const int slices = (K + kSlice - 1) / kSlice;
  const auto stage = [&](int slice) { return stages + slice % kStages * 2 * Slice::elements(kTile); };
  const auto copy_slice = [&](int slice) {
    if (slice < slices) {
      const int k = slice * kSlice;
      copy_tile<kSlice, kTile>(stage(slice), inp + static_cast<std::int64_t>(first_row) * K + k, K,
                               M - first_row, K - k);
      copy_tile<kSlice, kTile>(stage(slice) + Slice::elements(kTile),
                               weight + static_cast<std::int64_t>(first_column) * K + k, K, N - first_column,
                               K - k);
    }
    commit_copies();
  };
  for (int slice = 0; slice < kStages - 1; ++slice) copy_slice(slice);

  const int row = warp_index() / kWarpsAcross * kWarpRows,
            column = warp_index() % kWarpsAcross * kWarpColumns;
  float sums[kWarpRows / 16][kWarpColumns / 8][4] = {};
  for (int slice = 0; slice < slices; ++slice) {
    wait_for_copies<kStages - 2>();
    sync_block();  // the slice has arrived, and all are done with the one whose place is filled next
    copy_slice(slice + kStages - 1);
    const bf16* const a = stage(slice);
    const bf16* const b = a + Slice::elements(kTile);
#pragma unroll
    for (int k = 0; k < kSlice; k += 16) {
      std::uint32_t rows[kWarpRows / 16][4];
#pragma unroll
      for (int m = 0; m < kWarpRows / 16; ++m) load_a<kSlice>(rows[m], a, row + m * 16, k);
#pragma unroll
      for (int n = 0; n < kWarpColumns / 8; n += 2) {
        std::uint32_t columns[4];
        load_b_transposed<kSlice>(columns, b, column + n * 8, k);
#pragma unroll
        for (int m = 0; m < kWarpRows / 16; ++m) {
          multiply_add<bf16>(sums[m][n], rows[m], columns[0], columns[1]);
          multiply_add<bf16>(sums[m][n + 1], rows[m], columns[2], columns[3]);
        }
      }
    }
  }
  wait_for_copies<0>();

#pragma unroll
  for (int m = 0; m < kWarpRows / 16; ++m)
#pragma unroll
    for (int n = 0; n < kWarpColumns / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Place place = accumulator_place(lane_index(), i);
        const int to_row = first_row + row + m * 16 + place.row,
                  to_column = first_column + column + n * 8 + place.column;
        if (to_row < M && to_column < N)
          out[static_cast<std::int64_t>(to_row) * N + to_column] = to_bf16(sums[m][n][i]);
      }
}

}  // namespace

void gemm_tensor_cores(const Context& context, Tensor out, ConstTensor inp, ConstTensor weight,
                       std::int64_t M, std::int64_t N, std::int64_t K) {
  start(context,
        {.grid = {static_cast<int>(ceil_div(N, kTile)), static_cast<int>(ceil_div(M, kTile)), 1},
         .threads = kThreads,
         .shared_bytes = static_cast<std::size_t>(kStages * 2 * Slice::elements(kTile)) * sizeof(bf16)},
        gemm_tensor_cores_kernel, out.as<bf16>(), inp.as<bf16>(), weight.as<bf16>(), static_cast<int>(M),
        static_cast<int>(N), static_cast<int>(K));
}

}  // namespace kernels::cuda
