#include "app/gui/document.h"

#include <utility>

namespace app::gui {

void Document::edit(std::string label, sim::Scenario next, std::string_view key) {
  if (next == scenario_) return;
  const bool continues = !key.empty() && key == open_key_ && can_undo();
  if (continues) {
    undo_.back().label = std::move(label);
  } else {
    undo_.push_back({std::move(label), scenario_});
    if (undo_.size() > kDepth) undo_.erase(undo_.begin());
  }
  redo_.clear();
  open_key_ = key;
  scenario_ = std::move(next);
  ++revision_;
  // Back where the gesture began: nothing happened.
  if (continues && undo_.back().other_side == scenario_) {
    undo_.pop_back();
    open_key_.clear();
  }
}

void Document::undo() {
  cross(undo_, redo_);
}

void Document::redo() {
  cross(redo_, undo_);
}

void Document::cross(std::vector<Step>& from, std::vector<Step>& to) {
  if (from.empty()) return;
  Step step = std::move(from.back());
  from.pop_back();
  std::swap(step.other_side, scenario_);
  to.push_back(std::move(step));
  open_key_.clear();
  ++revision_;
}

}  // namespace app::gui
