// Pictures drawn without a display.
#include <filesystem>
#include <fstream>
#include <iterator>

#include "app/gui/desktop.h"
#include "runtime/error.h"
#include "tests/gui/null_desktop.h"
#include "tests/support/catch.h"

namespace {

std::string bytes_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("a picture drawn twice is the same, byte for byte, and another theme is another picture") {
  const auto file = std::filesystem::temp_directory_path() / "ridgepoint_picture_test.png";
  app::ScreenshotOptions options;
  options.scenario = tests::small_scenario();
  options.width = 640;
  options.height = 400;
  const auto draw = [&] {
    app::write_screenshot(options, file);
    return bytes_of(file);
  };
  std::string first;
  try {
    first = draw();
  } catch (const app::NoDisplay& error) {
    SKIP_WITHOUT("display: " + std::string(error.what()));
  }
  REQUIRE(first.substr(1, 3) == "PNG");
  CHECK(draw() == first);
  options.theme = app::Theme::light;
  CHECK(draw() != first);
  std::filesystem::remove(file);
}

TEST_CASE("a panel that there is not is refused by name, with those that there are") {
  app::ScreenshotOptions options;
  options.panel = "gantt";
  try {
    app::write_screenshot(options, "never_written.png");
    FAIL("it was drawn");
  } catch (const runtime::InputError& error) {
    const std::string message = error.what();
    CHECK(message.find("gantt") != std::string::npos);
    CHECK(message.find("roofline") != std::string::npos);
  }
}
