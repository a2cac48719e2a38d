#include "sim/cost/ratio_grid.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace sim {

RatioGrid::RatioGrid(std::vector<Axis> axes, std::vector<float> log_ratios)
    : axes_(std::move(axes)), log_ratios_(std::move(log_ratios)) {
  if (axes_.empty() || axes_.size() > kMostAxes)
    throw std::invalid_argument("a grid has 1 to " + std::to_string(kMostAxes) + " axes");
  std::size_t nodes = 1;
  for (const Axis& axis : axes_) {
    if (axis.values.empty() || !(axis.values.front() > 0))
      throw std::invalid_argument("axis \"" + axis.name + "\" must have values above 0");
    std::vector<double> logs;
    for (const double value : axis.values) {
      logs.push_back(std::log(value));
      if (logs.size() > 1 && !(logs.back() > logs[logs.size() - 2]))
        throw std::invalid_argument("axis \"" + axis.name + "\" must increase");
    }
    nodes *= logs.size();
    logs_.push_back(std::move(logs));
  }
  if (log_ratios_.size() != nodes)
    throw std::invalid_argument("the axes make " + std::to_string(nodes) + " nodes, but there are " +
                                std::to_string(log_ratios_.size()) + " values");
}

RatioGrid::Reading RatioGrid::at(const Point& point) const {
  Reading reading{.log_ratio = 0, .on_node = true, .inside = true};
  std::array<std::size_t, kMostAxes> below{}, stride{};
  std::array<double, kMostAxes> weight{};  // the weight of the node above
  std::size_t run = 1;
  for (std::size_t i = axes_.size(); i-- > 0;) {
    const std::vector<double>& values = axes_[i].values;
    const std::vector<double>& logs = logs_[i];
    stride[i] = run;
    run *= values.size();
    const double x = point[i];
    if (x <= values.front() || x >= values.back()) {
      const bool low = x <= values.front();
      below[i] = low ? 0 : values.size() - 1;
      if (x != values[below[i]]) reading.on_node = reading.inside = false;
      continue;
    }
    const auto above = std::upper_bound(values.begin(), values.end(), x);
    below[i] = static_cast<std::size_t>(above - values.begin()) - 1;
    if (x == values[below[i]]) continue;
    reading.on_node = false;
    weight[i] = (std::log(x) - logs[below[i]]) / (logs[below[i] + 1] - logs[below[i]]);
  }
  for (std::size_t corner = 0; corner < (std::size_t{1} << axes_.size()); ++corner) {
    double share = 1;
    std::size_t node = 0;
    for (std::size_t i = 0; i < axes_.size(); ++i) {
      const bool up = (corner >> i & 1) != 0;
      share *= up ? weight[i] : 1 - weight[i];
      node += (below[i] + (up && weight[i] > 0 ? 1 : 0)) * stride[i];
    }
    if (share > 0) reading.log_ratio += share * static_cast<double>(log_ratios_[node]);
  }
  return reading;
}

}  // namespace sim
