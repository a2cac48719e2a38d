#include "app/gui/dock_splits.h"

#include <imgui_internal.h>

#include <algorithm>
#include <cmath>

namespace app::gui {
namespace {

float part(ImVec2 v, int axis) {
  return axis == ImGuiAxis_X ? v.x : v.y;
}

constexpr float kDrag = 1.5f;  // pixels

float spacing() {
  return ImGui::GetStyle().DockingSeparatorSize;
}

bool both_are_seen(const ImGuiDockNode& node) {
  return node.ChildNodes[0]->IsVisible && node.ChildNodes[1]->IsVisible;
}

}  // namespace

ImVec2 DockSplits::least_of(const ImGuiDockNode& node) const {
  if (!node.IsVisible) return {0, 0};
  if (!node.IsSplitNode()) return (*least_)(node);
  const ImVec2 a = least_of(*node.ChildNodes[0]), b = least_of(*node.ChildNodes[1]);
  const float between = both_are_seen(node) ? spacing() : 0;
  return node.SplitAxis == ImGuiAxis_X ? ImVec2(a.x + b.x + between, std::max(a.y, b.y))
                                       : ImVec2(std::max(a.x, b.x), a.y + b.y + between);
}

// As the layout was made or written, at whatever size.
void DockSplits::adopt(const ImGuiDockNode& node) {
  if (!node.IsSplitNode()) return;
  const float a = part(node.ChildNodes[0]->SizeRef, node.SplitAxis);
  const float b = part(node.ChildNodes[1]->SizeRef, node.SplitAxis);
  if (a > 0 && b > 0) share_[node.ID] = a / (a + b);
  adopt(*node.ChildNodes[0]);
  adopt(*node.ChildNodes[1]);
}

void DockSplits::apply(ImGuiDockNode& node, ImVec2 size) {
  if (!node.IsSplitNode()) return;
  ImGuiDockNode &first = *node.ChildNodes[0], &second = *node.ChildNodes[1];
  if (!both_are_seen(node)) {
    apply(first, size);
    return apply(second, size);
  }
  const int axis = node.SplitAxis;
  const float room = std::max(2.0f, part(size, axis) - spacing());
  if (!share_.count(node.ID)) {
    const float a = part(first.SizeRef, axis), b = part(second.SizeRef, axis);
    if (a <= 0 || b <= 0) return;
    share_[node.ID] = a / (a + b);
  }
  const float least_first = part(least_of(first), axis), least_second = part(least_of(second), axis);
  float of_first = share_[node.ID] * room;
  const auto wished = [&](const ImGuiDockNode& child) {
    return *wish_ && !child.IsSplitNode() ? part((*wish_)(child), axis) : 0;
  };
  if (wished(first) > 0)
    of_first = wished(first);
  else if (wished(second) > 0)
    of_first = room - wished(second);
  if (least_first + least_second <= room)
    of_first = std::clamp(of_first, least_first, room - least_second);
  else
    of_first = room * least_first / (least_first + least_second);
  of_first = std::clamp(std::round(of_first), 1.0f, room - 1);
  if (wished(first) > 0 || wished(second) > 0) share_[node.ID] = of_first / room;
  ImVec2 sizes[2] = {size, size};
  (axis == ImGuiAxis_X ? sizes[0].x : sizes[0].y) = of_first;
  (axis == ImGuiAxis_X ? sizes[1].x : sizes[1].y) = room - of_first;
  first.SizeRef = sizes[0];
  second.SizeRef = sizes[1];
  apply(first, sizes[0]);
  apply(second, sizes[1]);
}

void DockSplits::note(const ImGuiDockNode& node, bool dragged) {
  if (!node.IsSplitNode()) return;
  const int axis = node.SplitAxis;
  const float a = part(node.ChildNodes[0]->Size, axis), b = part(node.ChildNodes[1]->Size, axis);
  if (both_are_seen(node) && a > 0 && b > 0 && (dragged || !share_.count(node.ID))) {
    float& share = share_.try_emplace(node.ID, a / (a + b)).first->second;
    // A pixel's rounding is no drag.
    if (const float now = a / (a + b); std::abs(share - now) * (a + b) > kDrag) {
      dragged_ = dragged_ || dragged;
      share = now;
    }
  }
  note(*node.ChildNodes[0], dragged);
  note(*node.ChildNodes[1], dragged);
}

void DockSplits::before(ImGuiID dockspace, ImVec2 size, const Least& least, const Least& wish) {
  ImGuiDockNode* node = ImGui::DockBuilderGetNode(dockspace);
  if (!node) return;
  if (share_.empty()) adopt(*node);
  least_ = &least;
  wish_ = &wish;
  // While the mouse holds a splitter its sizes are the mouse's.
  const bool resized = size.x != size_.x || size.y != size_.y;
  if (resized || !ImGui::IsMouseDown(ImGuiMouseButton_Left)) apply(*node, size);
  least_ = wish_ = nullptr;
  size_ = size;
}

void DockSplits::after(ImGuiID dockspace) {
  if (const ImGuiDockNode* node = ImGui::DockBuilderGetNode(dockspace))
    note(*node, ImGui::IsMouseDown(ImGuiMouseButton_Left) || ImGui::IsMouseReleased(ImGuiMouseButton_Left));
}

}  // namespace app::gui
