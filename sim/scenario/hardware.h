// One accelerator (or one CPU machine), and how many of them are joined how. Peaks are dense, from
// datasheets; what is reached of them is a calibration's business (cost/calibration.h).
#pragma once
#include <map>
#include <string>

#include "sim/dtype.h"
#include "sim/units.h"

namespace sim {

struct Hardware {
  std::string name;                      // preset name: h100-sxm, this-machine
  std::string display_name;              // "NVIDIA H100 SXM5 80 GB"
  std::map<DType, FlopsPerSecond> peak;  // dense, by the type of the arithmetic
  Bytes memory;
  BytesPerSecond memory_bandwidth;
  Bytes last_level_cache;
  Seconds launch;           // fixed cost of one operation (kernel launch, or fork and join of threads)
  int multiprocessors = 0;  // SMs of a GPU, cores of a CPU
  double power_w = 0;
  // Share of the clock behind the peaks that a chip under its power limit keeps while it trains for minutes:
  // kernels timed alone reach the whole of it. Between these; 1 where nothing is known.
  double sustained_clock_low = 1, sustained_clock_high = 1;
  int devices_per_node = 1;
  BytesPerSecond node_link;     // per device and direction inside a node (NVLink); 0: none
  BytesPerSecond network_link;  // per device and direction between nodes; 0: none
  Seconds node_latency, network_latency;
  std::string source;

  bool operator==(const Hardware&) const = default;

  // Peak for a type; falls back fp16 <-> bf16, tf32 -> fp32. Throws PresetError if the chip lacks the type.
  FlopsPerSecond peak_for(DType t) const;
  bool has_peak_for(DType t) const;
};

// The geometric mean of the two ends.
double sustained_clock(const Hardware& hardware);
// The same hardware with the peaks that its clock under load allows; memory and links keep theirs.
Hardware under_load(Hardware hardware);

}  // namespace sim
