#include "app/gui/theme.h"

#include <implot.h>

#include <cmath>
#include <iterator>

namespace app::gui {
namespace {

constexpr ImU32 rgb(unsigned hex) {
  return IM_COL32((hex >> 16) & 255, (hex >> 8) & 255, hex & 255, 255);
}

// Colours of one set stay apart for eyes that lack red or green, too: tests/gui/colour_vision_test.cpp.
// parameter, gradient, optimizer, activation, kv_cache, scratch, communication, input, packing, platform,
// copies.
constexpr std::array<ImU32, kMemoryCategories> kMemoryColors = {
    rgb(0x3B78BA), rgb(0xDBB15A), rgb(0xB5759C), rgb(0x36906E), rgb(0x48BCEE), rgb(0x8986CF),
    rgb(0x8FAB7B), rgb(0xC1C1A8), rgb(0x666773), rgb(0x98A3B7), rgb(0xBA883C)};

// forward, backward, backward of weights, recompute, optimizer: hues that no memory category has.
constexpr std::array<ImU32, kPasses> kPassColors = {rgb(0x5C68D8), rgb(0xDC4B72), rgb(0xE9A7A1),
                                                    rgb(0xB59CF0), rgb(0xD6C021)};
// compute, memory, launch, host, network, bubble, slowest, other.
constexpr sim::EnumArray<sim::StepPart, ImU32> kPartColors = {rgb(0x0D78CD), rgb(0x6ECBF6), rgb(0x3BAA46),
                                                              rgb(0xA08BD6), rgb(0xE2888D), rgb(0xEABB17),
                                                              rgb(0xA56301), rgb(0x70809B)};
constexpr std::array<ImU32, kPins> kPinColors = {rgb(0x946DE4), rgb(0x26A8A7), rgb(0xD1466F), rgb(0x7A981B),
                                                 rgb(0xD6746F)};

constexpr Palette kDark = {rgb(0x0E1116), rgb(0x151920), rgb(0x1C222B), rgb(0x272E39), rgb(0xE7ECF2),
                           rgb(0x9CA7B5), rgb(0x7E8A9A), rgb(0x5BA8FF), rgb(0xFFA63D), rgb(0x63C788),
                           rgb(0xFF6D3A), rgb(0xF0CF6B), rgb(0xE7ECF2), kMemoryColors, kPassColors,
                           kPartColors,   kPinColors};
constexpr Palette kLight = {rgb(0xEEF1F5), rgb(0xFFFFFF), rgb(0xF3F5F8), rgb(0xD9DFE7), rgb(0x1B2430),
                            rgb(0x55616F), rgb(0x677281), rgb(0x2166C2), rgb(0xAB5507), rgb(0x356849),
                            rgb(0xA82713), rgb(0x7F7553), rgb(0x1B2430), kMemoryColors, kPassColors,
                            kPartColors,   kPinColors,    false};
// WCAG 2.2, 1.4.6: text, also the faintest, at 7 to 1 or more; 1.4.11: what is drawn, and borders, at 3 or
// more.
constexpr Palette kHighContrast = {rgb(0x000000), rgb(0x000000), rgb(0x1A1A1A), rgb(0x8A8A8A), rgb(0xFFFFFF),
                                   rgb(0xEBEBEB), rgb(0xD0D0D0), rgb(0x6CC4FF), rgb(0xFFB020), rgb(0x51EA8A),
                                   rgb(0xF88E89), rgb(0xE8F59E), rgb(0xFFFFFF), kMemoryColors, kPassColors,
                                   kPartColors,   kPinColors,    true};
constexpr const Palette* kPalettes[] = {&kDark, &kLight, &kHighContrast};
static_assert(std::size(kPalettes) == kThemeNames.size());

float linear(float channel) {
  return channel <= 0.04045f ? channel / 12.92f : std::pow((channel + 0.055f) / 1.055f, 2.4f);
}

ImVec4 vec(ImU32 c) {
  return ImGui::ColorConvertU32ToFloat4(c);
}

ImVec2 operator*(ImVec2 v, float f) {
  return {v.x * f, v.y * f};
}

void apply_imgui_style(const Look& look) {
  const Palette& p = look.color();
  ImGuiStyle style;
  style.WindowPadding = {14, 12};
  style.FramePadding = {8, 5};
  style.ItemSpacing = {8, 7};
  style.ItemInnerSpacing = {6, 4};
  style.CellPadding = {8, 4};
  style.ScrollbarSize = 10;
  style.ScrollbarRounding = 5;
  style.GrabMinSize = 24;
  style.WindowRounding = style.ChildRounding = style.PopupRounding = 8;
  style.FrameRounding = style.GrabRounding = style.TabRounding = 5;
  style.SelectableRounding = style.MenuItemRounding = 5;
  style.WindowBorderSize = style.PopupBorderSize = style.ChildBorderSize = 1;
  style.FrameBorderSize = 0;
  style.TabBarBorderSize = 0;
  style.TabCloseButtonMinWidthSelected = 0;  // under the pointer only
  style.DockingNodeHasCloseButton = false;
  style.TabBarOverlineSize = 0;
  style.DockingSeparatorSize = 8;
  style.WindowMenuButtonPosition = ImGuiDir_Right;
  style.SeparatorTextBorderSize = 1;
  style.HoverDelayShort = 0.1f;
  style.ScaleAllSizes(look.scale);
  style.FontSizeBase = text_size::body;
  style.FontScaleMain = look.scale;
  // One crisp pixel at every scale below two.
  style.WindowBorderSize = style.PopupBorderSize = style.ChildBorderSize =
      std::floor(std::max(1.0f, look.scale));

  const auto set = [&style](ImGuiCol slot, ImU32 color) { style.Colors[slot] = vec(color); };
  for (int slot = 0; slot < ImGuiCol_COUNT; ++slot) set(slot, p.raised);
  const ImU32 clear = with_alpha(p.panel, 0);
  const ImU32 hovered = mix(p.raised, p.text, 0.08f);
  const ImU32 active = mix(p.raised, p.predicted, 0.25f);
  set(ImGuiCol_Text, p.text);
  set(ImGuiCol_TextDisabled, p.mute);
  set(ImGuiCol_WindowBg, p.panel);
  set(ImGuiCol_ChildBg, clear);
  set(ImGuiCol_PopupBg, p.is_dark ? mix(p.panel, p.raised, 0.6f) : p.panel);
  set(ImGuiCol_Border, p.border);
  set(ImGuiCol_BorderShadow, clear);
  set(ImGuiCol_FrameBgHovered, hovered);
  set(ImGuiCol_FrameBgActive, hovered);
  for (const ImGuiCol slot :
       {ImGuiCol_TitleBg, ImGuiCol_TitleBgActive, ImGuiCol_TitleBgCollapsed, ImGuiCol_ScrollbarBg,
        ImGuiCol_DockingEmptyBg, ImGuiCol_Tab, ImGuiCol_TabDimmed, ImGuiCol_TabSelectedOverline,
        ImGuiCol_TabDimmedSelectedOverline, ImGuiCol_TableRowBg, ImGuiCol_TableRowBgAlt,
        ImGuiCol_TableHeaderBg, ImGuiCol_ResizeGrip, ImGuiCol_CheckboxSelectedBg})
    set(slot, clear);
  set(ImGuiCol_TabHovered, hovered);
  // As a chosen segment of a switch.
  set(ImGuiCol_TabSelected, mix(p.raised, p.predicted, 0.28f));
  set(ImGuiCol_TabDimmedSelected, mix(p.raised, p.predicted, 0.28f));
  set(ImGuiCol_ScrollbarGrab, p.border);
  set(ImGuiCol_ScrollbarGrabHovered, p.mute);
  set(ImGuiCol_ScrollbarGrabActive, p.mute);
  set(ImGuiCol_CheckMark, p.predicted);
  set(ImGuiCol_SliderGrab, p.predicted);
  set(ImGuiCol_SliderGrabActive, p.predicted);
  set(ImGuiCol_ButtonHovered, hovered);
  set(ImGuiCol_ButtonActive, active);
  set(ImGuiCol_Header, active);
  set(ImGuiCol_HeaderHovered, hovered);
  set(ImGuiCol_HeaderActive, active);
  set(ImGuiCol_Separator, clear);  // between docked cards: the gap itself
  set(ImGuiCol_SeparatorHovered, with_alpha(p.predicted, 0.35f));
  set(ImGuiCol_SeparatorActive, with_alpha(p.predicted, 0.6f));
  set(ImGuiCol_ResizeGripHovered, with_alpha(p.predicted, 0.35f));
  set(ImGuiCol_ResizeGripActive, with_alpha(p.predicted, 0.6f));
  set(ImGuiCol_InputTextCursor, p.text);
  set(ImGuiCol_DockingPreview, with_alpha(p.predicted, 0.35f));
  set(ImGuiCol_TableBorderStrong, p.border);
  set(ImGuiCol_TableBorderLight, p.border);
  set(ImGuiCol_TextLink, p.predicted);
  set(ImGuiCol_TextSelectedBg, with_alpha(p.predicted, 0.35f));
  set(ImGuiCol_NavCursor, p.predicted);
  set(ImGuiCol_ModalWindowDimBg, with_alpha(p.background, 0.6f));
  set(ImGuiCol_NavWindowingDimBg, with_alpha(p.background, 0.6f));
  ImGui::GetStyle() = style;
}

void apply_implot_style(const Look& look) {
  const Palette& p = look.color();
  ImPlotStyle style;
  style.PlotBorderSize = 0;
  style.MinorAlpha = 1;  // ticks that a panel sets itself count as minor
  style.MajorTickLen = style.MinorTickLen = {0, 0};
  style.MajorTickSize = style.MinorTickSize = {0, 0};
  style.MajorGridSize = style.MinorGridSize = ImVec2(1, 1) * std::max(1.0f, std::floor(look.scale));
  style.PlotPadding = ImVec2(11, 4) * look.scale;
  style.LabelPadding = ImVec2(5, 4) * look.scale;
  style.AnnotationPadding = ImVec2(4, 2) * look.scale;
  style.PlotMinSize = ImVec2(60, 40) * look.scale;
  style.PlotDefaultSize = ImVec2(200, 120) * look.scale;
  style.Colors[ImPlotCol_FrameBg] = {0, 0, 0, 0};
  style.Colors[ImPlotCol_PlotBg] = vec(with_alpha(p.raised, p.is_dark ? 0.45f : 0.6f));
  style.Colors[ImPlotCol_PlotBorder] = vec(p.border);
  style.Colors[ImPlotCol_AxisText] = vec(p.dim);
  style.Colors[ImPlotCol_AxisGrid] = vec(p.grid);
  style.Colors[ImPlotCol_AxisTick] = vec(p.border);
  style.Colors[ImPlotCol_AxisBg] = {0, 0, 0, 0};
  style.Colors[ImPlotCol_AxisBgHovered] = vec(with_alpha(p.text, 0.05f));
  style.Colors[ImPlotCol_AxisBgActive] = vec(with_alpha(p.text, 0.1f));
  style.Colors[ImPlotCol_InlayText] = vec(p.dim);
  style.Colors[ImPlotCol_Crosshairs] = vec(with_alpha(p.text, 0.4f));
  style.Colors[ImPlotCol_Selection] = vec(p.predicted);
  ImPlot::GetStyle() = style;
}

}  // namespace

const Palette& palette(Theme theme) {
  return *kPalettes[static_cast<std::size_t>(theme)];
}

ImU32 with_alpha(ImU32 color, float alpha) {
  return (color & ~IM_COL32_A_MASK) | (static_cast<ImU32>(alpha * 255.0f + 0.5f) << IM_COL32_A_SHIFT);
}

ImU32 mix(ImU32 a, ImU32 b, float share_of_b) {
  const ImVec4 x = vec(a), y = vec(b);
  const auto blend = [share_of_b](float u, float v) { return u + (v - u) * share_of_b; };
  return ImGui::ColorConvertFloat4ToU32({blend(x.x, y.x), blend(x.y, y.y), blend(x.z, y.z), blend(x.w, y.w)});
}

ImU32 text_on(ImU32 background) {
  const ImVec4 c = vec(background);
  const float luminance = 0.2126f * linear(c.x) + 0.7152f * linear(c.y) + 0.0722f * linear(c.z);
  const float contrast_with_white = 1.05f / (luminance + 0.05f);
  const float contrast_with_black = (luminance + 0.05f) / 0.05f;
  return contrast_with_black > contrast_with_white ? rgb(0x0E1116) : rgb(0xFFFFFF);
}

int memory_category(std::string_view name) {
  for (int c = 0; c < sim::kBufferClasses; ++c)
    if (name == sim::name(static_cast<sim::BufferClass>(c))) return c;
  if (name == "packing" || name == "allocator") return kPackingCategory;
  if (name.starts_with("platform") || name == "context") return kPlatformCategory;
  if (name == "copies") return kCopiesCategory;
  return -1;
}

std::string_view memory_category_title(int category) {
  static constexpr std::array<std::string_view, kMemoryCategories> titles = {
      "parameters",    "gradients", "optimizer", "activations", "KV cache", "scratch",
      "communication", "input",     "allocator", "platform",    "copies"};
  return titles[static_cast<std::size_t>(category)];
}

void apply_style(const Look& look) {
  apply_imgui_style(look);
  apply_implot_style(look);
}

}  // namespace app::gui
