// The desktop beside pictures of it that were looked at: tests/gui/golden, a pixel for 40 by 40 of its own,
// so that letters may be drawn otherwise, and nothing may move, vanish or change its colour. With
// RIDGEPOINT_WRITE_GOLDENS set they are written anew: look at them before they are committed.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "app/gui/desktop.h"
#include "sim/scenario/preset.h"
#include "source_folder.h"
#include "tests/support/catch.h"

namespace {

constexpr int kCell = 40;
// More than this, of 255, a reader sees; of so many cells a number more or less is part.
constexpr int kSeen = 10;
constexpr double kFewCells = 0.02;

struct Thumbnail {
  int width = 0, height = 0;
  std::vector<std::uint8_t> rgb;  // rows from the top
};

Thumbnail thumbnail_of(const app::ScreenshotOptions& options) {
  const std::vector<std::uint8_t> pixels = app::screenshot_pixels(options);
  Thumbnail small{options.width / kCell, options.height / kCell, {}};
  for (int row = 0; row < small.height; ++row)
    for (int column = 0; column < small.width; ++column)
      for (int channel = 0; channel < 3; ++channel) {
        int sum = 0;
        for (int y = row * kCell; y < (row + 1) * kCell; ++y)
          for (int x = column * kCell; x < (column + 1) * kCell; ++x)
            sum += pixels[static_cast<std::size_t>((y * options.width + x) * 4 + channel)];
        small.rgb.push_back(static_cast<std::uint8_t>(sum / (kCell * kCell)));
      }
  return small;
}

std::string header_of(const Thumbnail& picture) {
  return "P6\n" + std::to_string(picture.width) + " " + std::to_string(picture.height) + "\n255\n";
}

// Empty where the file is not of this size.
std::vector<std::uint8_t> read_golden(const std::filesystem::path& file, const std::string& header) {
  std::ifstream in(file, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (!bytes.starts_with(header)) return {};
  return {bytes.begin() + static_cast<std::ptrdiff_t>(header.size()), bytes.end()};
}

// The share of all cells whose colour differs.
double share_that_differs(const std::vector<std::uint8_t>& a, const std::vector<std::uint8_t>& b) {
  double cells = 0;
  for (std::size_t i = 0; i + 2 < a.size(); i += 3) {
    int most = 0;
    for (std::size_t k = i; k < i + 3; ++k) most = std::max(most, std::abs(int{a[k]} - int{b[k]}));
    cells += most > kSeen;
  }
  return cells / (static_cast<double>(a.size()) / 3);
}

}  // namespace

TEST_CASE("the desktop looks as the pictures of it that were approved, in three themes at three sizes") {
  const app::Theme theme = GENERATE(app::Theme::dark, app::Theme::light, app::Theme::high_contrast);
  const auto [width, height] = GENERATE(std::pair(1280, 720), std::pair(1920, 1080), std::pair(2560, 1440));
  app::ScreenshotOptions options;
  options.scenario = sim::load_scenario_preset("train-llama-3.1-8b-8-h100");
  options.theme = theme;
  options.width = width;
  options.height = height;
  Thumbnail now;
  try {
    now = thumbnail_of(options);
  } catch (const app::NoDisplay& error) {
    SKIP_WITHOUT("display: " + std::string(error.what()));
  }
  const std::string name =
      std::string(app::name(theme)) + "_" + std::to_string(width) + "x" + std::to_string(height) + ".ppm";
  const auto folder = std::filesystem::path(RIDGEPOINT_SOURCE_DIR) / "tests/gui/golden";
  const auto write = [&](const std::filesystem::path& file) {
    std::ofstream out(file, std::ios::binary);
    out << header_of(now);
    out.write(reinterpret_cast<const char*>(now.rgb.data()), static_cast<std::streamsize>(now.rgb.size()));
  };
  if (std::getenv("RIDGEPOINT_WRITE_GOLDENS")) write(folder / name);
  const std::vector<std::uint8_t> golden = read_golden(folder / name, header_of(now));
  REQUIRE(golden.size() == now.rgb.size());
  const double differs = share_that_differs(now.rgb, golden);
  const auto seen = std::filesystem::temp_directory_path() / ("ridgepoint_golden_" + name);
  if (differs > kFewCells) write(seen);
  INFO(100 * differs << " % of " << name << " differs; what was drawn: " << seen.string());
  CHECK(differs <= kFewCells);
}

TEST_CASE("a missing panel or another theme is found beside an approved picture") {
  app::ScreenshotOptions options;
  options.scenario = sim::load_scenario_preset("train-llama-3.1-8b-8-h100");
  options.width = 1280;
  options.height = 720;
  try {
    const Thumbnail whole = thumbnail_of(options);
    options.panel = "memory";
    CHECK(share_that_differs(whole.rgb, thumbnail_of(options).rgb) > kFewCells);
    options.panel = "";
    options.scenario.workload.task = sim::Task::generate;
    CHECK(share_that_differs(whole.rgb, thumbnail_of(options).rgb) > kFewCells);
    options.scenario.workload.task = sim::Task::train;
    options.theme = app::Theme::high_contrast;
    CHECK(share_that_differs(whole.rgb, thumbnail_of(options).rgb) > kFewCells);
  } catch (const app::NoDisplay& error) {
    SKIP_WITHOUT("display: " + std::string(error.what()));
  }
}
