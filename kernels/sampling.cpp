#include "kernels/sampling.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/parallel.h"

namespace kernels::cpu {
namespace {

// SplitMix64's output function (Steele, Lea, Flood 2014): a bijection that leaves no visible structure.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Uniform in [0, 1), a function of its arguments alone.
double uniform(std::uint64_t seed, std::int64_t step, std::int64_t row) {
  const std::uint64_t bits =
      mix(mix(mix(seed) + static_cast<std::uint64_t>(step)) + static_cast<std::uint64_t>(row));
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

struct Candidate {
  double weight;  // proportional to the probability
  std::int32_t token;
};

// Most probable first; the lower id first among equals, so that a cut through equals is always the same.
bool more_probable(const Candidate& a, const Candidate& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
}

void keep_top_k(std::vector<Candidate>& candidates, std::int32_t top_k) {
  if (top_k <= 0 || static_cast<std::size_t>(top_k) >= candidates.size()) return;
  std::nth_element(candidates.begin(), candidates.begin() + top_k, candidates.end(), more_probable);
  candidates.resize(static_cast<std::size_t>(top_k));
}

double total_weight(const std::vector<Candidate>& candidates) {
  double total = 0;
  for (const Candidate& candidate : candidates) total += candidate.weight;
  return total;
}

// Keeps the smallest set of most probable candidates whose probability reaches top_p; at least one.
void keep_top_p(std::vector<Candidate>& candidates, float top_p) {
  if (top_p >= 1) return;
  const double total = total_weight(candidates);
  // The n candidates below (1 - top_p) / n hold less than 1 - top_p together, so none of them is in the set:
  // most of a vocabulary need not be sorted.
  const double least = (1.0 - top_p) * total / static_cast<double>(candidates.size());
  std::erase_if(candidates, [least](const Candidate& candidate) { return candidate.weight < least; });
  std::sort(candidates.begin(), candidates.end(), more_probable);
  double kept = 0;
  std::size_t count = 0;
  while (count < candidates.size() && (count == 0 || kept < top_p * total))
    kept += candidates[count++].weight;
  candidates.resize(count);
}

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

std::int32_t sample_row(const float* logits, const SamplingSettings& settings, double random,
                        std::int64_t V) {
  const std::int64_t best = std::max_element(logits, logits + V) - logits;
  if (settings.temperature <= 0) return static_cast<std::int32_t>(best);
  static thread_local std::vector<Candidate> candidates;
  candidates.clear();
  const double highest = logits[best];
  for (std::int64_t v = 0; v < V; ++v)
    candidates.push_back(
        {std::exp((logits[v] - highest) / settings.temperature), static_cast<std::int32_t>(v)});
  keep_top_k(candidates, settings.top_k);
  keep_top_p(candidates, settings.top_p);
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
