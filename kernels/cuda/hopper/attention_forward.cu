// FlashAttention-3's forward pass (Shah et al. 2024, arXiv 2407.08608) in 16 bits. A block has 128 queries of
// a head and three warpgroups: one copies, two multiply 64 queries each. A warpgroup's softmax runs beside
// its own product with the values of the tile before, and beside the other warpgroup's products, since the
// two take turns to begin theirs.
#include "kernels/cuda/attention_arguments.h"
#include "kernels/cuda/attention_flash.h"
#include "kernels/cuda/attention_schedule.h"
#include "kernels/cuda/hopper/attention_hopper.h"
#include "kernels/cuda/hopper/pipeline.h"

namespace kernels::cuda {
namespace {

constexpr int kConsumers = 2;  // warpgroups
constexpr int kThreads = (1 + kConsumers) * kWarpgroup;
constexpr int kRows = 64;  // queries of a consumer
constexpr int kQueries = kConsumers * kRows;
constexpr int kKeys = 128;  // a tile
constexpr int kStages = 2;  // tiles of keys, and of values, that are under way or in use
// Each thread has 168 of a multiprocessor's 65,536 registers at the start: these are the most possible.
constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;
constexpr float kLog2e = 1.44269504088896341f, kLn2 = 0.693147180559945309f;

template <class T>
struct Arguments {
  TensorMap q, k, v;
  Heads<T> out;
  float* lse;
  AttentionSizes s;
};

// Shared memory.
template <int D, class T>
struct Memory {
  static constexpr int kTiles = D / SwizzledTile::kColumns;
  static constexpr int kQueryTile = SwizzledTile::elements(kQueries),
                       kKeyTile = SwizzledTile::elements(kKeys);
  T *q, *k, *v;  // (tiles, 128, 64); (stages, tiles, 128, 64) each
  // Barriers for the queries, and for each stage of keys and of values: that they have arrived, and that
  // nobody needs them any more.
  PhaseBarrier *has_q, *has_k, *has_v, *free_k, *free_v;

  static constexpr std::size_t kBytes = (kTiles * (kQueryTile + 2 * kStages * kKeyTile)) * sizeof(T) +
                                        (1 + 4 * kStages) * sizeof(PhaseBarrier) + SwizzledTile::kAlignment;

  CUDA_DEVICE Memory() {
    q = aligned_shared_memory<T>();
    k = q + kTiles * kQueryTile;
    v = k + kStages * kTiles * kKeyTile;
    has_q = reinterpret_cast<PhaseBarrier*>(v + kStages * kTiles * kKeyTile);
    has_k = has_q + 1;
    has_v = has_k + kStages;
    free_k = has_v + kStages;
    free_v = free_k + kStages;
  }
  CUDA_DEVICE T* k_stage(int j) const { return k + j % kStages * kTiles * kKeyTile; }
  CUDA_DEVICE T* v_stage(int j) const { return v + j % kStages * kTiles * kKeyTile; }
};

// One thread copies, in the order in which the consumers need the tiles: values one tile behind keys.
template <int D, class T>
CUDA_DEVICE void produce(const Arguments<T>& a, const Memory<D, T>& memory, int batch, int head, int first,
                         int tiles) {
  const int group = head / (a.s.H / a.s.G);
  const auto load = [&](T* to, const TensorMap& map, int j, PhaseBarrier* has, PhaseBarrier* free) {
    const int stage = j % kStages, round = j / kStages;
    if (round > 0) wait_for_phase(free + stage, round - 1);
    arrive_and_expect(has + stage, tile_bytes<D>(kKeys));
    load_tiles<D>(to, kKeys, map, group, j * kKeys, batch, has + stage);
  };
  arrive_and_expect(memory.has_q, tile_bytes<D>(kQueries));
  load_tiles<D>(memory.q, kQueries, a.q, head, first, batch, memory.has_q);
  for (int j = 0; j <= tiles; ++j) {
    if (j < tiles) load(memory.k_stage(j), a.k, j, memory.has_k, memory.free_k);
    if (j > 0) load(memory.v_stage(j - 1), a.v, j - 1, memory.has_v, memory.free_v);
  }
}

// The two consumers take turns to begin their products.
struct Turns {
  int own, other;  // numbered barriers

  CUDA_DEVICE explicit Turns(int consumer) : own(1 + consumer), other(2 - consumer) {
    if (consumer == 1) pass();  // the first is consumer 0's
  }
  CUDA_DEVICE void wait() const { sync_threads(own, kConsumers * kWarpgroup); }
  CUDA_DEVICE void pass() const { arrive_threads(other, kConsumers * kWarpgroup); }
};

template <int D, class T>
CUDA_DEVICE void consume(const Arguments<T>& a, const Memory<D, T>& memory, int consumer, int batch, int head,
                         int first, int tiles) {
  using M = Memory<D, T>;
  const AttentionSizes& s = a.s;
  const int row = warp_index() % 4 * 16;  // of this warp, among the consumer's queries
  const QueryTile own{first + consumer * kRows, kRows, 0, s.T, s.causal, kKeys};
  const T* const q = memory.q + SwizzledTile::elements(consumer * kRows);
  const float to_exponent = s.scale * kLog2e;
  float o[D / 8][4] = {};
  float highest[2] = {-INFINITY, -INFINITY}, sum[2] = {}, shrink[2];
  WarpgroupSums<kKeys> score;
  std::uint32_t p[kKeys / 16][4];

  const auto begin_scores = [&](int j) {
    wait_for_phase(memory.has_k + j % kStages, j / kStages);
    begin_products();
#pragma unroll
    for (int tile = 0; tile < M::kTiles; ++tile)
#pragma unroll
      for (int column = 0; column < SwizzledTile::kColumns; column += 16)
        multiply_rows(score, q + tile * M::kQueryTile, memory.k_stage(j) + tile * M::kKeyTile, column,
                      tile > 0 || column > 0);
    commit_products();
  };
  const auto begin_output = [&](int j) {
    wait_for_phase(memory.has_v + j % kStages, j / kStages);
    begin_products();
#pragma unroll
    for (int n = 0; n < kKeys / 16; ++n) multiply_registers(o, p[n], memory.v_stage(j), n * 16, M::kKeyTile);
    commit_products();
  };
  // Both sides of the branch exponentiate: after a common end, the assembler would move all of it behind the
  // wait for this group's other product, instead of beside that product (tests/cuda/check_overlap).
  const auto exponentiate_scores = [&](int j) {
    if (!own.needs_mask(j)) {
      exponentiate(score, highest, sum, shrink, to_exponent);
    } else {
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const Place place = accumulator_place(lane_index(), i);
          if (!own.sees(own.first + row + place.row, j * kKeys + n * 8 + place.column))
            score[n][i] = -INFINITY;
        }
      exponentiate(score, highest, sum, shrink, to_exponent);
    }
  };
  const auto pack_scores = [&] {
#pragma unroll
    for (int n = 0; n < kKeys / 16; ++n) accumulators_as_a<T>(p[n], score[2 * n], score[2 * n + 1]);
  };

  const Turns turns(consumer);
  wait_for_phase(memory.has_q, 0);
  turns.wait();
  begin_scores(0);
  turns.pass();
  wait_for_products<0>(score);
  arrive_as_warp(memory.free_k);
  exponentiate_scores(0);
  pack_scores();
  for (int j = 1; j < tiles; ++j) {
    turns.wait();
    begin_scores(j);
    begin_output(j - 1);
    turns.pass();
    wait_for_products<1>(score);
    arrive_as_warp(memory.free_k + j % kStages);
    exponentiate_scores(j);
    wait_for_products<0>(o);
    arrive_as_warp(memory.free_v + (j - 1) % kStages);
    scale_rows(o, shrink);
    pack_scores();
  }
  turns.wait();
  begin_output(tiles - 1);
  if (consumer == 0) turns.pass();  // the last turn is consumer 1's
  wait_for_products<0>(o);

  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sum[half] += shuffle_xor(sum[half], 1);
    sum[half] += shuffle_xor(sum[half], 2);
    factor[half] = 1;
    if (s.sinks != nullptr) {  // one more score, of nobody's value
      const float sink = s.sink(head) * kLog2e, raised = fmaxf(highest[half], sink);
      factor[half] = exp2_fast(highest[half] - raised);
      sum[half] = sum[half] * factor[half] + exp2_fast(sink - raised);
      highest[half] = raised;
    }
    factor[half] /= sum[half];
    const int query = own.first + row + lane_index() / 4 + half * 8;
    if (a.lse != nullptr && lane_index() % 4 == 0 && query < s.T)
      a.lse[s.statistic(batch, head, query)] = highest[half] * kLn2 + logf(sum[half]);
  }
  store_rows<D>(a.out.of(static_cast<std::int64_t>(batch) * s.T + own.first, head), row, s.T - own.first, D,
                o, factor);
}

// Grid: (tiles of queries, H, B).
template <int D, class T>
CUDA_KERNEL_RESIDENT(kThreads, 1)
attention_hopper_forward_kernel(CUDA_GRID_CONSTANT Arguments<T> a) {
  const Memory<D, T> memory;
  const int batch = block_index().z, head = block_index().y;
  // The longest tiles come first, so that what is left over at the end is short.
  const int first = (grid_size().x - 1 - block_index().x) * kQueries;
  const int queries = a.s.T - first < kQueries ? a.s.T - first : kQueries;
  const int tiles = QueryTile{first, queries, 0, a.s.T, a.s.causal, kKeys}.key_tiles();
  if (thread_index() == 0) {
    constexpr int kConsumerWarps = kConsumers * kWarpgroup / kWarp;
    init_barrier(memory.has_q, 1);
    for (int stage = 0; stage < kStages; ++stage) {
      init_barrier(memory.has_k + stage, 1);
      init_barrier(memory.has_v + stage, 1);
      init_barrier(memory.free_k + stage, kConsumerWarps);
      init_barrier(memory.free_v + stage, kConsumerWarps);
    }
    publish_barriers();
  }
  sync_block();
  const int warpgroup = thread_index() / kWarpgroup;
  if (warpgroup == 0) {
    keep_registers<kProducerRegisters>();
    if (thread_index() == 0) produce<D, T>(a, memory, batch, head, first, tiles);
  } else {
    take_registers<kConsumerRegisters>();
    consume<D, T>(a, memory, warpgroup - 1, batch, head, first, tiles);
  }
}

}  // namespace

bool hopper_takes(Type type, AttentionShape s, const AttentionMask& mask) {
  AttentionSizes without_sinks = sizes(s, mask);
  without_sinks.sinks = nullptr;
  return (type == Type::bf16 || type == Type::f16) && (s.D == 64 || s.D == 128) &&
         mask.cu_seqlens == nullptr && without_sinks.is_plain();
}

void attention_hopper_forward(const Context& context, Tensor out, float* lse, ConstTensor qkv,
                              AttentionShape s, const AttentionMask& mask) {
  if (!hopper_takes(qkv.type, s, mask))
    throw CudaError(
        "attention_hopper_forward takes bf16 and fp16, head sizes 64 and 128 and sequences of one length");
  const std::int64_t packed = s.H + 2 * s.G;
  const auto launch = [&]<int D, class T>() {
    const T* const rows = qkv.as<T>();
    const Arguments<T> arguments{map_heads(packed_heads(rows, packed, 0, s), s.H, s.T, s.B, kQueries),
                                 map_heads(packed_heads(rows, packed, s.H, s), s.G, s.T, s.B, kKeys),
                                 map_heads(packed_heads(rows, packed, s.H + s.G, s), s.G, s.T, s.B, kKeys),
                                 packed_heads(out.as<T>(), s.H, 0, s),
                                 lse,
                                 sizes(s, mask)};
    start(context,
          {.grid = {static_cast<int>(ceil_div(s.T, kQueries)), static_cast<int>(s.H), static_cast<int>(s.B)},
           .threads = kThreads,
           .shared_bytes = Memory<D, T>::kBytes},
          attention_hopper_forward_kernel<D, T>, arguments);
  };
  with_16_bit_type(qkv.type, [&]<class T>(T) {
    s.D == 64 ? launch.template operator()<64, T>() : launch.template operator()<128, T>();
  });
}

}  // namespace kernels::cuda
