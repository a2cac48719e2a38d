// A sweep measured on this machine: a short run for each value of a field, one after the other.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "app/gui/jobs/run.h"
#include "app/gui/jobs/study.h"
#include "sim/cost/calibration.h"
#include "sim/report/report.h"

namespace app::gui {

// A report, as a sweep draws it.
struct SweepPoint {
  double value = 0;
  double memory = 0, tokens_per_second = 0;  // bytes of the fullest device; of all devices
  double step = 0, utilization = 0;          // seconds; MFU of training, MBU of generation
  double planned = 0;                        // of the memory, without what the platform holds: bytes
};
SweepPoint sweep_point(double value, const sim::Report& report);

struct MeasuredSweepQuestion {
  std::string executable;                                // this program
  sim::Scenario scenario;                                // that the field is changed in
  std::string field;                                     // its path
  std::vector<std::pair<double, sim::Scenario>> values;  // of the field, with the scenario that has each
  RunPlace place;
  std::shared_ptr<const sim::Calibration> here;  // of this machine; null: not measured
  bool operator==(const MeasuredSweepQuestion&) const = default;
};

struct MeasuredSweep {
  std::vector<SweepPoint> points;     // by value
  std::vector<std::string> left_out;  // values that were not run, each with the reason: "8,192: ..."
};

// Steps of a run: the median of what follows the first is what is drawn.
inline constexpr std::int64_t kSweptSteps = 4;
// A run that is predicted to take longer is left out.
inline constexpr sim::Seconds kLongestSweptRun{30};

using MeasuredSweepStudy = Study<MeasuredSweepQuestion, MeasuredSweep>;
// Shows each point as soon as it is there.
MeasuredSweep measure_sweep(const MeasuredSweepQuestion& question, const MeasuredSweepStudy::Course& course);

}  // namespace app::gui
