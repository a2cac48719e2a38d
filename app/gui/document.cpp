#include "app/gui/document.h"

#include <utility>

namespace app::gui {

void Document::edit(std::string label, sim::Scenario next, std::string_view key) {
  if (next == scenario_) return;
  const bool continues = !key.empty() && key == open_key_ && can_undo();
  if (continues) {
    history_.undo.back().label = std::move(label);
  } else {
    history_.undo.push_back({std::move(label), scenario_});
    if (history_.undo.size() > kDepth) history_.undo.erase(history_.undo.begin());
  }
  history_.redo.clear();
  open_key_ = key;
  scenario_ = std::move(next);
  ++revision_;
  // Back where the gesture began: nothing happened.
  if (continues && history_.undo.back().other_side == scenario_) {
    history_.undo.pop_back();
    open_key_.clear();
  }
}

void Document::undo() {
  cross(history_.undo, history_.redo);
}

void Document::redo() {
  cross(history_.redo, history_.undo);
}

void Document::cross(std::vector<UndoStep>& from, std::vector<UndoStep>& to) {
  if (from.empty()) return;
  UndoStep step = std::move(from.back());
  from.pop_back();
  std::swap(step.other_side, scenario_);
  to.push_back(std::move(step));
  open_key_.clear();
  ++revision_;
}

}  // namespace app::gui
