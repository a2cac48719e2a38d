// Flash attention's backward pass by tiles of keys, five products a step (FlashAttention-2's algorithm 2, Dao
// 2023, with the warpgroups of Shah et al. 2024, arXiv 2407.08608). A block has 128 keys of a head and goes
// through the queries that see them: dK and dV stay in registers, dQ is added up in fp32 in global memory.
//
// The blocks add their parts of dQ to a tile of queries one at a time, from the last tile of keys to the
// first, so that two runs are bit-equal. Blocks take their work in the same order, so a block waits only for
// earlier ones; blocks that run side by side are each one step behind the one that they wait for. The two
// kernels of attention_flash.cu need no order and no fp32 sums, but seven products instead of five: on tensor
// cores that wait for nothing else, 1.4 times as long.
//
// Warps of the first warpgroup copy (TMA), fetch what the softmax needs of each query, and keep the order. A
// warp that multiplies never waits for other blocks.
#include "kernels/cuda/attention_arguments.h"
#include "kernels/cuda/attention_flash.h"
#include "kernels/cuda/attention_schedule.h"
#include "kernels/cuda/hopper/attention_hopper.h"
#include "kernels/cuda/hopper/pipeline.h"

namespace kernels::cuda {
namespace {

constexpr int kConsumers = 2;  // warpgroups
constexpr int kThreads = (1 + kConsumers) * kWarpgroup;
constexpr int kRows = 64;  // keys of a consumer
constexpr int kKeys = kConsumers * kRows;
constexpr int kStages = 2;  // tiles of queries that are under way or in use
// As in the forward pass, but the warps that keep the order need more than 24.
constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
constexpr float kLog2e = 1.44269504088896341f;

// The queries of a step: so many that a consumer's part of dQ is 64 queries by 64 elements of the head.
constexpr int queries_of_step(std::int64_t D) {
  return D == 64 ? 128 : 64;
}
constexpr int kPart = 64 * 64;  // elements of that part of dQ, in the order in which threads hold them

template <class T>
struct Arguments {
  TensorMap q, k, v, dout;
  Heads<T> dk, dv;
  const float *lse, *delta;  // (B, H, T)
  float* sums;               // (B, H, tiles of queries, consumers, kPart): dQ before its scale
  int* counts;               // (B, H, tiles of queries, consumers): parts that have been added
  int* next_work;
  AttentionSizes s;
};

// Shared memory.
template <int D, class T>
struct Memory {
  static constexpr int kQueries = queries_of_step(D);
  static constexpr int kTiles = D / SwizzledTile::kColumns, kScoreTiles = kQueries / SwizzledTile::kColumns;
  static constexpr int kKeyTile = SwizzledTile::elements(kKeys),
                       kQueryTile = SwizzledTile::elements(kQueries);
  T *k, *v;           // (tiles, 128, 64)
  T *q, *dout;        // (stages, tiles, queries, 64)
  T* ds;              // (2, score tiles, 128 keys, 64 queries): the scores' gradients, transposed
  float* statistics;  // (stages, 2, queries): log-sum-exps in powers of two, deltas
  // The barriers say: keys and values have arrived; a stage's queries have arrived; nobody needs the stage
  // any more; each consumer may add its part of dQ; each consumer has added it.
  PhaseBarrier *has_keys, *has_queries, *free_queries, *may_add, *has_added;
  int* work;

  static constexpr std::size_t kBytes =
      (kTiles * (2 * kKeyTile + 2 * kStages * kQueryTile) + 2 * kScoreTiles * kKeyTile) * sizeof(T) +
      kStages * 2 * kQueries * sizeof(float) + (1 + 2 * kStages + 2 * kConsumers) * sizeof(PhaseBarrier) +
      sizeof(int) + SwizzledTile::kAlignment;

  CUDA_DEVICE Memory() {
    k = aligned_shared_memory<T>();
    v = k + kTiles * kKeyTile;
    q = v + kTiles * kKeyTile;
    dout = q + kStages * kTiles * kQueryTile;
    ds = dout + kStages * kTiles * kQueryTile;
    statistics = reinterpret_cast<float*>(ds + 2 * kScoreTiles * kKeyTile);
    has_keys = reinterpret_cast<PhaseBarrier*>(statistics + kStages * 2 * kQueries);
    has_queries = has_keys + 1;
    free_queries = has_queries + kStages;
    may_add = free_queries + kStages;
    has_added = may_add + kConsumers;
    work = reinterpret_cast<int*>(has_added + kConsumers);
  }
};

// What a block does: for each of the group's heads in turn, the tiles of queries that see its keys.
struct Work {
  int batch, group, key_tile;
  int first_tile, end_tile;  // of queries
  int first_head, end_head;
};
template <int D>
CUDA_DEVICE Work work_of(const AttentionSizes& s, int number) {
  constexpr int kQueries = queries_of_step(D);
  const int key_tiles = (s.T + kKeys - 1) / kKeys, heads = s.H / s.G;
  Work work{};
  work.key_tile = key_tiles - 1 - number % key_tiles;
  work.group = number / key_tiles % s.G;
  work.batch = number / key_tiles / s.G;
  work.first_tile = first_query_tile(work.key_tile * kKeys, kQueries, s.causal);
  work.end_tile = (s.T + kQueries - 1) / kQueries;
  work.first_head = work.group * heads;
  work.end_head = work.first_head + heads;
  return work;
}

// Step number i of a block's work.
struct Step {
  int i, head, query_tile;

  CUDA_DEVICE explicit Step(const Work& work) : i(0), head(work.first_head), query_tile(work.first_tile) {}
  CUDA_DEVICE bool is_in(const Work& work) const { return head < work.end_head; }
  CUDA_DEVICE void advance(const Work& work) {
    ++i;
    if (++query_tile == work.end_tile) {
      query_tile = work.first_tile;
      ++head;
    }
  }
  CUDA_DEVICE int stage() const { return i % kStages; }
  CUDA_DEVICE int round() const { return i / kStages; }
};

// A consumer's part of dQ in a step: where it is added up, and how many parts come before it.
template <int D>
CUDA_DEVICE std::int64_t sum_of(const AttentionSizes& s, const Work& work, const Step& step, int consumer) {
  return ((static_cast<std::int64_t>(work.batch) * s.H + step.head) * work.end_tile + step.query_tile) *
             kConsumers +
         consumer;
}
template <int D>
CUDA_DEVICE int earlier_parts(const AttentionSizes& s, const Work& work, const Step& step) {
  return last_key_tile(step.query_tile, queries_of_step(D), kKeys, (s.T + kKeys - 1) / kKeys, s.causal) -
         work.key_tile;
}

// One thread runs this.
template <int D, class T>
CUDA_DEVICE void copy_tiles(const Arguments<T>& a, const Memory<D, T>& memory, const Work& work) {
  using M = Memory<D, T>;
  arrive_and_expect(memory.has_keys, 2 * tile_bytes<D>(kKeys));
  load_tiles<D>(memory.k, kKeys, a.k, work.group, work.key_tile * kKeys, work.batch, memory.has_keys);
  load_tiles<D>(memory.v, kKeys, a.v, work.group, work.key_tile * kKeys, work.batch, memory.has_keys);
  for (Step step(work); step.is_in(work); step.advance(work)) {
    const int stage = step.stage(), first = step.query_tile * M::kQueries;
    if (step.round() > 0) wait_for_phase(memory.free_queries + stage, step.round() - 1);
    PhaseBarrier* const barrier = memory.has_queries + stage;
    arrive_and_expect(barrier, 2 * tile_bytes<D>(M::kQueries));
    load_tiles<D>(memory.q + stage * M::kTiles * M::kQueryTile, M::kQueries, a.q, step.head, first,
                  work.batch, barrier);
    load_tiles<D>(memory.dout + stage * M::kTiles * M::kQueryTile, M::kQueries, a.dout, step.head, first,
                  work.batch, barrier);
  }
}

// One warp runs this.
template <int D, class T>
CUDA_DEVICE void copy_statistics(const Arguments<T>& a, const Memory<D, T>& memory, const Work& work) {
  using M = Memory<D, T>;
  for (Step step(work); step.is_in(work); step.advance(work)) {
    const int stage = step.stage(), first = step.query_tile * M::kQueries;
    if (step.round() > 0) wait_for_phase(memory.free_queries + stage, step.round() - 1);
    float* const to = memory.statistics + stage * 2 * M::kQueries;
    for (int t = lane_index(); t < M::kQueries; t += kWarp) {
      const bool valid = first + t < a.s.T;
      const std::int64_t at = a.s.statistic(work.batch, step.head, first + t);
      to[t] = valid ? a.lse[at] * kLog2e : INFINITY;  // queries beyond the end get probability 0
      to[M::kQueries + t] = valid ? a.delta[at] : 0;
    }
    arrive_as_warp(memory.has_queries + stage);
  }
}

// One thread for each consumer runs this.
template <int D, class T>
CUDA_DEVICE void keep_order(const Arguments<T>& a, const Memory<D, T>& memory, const Work& work,
                            int consumer) {
  for (Step step(work); step.is_in(work); step.advance(work)) {
    int* const count = a.counts + sum_of<D>(a.s, work, step, consumer);
    const int earlier = earlier_parts<D>(a.s, work, step);
    wait_for_count(count, earlier);
    arrive(memory.may_add + consumer);
    wait_for_phase(memory.has_added + consumer, step.i);
    publish_count(count, earlier + 1);
  }
}

template <int D, class T>
CUDA_DEVICE void consume(const Arguments<T>& a, const Memory<D, T>& memory, const Work& work, int consumer) {
  using M = Memory<D, T>;
  constexpr int kQueries = M::kQueries;
  const AttentionSizes& s = a.s;
  // This lane's first row among the consumers' keys.
  const int row_of_lane = consumer * kRows + warp_index() % 4 * 16 + lane_index() / 4;
  const int first_key = work.key_tile * kKeys;
  const T* const k = memory.k + SwizzledTile::elements(consumer * kRows);
  const T* const v = memory.v + SwizzledTile::elements(consumer * kRows);
  const float to_exponent = s.scale * kLog2e;
  float dk[D / 8][4] = {}, dv[D / 8][4] = {};
  wait_for_phase(memory.has_keys, 0);
  for (Step step(work); step.is_in(work); step.advance(work)) {
    const int stage = step.stage(), first = step.query_tile * kQueries;
    const T* const q = memory.q + stage * M::kTiles * M::kQueryTile;
    const T* const dout = memory.dout + stage * M::kTiles * M::kQueryTile;
    const float* const lse = memory.statistics + stage * 2 * kQueries;
    const float* const delta = lse + kQueries;
    wait_for_phase(memory.has_queries + stage, step.round());

    WarpgroupSums<kQueries> p, ds;  // (keys, queries)
    begin_products();
#pragma unroll
    for (int d = 0; d < D; d += 16)
      multiply_rows(p, k + d / 64 * M::kKeyTile, q + d / 64 * M::kQueryTile, d % 64, d > 0);
    commit_products();
#pragma unroll
    for (int d = 0; d < D; d += 16)
      multiply_rows(ds, v + d / 64 * M::kKeyTile, dout + d / 64 * M::kQueryTile, d % 64, d > 0);
    commit_products();

    wait_for_products<1>(p);
    const auto to_probabilities = [&] {
#pragma unroll
      for (int n = 0; n < kQueries / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          p[n][e] = exp2_fast(p[n][e] * to_exponent - lse[n * 8 + accumulator_place(lane_index(), e).column]);
    };
    // Keys beyond the end are zeros, and zeros would still get a probability. Both sides of the branch
    // exponentiate, as in the forward kernel, so that the assembler leaves that beside the other product.
    if (first_key + kKeys > s.T || (s.causal && first < first_key + kKeys)) {
#pragma unroll
      for (int n = 0; n < kQueries / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const Place place = accumulator_place(lane_index(), e);
          const int key = first_key + row_of_lane + e / 2 * 8, query = first + n * 8 + place.column;
          if (key >= s.T || (s.causal && key > query)) p[n][e] = -INFINITY;
        }
      to_probabilities();
    } else {
      to_probabilities();
    }
    wait_for_products<0>(ds);
#pragma unroll
    for (int n = 0; n < kQueries / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        ds[n][e] = p[n][e] * (ds[n][e] - delta[n * 8 + accumulator_place(lane_index(), e).column]);
    std::uint32_t packed_p[kQueries / 16][4], packed_ds[kQueries / 16][4];
#pragma unroll
    for (int n = 0; n < kQueries / 16; ++n) accumulators_as_a<T>(packed_p[n], p[2 * n], p[2 * n + 1]);
    // There are two copies, used in turn. Before this one is written again, both consumers pass the barrier
    // of the step between, which comes after their products with it.
    const int row = not_before(row_of_lane), pair = accumulator_place(lane_index(), 0).column;
    T* const shared_ds = memory.ds + step.i % 2 * M::kScoreTiles * M::kKeyTile;
#pragma unroll
    for (int n = 0; n < kQueries / 16; ++n) {
      accumulators_as_a<T>(packed_ds[n], ds[2 * n], ds[2 * n + 1]);
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        const int unit = n * 2 + part / 2;  // of eight queries
        T* const tile = shared_ds + unit / 8 * M::kKeyTile;
        *reinterpret_cast<std::uint32_t*>(tile + SwizzledTile::offset(row + part % 2 * 8, unit % 8 * 8) +
                                          pair) = packed_ds[n][part];
      }
    }
    begin_products();
#pragma unroll
    for (int n = 0; n < kQueries / 16; ++n) multiply_registers(dv, packed_p[n], dout, n * 16, M::kQueryTile);
#pragma unroll
    for (int n = 0; n < kQueries / 16; ++n) multiply_registers(dk, packed_ds[n], q, n * 16, M::kQueryTile);
    commit_products();

    publish_to_products();
    sync_threads(1, kConsumers * kWarpgroup);
    WarpgroupSums<64> dq;
    begin_products();
#pragma unroll
    for (int key = 0; key < kKeys; key += 16)
      multiply_columns(dq, shared_ds + (M::kScoreTiles > 1 ? consumer * M::kKeyTile : 0),
                       memory.k + (M::kTiles > 1 ? consumer * M::kKeyTile : 0), key, key > 0);
    commit_products();
    wait_for_products<1>(dv, dk);
    arrive_as_warp(memory.free_queries + stage);
    wait_for_products<0>(dq);

    float* const to = a.sums + sum_of<D>(s, work, step, consumer) * kPart + thread_index() % kWarpgroup * 4;
    const bool is_first = earlier_parts<D>(s, work, step) == 0;
    wait_for_phase(memory.may_add + consumer, step.i);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      if (is_first)
        store<4>(to + n * 4 * kWarpgroup, dq[n]);
      else
        add_to_global(to + n * 4 * kWarpgroup, dq[n]);
    }
    arrive_as_warp(memory.has_added + consumer);
  }
  const std::int64_t first_row = static_cast<std::int64_t>(work.batch) * s.T + first_key;
  const int warp_row = consumer * kRows + warp_index() % 4 * 16;
  store_rows<D>(a.dk.of(first_row, work.group), warp_row, s.T - first_key, D, dk, {s.scale, s.scale});
  store_rows<D>(a.dv.of(first_row, work.group), warp_row, s.T - first_key, D, dv, {1, 1});
}

// Grid: a block for each tile of keys of each group of heads and each sequence.
template <int D, class T>
CUDA_KERNEL_RESIDENT(kThreads, 1)
attention_hopper_backward_kernel(CUDA_GRID_CONSTANT Arguments<T> a) {
  const Memory<D, T> memory;
  if (thread_index() == 0) {
    constexpr int kWarps = kWarpgroup / kWarp;
    init_barrier(memory.has_keys, 1);
    for (int stage = 0; stage < kStages; ++stage) {
      init_barrier(memory.has_queries + stage, 2);  // the copying thread and the statistics' warp
      init_barrier(memory.free_queries + stage, kConsumers * kWarps);
    }
    for (int consumer = 0; consumer < kConsumers; ++consumer) {
      init_barrier(memory.may_add + consumer, 1);
      init_barrier(memory.has_added + consumer, kWarps);
    }
    publish_barriers();
    *memory.work = take_number(a.next_work);
  }
  sync_block();
  const Work work = work_of<D>(a.s, *memory.work);
  const int warpgroup = thread_index() / kWarpgroup;
  if (warpgroup == 0) {
    keep_registers<kProducerRegisters>();
    if (warp_index() == 1)
      copy_statistics<D, T>(a, memory, work);
    else if (lane_index() == 0 && warp_index() == 0)
      copy_tiles<D, T>(a, memory, work);
    else if (lane_index() == 0)
      keep_order<D, T>(a, memory, work, warp_index() - 2);
  } else {
    take_registers<kConsumerRegisters>();
    consume<D, T>(a, memory, work, warpgroup - 1);
  }
}

constexpr int kCountThreads = 256;
CUDA_KERNEL(kCountThreads)
zero_counts_kernel(int* counts, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(block_index().x) * block_size() + thread_index();
  if (i < count) counts[i] = 0;
}

// dq = scale * sums, rounded. The sums lie in the order in which the consumers' threads hold them: each
// thread here takes the place of one of those. Grid: (tiles of queries, H, B).
template <int D, class T>
CUDA_KERNEL(kConsumers* kWarpgroup)
store_queries_kernel(Heads<T> dq, const float* sums, AttentionSizes s) {
  constexpr int kQueries = queries_of_step(D);
  const int batch = block_index().z, head = block_index().y, tile = block_index().x;
  const int consumer = thread_index() / kWarpgroup, thread = thread_index() % kWarpgroup;
  const std::int64_t index =
      ((static_cast<std::int64_t>(batch) * s.H + head) * grid_size().x + tile) * kConsumers + consumer;
  const float* const from = sums + index * kPart + thread * 4;
  const int first_row = tile * kQueries + (kQueries > 64 ? consumer * 64 : 0) + thread / kWarp * 16;
  const int first_column = kQueries > 64 ? 0 : consumer * 64;
  WarpgroupSums<64> x;
#pragma unroll
  for (int n = 0; n < 8; ++n) load<4>(x[n], from + n * 4 * kWarpgroup);
  Rows<T> rows = dq.of(static_cast<std::int64_t>(batch) * s.T, head);
  rows.first += first_column;
  store_rows<64>(rows, first_row, s.T, 64, x, {s.scale, s.scale});
}

// Parts of the scratch memory, in bytes from its beginning.
struct ScratchLayout {
  std::int64_t counts, sums, end;
};
std::int64_t parts_of(AttentionShape s) {
  return s.B * s.H * ceil_div(s.T, queries_of_step(s.D)) * kConsumers;
}
ScratchLayout layout_of(AttentionShape s) {
  constexpr std::int64_t kAlignment = 256;
  const auto aligned = [](std::int64_t bytes) { return ceil_div(bytes, kAlignment) * kAlignment; };
  ScratchLayout layout{};
  layout.counts = aligned(s.B * s.H * s.T * static_cast<std::int64_t>(sizeof(float)));
  layout.sums = layout.counts + aligned((1 + parts_of(s)) * static_cast<std::int64_t>(sizeof(int)));
  layout.end = layout.sums + parts_of(s) * kPart * static_cast<std::int64_t>(sizeof(float));
  return layout;
}

}  // namespace

std::int64_t attention_hopper_backward_scratch(AttentionShape s) {
  return layout_of(s).end;
}

void attention_hopper_backward(const Context& context, Tensor dqkv, ConstTensor dout, ConstTensor qkv,
                               ConstTensor out, const float* lse, AttentionShape s,
                               const AttentionMask& mask) {
  if (!hopper_takes(qkv.type, s, mask))
    throw CudaError(
        "attention_hopper_backward takes bf16 and fp16, head sizes 64 and 128 and sequences of one length");
  const ScratchLayout layout = layout_of(s);
  std::byte* const scratch = context.scratch_for<std::byte>(layout.end);
  float* const delta = reinterpret_cast<float*>(scratch);
  int* const counts = reinterpret_cast<int*>(scratch + layout.counts);
  float* const sums = reinterpret_cast<float*>(scratch + layout.sums);
  attention_deltas(context, delta, dout, out, s, mask);
  start(
      context,
      {.grid = {static_cast<int>(ceil_div(1 + parts_of(s), kCountThreads)), 1, 1}, .threads = kCountThreads},
      zero_counts_kernel, counts, 1 + parts_of(s));
  const auto launch = [&]<int D, class T>() {
    constexpr int kQueries = queries_of_step(D);
    const auto a = backward_arguments(dqkv.as<T>(), dout.as<T>(), qkv.as<T>(), lse, delta, s, mask);
    const Arguments<T> arguments{map_heads(a.q, s.H, s.T, s.B, kQueries),
                                 map_heads(a.k, s.G, s.T, s.B, kKeys),
                                 map_heads(a.v, s.G, s.T, s.B, kKeys),
                                 map_heads(a.dout, s.H, s.T, s.B, kQueries),
                                 a.dk,
                                 a.dv,
                                 lse,
                                 delta,
                                 sums,
                                 counts + 1,
                                 counts,
                                 a.s};
    start(context,
          {.grid = {static_cast<int>(ceil_div(s.T, kKeys) * s.G * s.B), 1, 1},
           .threads = kThreads,
           .shared_bytes = Memory<D, T>::kBytes},
          attention_hopper_backward_kernel<D, T>, arguments);
    start(context,
          {.grid = {static_cast<int>(ceil_div(s.T, kQueries)), static_cast<int>(s.H), static_cast<int>(s.B)},
           .threads = kConsumers * kWarpgroup},
          store_queries_kernel<D, T>, a.dq, sums, a.s);
  };
  with_16_bit_type(qkv.type, [&]<class T>(T) {
    s.D == 64 ? launch.template operator()<64, T>() : launch.template operator()<128, T>();
  });
}

}  // namespace kernels::cuda
