#include "sim/scenario/hardware.h"

#include <string>

#include "sim/scenario/preset.h"

namespace sim {

FlopsPerSecond Hardware::peak_for(DType t) const {
  if (const auto found = peak.find(t); found != peak.end()) return found->second;
  // Tensor cores run both 16-bit types at one rate; without tf32 units such products run as fp32.
  DType other = t;
  if (t == DType::fp16) other = DType::bf16;
  if (t == DType::bf16) other = DType::fp16;
  if (t == DType::tf32) other = DType::fp32;
  if (const auto found = peak.find(other); found != peak.end()) return found->second;

  std::string has;
  for (const auto& [dtype, rate] : peak) has += (has.empty() ? "" : ", ") + std::string(sim::name(dtype));
  throw PresetError((name.empty() ? "the hardware" : name) + " has no " + std::string(sim::name(t)) +
                    " arithmetic" + (has.empty() ? "" : ", only " + has));
}

}  // namespace sim
