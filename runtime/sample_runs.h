// Kernels timed inside short runs of whole plans, for what is not timed alone: kinds whose work follows from
// what their operands hold, as of experts, and kernels in types that few models have. And for what is, how
// much longer it takes there.
#pragma once
#include <span>
#include <stop_token>
#include <vector>

#include "runtime/sample_kernels.h"
#include "sim/cost/calibration.h"

namespace runtime {

// The runs: those of presets/series/calibration.json, or gpu_calibration.json, on that hardware, of types
// that it has. Throws PresetError where the file is missing.
std::vector<sim::Scenario> calibrating_runs(const sim::Hardware& hardware);
std::vector<sim::Scenario> gpu_calibrating_runs(const sim::Hardware& hardware);

// Appends to calibration.samples what such runs take on the device of kinds, types and types of operands of
// which it has no sample yet, and returns what they take of the others. A run's samples count as found in
// caches where the last cache holds more than half of the run's memory. Runs from which others took the
// processor run once more when all are through; typical() of the times counts. Ends early with what there is
// on a stop request. Throws as short_run() does.
std::vector<TimedSample> sample_runs(const std::vector<sim::Scenario>& scenarios, const DeviceChoice& device,
                                     const Sampling& sampling, const EventSink& sink,
                                     const std::stop_token& stop, sim::Calibration& calibration);

// How much longer an operation takes in runs than the calibration's samples of it timed alone: before it
// cores wait for each other, and fetch from each other's caches what they left. Median over those that are
// short enough to show it; zero where none is.
sim::Seconds longer_in_runs(const sim::Calibration& calibration, std::span<const sim::KernelSample> in_runs);

// What each operation of a run's report took each time. Products and attention count only where they do
// nearly the same work each time; other kinds by the mean of their work. Those that one kernel did together
// with others count not at all.
std::vector<sim::KernelSample> samples_of(const sim::Report& measured, sim::Bytes working_set);

}  // namespace runtime
