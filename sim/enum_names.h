// Enumerators beside the words that files and flags use for them: one table an enumeration, read both ways.
// Included by .cpp files only.
#pragma once
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace sim {

template <class Enum>
struct EnumName {
  Enum value;
  std::string_view name;
};

template <class Enum, std::size_t N>
constexpr std::string_view name_in(const std::array<EnumName<Enum>, N>& table, Enum value) {
  for (const auto& entry : table)
    if (entry.value == value) return entry.name;
  return "unknown";
}

template <class Enum, std::size_t N>
constexpr std::optional<Enum> value_in(const std::array<EnumName<Enum>, N>& table, std::string_view name) {
  for (const auto& entry : table)
    if (entry.name == name) return entry.value;
  return std::nullopt;
}

}  // namespace sim
