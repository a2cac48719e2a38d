// Every kernel of a device timed alone, over the sizes that plans have: what predictions for it rest on.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "runtime/begun_calibration.h"
#include "runtime/stopwatch.h"
#include "runtime/train.h"
#include "sim/cost/calibration.h"

namespace runtime {

// Two to three minutes on two cores, longer where other programs disturb it. Each kernel runs through
// Device::run, as the executor runs it, on operands that rotate through more memory than the upper caches
// hold. Ends early on a stop request, with what there is; `begun`, where it is not null, then has what was
// timed, and another call with it goes on from there.
// As one of several ranks on this machine, which all calibrate at once: with what only ranks run that divide
// sequences or the vocabulary, and with its own part of the last cache.
sim::Calibration calibrate_cpu(const EventSink& sink, const std::stop_token& stop, int threads, int ranks = 1,
                               BegunCalibration* begun = nullptr);

// What calibrate_cpu() times of several ranks.
std::vector<SingleOperation> calibrated_operations();

// What of a GPU is timed.
struct GpuMeasurements {
  // By the type that products compute in.
  std::map<sim::DType, std::vector<SingleOperation>> operations;
  std::vector<SingleOperation> in_turn;  // neighbours in a token, for Calibration::change
  SingleOperation largest;               // that runs without a pause, for `load`
  sim::Seconds load;
  sim::Bytes uncached;  // memory that no cache holds
  SampleLength sample{};
};
// In bf16 what most models run, the rest being timed in short runs (gpu_calibrating_runs()); in each other of
// the types what is another kernel there: matrix products, attention, what only that type needs. Sizes are
// those of models of 124M to 8B parameters. Types that the hardware's description has no peak for are left
// out.
GpuMeasurements gpu_measurements(std::span<const sim::DType> types, const sim::Hardware& hardware);

// A few minutes. `hardware` describes the GPU; its peaks and bandwidth stay the datasheet's, which the
// samples are related to; its clock under load is measured.
sim::Calibration calibrate_gpu(Device& device, const sim::Hardware& hardware, const GpuMeasurements& what,
                               const EventSink& sink, const std::stop_token& stop);
sim::Calibration calibrate_gpu(const DeviceChoice& choice, const sim::Hardware& hardware,
                               const EventSink& sink, const std::stop_token& stop);

// An operation timed alone, then run for that long without a pause while the driver's clock, power and
// temperature are read. Empty where it was stopped.
std::optional<sim::SustainedLoad> measure_sustained_load(Device& device, Stopwatch& stopwatch,
                                                         const SingleOperation& operation,
                                                         sim::Seconds length, const std::stop_token& stop);

// What a calibration is valid for: other code's kernels may be faster.
std::string kernels_version();
std::string ranks_version();  // of kernels and of what passes messages between ranks
std::string gpu_kernels_version();

}  // namespace runtime
