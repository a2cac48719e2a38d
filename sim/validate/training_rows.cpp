#include <algorithm>

#include "sim/cost/predict.h"
#include "sim/validate/calibrated_device.h"
#include "sim/validate/flops_convention.h"
#include "sim/validate/peak_memory.h"
#include "sim/validate/table_validation.h"
#include "sim/validate/table_words.h"
#include "sim/validate/training_scenario.h"

namespace sim {
namespace {

constexpr double kTera = 1e12;

std::vector<Prediction> predict_row(const TableRow& row) {
  const TrainingRow training = training_row(row);
  const PeakMemory memory = peak_memory(training);
  const Scenario& s = training.scenario();
  MeasuredTime time{{}, {}, {}, Fit::formula};
  for (const Scenario& mode : training.modes) {
    const StepTime step = predict_step(make_plan(mode), mode.hardware, training.calibration);
    const bool first = &mode == &s;
    if (first) time.seconds = step.seconds;
    time.low = first ? step.low : std::min(time.low, step.low);
    time.high = first ? step.high : std::max(time.high, step.high);
  }

  const CountedFlops flops = counted_flops(s, row.text("flops_convention"), row.text("framework"));
  const double devices = s.strategy.devices();
  const double tokens =
      static_cast<double>(s.workload.global_batch_size) * static_cast<double>(s.workload.seq_len);
  const double peak = s.hardware.peak_for(flops.peak).value;
  const double model = flops.model.value / devices, hardware = flops.hardware.value / devices;
  const bool prints_hardware = meaning("flops_printed", row.text("flops_convention")) == "hardware";
  std::vector<Prediction> predictions;
  if (!training.guessed_batch) predictions.push_back(as_time("step_time_s", time, 1));
  predictions.push_back(as_rate("tokens_per_s_per_gpu", time, tokens / devices));
  predictions.push_back(as_rate("tflops_per_gpu", time, (prints_hardware ? hardware : model) / kTera));
  predictions.push_back(as_rate("mfu", time, 100 * model / peak));
  predictions.push_back(as_rate("hfu", time, 100 * hardware / peak));
  predictions.push_back(memory_prediction(row, "peak_memory_gb", memory));
  predictions.push_back(outcome_prediction(memory));
  return predictions;
}

}  // namespace

RowReader training_rows() {
  return {.what = "training steps",
          .needs = {"gpu", "num_gpus", "seq_len", "framework", "step_time_s"},
          .measured = {{"step_time_s"},
                       {"tokens_per_s_per_gpu", true},
                       {"tflops_per_gpu", true},
                       {"mfu", true},
                       {"hfu", true},
                       {"peak_memory_gb"},
                       {kOutcomeColumn}},
          .predict = predict_row};
}

}  // namespace sim
