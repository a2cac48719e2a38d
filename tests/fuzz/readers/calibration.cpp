// A machine's calibration as it is cached, and a prediction with it.
// Read by: sim/cost/calibration_json.cpp sim/cost/calibration.cpp sim/json_object.cpp
#include "sim/cost/calibration.h"

#include "sim/cost/predict.h"
#include "sim/scenario/preset.h"
#include "tests/fuzz/fuzz.h"

std::vector<std::string> fuzz::seeds() {
  sim::Calibration calibration;
  calibration.hardware = sim::load_hardware_preset("h100-sxm");
  calibration.device = "Processor, 2 threads";
  calibration.date = "2026-01-31T12:00:00Z";
  calibration.software = "0.1.0";
  calibration.launch = {1e-5};
  for (int i = 0; i < 4; ++i) {
    sim::KernelSample sample;
    sample.kind = sim::OpKind{};
    sample.dtype = sim::DType::bf16;
    sample.rows = sample.cols = sample.inner = 64 << i;
    sample.flops = {2.0 * 64 * 64 * 64};
    sample.bytes = {3 * 64 * 64 * 4};
    sample.median = {1e-4 * (i + 1)};
    calibration.samples.push_back(sample);
  }
  calibration.load = sim::SustainedLoad{{1e12}, {9e11}, {2}, 1500, 600, 60, "power cap"};
  return {sim::to_json(calibration)};
}

void fuzz::read(std::string_view input) {
  const sim::Calibration calibration = sim::calibration_from_json(input, kFile);
  const std::string written = sim::to_json(calibration);
  require_same(sim::to_json(sim::calibration_from_json(written, kFile)), written,
               "a calibration is written as it is read");
  for (const sim::KernelSample& sample : calibration.samples) {
    require(sample.median.value > 0, "what was measured took time");
    const auto ratio = sim::calibrated_ratio(calibration, sample);
    require(ratio && ratio->exact, "a shape that was measured is found");
  }
  if (calibration.samples.size() <= 64) sim::leave_one_out_residuals(calibration);
}
