// Inter for text, JetBrains Mono for numbers and names, from where distributions put them; ImGui's own where
// they are missing.
#pragma once
#include <imgui.h>

namespace app::gui {

// In points before the UI scale.
namespace text_size {
inline constexpr float body = 14.5f;
inline constexpr float caption = 12.5f;
inline constexpr float title = 14.5f;
inline constexpr float heading = 18;
inline constexpr float tile = 26;
inline constexpr float number = 12.5f;
// Sizes are heights of lines. A number whose letters are as large as the body's:
inline constexpr float number_as_body = body * 1.32f / 1.21f;  // lines of JetBrains Mono and Inter, of an em
}  // namespace text_size

struct Fonts {
  ImFont* text = nullptr;
  ImFont* strong = nullptr;
  ImFont* mono = nullptr;
};

// Adds them to the current context's atlas; the first added is ImGui's default font.
Fonts load_fonts();

}  // namespace app::gui
