// One row of a form each: label, field, steppers; below it, in one line, what is wrong or what it buys.
#pragma once
#include <imgui.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/gui/theme.h"

namespace app::gui {

// What a number was, or is elsewhere: drawn small inside its field, where there is room.
struct FieldGhost {
  std::string words;  // "was 8", "A 4"
  ImU32 color = 0;
};

struct FieldNote {
  std::string problem;                // takes precedence
  std::vector<std::string> accepted;  // what would be no problem: each is taken by a click
  std::string effect;                 // what a choice buys
  bool effect_is_good = false;
  std::vector<FieldGhost> ghosts = {};  // of a number, the most important first
  // What a double click on a number's name sets it to: as its preset has it. None: it does nothing.
  std::function<std::optional<std::int64_t>()> as_shipped = {};
};

void form_heading(const Look& look, std::string_view words);
// A heading that folds what is below it; true when it was clicked.
bool folding_heading(const Look& look, std::string_view words, bool folded);
// The index of the accepted value that was clicked.
std::optional<std::size_t> field_note(const Look& look, const FieldNote& note);

// What a press of - (-1) or + (+1) makes of the value; nullopt at the end of the legal values.
using Stepper = std::function<std::optional<std::int64_t>(std::int64_t value, int direction)>;
Stepper step_by(std::int64_t step, std::int64_t least, std::int64_t greatest);
Stepper step_by_doubling(std::int64_t least, std::int64_t greatest);
Stepper step_through_divisors_of(std::int64_t number);

// The same up from `first`, with 0 below it.
Stepper step_by_doubling_from_none(std::int64_t first, std::int64_t greatest);

// How a number is written and typed.
struct NumberStyle {
  bool binary_k = false;    // "8k" is 8,192
  bool hundredths = false;  // 125 is "1.25"
};
std::string number_text(std::int64_t value, NumberStyle style);
// As people type it: "8k", "4,096", "1.5T".
std::optional<std::int64_t> number_from_text(const std::string& text, NumberStyle style);

// The new value when the user changed it.
std::optional<std::int64_t> count_field(const Look& look, const char* label, std::int64_t value,
                                        const Stepper& stepper, NumberStyle style, const FieldNote& note);

// The index of the new choice when the user made one.
std::optional<std::size_t> choice_field(const Look& look, const char* label, std::string_view current,
                                        std::span<const std::string_view> choices, const FieldNote& note);

// Any of the choices: bit i of the value for the i-th.
std::optional<std::int64_t> several_field(const Look& look, const char* label, std::int64_t value,
                                          std::string_view current, std::span<const std::string_view> choices,
                                          const FieldNote& note);

// Two or three choices side by side.
std::optional<std::size_t> segmented_field(const Look& look, const char* label, std::size_t current,
                                           std::span<const std::string_view> choices, const FieldNote& note);

// A number between two ends, with its name at the left inside and its value, as it is to be read, at the
// right. True while it is dragged. Typed with Ctrl and a click. A mark stays where it was before the last
// drag; a double click sets what it began with.
struct SliderRange {
  double low = 0, high = 1;
  bool logarithmic = false;
};
bool slider(const Look& look, const char* label, double& value, SliderRange range, std::string_view shown,
            float width);

// Without a label; as wide as its words ask, or the width given. A choice with a refusal cannot be made and
// says why under the pointer; none are given where all can.
std::optional<std::size_t> segmented(const Look& look, const char* id, std::size_t current,
                                     std::span<const std::string_view> choices, float width = 0,
                                     std::span<const std::string> refusals = {});

// A labelled drop-down that looks like a button with an arrow: the top bar's pickers.
bool begin_picker(const Look& look, const char* id, std::string_view current, float greatest_width);
void end_picker();

bool primary_button(const Look& look, const char* label, ImU32 color, ImVec2 size = {0, 0});

}  // namespace app::gui
