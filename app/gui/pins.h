// Reports kept to be compared with what is configured: predictions, runs and recordings alike. One of them is
// the baseline.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "app/gui/theme.h"
#include "sim/report/report.h"

namespace app::gui {

struct Pin {
  char letter = 'A';  // stays while it is pinned
  std::shared_ptr<const sim::Report> report;

  const sim::Scenario& scenario() const { return report->source.scenario; }
  bool measured() const { return report->source.kind != sim::ReportKind::predicted; }
  std::string name() const { return std::string("pin ") + letter; }
};

class Pins {
 public:
  Pins() = default;
  // As they were: by letter, each once.
  Pins(std::vector<Pin> all, std::size_t baseline)
      : all_(std::move(all)), baseline_(baseline < all_.size() ? baseline : 0) {}

  // Pins a report. False where all places are taken, or this very report is pinned.
  bool add(std::shared_ptr<const sim::Report> report);
  void remove(std::size_t pin);
  void clear() {
    all_.clear();
    baseline_ = 0;
    ++revision_;
  }
  // In the same place, under the same letter.
  void replace(std::size_t pin, std::shared_ptr<const sim::Report> report) {
    all_[pin].report = std::move(report);
    ++revision_;
  }
  void make_baseline(std::size_t pin);

  const std::vector<Pin>& all() const { return all_; }
  // The baseline: the first pin, unless another was made it; null without pins.
  const Pin* baseline() const { return all_.empty() ? nullptr : &all_[baseline_]; }
  bool is_baseline(const Pin& pin) const { return &pin == baseline(); }
  std::size_t baseline_index() const { return baseline_; }
  std::size_t revision() const { return revision_; }  // grows with every change

 private:
  std::vector<Pin> all_;  // at most kPins, by letter
  std::size_t baseline_ = 0;
  std::size_t revision_ = 0;
};

// The colour of a pin's letter, the same in every panel.
ImU32 pin_color(const Look& look, const Pin& pin);

// "12 % faster than pin A: 0.3 s less pipeline bubble, 0.1 s more exposed communication. Changed: data 8
// -> 16." By the parts of both steps or generations. Empty where either has no time.
std::string what_made_the_difference(const sim::Report& report, const Pin& baseline);

}  // namespace app::gui
