// Time of a training step from prices of its units: passes over pieces of the model, the pipeline that
// strings them together, and what a step does once.
#pragma once
#include <cstdint>
#include <vector>

#include "sim/planner/pass_time.h"
#include "sim/planner/pipeline_time.h"
#include "sim/planner/unit_prices.h"

namespace sim {

// The units of one piece of the model, in the order of a forward pass.
struct Piece {
  struct Run {
    std::size_t kind = 0;  // of StepBlocks::kinds
    bool experts = false;
    std::int32_t layers = 0;
  };
  bool first = false, last = false;  // has the embedding, the head
  std::vector<Run> runs;
  std::int32_t layers() const;
};
Piece piece_of(const Scenario& scenario, const std::vector<LayerKind>& kinds, std::int32_t piece);

// What a step is made of, beside its prices.
struct StepShape {
  const Scenario* scenario = nullptr;
  std::int32_t micro_batches = 1;
  std::vector<std::vector<Piece>> pieces;  // of each stage's chunks
};
StepShape step_shape(const Scenario& scenario, const std::vector<LayerKind>& kinds);

// What software does around passes.
struct StepSoftware {
  HostWork pass, gather;
  Interference interference;
};

Seconds step_time(const StepShape& shape, const ComputeTimes& compute, const StateTimes& states,
                  const TransferTimes& transfers, const StepSoftware& software, PipelineClock& pipeline);

}  // namespace sim
