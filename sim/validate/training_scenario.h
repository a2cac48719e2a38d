// The training step that a row of a table describes.
#pragma once
#include <vector>

#include "sim/cost/calibration.h"
#include "sim/scenario/scenario.h"
#include "sim/validate/row.h"

namespace sim {

struct TrainingRow {
  // As the row says; where it leaves open in which of several modes its software ran, one of each mode, the
  // first of which is the estimate: the software's default on a network that does not stall. None has
  // problems.
  std::vector<Scenario> modes;
  const Calibration* calibration = nullptr;
  bool nearest_stack = false;  // the implementation is another software's, the most like it
  bool guessed_batch = false;  // the row does not say how many sequences a step has
  // Nor how many a micro-batch has: as many as run at full speed are the estimate of time; a single one,
  // which is a mode besides, is that of memory.
  bool guessed_micro_batch = false;

  const Scenario& scenario() const { return modes.front(); }
};

// Tokens whose experts lie in few groups are sent to each node once (DeepSeek-V3, arXiv 2412.19437, 3.2.2).
ExpertDispatch usual_dispatch(const Model& model);

// Columns of train_*.csv and memory tables: num_gpus, tp, pp, vpp, cp, ep, schedule, zero_stage,
// sequence_parallel, micro_batch, global_batch, seq_len, recompute, recomputed_operations, precision,
// attention, framework, date, implementation (a preset), stalled (y, n), interconnect, and those of the
// model. Empty degrees are 1; an empty cell is what runs of the software usually do (Implementation::usual).
// Throws CannotPredict.
TrainingRow training_row(const TableRow& row);

}  // namespace sim
