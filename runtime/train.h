// Training for real: the plan of a scenario, executed on a device, reported as events.
#pragma once
#include <functional>
#include <stop_token>
#include <string>

#include "runtime/communicator.h"
#include "runtime/devices.h"
#include "runtime/model_source.h"
#include "sim/cost/calibration.h"
#include "sim/plan/plan.h"
#include "sim/report/events.h"

namespace runtime {

class Run;

enum class LearningRateSchedule { constant, cosine };
enum class DataOrder { shuffled, sequential };

struct TrainSettings {
  std::int64_t steps = 20;
  float learning_rate = 3e-4f;
  LearningRateSchedule schedule =
      LearningRateSchedule::cosine;  // to a tenth of the peak over `steps`, after warm-up
  std::int64_t warmup_steps = 0;
  float weight_decay = 0.1f;  // matrices only
  float beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f;
  float grad_clip = 1.0f;  // 0: none
  float dropout = 0;  // probability of an element to be dropped; the scenario's implementation says where
  DataOrder data_order = DataOrder::shuffled;
  std::uint64_t seed = 1;
  std::string data;  // text file, directory of them, or .bin of tokens; empty: the text this machine has
  std::string checkpoint;                      // directory; empty: none
  std::int64_t checkpoint_every = 0;           // steps; 0: at the end only
  sim::Bytes checkpoint_shard{5'000'000'000};  // the most that a file holds: transformers' max_shard_size
  bool resume = false;  // from `checkpoint`: exact, the next step is bit-equal to an uninterrupted run's
  // On a GPU each step after the first few is one CUDA graph, replayed. The report's rows are then of the
  // first few, the step's time of the others.
  bool replay = false;
  std::string trace;  // file for a Chrome trace of the last step on all ranks; empty: none
  // Sends as events when each rank's passes and operations ran (about twice a second, and for the last step),
  // and the memory timeline of the first four steps.
  bool tell_timelines = false;
  DeviceChoice device;
  sim::Slowdown slowdown;  // of this machine since its calibration: noted in the report
};

using EventSink = std::function<void(const sim::Event&)>;

// Runs settings.steps steps (if resumed, until that step is reached). Returns the measured report of the
// median step, with each row's median over steps, and sends it as events, too. In fp16 a step whose gradients
// overflow under the loss scale changes no parameter; its gradient norm is not finite. A stop request lets
// the current step end, then gives a checkpoint, if one was asked for, and the partial report. Throws
// DoesNotFit before anything starts where the plan's arena exceeds the machine's memory.
sim::Report train(const sim::Scenario& scenario, const ModelSource& model, const TrainSettings& settings,
                  const EventSink& sink, std::stop_token stop);

// The same as one rank of several, which all call it. Events go to rank 0's sink; losses and gradient norms
// are those of the whole step on every rank. Throws RankLost where another rank is no more.
sim::Report train(const sim::Scenario& scenario, const ModelSource& model, const TrainSettings& settings,
                  Communicator& communicator, const EventSink& sink, std::stop_token stop);

// The same with the caller's Run and its device. Afterwards the Run holds the trained parameters.
sim::Report train(Run& run, const ModelSource& model, const TrainSettings& settings, const EventSink& sink,
                  std::stop_token stop);

}  // namespace runtime
