// The numbers of the economics panel that take longer than a frame: steps at other batch sizes, and how fast
// published models generate. All others have a closed form.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "sim/cost/calibration.h"
#include "sim/economics/published_models.h"
#include "sim/economics/rates.h"
#include "sim/scenario/scenario.h"
#include "sim/units.h"

namespace app::gui {

struct EconomicsQuestion {
  sim::Scenario scenario;
  std::shared_ptr<const sim::Calibration> calibration;  // of the scenario's hardware; may be null
  bool operator==(const EconomicsQuestion&) const = default;
};

// A step of the scenario with more or fewer data-parallel devices, each with as much work.
struct BatchStep {
  double tokens = 0;  // of a step
  double devices = 1;
  sim::Seconds step;
};

// One sequence on the fewest tensor-parallel devices that hold the model.
struct SequenceRate {
  double tokens_per_second = 0;  // 0: it fits on none
  int devices = 1;
};

struct PublishedThroughput {
  std::size_t model = 0;  // index into the study's published models
  SequenceRate bf16, int4;
};

struct EconomicsStudy {
  sim::EconomicRates rates;
  std::vector<BatchStep> batches;  // of training; by tokens
  std::vector<sim::PublishedModel> published;
  std::vector<PublishedThroughput> throughput;

  // Interpolated and extrapolated from the predicted steps, linearly in the logarithms.
  sim::Seconds step(double tokens) const;
  double devices(double tokens) const;

 private:
  double between(double tokens, double (*value)(const BatchStep&)) const;
};

// Keeps what does not depend on the scenario.
class EconomicsStudies {
 public:
  // Throws sim::PresetError where a preset cannot be read.
  EconomicsStudy study(const EconomicsQuestion& question);

 private:
  sim::EconomicRates rates_;
  std::vector<sim::PublishedModel> published_;
  sim::Hardware hardware_;  // of throughput_
  std::vector<PublishedThroughput> throughput_;
};

}  // namespace app::gui
