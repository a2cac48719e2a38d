// Choices are counted in parts, a warp for each, and the parts' counts are then added up in order: choices
// keep their order without sorting or atomics. Lanes with the same expert find each other by ballots.
#include <algorithm>

#include "kernels/cuda/permute.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;
constexpr int kPart = 512;  // choices

// Bit i is set where lane i has the same number, which has at most `bits` bits.
CUDA_DEVICE std::uint32_t lanes_with(int number, int bits) {
  std::uint32_t same = 0xffffffffu;
  for (int bit = 0; bit < bits; ++bit) {
    const std::uint32_t set = ballot((number >> bit & 1) != 0);
    same &= (number >> bit & 1) != 0 ? set : ~set;
  }
  return same;
}

// Without `places`: counts (parts, E) = choices of each expert in each part. With `places` (count): counts
// hold the place of each part's first choice of an expert. `bits` are enough for E itself, which stands for
// no choice. Shared memory: E ints for each warp.
CUDA_KERNEL(kThreads)
part_kernel(std::int32_t* counts, std::int32_t* places, const std::int32_t* indices, int count, int parts,
            int E, int bits) {
  const int part = block_index().x * kWarps + warp_index();
  if (part >= parts) return;
  std::int32_t* const next = shared_memory<std::int32_t>() + warp_index() * E;
  std::int32_t* const of_part = counts + static_cast<std::int64_t>(part) * E;
  for (int e = lane_index(); e < E; e += kWarp) next[e] = places != nullptr ? of_part[e] : 0;
  sync_warp();
  for (int first = part * kPart; first < (part + 1) * kPart; first += kWarp) {
    const int i = first + lane_index();
    const int expert = i < count ? indices[i] : E;
    const std::uint32_t same = lanes_with(expert, bits);
    const int before = count_bits(same & ((1u << lane_index()) - 1));
    const int begin = expert < E ? next[expert] : 0;
    if (places != nullptr && expert < E) places[i] = begin + before;
    sync_warp();  // all have read
    if (before == 0 && expert < E) next[expert] = begin + count_bits(same);
    sync_warp();
  }
  if (places != nullptr) return;
  for (int e = lane_index(); e < E; e += kWarp) of_part[e] = next[e];
}

// offsets (E + 1) from counts (parts, E), which become each part's first places. Shared memory: (E) ints. One
// block.
constexpr int kScanThreads = 256;
CUDA_KERNEL(kScanThreads)
offsets_kernel(std::int32_t* offsets, std::int32_t* counts, int parts, int E) {
  std::int32_t* const totals = shared_memory<std::int32_t>();
  for (int e = thread_index(); e < E; e += kScanThreads) {
    std::int32_t sum = 0;
    for (int part = 0; part < parts; ++part) sum += counts[static_cast<std::int64_t>(part) * E + e];
    totals[e] = sum;
  }
  sync_block();
  for (int e = thread_index(); e < E; e += kScanThreads) {
    std::int32_t place = 0;
    for (int before = 0; before < e; ++before) place += totals[before];
    offsets[e] = place;
    if (e == E - 1) offsets[E] = place + totals[e];
    for (int part = 0; part < parts; ++part) {
      std::int32_t& of_part = counts[static_cast<std::int64_t>(part) * E + e];
      const std::int32_t n = of_part;
      of_part = place;
      place += n;
    }
  }
}

// A block a choice.
template <class T, int Width>
CUDA_KERNEL(kThreads)
permute_kernel(T* out, float* row_weights, const T* inp, const float* weights, const std::int32_t* places,
               std::int64_t K, std::int64_t C) {
  const std::int64_t i = block_index().x, place = places[i];
  for (std::int64_t c = thread_index() * Width; c < C; c += static_cast<std::int64_t>(block_size()) * Width)
    *reinterpret_cast<Pack<T, Width>*>(out + place * C + c) =
        *reinterpret_cast<const Pack<T, Width>*>(inp + i / K * C + c);
  if (row_weights != nullptr && thread_index() == 0) row_weights[place] = weights[i];
}

// A block a token.
template <class T, int Width>
CUDA_KERNEL(kThreads)
unpermute_kernel(T* out, float* weights, const T* inp, const float* row_weights, const std::int32_t* places,
                 std::int64_t K, std::int64_t C) {
  const std::int64_t row = block_index().x;
  for (std::int64_t c = thread_index() * Width; c < C; c += static_cast<std::int64_t>(block_size()) * Width) {
    float sum[Width], x[Width];
    load<Width>(sum, inp + places[row * K] * C + c);
    for (std::int64_t k = 1; k < K; ++k) {
      load<Width>(x, inp + places[row * K + k] * C + c);
#pragma unroll
      for (int w = 0; w < Width; ++w) sum[w] += x[w];
    }
    store<Width>(out + row * C + c, sum);
  }
  if (weights != nullptr)
    for (std::int64_t k = thread_index(); k < K; k += block_size())
      weights[row * K + k] = row_weights[places[row * K + k]];
}

template <class Body>
void with_vectors(ConstTensor rows, std::int64_t C, const Body& body) {
  with_type(rows.type, [&]<class T>(T) {
    C % kVector<T> == 0 ? body.template operator()<T, kVector<T>>() : body.template operator()<T, 1>();
  });
}

}  // namespace

ExpertOrder order_by_expert(const Context& context, const std::int32_t* indices, std::int64_t count,
                            std::int64_t E, bool with_places) {
  const int parts = static_cast<int>(ceil_div(count, kPart));
  int bits = 1;
  while ((std::int64_t{1} << bits) <= E) ++bits;
  const std::int64_t numbers = E + 1 + parts * E + (with_places ? count : 0);
  std::int32_t* const offsets = context.scratch_for<std::int32_t>(numbers);
  std::int32_t* const counts = offsets + E + 1;
  std::int32_t* const places = counts + parts * E;
  const Launch by_parts{.grid = {static_cast<int>(ceil_div(parts, kWarps)), 1, 1},
                        .threads = kThreads,
                        .shared_bytes = static_cast<std::size_t>(kWarps * E) * sizeof(std::int32_t)};
  start(context, by_parts, part_kernel, counts, nullptr, indices, static_cast<int>(count), parts,
        static_cast<int>(E), bits);
  start(context,
        {.threads = kScanThreads, .shared_bytes = static_cast<std::size_t>(E) * sizeof(std::int32_t)},
        offsets_kernel, offsets, counts, parts, static_cast<int>(E));
  if (with_places)
    start(context, by_parts, part_kernel, counts, places, indices, static_cast<int>(count), parts,
          static_cast<int>(E), bits);
  return {offsets, with_places ? places : nullptr, numbers * static_cast<std::int64_t>(sizeof(std::int32_t))};
}

void permute(const Context& context, Tensor out, float* row_weights, ConstTensor inp, const float* weights,
             const std::int32_t* indices, PermuteShape s) {
  const ExpertOrder order = order_by_expert(context, indices, s.R * s.K, s.E, true);
  with_vectors(inp, s.C, [&]<class T, int Width>() {
    start(
        context,
        {.grid = {static_cast<int>(s.R * s.K), 1, 1}, .threads = threads_for(ceil_div(s.C, Width), kThreads)},
        permute_kernel<T, Width>, out.as<T>(), row_weights, inp.as<T>(), weights, order.places, s.K, s.C);
  });
}

void unpermute(const Context& context, Tensor out, float* weights, ConstTensor inp, const float* row_weights,
               const std::int32_t* indices, PermuteShape s) {
  const ExpertOrder order = order_by_expert(context, indices, s.R * s.K, s.E, true);
  with_vectors(inp, s.C, [&]<class T, int Width>() {
    start(context,
          {.grid = {static_cast<int>(s.R), 1, 1}, .threads = threads_for(ceil_div(s.C, Width), kThreads)},
          unpermute_kernel<T, Width>, out.as<T>(), weights, inp.as<T>(), row_weights, order.places, s.K, s.C);
  });
}

}  // namespace kernels::cuda
