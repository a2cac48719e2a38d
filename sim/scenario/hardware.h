// One accelerator (or one CPU machine), how many are joined, and by which links. Peaks are dense, from
// datasheets. The share of a peak that is reached belongs to calibrations (cost/calibration.h).
#pragma once
#include <map>
#include <string>

#include "sim/dtype.h"
#include "sim/scenario/field.h"
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
  // Clock under a training step's load over that of kernels timed alone: power and heat limit it.
  double sustained_clock = 1;
  // Devices of one sort are not equally fast, because of chips, power and heat. device_spread is the standard
  // deviation between devices of the time of the same work under load, over the mean. pass_jitter is that of
  // a micro-batch's pass on one device from one time to the next. cost/stragglers.h says what they cost.
  double device_spread = 0;
  double pass_jitter = 0;
  bool is_cpu = false;  // the machine's own processor: its memory is the host's
  int devices_per_node = 1;
  BytesPerSecond node_link;     // per device and direction inside a node (NVLink); 0: none
  BytesPerSecond network_link;  // per device and direction between nodes; 0: none
  Seconds node_latency, network_latency;
  // Least time of a step of a ring that crosses nodes, whatever its bytes; 0: the time of InfiniBand's hops.
  Seconds network_step;
  BytesPerSecond host_link;              // per device and direction to the host's memory (PCIe); 0: none
  BytesPerSecond host_memory_bandwidth;  // a device's share of the host's; 0: none
  std::string source;

  bool operator==(const Hardware&) const = default;

  // The peak for a type. Throws PresetError if the chip has no arithmetic for it: no other type replaces it.
  FlopsPerSecond peak_for(DType t) const;
  bool has_peak_for(DType t) const;
};

// clang-format off
template <>
inline constexpr auto kFields<Hardware> = [] {
  using H = Hardware;
  return std::tuple{
    field("multiprocessors", &H::multiprocessors, "", "", "").at_least(0),
    field("power_w", &H::power_w, "", "", "").at_least(0),
    field("sustained_clock", &H::sustained_clock, "", "", ""),
    field("device_spread", &H::device_spread, "device-spread", "spread, %",
          "standard deviation of the time of the same work on one device and another, over the mean").between(0, .9999).when(trains).in(FieldUnit::percent).seldom_set(),
    field("pass_jitter", &H::pass_jitter, "pass-jitter", "pass jitter, %",
          "the same of a micro-batch's pass on one device from one time to the next").between(0, .9999).when(trains).in(FieldUnit::percent).seldom_set(),
    field("is_cpu", &H::is_cpu, "", "", ""),
    field("devices_per_node", &H::devices_per_node, "", "", "").at_least(1)};
}();
// clang-format on

}  // namespace sim
