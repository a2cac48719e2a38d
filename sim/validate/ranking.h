// How well predictions order the configurations of one model on one number of GPUs, and what it costs to run
// the configuration that they put first.
#pragma once
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "sim/validate/table_validation.h"

namespace sim {

// A model on one number of GPUs, in at least five configurations that were both predicted and measured.
struct RankedGroup {
  std::string model;
  int gpus = 0;
  std::size_t configurations = 0, pairs = 0;
  double balance =
      0;  // pairs in the right order less those in the wrong one; ties in either count as neither
  double tau() const { return balance / static_cast<double>(pairs); }  // Kendall's
  // Rows: `chosen` is predicted to be fastest among those predicted to fit (a planner proposes no others; in
  // a table without a predicted outcome all runs fitted); `best` is measured to be fastest.
  std::size_t chosen = 0, best = 0;
  double lost = 0;  // extra time a token of `chosen` over that of `best`, as a fraction
};

// Groups by number of GPUs, then model. A planner is given a batch: where a table has a global_batch, rows
// without one belong to no group. There are no groups in a table without model_name and num_gpus. A group
// without a configuration that is predicted to fit offers no choice and is left out.
std::vector<RankedGroup> rank(const CsvTable& table, const Validation& validation);

struct RankingSummary {
  std::size_t groups = 0, configurations = 0, pairs = 0;
  double tau = 0;  // of all pairs of the groups
  double lost_median = 0, lost_mean = 0;
};
RankingSummary summarize(std::span<const RankedGroup> groups);
// The summary of each number of GPUs.
std::map<int, RankingSummary> summarize_by_gpus(std::span<const RankedGroup> groups);

}  // namespace sim
