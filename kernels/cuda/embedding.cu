#include "kernels/cuda/embedding.h"
#include "kernels/cuda/rotation.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 256;

// The row of a token in this part of the weight, V rows from the row of token `first` on, or kElsewhere.
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

// A block has kRankRows rows; its parts look through all tokens, a tile at a time.
constexpr int kRankRows = 64, kRankParts = kThreads / kRankRows, kRankTile = 1024;

// ranks (R): how many rows before a row have the same token; totals (R): how many rows have it. *used becomes
// 0. Shared memory: the tile, then two numbers for each row and part.
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

// places (V): where in `order` the rows of a token begin. The order of the tokens themselves does not matter.
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

// How many rows of a token one block sums. A text's most frequent token has a twentieth of all rows: these
// are divided into pieces of this size, the last one longer, and the pieces' sums are added up in order.
constexpr int kPieceRows = 64;
CUDA_DEVICE int pieces_of(int count) {
  return count < 2 * kPieceRows ? 1 : count / kPieceRows;
}

// sum (Width) = columns c and following of the rows row_at(begin), ..., row_at(end - 1) of x; several rows
// are loaded at a time.
template <class T, int Width, class RowAt>
CUDA_DEVICE void sum_rows(float* sum, const T* x, const RowAt& row_at, int begin, int end, std::int64_t C,
                          std::int64_t c) {
  constexpr int kOnTheirWay = sizeof(T) == 4 ? 4 : 8;  // as many as registers hold
  for (int w = 0; w < Width; ++w) sum[w] = 0;
  for (int i = begin; i < end; i += kOnTheirWay) {
    // All loads first, of rows that exist: with a condition around it, each would wait for the one before.
    Pack<T, Width> packs[kOnTheirWay];
#pragma unroll
    for (int k = 0; k < kOnTheirWay; ++k) {
      const std::int64_t row = row_at(i + k < end ? i + k : end - 1);
      packs[k] = *reinterpret_cast<const Pack<T, Width>*>(x + row * C + c);
    }
#pragma unroll
    for (int k = 0; k < kOnTheirWay; ++k) {
      if (i + k >= end) break;
#pragma unroll
      for (int w = 0; w < Width; ++w) sum[w] += to_float(packs[k].values[w]);
    }
  }
}

template <int Width, class G>
CUDA_DEVICE void add_to(G* at, const float* sum) {
  float total[Width];
  load<Width>(total, at);
#pragma unroll
  for (int w = 0; w < Width; ++w) total[w] += sum[w];
  store<Width>(at, total);
}

// A block for each row and each kThreads * Width columns. The block of a piece's first row sums the piece;
// the others have nothing to do. A token of one piece is then done. Pieces of other tokens leave their sums
// in `sums`, in the row that is their place in `order` divided by kPieceRows.
template <class G, class T, int Width>
CUDA_KERNEL(kThreads)
embedding_backward_kernel(G* dweight, float* sums, const T* dout, const std::int32_t* tokens,
                          const int* ranks, const int* totals, const int* places, const int* order,
                          std::int64_t C, std::int64_t first, std::int64_t V) {
  const int row = block_index().x, rank = ranks[row];
  if (rank % kPieceRows != 0) return;
  const int count = totals[row], pieces = pieces_of(count), piece = rank / kPieceRows;
  const std::int64_t c = (static_cast<std::int64_t>(block_index().y) * block_size() + thread_index()) * Width;
  const std::int64_t token = own_row(tokens[row], first, V);
  if (piece >= pieces || c >= C || token == kElsewhere) return;
  const int place = places[token];
  const int* const rows = order + place;
  float sum[Width];
  sum_rows<T, Width>(
      sum, dout, [rows](int i) { return rows[i]; }, rank, piece == pieces - 1 ? count : rank + kPieceRows, C,
      c);
  if (pieces == 1)
    add_to<Width>(dweight + token * C + c, sum);
  else
    store<Width>(sums + (place + rank) / kPieceRows * C + c, sum);
}

// A block for kPieceRows places in `order` and as many columns as above: at most one token of several pieces
// begins there. Its pieces' sums are added to its gradient. Shared memory: an int.
template <class G, int Width>
CUDA_KERNEL(kThreads)
embedding_pieces_kernel(G* dweight, const float* sums, const std::int32_t* tokens, const int* ranks,
                        const int* totals, const int* order, const int* used, std::int64_t C,
                        std::int64_t first) {
  constexpr int kNone = -1;
  int* const found = shared_memory<int>();
  const int begin = block_index().x * kPieceRows,
            end = begin + kPieceRows < *used ? begin + kPieceRows : *used;
  if (thread_index() == 0) *found = kNone;
  sync_block();
  for (int place = begin + thread_index(); place < end; place += block_size()) {
    const int row = order[place];
    if (ranks[row] == 0 && pieces_of(totals[row]) > 1) *found = row;
  }
  sync_block();
  const int row = *found;
  const std::int64_t c = (static_cast<std::int64_t>(block_index().y) * block_size() + thread_index()) * Width;
  if (row == kNone || c >= C) return;
  float sum[Width];
  const int slot = block_index().x;
  sum_rows<float, Width>(
      sum, sums, [](int i) { return i; }, slot, slot + pieces_of(totals[row]), C, c);
  add_to<Width>(dweight + (tokens[row] - first) * C + c, sum);
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
  const int slots = static_cast<int>(ceil_div(rows, kPieceRows));
  float* const sums = arrays.next<float>(slots * s.C);
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
        const int across = static_cast<int>(ceil_div(s.C, static_cast<std::int64_t>(threads) * Width));
        start(context, {.grid = {rows, across, 1}, .threads = threads},
              embedding_backward_kernel<G, T, Width>, dweight.as<G>(), sums, dout.as<T>(), tokens, ranks,
              totals, places, order, s.C, s.first, s.V);
        start(context, {.grid = {slots, across, 1}, .threads = threads, .shared_bytes = sizeof(int)},
              embedding_pieces_kernel<G, Width>, dweight.as<G>(), sums, tokens, ranks, totals, order, used,
              s.C, s.first);
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
