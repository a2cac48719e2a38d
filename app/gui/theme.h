// The look as named tokens: what a colour means, never which one it is. Every number on screen that was
// predicted is `predicted`, every measured one `measured`; good and bad are news, nothing else is coloured.
#pragma once
#include <imgui.h>

#include <array>
#include <string_view>

#include "app/gui/desktop.h"
#include "app/gui/fonts.h"
#include "app/gui/pin_count.h"
#include "sim/plan/memory.h"
#include "sim/report/step_parts.h"

namespace app::gui {

// The ledger's categories: the buffer classes, then what packing or an allocator wastes, what lies outside
// the arena, and copies of whole stages.
inline constexpr int kPackingCategory = sim::kBufferClasses;
inline constexpr int kPlatformCategory = sim::kBufferClasses + 1;
inline constexpr int kCopiesCategory = sim::kBufferClasses + 2;
inline constexpr int kMemoryCategories = sim::kBufferClasses + 3;

// The kinds of work of a pipeline stage.
enum class Pass { forward, backward, weights, recompute, optimizer };
inline constexpr std::size_t kPasses = 5;

struct Palette {
  ImU32 background, panel, raised, border;
  ImU32 text, dim, mute;
  ImU32 predicted, measured;
  ImU32 good, bad, warn;
  ImU32 ceiling;                                // lines that a machine cannot pass
  std::array<ImU32, kMemoryCategories> memory;  // the same in all themes: one category, one colour
  std::array<ImU32, kPasses> passes;
  sim::EnumArray<sim::StepPart, ImU32> parts;  // of a step's time
  std::array<ImU32, kPins> pins;
  bool is_dark = true;
  ImU32 grid = border;  // lines and tracks behind what is drawn
};

const Palette& palette(Theme theme);

ImU32 with_alpha(ImU32 color, float alpha);
ImU32 mix(ImU32 a, ImU32 b, float share_of_b);
// Black or white text, whichever reads better on the colour (WCAG relative luminance).
ImU32 text_on(ImU32 background);

// Index into Palette::memory of a ledger line's category; -1 for a name that is not one.
int memory_category(std::string_view name);
// As panels write it: "KV cache".
std::string_view memory_category_title(int category);

// What every widget needs to draw itself.
struct Look {
  Theme theme = Theme::dark;
  const Palette* colors = nullptr;
  Fonts fonts;
  float scale = 1;
  bool presented = false;  // captions and numbers are as large as the text, for the back of a room

  const Palette& color() const { return *colors; }
  float px(float points) const { return points * scale; }
};

// Writes the theme into ImGui's and ImPlot's styles; line weights, markers and paddings follow the scale.
void apply_style(const Look& look);

}  // namespace app::gui
