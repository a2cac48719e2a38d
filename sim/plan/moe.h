// Mixture of experts: a router chooses `num_experts_per_tok` experts for each token; rows are ordered by
// expert, multiplied by each expert's own weights, and put back in the tokens' order. As Megatron-LM does it,
// a row's weight multiplies the activation inside of its expert, so that putting back is a plain sum.
//
// Expert parallelism sends each row to the rank that holds its expert (`dispatch`) and its result back
// (`combine`). Where tensor-parallel ranks share an expert, each routes its own rows (sequence parallelism)
// and they gather what they received; without expert and sequence parallelism all hold all rows already.
#pragma once
#include <string>
#include <vector>

#include "sim/plan/builder.h"
#include "sim/plan/parameters.h"

namespace sim {

// Rows of a rank, in expectation of the busiest one.
struct ExpertRows {
  Extent tokens;    // that it routes
  Extent routed;    // what it sends: a row for each token and expert chosen, or each place of a capacity
  Extent received;  // of its experts, from all ranks of the group
  Extent computed;  // by its experts: received by all ranks that share them
};
ExpertRows expert_rows(const PlanBuilder& builder);

// Intermediate results that backward reads; those of shared experts are absent where there are none.
struct ExpertResults {
  BufferId logits = kNoBuffer, weights = kNoBuffer,
           indices = kNoBuffer;                       // (tokens, experts); (tokens, chosen)
  BufferId inp = kNoBuffer, row_weights = kNoBuffer;  // (computed, hidden), (computed)
  BufferId weighed = kNoBuffer;  // (computed, hidden): weights times inp, where they are on the input
  BufferId up = kNoBuffer, activation = kNoBuffer;
  BufferId out = kNoBuffer;  // (computed, hidden) before weights that are on the output
  BufferId shared_up = kNoBuffer, shared_activation = kNoBuffer;
  BufferId shared_gate = kNoBuffer;  // a number a token, before its sigmoid
};
ExpertResults add_expert_results(PlanBuilder& builder, const std::string& block, AddBuffer add);

// What lives in a forward block alone; absent where rows stay where they are.
struct ExpertScratch {
  BufferId routed = kNoBuffer, routed_weights = kNoBuffer;
  BufferId received = kNoBuffer, received_weights = kNoBuffer;
  BufferId out = kNoBuffer, out_received = kNoBuffer, out_routed = kNoBuffer;  // of experts; sent back
  BufferId sum = kNoBuffer;                               // of a token's experts, (stream rows, hidden)
  BufferId gathered = kNoBuffer, shared_out = kNoBuffer;  // shared experts with sequence parallelism
};
ExpertScratch add_expert_scratch(PlanBuilder& builder, const std::string& block);

// From the norm's output to `scratch.sum`, which the caller adds to the residual stream.
std::vector<Operation> experts_forward(const PlanBuilder& builder, const ExpertParameters& p,
                                       const ExpertResults& r, const ExpertScratch& scratch, BufferId inp);

// From the gradient of the sum to that of the norm's output, which is returned beside the operations.
struct ExpertsBackward {
  std::vector<Operation> operations;
  BufferId dinp = kNoBuffer;
};
ExpertsBackward experts_backward(PlanBuilder& builder, const std::string& block, const ExpertParameters& p,
                                 const ExpertResults& r, BufferId inp, BufferId dout);

}  // namespace sim
