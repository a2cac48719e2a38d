// The scenario being edited, with its history. A scenario is a small plain value, so that an undo step is a
// copy.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "sim/scenario/scenario.h"

namespace app::gui {

class Document {
 public:
  explicit Document(sim::Scenario scenario) : scenario_(std::move(scenario)) {}

  const sim::Scenario& scenario() const { return scenario_; }
  std::size_t revision() const { return revision_; }  // grows with every change of the scenario

  // Makes the change one undo step. Edits with one key that follow each other within a gesture (a held
  // button, a drag) become one step, which then goes from the first one's beginning to the last one's end.
  void edit(std::string label, sim::Scenario next, std::string_view key = {});
  void end_gesture() { open_key_.clear(); }

  bool can_undo() const { return !undo_.empty(); }
  bool can_redo() const { return !redo_.empty(); }
  std::string_view undo_label() const { return can_undo() ? std::string_view(undo_.back().label) : ""; }
  std::string_view redo_label() const { return can_redo() ? std::string_view(redo_.back().label) : ""; }
  void undo();
  void redo();

 private:
  static constexpr std::size_t kDepth = 200;
  struct Step {
    std::string label;
    sim::Scenario other_side;  // undo: before the step; redo: after it
  };
  void cross(std::vector<Step>& from, std::vector<Step>& to);

  sim::Scenario scenario_;
  std::size_t revision_ = 0;
  std::vector<Step> undo_, redo_;
  std::string open_key_;
};

}  // namespace app::gui
