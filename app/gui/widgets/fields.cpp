#include "app/gui/widgets/fields.h"

#include <fmt/format.h>
#include <imgui_internal.h>
#include <misc/cpp/imgui_stdlib.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "app/gui/widgets/parts.h"
#include "app/gui/widgets/text.h"
#include "sim/format.h"

namespace app::gui {
namespace {

constexpr float kLabelShare = 0.31f;  // of the form's width
constexpr double kHundredths = 100;

float field_begin() {
  return ImGui::GetWindowContentRegionMax().x * kLabelShare;
}

// Label, then the cursor where the field begins; returns the width left for it.
float begin_row(const Look& look, const char* label) {
  ImGui::AlignTextToFramePadding();
  const float begin = ImGui::GetCursorPosX();
  text(look, TextRole::body, look.color().dim, fitted(look, TextRole::body, label, field_begin() - begin));
  ImGui::SameLine(field_begin());
  return ImGui::GetContentRegionAvail().x;
}

// Minus and plus as strokes: crisp at every scale. Repeats while held.
bool step_button(const Look& look, const char* id, bool plus, bool enabled) {
  const float side = ImGui::GetFrameHeight();
  ImGui::BeginDisabled(!enabled);
  ImGui::PushItemFlag(ImGuiItemFlags_ButtonRepeat, true);
  const bool pressed = ImGui::Button(id, {side, side});
  ImGui::PopItemFlag();
  ImGui::EndDisabled();
  const ImVec2 least = ImGui::GetItemRectMin();
  const ImVec2 centre = {std::floor(least.x + side / 2), std::floor(least.y + side / 2)};
  const float arm = std::floor(look.px(4));
  const float half = std::max(0.5f, std::floor(look.scale) / 2);
  const ImU32 color = with_alpha(look.color().text, enabled ? 0.85f : 0.25f);
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->AddRectFilled({centre.x - arm, centre.y - half}, {centre.x + arm, centre.y + half}, color);
  if (plus) list->AddRectFilled({centre.x - half, centre.y - arm}, {centre.x + half, centre.y + arm}, color);
  return pressed;
}

// From the field's right edge on, up to what is written at its left.
void draw_ghosts(const Look& look, ImVec2 least, ImVec2 most, const std::string& written,
                 const std::vector<FieldGhost>& ghosts) {
  const float gap = look.px(8);
  float right = most.x - gap;
  const float left = least.x + 2 * gap + text_size_of(look, TextRole::number, written).x;
  for (const FieldGhost& ghost : ghosts) {
    const float width = text_size_of(look, TextRole::caption, ghost.words).x;
    if (right - width < left) return;
    draw_text(ImGui::GetWindowDrawList(), look, TextRole::caption, {right, (least.y + most.y) / 2},
              ghost.color, ghost.words, {1, 0.5f});
    right -= width + gap;
  }
}

template <class Text>
std::optional<std::size_t> index_of(std::span<const Text> choices, const std::string& choice) {
  const auto found = std::find(choices.begin(), choices.end(), choice);
  if (found == choices.end()) return std::nullopt;
  return static_cast<std::size_t>(found - choices.begin());
}

void draw_arrow(const Look& look, ImVec2 centre) {
  const float w = look.px(3.5f), h = look.px(2);
  const ImVec2 points[] = {
      {centre.x - w, centre.y - h}, {centre.x, centre.y + h}, {centre.x + w, centre.y - h}};
  ImGui::GetWindowDrawList()->AddPolyline(points, 3, look.color().dim, look.px(1.4f));
}

}  // namespace

void form_heading(const Look& look, std::string_view words) {
  ImGui::Dummy({0, look.px(4)});
  std::string upper(words);
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  text(look, TextRole::caption, look.color().mute, upper);
}

bool folding_heading(const Look& look, std::string_view words, bool folded) {
  ImGui::Dummy({0, look.px(4)});
  std::string upper(words);
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  const ImVec2 size = text_size_of(look, TextRole::caption, upper);
  const ImVec2 begin = ImGui::GetCursorScreenPos();
  ImGui::PushID(upper.c_str());
  const bool clicked = pressable("fold", {size.x + look.px(20), size.y});
  ImGui::PopID();
  const ImU32 color = ImGui::IsItemHovered() ? look.color().text : look.color().mute;
  ImGui::SetItemTooltip("%s", folded ? "Show every field" : "Hide these fields");
  ImDrawList* list = ImGui::GetWindowDrawList();
  draw_text(list, look, TextRole::caption, begin, color, upper);
  const float w = look.px(3.2f);
  const ImVec2 centre = {begin.x + size.x + look.px(11), begin.y + size.y / 2};
  const ImVec2 right[] = {
      {centre.x - w / 2, centre.y - w}, {centre.x + w / 2, centre.y}, {centre.x - w / 2, centre.y + w}};
  const ImVec2 down[] = {
      {centre.x - w, centre.y - w / 2}, {centre.x, centre.y + w / 2}, {centre.x + w, centre.y - w / 2}};
  list->AddPolyline(folded ? right : down, 3, color, look.px(1.3f));
  return clicked;
}

std::optional<std::size_t> field_note(const Look& look, const FieldNote& note) {
  std::optional<std::size_t> picked;
  const bool wrong = !note.problem.empty();
  if (!wrong && note.effect.empty()) return picked;
  const Palette& c = look.color();
  ImGui::SetCursorPosX(field_begin());
  const ImU32 color = wrong ? c.bad : note.effect_is_good ? c.good : c.mute;
  text_wrapped(look, TextRole::caption, color, wrong ? note.problem : note.effect);
  if (!wrong || note.accepted.empty()) return picked;
  ImGui::SetCursorPosX(field_begin());
  text(look, TextRole::caption, c.dim, "accepted:");
  for (std::size_t i = 0; i < note.accepted.size(); ++i) {
    const ImVec2 size = text_size_of(look, TextRole::number, note.accepted[i]);
    ImGui::SameLine(0, look.px(6));
    if (ImGui::GetContentRegionAvail().x < size.x) {
      ImGui::NewLine();
      ImGui::SetCursorPosX(field_begin());
    }
    const ImVec2 begin = ImGui::GetCursorScreenPos();
    ImGui::PushID(static_cast<int>(i));
    if (pressable("accepted", size)) picked = i;
    ImGui::PopID();
    draw_text(ImGui::GetWindowDrawList(), look, TextRole::number, begin,
              ImGui::IsItemHovered() ? c.text : c.good, note.accepted[i]);
  }
  return picked;
}

Stepper step_by(std::int64_t step, std::int64_t least, std::int64_t greatest) {
  return [=](std::int64_t value, int direction) -> std::optional<std::int64_t> {
    const std::int64_t next = std::clamp(value + direction * step, least, greatest);
    return next == value ? std::nullopt : std::optional(next);
  };
}

Stepper step_by_doubling(std::int64_t least, std::int64_t greatest) {
  return [=](std::int64_t value, int direction) -> std::optional<std::int64_t> {
    const std::int64_t next = std::clamp(direction > 0 ? value * 2 : value / 2, least, greatest);
    return next == value ? std::nullopt : std::optional(next);
  };
}

Stepper step_by_doubling_from_none(std::int64_t first, std::int64_t greatest) {
  return [=](std::int64_t value, int direction) -> std::optional<std::int64_t> {
    const std::int64_t doubled = value < first ? first : value * 2, halved = value <= first ? 0 : value / 2;
    const std::int64_t next = std::min(direction > 0 ? doubled : halved, greatest);
    return next == value ? std::nullopt : std::optional(next);
  };
}

Stepper step_through_divisors_of(std::int64_t number) {
  return [=](std::int64_t value, int direction) -> std::optional<std::int64_t> {
    for (std::int64_t next = value + direction; next >= 1 && next <= number; next += direction)
      if (number % next == 0) return next;
    return std::nullopt;
  };
}

std::string number_text(std::int64_t value, NumberStyle style) {
  if (!style.hundredths) return sim::format_count(value);
  return fmt::format("{:g}", static_cast<double>(value) / kHundredths);
}

std::optional<std::int64_t> number_from_text(const std::string& text, NumberStyle style) {
  std::int64_t whole = 0;
  if (!style.hundredths)
    return sim::parse_count(text, whole, style.binary_k) ? std::optional(whole) : std::nullopt;
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || rest != end || !(std::abs(number) < 1e6)) return std::nullopt;
  return std::llround(number * kHundredths);
}

std::optional<std::int64_t> count_field(const Look& look, const char* label, std::int64_t value,
                                        const Stepper& stepper, NumberStyle style, const FieldNote& note) {
  std::optional<std::int64_t> result;
  ImGui::PushID(label);
  const float gap = look.px(3);
  const float side = ImGui::GetFrameHeight();
  ImGui::SetNextItemWidth(begin_row(look, label) - 2 * (side + gap));
  // The name is the window's last item until the field is.
  if (note.as_shipped) {
    ImGui::SetItemTooltip("Double click: as shipped");
    if (ImGui::IsItemHovered() && ImGui::IsMouseDoubleClicked(ImGuiMouseButton_Left))
      result = note.as_shipped();
  }
  std::string typed = number_text(value, style);
  const bool wrong = !note.problem.empty();
  if (wrong) {
    ImGui::PushStyleColor(ImGuiCol_Border, look.color().bad);
    ImGui::PushStyleVar(ImGuiStyleVar_FrameBorderSize, std::max(1.0f, look.scale));
  }
  {
    const TextScope number(look, TextRole::number);
    // The frame keeps the height of a line of text although the number's font is smaller.
    const float padding = (side - ImGui::GetFontSize()) / 2;
    ImGui::PushStyleVar(ImGuiStyleVar_FramePadding, ImVec2(look.px(8), padding));
    ImGui::InputText("##value", &typed, ImGuiInputTextFlags_AutoSelectAll);
    ImGui::PopStyleVar();
  }
  if (wrong) {
    ImGui::PopStyleVar();
    ImGui::PopStyleColor();
  }
  if (!ImGui::IsItemActive())
    draw_ghosts(look, ImGui::GetItemRectMin(), ImGui::GetItemRectMax(), typed, note.ghosts);
  if (ImGui::IsItemDeactivatedAfterEdit()) {
    const auto parsed = number_from_text(typed, style);
    if (parsed && *parsed != value) result = parsed;
  }
  for (const int direction : {-1, 1}) {
    ImGui::SameLine(0, gap);
    const std::optional<std::int64_t> next = stepper(value, direction);
    if (step_button(look, direction < 0 ? "##less" : "##more", direction > 0, next.has_value()))
      result = next;
  }
  // Written in full: "8,192" is no "8k".
  if (const auto picked = field_note(look, note)) result = number_from_text(note.accepted[*picked], style);
  ImGui::PopID();
  return result;
}

std::optional<std::size_t> choice_field(const Look& look, const char* label, std::string_view current,
                                        std::span<const std::string_view> choices, const FieldNote& note) {
  std::optional<std::size_t> result;
  ImGui::PushID(label);
  const float width = begin_row(look, label);
  if (begin_picker(look, "##choice", current, width)) {
    for (std::size_t i = 0; i < choices.size(); ++i) {
      const bool selected = choices[i] == current;
      if (ImGui::Selectable(std::string(choices[i]).c_str(), selected)) result = i;
      if (selected) ImGui::SetItemDefaultFocus();
    }
    end_picker();
  }
  if (const auto picked = field_note(look, note)) result = index_of(choices, note.accepted[*picked]);
  ImGui::PopID();
  return result;
}

std::optional<std::int64_t> several_field(const Look& look, const char* label, std::int64_t value,
                                          std::string_view current, std::span<const std::string_view> choices,
                                          const FieldNote& note) {
  std::optional<std::int64_t> result;
  ImGui::PushID(label);
  const float width = begin_row(look, label);
  if (begin_picker(look, "##choice", current.empty() ? "none" : current, width)) {
    for (std::size_t i = 0; i < choices.size(); ++i) {
      const std::int64_t bit = std::int64_t{1} << i;
      if (ImGui::MenuItem(std::string(choices[i]).c_str(), nullptr, (value & bit) != 0)) result = value ^ bit;
    }
    end_picker();
  }
  field_note(look, note);
  ImGui::PopID();
  return result;
}

std::optional<std::size_t> segmented_field(const Look& look, const char* label, std::size_t current,
                                           std::span<const std::string_view> choices, const FieldNote& note) {
  ImGui::PushID(label);
  const float width = begin_row(look, label);
  auto result = segmented(look, "##choice", current, choices, width);
  if (const auto picked = field_note(look, note)) result = index_of(choices, note.accepted[*picked]);
  ImGui::PopID();
  return result;
}

std::optional<std::size_t> segmented(const Look& look, const char* id, std::size_t current,
                                     std::span<const std::string_view> choices, float width,
                                     std::span<const std::string> refusals) {
  std::optional<std::size_t> result;
  const Palette& c = look.color();
  const float height = ImGui::GetFrameHeight();
  const float inset = std::floor(look.px(2));
  std::vector<float> widths;
  for (const std::string_view choice : choices)
    widths.push_back(width > 0 ? (width - 2 * inset) / static_cast<float>(choices.size())
                               : text_size_of(look, TextRole::body, choice).x + look.px(22));
  // What is wider than there is room for is narrowed, all by one factor.
  const float wanted = std::accumulate(widths.begin(), widths.end(), 2 * inset);
  const float room = ImGui::GetContentRegionAvail().x;
  if (width <= 0 && wanted > room && room > look.px(60))
    for (float& w : widths) w *= (room - 2 * inset) / (wanted - 2 * inset);
  // Words that are too long for their share are all written smaller, not cut.
  bool fits = true;
  for (std::size_t i = 0; i < choices.size(); ++i)
    fits = fits && text_size_of(look, TextRole::body, choices[i]).x <= widths[i] - look.px(6);
  const TextRole role = fits ? TextRole::body : TextRole::caption;
  const float total = std::accumulate(widths.begin(), widths.end(), 2 * inset);

  ImGui::PushID(id);
  ImDrawList* list = ImGui::GetWindowDrawList();
  const ImVec2 begin = ImGui::GetCursorScreenPos();
  const float rounding = ImGui::GetStyle().FrameRounding;
  list->AddRectFilled(begin, {begin.x + total, begin.y + height}, c.raised, rounding);
  ImGui::BeginGroup();
  float x = begin.x + inset;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const ImVec2 least = {x, begin.y + inset}, most = {x + widths[i], begin.y + height - inset};
    ImGui::SetCursorScreenPos(least);
    ImGui::PushID(static_cast<int>(i));
    const bool refused = i < refusals.size() && !refusals[i].empty();
    const bool pressed = pressable("segment", {widths[i], height - 2 * inset});
    if (pressed && i != current && !refused) result = i;
    if (refused) ImGui::SetItemTooltip("%s", refusals[i].c_str());
    ImGui::PopID();
    const bool chosen = i == current;
    if (chosen || (ImGui::IsItemHovered() && !refused))
      list->AddRectFilled(least, most,
                          chosen ? mix(c.raised, c.predicted, 0.28f) : mix(c.raised, c.text, 0.08f),
                          rounding - inset / 2);
    if (ImGui::IsItemFocused() && ImGui::GetIO().NavVisible)
      list->AddRect(least, most, c.predicted, rounding);
    draw_text(list, look, role, {(least.x + most.x) / 2, (least.y + most.y) / 2},
              chosen    ? c.text
              : refused ? with_alpha(c.mute, 0.6f)
                        : c.dim,
              fitted(look, role, choices[i], widths[i] - look.px(2)), {0.5f, 0.5f});
    x += widths[i];
  }
  ImGui::SetCursorScreenPos(begin);
  ImGui::Dummy({total, height});
  ImGui::EndGroup();
  ImGui::PopID();
  return result;
}

bool slider(const Look& look, const char* label, double& value, SliderRange range, std::string_view shown,
            float width) {
  const Palette& c = look.color();
  const float height = ImGui::GetFrameHeight();
  const ImVec2 begin = ImGui::GetCursorScreenPos();
  ImGui::PushID(label);
  ImGui::SetNextItemWidth(width);
  ImGuiSliderFlags flags = ImGuiSliderFlags_AlwaysClamp | ImGuiSliderFlags_NoRoundToFormat;
  if (range.logarithmic) flags |= ImGuiSliderFlags_Logarithmic;
  // The words are drawn below by hand; while it is typed into, ImGui shows the number alone.
  const bool typing = ImGui::TempInputIsActive(ImGui::GetID("##value"));
  // So is the grab, below them: it would stand before what is said at both ends.
  for (const ImGuiCol grab : {ImGuiCol_SliderGrab, ImGuiCol_SliderGrabActive})
    ImGui::PushStyleColor(grab, IM_COL32_BLACK_TRANS);
  const float knob = look.px(8);
  ImGui::PushStyleVar(ImGuiStyleVar_GrabMinSize, knob);
  const double before = value;
  bool changed = ImGui::SliderScalar("##value", ImGuiDataType_Double, &value, &range.low, &range.high,
                                     typing ? "%.6g" : "", flags);
  ImGui::PopStyleVar();
  ImGui::PopStyleColor(2);
  ImGuiStorage* const kept = ImGui::GetStateStorage();
  const ImGuiID first = ImGui::GetID("first"), last = ImGui::GetID("last");
  const auto began = static_cast<double>(*kept->GetFloatRef(first, static_cast<float>(before)));
  if (ImGui::IsItemActivated()) kept->SetFloat(last, static_cast<float>(before));
  const auto ghost = static_cast<double>(kept->GetFloat(last, static_cast<float>(value)));
  if (!typing && ImGui::IsItemHovered() && ImGui::IsMouseDoubleClicked(ImGuiMouseButton_Left)) {
    value = began;
    changed = true;
    ImGui::ClearActiveID();  // or the button that is still down would set it again
  }
  ImGui::PopID();
  if (typing) return changed;
  ImDrawList* list = ImGui::GetWindowDrawList();
  const auto place_of = [&](double number) {
    const double within = std::clamp(number, range.low, range.high);
    const double share = range.logarithmic ? std::log(within / range.low) / std::log(range.high / range.low)
                                           : (within - range.low) / (range.high - range.low);
    return begin.x + knob / 2 + (width - knob) * static_cast<float>(share);
  };
  const float line = look.px(2), bottom = begin.y + height;
  const float at = place_of(value), was = place_of(ghost);
  if (std::abs(was - at) > knob / 2)
    list->AddRectFilled({was - line / 2, bottom - 3 * line}, {was + line / 2, bottom}, c.dim);
  list->AddRectFilled({begin.x + line, bottom - line}, {at, bottom}, with_alpha(c.predicted, 0.5f));
  list->AddRectFilled({at - knob / 2, bottom - 2 * line}, {at + knob / 2, bottom}, c.predicted, line);
  const float pad = look.px(8), middle = begin.y + height / 2;
  const float value_width = text_size_of(look, TextRole::number, shown).x;
  draw_text(list, look, TextRole::caption, {begin.x + pad, middle}, c.dim,
            fitted(look, TextRole::caption, label, width - value_width - 3 * pad), {0, 0.5f});
  draw_text(list, look, TextRole::number, {begin.x + width - pad, middle}, c.text, shown, {1, 0.5f});
  return changed;
}

bool begin_picker(const Look& look, const char* id, std::string_view current, float greatest_width) {
  const float arrow = look.px(24);
  const float padding = ImGui::GetStyle().FramePadding.x;
  const bool fills = std::string_view(id) == "##choice";
  const float wanted = std::ceil(text_size_of(look, TextRole::body, current).x + padding + arrow) + 1;
  const float width = fills ? greatest_width : std::min(wanted, greatest_width);
  ImGui::PushID(id);
  const float height = ImGui::GetFrameHeight();
  ImGui::PushStyleVar(ImGuiStyleVar_ButtonTextAlign, ImVec2(0, 0.5f));
  const std::string shown = fitted(look, TextRole::body, current, width - padding - arrow);
  if (ImGui::Button((shown + "###picker").c_str(), {width, height})) ImGui::OpenPopup("choices");
  ImGui::PopStyleVar();
  const ImVec2 least = ImGui::GetItemRectMin(), most = ImGui::GetItemRectMax();
  draw_arrow(look, {most.x - look.px(12), (least.y + most.y) / 2});
  ImGui::SetNextWindowPos({least.x, most.y + look.px(4)}, ImGuiCond_Appearing);
  ImGui::SetNextWindowSizeConstraints({width, 0}, {FLT_MAX, look.px(440)});
  if (ImGui::BeginPopup("choices")) return true;
  ImGui::PopID();
  return false;
}

void end_picker() {
  ImGui::EndPopup();
  ImGui::PopID();
}

bool primary_button(const Look& look, const char* label, ImU32 color, ImVec2 size) {
  const Palette& c = look.color();
  ImGui::PushStyleColor(ImGuiCol_Button, mix(c.panel, color, 0.22f));
  ImGui::PushStyleColor(ImGuiCol_ButtonHovered, mix(c.panel, color, 0.34f));
  ImGui::PushStyleColor(ImGuiCol_ButtonActive, mix(c.panel, color, 0.45f));
  const bool pressed = ImGui::Button(label, size);
  ImGui::PopStyleColor(3);
  return pressed;
}

}  // namespace app::gui
