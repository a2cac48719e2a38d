#include "sim/plan/ranks.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

namespace sim {
namespace {

constexpr std::array<std::string_view, 5> kAxes{"tp", "cp", "ep", "dp", "pp"};

// Calls visit(axis) for each axis that an order names, first to last.
template <class Visit>
void each_axis(std::string_view order, Visit visit) {
  while (true) {
    const std::size_t dash = order.find('-');
    visit(order.substr(0, dash));
    if (dash == std::string_view::npos) return;
    order.remove_prefix(dash + 1);
  }
}

// A group of `inner` ranks at `stride`, in `outer` places at `outer_stride`. It is one run of ranks where
// they follow each other.
Group group_of(Axis axis, std::int32_t inner, std::int32_t stride, std::int32_t outer,
               std::int32_t outer_stride) {
  if (inner == 1) return {axis, outer, outer_stride};
  if (outer == 1 || outer_stride == inner * stride) return {axis, inner * outer, stride};
  return {axis, inner * outer, stride, outer, outer_stride};
}

}  // namespace

std::string rank_order_problem(const std::string& order) {
  if (order == kDefaultRankOrder) return {};
  std::vector<std::string_view> axes;
  each_axis(order, [&](std::string_view axis) { axes.push_back(axis); });
  std::vector<std::string_view> known(kAxes.begin(), kAxes.end());
  std::ranges::sort(axes);
  std::ranges::sort(known);
  if (axes == known) return {};
  return "must name tp, cp, ep, dp and pp once each, as in " + std::string(kDefaultRankOrder) +
         ", but is \"" + order + "\"";
}

RankStrides rank_strides(const Strategy& s) {
  RankStrides strides;
  std::int32_t next = 1;
  const auto place = [&next](std::int32_t& stride, int size) {
    stride = next;
    next *= size;
  };
  each_axis(s.rank_order, [&](std::string_view axis) {
    if (axis == "tp") place(strides.tensor, s.tensor_parallel);
    if (axis == "cp") place(strides.context, s.context_parallel);
    if (axis == "dp") place(strides.data, s.data_parallel);
    if (axis == "pp") place(strides.pipeline, s.pipeline_parallel);
  });
  return strides;
}

RankPlace place_of_rank(const Strategy& s, std::int32_t rank) {
  const RankStrides strides = rank_strides(s);
  const auto at = [rank](std::int32_t stride, int size) { return rank / std::max(1, stride) % size; };
  return {at(strides.tensor, s.tensor_parallel), at(strides.context, s.context_parallel),
          at(strides.data, s.data_parallel), at(strides.pipeline, s.pipeline_parallel)};
}

std::vector<std::int32_t> members_of(const Strategy& s, const Group& group, std::int32_t rank) {
  if (group.axis == Axis::directions || group.axis == Axis::tied_embedding) {
    const std::int32_t stage = place_of_rank(s, rank).pipeline, other = s.pipeline_parallel - 1 - stage;
    const std::int32_t image = rank + (other - stage) * rank_strides(s).pipeline;
    return {std::min(rank, image), std::max(rank, image)};
  }
  const std::int32_t inner = group.size / group.outer_size;
  const auto at = [rank](std::int32_t stride, std::int32_t size) {
    return size == 1 ? 0 : rank / stride % size;
  };
  const std::int32_t first = rank - at(group.stride, inner) * group.stride -
                             at(group.outer_stride, group.outer_size) * group.outer_stride;
  std::vector<std::int32_t> members;
  for (std::int32_t outer = 0; outer < group.outer_size; ++outer)
    for (std::int32_t i = 0; i < inner; ++i)
      members.push_back(first + outer * group.outer_stride + i * group.stride);
  return members;
}

Group data_group(const Strategy& s) {
  const RankStrides strides = rank_strides(s);
  return strides.context <= strides.data
             ? group_of(Axis::data, s.context_parallel, strides.context, s.data_parallel, strides.data)
             : group_of(Axis::data, s.data_parallel, strides.data, s.context_parallel, strides.context);
}

Group expert_ranks(const Strategy& s) {
  const Group data = data_group(s);
  const std::int32_t places = s.tensor_parallel / s.devices_of_expert();
  return places == 1 ? data : group_of(Axis::expert, places, rank_strides(s).tensor, data.size, data.stride);
}

bool is_divided_by(const Group& group, std::int32_t n) {
  const std::int32_t inner = group.size / group.outer_size;
  return group.size % n == 0 && (inner % n == 0 || n % inner == 0);
}

Group part_of(const Group& group, std::int32_t n) {
  const std::int32_t inner = group.size / group.outer_size;
  return n <= inner ? group_of(group.axis, n, group.stride, 1, 0)
                    : group_of(group.axis, inner, group.stride, n / inner, group.outer_stride);
}

Group across_parts_of(const Group& group, std::int32_t n) {
  const std::int32_t inner = group.size / group.outer_size;
  return n <= inner ? group_of(group.axis, inner / n, group.stride * n, group.outer_size, group.outer_stride)
                    : group_of(group.axis, 1, 0, group.size / n, group.outer_stride * (n / inner));
}

std::int32_t ranks_in_node(const Group& group, std::int32_t devices_per_node) {
  const auto fit = [&](std::int32_t size, std::int32_t stride) {
    return std::clamp(devices_per_node / std::max(1, stride), 1, std::max(1, size));
  };
  // The first and the last of some stages: their distance divides no node, and a node may hold both.
  if (group.axis == Axis::directions || group.axis == Axis::tied_embedding)
    return group.stride < devices_per_node ? group.size : 1;
  const std::int32_t inner = group.size / group.outer_size;
  return fit(inner, group.stride) * (group.outer_size > 1 ? fit(group.outer_size, group.outer_stride) : 1);
}

}  // namespace sim
