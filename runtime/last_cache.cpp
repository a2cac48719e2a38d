#include "runtime/last_cache.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <sstream>
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

// How many a list of CPUs names: "0-3,8" has five. At least one.
int cpus_in(const std::string& list) {
  int count = 0;
  std::istringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');) {
    int first = 0, last = 0;
    const int read = std::sscanf(part.c_str(), "%d-%d", &first, &last);
    count += read == 2 ? last - first + 1 : 1;
  }
  return std::max(count, 1);
}

struct Cache {
  std::int64_t size = 0;
  int own = 0;  // CPUs
};

}  // namespace

std::optional<sim::Bytes> last_level_cache(std::span<const int> numbers, int ranks, const fs::path& cpus) {
  int highest = 0;
  std::map<std::string, Cache> caches;  // of the highest level, by the CPUs that share each
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
      Cache& cache = caches[first_line(entry.path() / "shared_cpu_list")];
      cache.size = bytes_in(first_line(entry.path() / "size"));
      ++cache.own;
    }
  }
  double all = 0;
  for (const auto& [shared, cache] : caches) {
    const double of_ranks = 1.0 / ranks, of_cpus = static_cast<double>(cache.own) / cpus_in(shared);
    all += static_cast<double>(cache.size) * (ranks > 1 ? std::min(1.0, std::max(of_ranks, of_cpus)) : 1);
  }
  return all > 0 ? std::optional(sim::Bytes{static_cast<std::int64_t>(all)}) : std::nullopt;
}

sim::Bytes last_level_cache(int ranks) {
  return last_level_cache(own_cpus(), ranks).value_or(sim::Bytes{cache_by_processor().value / ranks});
}

void drop_from_caches([[maybe_unused]] std::span<const std::byte> bytes) {
#if defined(__x86_64__) && defined(__GNUC__)
  constexpr std::size_t kLine = 64;
  for (std::size_t i = 0; i < bytes.size(); i += kLine) __builtin_ia32_clflush(bytes.data() + i);
  if (!bytes.empty()) __builtin_ia32_clflush(&bytes.back());
  __builtin_ia32_mfence();
#elif defined(__aarch64__) && defined(__linux__)
  constexpr std::size_t kLine = 16;  // no smaller ones exist
  for (std::size_t i = 0; i < bytes.size(); i += kLine)
    asm volatile("dc civac, %0" : : "r"(bytes.data() + i) : "memory");
  if (!bytes.empty()) asm volatile("dc civac, %0\n\tdsb ish" : : "r"(&bytes.back()) : "memory");
#endif
}

}  // namespace runtime
