// A scenario that runs here only so that its numbers are known: weights drawn at random and any tokens, but
// where a text is read.
#pragma once
#include <cstdint>
#include <stop_token>
#include <vector>

#include "runtime/communicator.h"
#include "runtime/model_source.h"
#include "runtime/train.h"
#include "sim/report/report.h"

namespace runtime {

struct ShortRun {
  std::int64_t steps = 5;  // of training
  // Where it is the loss that counts: so many steps, however long they take, at a learning rate with which a
  // small model learns in them. 0: the time counts.
  std::int64_t learning_steps = 0;
  // So many generations run. The one whose judged_time() is the median counts, with each row's median over
  // all; a text is read once.
  std::int64_t generations = 1;
  sim::Slowdown slowdown;  // of this machine since its calibration: noted in the report
  DeviceChoice device;     // else the CPU with all cores
  // A generation reads these tokens through the model's weights (GenerateSettings::read), behind the first as
  // its prompt, in place of writing any. Null: none is read.
  const ModelSource* reader = nullptr;
  std::vector<std::int32_t> text{};
  Communicator* among = nullptr;  // where it is one of several ranks, each of which calls
};

// What a run is judged by: a training step, or the median of the tokens behind the first (without a KV cache,
// the whole generation). A GPU times the first few operation by operation, which takes longer, and then
// replays.
sim::Seconds judged_time(const sim::Report& report);

// Throws NoDevice and DoesNotFit as train() and generate() do.
sim::Report short_run(const sim::Scenario& scenario, const ShortRun& run, const EventSink& sink,
                      const std::stop_token& stop);

}  // namespace runtime
