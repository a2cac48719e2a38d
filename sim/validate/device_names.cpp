#include "sim/validate/device_names.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <utility>
#include <vector>

namespace sim {
namespace {

// A preset is meant where all its words are there; the first that fits.
struct DeviceName {
  std::string_view preset;
  std::array<std::string_view, 3> words;
};
constexpr std::array<DeviceName, 32> kDevices{{
    {"a100-pcie-40gb", {"a100", "pcie", "40gb"}},
    {"a100-pcie-80gb", {"a100", "pcie"}},
    {"a100-sxm-40gb", {"a100", "40gb"}},
    {"a100-sxm-80gb", {"a100"}},
    {"a800-sxm-80gb", {"a800"}},
    {"h100-pcie", {"h100", "pcie"}},
    {"h100-sxm-96gb-500w", {"h100", "96gb"}},
    {"h100-sxm-96gb-500w", {"h100", "500w"}},
    {"h100-nvl", {"h100", "nvl"}},
    {"h100-sxm-efa", {"h100", "efa"}},
    {"h100-sxm", {"h100"}},
    {"h200-sxm", {"h200"}},
    {"h800-sxm", {"h800"}},
    {"b200-sxm", {"b200"}},
    {"l40s", {"l40s"}},
    {"rtx-4090", {"rtx4090"}},
    {"rtx-4090", {"4090"}},
    {"rtx-3090", {"rtx3090"}},
    {"rtx-3090", {"3090"}},
    {"gh200", {"gh200"}},
    {"b200-sxm", {"gb200"}},
    {"h20", {"h20"}},
    {"a10g", {"a10g"}},
    {"a10", {"a10"}},
    {"l4", {"l4"}},
    {"v100-sxm", {"v100"}},
    {"mi250x-gcd", {"mi250x"}},
    {"mi250x-gcd", {"mi", "250x"}},
    {"mi300x", {"mi300x"}},
    {"mi300x", {"mi", "300x"}},
    {"mi300x", {"mi325x"}},
    {"l40s", {"l40"}},
}};

std::set<std::string> words_of(std::string_view text) {
  std::set<std::string> words;
  std::string word;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c))) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      continue;
    }
    if (!word.empty()) words.insert(std::exchange(word, {}));
  }
  if (!word.empty()) words.insert(word);
  // "8xH100", "H100x8".
  for (const std::string& counted : std::vector<std::string>(words.begin(), words.end())) {
    const std::size_t digits = counted.find_first_not_of("0123456789");
    if (digits > 0 && digits != std::string::npos && counted[digits] == 'x')
      words.insert(counted.substr(digits + 1));
    const std::size_t last = counted.find_last_not_of("0123456789");
    if (last != std::string::npos && last > 0 && last + 1 < counted.size() && counted[last] == 'x')
      words.insert(counted.substr(0, last));
  }
  // "40 GB", "40G", "A100-40".
  for (const char* size : {"40", "80", "96"})
    if (words.contains(size) || words.contains(std::string(size) + "g"))
      words.insert(std::string(size) + "gb");
  return words;
}

}  // namespace

std::optional<std::string> hardware_preset_of(std::string_view device) {
  const std::set<std::string> words = words_of(device);
  for (const DeviceName& known : kDevices) {
    const bool all = std::all_of(known.words.begin(), known.words.end(), [&](std::string_view word) {
      return word.empty() || words.contains(std::string(word));
    });
    if (all) return std::string(known.preset);
  }
  return std::nullopt;
}

}  // namespace sim
