// Speculative decoding (Leviathan et al. 2023, arXiv 2211.17192): a draft proposes tokens, the model reads
// them all in one step and keeps those that it would have chosen, and one of its own. Prediction of several
// tokens by heads of the model itself is the same with another draft.
#pragma once
#include <cstdint>
#include <span>

#include "sim/cost/iteration_cost.h"

namespace sim {

// Tokens that a round yields in expectation, where each of `length` proposals is accepted with probability
// `acceptance`, independently: (1 - a^(n + 1)) / (1 - a).
double expected_tokens(double acceptance, std::int64_t length);
// The same where the proposal at each depth has an acceptance of its own, given those before it:
// 1 + sum over j of the product of the first j.
double expected_tokens(std::span<const double> acceptance_by_depth);

// The gain in time a token over decoding without a draft: expected tokens / (length * draft_cost + verify_cost),
// where a step of the draft, and the model's step over length + 1 tokens a sequence, are in units of the
// model's step over one.
double speculative_speedup(double acceptance, std::int64_t length, double draft_cost, double verify_cost);

struct SpeculativeDecoding {
  CostBreakdown draft_step, verify_step, plain_step;
  double tokens_per_round = 1, speedup = 1;
  Seconds tpot() const;
  std::int64_t length = 0;
};
// A batch of sequences whose cache holds `context` tokens. At large batches the model's step over more tokens
// takes longer, and the gain turns into a loss.
SpeculativeDecoding speculative_decoding(const IterationCost& target, const IterationCost& draft,
                                         double sequences, double context, double acceptance,
                                         std::int64_t length);

}  // namespace sim
