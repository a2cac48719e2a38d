// What calibrating a GPU measures, and what predictions make of it.
#include <algorithm>
#include <span>
#include <utility>

#include "runtime/calibrate.h"
#include "runtime/cuda_device.h"
#include "sim/cost/price.h"
#include "tests/support/catch.h"

namespace {

using sim::DType;
using sim::OpKind;

constexpr DType kTypes[] = {DType::bf16, DType::fp16, DType::fp32, DType::tf32, DType::fp8};
constexpr OpKind kProducts[] = {OpKind::matmul, OpKind::matmul_backward_input,
                                OpKind::matmul_backward_weight};

// A GPU of round numbers, so small that what an emulated one can be asked for fills its cache.
sim::Hardware small_gpu() {
  sim::Hardware hardware;
  hardware.name = "small-gpu";
  hardware.peak = {{DType::fp32, {1e12}},
                   {DType::tf32, {8e12}},
                   {DType::bf16, {16e12}},
                   {DType::fp16, {16e12}},
                   {DType::fp8, {32e12}}};
  hardware.memory = {std::int64_t{1} << 30};
  hardware.memory_bandwidth = {1e12};
  hardware.last_level_cache = {1 << 18};
  hardware.launch = sim::us(3);
  return hardware;
}

runtime::GpuMeasurements few_measurements(std::span<const DType> types) {
  runtime::GpuMeasurements what{
      .operations = {},
      .in_turn = {runtime::product(OpKind::matmul, 1, 32, 48), runtime::elementwise(OpKind::gelu, 1, 64)},
      .largest = runtime::product(OpKind::matmul, 16, 32, 32),
      .load = {0.01},
      .uncached = {1 << 20},
      .sample = {1e-4, 2}};
  what.largest.computing_in(DType::bf16);
  for (runtime::SingleOperation& single : what.in_turn) single.computing_in(DType::bf16);
  for (const DType dtype : types) {
    for (const OpKind kind : kProducts) what.operations[dtype].push_back(runtime::product(kind, 16, 32, 48));
    if (dtype == DType::bf16)
      for (const auto& [weights, group] : {std::pair{DType::int8, 0}, {DType::fp8, 0}, {DType::int4, 32}})
        what.operations[dtype].push_back(runtime::product_of_stored(1, 32, 128, weights, group));
    if (dtype == DType::tf32)
      what.operations[dtype].push_back(
          runtime::attention(OpKind::attention_flash, 1, 16, runtime::Heads{1, 1, 64}));
    if (dtype == DType::fp16) {
      what.operations[dtype].push_back(
          runtime::attention(OpKind::attention_flash, 1, 16, runtime::Heads{1, 1, 64}));
      what.operations[dtype].push_back(runtime::optimizer(OpKind::unscale, 1000));
    }
    if (dtype == DType::fp8) what.operations[dtype].push_back(runtime::optimizer(OpKind::quantise, 1024));
    for (runtime::SingleOperation& single : what.operations[dtype]) single.computing_in(dtype);
  }
  return what;
}

bool has(const std::vector<runtime::SingleOperation>& operations, OpKind kind, DType dtype) {
  return std::any_of(operations.begin(), operations.end(), [&](const runtime::SingleOperation& single) {
    return single.operation().kind == kind && single.operation().dtype == dtype;
  });
}

}  // namespace

TEST_CASE("calibrating times products in every type that the GPU computes in, and what only that type has") {
  const sim::Hardware hardware = small_gpu();
  const auto what = runtime::gpu_measurements(runtime::cuda_dtypes(90), hardware);
  REQUIRE(what.operations.size() == std::size(kTypes));
  for (const auto& [dtype, operations] : what.operations)
    for (const OpKind kind : kProducts) CHECK(has(operations, kind, dtype));
  for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32})
    for (const OpKind kind :
         {OpKind::attention_flash, OpKind::attention_flash_backward, OpKind::attention_cached})
      CHECK(has(what.operations.at(dtype), kind, dtype));
  CHECK(has(what.operations.at(DType::fp16), OpKind::unscale, DType::fp32));
  CHECK(has(what.operations.at(DType::fp8), OpKind::quantise, DType::fp32));

  const auto without_fp8 = runtime::gpu_measurements(runtime::cuda_dtypes(80), hardware);
  CHECK(without_fp8.operations.count(DType::fp8) == 0);
  sim::Hardware without_peak = hardware;
  without_peak.peak.erase(DType::fp8);
  CHECK(runtime::gpu_measurements(runtime::cuda_dtypes(90), without_peak).operations.count(DType::fp8) == 0);
}

TEST_CASE("a GPU's calibration holds a sample of each measurement, and predictions in each type rest on it",
          "[plan]") {
  const sim::Hardware hardware = small_gpu();
  const auto device = runtime::make_cuda_device({.deterministic = true, .scratch = sim::Bytes{1 << 22}});
  const runtime::GpuMeasurements what = few_measurements(device->dtypes());
  const auto written = sim::to_json(runtime::calibrate_gpu(*device, hardware, what, {}, {}));
  const sim::Calibration calibration = sim::calibration_from_json(written, "calibration");
  CHECK(calibration.software == runtime::gpu_kernels_version());
  CHECK(calibration.launch.value > 0);
  CHECK(calibration.change.value >= 0);
  REQUIRE(calibration.load);
  CHECK(calibration.hardware.sustained_clock <= 1);

  for (const auto& [dtype, operations] : what.operations)
    for (const runtime::SingleOperation& single : operations) {
      CAPTURE(sim::name(dtype), sim::name(single.operation().kind));
      const auto price = [&](const sim::Calibration* with) {
        return sim::price(single.work(), single.operation(), single.bound_variables(), calibration.hardware,
                          with, nullptr, {},
                          {.stored = sim::narrow_storage(single.plan(), single.operation())});
      };
      CHECK(price(&calibration).provenance == sim::Provenance::calibrated);
      CHECK(price(nullptr).provenance == sim::Provenance::datasheet);
    }

  // What was timed in a type is what is predicted in it: its own samples twice as slow double it, the others'
  // do not change it.
  const runtime::SingleOperation single = what.operations.at(DType::fp16).front();
  const auto seconds = [&single](const sim::Calibration& with) {
    return sim::price(single.work(), single.operation(), single.bound_variables(), with.hardware, &with)
        .seconds.value;
  };
  const double as_measured = seconds(calibration);
  for (const DType slower : kTypes) {
    CAPTURE(sim::name(slower));
    sim::Calibration changed = calibration;
    for (sim::KernelSample& sample : changed.samples)
      if (sample.dtype == slower) sample.median = sample.median * 2;
    CHECK(seconds(changed) == Approx(slower == DType::fp16 ? 2 * as_measured : as_measured));
  }
}
