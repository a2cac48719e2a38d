// A state-space mixer, Mamba-2 (Dao & Gu 2024, arXiv 2405.21060): one projection gives a gate, the states'
// inputs x, B and C, which write and read the states, and a time step a head. A short convolution, the scan,
// a gated norm and a projection back follow. Tensor-parallel ranks have whole groups of heads, so nothing is
// exchanged between the two projections.
#pragma once
#include <string>
#include <vector>

#include "sim/plan/builder.h"
#include "sim/plan/parameters.h"

namespace sim {

struct StateSpaceResults {
  BufferId projected = kNoBuffer;                 // gate | x, B, C | time steps
  BufferId convolved = kNoBuffer;                 // x, B, C
  BufferId scanned = kNoBuffer;                   // (rows, heads head_dim)
  BufferId normed = kNoBuffer, rstd = kNoBuffer;  // rstd: one a row and group
};
StateSpaceResults add_state_space_results(PlanBuilder& builder, const std::string& block, AddBuffer add,
                                          bool statistics);

// Where generation keeps what a layer carries from token to token: the convolution's last inputs, and the
// states.
struct StateSpaceCache {
  BufferId history = kNoBuffer, states = kNoBuffer;
};
StateSpaceCache add_state_space_cache(PlanBuilder& builder);

// From the layer norm's output, of all rows, to r.normed.
std::vector<Operation> state_space_forward(const PlanBuilder& builder, const StateSpaceParameters& p,
                                           const StateSpaceResults& r, const StateSpaceCache& cache,
                                           BufferId inp, BufferId positions);

// From the gradient of r.normed to that of r.projected, which the caller's buffer takes.
std::vector<Operation> state_space_backward(PlanBuilder& builder, const std::string& block,
                                            const StateSpaceParameters& p, const StateSpaceResults& r,
                                            BufferId d_normed, BufferId d_projected);

// The projection's columns and inputs, for its products.
Dims state_space_projection(const Model& model);

}  // namespace sim
