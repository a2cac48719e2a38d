#include "sim/scenario/hardware.h"

#include <string>

#include "sim/scenario/preset.h"

namespace sim {

bool Hardware::has_peak_for(DType t) const {
  return peak.contains(t);
}

FlopsPerSecond Hardware::peak_for(DType t) const {
  if (const auto found = peak.find(t); found != peak.end()) return found->second;
  std::string has;
  for (const auto& [dtype, rate] : peak) has += (has.empty() ? "" : ", ") + std::string(sim::name(dtype));
  const std::string type(sim::name(t));
  throw PresetError((name.empty() ? "the hardware" : name) + " has no " + type + " arithmetic (field \"" +
                    type + "_tflops_dense\")" + (has.empty() ? "" : ", only " + has));
}

}  // namespace sim
