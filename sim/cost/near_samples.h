// Estimates the time of a shape that was not timed from timed kernels of its kind.
#pragma once
#include <array>
#include <cstddef>
#include <vector>

#include "sim/cost/calibration.h"

namespace sim {

// The squared distance of two kernels of a kind, in logarithms. The dimensions decide the efficiency of
// products and of attention, above all a product's rows: one of one row behaves unlike one of a thousand rows
// with as many bytes. The bytes decide for the kinds that stream through memory.
double squared_distance(const KernelSample& a, const KernelSample& b);

// Timed kernels around a shape of their kind, each with the logarithm of its time over its roofline's.
class NearSamples {
 public:
  // `noise`: the squared distance within which samples are as good as each other.
  NearSamples(const KernelSample& shape, double noise);

  // Adds a sample; returns its squared distance from the shape.
  double add(const KernelSample& timed, double log_ratio);
  bool empty() const { return samples_.empty(); }

  // The estimated log ratio at the shape; there must be a sample. Products, attention: a plane fitted to the
  // nearest eight samples, each weighted by 1 / (squared distance + noise), with slopes held back as in ridge
  // regression, and clamped to the range of the eight. Kinds that stream: the line between the next samples
  // with fewer and with more bytes; beyond the outermost sample, that sample's value.
  double log_ratio();

  static constexpr std::size_t kAxes = 5;
  using Coordinates = std::array<double, kAxes>;
  struct Sample {
    Coordinates from_shape{};
    double squared_distance = 0;
    double log_ratio = 0;
  };

 private:
  bool in_space_;
  Coordinates shape_;
  double noise_;
  std::vector<Sample> samples_;
};

}  // namespace sim
