// Keeps the shares in which docked panels divide the window, through every resize: back at its old size, the
// window has its old layout.
#pragma once
#include <imgui.h>

#include <functional>
#include <map>
#include <utility>

struct ImGuiDockNode;

namespace app::gui {

class DockSplits {
 public:
  // The least size of a node that holds windows, in pixels; smaller only where all of them do not fit.
  using Least = std::function<ImVec2(const ImGuiDockNode& leaf)>;

  // Call before() ahead of ImGui::DockSpace() with the size that it will have, and after() behind it. A node
  // that holds windows may have a size of its own in `wish`, whatever the window's; 0: none. `wish` may be
  // null.
  void before(ImGuiID dockspace, ImVec2 size, const Least& least, const Least& wish);
  void after(ImGuiID dockspace);
  // True once after a splitter was dragged.
  bool take_drag() { return std::exchange(dragged_, false); }
  // A layout was made anew.
  void forget() { share_.clear(); }

 private:
  ImVec2 least_of(const ImGuiDockNode& node) const;
  void adopt(const ImGuiDockNode& node);
  void apply(ImGuiDockNode& node, ImVec2 size);
  void note(const ImGuiDockNode& node, bool dragged);

  std::map<ImGuiID, float> share_;  // of the first child, by the node that is split
  const Least *least_ = nullptr, *wish_ = nullptr;
  ImVec2 size_;
  bool dragged_ = false;
};

}  // namespace app::gui
