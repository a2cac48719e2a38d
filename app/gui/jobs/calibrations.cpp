#include "app/gui/jobs/calibrations.h"

#include <exception>
#include <stdexcept>

#include "app/cli/scenario_flags.h"
#include "app/gui/jobs/child_process.h"
#include "runtime/gpu_calibration.h"
#include "runtime/this_machine.h"
#include "sim/format.h"
#include "sim/report/events.h"
#include "sim/scenario/preset.h"

namespace app::gui {
namespace {

constexpr std::size_t kMostKnown = 32;
constexpr double kBetweenLooks = 0.5;  // seconds, at files that another program may write in place

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
  read_at_ = runtime::calibrations_changed();
  read_this_machine();
}

void Calibrations::read_this_machine() {
  here_ = nullptr;
  known_.clear();
  refits_.clear();
  try {
    if (auto calibration = runtime::cached_this_machine())
      here_ = std::make_shared<const sim::Calibration>(std::move(*calibration));
    is_begun_ = runtime::this_machine_is_begun();
  } catch (const std::exception& error) {
    say_(error.what());
  }
}

std::shared_ptr<const sim::Refit> Calibrations::refit_of(const std::string& hardware) {
  const auto [known, is_new] = refits_.try_emplace(hardware);
  if (!is_new) return known->second;
  try {
    if (auto refit = runtime::cached_refit(hardware))
      known->second = std::make_shared<const sim::Refit>(std::move(*refit));
  } catch (const std::exception& error) {
    say_(error.what());
  }
  return known->second;
}

void Calibrations::keep(const sim::Refit& refit) {
  try {
    runtime::keep_refit(refit);
  } catch (const std::exception& error) {
    say_(error.what());
  }
}

void Calibrations::forget_refit(const std::string& hardware) {
  runtime::forget_refit(hardware);
}

bool Calibrations::take_over(double now) {
  const auto folder = runtime::calibrations_folder_changed();
  if (folder == folder_at_ && now < look_at_) return false;
  folder_at_ = folder;
  look_at_ = now + kBetweenLooks;
  const auto changed = runtime::calibrations_changed();
  if (changed == read_at_) return false;
  read_at_ = changed;
  read_this_machine();
  return here_ != nullptr;
}

std::shared_ptr<const sim::Calibration> Calibrations::of(const sim::Hardware& hardware) {
  sim::Hardware key;
  // Calibrations of other hardware go by its name alone.
  if (hardware.name == sim::kThisMachine)
    key = hardware;
  else
    key.name = hardware.name;
  for (const auto& [known, calibration] : known_)
    if (known == key) return calibration;
  std::shared_ptr<const sim::Calibration> found;
  try {
    if (auto calibration = cli::calibration_of(hardware))
      found = std::make_shared<const sim::Calibration>(std::move(*calibration));
  } catch (const std::exception& error) {
    say_(error.what());
  }
  // A field that is dragged asks of ever other hardware.
  if (known_.size() >= kMostKnown) known_.clear();
  return known_.emplace_back(std::move(key), std::move(found)).second;
}

}  // namespace app::gui
