#include "app/gui/jobs/calibrations.h"

#include <exception>
#include <stdexcept>

#include "app/cli/scenario_flags.h"
#include "app/gui/jobs/child_process.h"
#include "runtime/this_machine.h"
#include "sim/cost/calibration_preset.h"
#include "sim/format.h"
#include "sim/report/events.h"
#include "sim/scenario/preset.h"

namespace app::gui {
namespace {

// Ends with the child, which is killed where the result is no longer wanted.
void measure_this_machine(const std::string& executable, const Study<int, int>::Course& course) {
  std::string problem;  // of a line; the reading thread's
  run_to_end(
      {executable, "calibrate", "--stream"},
      [&](std::string_view line) {
        try {
          const sim::Event event = sim::event_from_ndjson(line);
          if (const auto* step = std::get_if<sim::ProgressEvent>(&event))
            course.report(step->done, step->of,
                          step->left.value > 0 ? sim::format(step->left) + " left" : "");
        } catch (const std::exception& error) {
          problem = error.what();
        }
      },
      [&] { return course.stopped(); });
  if (!problem.empty() && !course.stopped()) throw std::runtime_error(problem);
}

}  // namespace

Calibrations::Calibrations(Studies& studies, std::string executable, std::function<void(std::string)> say)
    : say_(std::move(say)),
      measuring_(studies.add<int, int>([executable = std::move(executable)](int number, const auto& course) {
        measure_this_machine(executable, course);
        return number;
      })) {
  read_this_machine();
}

void Calibrations::read_this_machine() {
  try {
    if (auto calibration = runtime::cached_this_machine())
      here_ = std::make_shared<const sim::Calibration>(std::move(*calibration));
  } catch (const std::exception& error) {
    say_(error.what());
  }
}

bool Calibrations::take_over() {
  if (!measuring_.result() || *measuring_.result() == taken_over_) return false;
  taken_over_ = *measuring_.result();
  read_this_machine();
  return here_ != nullptr;
}

std::shared_ptr<const sim::Calibration> Calibrations::of(const sim::Hardware& hardware) {
  if (here_ && cli::is_hardware_of(*here_, hardware)) return here_;
  if (hardware.name == sim::kThisMachine) return nullptr;
  const auto known = shipped_.find(hardware.name);
  if (known != shipped_.end()) return known->second;
  std::shared_ptr<const sim::Calibration> shipped;
  try {
    if (auto calibration = sim::load_calibration_preset(hardware.name))
      shipped = std::make_shared<const sim::Calibration>(std::move(*calibration));
  } catch (const std::exception& error) {
    say_(error.what());
  }
  return shipped_[hardware.name] = shipped;
}

}  // namespace app::gui
