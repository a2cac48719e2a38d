// The words that files, flags and reports use for enumerators: their identifiers, as the compiler spells
// them, so that who renames an enumerator renames a word of files. An enumeration with other words has a
// table of them:
//
//   template <>
//   inline constexpr std::array<std::string_view, 2> kOtherWords<Measure>{"commonsense", "MMLU"};
//
// Enumerators count from 0.
#pragma once
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

namespace sim {

template <class Enum>
inline constexpr std::nullptr_t kOtherWords = nullptr;

namespace enum_names {

// GCC and Clang end with "value = sim::Norm::rmsnorm]", or with "value = (sim::Norm)2]" where no enumerator
// has the value.
template <auto value>
constexpr std::string_view identifier() {
  std::string_view text = __PRETTY_FUNCTION__;
  text = text.substr(0, text.find_first_of(";]", text.find("value")));
  text.remove_prefix(text.find_last_of(" =:)") + 1);
  return text;
}

template <class Enum, std::size_t n = 0>
constexpr std::size_t count() {
  constexpr std::string_view text = identifier<static_cast<Enum>(n)>();
  if constexpr (text.front() >= '0' && text.front() <= '9')
    return n;
  else
    return count<Enum, n + 1>();
}

template <class Enum>
inline constexpr auto kIdentifiers = []<std::size_t... i>(std::index_sequence<i...>) {
  return std::array<std::string_view, sizeof...(i)>{identifier<static_cast<Enum>(i)>()...};
}
(std::make_index_sequence<count<Enum>()>());

}  // namespace enum_names

// All words of an enumeration, in its order.
template <class Enum>
requires std::is_enum_v<Enum>
constexpr std::span<const std::string_view> words_of() {
  if constexpr (std::is_null_pointer_v<std::remove_const_t<decltype(kOtherWords<Enum>)>>) {
    return enum_names::kIdentifiers<Enum>;
  } else {
    static_assert(kOtherWords<Enum>.size() == enum_names::count<Enum>(), "each enumerator has its word");
    return kOtherWords<Enum>;
  }
}

template <class Enum>
requires std::is_enum_v<Enum>
constexpr std::string_view name(Enum value) {
  const auto words = words_of<Enum>();
  const auto i = static_cast<std::size_t>(value);
  return i < words.size() ? words[i] : "unknown";
}

template <class Enum>
requires std::is_enum_v<Enum>
constexpr std::optional<Enum> value_of(std::string_view word) {
  const auto words = words_of<Enum>();
  for (std::size_t i = 0; i < words.size(); ++i)
    if (words[i] == word) return static_cast<Enum>(i);
  return std::nullopt;
}

// Like value_of(), but an enumeration may accept further words (sim/dtype.h).
template <class Enum>
std::optional<Enum> from_name(std::string_view word) {
  return value_of<Enum>(word);
}

}  // namespace sim
