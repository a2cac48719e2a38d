// A scenario that runs here only so that its numbers are known: weights drawn at random, any tokens.
#pragma once
#include <cstdint>
#include <stop_token>

#include "runtime/train.h"
#include "sim/report/report.h"

namespace runtime {

struct ShortRun {
  std::int64_t steps = 5;  // of training; a generation runs once
  sim::Slowdown slowdown;  // of this machine since its calibration: noted in the report
  DeviceChoice device;     // else the CPU with all cores
};

// Throws NoDevice and DoesNotFit as train() and generate() do.
sim::Report short_run(const sim::Scenario& scenario, const ShortRun& run, const EventSink& sink,
                      const std::stop_token& stop);

}  // namespace runtime
