// Times kernels inside short runs of whole plans. This is for what is not timed alone: kinds whose work
// follows from operands' values, such as those of experts, and kernels in types that few models have. For
// kernels that are timed alone, it gives how much longer they take in a run.
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

// Times the runs' kernels on the device. Appends samples to calibration.samples for kinds, types and operand
// types that have none there yet, and returns the samples of the others. A run's samples count as found in
// caches where the last cache holds more than half of the run's memory. Runs from which others took the
// processor run once more when all are through; typical() of the times counts. Ends early with what there is
// on a stop request. Throws as short_run() does.
std::vector<TimedSample> sample_runs(const std::vector<sim::Scenario>& scenarios, const DeviceChoice& device,
                                     const Sampling& sampling, const EventSink& sink,
                                     const std::stop_token& stop, sim::Calibration& calibration);

// How much longer an operation takes in runs than in the calibration's samples of it timed alone. In runs,
// cores first wait for each other, and fetch from each other's caches what they left. Gives the median over
// samples that are short enough to show it; zero where there are none.
sim::Seconds longer_in_runs(const sim::Calibration& calibration, std::span<const sim::KernelSample> in_runs);

// What each operation of a run's report took each time. Products and attention count only where they do
// nearly the same work each time; other kinds by the mean of their work. Those that one kernel did together
// with others count not at all.
std::vector<sim::KernelSample> samples_of(const sim::Report& measured, sim::Bytes working_set);

}  // namespace runtime
