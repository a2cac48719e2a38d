// The text of a frame as it is drawn: what is cut off at a side, and what lies on other text. Read from the
// draw lists, whoever wrote it.
#pragma once
#include <imgui.h>
#include <imgui_internal.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace tests {

struct DrawnGlyph {
  ImVec2 least, most;  // pixels, before anything clips it
  ImVec4 clip;
  ImVec4 texture;
  ImWchar character = 0;  // 0: part of a glyph that ImGui has cut
  const ImGuiWindow* window = nullptr;

  float cut_at_sides() const { return std::max({clip.x - least.x, most.x - clip.z, 0.0f}); }
  float cut_at_ends() const { return std::max({clip.y - least.y, most.y - clip.w, 0.0f}); }
  bool is_seen() const {
    return least.x < clip.z - 1 && most.x > clip.x + 1 && least.y < clip.w - 1 && most.y > clip.y + 1;
  }
};

// In the order in which they are drawn. Valid between a frame's end and the next frame.
inline std::vector<DrawnGlyph> drawn_glyphs() {
  using Corner = std::tuple<float, float, float, float>;
  std::map<Corner, ImWchar> characters;
  auto& baked = ImGui::GetIO().Fonts->Builder->BakedPool;
  for (int i = 0; i < baked.Size; ++i)
    for (const ImFontGlyph& glyph : baked[i].Glyphs)
      characters[{glyph.U0, glyph.V0, glyph.U1, glyph.V1}] = static_cast<ImWchar>(glyph.Codepoint);
  std::map<const ImDrawList*, const ImGuiWindow*> windows;
  for (const ImGuiWindow* window : GImGui->Windows) windows[window->DrawList] = window;
  std::vector<DrawnGlyph> glyphs;
  const ImDrawData* data = ImGui::GetDrawData();
  for (const ImDrawList* list : data->CmdLists) {
    const auto window = windows.find(list);
    for (const ImDrawCmd& command : list->CmdBuffer) {
      const ImDrawIdx* at = list->IdxBuffer.Data + command.IdxOffset;
      for (unsigned i = 0; i + 6 <= command.ElemCount;) {
        const ImDrawIdx first = at[i];
        const bool is_quad = at[i + 1] == first + 1 && at[i + 2] == first + 2 && at[i + 3] == first &&
                             at[i + 4] == first + 2 && at[i + 5] == first + 3;
        if (!is_quad) {
          i += 3;
          continue;
        }
        const ImDrawVert* corner = list->VtxBuffer.Data + command.VtxOffset + first;
        const ImVec4 texture = {corner[0].uv.x, corner[0].uv.y, corner[2].uv.x, corner[2].uv.y};
        i += 6;
        // Lines and fills are of one texel, or of one row of texels.
        if (texture.x == texture.z || texture.y == texture.w) continue;
        DrawnGlyph glyph;
        glyph.least = ImMin(corner[0].pos, corner[2].pos);
        glyph.most = ImMax(corner[0].pos, corner[2].pos);
        glyph.clip = command.ClipRect;
        glyph.texture = texture;
        const auto character = characters.find({texture.x, texture.y, texture.z, texture.w});
        if (character != characters.end()) glyph.character = character->second;
        glyph.window = window == windows.end() ? nullptr : window->second;
        if ((corner[0].col >> IM_COL32_A_SHIFT) > 0 && glyph.is_seen()) glyphs.push_back(glyph);
      }
    }
  }
  return glyphs;
}

// A glyph with those that are drawn around it, for a test's message.
inline std::string words_around(const std::vector<DrawnGlyph>& glyphs, std::size_t i) {
  std::string words;
  for (std::size_t k = i > 12 ? i - 12 : 0; k < std::min(glyphs.size(), i + 13); ++k) {
    const ImWchar c = glyphs[k].character;
    const bool gap =
        k > 0 && (glyphs[k].least.x - glyphs[k - 1].most.x > 3 || glyphs[k].most.y < glyphs[k - 1].least.y);
    if (gap) words += ' ';
    if (k == i) words += '[';
    words += c == 0 ? '?' : c < 128 ? static_cast<char>(c) : '#';
    if (k == i) words += ']';
  }
  return words + (glyphs[i].window ? " in " + std::string(glyphs[i].window->Name) : "") + " at " +
         std::to_string(static_cast<int>(glyphs[i].least.x)) + ", " +
         std::to_string(static_cast<int>(glyphs[i].least.y));
}

// The first glyph of words as they are drawn, spaces left out; null where no frame has them.
inline const DrawnGlyph* drawn_at(const std::vector<DrawnGlyph>& glyphs, std::string_view words) {
  std::string all, wanted;
  for (const DrawnGlyph& glyph : glyphs)
    all += glyph.character > 0 && glyph.character < 128 ? static_cast<char>(glyph.character) : '?';
  std::copy_if(words.begin(), words.end(), std::back_inserter(wanted), [](char c) { return c != ' '; });
  const auto at = all.find(wanted);
  return at == std::string::npos ? nullptr : &glyphs[at];
}

// What a reader cannot read: glyphs cut at a side (or above and below, where nothing scrolls), and glyphs
// that lie on others. A sentence each, of one word one.
inline std::vector<std::string> unreadable_text() {
  const std::vector<DrawnGlyph> glyphs = drawn_glyphs();
  std::vector<std::string> found;
  constexpr float kPixel = 1.01f;
  std::size_t last = glyphs.size();
  const auto report = [&](const char* what, std::size_t i) {
    if (last < glyphs.size() && i - last < 4) {
      last = i;
      return;
    }
    last = i;
    found.push_back(std::string(what) + ": " + words_around(glyphs, i));
  };
  for (std::size_t i = 0; i < glyphs.size(); ++i) {
    const DrawnGlyph& glyph = glyphs[i];
    const bool scrolls = glyph.window && glyph.window->ScrollMax.y > 0;
    // A row of tabs that scrolls shows where it goes on.
    if (glyph.window && std::string_view(glyph.window->Name).find("DockSpace") != std::string_view::npos)
      continue;
    if (glyph.cut_at_sides() > kPixel || (glyph.cut_at_ends() > kPixel && !scrolls) || glyph.character == 0)
      report("cut", i);
  }
  // Buckets of 32 pixels; a glyph is smaller than that or stands in several.
  std::map<std::pair<int, int>, std::vector<std::size_t>> buckets;
  constexpr float kBucket = 32;
  last = glyphs.size();
  for (std::size_t i = 0; i < glyphs.size(); ++i) {
    const DrawnGlyph& a = glyphs[i];
    bool overlaps = false;
    for (int x = static_cast<int>(a.least.x / kBucket); x <= static_cast<int>(a.most.x / kBucket); ++x)
      for (int y = static_cast<int>(a.least.y / kBucket); y <= static_cast<int>(a.most.y / kBucket); ++y) {
        auto& bucket = buckets[{x, y}];
        for (const std::size_t k : bucket) {
          const DrawnGlyph& b = glyphs[k];
          const float width = std::min({a.most.x, b.most.x, a.clip.z, b.clip.z}) -
                              std::max({a.least.x, b.least.x, a.clip.x, b.clip.x});
          const float height = std::min({a.most.y, b.most.y, a.clip.w, b.clip.w}) -
                               std::max({a.least.y, b.least.y, a.clip.y, b.clip.y});
          if (width <= 0 || height <= 0) continue;
          const auto area = [](const DrawnGlyph& g) {
            return (g.most.x - g.least.x) * (g.most.y - g.least.y);
          };
          // Neighbours in a word may touch.
          if (width * height > 0.25f * std::min(area(a), area(b))) overlaps = true;
        }
        bucket.push_back(i);
      }
    if (overlaps) report("on other text", i);
  }
  return found;
}

}  // namespace tests
