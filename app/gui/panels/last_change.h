// What the last edit changed: the prediction that was shown before it, for as long as the difference is
// shown.
#pragma once
#include <memory>
#include <optional>

#include "sim/report/report.h"

namespace app::gui {

class LastChange {
 public:
  static constexpr double kShown = 2;  // seconds

  // Once a frame: what is shown now, of which tab, at a time in seconds. The first prediction of a tab
  // changed nothing.
  void follow(const std::shared_ptr<const sim::Report>& now, int tab, double time);
  // What was shown before; null where nothing has changed for a while, or what is computed is another task.
  const sim::Report* before(double time) const { return left(time) ? before_.get() : nullptr; }
  // Seconds until it is over.
  std::optional<double> left(double time) const;

 private:
  std::shared_ptr<const sim::Report> now_, before_;
  int tab_ = -1;
  double at_ = 0;
};

}  // namespace app::gui
