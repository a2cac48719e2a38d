// The driver's readings, from an NVML that the tests build (tests/support/fake_nvml.cpp).
#include "runtime/gpu_state.h"

#include <cstdlib>
#include <thread>

#include "programs.h"
#include "tests/support/catch.h"

namespace {

// NVML is loaded once in a process: by whichever test comes first.
void use_fake_nvml() {
  setenv("RIDGEPOINT_NVML", RIDGEPOINT_FAKE_NVML, 1);
}

}  // namespace

TEST_CASE("the driver's GPUs have their names, version and clocks") {
  use_fake_nvml();
  const runtime::DriverStatus status = runtime::driver_status();
  CAPTURE(status.sentence);
  REQUIRE(status.gpus.size() == 1);
  CHECK(status.gpus[0].name == "NVIDIA H100 80GB HBM3");
  CHECK(status.gpus[0].driver == "570.86.15");
  CHECK(status.gpus[0].memory_clock_mhz == 2619);
  CHECK(status.gpus[0].highest_sm_clock_mhz == 1980);
}

TEST_CASE("a monitor samples as often as it is told, each sample once, in the order of time") {
  use_fake_nvml();
  runtime::GpuMonitor monitor("0000:17:00.0", std::chrono::milliseconds(5));
  std::vector<sim::DeviceSample> all;
  while (all.size() < 8) {
    for (const sim::DeviceSample& sample : monitor.take()) all.push_back(sample);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    CHECK((i == 0 || all[i].time.value > all[i - 1].time.value));
    CHECK(all[i].memory_clock_mhz == 2619);
    CHECK(all[i].power_w == Approx(698.5));
    CHECK(all[i].temperature_c == 61);
    CHECK(all[i].throttle == "power cap");
  }
  CHECK(all.back().sm_clock_mhz == 1755);
}

TEST_CASE("a GPU that the driver does not know, and no GPU at all, have no samples and fail nothing") {
  use_fake_nvml();
  for (const char* const id : {"0000:99:00.0", ""}) {
    runtime::GpuMonitor monitor(id, std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    CHECK(monitor.take().empty());
  }
}

TEST_CASE("reasons for a lowered clock bear names, idleness is none") {
  CHECK(runtime::throttle_reasons(0) == "");
  CHECK(runtime::throttle_reasons(0x1) == "");
  CHECK(runtime::throttle_reasons(0x4) == "power cap");
  CHECK(runtime::throttle_reasons(0x4 | 0x20) == "power cap, thermal limit");
}
