// The time of a step or generation, cause by cause, from the chip's best to the actual time; and the single
// changes of the scenario that change it most.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "app/gui/jobs/study.h"
#include "sim/cost/calibration.h"
#include "sim/report/report.h"
#include "sim/report/step_parts.h"

namespace app::gui {

// In the order in which they are added up.
enum class Cause {
  ideal,    // FLOPs of the operations, without what is recomputed, at the dense peak of the workload's type
  traffic,  // memory-bound operations: their bytes at full bandwidth, beyond their arithmetic
  below_peak,       // compute-bound operations: their time beyond the ideal
  below_bandwidth,  // memory-bound operations: their time beyond ideal and traffic
  launch,           // launch-bound operations: their time beyond the ideal
  host,
  recompute,  // whole operations, whatever bounds them
  network,    // exposed communication
  bubble,
  slowest,
  other
};
inline constexpr std::size_t kCauses = 11;
std::string_view name(Cause cause);

// Seconds of each cause; they add up to step_parts()'s whole, whose parts they divide.
using Waterfall = std::array<sim::Seconds, kCauses>;
Waterfall waterfall_of(const sim::Report& report);

struct TornadoQuestion {
  sim::Scenario scenario;
  std::shared_ptr<const sim::Calibration> calibration;  // of the scenario's hardware; may be null
  bool operator==(const TornadoQuestion&) const = default;
};

// One field changed; the batch follows what it is divided over.
struct TornadoBar {
  std::string label;  // "micro-batch 1 -> 2"
  sim::Scenario scenario;
  double faster = 0;  // tokens a second over now's, less one
  bool fits = true;
};
struct Tornado {
  std::vector<TornadoBar> bars;  // of each field the larger change; largest first
};
using TornadoStudy = Study<TornadoQuestion, Tornado>;

// Numbers doubled and halved, switches turned, words replaced by each other, as far as that is legal and can
// be priced.
Tornado tornado_of(const TornadoQuestion& question, const TornadoStudy::Course& course);

}  // namespace app::gui
