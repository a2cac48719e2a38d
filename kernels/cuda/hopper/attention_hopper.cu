// A block is two warpgroups with 64 query rows each; both share tiles of 64 keys and values. Scores and
// output are accumulators in registers; the probabilities go into the second product from there.
#include <cmath>

#include "kernels/cuda/attention_arguments.h"
#include "kernels/cuda/attention_flash.h"
#include "kernels/cuda/attention_schedule.h"
#include "kernels/cuda/hopper/attention_hopper.h"
#include "kernels/cuda/hopper/warpgroup.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 2 * kWarpgroup;
constexpr int kQueries = 128;
constexpr float kLog2e = 1.44269504088896341f, kLn2 = 0.693147180559945309f;

struct Arguments {
  Heads<const bf16> q, k, v;
  Heads<bf16> out;
  float* lse;
  AttentionSizes s;
};

// Begins to copy `rows` rows of D elements, `stride` apart, into D / 64 tiles of Rows rows side by side; rows
// beyond become zeros.
template <int D, int Rows>
CUDA_DEVICE void copy_swizzled(bf16* tiles, const bf16* from, std::int64_t stride, int rows) {
  constexpr int kVectors = D / 8;
  for (int i = thread_index(); i < Rows * kVectors; i += block_size()) {
    const int row = i / kVectors, column = i % kVectors * 8;
    const bool valid = row < rows;
    bf16* const tile = tiles + column / SwizzledTile::kColumns * SwizzledTile::elements(Rows);
    copy_async(tile + SwizzledTile::offset(row, column % SwizzledTile::kColumns),
               valid ? from + row * stride + column : from, valid);
  }
}

// The block's shared memory from its first multiple of a tile's alignment on.
CUDA_DEVICE bf16* aligned_shared_memory() {
  std::byte* const memory = shared_memory<std::byte>();
  const auto beyond = static_cast<int>(reinterpret_cast<std::uintptr_t>(memory) % SwizzledTile::kAlignment);
  return reinterpret_cast<bf16*>(memory + (SwizzledTile::kAlignment - beyond) % SwizzledTile::kAlignment);
}

// Shared memory, after alignment: queries (128, D), keys and values (2, 64, D) each. Grid: (tiles of queries,
// H, B).
template <int D>
CUDA_KERNEL(kThreads)
attention_hopper_kernel(Arguments a) {
#if !defined(__CUDACC__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int kBlocks = D / SwizzledTile::kColumns;
  constexpr int kKeyElements = kBlocks * SwizzledTile::elements(kKeyTile);
  bf16* const q = aligned_shared_memory();
  bf16* const k = q + kBlocks * SwizzledTile::elements(kQueries);
  bf16* const v = k + 2 * kKeyElements;
  const AttentionSizes& s = a.s;
  const int batch = block_index().z, head = block_index().y, group = head / (s.H / s.G);
  const int first = (grid_size().x - 1 - block_index().x) * kQueries;
  const int queries = s.T - first < kQueries ? s.T - first : kQueries;
  const QueryTile tile{first, queries, 0, s.T, true};
  const int tiles = tile.key_tiles();

  const std::int64_t first_row = s.first_row(batch);
  const auto copy_keys = [&](bf16* to, const Heads<const bf16>& from, int j) {
    if (j < tiles)
      copy_swizzled<D, kKeyTile>(to + j % 2 * kKeyElements, from.of(first_row, group).at(j * kKeyTile),
                                 from.row, s.T - j * kKeyTile);
    commit_copies();
  };
  copy_swizzled<D, kQueries>(q, a.q.of(first_row, head).at(first), a.q.row, queries);
  copy_keys(k, a.k, 0);
  copy_keys(v, a.v, 0);

  // This warpgroup's rows in each tile of queries, and this warp's of these.
  const int group_row = thread_index() / kWarpgroup * 64, row = group_row + warp_index() % 4 * 16;
  const bf16* const own_q = q + SwizzledTile::elements(group_row);
  const float to_exponent = s.scale * kLog2e;
  float o[kBlocks][8][4] = {};
  float highest[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  for (int j = 0; j < tiles; ++j) {
    wait_for_copies<1>();  // of keys j; the values may be under way
    publish_to_products();
    sync_block();
    copy_keys(k, a.k, j + 1);

    WarpgroupSums score;
    begin_products();
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
#pragma unroll
      for (int column = 0; column < SwizzledTile::kColumns; column += 16)
        multiply_rows(score, own_q + block * SwizzledTile::elements(kQueries),
                      k + j % 2 * kKeyElements + block * SwizzledTile::elements(kKeyTile), column,
                      block > 0 || column > 0);
    finish_products();
    if (tile.needs_mask(j)) {
#pragma unroll
      for (int n = 0; n < kKeyTile / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const Place place = accumulator_place(lane_index(), i);
          if (!tile.sees(first + row + place.row, j * kKeyTile + n * 8 + place.column))
            score[n][i] = -INFINITY;
        }
    }
    raise_and_exponentiate<kBlocks * 8>(score, highest, sum, reinterpret_cast<float(&)[kBlocks * 8][4]>(o),
                                        to_exponent);

    wait_for_copies<1>();  // of values j; the next keys may be under way
    publish_to_products();
    sync_block();
    copy_keys(v, a.v, j + 1);
    std::uint32_t probabilities[kKeyTile / 16][4];
#pragma unroll
    for (int n = 0; n < kKeyTile / 16; ++n)
      accumulators_as_a(probabilities[n], score[2 * n], score[2 * n + 1]);
    begin_products();
#pragma unroll
    for (int n = 0; n < kKeyTile / 16; ++n)
#pragma unroll
      for (int block = 0; block < kBlocks; ++block)
        multiply_registers(o[block], probabilities[n],
                           v + j % 2 * kKeyElements + block * SwizzledTile::elements(kKeyTile), n * 16);
    finish_products();
  }
  wait_for_copies<0>();

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sum[half] += shuffle_xor(sum[half], 1);
    sum[half] += shuffle_xor(sum[half], 2);
    const int r = row + lane_index() / 4 + half * 8;
    if (r >= queries) continue;
    if (a.lse != nullptr && lane_index() % 4 == 0)
      a.lse[(static_cast<std::int64_t>(batch) * s.H + head) * s.T + first + r] =
          highest[half] * kLn2 + logf(sum[half]);
    bf16* const out = a.out.of(first_row, head).at(first + r);
    const float inverse = 1 / sum[half];
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
#pragma unroll
      for (int n = 0; n < 8; ++n)
        *reinterpret_cast<std::uint32_t*>(out + block * SwizzledTile::kColumns + n * 8 +
                                          accumulator_place(lane_index(), 2 * half).column) =
            pack_bf16(o[block][n][2 * half] * inverse, o[block][n][2 * half + 1] * inverse);
  }
#endif
}

template <int D>
void launch(const Context& context, const Arguments& arguments, AttentionShape s) {
  constexpr std::size_t kTiles = D / SwizzledTile::kColumns * SwizzledTile::elements(kQueries + 4 * kKeyTile);
  start(context,
        {.grid = {static_cast<int>(ceil_div(s.T, kQueries)), static_cast<int>(s.H), static_cast<int>(s.B)},
         .threads = kThreads,
         .shared_bytes = kTiles * sizeof(bf16) + SwizzledTile::kAlignment},
        attention_hopper_kernel<D>, arguments);
}

}  // namespace

void attention_hopper_forward(const Context& context, Tensor out, float* lse, ConstTensor qkv,
                              AttentionShape s) {
  const std::int64_t packed = s.H + 2 * s.G;
  const bf16* const rows = qkv.as<bf16>();
  const Arguments arguments{packed_heads(rows, packed, 0, s),
                            packed_heads(rows, packed, s.H, s),
                            packed_heads(rows, packed, s.H + s.G, s),
                            packed_heads(out.as<bf16>(), s.H, 0, s),
                            lse,
                            sizes(s)};
  if (s.D == 64) return launch<64>(context, arguments, s);
  if (s.D == 128) return launch<128>(context, arguments, s);
  throw CudaError("attention_hopper_forward takes head sizes 64 and 128, not " + std::to_string(s.D));
}

}  // namespace kernels::cuda
