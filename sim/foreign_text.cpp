#include "sim/foreign_text.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>

namespace sim {
namespace {

// Bytes of the UTF-8 character at the front of `text`; 0 where there is none. (Unicode 15, table 3-7.)
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || bytes > text.size()) return 0;
  // The second byte's range is smaller after bytes that would begin longer forms than needed, surrogates, or
  // characters beyond the last.
  const std::uint8_t least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const std::uint8_t most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < least || byte(1) > most) return 0;
  for (std::size_t i = 2; i < bytes; ++i)
    if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
  return bytes;
}

std::string hexadecimal(const char* before, unsigned value, int digits) {
  std::string text = before;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) text += "0123456789abcdef"[value >> shift & 0xf];
  return text;
}

}  // namespace

std::optional<std::size_t> nested_too_deep(std::string_view json) {
  constexpr int kMostLevels = 100;
  int level = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++level > kMostLevels) return i + 1;
    } else if (c == ']' || c == '}') {
      --level;
    }
  }
  return std::nullopt;
}

std::size_t number_beyond_double(std::string_view json) {
  bool in_string = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (c == '"') in_string = !in_string;
    if (in_string && c == '\\') ++i;
    if (in_string || c < '0' || c > '9') continue;
    const std::size_t end = std::min(json.find_first_not_of("0123456789+-.eE", i), json.size());
    if (std::isinf(std::strtod(std::string(json.substr(i, end - i)).c_str(), nullptr))) return i + 1;
    i = end - 1;
  }
  return 1;
}

std::string excerpt(std::string_view text) {
  constexpr std::size_t kMostBytes = 200;
  std::string result(text.substr(0, kMostBytes));
  for (char& c : result)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return text.size() > kMostBytes ? result + "..." : result;
}

std::string visible(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    const auto first = static_cast<std::uint8_t>(text[0]);
    const std::size_t bytes = character_bytes(text);
    const bool second_control = bytes == 2 && first == 0xc2 && static_cast<std::uint8_t>(text[1]) < 0xa0;
    if (bytes == 0 || first == 0x7f || (first < 0x20 && first != '\n' && first != '\t'))
      shown += hexadecimal("\\x", first, 2);
    else if (second_control)
      shown += hexadecimal("\\u", static_cast<std::uint8_t>(text[1]), 4);
    else
      shown += text.substr(0, bytes);
    text.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  return shown;
}

}  // namespace sim
