// Quantities as types. Inside the code a quantity is one of these, in a file it is a suffix (_gib, _us,
// _gb_per_s, _tflops_dense), on screen it is made by sim/format.h. Only operators that mean something exist.
#pragma once
#include <compare>
#include <cstdint>

namespace sim {

// A size in memory, exact: ledgers must add up.
struct Bytes {
  std::int64_t value = 0;
  constexpr auto operator<=>(const Bytes&) const = default;
  constexpr Bytes& operator+=(Bytes o) {
    value += o.value;
    return *this;
  }
  constexpr Bytes& operator-=(Bytes o) {
    value -= o.value;
    return *this;
  }
};
constexpr Bytes operator+(Bytes a, Bytes b) {
  return {a.value + b.value};
}
constexpr Bytes operator-(Bytes a, Bytes b) {
  return {a.value - b.value};
}
constexpr Bytes operator*(Bytes a, std::int64_t n) {
  return {a.value * n};
}

// Floating-point work. A training run passes 1e25, so this is a double.
struct Flops {
  double value = 0;
  constexpr auto operator<=>(const Flops&) const = default;
  constexpr Flops& operator+=(Flops o) {
    value += o.value;
    return *this;
  }
};
constexpr Flops operator+(Flops a, Flops b) {
  return {a.value + b.value};
}
constexpr Flops operator*(Flops a, double n) {
  return {a.value * n};
}

struct Seconds {
  double value = 0;
  constexpr auto operator<=>(const Seconds&) const = default;
  // One comparison each, where <=> of doubles takes three.
  constexpr bool operator<(const Seconds& o) const { return value < o.value; }
  constexpr bool operator>(const Seconds& o) const { return value > o.value; }
  constexpr bool operator<=(const Seconds& o) const { return value <= o.value; }
  constexpr bool operator>=(const Seconds& o) const { return value >= o.value; }
  constexpr Seconds& operator+=(Seconds o) {
    value += o.value;
    return *this;
  }
};
constexpr Seconds operator+(Seconds a, Seconds b) {
  return {a.value + b.value};
}
constexpr Seconds operator-(Seconds a, Seconds b) {
  return {a.value - b.value};
}
constexpr Seconds operator*(Seconds a, double n) {
  return {a.value * n};
}
constexpr double operator/(Seconds a, Seconds b) {
  return a.value / b.value;
}

struct BytesPerSecond {
  double value = 0;
  constexpr auto operator<=>(const BytesPerSecond&) const = default;
};
constexpr BytesPerSecond operator*(BytesPerSecond a, double n) {
  return {a.value * n};
}

struct FlopsPerSecond {
  double value = 0;
  constexpr auto operator<=>(const FlopsPerSecond&) const = default;
};
constexpr FlopsPerSecond operator*(FlopsPerSecond a, double n) {
  return {a.value * n};
}

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
// Arithmetic intensity, FLOP per byte; of a machine, its ridge point.
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
