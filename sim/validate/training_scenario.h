// The training step that a row of a table describes.
#pragma once
#include <optional>

#include "sim/cost/calibration.h"
#include "sim/scenario/scenario.h"
#include "sim/validate/row.h"

namespace sim {

struct TrainingRow {
  Scenario scenario;  // has no problems
  const Calibration* calibration = nullptr;
  bool nearest_stack = false;  // the implementation is another software's, the most like it
  bool guessed_batch = false;  // the row does not say how many sequences a step has
  // The peak that the row's source prints is that of the first pipeline stage, whose rank 0 wrote its logs.
  bool memory_of_first_stage = false;
  // Another mode in which the software may have run, which rows do not tell and memory of many runs shows.
  std::optional<Implementation> other_mode;
  double other_mode_share = 0;  // how far from this mode to the other half of such runs lie; 1: in the other
};

// Columns of train_*.csv and memory tables: num_gpus, tp, pp, vpp, cp, ep, dp, zero_stage, sequence_parallel,
// micro_batch, global_batch, seq_len, recompute, precision, attention, framework, date, interconnect, notes,
// and those of the model. Empty degrees are 1; what an empty cell leaves open is taken as its stack does it.
// Throws CannotPredict.
TrainingRow training_row(const TableRow& row);

}  // namespace sim
