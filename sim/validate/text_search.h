// Words in the free text of tables.
#pragma once
#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

namespace sim {

inline std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

inline bool says(std::string_view text, std::string_view word) {
  return text.find(word) != std::string_view::npos;
}

template <class... Words>
bool says_any(std::string_view text, Words... words) {
  return (says(text, words) || ...);
}

}  // namespace sim
