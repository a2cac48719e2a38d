// Quantities as types. Inside the code a quantity is one of these, in a file it is a suffix (_gib, _us,
// _gb_per_s, _tflops_dense), on screen it is made by sim/format.h. Only operators that mean something exist.
#pragma once
#include <compare>
#include <cstdint>

namespace sim {

// Quantities of one kind are compared, added, subtracted and scaled; their ratio is a number.
template <class Kind, class Number = double>
struct Quantity {
  Number value = 0;
  constexpr auto operator<=>(const Quantity&) const = default;
  // One comparison each, where <=> of doubles takes three.
  constexpr bool operator<(const Quantity& o) const { return value < o.value; }
  constexpr bool operator>(const Quantity& o) const { return value > o.value; }
  constexpr bool operator<=(const Quantity& o) const { return value <= o.value; }
  constexpr bool operator>=(const Quantity& o) const { return value >= o.value; }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return {a.value + b.value}; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return {a.value - b.value}; }
  friend constexpr Quantity operator*(Quantity a, Number n) { return {a.value * n}; }
  friend constexpr double operator/(Quantity a, Quantity b) {
    return static_cast<double>(a.value) / static_cast<double>(b.value);
  }
  constexpr Quantity& operator+=(Quantity o) { return *this = *this + o; }
  constexpr Quantity& operator-=(Quantity o) { return *this = *this - o; }
};
using Bytes = Quantity<struct OfBytes, std::int64_t>;  // exact: ledgers must add up
using Flops = Quantity<struct OfFlops>;                // a training run passes 1e25
using Seconds = Quantity<struct OfSeconds>;
using BytesPerSecond = Quantity<struct OfBytesPerSecond>;
using FlopsPerSecond = Quantity<struct OfFlopsPerSecond>;

constexpr Seconds operator/(Bytes b, BytesPerSecond r) {
  return {static_cast<double>(b.value) / r.value};
}
constexpr Seconds operator/(Flops f, FlopsPerSecond r) {
  return {f.value / r.value};
}
constexpr BytesPerSecond operator/(Bytes b, Seconds t) {
  return {static_cast<double>(b.value) / t.value};
}
constexpr FlopsPerSecond operator/(Flops f, Seconds t) {
  return {f.value / t.value};
}
// Arithmetic intensity in FLOP per byte. For a machine's two rates it is the ridge point.
constexpr double operator/(Flops f, Bytes b) {
  return f.value / static_cast<double>(b.value);
}
constexpr double operator/(FlopsPerSecond f, BytesPerSecond b) {
  return f.value / b.value;
}

inline constexpr double kKiB = 1024.0, kMiB = kKiB * 1024, kGiB = kMiB * 1024;

constexpr Bytes gib(double n) {
  return {static_cast<std::int64_t>(n * kGiB)};
}
constexpr BytesPerSecond gb_per_s(double n) {
  return {n * 1e9};
}
constexpr FlopsPerSecond tflops(double n) {
  return {n * 1e12};
}
constexpr Seconds us(double n) {
  return {n * 1e-6};
}

}  // namespace sim
