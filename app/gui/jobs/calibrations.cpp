#include "app/gui/jobs/calibrations.h"

#include <exception>
#include <mutex>

#include "runtime/this_machine.h"
#include "sim/cost/calibration_preset.h"
#include "sim/report/events.h"
#include "sim/scenario/preset.h"

namespace app::gui {

// Shared with the reading thread of a measurement.
struct Calibrations::Progress {
  std::mutex mutex;
  CalibrationView view{.running = true, .left = {}, .message = {}};
};

Calibrations::Calibrations(std::string executable, std::function<void()> wake,
                           std::function<void(std::string)> say)
    : executable_(std::move(executable)), wake_(std::move(wake)), say_(std::move(say)) {
  take_over();
}

Calibrations::~Calibrations() = default;

void Calibrations::take_over() {
  try {
    if (auto calibration = runtime::cached_this_machine())
      here_ = std::make_shared<const sim::Calibration>(std::move(*calibration));
  } catch (const std::exception& error) {
    say_(error.what());
  }
}

std::shared_ptr<const sim::Calibration> Calibrations::of(const sim::Hardware& hardware) {
  if (here_ && hardware == here_->hardware) return here_;
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

void Calibrations::measure() {
  progress_ = std::make_shared<Progress>();
  view_ = progress_->view;
  const auto tell = [progress = progress_, wake = wake_](const auto& change) {
    {
      const std::lock_guard lock(progress->mutex);
      change(progress->view);
    }
    wake();
  };
  child_ = std::make_unique<ChildProcess>(
      std::vector<std::string>{executable_, "calibrate", "--stream"},
      [tell](std::string_view line) {
        tell([&](CalibrationView& view) {
          try {
            const sim::Event event = sim::event_from_ndjson(line);
            if (const auto* step = std::get_if<sim::ProgressEvent>(&event)) {
              view.done = step->done;
              view.of = step->of;
              view.left = step->left;
            }
          } catch (const std::exception& error) {
            view.message = error.what();
          }
        });
      },
      [] {},
      [tell](const ChildEnd& end) {
        tell([&](CalibrationView& view) {
          view.running = false;
          if (!end.message.empty()) view.message = end.message;
        });
      });
}

bool Calibrations::poll() {
  if (!child_) return false;
  {
    const std::lock_guard lock(progress_->mutex);
    view_ = progress_->view;
  }
  if (view_.running) return false;
  child_.reset();
  take_over();
  return true;
}

}  // namespace app::gui
