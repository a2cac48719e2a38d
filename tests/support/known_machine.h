// A calibration of this machine in the cache, as a run would have left it: measuring it takes a minute.
#pragma once
#include <filesystem>
#include <fstream>

#include "runtime/calibrate.h"
#include "runtime/this_machine.h"
#include "sim/cost/calibration.h"
#include "sim/scenario/preset.h"

namespace tests {

inline void keep(const sim::Calibration& calibration,
                 const std::filesystem::path& file = runtime::this_machine_file()) {
  std::ofstream(file) << sim::to_json(calibration);
}

// Where XDG_CACHE_HOME says (tests/support/cache_folder.h).
inline sim::Calibration keep_known_machine() {
  sim::Calibration here;
  here.device = runtime::cpu_name();
  here.software = runtime::kernels_version();
  here.date = "2026-01-01T00:00:00Z";
  here.hardware.name = sim::kThisMachine;
  here.hardware.peak[sim::DType::fp32] = sim::tflops(0.1);
  here.hardware.memory = sim::gib(8);
  here.hardware.memory_bandwidth = sim::gb_per_s(20);
  keep(here);
  return here;
}

}  // namespace tests
