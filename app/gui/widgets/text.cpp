#include "app/gui/widgets/text.h"

#include <imgui_internal.h>

#include <algorithm>
#include <cmath>

namespace app::gui {
namespace {

struct RoleFont {
  ImFont* font;
  float size;
};

RoleFont font_of(const Look& look, TextRole role) {
  switch (role) {
    case TextRole::body:
      return {look.fonts.text, text_size::body};
    case TextRole::caption:
      return {look.fonts.text, look.presented ? text_size::body : text_size::caption};
    case TextRole::title:
      return {look.fonts.strong, text_size::title};
    case TextRole::heading:
      return {look.fonts.strong, text_size::heading};
    case TextRole::tile:
      return {look.fonts.strong, text_size::tile};
    case TextRole::number:
      return {look.fonts.mono, look.presented ? text_size::number_as_body : text_size::number};
  }
  return {look.fonts.text, text_size::body};
}

// As ImGui draws text: at whole pixels. What measures or draws beside it must not differ.
float pixels_of(const RoleFont& font, const Look& look) {
  return std::round(font.size * look.scale);
}

const char* end_of(std::string_view words) {
  return words.data() + words.size();
}

}  // namespace

TextScope::TextScope(const Look& look, TextRole role) {
  const RoleFont font = font_of(look, role);
  ImGui::PushFont(font.font, font.size);
}

TextScope::~TextScope() {
  ImGui::PopFont();
}

ImVec2 text_size_of(const Look& look, TextRole role, std::string_view words) {
  const RoleFont font = font_of(look, role);
  return font.font->CalcTextSizeA(pixels_of(font, look), FLT_MAX, 0, words.data(), end_of(words));
}

void text(const Look& look, TextRole role, ImU32 color, std::string_view words) {
  const TextScope scope(look, role);
  ImGui::PushStyleColor(ImGuiCol_Text, color);
  ImGui::TextUnformatted(words.data(), end_of(words));
  ImGui::PopStyleColor();
}

void text_wrapped(const Look& look, TextRole role, ImU32 color, std::string_view words) {
  ImGui::PushTextWrapPos(0);
  text(look, role, color, words);
  ImGui::PopTextWrapPos();
}

void text_right(const Look& look, TextRole role, ImU32 color, std::string_view words) {
  const float width = text_size_of(look, role, words).x;
  const float free = std::floor(ImGui::GetContentRegionAvail().x - width - 1);
  if (free > 0) ImGui::SetCursorPosX(ImGui::GetCursorPosX() + free);
  text(look, role, color, words);
}

std::string fitted(const Look& look, TextRole role, std::string_view words, float width) {
  const RoleFont font = font_of(look, role);
  const float size = pixels_of(font, look);
  constexpr std::string_view ellipsis = "\u2026";
  const auto width_of = [&](std::string_view part) {
    return font.font->CalcTextSizeA(size, FLT_MAX, 0, part.data(), end_of(part)).x;
  };
  if (width_of(words) <= width) return std::string(words);
  // Measured once: where the room for words ends. From there the last whole characters go until both fit.
  const char* end = words.data();
  font.font->CalcTextSizeA(size, std::max(0.0f, width - width_of(ellipsis) + 1), 0, words.data(),
                           end_of(words), &end);
  std::string shorter(words.data(), end);
  while (!shorter.empty()) {
    const std::string candidate = shorter + std::string(ellipsis);
    if (shorter.size() < words.size() && width_of(candidate) <= width) return candidate;
    // Whole UTF-8 characters.
    while (!shorter.empty() && (static_cast<unsigned char>(shorter.back()) & 0xC0) == 0x80)
      shorter.pop_back();
    if (!shorter.empty()) shorter.pop_back();
  }
  return "";
}

std::string fitted_name(const Look& look, TextRole role, std::string_view name, float width) {
  constexpr std::string_view kEllipsis = "\u2026";
  if (text_size_of(look, role, name).x <= width) return std::string(name);
  // As many characters of the end as of the beginning, whole UTF-8 characters of each.
  const auto is_inside = [&](std::size_t at) {
    return at < name.size() && (static_cast<unsigned char>(name[at]) & 0xC0) == 0x80;
  };
  for (std::size_t kept = name.size() / 2; kept > 0; --kept) {
    std::size_t first = kept, last = name.size() - kept;
    while (is_inside(first)) --first;
    while (is_inside(last)) ++last;
    std::string shorter = std::string(name.substr(0, first)) + std::string(kEllipsis);
    shorter += name.substr(last);
    if (text_size_of(look, role, shorter).x <= width) return shorter;
  }
  return "";
}

void text_fitted(const Look& look, TextRole role, ImU32 color, std::string_view words, float width) {
  const std::string shown = fitted(look, role, words, width);
  text(look, role, color, shown);
  if (shown != words && ImGui::IsItemHovered())
    ImGui::SetTooltip("%.*s", static_cast<int>(words.size()), words.data());
}

float whole_lines(const Look& look, TextRole role, float height) {
  const float line = pixels_of(font_of(look, role), look);
  return line * std::max(1.0f, std::floor(height / line));
}

void draw_text(ImDrawList* list, const Look& look, TextRole role, ImVec2 position, ImU32 color,
               std::string_view words, ImVec2 align) {
  const RoleFont font = font_of(look, role);
  const float size = pixels_of(font, look);
  if (align.x != 0 || align.y != 0) {
    const ImVec2 extent = font.font->CalcTextSizeA(size, FLT_MAX, 0, words.data(), end_of(words));
    position.x -= extent.x * align.x;
    position.y -= extent.y * align.y;
  }
  position = {static_cast<float>(static_cast<int>(position.x + 0.5f)),
              static_cast<float>(static_cast<int>(position.y + 0.5f))};
  list->AddText(font.font, size, position, color, words.data(), end_of(words));
  // As Dear ImGui does with its own text, so that a log of a frame has all its words.
  if (GImGui->LogEnabled) ImGui::LogRenderedText(nullptr, words.data(), end_of(words));
}

ValueAndUnit split_unit(std::string_view words) {
  const std::size_t space = words.rfind(' ');
  if (space == std::string_view::npos) return {std::string(words), ""};
  return {std::string(words.substr(0, space)), std::string(words.substr(space + 1))};
}

std::string unbroken(std::string_view words) {
  std::string result;
  for (const char c : words) result.append(c == ' ' ? std::string("\u00a0") : std::string(1, c));
  return result;
}

std::vector<bool> columns_beside(float least_first, std::span<const Droppable> others, float room) {
  std::vector<bool> shown(others.size(), true);
  const auto taken = [&] {
    float sum = least_first;
    for (std::size_t i = 0; i < others.size(); ++i)
      if (shown[i]) sum += others[i].width;
    return sum;
  };
  while (taken() > room) {
    std::size_t next = others.size();
    for (std::size_t i = 0; i < others.size(); ++i)
      if (shown[i] && (next == others.size() || others[i].rank < others[next].rank)) next = i;
    if (next == others.size()) break;
    shown[next] = false;
  }
  return shown;
}

void badge(const Look& look, ImU32 color, std::string_view words) {
  const ImVec2 size = text_size_of(look, TextRole::caption, words);
  const ImVec2 padding = {look.px(7), look.px(2)};
  const ImVec2 begin = ImGui::GetCursorScreenPos();
  const ImVec2 end = {begin.x + size.x + 2 * padding.x, begin.y + size.y + 2 * padding.y};
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->AddRectFilled(begin, end, with_alpha(color, 0.18f), look.px(4));
  draw_text(list, look, TextRole::caption, {begin.x + padding.x, begin.y + padding.y}, color, words);
  ImGui::Dummy({end.x - begin.x, end.y - begin.y});
}

void draw_panel_title(const Look& look, std::string_view title, std::string_view caption, bool with_title) {
  const ImVec2 begin = ImGui::GetCursorScreenPos();
  const float width = ImGui::GetContentRegionAvail().x;
  const float line = text_size_of(look, TextRole::title, title).y;
  ImDrawList* list = ImGui::GetWindowDrawList();
  float used = 0;
  if (with_title) {
    draw_text(list, look, TextRole::title, begin, look.color().text, title);
    used = text_size_of(look, TextRole::title, title).x + look.px(16);
  }
  const std::string shown = fitted(look, TextRole::caption, caption, width - used);
  draw_text(list, look, TextRole::caption, {begin.x + width, begin.y + line / 2}, look.color().mute, shown,
            {1, 0.5f});
  ImGui::Dummy({width, line + look.px(2)});
}

}  // namespace app::gui
