// How well predictions order configurations of one model on one number of GPUs, and what running the first of
// them costs.
#pragma once
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "sim/validate/table_validation.h"

namespace sim {

// A model on so many GPUs, in at least five configurations that were predicted and measured.
struct RankedGroup {
  std::string model;
  int gpus = 0;
  std::size_t configurations = 0, pairs = 0;
  double balance =
      0;  // pairs in the right order less those in the wrong one; ties in either count as neither
  double tau() const { return balance / static_cast<double>(pairs); }  // Kendall's
  // Rows of the table: predicted to be fastest among those predicted to fit, as a planner proposes no others
  // (a table without a predicted outcome is of runs that fitted); and measured to be fastest.
  std::size_t chosen = 0, best = 0;
  double lost = 0;  // what the chosen takes longer than the best, a token, as a fraction
};

// By number of GPUs, then model. A planner is given a batch: where a table has a global_batch, rows that do
// not know theirs are of no group. No groups where a table has no model_name and num_gpus; a group of which
// nothing is predicted to fit offers no choice and is none.
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
