// A product of one row, with its input's norm and what follows on the result. There are as many blocks as
// multiprocessors, and each goes through its tiles of the weights' rows: all that a thread will use next is
// under way, from the first instruction on, before the kernel that makes the input has ended, and while sums
// are brought together.
//
// Matrix instructions multiply, since they leave instructions for the weights in few bits: their left factor
// is 16 rows of weights, of which rows i and i + 8 are a pair that meets in the ending. Where a row is long
// enough, a tile is fewer rows, and its 16 are 2 or 4 segments of them: each segment has columns of its own
// in the right factor. So the rows of narrow matrices, too, are divided evenly. Beside each column of the
// right factor, which holds the input rounded to bf16, is one with what the rounding has left, if there is
// any.
//
// A warp has the same columns of all of the block's rows. Its sums go to shared memory, and the block adds up
// those of many tiles at a time. Which columns are summed where depends on the shape alone.
#include <algorithm>

#include "kernels/cuda/append.h"
#include "kernels/cuda/early_start.h"
#include "kernels/cuda/gelu.h"
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/weight_pairs.h"

namespace kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kPairBits = 3;         // 8 pairs of rows a tile, where these are not cut into segments
constexpr int kMostSegmentBits = 2;  // 4, as many as the right factor has columns for, two each
constexpr int kPending = 32;         // tiles whose sums wait for being added up
constexpr int kThreadsOfPair = 4;    // that add up
constexpr std::int64_t kMostInTwoParts = 1
                                         << 15;  // columns of an input that shared memory has room for twice

template <WeightFormat Format>
inline constexpr int kInVector = 4 * kInWord<Format>;
// Eight weights each, of a vector.
template <WeightFormat Format>
inline constexpr int kOctets = kInVector<Format> / 8;
// Vectors of two rows that a thread has under way.
template <WeightFormat Format>
inline constexpr int kAhead = Format == WeightFormat::bf16   ? 8
                              : Format == WeightFormat::int4 ? 4
                                                             : 6;

using NormKind = InputNorm::Kind;
using EndingKind = Ending::Kind;

struct Arguments {
  const bf16* inp;
  Weights weights;
  const bf16 *bias, *addend;
  int N = 0, K = 0;
  int segment_bits = 0;  // of a row there are 1, 2 or 4 segments
  int rounds = 1;        // of a tile: each warp takes a slice of four vectors of each segment
  int parts = 1;         // of the input: 2 where it is not bf16 exactly
  int tiles_of_block = 0, blocks_with_more = 0;  // and of the first blocks one more
  // Between the rows of a pair: of each 2 `apart` rows, i and i + apart meet.
  Divisor apart{};
  // InputNorm's.
  NormKind norm = NormKind::none;
  const bf16 *gain = nullptr, *shift = nullptr;
  float eps = 0;
  bf16* normed = nullptr;
  // Ending's. Of the two caches, that of the cache's type.
  EndingKind ending = EndingKind::none;
  bf16* activated = nullptr;
  AppendArguments<bf16, bf16> append{};
  AppendArguments<bf16, e4m3> append_fp8{};

  CUDA_HOST_DEVICE int pairs() const { return (N + 1) / 2; }
  CUDA_HOST_DEVICE int pairs_of_tile() const { return 1 << pair_bits(); }
  CUDA_HOST_DEVICE int pair_bits() const { return kPairBits - segment_bits; }
  CUDA_HOST_DEVICE int tiles() const { return (pairs() + pairs_of_tile() - 1) >> pair_bits(); }
  CUDA_HOST_DEVICE int slots() const { return kWarps << segment_bits; }
  CUDA_HOST_DEVICE int first_row(int pair) const {
    const auto p = static_cast<std::uint32_t>(pair);
    return static_cast<int>(p + apart.quotient(p) * apart.divisor());
  }
  // The second row of the last pair may be missing.
  CUDA_HOST_DEVICE int second_row(int first) const { return first + static_cast<int>(apart.divisor()); }
};

CUDA_HOST_DEVICE int least(int a, int b) {
  return a < b ? a : b;
}

// Of numbers that are not negative: one instruction.
CUDA_DEVICE std::uint64_t product_of(int a, int b) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(a)) * static_cast<std::uint32_t>(b);
}

// What is read once.
CUDA_DEVICE Vector load_once(const Vector* from) {
#ifdef __CUDA_ARCH__
  Vector to;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(to.words[0]), "=r"(to.words[1]), "=r"(to.words[2]), "=r"(to.words[3])
               : "l"(from));
  return to;
#else
  return *from;
#endif
}

// Brings into the second cache what will be read when nothing else is left to be waited for.
CUDA_DEVICE void prefetch(const void* from) {
#ifdef __CUDA_ARCH__
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
#else
  (void)from;
#endif
}

// The mean of a row, and 1 over its deviation.
struct Statistics {
  float mean = 0, rstd = 1;
};

// LayerNorm's of the input, by the block. partials: of kWarps sums.
CUDA_DEVICE Statistics statistics_of(const Arguments& a, float* partials) {
  const auto sum_of = [&](const auto& term) {
    float sum = 0;
    for (int k = thread_index() * 8; k < a.K; k += kThreads * 8) {
      float x[8];
      load<8>(x, a.inp + k);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum += term(x[i]);
    }
    return block_sum(sum, partials);
  };
  const float mean = sum_of([](float x) { return x; }) / static_cast<float>(a.K);
  const float squares = sum_of([=](float x) { return (x - mean) * (x - mean); });
  return {mean, 1 / sqrtf(squares / static_cast<float>(a.K) + a.eps)};
}

// x, of the columns from k on, under its norm, by the statistics.
CUDA_DEVICE void normalise(float (&x)[8], const Arguments& a, Statistics s, int k) {
  float term[8];
  load<8>(term, a.gain + k);
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = (x[i] - s.mean) * s.rstd * term[i];
  if (a.norm != NormKind::layer || a.shift == nullptr) return;
  load<8>(term, a.shift + k);
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] += term[i];
}

// The input in shared memory as the right factor's fragments, zeros behind its end. Eight columns after the
// other: first those that a lane of four meets at a time, then the next lane's. Returns this thread's sum of
// squares, which RMSNorm needs: its factor is applied to the results.
template <WeightFormat Format>
CUDA_DEVICE float arrange_input(Vector* to, const Arguments& a, Statistics s) {
  float squares = 0;
  const int octets = a.rounds * a.slots() * 4 * kOctets<Format>;
  for (int octet = thread_index(); octet < octets; octet += kThreads) {
    const int k = octet * 8;
    float x[8] = {};
    if (k < a.K) {
      load<8>(x, a.inp + k);
      if (a.norm == NormKind::rms)
#pragma unroll
        for (int i = 0; i < 8; ++i) squares += x[i] * x[i];
      if (a.norm != NormKind::none) normalise(x, a, s, k);
    }
    Vector high, low;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      constexpr bool kHalves = Format == WeightFormat::int4;  // as widen() pairs them
      const float first = x[kHalves ? i : 2 * i], second = x[kHalves ? i + 4 : 2 * i + 1];
      high.words[i] = pack_pair<bf16>(first, second);
      low.words[i] = pack_pair<bf16>(first - first_of(high.words[i]), second - second_of(high.words[i]));
    }
    const int vector = octet / kOctets<Format>, of_vector = octet % kOctets<Format>;
    Vector* const place = to + (vector / 4 * 4 * kOctets<Format> + of_vector * 4 + vector % 4) * a.parts;
    place[0] = high;
    if (a.parts == 2) place[1] = low;
  }
  return squares;
}

template <class K>
CUDA_DEVICE void rotate_and_append(const AppendArguments<bf16, K>& a, int first, float x, float y) {
  const int head = first / a.s.D, d = first % a.s.D, half = a.s.D / 2, position = a.positions[0];
  float low[1] = {x}, high[1] = {y};
  if (head < a.s.H + a.s.G) {
    rotate<bf16>(low, high, a.table + static_cast<std::int64_t>(position) * a.s.D + d, half);
  } else {  // as the cache would find them in qkv
    low[0] = to_float(from_float<bf16>(x));
    high[0] = to_float(from_float<bf16>(y));
  }
  store<1>(a.qkv + first, low);
  store<1>(a.qkv + first + half, high);
  if (head < a.s.H) return;
  store_cached(a, 0, head - a.s.H, position, d, low);
  store_cached(a, 0, head - a.s.H, position, d + half, high);
}

// By one thread, which has both of a pair's results.
template <class Out>
CUDA_DEVICE void end_pair(Out* out, const Arguments& a, int first, float x, float y) {
  const int second = a.second_row(first);
  if (a.ending == EndingKind::rotate_append)
    return a.append_fp8.qkv != nullptr ? rotate_and_append(a.append_fp8, first, x, y)
                                       : rotate_and_append(a.append, first, x, y);
  out[first] = from_float<Out>(x);
  if (second < a.N) out[second] = from_float<Out>(y);
  if (a.ending == EndingKind::none) return;
  if (a.ending == EndingKind::gelu) {
    a.activated[first] = from_float<bf16>(gelu(x));
    if (second < a.N) a.activated[second] = from_float<bf16>(gelu(y));
  } else {
    const float gate = a.ending == EndingKind::gelu_gate ? gelu(x) : x / (1 + expf(-x));
    a.activated[first] = from_float<bf16>(gate * y);
  }
}

// The sums of a pair of rows.
struct alignas(8) Sums {
  float first, second;
};

// Sums of kPending tiles: (pairs, slots), and one between pairs, so that threads which read different pairs
// read different banks.
CUDA_HOST_DEVICE int pending_sums(const Arguments& a) {
  return kPending * a.pairs_of_tile() * (a.slots() + 1);
}

// Shared memory: the input; two turns' pending sums; kWarps sums of squares.
template <class Out, WeightFormat Format>
CUDA_KERNEL_RESIDENT(kThreads, 2)
gemv_one_row_kernel(Out* out, Arguments a) {
  constexpr bool kGrouped = Format == WeightFormat::int4;
  const int lane = lane_index(), quad = lane / 4, of_four = lane % 4;
  const int last_segment = (1 << a.segment_bits) - 1, segment = quad & last_segment;
  const int slots = a.slots(), first_slot = warp_index() << a.segment_bits, slot = first_slot + segment;
  const int pair_bits = a.pair_bits(), pair_in_tile = quad >> a.segment_bits;
  const int blocks = grid_size().x;
  const int tiles_of_block = a.tiles_of_block + (block_index().x < a.blocks_with_more ? 1 : 0);
  const int steps = tiles_of_block * a.rounds;
  // Of a row; slices of int4.
  const int vectors = static_cast<int>(static_cast<unsigned>(a.K) / kInVector<Format>);
  const int slices = static_cast<int>(static_cast<unsigned>(a.K) / kInt4Group);

  // Where the next step to be loaded is. Rows and vectors beyond the last are read as the last; such vectors
  // meet zeros, such rows' results are not used.
  int next_tile = block_index().x, next_round = 0;
  const Vector *rows[2], *const all_weights = static_cast<const Vector*>(a.weights.data);
  const float* scales[2] = {};
  const auto find_rows = [&] {
    const int pair = least((next_tile << pair_bits) + pair_in_tile, a.pairs() - 1);
    const int first = a.first_row(pair), second = least(a.second_row(first), a.N - 1);
    rows[0] = all_weights + product_of(first, vectors);
    rows[1] = all_weights + product_of(second, vectors);
    if constexpr (kGrouped) {
      scales[0] = a.weights.scales + product_of(first, slices);
      scales[1] = a.weights.scales + product_of(second, slices);
    }
  };
  struct Step {
    Vector weights[2];
    float scales[kGrouped ? 2 : 1];
  };
  Step ahead[kAhead<Format>];
  const auto load_next = [&](Step& step) {
    const int slice = next_round * slots + slot, vector = least(slice * 4 + of_four, vectors - 1);
#pragma unroll
    for (int r = 0; r < 2; ++r) step.weights[r] = load_once(rows[r] + vector);
    if constexpr (kGrouped)
#pragma unroll
      for (int r = 0; r < 2; ++r) step.scales[r] = scales[r][least(slice, slices - 1)];
    if (++next_round < a.rounds) return;
    next_round = 0;
    next_tile += blocks;
    find_rows();
  };

  const auto pair_of_block = [&](int i) {  // the i'th of the block's pairs
    return ((static_cast<int>(block_index().x) + (i >> pair_bits) * blocks) << pair_bits) +
           (i & ((1 << pair_bits) - 1));
  };
  const auto prefetch_row = [&](int row) {
    if (Format == WeightFormat::int8 || Format == WeightFormat::fp8) prefetch(a.weights.scales + row);
    if (a.bias != nullptr) prefetch(a.bias + row);
  };

  let_next_kernel_begin();
  find_rows();
#pragma unroll
  for (int i = 0; i < kAhead<Format>; ++i)
    if (i < steps) load_next(ahead[i]);
  for (int i = thread_index(); i < tiles_of_block << pair_bits; i += kThreads) {
    const int pair = pair_of_block(i);
    if (pair >= a.pairs()) continue;
    const int first = a.first_row(pair), second = a.second_row(first);
    prefetch_row(first);
    if (second < a.N) prefetch_row(second);
  }
  if (a.norm != NormKind::none)
    for (int k = thread_index() * 8; k < a.K; k += kThreads * 8) {
      prefetch(a.gain + k);
      if (a.shift != nullptr) prefetch(a.shift + k);
    }
  wait_for_kernel_before();

  Vector* const input = shared_memory<Vector>();
  Sums* const sums = reinterpret_cast<Sums*>(input + a.rounds * slots * 4 * kOctets<Format> * a.parts);
  float* const warp_squares = reinterpret_cast<float*>(sums + 2 * pending_sums(a));
  Statistics statistics;
  if (a.norm == NormKind::layer) statistics = statistics_of(a, warp_squares);
  const float squares = warp_sum(arrange_input<Format>(input, a, statistics));
  if (a.norm == NormKind::rms && lane == 0) warp_squares[warp_index()] = squares;
  sync_block();
  if (a.norm == NormKind::rms) {
    float sum = 0;
    for (int warp = 0; warp < kWarps; ++warp) sum += warp_squares[warp];
    statistics.rstd = 1 / sqrtf(sum / static_cast<float>(a.K) + a.eps);
  }

  // This lane's column of the right factor.
  const int column_slot = first_slot + (quad / 2 & last_segment);
  const Vector* const column =
      input + (column_slot * 4 * kOctets<Format> + of_four) * a.parts + (a.parts == 2 ? quad % 2 : 0);
  const int input_of_round = slots * 4 * kOctets<Format> * a.parts;
  float product[2][4] = {}, of_tile[kGrouped ? 2 : 1] = {};
  int round = 0, pending = 0, ended = 0;  // tiles
  Sums* place = sums + pair_in_tile * (slots + 1) + slot;

  const auto multiply = [&](const Step& step) {
    const Vector* const x = column + round * input_of_round;
#pragma unroll
    for (int octet = 0; octet < kOctets<Format>; ++octet) {
      std::uint32_t pairs[2][4];
#pragma unroll
      for (int r = 0; r < 2; ++r)
#pragma unroll
        for (int part = 0; part < 4 / kPairs<Format>; ++part) {
          std::uint32_t some[kPairs<Format>];
          widen<Format>(some, step.weights[r].words + octet * 8 / kInWord<Format> + part * kWords<Format>);
#pragma unroll
          for (int i = 0; i < kPairs<Format>; ++i) pairs[r][part * kPairs<Format> + i] = some[i];
        }
      const Vector with = x[octet * 4 * a.parts];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::uint32_t fragment[4] = {pairs[0][2 * half], pairs[1][2 * half], pairs[0][2 * half + 1],
                                           pairs[1][2 * half + 1]};
        multiply_add<bf16>(product[half], fragment, with.words[2 * half], with.words[2 * half + 1]);
      }
    }
  };
  // The products' sums of a pair in the lane whose columns are those of the pair's segment.
  const auto take_products = [&](int r) {
    float sum = product[0][2 * r] + product[1][2 * r];
    if (a.parts == 2) sum += product[0][2 * r + 1] + product[1][2 * r + 1];
    return sum;
  };
  const auto clear_products = [&] {
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < 4; ++i) product[half][i] = 0;
  };
  const auto end_step = [&](const Step& step) {
    if constexpr (kGrouped) {
#pragma unroll
      for (int r = 0; r < 2; ++r) of_tile[r] += step.scales[r] * take_products(r);
      clear_products();
    }
    if (++round < a.rounds) return;
    round = 0;
    if constexpr (kGrouped) {
      if (of_four == segment) *place = {of_tile[0], of_tile[1]};
      of_tile[0] = of_tile[1] = 0;
    } else {
      if (of_four == segment) *place = {take_products(0), take_products(1)};
      clear_products();
    }
    place += (slots + 1) << pair_bits;
    ++pending;
  };
  const auto result = [&](int row, float sum) {
    if (a.norm == NormKind::rms) sum *= statistics.rstd;
    if constexpr (Format == WeightFormat::int8 || Format == WeightFormat::fp8) sum *= a.weights.scales[row];
    if (a.bias != nullptr) sum += to_float(a.bias[row]);
    if (a.addend != nullptr) sum += to_float(a.addend[row]);
    return sum;
  };
  // A barrier: all warps' sums are there. The next ones go where those before these were, which all warps
  // have read when they come to the next barrier.
  int turn = 0;
  const auto end_tiles = [&] {
    sync_block();
    const Sums* const all = sums + turn * pending_sums(a);
    const int count = pending << pair_bits;
    for (int from = 0; from < count; from += kThreads / kThreadsOfPair) {
      const int i = from + thread_index() / kThreadsOfPair;
      Sums total{};
      if (i < count)
        for (int s = thread_index() % kThreadsOfPair; s < slots; s += kThreadsOfPair) {
          total.first += all[i * (slots + 1) + s].first;
          total.second += all[i * (slots + 1) + s].second;
        }
#pragma unroll
      for (int distance = kThreadsOfPair / 2; distance > 0; distance /= 2) {
        total.first += shuffle_xor(total.first, distance);
        total.second += shuffle_xor(total.second, distance);
      }
      const int pair = pair_of_block((ended << pair_bits) + i);
      if (i >= count || pair >= a.pairs() || thread_index() % kThreadsOfPair != 0) continue;
      const int first = a.first_row(pair), second = a.second_row(first);
      end_pair(out, a, first, result(first, total.first), second < a.N ? result(second, total.second) : 0.0f);
    }
    ended += pending;
    pending = 0;
    turn ^= 1;
    place = sums + turn * pending_sums(a) + pair_in_tile * (slots + 1) + slot;
  };

  for (int step = 0; step < steps; step += kAhead<Format>) {
#pragma unroll
    for (int i = 0; i < kAhead<Format>; ++i) {
      if (step + i >= steps) break;
      multiply(ahead[i]);
      end_step(ahead[i]);
      if (step + i + kAhead<Format> < steps) load_next(ahead[i]);
    }
    if (pending + kAhead < Format >> kPending || step + kAhead<Format> >= steps) end_tiles();
  }

  // A few columns a block of what was multiplied, for whoever else reads it.
  if (a.norm == NormKind::none || a.normed == nullptr) return;
  for (int k = (thread_index() * blocks + block_index().x) * 8; k < a.K; k += kThreads * blocks * 8) {
    float x[8];
    load<8>(x, a.inp + k);
    normalise(x, a, statistics, k);
    store<8>(a.normed + k, x);
  }
}

int multiprocessors() {
#ifdef __CUDACC__
  int gpu = 0, count = 0;
  check(cudaGetDevice(&gpu));
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, gpu));
  return count;
#else
  return emulation::multiprocessors();
#endif
}

template <class Out, WeightFormat Format>
void launch(const Context& context, Out* out, Arguments a) {
  const int slices = static_cast<int>(ceil_div(a.K, 4 * kInVector<Format>));  // the last one may be short
  a.segment_bits = kMostSegmentBits;
  while (a.segment_bits > 0 && slices < a.slots()) --a.segment_bits;
  a.rounds = static_cast<int>(ceil_div(slices, a.slots()));
  const int blocks = std::min(a.tiles(), multiprocessors());
  a.tiles_of_block = a.tiles() / blocks;
  a.blocks_with_more = a.tiles() % blocks;
  const std::int64_t input = static_cast<std::int64_t>(a.rounds) * a.slots() * 4 * kOctets<Format> * a.parts;
  start_early(
      context,
      {.grid = {blocks, 1, 1},
       .threads = kThreads,
       .shared_bytes = static_cast<std::size_t>(input) * sizeof(Vector) +
                       2 * static_cast<std::size_t>(pending_sums(a)) * sizeof(Sums) + kWarps * sizeof(float)},
      gemv_one_row_kernel<Out, Format>, out, a);
}

}  // namespace

void gemv_with(const Context& context, Tensor out, ConstTensor inp, const Weights& weights, ConstTensor bias,
               ConstTensor addend, std::int64_t N, std::int64_t K, const InputNorm& norm,
               const Ending& ending) {
  Arguments a{inp.as<bf16>(), weights, bias.as<bf16>(), addend.as<bf16>()};
  a.N = static_cast<int>(N);
  a.K = static_cast<int>(K);
  a.parts = norm.kind != NormKind::none && K <= kMostInTwoParts ? 2 : 1;
  a.norm = norm.kind;
  a.gain = norm.gain.as<bf16>();
  a.shift = norm.shift.as<bf16>();
  a.eps = norm.eps;
  a.normed = norm.normed.as<bf16>();
  a.ending = ending.kind;
  a.activated = ending.activated.as<bf16>();
  std::int64_t apart = 1;
  if (ending.kind == EndingKind::silu_gate || ending.kind == EndingKind::gelu_gate) apart = N / 2;
  if (ending.kind == EndingKind::rotate_append) {
    apart = ending.shape.D / 2;
    const auto append = [&]<class K_>(K_) {
      return AppendArguments<bf16, K_>{out.as<bf16>(),
                                       cached_keys<K_>(ending.cache, ending.shape),
                                       {ending.cache.k_scale, ending.cache.v_scale},
                                       ending.table,
                                       ending.position,
                                       sizes(ending.shape)};
    };
    if (ending.cache.is_fp8())
      a.append_fp8 = append(e4m3{});
    else
      a.append = append(bf16{});
  }
  a.apart = Divisor(static_cast<std::uint32_t>(apart));
  with_type(out.type, [&]<class Out>(Out) {
    Out* const to = out.as<Out>();
    switch (weights.format) {
      case WeightFormat::bf16:
        return launch<Out, WeightFormat::bf16>(context, to, a);
      case WeightFormat::int8:
        return launch<Out, WeightFormat::int8>(context, to, a);
      case WeightFormat::fp8:
        return launch<Out, WeightFormat::fp8>(context, to, a);
      case WeightFormat::int4:
        return launch<Out, WeightFormat::int4>(context, to, a);
    }
  });
}

}  // namespace kernels::cuda
