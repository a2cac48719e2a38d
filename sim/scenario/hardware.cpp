#include "sim/scenario/hardware.h"

#include <string>

#include "sim/scenario/preset.h"

namespace sim {
namespace {

// The type at whose rate `t` runs where the chip has no units of its own for it: tensor cores run both 16-bit
// types at one rate, and without tf32 units such products run as fp32.
DType stand_in(DType t) {
  if (t == DType::fp16) return DType::bf16;
  if (t == DType::bf16) return DType::fp16;
  if (t == DType::tf32) return DType::fp32;
  return t;
}

}  // namespace

bool Hardware::has_peak_for(DType t) const {
  return peak.count(t) > 0 || peak.count(stand_in(t)) > 0;
}

FlopsPerSecond Hardware::peak_for(DType t) const {
  for (const DType candidate : {t, stand_in(t)})
    if (const auto found = peak.find(candidate); found != peak.end()) return found->second;

  std::string has;
  for (const auto& [dtype, rate] : peak) has += (has.empty() ? "" : ", ") + std::string(sim::name(dtype));
  throw PresetError((name.empty() ? "the hardware" : name) + " has no " + std::string(sim::name(t)) +
                    " arithmetic" + (has.empty() ? "" : ", only " + has));
}

}  // namespace sim
