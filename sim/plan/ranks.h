// Which ranks of a job belong together: the groups of Plan::groups, by Strategy::rank_order.
#pragma once
#include <string>
#include <vector>

#include "sim/plan/plan.h"

namespace sim {

// Why `order` is not a valid rank order, as words to follow "strategy.rank_order"; empty where it is one.
std::string rank_order_problem(const std::string& order);

// Distances between neighbours of each kind. Requires rank_order_problem(s.rank_order).empty().
struct RankStrides {
  std::int32_t tensor = 1, context = 1, data = 1, pipeline = 1;
};
RankStrides rank_strides(const Strategy& s);

// Where a rank of a job stands.
struct RankPlace {
  std::int32_t tensor = 0, context = 0, data = 0, pipeline = 0;
};
RankPlace place_of_rank(const Strategy& s, std::int32_t rank);

// The ranks of a group that this one is of, in their order.
std::vector<std::int32_t> members_of(const Strategy& s, const Group& group, std::int32_t rank);

// The data- and context-parallel ranks together: those that hold the same parameters.
Group data_group(const Strategy& s);

// The ranks that expert parallelism divides experts over: the data group, joined by the tensor-parallel ranks
// where tensor parallelism does not divide experts.
Group expert_ranks(const Strategy& s);

// A group's first `n` ranks, and those at the same place in each such part; `n` divides it without a
// remainder.
bool is_divided_by(const Group& group, std::int32_t n);
Group part_of(const Group& group, std::int32_t n);
Group across_parts_of(const Group& group, std::int32_t n);

// Most ranks of a group that share a node of so many devices.
std::int32_t ranks_in_node(const Group& group, std::int32_t devices_per_node);

}  // namespace sim
