// A run is watched while it lasts: what its end says of the machine, by a calibration that is made up.
#include "runtime/watched_run.h"

#include <chrono>
#include <thread>
#include <vector>

#include "kernels/threads.h"
#include "runtime/sample_kernels.h"
#include "sim/report/events.h"
#include "tests/support/catch.h"

namespace {

// A calibration of the operations that tell a machine's pace, each as if it had taken ten times as long.
sim::Calibration calibration_of_a_slower_machine() {
  std::vector<runtime::SingleOperation> probed{runtime::probe_of_arithmetic()};
  probed.push_back(runtime::probe_of_memory());
  const auto device = runtime::make_cpu_device(kernels::cpu::threads());
  const sim::Bytes memory = runtime::uncached_size({});
  runtime::Stopwatch stopwatch(*device, memory, runtime::kCachedRotation, sim::DType::fp32);
  sim::Calibration known;
  runtime::sample_kernels(
      probed, stopwatch, {.memory = memory, .rotation = runtime::kCachedRotation, .what = {}}, {}, {}, known);
  for (sim::KernelSample& sample : known.samples) sample.median = sample.median * 10;
  return known;
}

// Steps that take so long, and an end.
void run_for(std::chrono::milliseconds all, const runtime::EventSink& sink) {
  const auto end = std::chrono::steady_clock::now() + all;
  sink(sim::BeginEvent{});
  for (std::int64_t step = 1; step == 1 || std::chrono::steady_clock::now() < end; ++step) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    sink(sim::StepResult{step, 1, 1, sim::Seconds{0.02}, 64});
  }
  sim::EndEvent last;
  last.step_time = {0.02};
  sink(last);
}

// As run_for() takes.
sim::Report predicted_steps() {
  sim::Report predicted;
  predicted.step_time = {0.02};
  return predicted;
}

struct Heard {
  std::vector<sim::Event> events;
  runtime::EventSink sink() {
    return [this](const sim::Event& event) { events.push_back(event); };
  }
  const sim::EndEvent& end() const { return std::get<sim::EndEvent>(events.back()); }
};

}  // namespace

TEST_CASE("A run of more than a second ends with how fast the machine was meanwhile, a short one as it is") {
  const sim::Calibration known = calibration_of_a_slower_machine();
  const sim::Slowdown before{3, 3};
  Heard heard;
  runtime::WatchedRun watched(known, before, predicted_steps(), heard.sink());
  run_for(std::chrono::milliseconds(1600), watched.sink());
  REQUIRE(watched.meanwhile());
  CHECK(heard.end().slowdown == watched.meanwhile());
  // Looks while it ran set arithmetic to a tenth; memory is between what was known before and the end's look.
  CHECK(watched.meanwhile()->arithmetic < 0.5);
  CHECK(watched.meanwhile()->memory < 1.5);
  CHECK(watched.meanwhile()->memory > 0.1);
  CHECK(heard.end().step_time == sim::Seconds{0.02});

  Heard short_one;
  runtime::WatchedRun briefly(known, before, predicted_steps(), short_one.sink());
  run_for(std::chrono::milliseconds(60), briefly.sink());
  CHECK_FALSE(briefly.meanwhile());
  CHECK_FALSE(short_one.end().slowdown);
}

TEST_CASE("A run is not watched where the calibration lacks what tells a machine's pace") {
  const sim::Calibration empty;
  Heard heard;
  runtime::WatchedRun watched(empty, {}, predicted_steps(), heard.sink());
  run_for(std::chrono::milliseconds(60), watched.sink());
  CHECK_FALSE(watched.meanwhile());
  CHECK(heard.events.size() >= 3);
  CHECK_FALSE(heard.end().slowdown);
}

TEST_CASE("What is said of the machine at a run's end is said where it is another pace than before") {
  CHECK(runtime::meanwhile_sentence({1, 1}, {1.05, 0.95}).empty());
  CHECK(runtime::meanwhile_sentence({0.6, 0.9}, {0.6, 0.9}).empty());
  CHECK(runtime::meanwhile_sentence({0.6, 0.9}, {1.02, 0.95}) ==
        "while it ran, arithmetic took 1.02 times as long as when this machine was calibrated, memory 0.95");
}
