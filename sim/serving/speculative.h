// Speculative decoding (Leviathan et al. 2023, arXiv 2211.17192): a draft proposes tokens, the model reads
// them all in one step and keeps those that it would have chosen, and one of its own. Prediction of several
// tokens by heads of the model itself is the same with another draft.
#pragma once
#include <cstdint>

namespace sim {

// Tokens that a round yields in expectation, where each of `length` proposals is accepted with probability
// `acceptance`, independently: (1 - a^(n + 1)) / (1 - a).
double expected_tokens(double acceptance, std::int64_t length);

// The gain in time a token over decoding without a draft: expected tokens / (length * draft_cost +
// verify_cost), where a step of the draft, and the model's step over length + 1 tokens a sequence, are in
// units of the model's step over one. At large batches the step over more tokens takes longer, and the gain
// turns into a loss.
double speculative_speedup(double acceptance, std::int64_t length, double draft_cost, double verify_cost);

}  // namespace sim
