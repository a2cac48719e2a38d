// A batch of equal requests that begin and end together: prefill, then a step for each further token.
#pragma once
#include "sim/cost/iteration_cost.h"

namespace sim {

struct StaticBatchTimes {
  CostBreakdown first_token;  // prefill, with the choice of the first token
  CostBreakdown later_token;  // mean over the tokens after the first
  CostBreakdown total;        // the whole generation, with the engine's fixed cost of a request
};

// Lengths and batch are the workload's, stages the strategy's. A micro-batch's next token cannot begin before
// the last pipeline stage has ended, so all stages are busy only where there are at least as many
// micro-batches as stages.
StaticBatchTimes static_batch_times(const IterationCost& cost, const Scenario& scenario);

// Replaces the times and rows in the report of a served scenario by the engine's: the whole generation, each
// token, and rows of the first rank that add up to the whole. Some rows stand for no operation of the plan:
// the host's time that the device waits for ("engine.host"), a request's fixed time ("engine.request"), and
// between pipeline stages "engine.send" and "engine.wait".
void set_engine_results(const Calibration* calibration, Report& report);

// The number of micro-batches that a batch is cut into for its stages (FasterTransformer, nccl_utils.cc,
// getLocalBatchSize). `tokens`: of one sequence in a pass; `most_tokens`: of a micro-batch, 0: do not cut.
std::int64_t pipeline_micro_batches(std::int64_t batch, std::int64_t tokens, int stages,
                                    std::int64_t most_tokens);

}  // namespace sim
