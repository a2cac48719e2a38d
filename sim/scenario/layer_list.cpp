#include "sim/scenario/layer_list.h"

#include <charconv>

#include "sim/scenario/field.h"

namespace sim {
namespace {

// Takes a number off the front of the text.
std::optional<std::int64_t> take_number(std::string_view& text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0 || number > kMostLayers) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}
bool take(std::string_view& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::optional<std::vector<std::int64_t>> layers_listed(std::string_view text) {
  std::vector<std::int64_t> layers;
  if (text.empty()) return layers;
  do {
    const auto first = take_number(text);
    if (!first) return std::nullopt;
    const auto last = take(text, '-') ? take_number(text) : first;
    if (!last || *last < *first || (!layers.empty() && *first <= layers.back())) return std::nullopt;
    for (std::int64_t layer = *first; layer <= *last; ++layer) layers.push_back(layer);
  } while (take(text, ','));
  if (!text.empty()) return std::nullopt;
  return layers;
}

std::string layer_list(const std::vector<std::int64_t>& layers) {
  std::string text;
  for (std::size_t i = 0; i < layers.size();) {
    std::size_t end = i + 1;
    while (end < layers.size() && layers[end] == layers[end - 1] + 1) ++end;
    text.append(text.empty() ? "" : ",").append(std::to_string(layers[i]));
    if (end - i > 1) text.append("-").append(std::to_string(layers[end - 1]));
    i = end;
  }
  return text;
}

}  // namespace sim
