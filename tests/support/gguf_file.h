// Parts of a GGUF file, written by hand: header, metadata, descriptions of tensors, data.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tests {

template <typename T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

inline std::string gguf_text(std::string_view text) {
  return raw<std::uint64_t>(text.size()) + std::string(text);
}
// `entries` metadata and `tensors` descriptions of tensors follow.
inline std::string gguf_header(std::uint64_t tensors, std::uint64_t entries, std::uint32_t version = 3) {
  return "GGUF" + raw(version) + raw(tensors) + raw(entries);
}
inline std::string gguf_word(std::string_view key, std::string_view value) {
  return gguf_text(key) + raw<std::uint32_t>(8) + gguf_text(value);
}
inline std::string gguf_words(std::string_view key, const std::vector<std::string>& values) {
  std::string result =
      gguf_text(key) + raw<std::uint32_t>(9) + raw<std::uint32_t>(8) + raw<std::uint64_t>(values.size());
  for (const std::string& value : values) result += gguf_text(value);
  return result;
}
inline std::string gguf_integer(std::string_view key, std::uint32_t value) {
  return gguf_text(key) + raw<std::uint32_t>(4) + raw(value);
}
inline std::string gguf_number(std::string_view key, float value) {
  return gguf_text(key) + raw<std::uint32_t>(6) + raw(value);
}
// A row's columns are the first of its dimensions.
inline std::string gguf_tensor(std::string_view name, const std::vector<std::uint64_t>& dimensions,
                               std::uint32_t type, std::uint64_t offset) {
  std::string result = gguf_text(name) + raw(static_cast<std::uint32_t>(dimensions.size()));
  for (const std::uint64_t dimension : dimensions) result += raw(dimension);
  return result + raw(type) + raw(offset);
}
// With data of zeros behind it.
inline std::string padded(std::string header, std::size_t data_bytes, std::size_t alignment = 32) {
  header.resize((header.size() + alignment - 1) / alignment * alignment);
  return header + std::string(data_bytes, '\0');
}

}  // namespace tests
