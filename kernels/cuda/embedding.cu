#include "kernels/cuda/embedding.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 256;

// A block a row.
template <class T, int Width>
CUDA_KERNEL(kThreads)
embedding_forward_kernel(T* out, const std::int32_t* tokens, const T* weight, const T* position_weight,
                         const std::int32_t* positions, std::int64_t T_, std::int64_t C) {
  const std::int64_t row = block_index().x;
  const std::int64_t token = tokens[row];
  const std::int64_t position = (positions != nullptr ? positions[row / T_] : 0) + row % T_;
  for (std::int64_t c = static_cast<std::int64_t>(thread_index()) * Width; c < C;
       c += static_cast<std::int64_t>(block_size()) * Width) {
    float sum[Width], term[Width];
    load<Width>(sum, weight + token * C + c);
    if (position_weight != nullptr) {
      load<Width>(term, position_weight + position * C + c);
#pragma unroll
      for (int w = 0; w < Width; ++w) sum[w] += term[w];
    }
    store<Width>(out + row * C + c, sum);
  }
}

// Rows looked through between two answers to "is there an earlier row of this token?".
constexpr int kLookBack = 8 * kThreads;

// A block a row and kThreads * Width columns of it: the block of a token's first row sums all rows of that
// token, in order, several of them being loaded at a time; those of its later rows have nothing to do. Shared
// memory: how many of each warp's rows are of this token, and which of kThreads rows are.
template <class G, class T, int Width>
CUDA_KERNEL(kThreads)
embedding_backward_kernel(G* dweight, const T* dout, const std::int32_t* tokens, int R, std::int64_t C) {
  constexpr int kOnTheirWay = sizeof(T) == 4 ? 4 : 8;  // as many as registers hold
  int* const counts = shared_memory<int>();
  int* const rows = counts + kThreads / kWarp;
  const int row = block_index().x;
  const std::int32_t token = tokens[row];
  for (int begin = 0; begin < row; begin += kLookBack) {
    bool found = false;
    for (int other = begin + thread_index(); other < row && other < begin + kLookBack; other += kThreads)
      found = found || tokens[other] == token;
    if (any_in_block(found)) return;
  }

  const std::int64_t c = (static_cast<std::int64_t>(block_index().y) * kThreads + thread_index()) * Width;
  float sum[Width] = {};
  for (int begin = row; begin < R; begin += kThreads) {
    const int other = begin + thread_index();
    const bool matches = other < R && tokens[other] == token;
    const std::uint32_t set = ballot(matches), of_earlier_lanes = (1u << lane_index()) - 1;
    if (lane_index() == 0) counts[warp_index()] = count_bits(set);
    sync_block();
    int before = 0, found = 0;
    for (int warp = 0; warp < kThreads / kWarp; ++warp) {
      if (warp < warp_index()) before += counts[warp];
      found += counts[warp];
    }
    if (matches) rows[before + count_bits(set & of_earlier_lanes)] = other;
    sync_block();
    for (int i = 0; c < C && i < found; i += kOnTheirWay) {
      // All loads first, of rows that are there: a condition around each would put it behind the one before.
      Pack<T, Width> packs[kOnTheirWay];
#pragma unroll
      for (int k = 0; k < kOnTheirWay; ++k) {
        const int there = i + k < found ? i + k : found - 1;
        packs[k] = *reinterpret_cast<const Pack<T, Width>*>(dout + rows[there] * C + c);
      }
#pragma unroll
      for (int k = 0; k < kOnTheirWay; ++k) {
        if (i + k >= found) break;
#pragma unroll
        for (int w = 0; w < Width; ++w) sum[w] += to_float(packs[k].values[w]);
      }
    }
    sync_block();
  }
  if (c >= C) return;
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
    *first = from_float<T>(x * cosine - y * sine);
    *second = from_float<T>(y * cosine + x * sine);
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
            embedding_forward_kernel<T, Width>, out.as<T>(), tokens, weight.as<T>(), position_weight.as<T>(),
            positions, s.T, s.C);
    };
    s.C % kVector<T> == 0 ? launch.template operator()<kVector<T>>() : launch.template operator()<1>();
  });
}

void embedding_backward(const Context& context, Tensor dweight, Tensor dposition_weight, ConstTensor dout,
                        const std::int32_t* tokens, EmbeddingShape s) {
  constexpr int kWidth = 8;
  with_type(dweight.type, [&]<class G>(G) {
    with_type(dout.type, [&]<class T>(T) {
      const auto launch = [&]<int Width>() {
        start(context,
              {.grid = {static_cast<int>(s.B * s.T), static_cast<int>(ceil_div(s.C, kThreads * Width)), 1},
               .threads = kThreads,
               .shared_bytes = (kThreads / kWarp + kThreads) * sizeof(int)},
              embedding_backward_kernel<G, T, Width>, dweight.as<G>(), dout.as<T>(), tokens,
              static_cast<int>(s.B * s.T), s.C);
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
