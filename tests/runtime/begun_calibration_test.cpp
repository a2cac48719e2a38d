#include "runtime/begun_calibration.h"

#include <cstdint>
#include <stop_token>
#include <variant>
#include <vector>

#include "runtime/device.h"
#include "runtime/sample_kernels.h"
#include "runtime/sample_runs.h"
#include "tests/runtime/small_run.h"
#include "tests/support/catch.h"

namespace {

sim::Calibration begin() {
  sim::Calibration c;
  c.device = "Processor, 1 thread";
  c.date = "2026-01-01T00:00:00Z";
  c.software = "0.1.0";
  c.launch = sim::us(2);
  c.hardware = tests::scenario_of(tests::small_gpt()).hardware;
  return c;
}

// As the next run of the program has it.
runtime::TimedPieces read_again(const sim::Calibration& calibration, const runtime::TimedPieces& pieces) {
  const std::string written = runtime::to_json(runtime::BegunCalibration{calibration, pieces});
  const runtime::BegunCalibration begun = runtime::begun_calibration_from_json(written, "begun.json");
  CHECK(sim::to_json(begun.calibration) == sim::to_json(calibration));
  CHECK(runtime::to_json(begun) == written);
  return begun.pieces;
}

std::vector<double> seconds(const sim::Calibration& calibration) {
  std::vector<double> all;
  for (const sim::KernelSample& sample : calibration.samples) all.push_back(sample.median.value);
  return all;
}

}  // namespace

TEST_CASE("An interrupted calibration goes on from the operation that it was interrupted at") {
  const auto device = runtime::make_cpu_device(1);
  std::vector<runtime::SingleOperation> operations;
  for (const std::int64_t size : {32, 48, 64, 96, 128, 160})
    operations.push_back(runtime::product(sim::OpKind::matmul, size, size, size));
  constexpr sim::Bytes memory{std::int64_t{1} << 20};
  runtime::Stopwatch stopwatch(*device, memory, memory, sim::DType::fp32, {.seconds = 1e-3, .fewest = 1});
  runtime::TimedPieces pieces;
  runtime::Sampling sampling{.memory = memory,
                             .rotation = memory,
                             .passes = 2,
                             .passes_of_streams = 1,
                             .what = {},
                             .pieces = &pieces};

  std::stop_source stop;
  constexpr std::int64_t kTimed = 15;  // of 24: within the third pass
  sim::Calibration interrupted = begin();
  runtime::sample_kernels(
      operations, stopwatch, sampling,
      [&](const sim::Event& event) {
        if (std::get<sim::ProgressEvent>(event).done == kTimed) stop.request_stop();
      },
      stop.get_token(), interrupted);
  const auto kept = static_cast<std::int64_t>(pieces.all().size());
  REQUIRE(kept >= 12);  // of passes that had ended, and of windows
  REQUIRE(kept <= kTimed);

  runtime::TimedPieces known = read_again(begin(), pieces);
  sampling.pieces = &known;
  std::vector<std::int64_t> done;
  sim::Calibration resumed = begin();
  runtime::sample_kernels(
      operations, stopwatch, sampling,
      [&](const sim::Event& event) { done.push_back(std::get<sim::ProgressEvent>(event).done); }, {},
      resumed);
  std::vector<std::int64_t> left;
  for (std::int64_t number = kept + 1; number <= 24; ++number) left.push_back(number);
  CHECK(done == left);
  CHECK(known.all().size() == 24);

  // With nothing left to time: the same samples to the bit.
  known.ask_from_first();
  done.clear();
  sim::Calibration again = begin();
  runtime::sample_kernels(
      operations, stopwatch, sampling,
      [&](const sim::Event& event) { done.push_back(std::get<sim::ProgressEvent>(event).done); }, {}, again);
  CHECK(done.empty());
  CHECK(seconds(again) == seconds(resumed));
  CHECK(again.samples.size() >= operations.size());
}

TEST_CASE("An interrupted calibration's short runs do not run again") {
  const std::vector<sim::Scenario> scenarios{tests::training(tests::small_gpt()),
                                             tests::generation(tests::small_gpt(), 4)};
  runtime::TimedPieces pieces;
  constexpr sim::Bytes memory{std::int64_t{1} << 20};
  runtime::Sampling sampling{.memory = memory, .rotation = memory, .what = {}, .pieces = &pieces};
  sim::Calibration first = begin();
  runtime::sample_runs(scenarios, {.threads = 1}, sampling, {}, {}, first);
  REQUIRE(pieces.all().size() == 2);
  REQUIRE_FALSE(first.samples.empty());

  runtime::TimedPieces known = read_again(begin(), pieces);
  sampling.pieces = &known;
  sim::Calibration again = begin();
  runtime::sample_runs(scenarios, {.threads = 1}, sampling, {}, {}, again);
  CHECK(seconds(again) == seconds(first));
  CHECK(known.all().size() == 2);
}

TEST_CASE("A begun calibration whose pieces cannot be is refused by the field's name") {
  runtime::TimedSample timed;
  timed.sample.dtype = sim::DType::fp32;
  timed.sample.flops = {2e6};
  timed.sample.median = sim::us(20);
  const std::string sound = runtime::to_json({begin(), runtime::TimedPieces({{{0, timed}}, {{1, timed}}})});
  const auto changed = [&](std::string_view from, std::string_view to) {
    std::string text = sound;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  CHECK_NOTHROW(runtime::begun_calibration_from_json(sound, "begun.json"));
  CHECK_THROWS_WITH(
      runtime::begun_calibration_from_json(changed("\"pieces\": 2", "\"pieces\": 1"), "begun.json"),
      contains("\"timed.piece\" must be below 1"));
  CHECK_THROWS_WITH(
      runtime::begun_calibration_from_json(changed("\"pieces\": 2", "\"pieces\": -1"), "begun.json"),
      contains("pieces"));
  CHECK_THROWS_WITH(runtime::begun_calibration_from_json(
                        changed("\"arithmetic_seconds\": 1.0", "\"arithmetic_seconds\": 0.0"), "begun.json"),
                    contains("above 0"));
}
