#include "app/gui/fonts.h"

#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace app::gui {
namespace {

std::vector<std::filesystem::path> font_directories() {
  std::vector<std::filesystem::path> directories = {
      "/usr/share/fonts/opentype/inter",           // Debian, Ubuntu: fonts-inter
      "/usr/share/fonts/truetype/jetbrains-mono",  // Debian, Ubuntu: fonts-jetbrains-mono
      "/usr/share/fonts/rsms-inter-fonts",         // Fedora
      "/usr/share/fonts/rsms-inter",
      "/usr/share/fonts/jetbrains-mono-fonts",
      "/usr/share/fonts/inter",  // Arch
      "/usr/share/fonts/TTF",
      "/usr/local/share/fonts"};
  if (const char* home = std::getenv("HOME")) {
    directories.emplace_back(std::filesystem::path(home) / ".local/share/fonts");
    directories.emplace_back(std::filesystem::path(home) / ".fonts");
  }
  return directories;
}

ImFont* load(std::initializer_list<std::string_view> file_names) {
  for (const std::string_view name : file_names)
    for (const auto& directory : font_directories()) {
      const auto file = directory / name;
      std::error_code ignored;
      if (!std::filesystem::is_regular_file(file, ignored)) continue;
      ImFontConfig config;
      config.OversampleH = 2;
      if (ImFont* font = ImGui::GetIO().Fonts->AddFontFromFileTTF(file.c_str(), 0, &config)) return font;
    }
  return nullptr;
}

}  // namespace

Fonts load_fonts() {
  Fonts fonts;
  fonts.text = load({"Inter-Regular.otf", "Inter-Regular.ttf", "Inter.ttc", "Inter.ttf"});
  if (!fonts.text) fonts.text = ImGui::GetIO().Fonts->AddFontDefault();
  fonts.strong = load({"Inter-SemiBold.otf", "Inter-SemiBold.ttf"});
  if (!fonts.strong) fonts.strong = fonts.text;
  fonts.mono = load({"JetBrainsMono-Regular.ttf", "JetBrainsMono-Regular.otf", "JetBrainsMono[wght].ttf"});
  if (!fonts.mono) fonts.mono = fonts.text;
  return fonts;
}

}  // namespace app::gui
