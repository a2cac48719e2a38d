// Several blocks read a row's logits, a part each; the next kernel merges what they find. Greedy: the best
// of each part, then the best of those. By temperature alone: the weight of each part, then the drawn
// token in the part that has it. By top-k or top-p: tokens are counted and weighed in bins of their
// distance from the best; then the tokens of the bins that can be kept are listed, few in a trained model;
// the rest works on this list, by a radix select in the bits of a key: first of logit and id, then of the
// id alone.
#include <algorithm>

#include "kernels/cuda/sampling.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kDigits = 256;
constexpr std::int64_t kPart = 4096;  // tokens of a part, where there are not too many parts
constexpr std::int64_t kMostParts = 64;
// Bins are 1/32 wide in the exponent; the last bin holds all that weighs less than e^-64 of the best token.
constexpr int kBins = 2048;
constexpr float kBinsPerUnit = 32;
// The weight of a token with exponential 1. Sums of 2^18 such weights are below 2^63.
constexpr double kWeightOne = 0x1p45;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 18;

struct Token {
  float value;
  std::int32_t id;  // below 0: none
};

// Scratch memory of a row of logits.
struct Row {
  Token* best;             // (parts)
  std::uint64_t* sums;     // (parts): weights
  std::uint64_t* counts;   // (kBins): tokens
  std::uint64_t* weights;  // (kBins)
  std::uint64_t* listed;   // (1): how many
  Token* list;             // (V)

  static CUDA_HOST_DEVICE std::int64_t bytes(std::int64_t V) {
    return static_cast<std::int64_t>(sizeof(Token) + sizeof(std::uint64_t)) * kMostParts +
           static_cast<std::int64_t>(sizeof(std::uint64_t)) * (2 * kBins + 1) +
           static_cast<std::int64_t>(sizeof(Token)) * V;
  }
};

struct Arguments {
  std::int32_t* tokens;
  const float* logits;
  std::byte* scratch;
  SamplingSettings settings;
  const std::int64_t* step;
  std::int64_t first_row, V, stride;  // V words of the `stride` columns of a row
  int parts;

  CUDA_DEVICE Row row(std::int64_t r) const {
    std::byte* const at = scratch + r * Row::bytes(V);
    auto* const best = reinterpret_cast<Token*>(at);
    auto* const sums = reinterpret_cast<std::uint64_t*>(best + kMostParts);
    std::uint64_t* const counts = sums + kMostParts;
    return {best,
            sums,
            counts,
            counts + kBins,
            counts + 2 * kBins,
            reinterpret_cast<Token*>(counts + 2 * kBins + 1)};
  }
  CUDA_DEVICE const float* logits_of(std::int64_t r) const { return logits + (first_row + r) * stride; }
  CUDA_DEVICE std::int64_t begin_of(int part) const { return V * part / parts; }
};

struct Shared {
  std::uint64_t sums[kDigits];
  std::uint64_t of_warp[kWarps];
  std::uint64_t chosen, before;
  Token best[kWarps];
};

// Adds integers from threads of several blocks: the sum does not depend on their order. Returns the value
// before the addition.
CUDA_DEVICE std::uint64_t add_to_global(std::uint64_t* sum, std::uint64_t x) {
#ifdef __CUDA_ARCH__
  return atomicAdd(reinterpret_cast<unsigned long long*>(sum), static_cast<unsigned long long>(x));
#else
  const std::uint64_t before = *sum;
  *sum += x;
  return before;
#endif
}

// Larger floats have larger keys.
CUDA_DEVICE std::uint32_t order_of(float x) {
  const std::uint32_t bits = bits_of(x);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// exp((x - highest) / temperature)
CUDA_DEVICE std::uint64_t weight_of(float x, float highest, float temperature) {
  const double weight =
      exp((static_cast<double>(x) - static_cast<double>(highest)) / static_cast<double>(temperature));
  return static_cast<std::uint64_t>(weight * kWeightOne + 0.5);
}

// These operations round, but keep the order, so a bin's tokens are neighbours in the order of logits.
CUDA_DEVICE int bin_of(float x, float highest, float temperature) {
  const float distance = (highest - x) * (kBinsPerUnit / temperature);
  return distance > 0 ? static_cast<int>(fminf(distance, kBins - 1)) : 0;
}

CUDA_DEVICE std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// A random number below `total`, for the row in this step.
CUDA_DEVICE std::uint64_t drawn_below(std::uint64_t total, const Arguments& a, std::int64_t r) {
  const std::uint64_t bits =
      mix(mix(mix(a.settings.seed) + static_cast<std::uint64_t>(*a.step)) + static_cast<std::uint64_t>(r));
  const auto drawn =
      static_cast<std::uint64_t>(static_cast<double>(bits >> 11) * 0x1p-53 * static_cast<double>(total));
  return drawn < total ? drawn : total - 1;
}

// The more probable of two tokens; among equals the one with the lower id.
CUDA_DEVICE Token better(Token a, Token b) {
  const bool takes_b = b.id >= 0 && (a.id < 0 || b.value > a.value || (b.value == a.value && b.id < a.id));
  return takes_b ? b : a;
}

// The best token of the block, known to all threads.
CUDA_DEVICE Token best_of_block(Shared& shared, Token own) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    own = better(own, {shuffle_xor(own.value, distance), shuffle_xor(own.id, distance)});
  sync_block();
  if (lane_index() == 0) shared.best[warp_index()] = own;
  sync_block();
  own = shared.best[0];
  for (int warp = 1; warp < block_size() / kWarp; ++warp) own = better(own, shared.best[warp]);
  return own;
}

CUDA_DEVICE Token best_of_parts(Shared& shared, const Arguments& a, const Row& row) {
  Token own{-INFINITY, -1};
  if (thread_index() < a.parts) own = row.best[thread_index()];
  return best_of_block(shared, own);
}

// The sum over the block, known to all threads.
CUDA_DEVICE std::uint64_t block_total(Shared& shared, std::uint64_t x) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) x += shuffle_xor(x, distance);
  sync_block();
  if (lane_index() == 0) shared.of_warp[warp_index()] = x;
  sync_block();
  x = 0;
  for (int warp = 0; warp < block_size() / kWarp; ++warp) x += shared.of_warp[warp];
  return x;
}

// The sum of x over the threads before this one.
CUDA_DEVICE std::uint64_t sum_before(Shared& shared, std::uint64_t x) {
  std::uint64_t up_to = x;
#pragma unroll
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const std::uint64_t earlier = shuffle(up_to, lane_index() >= distance ? lane_index() - distance : 0);
    if (lane_index() >= distance) up_to += earlier;
  }
  sync_block();
  if (lane_index() == kWarp - 1) shared.of_warp[warp_index()] = up_to;
  sync_block();
  std::uint64_t before = up_to - x;
  for (int warp = 0; warp < warp_index(); ++warp) before += shared.of_warp[warp];
  return before;
}

// Finds where the sum of number(0), number(1), ... reaches `wanted`: shared.chosen is that place, or the last
// one if it never does; shared.before is the sum before it. All threads know both. kThreads divides Count.
template <int Count, class Number>
CUDA_DEVICE void find_sum(Shared& shared, std::uint64_t wanted, const Number& number) {
  constexpr int kEach = Count / kThreads;
  static_assert(kEach * kThreads == Count);
  std::uint64_t numbers[kEach], own = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) own += numbers[i] = number(thread_index() * kEach + i);
  if (thread_index() == 0) shared.chosen = Count - 1, shared.before = 0;
  std::uint64_t before = sum_before(shared, own);
  if (before < wanted && before + own >= wanted) {
    bool found = false;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (!found && before + numbers[i] >= wanted) {
        found = true;
        shared.chosen = static_cast<std::uint64_t>(thread_index() * kEach + i);
        shared.before = before;
      }
      before += numbers[i];
    }
  }
  sync_block();
}

// The largest key for which the items with this key or a larger one have amounts that add up to `wanted` or
// more, as those of all items do. key(i) (of `Bits` bits) and amount(i): of items 0 .. count - 1.
template <int Bits, class Key, class Amount>
CUDA_DEVICE std::uint64_t select(Shared& shared, std::int64_t count, std::uint64_t wanted, const Key& key,
                                 const Amount& amount) {
  std::uint64_t prefix = 0, before = 0;
  for (int shift = Bits - 8; shift >= 0; shift -= 8) {
    for (int i = thread_index(); i < kDigits; i += block_size()) shared.sums[i] = 0;
    sync_block();
    for (std::int64_t i = thread_index(); i < count; i += block_size()) {
      const std::uint64_t k = key(i);
      const bool fits = shift == Bits - 8 || (k ^ prefix) >> (shift + 8) == 0;
      if (fits) add_to_shared(&shared.sums[k >> shift & (kDigits - 1)], amount(i));
    }
    sync_block();
    find_sum<kDigits>(shared, wanted - before, [&](int i) { return shared.sums[kDigits - 1 - i]; });
    prefix |= (kDigits - 1 - shared.chosen) << shift;
    before += shared.before;
    sync_block();
  }
  return prefix;
}

// Keys in the order of logits, the lower id first among equals: all keys differ.
CUDA_DEVICE std::uint64_t rank_key(const Token& item) {
  return static_cast<std::uint64_t>(order_of(item.value)) << 32 | ~static_cast<std::uint32_t>(item.id);
}

// Grid of this and the next three: (parts, rows).
CUDA_KERNEL(kThreads)
sample_best_kernel(Arguments a) {
  Shared& shared = *shared_memory<Shared>();
  const int part = block_index().x, r = block_index().y;
  const float* const logits = a.logits_of(r);
  const Row row = a.row(r);
  Token own{-INFINITY, -1};
  for (std::int64_t v = a.begin_of(part) + thread_index(); v < a.begin_of(part + 1); v += block_size())
    own = better(own, {logits[v], static_cast<std::int32_t>(v)});
  own = best_of_block(shared, own);
  if (thread_index() == 0) row.best[part] = own;
  // Clears the bins for the kernels that come next.
  for (int i = part * block_size() + thread_index(); i < 2 * kBins + 1; i += a.parts * block_size())
    row.counts[i] = 0;
}

CUDA_KERNEL(kThreads)
sample_weigh_kernel(Arguments a) {
  Shared& shared = *shared_memory<Shared>();
  const int part = block_index().x, r = block_index().y;
  const float* const logits = a.logits_of(r);
  const Row row = a.row(r);
  const Token best = best_of_parts(shared, a, row);
  std::uint64_t own = 0;
  for (std::int64_t v = a.begin_of(part) + thread_index(); v < a.begin_of(part + 1); v += block_size())
    own += weight_of(logits[v], best.value, a.settings.temperature);
  own = block_total(shared, own);
  if (thread_index() == 0) row.sums[part] = own;
}

// Shared memory: behind Shared the block's counts and weights of all bins.
CUDA_KERNEL(kThreads)
sample_count_kernel(Arguments a) {
  Shared& shared = *shared_memory<Shared>();
  auto* const counts = reinterpret_cast<std::uint64_t*>(&shared + 1);
  std::uint64_t* const weights = counts + kBins;
  const int part = block_index().x, r = block_index().y;
  const float* const logits = a.logits_of(r);
  const Row row = a.row(r);
  for (int i = thread_index(); i < 2 * kBins; i += block_size()) counts[i] = 0;
  const Token best = best_of_parts(shared, a, row);
  sync_block();
  for (std::int64_t v = a.begin_of(part) + thread_index(); v < a.begin_of(part + 1); v += block_size()) {
    const int bin = bin_of(logits[v], best.value, a.settings.temperature);
    add_to_shared(&counts[bin], 1);
    add_to_shared(&weights[bin], weight_of(logits[v], best.value, a.settings.temperature));
  }
  sync_block();
  for (int i = thread_index(); i < 2 * kBins; i += block_size())
    if (counts[i] != 0) add_to_global(&row.counts[i], counts[i]);
}

CUDA_DEVICE std::uint64_t weight_wanted(float top_p, std::uint64_t total) {
  const auto wanted =
      static_cast<std::uint64_t>(ceil(static_cast<double>(top_p) * static_cast<double>(total)));
  return wanted > 0 ? wanted : 1;
}

CUDA_DEVICE bool has_top_k(const Arguments& a) {
  return a.settings.top_k > 0 && a.settings.top_k < a.V;
}

CUDA_DEVICE std::uint64_t total_of_bins(Shared& shared, const Row& row) {
  std::uint64_t own = 0;
  for (int i = thread_index(); i < kBins; i += block_size()) own += row.weights[i];
  return block_total(shared, own);
}

// Lists the tokens of all bins down to the one in which top-k, or else top-p, ends.
CUDA_KERNEL(kThreads)
sample_list_kernel(Arguments a) {
  Shared& shared = *shared_memory<Shared>();
  const int part = block_index().x, r = block_index().y;
  const float* const logits = a.logits_of(r);
  const Row row = a.row(r);
  const Token best = best_of_parts(shared, a, row);
  if (has_top_k(a))
    find_sum<kBins>(shared, static_cast<std::uint64_t>(a.settings.top_k),
                    [&](int i) { return row.counts[i]; });
  else
    find_sum<kBins>(shared, weight_wanted(a.settings.top_p, total_of_bins(shared, row)),
                    [&](int i) { return row.weights[i]; });
  const int last_bin = static_cast<int>(shared.chosen);
  for (std::int64_t v = a.begin_of(part) + thread_index(); v < a.begin_of(part + 1); v += block_size())
    if (bin_of(logits[v], best.value, a.settings.temperature) <= last_bin)
      row.list[add_to_global(row.listed, 1)] = {logits[v], static_cast<std::int32_t>(v)};
}

// Grid: (rows). Draws one of the items whose key is at least `border`, in the order of ids.
template <class Item>
CUDA_DEVICE void draw(Shared& shared, const Arguments& a, std::int64_t r, std::int64_t count,
                      std::uint64_t wanted, const Item& item, const Token& best, std::uint64_t border) {
  const std::uint64_t key = select<32>(
      shared, count, wanted,
      [&](std::int64_t i) { return static_cast<std::uint64_t>(~static_cast<std::uint32_t>(item(i).id)); },
      [&](std::int64_t i) {
        return rank_key(item(i)) >= border ? weight_of(item(i).value, best.value, a.settings.temperature)
                                           : std::uint64_t{0};
      });
  if (thread_index() == 0)
    a.tokens[a.first_row + r] = static_cast<std::int32_t>(~static_cast<std::uint32_t>(key));
}

CUDA_KERNEL(kThreads)
sample_greedy_kernel(Arguments a) {
  Shared& shared = *shared_memory<Shared>();
  const int r = block_index().x;
  const Token best = best_of_parts(shared, a, a.row(r));
  if (thread_index() == 0) a.tokens[a.first_row + r] = best.id;
}

CUDA_KERNEL(kThreads)
sample_draw_from_part_kernel(Arguments a) {
  Shared& shared = *shared_memory<Shared>();
  const int r = block_index().x;
  const Row row = a.row(r);
  const Token best = best_of_parts(shared, a, row);
  const std::uint64_t total = block_total(shared, thread_index() < a.parts ? row.sums[thread_index()] : 0);
  const std::uint64_t wanted = drawn_below(total, a, a.first_row + r) + 1;
  find_sum<kThreads>(shared, wanted,
                     [&](int part) { return part < a.parts ? row.sums[part] : std::uint64_t{0}; });
  const int part = static_cast<int>(shared.chosen);
  std::uint64_t before = shared.before;
  // A part's tokens lie in the order of ids. Each thread has neighbours; their sums say where the draw lies.
  const std::int64_t begin = a.begin_of(part), count = a.begin_of(part + 1) - begin;
  const std::int64_t first = begin + count * thread_index() / block_size(),
                     end = begin + count * (thread_index() + 1) / block_size();
  const float* const logits = a.logits_of(r);
  std::uint64_t own = 0;
  for (std::int64_t v = first; v < end; ++v) own += weight_of(logits[v], best.value, a.settings.temperature);
  before += sum_before(shared, own);
  if (before >= wanted || before + own < wanted) return;
  for (std::int64_t v = first; v < end; ++v) {
    before += weight_of(logits[v], best.value, a.settings.temperature);
    if (before < wanted) continue;
    a.tokens[a.first_row + r] = static_cast<std::int32_t>(v);
    return;
  }
}

CUDA_KERNEL(kThreads)
sample_draw_from_list_kernel(Arguments a) {
  Shared& shared = *shared_memory<Shared>();
  const int r = block_index().x;
  const Row row = a.row(r);
  const Token best = best_of_parts(shared, a, row);
  const auto count = static_cast<std::int64_t>(*row.listed);
  const auto key = [&](std::int64_t i) { return rank_key(row.list[i]); };
  std::uint64_t border = 0;
  const auto kept_weight = [&](std::int64_t i) {
    return rank_key(row.list[i]) >= border ? weight_of(row.list[i].value, best.value, a.settings.temperature)
                                           : std::uint64_t{0};
  };
  const auto total_kept = [&] {
    std::uint64_t own = 0;
    for (std::int64_t i = thread_index(); i < count; i += block_size()) own += kept_weight(i);
    return block_total(shared, own);
  };
  if (has_top_k(a))
    border = select<64>(shared, count, static_cast<std::uint64_t>(a.settings.top_k), key,
                        [](std::int64_t) { return std::uint64_t{1}; });
  if (a.settings.top_p < 1)
    border =
        select<64>(shared, count,
                   weight_wanted(a.settings.top_p, has_top_k(a) ? total_kept() : total_of_bins(shared, row)),
                   key, kept_weight);
  draw(
      shared, a, r, count, drawn_below(total_kept(), a, a.first_row + r) + 1,
      [&](std::int64_t i) { return row.list[i]; }, best, border);
}

// One block, since the step counter moves on when all threads have read it.
CUDA_KERNEL(kThreads)
pass_on_kernel(TokenLoop loop) {
  const std::int64_t step = *loop.step;
  for (std::int64_t b = thread_index(); b < loop.B; b += block_size()) {
    const std::int32_t token = loop.next[b];
    loop.tokens[b] = token;
    ++loop.positions[b];
    loop.kept[step % kTokenTurns * loop.B + b] = token;
  }
  sync_block();
  if (thread_index() == 0) *loop.step = step + 1;
}

}  // namespace

void pass_tokens_on(const Context& context, const TokenLoop& loop) {
  start(context, {.grid = {1, 1, 1}, .threads = threads_for(loop.B, kThreads)}, pass_on_kernel, loop);
}

void sample(const Context& context, std::int32_t* tokens, const float* logits,
            const SamplingSettings& settings, const std::int64_t* step, std::int64_t B, std::int64_t columns,
            std::int64_t V) {
  if (V >= kMostTokens)
    throw CudaError("sampling takes vocabularies below " + std::to_string(kMostTokens) + " tokens, not " +
                    std::to_string(V));
  const std::int64_t row_bytes = Row::bytes(V);
  const std::int64_t at_once = std::clamp<std::int64_t>(context.scratch_bytes / row_bytes, 1, B);
  std::byte* const scratch = context.scratch_for<std::byte>(at_once * row_bytes);
  const int parts = static_cast<int>(std::clamp<std::int64_t>(ceil_div(V, kPart), 1, kMostParts));
  for (std::int64_t first = 0; first < B; first += at_once) {
    const int rows = static_cast<int>(std::min(at_once, B - first));
    const Arguments arguments{tokens, logits, scratch, settings, step, first, V, columns, parts};
    const Launch of_parts{.grid = {parts, rows, 1}, .threads = kThreads, .shared_bytes = sizeof(Shared)};
    const Launch of_rows{.grid = {rows, 1, 1}, .threads = kThreads, .shared_bytes = sizeof(Shared)};
    start(context, of_parts, sample_best_kernel, arguments);
    if (settings.temperature <= 0) {
      start(context, of_rows, sample_greedy_kernel, arguments);
    } else if ((settings.top_k > 0 && settings.top_k < V) || settings.top_p < 1) {
      Launch with_bins = of_parts;
      with_bins.shared_bytes += 2 * kBins * sizeof(std::uint64_t);
      start(context, with_bins, sample_count_kernel, arguments);
      start(context, of_parts, sample_list_kernel, arguments);
      start(context, of_rows, sample_draw_from_list_kernel, arguments);
    } else {
      start(context, of_parts, sample_weigh_kernel, arguments);
      start(context, of_rows, sample_draw_from_part_kernel, arguments);
    }
  }
}

}  // namespace kernels::cuda
