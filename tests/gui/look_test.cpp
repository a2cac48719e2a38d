// What makes a picture readable: contrast, units, labels that hide nothing.
#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <span>
#include <vector>

#include "app/gui/panels/plan_limits.h"
#include "app/gui/panels/two_picks.h"
#include "app/gui/theme.h"
#include "app/gui/widgets/numbers.h"
#include "app/gui/widgets/plot.h"
#include "app/gui/widgets/text.h"
#include "tests/gui/null_desktop.h"
#include "tests/support/catch.h"

using namespace app::gui;

namespace {

// WCAG 2.2, "relative luminance" and "contrast ratio".
double luminance(ImU32 color) {
  const ImVec4 c = ImGui::ColorConvertU32ToFloat4(color);
  const auto linear = [](double v) { return v <= 0.04045 ? v / 12.92 : std::pow((v + 0.055) / 1.055, 2.4); };
  return 0.2126 * linear(c.x) + 0.7152 * linear(c.y) + 0.0722 * linear(c.z);
}
double contrast(ImU32 a, ImU32 b) {
  const double x = luminance(a), y = luminance(b);
  return (std::max(x, y) + 0.05) / (std::min(x, y) + 0.05);
}

// By sampling the line densely, where the placer clips it.
bool touches(ImVec2 from, ImVec2 to, ImVec2 least, ImVec2 most) {
  for (int i = 0; i <= 4000; ++i) {
    const float t = static_cast<float>(i) / 4000;
    const float x = from.x + (to.x - from.x) * t, y = from.y + (to.y - from.y) * t;
    if (x > least.x && x < most.x && y > least.y && y < most.y) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("text has the contrast that WCAG asks for: 4.5 (AA), in the theme of high contrast 7 (AAA)") {
  const app::Theme theme = GENERATE(app::Theme::dark, app::Theme::light, app::Theme::high_contrast);
  const double least = theme == app::Theme::high_contrast ? 7 : 4.5;
  const Palette& p = palette(theme);
  CAPTURE(app::name(theme));
  for (const ImU32 text : {p.text, p.dim, p.mute, p.predicted, p.measured, p.good, p.bad, p.warn}) {
    INFO(std::hex << text);
    CHECK(contrast(text, p.panel) >= least);
  }
  // On fields, buttons and the rows that are chosen.
  for (const ImU32 text : {p.text, p.dim}) CHECK(contrast(text, p.raised) >= least);
  CHECK(contrast(p.text, mix(p.raised, p.predicted, 0.28f)) >= least);
  for (const ImU32 category : p.memory) {
    INFO(std::hex << category);
    CHECK(contrast(text_on(category), category) >= 4.5);
  }
}

TEST_CASE("what marks the keyboard's place has the contrast that WCAG asks for, 3, in every theme") {
  const app::Theme theme = GENERATE(app::Theme::dark, app::Theme::light, app::Theme::high_contrast);
  const Palette& p = palette(theme);
  for (const ImU32 ground : {p.panel, p.raised}) CHECK(contrast(p.predicted, ground) >= 3);
}

TEST_CASE(
    "in the theme of high contrast all that is drawn, and borders too, have a contrast of 3 (WCAG 1.4.11)") {
  const Palette& p = palette(app::Theme::high_contrast);
  std::vector<ImU32> drawn = {p.border, p.ceiling, p.predicted, p.measured};
  for (const auto& colors : {std::span<const ImU32>(p.memory), std::span<const ImU32>(p.passes),
                             std::span<const ImU32>(p.parts), std::span<const ImU32>(p.pins)})
    drawn.insert(drawn.end(), colors.begin(), colors.end());
  for (const ImU32 color : drawn) {
    INFO(std::hex << color);
    CHECK(contrast(color, p.panel) >= 3);
  }
}

TEST_CASE("all that a plot shows is in one unit, the largest that its greatest value fills") {
  const double gib = 1024.0 * 1024 * 1024;
  const ScaleUnit unit = byte_unit(80 * gib);
  CHECK(unit.text(80 * gib) == "80.0 GiB");
  CHECK(unit.text(6175 * gib) == "6,175 GiB");
  CHECK(unit.text(0.384 * gib) == "0.38 GiB");
  CHECK(unit.text(1000) == "< 0.01 GiB");
  CHECK(unit.text(0) == "0 GiB");
  CHECK(byte_unit(gib - 1).name == std::string("MiB"));
  CHECK(flop_rate_unit(989e12).name == std::string("TFLOP/s"));
  CHECK(time_unit(0.5).text(0.0123) == "12.3 ms");
}

TEST_CASE("ticks are round, cover their axis and are written with thousands") {
  for (const double tick : round_ticks(-3, 3, 6)) CHECK_FALSE((tick == 0 && std::signbit(tick)));
  CHECK(round_ticks(0, 100, 5) == std::vector<double>{0, 20, 40, 60, 80, 100});
  for (int seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    const double low = std::uniform_real_distribution(-10.0, 10.0)(random) * (seed % 2);
    const double high = low + std::exp(std::uniform_real_distribution(-9.0, 9.0)(random));
    const int wanted = static_cast<int>(random() % 9);
    const std::vector<double> ticks = round_ticks(low, high, wanted);
    CAPTURE(low, high, wanted);
    REQUIRE(ticks.size() >= 2);  // one says nothing of the others
    CHECK(ticks.size() <= std::max(6u, static_cast<unsigned>(wanted) + 1));
    const double slack = 1e-6 * (high - low);
    CHECK((ticks.front() >= low - slack && ticks.back() <= high + slack));
  }
  CHECK(tick_label(1200) == "1,200");
  CHECK(tick_label(12500) == "12,500");
  CHECK(tick_label(2.5e6) == "2.5M");
  CHECK(tick_label(405e9) == "405B");
  CHECK(tick_label(15e12) == "15T");
  CHECK(tick_label(0.5) == "0.5");
}

TEST_CASE("a placed label crosses no line, no dot and no other label, what finds no place is left out") {
  std::mt19937 random(34);
  const auto pixel = [&](float most) { return std::uniform_real_distribution<float>(0, most)(random); };
  int placed = 0, left_out = 0;
  for (int picture = 0; picture < 100; ++picture) {
    const ImVec2 most = {400, 300};
    LabelPlacer placer({0, 0}, most);
    std::vector<std::array<ImVec2, 2>> lines, boxes;
    for (int i = 0; i < 8; ++i) {
      lines.push_back({ImVec2(pixel(400), pixel(300)), ImVec2(pixel(400), pixel(300))});
      placer.block_line(lines.back()[0], lines.back()[1], 1);
    }
    std::vector<ImVec2> centres;
    for (int i = 0; i < 12; ++i) {
      centres.push_back({pixel(400), pixel(300)});
      boxes.push_back(
          {ImVec2(centres[i].x - 4, centres[i].y - 4), ImVec2(centres[i].x + 4, centres[i].y + 4)});
      placer.block(boxes.back()[0], boxes.back()[1]);
    }
    for (const ImVec2 centre : centres) {
      const ImVec2 size = {70, 14};
      ImVec2 at;
      if (!placer.place(centre, 6, size, at)) {
        ++left_out;
        continue;
      }
      ++placed;
      const ImVec2 end = {at.x + size.x, at.y + size.y};
      CHECK((at.x >= 0 && at.y >= 0 && end.x <= most.x && end.y <= most.y));
      for (const auto& line : lines) CHECK_FALSE(touches(line[0], line[1], at, end));
      for (const auto& box : boxes)
        CHECK((end.x <= box[0].x || at.x >= box[1].x || end.y <= box[0].y || at.y >= box[1].y));
      boxes.push_back({at, end});
    }
  }
  CHECK(placed > 300);
  CHECK(left_out > 0);
}

TEST_CASE("a text is as wide as it is measured to be, at every scale") {
  tests::NullDesktop desktop;
  const float scale = GENERATE(1.0f, 1.25f, 1.5f, 2.0f);
  desktop.shell().set_display_scale(scale);
  desktop.frames(2);
  const Look& look = desktop.shell().look();
  ImGui_ImplNull_NewFrame();
  ImGui::NewFrame();
  ImGui::Begin("texts");
  for (const TextRole role : {TextRole::body, TextRole::caption, TextRole::title, TextRole::number})
    for (const char* words : {"356", "1,021 tokens/s", "Cache of a token, a device"}) {
      text(look, role, look.color().text, words);
      CAPTURE(scale, static_cast<int>(role), words);
      // ImGui gives items whole pixels.
      CHECK(std::abs(ImGui::GetItemRectSize().x - text_size_of(look, role, words).x) <= 1);
    }
  ImGui::End();
  ImGui::Render();
}

TEST_CASE("of columns those stay that there is room for, the one that ranks always, in their order") {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> width(20, 120), any_room(-50, 500);
  std::uniform_int_distribution<std::size_t> count(1, 6);
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<float> widths(count(random));
    for (float& w : widths) w = width(random);
    const std::size_t first = std::uniform_int_distribution<std::size_t>(0, widths.size() - 1)(random);
    const float room = any_room(random);
    const std::vector<std::size_t> shown = columns_that_fit(widths, first, room);
    CHECK(std::is_sorted(shown.begin(), shown.end()));
    CHECK(std::count(shown.begin(), shown.end(), first) == 1);
    float taken = 0;
    for (const std::size_t column : shown) taken += widths[column];
    if (shown.size() > 1) CHECK(taken <= room);
    // The next one from the left would be too much.
    for (std::size_t i = 0; i < widths.size(); ++i)
      if (std::count(shown.begin(), shown.end(), i) == 0) {
        CHECK(taken + widths[i] > room);
        break;
      }
  }
}

TEST_CASE("prices of a million tokens have three significant digits, whatever their size") {
  CHECK(dollar_digits(0.0746) == "0.0746");
  CHECK(dollar_digits(0.15) == "0.150");
  CHECK(dollar_digits(2) == "2.00");
  CHECK(dollar_digits(12.44) == "12.4");
  CHECK(dollar_digits(99.96) == "100");
  CHECK(dollar_digits(1234.4) == "1,234");
}
