// The window within a panel's that holds what the panel draws, whose ids and places follow from it.
#pragma once
#include <imgui_internal.h>

namespace tests {

// Null where `panel` is null or draws nothing now.
inline ImGuiWindow* body_of(const ImGuiWindow* panel) {
  for (ImGuiWindow* window : GImGui->Windows)
    if (panel && window->ParentWindow == panel && window->Active) return window;
  return nullptr;
}

inline ImGuiWindow* body_of_maximised() {
  return body_of(ImGui::FindWindowByName("##maximised"));
}

}  // namespace tests
