#include "sim/validate/network_names.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string>

#include "sim/validate/row.h"
#include "sim/validate/table_words.h"

namespace sim {
namespace {

constexpr double kGigabit = 1e9 / 8, kTerabit = 1e12 / 8;
// For a rate without a word on what it is the rate of: no adapter is faster than this.
constexpr double kFastestAdapter = 800 * kGigabit;

struct Rate {
  double bytes_per_second = 0, adapters = 0;  // adapters: 0 where the text does not count them
};

// "8x200Gb", "1600 Gbps", "3.2 Tb/s", "400G"; the first that stands in the text.
std::optional<Rate> rate_in(const std::string& text) {
  double previous = 0;  // the number before an "x"
  for (std::size_t i = 0; i < text.size();) {
    const bool begins_number =
        std::isdigit(static_cast<unsigned char>(text[i])) != 0 &&
        (i == 0 || std::isalnum(static_cast<unsigned char>(text[i - 1])) == 0 || text[i - 1] == 'x');
    if (!begins_number) {
      ++i;
      continue;
    }
    double number = 0;
    const auto end = std::from_chars(text.data() + i, text.data() + text.size(), number).ptr;
    i = static_cast<std::size_t>(end - text.data());
    while (i < text.size() && (text[i] == ' ' || text[i] == '-')) ++i;
    if (i >= text.size()) break;
    if (text[i] == 'x') {
      previous = number;
      ++i;
      while (i < text.size() && text[i] == ' ') ++i;
      continue;
    }
    const bool bytes = i + 1 < text.size() && text[i + 1] == 'B';
    const char unit = text[i];
    if (unit == 'G' || unit == 'g') return Rate{number * kGigabit * (bytes ? 8 : 1), previous};
    if ((unit == 'T' || unit == 't') && i + 1 < text.size())
      return Rate{number * kTerabit * (bytes ? 8 : 1), previous};
  }
  return std::nullopt;
}

}  // namespace

std::optional<BytesPerSecond> network_link_of(std::string_view interconnect, int devices_per_node) {
  const std::string text(interconnect);
  const double devices = std::max(1, devices_per_node);
  if (const auto rate = rate_in(text)) {
    if (rate->adapters > 0) return BytesPerSecond{rate->bytes_per_second * rate->adapters / devices};
    const std::string of = meaning("rate_is_of", interconnect);
    if (of == "node" || (of.empty() && rate->bytes_per_second > kFastestAdapter))
      return BytesPerSecond{rate->bytes_per_second / devices};
    return BytesPerSecond{rate->bytes_per_second};
  }
  // The rate of InfiniBand by its generation, with an adapter for each GPU.
  const auto gigabits = number_in(meaning("gbit_per_s_of_infiniband", interconnect));
  return gigabits ? std::optional(BytesPerSecond{*gigabits * kGigabit}) : std::nullopt;
}

}  // namespace sim
