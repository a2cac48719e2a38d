#include "kernels/sampling.h"

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "kernels/counter_random.h"
#include "kernels/parallel.h"
#include "kernels/vector_math.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

// A number uniform in [0, 1) that depends on nothing but the arguments.
double uniform(std::uint64_t seed, std::int64_t step, std::int64_t row) {
  const std::uint64_t bits =
      mix(mix(mix(seed) + static_cast<std::uint64_t>(step)) + static_cast<std::uint64_t>(row));
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

struct Candidate {
  float logit, weight;  // the weight is proportional to the probability
  std::int32_t token;
};

// Most probable first; the lower id first among equals, so that a cut through equals is always the same.
bool more_probable(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

KERNELS_MULTIVERSION float largest_of(const float* logits, std::int64_t V) {
  float largest = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : largest)
  for (std::int64_t v = 0; v < V; ++v) largest = logits[v] > largest ? logits[v] : largest;
  return largest;
}

KERNELS_MULTIVERSION void weigh(float* weights, const float* logits, float highest, float temperature,
                                std::int64_t V) {
#pragma omp simd
  for (std::int64_t v = 0; v < V; ++v) weights[v] = exp_approx((logits[v] - highest) / temperature);
}

KERNELS_MULTIVERSION double sum_of(const float* weights, std::int64_t count) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t v = 0; v < count; ++v) sum += weights[v];
  return sum;
}

// The candidates of a row: all tokens, or the top_k most probable. Tokens lighter than `least` are left out.
std::vector<Candidate>& candidates_of(const float* logits, const float* weights, std::int64_t V,
                                      std::int32_t top_k, double least) {
  static thread_local std::vector<Candidate> kept;
  kept.clear();
  const bool cuts = top_k > 0 && top_k < V;
  const auto k = static_cast<std::size_t>(top_k);
  const auto cut = [&] {
    std::nth_element(kept.begin(), kept.begin() + top_k, kept.end(), more_probable);
    kept.resize(k);
  };
  // Each cut raises the logit needed to be among the first k: most of a vocabulary is only looked at.
  float threshold = -std::numeric_limits<float>::infinity();
  for (std::int64_t v = 0; v < V; ++v) {
    if (!(logits[v] >= threshold) || weights[v] < least) continue;  // nor what is no number
    kept.push_back({logits[v], weights[v], static_cast<std::int32_t>(v)});
    if (!cuts || kept.size() < 4 * k) continue;
    cut();
    threshold = std::max_element(kept.begin(), kept.end(), more_probable)->logit;
  }
  if (cuts && kept.size() > k) cut();
  if (kept.empty()) kept.push_back({0, 1, 0});  // nothing is a number
  return kept;
}

template <class Candidates>
double total_weight(const Candidates& candidates) {
  double total = 0;
  for (const Candidate& candidate : candidates) total += candidate.weight;
  return total;
}

// Keeps the smallest set of most probable candidates that together weigh this much; at least one. It halves
// the range in question instead of sorting it. The candidates that it keeps stay in their order.
void keep_weight(std::vector<Candidate>& candidates, double weight) {
  static thread_local std::vector<Candidate> by_probability;
  by_probability = candidates;
  auto begin = by_probability.begin(), end = by_probability.end();
  double kept = 0;  // by those before `begin`, which are in the set
  while (end - begin > 1) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end, more_probable);
    const double upper = total_weight(std::span(begin, middle));
    if (kept + upper >= weight) {
      end = middle;
    } else {
      kept += upper;
      begin = middle;
    }
  }
  std::erase_if(candidates, [last = *begin](const Candidate& c) { return more_probable(last, c); });
}

// The first token, in the order of ids, at which weights add up to more than `random` times their total.
std::int32_t draw(std::vector<Candidate>& candidates, double random) {
  const auto by_id = [](const Candidate& a, const Candidate& b) { return a.token < b.token; };
  if (!std::is_sorted(candidates.begin(), candidates.end(), by_id))
    std::sort(candidates.begin(), candidates.end(), by_id);
  double remaining = random * total_weight(candidates);
  for (const Candidate& candidate : candidates) {
    remaining -= candidate.weight;
    if (remaining < 0) return candidate.token;
  }
  return candidates.back().token;  // rounding left a little over
}

// The same for all tokens, part by part.
std::int32_t draw(const float* weights, double total, double random, std::int64_t V) {
  constexpr std::int64_t kPart = 1024;
  double remaining = random * total;
  std::int64_t last = 0;  // the last token that weighs something
  for (std::int64_t part = 0; part < V; part += kPart) {
    const std::int64_t end = std::min(V, part + kPart);
    const double of_part = sum_of(weights + part, end - part);
    if (of_part == 0) continue;
    if (of_part <= remaining && end < V) {
      remaining -= of_part;
      last = end - 1;
      continue;
    }
    for (std::int64_t v = part; v < end; ++v) {
      if (weights[v] > 0) last = v;
      remaining -= weights[v];
      if (remaining < 0) return static_cast<std::int32_t>(v);
    }
  }
  return static_cast<std::int32_t>(last);  // rounding left a little over
}

std::int32_t sample_row(const float* logits, const SamplingSettings& settings, double random,
                        std::int64_t V) {
  const float highest = largest_of(logits, V);
  if (settings.temperature <= 0) {
    const std::int64_t best = std::find(logits, logits + V, highest) - logits;
    return static_cast<std::int32_t>(best < V ? best : 0);  // nothing is a number
  }
  static thread_local std::vector<float> storage;
  storage.resize(static_cast<std::size_t>(V));
  float* const weights = storage.data();
  weigh(weights, logits, highest, settings.temperature, V);
  const bool cuts = settings.top_k > 0 && settings.top_k < V, all_of_them = settings.top_p >= 1;
  const double total = cuts ? 0 : sum_of(weights, V);
  if (!cuts && all_of_them) return draw(weights, total, random, V);
  // At most n tokens weigh less than (1 - top_p) / n each. Together they weigh less than 1 - top_p, so none
  // of them is among the first that reach top_p.
  const double least = cuts || all_of_them ? 0 : (1.0 - settings.top_p) * total / static_cast<double>(V);
  std::vector<Candidate>& candidates = candidates_of(logits, weights, V, settings.top_k, least);
  if (!all_of_them) keep_weight(candidates, settings.top_p * (cuts ? total_weight(candidates) : total));
  return draw(candidates, random);
}

}  // namespace

void sample(std::int32_t* tokens, const float* logits, const SamplingSettings& settings, std::int64_t step,
            std::int64_t B, std::int64_t V) {
  parallel_ranges(B, V, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b)
      tokens[b] = sample_row(logits + b * V, settings, uniform(settings.seed, step, b), V);
  });
}

}  // namespace kernels::cpu
