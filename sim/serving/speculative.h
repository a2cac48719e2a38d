// Speculative decoding (Leviathan et al. 2023, arXiv 2211.17192): a draft proposes tokens; the model reads
// them all in one step, keeps those that it would have chosen, and adds one of its own. Multi-token
// prediction by heads of the model itself is the same with another draft.
#pragma once
#include <cstdint>

namespace sim {

// Expected tokens of a round in which each of n = `length` proposals is accepted independently with
// probability a = `acceptance`: (1 - a^(n + 1)) / (1 - a).
double expected_tokens(double acceptance, std::int64_t length);

// How many times as fast as decoding without a draft: expected tokens / (length * draft_cost + verify_cost).
// draft_cost is the time of a step of the draft, verify_cost that of the model's step over length + 1 tokens
// of each sequence, both in units of the model's step over one token. At large batches the step over more
// tokens takes longer, and the gain turns into a loss.
double speculative_speedup(double acceptance, std::int64_t length, double draft_cost, double verify_cost);

}  // namespace sim
