// What the sweep panel asks for and shows.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "app/gui/jobs/measured_sweep.h"
#include "app/gui/jobs/study.h"
#include "app/gui/panels/panels.h"
#include "sim/cost/calibration.h"
#include "sim/scenario/scenario.h"

namespace app::gui {

// Fields by their paths: "workload.seq_len".
struct SweepRequest {
  sim::Scenario scenario;
  std::shared_ptr<const sim::Calibration> calibration;  // of the scenario's hardware; may be null
  std::string field, by;  // by: a curve for each of its values; empty: one curve
  std::shared_ptr<const sim::Report> baseline = nullptr;  // its scenario is swept, too; may be null
  bool operator==(const SweepRequest&) const = default;
};

struct SweepCurve {
  std::string label;    // "recompute full"; of the one of a sweep without curves: "predicted"
  bool is_now = false;  // of what is configured, else of another value or of the baseline
  bool of_baseline = false;
  sim::Scenario scenario;          // that the field is changed in
  std::vector<SweepPoint> points;  // by value
};
struct Sweep {
  std::vector<SweepCurve> curves;
};
using SweepStudy = Study<SweepRequest, Sweep>;

struct SweepState {
  explicit SweepState(const PanelTools& tools);
  SweepStudy& study;
  MeasuredSweepStudy& measuring;
  Calibrations& calibrations;
  std::string executable = {};  // this program, for runs; empty: none is started
  std::string field, by;        // paths; an empty or inapplicable field: the first of the task
  std::size_t metric = 1;       // of the second chart
};

}  // namespace app::gui
