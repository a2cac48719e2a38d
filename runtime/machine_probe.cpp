#include "runtime/machine_probe.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <memory>
#include <vector>

#include "kernels/threads.h"
#include "runtime/device.h"
#include "runtime/machine_pace.h"

namespace runtime {

namespace {

constexpr int kLooks = 11;  // a burst of another program's work spoils a few of them
constexpr std::chrono::milliseconds kBetweenLooks{100};

}  // namespace

std::optional<sim::Slowdown> probe_this_machine(const sim::Calibration& calibration) {
  const std::optional<Pace> then = calibrated_pace(calibration);
  if (!then) return std::nullopt;
  const std::unique_ptr<Device> device = make_cpu_device(kernels::cpu::threads());
  MachinePace machine(*device, calibration.hardware.last_level_cache);
  std::vector<Pace> looks;
  for (int look = 0; look < kLooks; ++look) looks.push_back(machine.look());
  return times_as_long(median(looks), *then);
}

MachineProbe::MachineProbe(const sim::Calibration& calibration) : calibrated_(calibrated_pace(calibration)) {
  if (!calibrated_) return;
  device_ = make_cpu_device(kernels::cpu::threads());
  machine_.emplace(*device_, calibration.hardware.last_level_cache);
}

sim::Slowdown MachineProbe::look() {
  if (!machine_) return {};
  std::vector<Pace> looks;
  for (int look = 0; look < kLooks; ++look) looks.push_back(machine_->look(&Timing::mean));
  looks_.insert(looks_.end(), looks.begin(), looks.end());
  last_ = Clock::now();
  return times_as_long(runtime::median(looks), *calibrated_);
}

void MachineProbe::look_once_in_a_while() {
  if (!machine_ || Clock::now() - last_ < kBetweenLooks) return;
  looks_.push_back(machine_->look(&Timing::mean));
  last_ = Clock::now();
}

sim::Slowdown MachineProbe::median() const {
  return looks_.empty() ? sim::Slowdown{} : times_as_long(runtime::median(looks_), *calibrated_);
}

void MachineProbe::begin() {
  if (looks_.size() > kLooks) looks_.erase(looks_.begin(), looks_.end() - kLooks);
}

bool is_steady(const sim::Slowdown& slowdown) {
  const auto steady = [](double factor) {
    return factor < sim::kSteadyWithin && factor > 1 / sim::kSteadyWithin;
  };
  return steady(slowdown.arithmetic) && steady(slowdown.memory);
}

std::string slowdown_sentence(const sim::Slowdown& slowdown) {
  if (is_steady(slowdown)) return "this machine is as fast as when it was calibrated";
  const double further = std::abs(std::log(slowdown.arithmetic)) > std::abs(std::log(slowdown.memory))
                             ? slowdown.arithmetic
                             : slowdown.memory;
  std::array<char, 160> text{};
  std::snprintf(
      text.data(), text.size(),
      "this machine is %s by %.2f than when it was calibrated (arithmetic takes %.2f times as long, "
      "memory %.2f)",
      further > 1 ? "slower" : "faster", further > 1 ? further : 1 / further, slowdown.arithmetic,
      slowdown.memory);
  return text.data();
}

}  // namespace runtime
