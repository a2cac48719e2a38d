// Attention to cached latents, whose up-projections are absorbed into queries and output. What is cached for
// a token is the key of all heads and, without its rotated part, also their value. The rows of a tile of
// queries are heads of tokens. The cache is split over blocks, and the last block of a tile to end merges the
// results of all, as in attention_cached.cu.
#include <algorithm>
#include <string>

#include "kernels/cuda/attention_schedule.h"
#include "kernels/cuda/attention_simple.h"
#include "kernels/cuda/early_start.h"
#include "kernels/cuda/last_block.h"
#include "kernels/cuda/latent_arguments.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kRows = 16;                // of queries that a warp multiplies at a time
constexpr int kKeys = kWarp;             // of a tile: a lane each in the softmax
constexpr int kScoreStride = kKeys + 8;  // 16 lanes that store pairs of scores of 4 rows meet all banks
constexpr int kMultiprocessors = 132;    // of the largest GPU here
constexpr float kLog2e = 1.44269504088896341f;

// Rows of queries are (B, T, H): all heads of a token follow each other.
template <class T>
struct LatentDecodeArguments {
  SplitRows<const T> q;  // of L + P: absorbed, and rotated
  KeyHeads<const T> cache;
  T* out;              // (rows, L)
  float* partial_out;  // (tiles of queries of all sequences, splits, rows of a tile, L): sums of exponentials
                       // times values
  float* partial_max;  // (..., rows of a tile): base of the exponentials, in powers of two
  float* partial_sum;  // (..., rows of a tile)
  const std::int32_t* positions;
  AttentionSizes s;  // D: L + P; V: L
};

// How many blocks of each tile of queries have ended; all 0 between kernels. One stream at a time uses it.
constexpr int kMostTiles = 1 << 14;
#ifdef __CUDACC__
__device__
#endif
    std::uint32_t latent_blocks_that_ended[kMostTiles];

// A block's shared memory; tiles are D wide and have RowTiles times 16 queries.
template <int D, int RowTiles>
struct LatentTiles {
  static constexpr int kTall = RowTiles * kRows;
  static constexpr int kSlices = kWarps / (2 * RowTiles);  // of the columns that scores are sums over
  static constexpr int kQueries = SharedTile<D>::elements(kTall), kRun = SharedTile<D>::elements(kKeys),
                       kWeights = SharedTile<kKeys>::elements(kTall);
  static constexpr int kScores = kSlices * kTall * kScoreStride;

  // Elements of 16 bits, then floats: each row's factor, the base of its exponentials, and their sum.
  static constexpr std::size_t kBytes =
      2 * (kQueries + 2 * kRun + kWeights) + sizeof(float) * (kScores + 3 * kTall);
};

// Merges the results of a tile of queries' blocks into its rows of the output. weights: shared memory, (rows,
// splits).
template <class T>
CUDA_DEVICE void merge_latents(const LatentDecodeArguments<T>& a, std::int64_t tile, int tall,
                               std::int64_t first_row, int rows, int splits, float* weights) {
  const int L = a.s.V;
  const std::int64_t at = tile * splits * tall;
  for (int row = warp_index(); row < rows; row += kWarps) {
    float most = -INFINITY, sum = 0;
    for (int split = lane_index(); split < splits; split += kWarp)
      most = fmaxf(most, a.partial_max[at + split * tall + row]);
    most = warp_max(most);
    for (int split = lane_index(); split < splits; split += kWarp) {
      const float weight = exp2_fast(a.partial_max[at + split * tall + row] - most);
      weights[row * splits + split] = weight;
      sum += weight * a.partial_sum[at + split * tall + row];
    }
    const float factor = 1 / warp_sum(sum);
    for (int split = lane_index(); split < splits; split += kWarp) weights[row * splits + split] *= factor;
  }
  sync_block();
  constexpr int kWidth = 4;
  for (int i = thread_index() * kWidth; i < rows * L; i += kThreads * kWidth) {
    const int row = i / L;
    float total[kWidth] = {};
#pragma unroll 4
    for (int split = 0; split < splits; ++split) {
      float x[kWidth];
      load<kWidth>(x, a.partial_out + (at + split * tall) * L + i);
#pragma unroll
      for (int w = 0; w < kWidth; ++w) total[w] += weights[row * splits + split] * x[w];
    }
    store<kWidth>(a.out + first_row * L + i, total);
  }
}

// D, V: widths of the tiles that hold L + P and L columns. A tile of keys goes through three stages, with a
// barrier before each. Scores: a warp has 16 rows, 16 keys and a slice of the columns. Softmax: a warp has
// rows, and a lane has a key. Output: a warp has 16 rows and a part of the columns. Grid: (splits, tiles of
// queries, B).
template <int D, int V, int RowTiles, class T>
CUDA_KERNEL(kThreads)
latent_decode_kernel(LatentDecodeArguments<T> a) {
  let_next_kernel_begin();
  wait_for_kernel_before();
  using Tiles = LatentTiles<D, RowTiles>;
  constexpr int kTall = Tiles::kTall, kSlices = Tiles::kSlices, kSteps = D / 16;
  constexpr int kRowsEach = kTall / kWarps;        // of a warp in the softmax
  constexpr int kColumns = V * RowTiles / kWarps;  // of a warp in the output
  T* const q = shared_memory<T>();
  T* const runs = q + Tiles::kQueries;
  T* const weights = runs + 2 * Tiles::kRun;
  float* const scores = reinterpret_cast<float*>(weights + Tiles::kWeights);
  float* const factors = scores + Tiles::kScores;
  float* const row_max = factors + kTall;
  float* const row_sum = row_max + kTall;

  const AttentionSizes& s = a.s;
  const int split = block_index().x, batch = block_index().z, position = a.positions[batch];
  const int first = block_index().y * kTall;
  const int rows = s.T * s.H - first < kTall ? s.T * s.H - first : kTall;
  const std::int64_t first_row = static_cast<std::int64_t>(batch) * s.T * s.H + first;
  const int seen = position + (first + rows - 1) / s.H + 1;
  const Part part = part_of((seen + kKeys - 1) / kKeys, split, grid_size().x);
  const KeyRows<const T> keys = a.cache.keys_of(batch, 0);
  const auto copy_run = [&](int j) {
    if (j < part.end)
      copy_rows<D, kKeys>(runs + (j - part.begin) % 2 * Tiles::kRun, keys, j * kKeys, seen - j * kKeys, s.D);
    commit_copies();
  };
  copy_rows<D, kTall>(q, a.q, static_cast<int>(first_row), rows, s.D);
  copy_run(part.begin);

  const int warp = warp_index(), lane = lane_index();
  const int score_row = warp / 2 % RowTiles * kRows, score_key = warp % 2 * 16, slice = warp / (2 * RowTiles);
  const int out_row = warp % RowTiles * kRows, out_column = warp / RowTiles * kColumns;
  const float to_exponent = s.scale * kLog2e;
  float o[kColumns / 8][4] = {};
  float highest[kRowsEach], sum[kRowsEach];  // of row warp + i * kWarps; the sum is this lane's share
#pragma unroll
  for (int i = 0; i < kRowsEach; ++i) highest[i] = -INFINITY, sum[i] = 0;

  for (int j = part.begin; j < part.end; ++j) {
    const T* const run = runs + (j - part.begin) % 2 * Tiles::kRun;
    wait_for_copies<0>();
    sync_block();  // run j has arrived, and all are done with the memory of run j - 1
    copy_run(j + 1);

    float score[2][4] = {};
#pragma unroll 2
    for (int k = kSteps * slice / kSlices; k < kSteps * (slice + 1) / kSlices; ++k) {
      std::uint32_t left[4], right[4];
      load_a<D>(left, q, score_row, k * 16);
      load_b_transposed<D>(right, run, score_key, k * 16);
      multiply_add<T>(score[0], left, right[0], right[1]);
      multiply_add<T>(score[1], left, right[2], right[3]);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = slice * kTall + score_row + lane / 4 + half * 8;
        const float pair[2] = {score[n][2 * half], score[n][2 * half + 1]};
        store<2>(scores + row * kScoreStride + score_key + n * 8 + lane % 4 * 2, pair);
      }
    sync_block();

#pragma unroll
    for (int i = 0; i < kRowsEach; ++i) {
      const int row = warp + i * kWarps;
      float x = 0;
#pragma unroll
      for (int part_of_sum = 0; part_of_sum < kSlices; ++part_of_sum)
        x += scores[(part_of_sum * kTall + row) * kScoreStride + lane];
      x = j * kKeys + lane <= position + (first + row) / s.H ? x * to_exponent : -INFINITY;
      const float raised = fmaxf(highest[i], warp_max(x)), base = raised == -INFINITY ? 0 : raised;
      const float shrink = exp2_fast(highest[i] - base), weight = exp2_fast(x - base);
      highest[i] = raised;
      sum[i] = sum[i] * shrink + weight;
      weights[SharedTile<kKeys>::offset(row, lane)] = from_float<T>(weight);
      if (lane == 0) factors[row] = shrink;
    }
    sync_block();

    const float near = factors[out_row + lane / 4], far = factors[out_row + lane / 4 + 8];
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) o[n][i] *= i < 2 ? near : far;
#pragma unroll
    for (int k = 0; k < kKeys; k += 16) {
      std::uint32_t left[4], right[4];
      load_a<kKeys>(left, weights, out_row, k);
#pragma unroll
      for (int n = 0; n < kColumns / 8; n += 2) {
        load_b<D>(right, run, k, out_column + n * 8);
        multiply_add<T>(o[n], left, right[0], right[1]);
        multiply_add<T>(o[n + 1], left, right[2], right[3]);
      }
    }
  }
  wait_for_copies<0>();
#pragma unroll
  for (int i = 0; i < kRowsEach; ++i) {
    const float total = warp_sum(sum[i]);
    if (lane == 0) row_max[warp + i * kWarps] = highest[i], row_sum[warp + i * kWarps] = total;
  }
  sync_block();

  const int splits = grid_size().x;
  const std::int64_t tile = static_cast<std::int64_t>(batch) * grid_size().y + block_index().y;
  const std::int64_t at = (tile * splits + split) * kTall;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = out_row + lane / 4 + half * 8;
    if (row >= rows) continue;
    const float factor = splits == 1 ? 1 / row_sum[row] : 1;
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n) {
      const int column = out_column + n * 8 + lane % 4 * 2;
      if (column >= s.V) continue;
      const float pair[2] = {o[n][2 * half] * factor, o[n][2 * half + 1] * factor};
      if (splits == 1)
        store<2>(a.out + (first_row + row) * s.V + column, pair);
      else
        store<2>(a.partial_out + (at + row) * s.V + column, pair);
    }
  }
  if (splits == 1) return;
  for (int row = thread_index(); row < rows; row += kThreads) {
    a.partial_max[at + row] = row_max[row];
    a.partial_sum[at + row] = row_sum[row];
  }
  if (ends_last(latent_blocks_that_ended + tile, splits))
    merge_latents(a, tile, kTall, first_row, rows, splits, shared_memory<float>());
}

bool tiles_take(Type type, LatentShape s) {
  return (type == Type::bf16 || type == Type::f16) && s.N % 8 == 0 && s.P % 8 == 0 && s.L % 8 == 0 &&
         s.L <= 512 && s.cached() <= 576;
}

template <int D, int V, int RowTiles>
void decode(const Context& context, Tensor out, ConstTensor absorbed, ConstTensor q, const LatentCache& cache,
            const std::int32_t* positions, LatentShape s) {
  constexpr int kTall = RowTiles * kRows;
  const std::int64_t tiles = ceil_div(s.T * s.H, kTall), all = s.B * tiles;
  if (all > kMostTiles)
    throw CudaError("attention to cached latents takes at most " + std::to_string(kMostTiles) +
                    " tiles of queries, not " + std::to_string(all));
  // With fewer keys, merging a split would take longer than working on it.
  constexpr std::int64_t kLeastKeys = 128;
  const int splits = static_cast<int>(
      std::clamp<std::int64_t>(2 * kMultiprocessors / all, 1, ceil_div(cache.capacity(), kLeastKeys)));
  const std::int64_t partial_rows = splits > 1 ? all * splits * kTall : 0;
  float* const partial_out = context.scratch_for<float>(partial_rows * (s.L + 2));
  with_16_bit_type(q.type, [&]<class T>(T) {
    const LatentDecodeArguments<T> arguments{
        {absorbed.as<T>(), s.L, q.as<T>() + s.N, s.query(), static_cast<int>(s.L)},
        latent_rows<const T>(cache, s),
        out.as<T>(),
        partial_out,
        partial_out + partial_rows * s.L,
        partial_out + partial_rows * (s.L + 1),
        positions,
        absorbed_sizes(s)};
    const std::size_t merging = static_cast<std::size_t>(kTall * splits) * sizeof(float);
    start_early(context,
                {.grid = {splits, static_cast<int>(tiles), static_cast<int>(s.B)},
                 .threads = kThreads,
                 .shared_bytes = std::max(LatentTiles<D, RowTiles>::kBytes, merging)},
                latent_decode_kernel<D, V, RowTiles, T>, arguments);
  });
}

}  // namespace

void attention_latent_cached(const Context& context, Tensor out, ConstTensor absorbed, ConstTensor q,
                             const LatentCache& cache, const std::int32_t* positions, LatentShape s) {
  if (!tiles_take(q.type, s))
    return simple::latent_with_cache(context, out, absorbed, q, cache, positions, s);
  // A tall tile loads the cache for more heads at once. Where tall tiles would leave multiprocessors without
  // work, small ones read the cache at the same time, from the second-level cache.
  const auto fill = [&](int row_tiles) {
    return s.B * ceil_div(s.T * s.H, row_tiles * kRows) >= kMultiprocessors;
  };
  const auto run = [&]<int D, int V>() {
    const auto decode_by = fill(4) ? decode<D, V, 4> : fill(2) ? decode<D, V, 2> : decode<D, V, 1>;
    decode_by(context, out, absorbed, q, cache, positions, s);
  };
  s.L <= 256 && s.cached() <= 288 ? run.template operator()<288, 256>() : run.template operator()<576, 512>();
}

}  // namespace kernels::cuda
