// The source of a lesson's numbers: a scenario with its prediction, or with what a run of it measured here.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sim/report/report.h"
#include "sim/scenario/overrides.h"
#include "sim/scenario/scenario.h"

namespace app::lesson {

// "strategy.zero_stage=1, model=llama-3.1-8b": values are JSON or words; a part's name alone takes a preset.
using Changes = std::vector<sim::Override>;

// Predictions, each made once. One thread at a time may use an object.
class Predictions {
 public:
  // Throws std::invalid_argument, naming the first problem, where the scenario cannot be.
  std::shared_ptr<const sim::Report> of(const sim::Scenario& scenario);
  // `said_by` stands for the file in the message of the PresetError that a wrong change throws.
  const sim::Scenario& changed(const sim::Scenario& from, const Changes& changes, const std::string& said_by);

  // Forgets all predictions once there are many; references from changed() are then invalid.
  void forget_if_many();

 private:
  struct Changed {
    sim::Scenario from;
    Changes changes;
    std::unique_ptr<const sim::Scenario> to;
  };
  std::vector<std::pair<sim::Scenario, std::shared_ptr<const sim::Report>>> reports_;
  std::vector<Changed> changed_;
};

class Situation {
 public:
  // All must outlive it. `run`: a run of the scenario, whose figures stand for the predicted ones; or null.
  Situation(const sim::Scenario& of, Predictions& by, const sim::Report* run = nullptr)
      : scenario(of), predictions(by), measured(run) {}

  const sim::Scenario& scenario;
  Predictions& predictions;
  const sim::Report* const measured;

  // Throws std::invalid_argument, naming the first problem, where the scenario cannot be.
  const sim::Report& report() const;

 private:
  mutable std::shared_ptr<const sim::Report> predicted_;
};

}  // namespace app::lesson
