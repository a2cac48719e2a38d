// A block a row. Tokens are kept by their rank: of the most probable ones, first top_k, then as few as hold
// top_p of what is left. The rank's border is found digit by digit in the bits of the logit (a radix select),
// then one of the kept tokens is drawn in the order of their ids.
#include "kernels/cuda/sampling.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarp;
constexpr int kDigits = 256;

struct Shared {
  std::uint64_t sums[kDigits];  // of one digit's tokens: how many, or their weight
  std::uint64_t chunk[kWarps];  // of the warps, in the draw
  std::uint64_t before;         // what ranks above the digits chosen so far hold
  std::uint32_t prefix;
  float best_value[kWarps];
  std::int32_t best_token[kWarps];
};

// Larger floats have larger keys.
CUDA_DEVICE std::uint32_t order_of(float x) {
  const std::uint32_t bits = bits_of(x);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

CUDA_DEVICE float value_of_order(std::uint32_t order) {
  return float_of(order & 0x80000000u ? order & 0x7fffffffu : ~order);
}

// exp((x - highest) / temperature) in units of 2^-40.
CUDA_DEVICE std::uint64_t weight_of(float x, float highest, float temperature) {
  return static_cast<std::uint64_t>(exp((static_cast<double>(x) - highest) / temperature) * 0x1p40);
}

CUDA_DEVICE std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// The border of the tokens that are kept: those of larger key, and of its own key the first `ties` by id.
struct Border {
  std::uint32_t key = 0;
  std::uint64_t ties = ~std::uint64_t{0};
};

// The lowest rank that is needed for the sum of amounts of tokens above it, itself included, to reach
// `wanted`. amount(token) is what a token adds; tokens below `within` count for nothing.
template <class Amount>
CUDA_DEVICE Border find_border(Shared& shared, const float* logits, std::int64_t V, std::uint64_t wanted,
                               Border within, const Amount& amount) {
  if (thread_index() == 0) {
    shared.prefix = 0;
    shared.before = 0;
  }
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = thread_index(); i < kDigits; i += block_size()) shared.sums[i] = 0;
    sync_block();
    const std::uint32_t prefix = shared.prefix;
    const std::uint32_t fixed = shift == 24 ? 0 : ~std::uint32_t{0} << (shift + 8);
    for (std::int64_t v = thread_index(); v < V; v += block_size()) {
      const std::uint32_t key = order_of(logits[v]);
      if ((key & fixed) == prefix && key >= within.key)
        add_to_shared(&shared.sums[key >> shift & (kDigits - 1)], amount(v));
    }
    sync_block();
    if (thread_index() == 0) {
      std::uint64_t before = shared.before;
      int digit = kDigits - 1;
      for (; digit > 0 && before + shared.sums[digit] < wanted; --digit) before += shared.sums[digit];
      shared.before = before;
      shared.prefix = prefix | static_cast<std::uint32_t>(digit) << shift;
    }
    sync_block();
  }
  return {shared.prefix, wanted - shared.before};
}

// The sum over the block in fixed point, known to all.
CUDA_DEVICE std::uint64_t block_total(Shared& shared, std::uint64_t x) {
  sync_block();
  if (thread_index() == 0) shared.before = 0;
  sync_block();
  add_to_shared(&shared.before, x);
  sync_block();
  const std::uint64_t total = shared.before;
  sync_block();
  return total;
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
  if (lane_index() == kWarp - 1) shared.chunk[warp_index()] = up_to;
  sync_block();
  std::uint64_t before = up_to - x;
  for (int warp = 0; warp < warp_index(); ++warp) before += shared.chunk[warp];
  return before;
}

CUDA_KERNEL(kThreads)
sample_kernel(std::int32_t* tokens, const float* all_logits, const SamplingStep* step, std::int64_t V) {
  Shared& shared = *shared_memory<Shared>();
  const std::int64_t row = block_index().x;
  const float* const logits = all_logits + row * V;
  const SamplingSettings settings = step->settings;

  // The most probable token, the lowest id among equals.
  float best = -INFINITY;
  std::int32_t best_token = static_cast<std::int32_t>(V);
  for (std::int64_t v = thread_index(); v < V; v += block_size())
    if (logits[v] > best || best_token == V) {
      best = logits[v];
      best_token = static_cast<std::int32_t>(v);
    }
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const float other = shuffle_xor(best, distance);
    const std::int32_t other_token = shuffle_xor(best_token, distance);
    if (other_token < V && (best_token == V || other > best || (other == best && other_token < best_token))) {
      best = other;
      best_token = other_token;
    }
  }
  if (lane_index() == 0) {
    shared.best_value[warp_index()] = best;
    shared.best_token[warp_index()] = best_token;
  }
  sync_block();
  for (int warp = 0; warp < block_size() / kWarp; ++warp) {
    const float other = shared.best_value[warp];
    const std::int32_t other_token = shared.best_token[warp];
    if (other_token < V && (best_token == V || other > best || (other == best && other_token < best_token))) {
      best = other;
      best_token = other_token;
    }
  }
  if (settings.temperature <= 0) {
    if (thread_index() == 0) tokens[row] = best_token;
    return;
  }

  const auto weight = [&](std::int64_t v) { return weight_of(logits[v], best, settings.temperature); };
  Border border;
  if (settings.top_k > 0 && settings.top_k < V)
    border = find_border(shared, logits, V, static_cast<std::uint64_t>(settings.top_k), border,
                         [](std::int64_t) { return std::uint64_t{1}; });
  if (settings.top_p < 1) {
    std::uint64_t own = 0;
    // Ties at the border of top_k are cut by count below; here they weigh in whole, which moves the border of
    // top_p by less than one token's probability.
    for (std::int64_t v = thread_index(); v < V; v += block_size())
      if (order_of(logits[v]) >= border.key) own += weight(v);
    const std::uint64_t total = block_total(shared, own);
    const auto wanted =
        static_cast<std::uint64_t>(static_cast<double>(settings.top_p) * static_cast<double>(total));
    const Border by_weight = find_border(shared, logits, V, wanted > 0 ? wanted : 1, border, weight);
    const std::uint64_t each = weight_of(value_of_order(by_weight.key), best, settings.temperature);
    const std::uint64_t ties = each == 0 ? 1 : (by_weight.ties + each - 1) / each;
    if (by_weight.key > border.key || ties < border.ties) border = {by_weight.key, ties};
  }

  // Only the first by id of the tokens on the border are kept: each thread has a contiguous part of the ids.
  const std::int64_t begin = V * thread_index() / block_size(), end = V * (thread_index() + 1) / block_size();
  std::uint64_t own_ties = 0;
  for (std::int64_t v = begin; v < end; ++v) own_ties += order_of(logits[v]) == border.key;
  std::uint64_t rank = sum_before(shared, own_ties);
  std::uint64_t own = 0;
  std::uint64_t ties = rank;
  for (std::int64_t v = begin; v < end; ++v) {
    const std::uint32_t key = order_of(logits[v]);
    if (key > border.key || (key == border.key && ties++ < border.ties)) own += weight(v);
  }
  const std::uint64_t total = block_total(shared, own);
  const std::uint64_t bits =
      mix(mix(mix(settings.seed) + static_cast<std::uint64_t>(step->step)) + static_cast<std::uint64_t>(row));
  const auto drawn =
      static_cast<std::uint64_t>(static_cast<double>(bits >> 11) * 0x1p-53 * static_cast<double>(total));
  std::uint64_t before = sum_before(shared, own);
  if (drawn < before || drawn >= before + own) return;
  for (std::int64_t v = begin; v < end; ++v) {
    const std::uint32_t key = order_of(logits[v]);
    if (!(key > border.key || (key == border.key && rank++ < border.ties))) continue;
    before += weight(v);
    if (drawn < before) {
      tokens[row] = static_cast<std::int32_t>(v);
      return;
    }
  }
}

// One block, since the step counts on when all threads have read it.
CUDA_KERNEL(kThreads)
pass_on_kernel(TokenLoop loop) {
  const std::int64_t step = loop.step->step;
  for (std::int64_t b = thread_index(); b < loop.B; b += block_size()) {
    const std::int32_t token = loop.next[b];
    loop.tokens[b] = token;
    ++loop.positions[b];
    loop.kept[step % kTokenTurns * loop.B + b] = token;
  }
  sync_block();
  if (thread_index() == 0) loop.step->step = step + 1;
}

}  // namespace

void pass_tokens_on(const Context& context, const TokenLoop& loop) {
  start(context, {.grid = {1, 1, 1}, .threads = threads_for(loop.B, kThreads)}, pass_on_kernel, loop);
}

void sample(const Context& context, std::int32_t* tokens, const float* logits, const SamplingStep* step,
            std::int64_t B, std::int64_t V) {
  start(context,
        {.grid = {static_cast<int>(B), 1, 1},
         .threads = threads_for(V, kThreads),
         .shared_bytes = sizeof(Shared)},
        sample_kernel, tokens, logits, step, V);
}

}  // namespace kernels::cuda
