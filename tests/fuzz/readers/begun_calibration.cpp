// What an interrupted calibration had timed, as it is kept for the next one.
// Read by: runtime/begun_calibration.cpp
#include "runtime/begun_calibration.h"

#include "sim/scenario/preset.h"
#include "tests/fuzz/fuzz.h"

std::vector<std::string> fuzz::seeds() {
  runtime::BegunCalibration begun;
  begun.calibration.hardware = sim::load_hardware_preset("h100-sxm");
  begun.calibration.device = "Processor, 2 threads";
  begun.calibration.date = "2026-01-31T12:00:00Z";
  begun.calibration.software = "0.1.0";
  begun.calibration.launch = {1e-5};
  for (std::size_t i = 0; i < 3; ++i) {
    runtime::TimedSample timed;
    timed.sample.dtype = sim::DType::bf16;
    timed.sample.rows = timed.sample.cols = timed.sample.inner = 64 << i;
    timed.sample.flops = {2.0 * 64 * 64 * 64};
    timed.sample.bytes = {3 * 64 * 64 * 4};
    timed.sample.median = {1e-4};
    begun.pieces.add({{0, timed}, {i, timed}});
  }
  return {runtime::to_json(begun)};
}

void fuzz::read(std::string_view input) {
  runtime::BegunCalibration begun = runtime::begun_calibration_from_json(input, kFile);
  const std::string written = runtime::to_json(begun);
  require_same(runtime::to_json(runtime::begun_calibration_from_json(written, kFile)), written,
               "a begun calibration is written as it is read");
  std::size_t asked = 0;
  while (const runtime::TimedPiece* const piece = begun.pieces.next()) {
    ++asked;
    for (const auto& [place, timed] : *piece)
      require(timed.sample.median.value > 0, "what was timed took time");
  }
  require(asked == begun.pieces.all().size(), "each piece is given once");
}
