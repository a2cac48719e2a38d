// Measured over analytic time on a grid of shapes, read between its nodes.
#pragma once
#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace sim {

// Logarithms of measured over analytic time at every combination of the axes' values. Between nodes they are
// interpolated multilinearly in the logarithms of the coordinates; beyond the edge the edge's value holds.
class RatioGrid {
 public:
  static constexpr std::size_t kMostAxes = 3;

  struct Axis {
    std::string name;
    std::vector<double> values;  // above zero, increasing
  };
  using Point = std::array<double, kMostAxes>;  // in the axes' order; those beyond the last axis are ignored

  struct Reading {
    double log_ratio = 0;
    bool on_node = false;  // this very shape was tabulated
    bool inside = false;   // nothing was held at an edge
  };

  RatioGrid() = default;
  // The last axis runs fastest. Throws std::invalid_argument, whose text names what is wrong.
  RatioGrid(std::vector<Axis> axes, std::vector<float> log_ratios);

  const std::vector<Axis>& axes() const { return axes_; }
  Reading at(const Point& point) const;

 private:
  std::vector<Axis> axes_;
  std::vector<std::vector<double>> logs_;  // of the axes' values
  std::vector<float> log_ratios_;
};

}  // namespace sim
