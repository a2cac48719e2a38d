// A batch of equal requests that begin and end together: prefill, then a step for each further token.
#pragma once
#include "sim/cost/iteration_cost.h"

namespace sim {

struct StaticBatchTimes {
  CostBreakdown first_token;  // prefill, with the choice of the first token
  CostBreakdown later_token;  // mean over the tokens after the first
  CostBreakdown total;        // with the engine's cost of a request
};

// Lengths and batch are the workload's, stages the strategy's. With pipeline stages a micro-batch's next
// token waits for its last stage, so that stages are busy only where there are as many micro-batches as
// stages.
StaticBatchTimes static_batch_times(const IterationCost& cost, const Scenario& scenario);

// Puts the engine's times and rows into the report of a served scenario, in the place of those that it has:
// the whole generation, each token, and rows that add up to the whole, of the first rank. Rows without an
// operation of the plan are the host's time that the device waits for ("engine.host"), a request's fixed time
// ("engine.request"), and between pipeline stages "engine.send" and "engine.wait".
void set_engine_results(const Calibration* calibration, Report& report);

// Micro-batches that a batch is cut into for its stages (FasterTransformer, nccl_utils.cc,
// getLocalBatchSize): `tokens` are those of a sequence in a pass.
std::int64_t pipeline_micro_batches(std::int64_t batch, std::int64_t tokens, int stages,
                                    std::int64_t most_tokens);

}  // namespace sim
