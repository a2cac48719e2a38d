// Products of numbers that nobody has checked yet, as people type them.
#pragma once
#include <concepts>
#include <limits>

namespace sim {

// The product; where T cannot hold it, the largest or smallest number of T.
template <std::signed_integral T>
constexpr T saturated_product(T a, std::same_as<T> auto... others) {
  T all = a;
  const auto times = [&all](T b) {
    T product = 0;
    const bool fits = !__builtin_mul_overflow(all, b, &product);
    const T nearest = (all < 0) == (b < 0) ? std::numeric_limits<T>::max() : std::numeric_limits<T>::min();
    all = fits ? product : nearest;
  };
  (times(others), ...);
  return all;
}

}  // namespace sim
