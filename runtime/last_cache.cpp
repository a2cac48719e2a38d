#include "runtime/last_cache.h"

#include <charconv>
#include <map>
#include <string>

#include "runtime/machine_files.h"

namespace runtime {
namespace {

namespace fs = std::filesystem;

// "32768K", "4M"; 0 where it is neither.
std::int64_t bytes_in(const std::string& text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || number < 0) return 0;
  const std::string unit(end, text.data() + text.size());
  return unit == "K" ? number << 10 : unit == "M" ? number << 20 : unit.empty() ? number : 0;
}

}  // namespace

std::optional<sim::Bytes> last_level_cache(std::span<const int> numbers, const fs::path& cpus) {
  int highest = 0;
  std::map<std::string, std::int64_t> caches;  // of the highest level, by the CPUs that share each
  for (const int number : numbers) {
    std::error_code none;
    for (const auto& entry :
         fs::directory_iterator(cpus / ("cpu" + std::to_string(number)) / "cache", none)) {
      if (!entry.path().filename().string().starts_with("index")) continue;
      if (first_line(entry.path() / "type") == "Instruction") continue;
      const auto level = static_cast<int>(bytes_in(first_line(entry.path() / "level")));
      if (level < highest) continue;
      if (level > highest) caches.clear();
      highest = level;
      caches[first_line(entry.path() / "shared_cpu_list")] = bytes_in(first_line(entry.path() / "size"));
    }
  }
  std::int64_t all = 0;
  for (const auto& [shared, size] : caches) all += size;
  return all > 0 ? std::optional(sim::Bytes{all}) : std::nullopt;
}

sim::Bytes last_level_cache() {
  return last_level_cache(own_cpus()).value_or(cache_by_processor());
}

}  // namespace runtime
