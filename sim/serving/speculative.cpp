#include "sim/serving/speculative.h"

#include <cmath>

namespace sim {

double expected_tokens(double acceptance, std::int64_t length) {
  if (acceptance >= 1) return static_cast<double>(length + 1);
  return (1 - std::pow(acceptance, static_cast<double>(length + 1))) / (1 - acceptance);
}

double expected_tokens(std::span<const double> acceptance_by_depth) {
  double tokens = 1, all = 1;
  for (const double acceptance : acceptance_by_depth) tokens += all *= acceptance;
  return tokens;
}

double speculative_speedup(double acceptance, std::int64_t length, double draft_cost, double verify_cost) {
  return expected_tokens(acceptance, length) / (static_cast<double>(length) * draft_cost + verify_cost);
}

Seconds SpeculativeDecoding::tpot() const {
  return (draft_step.total() * static_cast<double>(length) + verify_step.total()) * (1 / tokens_per_round);
}

SpeculativeDecoding speculative_decoding(const IterationCost& target, const IterationCost& draft,
                                         double sequences, double context, double acceptance,
                                         std::int64_t length) {
  Iteration one{.decode_sequences = sequences, .decode_context = context, .prompts = {}};
  Iteration several = one;
  several.decode_tokens = static_cast<double>(length + 1);
  SpeculativeDecoding s{.draft_step = draft.iteration(one),
                        .verify_step = target.iteration(several),
                        .plain_step = target.iteration(one)};
  s.length = length;
  s.tokens_per_round = expected_tokens(acceptance, length);
  const Seconds plain = s.plain_step.total();
  s.speedup =
      speculative_speedup(acceptance, length, s.draft_step.total() / plain, s.verify_step.total() / plain);
  return s;
}

}  // namespace sim
