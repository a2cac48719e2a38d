// What is read off timed kernels of a kind for a shape that was not timed.
#pragma once
#include <array>
#include <cstddef>
#include <vector>

#include "sim/cost/calibration.h"

namespace sim {

// How far apart two kernels of a kind lie, squared and in logarithms. What decides the efficiency of products
// and of attention are their dimensions, a product's rows above all: one of one row is another thing than one
// of a thousand with as many bytes. The bytes decide for the kinds that stream through memory.
double squared_distance(const KernelSample& a, const KernelSample& b);

// Timed kernels around a shape of their kind, each with the logarithm of its time over its roofline's.
class NearSamples {
 public:
  // `noise`: the squared distance within which samples are as good as each other.
  NearSamples(const KernelSample& shape, double noise);

  // Its squared distance from the shape.
  double add(const KernelSample& timed, double log_ratio);
  bool empty() const { return samples_.empty(); }

  // That logarithm at the shape; there must be a sample. Products and attention have it on a plane through
  // the nearest eight, each weighted by 1 / (squared distance + noise), with slopes held back as in ridge
  // regression; never below the least of the eight or above the largest. Kinds that stream have it on the
  // line between the samples with fewer and with more bytes; beyond the outermost, that one's.
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
