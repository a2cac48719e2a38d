// The training step that a row of a table describes.
#pragma once
#include <vector>

#include "sim/cost/calibration.h"
#include "sim/scenario/scenario.h"
#include "sim/validate/row.h"

namespace sim {

struct TrainingRow {
  // The scenario of the row. Where the row does not say in which of several modes its software ran, there is
  // one scenario for each mode. The first is the estimate: the software's default, on a network that does not
  // stall. None has problems.
  std::vector<Scenario> modes;
  const Calibration* calibration = nullptr;
  bool nearest_stack = false;  // the implementation is that of the most similar software
  bool guessed_batch = false;  // the row does not say how many sequences a step has
  // The row does not say how many sequences a micro-batch has, either. The estimate of time takes as many as
  // run at full speed; that of memory takes a single one, which is a further mode.
  bool guessed_micro_batch = false;

  const Scenario& scenario() const { return modes.front(); }
};

// Tokens whose experts lie in few groups go to each node once (DeepSeek-V3, arXiv 2412.19437, 3.2.2).
ExpertDispatch usual_dispatch(const Model& model);

// Reads columns of train_*.csv and memory tables: num_gpus, tp, pp, vpp, cp, ep, schedule, zero_stage,
// sequence_parallel, micro_batch, global_batch, seq_len, recompute, recomputed_operations, precision,
// attention, framework, date, implementation (a preset), stalled (y, n), interconnect, and those of the
// model. An empty degree is 1; another empty cell is what the software usually does (Implementation::usual).
// Throws CannotPredict.
TrainingRow training_row(const TableRow& row);

}  // namespace sim
