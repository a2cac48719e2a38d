// Numbers of several runs of the same steps beside each other: arithmetic is lane by lane.
#pragma once
#include <cstddef>

#include "sim/vectorize.h"

namespace sim {

inline constexpr std::size_t kLanes = 8;  // as many as the widest registers hold

// Aligned for them even where the baseline has none that are as wide.
struct alignas(kLanes * sizeof(double)) Lanes {
  using Vector = double __attribute__((vector_size(kLanes * sizeof(double))));
  Vector of{};
};
SIM_INLINE Lanes operator+(const Lanes& a, const Lanes& b) {
  return {a.of + b.of};
}
SIM_INLINE Lanes operator-(const Lanes& a, const Lanes& b) {
  return {a.of - b.of};
}
SIM_INLINE Lanes operator*(const Lanes& a, const Lanes& b) {
  return {a.of * b.of};
}
SIM_INLINE Lanes operator+(const Lanes& a, double b) {
  return {a.of + b};
}
SIM_INLINE Lanes larger(const Lanes& a, const Lanes& b) {
  return {a.of < b.of ? b.of : a.of};
}
SIM_INLINE Lanes smaller(const Lanes& a, const Lanes& b) {
  return {b.of < a.of ? b.of : a.of};
}
SIM_INLINE double larger(double a, double b) {
  return a < b ? b : a;
}
SIM_INLINE double smaller(double a, double b) {
  return b < a ? b : a;
}

SIM_INLINE void set_lane(double& to, std::size_t, double value) {
  to = value;
}
SIM_INLINE void set_lane(Lanes& to, std::size_t lane, double value) {
  to.of[lane] = value;
}
SIM_INLINE double lane_of(double from, std::size_t) {
  return from;
}
SIM_INLINE double lane_of(const Lanes& from, std::size_t lane) {
  return from.of[lane];
}
// How many runs a time of such a type is of.
template <class Time>
inline constexpr std::size_t lanes_of = 1;
template <>
inline constexpr std::size_t lanes_of<Lanes> = kLanes;

}  // namespace sim
