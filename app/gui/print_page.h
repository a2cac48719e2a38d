// Pages on paper: an HTML page as PDF.
#pragma once
#include <filesystem>
#include <string>

namespace app {

// By a browser that is installed (chromium, google-chrome and their like), which prints without a window.
// Throws NoDisplay, a sentence, where there is none, and std::runtime_error where it fails.
void print_page(const std::string& html, const std::filesystem::path& pdf);

}  // namespace app
