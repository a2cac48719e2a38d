// Several times side by side, which a clock treats like one time: of several runs of the same steps, or of
// one run with several beginnings. Arithmetic is lane by lane.
#pragma once
#include <cstddef>

#include "sim/units.h"
#include "sim/vectorize.h"

namespace sim {

template <std::size_t kCount>
struct alignas(kCount * sizeof(double)) LanesOf {
  typedef double Vector
      __attribute__((vector_size(kCount * sizeof(double))));  // an alias would lose the attribute
  Vector of{};

  friend SIM_INLINE LanesOf operator+(const LanesOf& a, const LanesOf& b) { return {a.of + b.of}; }
  friend SIM_INLINE LanesOf operator-(const LanesOf& a, const LanesOf& b) { return {a.of - b.of}; }
  friend SIM_INLINE LanesOf operator*(const LanesOf& a, const LanesOf& b) { return {a.of * b.of}; }
  friend SIM_INLINE LanesOf operator+(const LanesOf& a, Seconds b) { return {a.of + b.value}; }
  friend SIM_INLINE LanesOf operator-(const LanesOf& a, Seconds b) { return {a.of - b.value}; }
  friend SIM_INLINE LanesOf operator*(const LanesOf& a, double b) { return {a.of * b}; }
  friend SIM_INLINE LanesOf larger(const LanesOf& a, const LanesOf& b) { return {a.of < b.of ? b.of : a.of}; }
  friend SIM_INLINE LanesOf smaller(const LanesOf& a, const LanesOf& b) {
    return {b.of < a.of ? b.of : a.of};
  }
  friend SIM_INLINE LanesOf larger(const LanesOf& a, Seconds b) { return larger(a, all(b)); }
  friend SIM_INLINE LanesOf smaller(const LanesOf& a, Seconds b) { return smaller(a, all(b)); }
  static SIM_INLINE LanesOf all(Seconds time) { return {time.value - Vector{}}; }
};
inline constexpr std::size_t kLanes = 8;  // as many as the widest registers hold
using Lanes = LanesOf<kLanes>;

// `x` in lanes where a is less than b, else `y`.
template <std::size_t n>
SIM_INLINE LanesOf<n> where_less(const LanesOf<n>& a, const LanesOf<n>& b, const LanesOf<n>& x,
                                 const LanesOf<n>& y) {
  return {a.of < b.of ? x.of : y.of};
}

// The same time in all lanes, and one lane's.
template <class Time>
SIM_INLINE Time everywhere(Seconds time) {
  return Time{} + time;
}
SIM_INLINE void set_lane(Seconds& to, std::size_t, Seconds value) {
  to = value;
}
template <std::size_t n>
SIM_INLINE void set_lane(LanesOf<n>& to, std::size_t lane, Seconds value) {
  to.of[lane] = value.value;
}
SIM_INLINE Seconds lane_of(Seconds from, std::size_t) {
  return from;
}
template <std::size_t n>
SIM_INLINE Seconds lane_of(const LanesOf<n>& from, std::size_t lane) {
  return {from.of[lane]};
}
// How many runs a time of this type holds.
template <class Time>
inline constexpr std::size_t lanes_of = 1;
template <std::size_t n>
inline constexpr std::size_t lanes_of<LanesOf<n>> = n;

}  // namespace sim
