// The scenario being edited, with its history. A scenario is a small plain value, so that an undo step is a
// copy.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "sim/scenario/scenario.h"

namespace app::gui {

struct UndoStep {
  std::string label;
  sim::Scenario other_side;  // undo: before the step; redo: after it
  bool operator==(const UndoStep&) const = default;
};

// The steps to undo or redo next are the last elements.
struct History {
  std::vector<UndoStep> undo, redo;
  bool operator==(const History&) const = default;
};

class Document {
 public:
  explicit Document(sim::Scenario scenario, History history = {})
      : scenario_(std::move(scenario)), history_(std::move(history)) {}

  const sim::Scenario& scenario() const { return scenario_; }
  std::size_t revision() const { return revision_; }  // grows with every change of the scenario

  // Makes the change one undo step. Edits with one key that follow each other within a gesture (a held
  // button, a drag) become one step, which then goes from the first one's beginning to the last one's end.
  void edit(std::string label, sim::Scenario next, std::string_view key = {});
  void end_gesture() { open_key_.clear(); }

  const History& history() const { return history_; }
  bool can_undo() const { return !history_.undo.empty(); }
  bool can_redo() const { return !history_.redo.empty(); }
  std::string_view undo_label() const {
    return can_undo() ? std::string_view(history_.undo.back().label) : "";
  }
  std::string_view redo_label() const {
    return can_redo() ? std::string_view(history_.redo.back().label) : "";
  }
  void undo();
  void redo();

 private:
  static constexpr std::size_t kDepth = 200;
  void cross(std::vector<UndoStep>& from, std::vector<UndoStep>& to);

  sim::Scenario scenario_;
  std::size_t revision_ = 0;
  History history_;
  std::string open_key_;
};

}  // namespace app::gui
