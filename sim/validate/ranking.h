// How well predictions order configurations of one model on one number of GPUs, and what running the first of
// them costs.
#pragma once
#include <cstddef>

#include "sim/validate/table_validation.h"

namespace sim {

struct RankingSummary {
  std::size_t groups =
      0;  // models on so many GPUs, with enough configurations that were predicted and measured
  std::size_t pairs = 0;  // of configurations of a group
  // Kendall: pairs in the right order less those in the wrong one, over all pairs; ties in either count as
  // neither.
  double tau = 0;
  // Of each group, what the configuration predicted to be fastest takes longer than the one measured to be, a
  // token, as a fraction.
  double lost_median = 0, lost_mean = 0;
};

// Groups by model_name and num_gpus; empty (no groups) where a table has no such columns.
RankingSummary rank(const CsvTable& table, const Validation& validation);

}  // namespace sim
