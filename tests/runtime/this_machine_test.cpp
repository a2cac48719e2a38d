#include "runtime/this_machine.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <vector>

#include "runtime/calibrate.h"
#include "tests/runtime/small_run.h"
#include "tests/support/catch.h"

namespace {

// Caches below a folder of the test's own.
class CacheFolder {
 public:
  CacheFolder() {
    if (const char* const before = std::getenv("XDG_CACHE_HOME")) before_ = before;
    setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1);
  }
  ~CacheFolder() {
    before_.empty() ? unsetenv("XDG_CACHE_HOME") : setenv("XDG_CACHE_HOME", before_.c_str(), 1);
  }
  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
  std::string before_;
};

sim::Calibration calibration() {
  sim::Calibration c;
  c.device = runtime::cpu_name();
  c.software = runtime::kernels_version();
  c.date = "2026-01-01T00:00:00Z";
  c.launch = sim::us(2);
  c.hardware = tests::scenario_of(tests::small_gpt()).hardware;
  c.hardware.launch = c.launch;
  return c;
}

void write_cache(const std::string& text) {
  std::ofstream(runtime::this_machine_file()) << text;
}

}  // namespace

TEST_CASE("The machine's calibration is cached below XDG_CACHE_HOME and read back") {
  const CacheFolder cache;
  CHECK(runtime::cache_directory() == cache.path() / "ridgepoint");
  CHECK_FALSE(runtime::cached_this_machine());
  write_cache(sim::to_json(calibration()));
  const auto cached = runtime::cached_this_machine();
  REQUIRE(cached);
  CHECK(cached->launch.value == Approx(2e-6));
}

TEST_CASE("Another machine's, another version's or a damaged calibration is not taken for this machine's") {
  const CacheFolder cache;
  sim::Calibration other = calibration();
  other.device = "Another CPU, 2 threads";
  write_cache(sim::to_json(other));
  CHECK_FALSE(runtime::cached_this_machine());
  other = calibration();
  other.software = "ridgepoint 0.0.0, cpu kernels fp32";
  write_cache(sim::to_json(other));
  CHECK_FALSE(runtime::cached_this_machine());
  write_cache(sim::to_json(calibration()).substr(0, 100));
  CHECK_FALSE(runtime::cached_this_machine());
}

TEST_CASE("Resident memory grows by what is touched") {
  const sim::Bytes before = runtime::resident_memory();
  constexpr std::size_t kSize = 64 << 20;
  const std::vector<char> touched(kSize, 1);
  const sim::Bytes grown = runtime::resident_memory() - before;
  CHECK(touched.back() == 1);
  CHECK(grown.value > static_cast<std::int64_t>(kSize * 9 / 10));
}

TEST_CASE("Usable memory is no more than the machine's, and holds this process") {
  CHECK(runtime::physical_memory().value <=
        static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE));
  CHECK(runtime::physical_memory() > runtime::resident_memory());
}
