// The last cache, from folders as Linux describes processors.
#include "runtime/last_cache.h"

#include <array>
#include <cstddef>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

namespace {

void describe(const std::filesystem::path& folder, const char* level, const char* type, const char* size,
              const char* shared) {
  std::filesystem::create_directories(folder);
  for (const auto& [name, text] : std::array<std::pair<const char*, const char*>, 4>{
           {{"level", level}, {"type", type}, {"size", size}, {"shared_cpu_list", shared}}})
    std::ofstream(folder / name) << text << '\n';
}

}  // namespace

TEST_CASE("The last cache is counted once for each group of cores that shares one") {
  const TemporaryFolder folder;
  const std::filesystem::path cpus = folder.path();
  for (int cpu = 0; cpu < 4; ++cpu) {
    const std::filesystem::path caches = cpus / ("cpu" + std::to_string(cpu)) / "cache";
    const std::string own = std::to_string(cpu);
    describe(caches / "index0", "1", "Data", "48K", own.c_str());
    describe(caches / "index1", "1", "Instruction", "32K", own.c_str());
    describe(caches / "index2", "2", "Unified", "1024K", own.c_str());
    describe(caches / "index3", "3", "Unified", "32768K", cpu < 2 ? "0-1" : "2-3");
  }
  const auto size = [&](std::initializer_list<int> numbers) {
    const auto found = runtime::last_level_cache(std::vector<int>(numbers), 1, cpus);
    return found ? found->value : 0;
  };
  CHECK(size({0, 1}) == 32 << 20);
  CHECK(size({0, 1, 2, 3}) == 64 << 20);
  CHECK(size({3}) == 32 << 20);
  CHECK(size({7}) == 0);  // nothing is said of it
}

TEST_CASE("Each of several ranks has its part of the cache that they share") {
  const TemporaryFolder folder;
  for (int cpu = 0; cpu < 16; ++cpu)
    describe(folder.path() / ("cpu" + std::to_string(cpu)) / "cache" / "index3", "3", "Unified", "32M",
             cpu < 8 ? "0-3,4-7" : "8-15");
  const auto size = [&](std::vector<int> numbers, int ranks) {
    return runtime::last_level_cache(numbers, ranks, folder.path()).value().value >> 20;
  };
  CHECK(size({0, 1, 2, 3}, 1) == 32);  // alone, it has what others leave idle
  CHECK(size({0, 1, 2, 3}, 4) == 16);
  CHECK(size({0}, 16) == 4);
  CHECK(size({0}, 2) == 16);                       // six of the eight are idle
  CHECK(size({0, 1, 2, 3, 4, 5, 6, 7}, 2) == 32);  // the other rank has the other cache
  CHECK(size({0, 1, 2, 3, 8, 9, 10, 11}, 2) == 32);
}

TEST_CASE("A processor without a third level has its second as the last cache") {
  const TemporaryFolder folder;
  describe(folder.path() / "cpu0" / "cache" / "index0", "1", "Data", "64K", "0");
  describe(folder.path() / "cpu0" / "cache" / "index2", "2", "Unified", "4M", "0-3");
  const std::array<int, 1> first{0};
  REQUIRE(runtime::last_level_cache(first, 1, folder.path()));
  CHECK(runtime::last_level_cache(first, 1, folder.path())->value == 4 << 20);
}

TEST_CASE("Bytes that are dropped from the caches keep their values") {
  std::vector<std::byte> bytes(1001);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  const std::vector<std::byte> before = bytes;
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{64}, bytes.size() - 3}) {
    runtime::drop_from_caches(std::span(bytes).subspan(3, size));
    CHECK(bytes == before);
  }
}
