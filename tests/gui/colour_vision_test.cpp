// Colours that stand beside each other, as eyes see them that lack the pigment for red or for green.
#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "app/gui/theme.h"
#include "tests/support/catch.h"

using namespace app::gui;

namespace {

using Vector = std::array<double, 3>;
using Matrix = std::array<Vector, 3>;

Vector operator*(const Matrix& m, const Vector& v) {
  Vector product{};
  for (std::size_t row = 0; row < 3; ++row)
    for (std::size_t column = 0; column < 3; ++column) product[row] += m[row][column] * v[column];
  return product;
}

// Machado, Oliveira and Fernandes 2009, "A physiologically-based model for simulation of color vision
// deficiency": its matrices of severity 1.0, of linear RGB.
constexpr Matrix kAll = {{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}};
constexpr Matrix kProtanopia = {
    {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}}};
constexpr Matrix kDeuteranopia = {
    {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}}};

// IEC 61966-2-1.
Vector linear_rgb(ImU32 color) {
  const ImVec4 c = ImGui::ColorConvertU32ToFloat4(color);
  const auto linear = [](double v) { return v <= 0.04045 ? v / 12.92 : std::pow((v + 0.055) / 1.055, 2.4); };
  return {linear(c.x), linear(c.y), linear(c.z)};
}

// Ottosson 2020, "A perceptual color space for image processing": OKLab of linear RGB.
Vector oklab(const Vector& rgb) {
  constexpr Matrix kCones = {{{0.4122214708, 0.5363325363, 0.0514459929},
                              {0.2119034982, 0.6806995451, 0.1073969566},
                              {0.0883024619, 0.2817188376, 0.6299787005}}};
  constexpr Matrix kLab = {{{0.2104542553, 0.7936177850, -0.0040720468},
                            {1.9779984951, -2.4285922050, 0.4505937099},
                            {0.0259040371, 0.7827717662, -0.8086757660}}};
  Vector cones = kCones * rgb;
  for (double& cone : cones) cone = std::cbrt(cone);
  return kLab * cones;
}

double distance(ImU32 a, ImU32 b, const Matrix& eyes) {
  const auto seen = [&](ImU32 color) {
    Vector rgb = eyes * linear_rgb(color);
    for (double& channel : rgb) channel = std::clamp(channel, 0.0, 1.0);
    return oklab(rgb);
  };
  const Vector x = seen(a), y = seen(b);
  return std::hypot(x[0] - y[0], x[1] - y[1], x[2] - y[2]);
}

// Three just noticeable differences, each of which is 0.02 (CSS Color Module Level 4, "deltaEOK").
constexpr double kApart = 0.06;

}  // namespace

TEST_CASE("red and green of one lightness look alike to simulated eyes that lack one of their pigments") {
  const ImU32 red = IM_COL32(160, 80, 60, 255), green = IM_COL32(100, 105, 45, 255);
  CHECK(distance(red, green, kAll) > 0.1);
  CHECK(distance(red, green, kDeuteranopia) < kApart);
  // White and black are as far from each other as they were.
  CHECK(distance(IM_COL32_WHITE, IM_COL32_BLACK, kProtanopia) == Approx(1).epsilon(0.01));
}

TEST_CASE("no pass of a step has the colour of a category of memory, of a prediction or of a measurement") {
  const app::Theme theme = GENERATE(app::Theme::dark, app::Theme::light, app::Theme::high_contrast);
  const Palette& p = palette(theme);
  constexpr double kNoticed = 0.02;  // as above
  std::vector<ImU32> others(p.memory.begin(), p.memory.end());
  others.insert(others.end(), {p.predicted, p.measured});
  for (const ImU32 pass : p.passes)
    for (const ImU32 other : others) {
      INFO(std::hex << pass << " and " << other);
      CHECK(distance(pass, other, kAll) > kNoticed);
    }
}

TEST_CASE("colours of one set are told apart in every theme, also with deuteranopia and protanopia") {
  const app::Theme theme = GENERATE(app::Theme::dark, app::Theme::light, app::Theme::high_contrast);
  const Palette& p = palette(theme);
  CAPTURE(app::name(theme));
  std::vector<ImU32> curves = {p.predicted, p.measured};
  curves.insert(curves.end(), p.pins.begin(), p.pins.end());
  const std::vector<ImU32> news = {p.predicted, p.measured, p.good, p.bad, p.warn};
  for (const std::span<const ImU32> set :
       {std::span<const ImU32>(news), std::span<const ImU32>(curves), std::span<const ImU32>(p.memory),
        std::span<const ImU32>(p.passes), std::span<const ImU32>(p.parts)})
    for (std::size_t i = 0; i < set.size(); ++i)
      for (std::size_t k = 0; k < i; ++k) {
        INFO(std::hex << set[i] << " and " << set[k]);
        CHECK(distance(set[i], set[k], kAll) >= kApart);
        CHECK(distance(set[i], set[k], kProtanopia) >= kApart);
        CHECK(distance(set[i], set[k], kDeuteranopia) >= kApart);
      }
}
