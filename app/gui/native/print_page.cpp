#include "app/gui/print_page.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <sstream>
#include <stdexcept>

#include "app/gui/desktop.h"
#include "app/gui/jobs/child_process.h"
#include "app/gui/jobs/passed_file.h"

namespace app {
namespace {

// In the folders of PATH; empty: none of them is.
std::filesystem::path installed_browser() {
  constexpr std::array kNames = {"chromium", "chromium-browser", "google-chrome", "google-chrome-stable",
                                 "microsoft-edge"};
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    for (const char* name : kNames)
      if (const auto file = std::filesystem::path(folder) / name; ::access(file.c_str(), X_OK) == 0)
        return file;
  return {};
}

}  // namespace

void print_page(const std::string& html, const std::filesystem::path& pdf) {
  const std::filesystem::path browser = installed_browser();
  if (browser.empty())
    throw NoDisplay(
        "A PDF is printed by Chromium or a browser of its kind, and none is installed: install chromium, or "
        "write "
        "the handout as .html and print that.");
  const gui::PassedFile page("handout.html", html);
  std::vector<std::string> command = {browser.string(), "--headless", "--disable-gpu",
                                      "--no-pdf-header-footer",
                                      "--print-to-pdf=" + std::filesystem::absolute(pdf).string()};
  if (::geteuid() == 0) command.emplace_back("--no-sandbox");  // which it refuses to make for root
  command.push_back("file://" + page.path());
  std::error_code none;
  std::filesystem::remove(pdf, none);
  gui::run_to_end(
      std::move(command), [](std::string_view) {}, [] { return false; });
  if (!std::filesystem::exists(pdf, none))
    throw std::runtime_error(browser.string() + " has printed nothing: can " + pdf.string() + " be written?");
}

}  // namespace app
