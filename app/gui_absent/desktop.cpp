// The desktop of a build without GUI libraries (RIDGEPOINT_GUI=OFF).
#include "app/gui/desktop.h"

namespace app {
namespace {

constexpr const char* kAbsent =
    "This program was built without its window: configure it with -DRIDGEPOINT_GUI=ON.";

}  // namespace

int run_desktop(const DesktopOptions&) {
  throw NoDisplay(kAbsent);
}

std::vector<std::string> panel_names() {
  return {};
}

std::vector<std::string> picture_endings() {
  return {};
}

void write_screenshot(const ScreenshotOptions&, const std::filesystem::path&) {
  throw NoDisplay(kAbsent);
}

}  // namespace app
