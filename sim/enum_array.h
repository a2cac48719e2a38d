// All enumerators of an enumeration, and arrays with one element for each of them.
#pragma once
#include <array>
#include <cstddef>

#include "sim/enum_names.h"

namespace sim {

template <class Enum>
inline constexpr std::size_t kCount = enum_names::count<Enum>();

// All enumerators, in the order of their declaration.
template <class Enum>
inline constexpr auto kAll = [] {
  std::array<Enum, kCount<Enum>> all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Enum>(i);
  return all;
}();

template <class Enum, class T>
struct EnumArray : std::array<T, kCount<Enum>> {
  using std::array<T, kCount<Enum>>::operator[];
  constexpr T& operator[](Enum e) { return (*this)[static_cast<std::size_t>(e)]; }
  constexpr const T& operator[](Enum e) const { return (*this)[static_cast<std::size_t>(e)]; }
};

}  // namespace sim
