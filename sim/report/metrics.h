// Totals as functions of a report: the same code for predicted, measured and recorded ones.
#pragma once
#include <optional>
#include <vector>

#include "sim/enum_names.h"
#include "sim/report/report.h"

namespace sim {

// FLOPs of training on one token (forward and backward) by the conventions in use. N counts the weights of
// matrix products that a token passes: chosen experts only, the head once whether tied or not, and no table
// that tokens are only looked up in. s is the sequence length, a d the width of all heads, L the layers.
enum class FlopsConvention {
  six_n,           // 6 N, as the lectures have it: attention left out
  six_n_full,      // 6 N + 12 L a d s: pairs that causal attention masks are counted, too
  six_n_causal,    // 6 N + 12 a d for each key that a query sees, by the layers' windows and chunks
  torchtitan,      // 6 (all parameters - embedding) + 12 L a d s; a tied head goes with the embedding
  all_parameters,  // 6 x all parameters, embedding tables too, + 12 L a d s (PaLM's and nanoGPT's formula)
};
template <>
inline constexpr std::array<std::string_view, 5> kOtherWords<FlopsConvention>{
    "6N", "6N + full attention", "6N + causal attention", "torchtitan", "6 x all parameters"};
inline constexpr int kFlopsConventions = 5;
// Executed FLOPs are never fewer than those of six_n and six_n_causal. The other conventions also count work
// that nobody computes.
Flops flops_per_token(const Model& model, std::int64_t seq_len, FlopsConvention c);

// Each of these is 0 where the report lacks the numbers that it follows from.
Seconds step_time(const Report& report);     // of a run that goes on: median of the steps so far
double waiting_share(const Report& report);  // share of the step in which ranks wait for the slowest
double tokens_per_second(
    const Report& report);  // training: tokens of a step; generation: new tokens, all sequences
// Training only; relative to the dense peak of the workload's dtype.
double mfu(const Report& report, FlopsConvention c);
double mfu(const Scenario& scenario, double tokens_per_second, FlopsConvention c);
// Executed FLOPs of the whole step or generation on all devices. A report has rows of one rank of each stage,
// which stands for the others. The mean of one device is this over the strategy's devices().
Flops executed_flops(const Report& report);
double hfu(const Report& report);  // executed FLOPs over the time and the dense peak of all devices
// Decode: memory traffic of all tokens after the first on a device, by its rows (weights as they are stored,
// its part of the cache, activations), over their time and the peak bandwidth. At batch 1 the traffic is the
// bytes of weights and cache, gpt-fast's convention, within a percent or two.
double mbu(const Report& report);
std::optional<Seconds> ttft(const Report& report);  // time to first token
std::optional<Seconds> tpot(const Report& report);  // mean time of a token after the first
// The perplexity of a generation that read a text: e to the mean surprise of its tokens. None: it read none.
std::optional<double> perplexity(const Report& report);
Bytes peak_memory(const Report& report, std::int32_t rank);  // sum of the ledger's lines
std::int32_t fullest_rank(const Report& report);             // the first of those with the highest peak
Bytes peak_memory(const Report& report);                     // of the fullest rank
Bytes host_memory(const Report& report);                     // most that a rank keeps in its host's memory
std::vector<MemoryLine> peak_ledger(const Report& report);   // its lines; sum: peak_memory(report)
// Memory that the first rank's plan asks for, without what the platform holds: the same in a measured report
// as in a predicted one.
Bytes planned_memory(const Report& report);
// The part of planned_memory() that grows with the work: without parameters, gradients and optimizer states.
Bytes working_memory(const Report& report);
bool fits(const Report& report);

}  // namespace sim
