// Times every kernel of a device alone, over the sizes that plans have. Predictions rest on these times.
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
// hold. A stop request ends it early, with what there is. If `begun` is not null, it then holds what was
// timed, and another call with it goes on from there.
// With ranks > 1 this is one of several ranks that all calibrate at once on this machine. It also times what
// only ranks that divide sequences or the vocabulary run, and takes its own part of the last cache.
sim::Calibration calibrate_cpu(const EventSink& sink, const std::stop_token& stop, int threads, int ranks = 1,
                               BegunCalibration* begun = nullptr);

// The operations that calibrate_cpu() times for several ranks.
std::vector<SingleOperation> calibrated_operations();

// What calibrate_gpu() times of a GPU.
struct GpuMeasurements {
  // By the type that products compute in.
  std::map<sim::DType, std::vector<SingleOperation>> operations;
  std::vector<SingleOperation> in_turn;  // neighbours in a token, for Calibration::change
  SingleOperation largest;               // that runs without a pause, for `load`
  sim::Seconds load;
  sim::Bytes uncached;  // memory that no cache holds
  SampleLength sample{};
};
// For bf16 this is what most models run; short runs time the rest (gpu_calibrating_runs()). For each other
// type it is what runs in another kernel there: matrix products, attention, what only that type needs. Sizes
// are those of models of 124M to 8B parameters. Types for which the hardware's description has no peak are
// left out.
GpuMeasurements gpu_measurements(std::span<const sim::DType> types, const sim::Hardware& hardware);

// A few minutes. `hardware` describes the GPU; its peaks and bandwidth stay the datasheet's, which the
// samples are related to; its clock under load is measured.
sim::Calibration calibrate_gpu(Device& device, const sim::Hardware& hardware, const GpuMeasurements& what,
                               const EventSink& sink, const std::stop_token& stop);
sim::Calibration calibrate_gpu(const DeviceChoice& choice, const sim::Hardware& hardware,
                               const EventSink& sink, const std::stop_token& stop);

// Times an operation alone, then runs it for `length` without a pause and reads clock, power and temperature
// from the driver meanwhile. Empty where it was stopped.
std::optional<sim::SustainedLoad> measure_sustained_load(Device& device, Stopwatch& stopwatch,
                                                         const SingleOperation& operation,
                                                         sim::Seconds length, const std::stop_token& stop);

// The code for which a calibration is valid: the kernels of other code may be faster.
std::string kernels_version();
std::string ranks_version();  // of kernels and of what passes messages between ranks
std::string gpu_kernels_version();

}  // namespace runtime
