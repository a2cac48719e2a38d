#include "kernels/cuda/embedding.h"
#include "kernels/cuda/rotation.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 256;

// The row of this part of the weight, of V rows from that of token `first` on, or kElsewhere.
constexpr int kElsewhere = -1;
CUDA_DEVICE int own_row(std::int32_t token, std::int64_t first, std::int64_t V) {
  const std::int64_t row = token - first;
  return row >= 0 && row < V ? static_cast<int>(row) : kElsewhere;
}

// A block a row.
template <class T, int Width>
CUDA_KERNEL(kThreads)
embedding_forward_kernel(T* out, const std::int32_t* tokens, const T* weight, const T* position_weight,
                         const std::int32_t* positions, std::int64_t T_, std::int64_t C, std::int64_t first,
                         std::int64_t V) {
  const std::int64_t row = block_index().x;
  const std::int64_t token = own_row(tokens[row], first, V);
  const std::int64_t position = (positions != nullptr ? positions[row / T_] : 0) + row % T_;
  for (std::int64_t c = static_cast<std::int64_t>(thread_index()) * Width; c < C;
       c += static_cast<std::int64_t>(block_size()) * Width) {
    float sum[Width] = {}, term[Width];
    if (token != kElsewhere) load<Width>(sum, weight + token * C + c);
    if (position_weight != nullptr) {
      load<Width>(term, position_weight + position * C + c);
#pragma unroll
      for (int w = 0; w < Width; ++w) sum[w] += term[w];
    }
    store<Width>(out + row * C + c, sum);
  }
}

// A block has kRankRows rows; parts of it look through a tile of all tokens at a time.
constexpr int kRankRows = 64, kRankParts = kThreads / kRankRows, kRankTile = 1024;

// ranks (R): how many rows before a row have its token; totals (R): how many rows have it. *used becomes 0.
// Shared memory: the tile, then two numbers for each row and part.
CUDA_KERNEL(kThreads)
rank_kernel(int* ranks, int* totals, int* used, const std::int32_t* tokens, int R) {
  int* const tile = shared_memory<int>();
  int* const of_parts = tile + kRankTile;
  constexpr int kOfPart = kRankTile / kRankParts;
  const int first_row = block_index().x * kRankRows, part = thread_index() / kRankRows;
  const int row = first_row + thread_index() % kRankRows;
  constexpr int kNoRow = -1, kNoToken = -2;
  const int token = row < R ? tokens[row] : kNoRow;
  int earlier = 0, later = 0;
  for (int begin = 0; begin < R; begin += kRankTile) {
    sync_block();
    for (int i = thread_index(); i < kRankTile; i += kThreads)
      tile[i] = begin + i < R ? tokens[begin + i] : kNoToken;
    sync_block();
    const int* const mine = tile + part * kOfPart;
    if (begin / kRankTile == first_row / kRankTile) {
      for (int i = 0; i < kOfPart; ++i) {
        const int other = begin + part * kOfPart + i;
        earlier += mine[i] == token && other < row ? 1 : 0;
        later += mine[i] == token && other > row ? 1 : 0;
      }
      continue;
    }
    int found = 0;
#pragma unroll 8
    for (int i = 0; i < kOfPart; i += 4) {
      const auto four = *reinterpret_cast<const Pack<int, 4>*>(mine + i);
#pragma unroll
      for (int k = 0; k < 4; ++k) found += four.values[k] == token ? 1 : 0;
    }
    (begin < first_row ? earlier : later) += found;
  }
  of_parts[2 * thread_index()] = earlier;
  of_parts[2 * thread_index() + 1] = later;
  sync_block();
  if (block_index().x == 0 && thread_index() == 0) *used = 0;
  if (part != 0 || row >= R) return;
  for (int other = 1; other < kRankParts; ++other) {
    earlier += of_parts[2 * (thread_index() + other * kRankRows)];
    later += of_parts[2 * (thread_index() + other * kRankRows) + 1];
  }
  ranks[row] = earlier;
  totals[row] = earlier + 1 + later;
}

// places (V): where in `order` the rows of a token begin. Which token comes first there does not matter.
CUDA_KERNEL(kThreads)
place_kernel(int* places, int* used, const int* ranks, const int* totals, const std::int32_t* tokens, int R,
             std::int64_t first, std::int64_t V) {
  const int row = block_index().x * kThreads + thread_index();
  if (row >= R || ranks[row] != 0) return;
  const int token = own_row(tokens[row], first, V);
  if (token != kElsewhere) places[token] = add_at(used, totals[row]);
}

CUDA_KERNEL(kThreads)
order_kernel(int* order, const int* places, const int* ranks, const std::int32_t* tokens, int R,
             std::int64_t first, std::int64_t V) {
  const int row = block_index().x * kThreads + thread_index();
  if (row >= R) return;
  const int token = own_row(tokens[row], first, V);
  if (token != kElsewhere) order[places[token] + ranks[row]] = row;
}

// A block a row and kThreads * Width columns of it: the block of a token's first row sums all rows of that
// token, in their order, several of them being loaded at a time; those of its later rows have nothing to do.
template <class G, class T, int Width>
CUDA_KERNEL(kThreads)
embedding_backward_kernel(G* dweight, const T* dout, const std::int32_t* tokens, const int* ranks,
                          const int* totals, const int* places, const int* order, std::int64_t C,
                          std::int64_t first, std::int64_t V) {
  constexpr int kOnTheirWay = sizeof(T) == 4 ? 4 : 8;  // as many as registers hold
  const int row = block_index().x;
  if (ranks[row] != 0) return;
  const std::int64_t c = (static_cast<std::int64_t>(block_index().y) * block_size() + thread_index()) * Width;
  const std::int64_t token = own_row(tokens[row], first, V);
  if (c >= C || token == kElsewhere) return;
  const int count = totals[row];
  const int* const rows = order + places[token];
  float sum[Width] = {};
  for (int i = 0; i < count; i += kOnTheirWay) {
    // All loads first, of rows that are there: a condition around each would put it behind the one before.
    Pack<T, Width> packs[kOnTheirWay];
#pragma unroll
    for (int k = 0; k < kOnTheirWay; ++k) {
      const std::int64_t there = rows[i + k < count ? i + k : count - 1];
      packs[k] = *reinterpret_cast<const Pack<T, Width>*>(dout + there * C + c);
    }
#pragma unroll
    for (int k = 0; k < kOnTheirWay; ++k) {
      if (i + k >= count) break;
#pragma unroll
      for (int w = 0; w < Width; ++w) sum[w] += to_float(packs[k].values[w]);
    }
  }
  float total[Width];
  load<Width>(total, dweight + token * C + c);
#pragma unroll
  for (int w = 0; w < Width; ++w) total[w] += sum[w];
  store<Width>(dweight + token * C + c, total);
}

// dposition_weight (T, C) += the sum over sequences.
template <class G, class T, int Width>
CUDA_KERNEL(kThreads)
position_backward_kernel(G* dposition_weight, const T* dout, std::int64_t B, std::int64_t count) {
  const std::int64_t i = (static_cast<std::int64_t>(block_index().x) * block_size() + thread_index()) * Width;
  if (i >= count) return;
  float total[Width], sum[Width] = {};
  for (std::int64_t b = 0; b < B; ++b) {
    float x[Width];
    load<Width>(x, dout + b * count + i);
#pragma unroll
    for (int w = 0; w < Width; ++w) sum[w] += x[w];
  }
  load<Width>(total, dposition_weight + i);
#pragma unroll
  for (int w = 0; w < Width; ++w) total[w] += sum[w];
  store<Width>(dposition_weight + i, total);
}

// A block a row; a thread rotates pairs (i, i + D/2).
template <class T>
CUDA_KERNEL(kThreads)
rope_kernel(T* qkv, const float* table, const std::int32_t* positions, float direction, std::int64_t T_,
            int heads, std::int64_t row_width, int D) {
  const std::int64_t row = block_index().x;
  const int half = D / 2;
  const std::int64_t position = (positions != nullptr ? positions[row / T_] : 0) + row % T_;
  const float* const angles = table + position * D;
  for (int pair = thread_index(); pair < heads * half; pair += block_size()) {
    const int i = pair % half;
    T* const first = qkv + row * row_width + static_cast<std::int64_t>(pair / half) * D + i;
    T* const second = first + half;
    const float cosine = angles[i], sine = direction * angles[half + i];
    const float x = to_float(*first), y = to_float(*second);
    *first = from_float<T>(rotated_first(x, y, cosine, sine));
    *second = from_float<T>(rotated_second(x, y, cosine, sine));
  }
}

}  // namespace

void embedding_forward(const Context& context, Tensor out, const std::int32_t* tokens, ConstTensor weight,
                       ConstTensor position_weight, const std::int32_t* positions, EmbeddingShape s) {
  with_type(out.type, [&]<class T>(T) {
    const auto launch = [&]<int Width>() {
      start(context,
            {.grid = {static_cast<int>(s.B * s.T), 1, 1},
             .threads = threads_for(ceil_div(s.C, Width), kThreads)},
            embedding_forward_kernel<T, Width>, out.as<T>(), tokens, weight.as<T>(),
            s.first == 0 ? position_weight.as<T>() : nullptr, positions, s.T, s.C, s.first, s.V);
    };
    s.C % kVector<T> == 0 ? launch.template operator()<kVector<T>>() : launch.template operator()<1>();
  });
}

void embedding_backward(const Context& context, Tensor dweight, Tensor dposition_weight, ConstTensor dout,
                        const std::int32_t* tokens, EmbeddingShape s) {
  constexpr int kWidth = 8;
  const int rows = static_cast<int>(s.B * s.T);
  ScratchArrays arrays{context};
  int *const ranks = arrays.next<int>(rows), *const totals = arrays.next<int>(rows),
             *const order = arrays.next<int>(rows), *const places = arrays.next<int>(s.V),
             *const used = arrays.next<int>(1);
  start(context,
        {.grid = {static_cast<int>(ceil_div(rows, kRankRows)), 1, 1},
         .threads = kThreads,
         .shared_bytes = (kRankTile + 2 * kThreads) * sizeof(int)},
        rank_kernel, ranks, totals, used, tokens, rows);
  const Launch a_thread_each{.grid = {static_cast<int>(ceil_div(rows, kThreads)), 1, 1}, .threads = kThreads};
  start(context, a_thread_each, place_kernel, places, used, ranks, totals, tokens, rows, s.first, s.V);
  start(context, a_thread_each, order_kernel, order, places, ranks, tokens, rows, s.first, s.V);
  with_type(dweight.type, [&]<class G>(G) {
    with_type(dout.type, [&]<class T>(T) {
      const auto launch = [&]<int Width>() {
        const int threads = threads_for(ceil_div(s.C, Width), kThreads);
        start(context,
              {.grid = {rows, static_cast<int>(ceil_div(s.C, static_cast<std::int64_t>(threads) * Width)), 1},
               .threads = threads},
              embedding_backward_kernel<G, T, Width>, dweight.as<G>(), dout.as<T>(), tokens, ranks, totals,
              places, order, s.C, s.first, s.V);
        if (dposition_weight)
          start(
              context,
              {.grid = {static_cast<int>(ceil_div(s.T * s.C, kThreads * Width)), 1, 1}, .threads = kThreads},
              position_backward_kernel<G, T, Width>, dposition_weight.as<G>(), dout.as<T>(), s.B, s.T * s.C);
      };
      s.C % kWidth == 0 ? launch.template operator()<kWidth>() : launch.template operator()<1>();
    });
  });
}

void rope(const Context& context, Tensor qkv, const float* table, const std::int32_t* positions,
          float direction, RopeShape s) {
  const int heads = static_cast<int>(s.H + s.G);
  with_type(qkv.type, [&]<class T>(T) {
    start(context,
          {.grid = {static_cast<int>(s.B * s.T), 1, 1}, .threads = threads_for(heads * s.D / 2, kThreads)},
          rope_kernel<T>, qkv.as<T>(), table, positions, direction, s.T, heads, (s.H + 2 * s.G) * s.D,
          static_cast<int>(s.D));
  });
}

}  // namespace kernels::cuda
