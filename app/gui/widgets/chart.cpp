#include "app/gui/widgets/chart.h"

#include <algorithm>
#include <cmath>

#include "app/gui/widgets/text.h"

namespace app::gui {
namespace {

constexpr double kMargin = 1.06;                     // of an axis beyond what is shown
constexpr int kMostTicks = 12;                       // that are tried, to have two
constexpr float kBetweenTicks = 90;                  // points, of the axis below
constexpr float kLeftOfPlot = 70, kRightOfPlot = 8;  // points, at least

}  // namespace

ChartAxis linear_axis(std::string label, double greatest, ScaleUnit unit) {
  return {std::move(label), 0, greatest > 0 ? greatest * kMargin : 1, false, unit};
}

ChartAxis near_axis(std::string label, double least, double greatest, ScaleUnit unit) {
  const double margin = greatest > least ? (greatest - least) * (kMargin - 1) : 1;
  return {std::move(label), least - margin, greatest + margin, false, unit};
}

ChartAxis logarithmic_axis(std::string label, double least, double greatest, ScaleUnit unit) {
  if (!(least > 0) || !(greatest >= least)) return {std::move(label), 1, 10, true, unit};
  const double margin = std::max(1.1, std::pow(greatest / least, 0.06));
  return {std::move(label), least / margin, greatest * margin, true, unit};
}

Chart::Chart(const Look& look, const char* id, ImVec2 size, ChartAxis x, ChartAxis y)
    : look_(look), x_(std::move(x)), y_(std::move(y)) {
  const TextScope axes(look, TextRole::caption);
  const float least = look.px(60);
  open_ = size.x > least && size.y > least &&
          ImPlot::BeginPlot(id, size, ImPlotFlags_CanvasOnly | ImPlotFlags_NoFrame | ImPlotFlags_NoInputs);
  if (!open_) return;
  name_axes(look, x_.label, y_.label, size);
  set_up(ImAxis_X1, x_, size.x / look.px(kBetweenTicks));
  set_up(ImAxis_Y1, y_, size.y / look.px(44));
  ImPlot::SetupFinish();
  list_ = ImPlot::GetPlotDrawList();
  least_ = ImPlot::GetPlotPos();
  most_ = {least_.x + ImPlot::GetPlotSize().x, least_.y + ImPlot::GetPlotSize().y};
  ImPlot::PushPlotClipRect();
}

void Chart::set_up(ImAxis axis, const ChartAxis& of, float wanted) {
  if (of.logarithmic) ImPlot::SetupAxisScale(axis, ImPlotScale_Log10);
  ImPlot::SetupAxisLimits(axis, of.low, of.high, ImPlotCond_Always);
  label_axis(axis, of.unit);
  const double low = of.low / of.unit.size, high = of.high / of.unit.size;
  const int count = std::max(2, static_cast<int>(wanted));
  std::vector<double> places =
      of.logarithmic ? decade_ticks(low, high, count) : round_ticks(low, high, count);
  // Within a decade there may be none, and of a low plot the first alone: one says nothing of the others.
  const auto seen = [&](double place) { return place >= low && place <= high; };
  for (int more = count; std::ranges::count_if(places, seen) < 2 && more <= kMostTicks; ++more)
    places = round_ticks(low, high, more);
  // What is written below a tick near the right end would be cut off.
  const float width = wanted * look_.px(kBetweenTicks) - look_.px(kLeftOfPlot);
  const auto share = [&](double place) {
    return of.logarithmic ? std::log(place / low) / std::log(high / low) : (place - low) / (high - low);
  };
  if (axis == ImAxis_X1)
    std::erase_if(places, [&](double place) {
      const float half = text_size_of(look_, TextRole::caption, tick_label(place)).x / 2;
      return seen(place) && static_cast<float>(1 - share(place)) * width + look_.px(kRightOfPlot) < half;
    });
  for (double& place : places) place *= of.unit.size;
  if (!places.empty()) ImPlot::SetupAxisTicks(axis, places.data(), static_cast<int>(places.size()));
}

Chart::~Chart() {
  if (!open_) return;
  const float edge = look_.px(4);
  LabelPlacer placer({least_.x + edge, least_.y + look_.px(2)}, {most_.x - edge, most_.y - look_.px(2)});
  for (const auto& [from, to] : lines_) placer.block_line(from, to, look_.px(1.5f));
  for (const auto& [dot, r] : dots_) placer.block({dot.x - r, dot.y - r}, {dot.x + r, dot.y + r});
  constexpr float kFar = 20;  // a name that is farther off is tied to what it names
  for (const Name& name : names_) {
    const ImVec2 size = text_size_of(look_, TextRole::caption, name.words);
    ImVec2 position;
    for (const float clearance : {5.0f, 11.0f, 18.0f, 28.0f, 40.0f}) {
      if (!placer.place(name.beside, look_.px(clearance), size, position)) continue;
      if (clearance > kFar) {
        const ImVec2 nearest = {std::clamp(name.beside.x, position.x, position.x + size.x),
                                std::clamp(name.beside.y, position.y, position.y + size.y)};
        list_->AddLine(name.beside, nearest, with_alpha(name.color, 0.5f));
      }
      draw_text(list_, look_, TextRole::caption, position, name.color, name.words);
      // Names side by side would read as one.
      placer.block({position.x - edge, position.y}, {position.x + size.x + edge, position.y + size.y});
      break;
    }
  }
  ImPlot::PopPlotClipRect();
  const TextScope axes(look_, TextRole::caption);
  ImPlot::EndPlot();
}

void Chart::line(std::span<const ChartPoint> points, ImU32 color, Stroke stroke, float weight) {
  std::vector<ImVec2> pixels;
  pixels.reserve(points.size());
  for (const ChartPoint& p : points)
    if (std::isfinite(p.x) && std::isfinite(p.y)) pixels.push_back(at(p));
  if (pixels.size() < 2) return;
  if (stroke == Stroke::dashed)
    dashed_line(list_, look_, pixels, color, look_.px(weight));
  else
    list_->AddPolyline(pixels.data(), static_cast<int>(pixels.size()), color, look_.px(weight));
  // A curve of many points is as good as blocked by every few of them.
  const std::size_t stride = std::max<std::size_t>(1, pixels.size() / 64);
  for (std::size_t i = stride; i < pixels.size(); i += stride)
    lines_.emplace_back(pixels[i - stride], pixels[i]);
}

void Chart::area(std::span<const ChartPoint> upper, std::span<const ChartPoint> lower, ImU32 color) {
  const std::size_t n = std::min(upper.size(), lower.size());
  // Smoothed edges of neighbours would show as seams.
  const ImDrawListFlags flags = list_->Flags;
  list_->Flags &= ~ImDrawListFlags_AntiAliasedFill;
  for (std::size_t i = 1; i < n; ++i)
    list_->AddQuadFilled(at(upper[i - 1]), at(upper[i]), at(lower[i]), at(lower[i - 1]), color);
  list_->Flags = flags;
}

void Chart::horizontal(double y, ImU32 color, std::string words, Stroke stroke) {
  const ImPlotRect limits = ImPlot::GetPlotLimits();
  if (y < limits.Y.Min || y > limits.Y.Max) return;
  const ChartPoint points[] = {{limits.X.Min, y}, {limits.X.Max, y}};
  line(points, color, stroke, 1.4f);
  const ImVec2 end = at(points[1]);
  if (!words.empty())
    names_.push_back({{end.x - text_size_of(look_, TextRole::caption, words).x - look_.px(12), end.y},
                      color,
                      std::move(words)});
}

void Chart::vertical(double x, ImU32 color, std::string words, Stroke stroke) {
  const ImPlotRect limits = ImPlot::GetPlotLimits();
  if (x < limits.X.Min || x > limits.X.Max) return;
  const ChartPoint points[] = {{x, limits.Y.Min}, {x, limits.Y.Max}};
  line(points, color, stroke, 1.4f);
  const ImVec2 top = at(points[1]);
  if (!words.empty()) names_.push_back({{top.x, top.y + look_.px(12)}, color, std::move(words)});
}

void Chart::dot(ChartPoint p, ImU32 color, bool filled, float radius, float weight) {
  const ImVec2 pixel = at(p);
  if (filled)
    list_->AddCircleFilled(pixel, look_.px(radius), color, 14);
  else
    list_->AddCircle(pixel, look_.px(radius), color, 0, look_.px(weight));
  dots_.emplace_back(pixel, look_.px(radius + weight / 2));
}

void Chart::name(ChartPoint beside, ImU32 color, std::string words) {
  names_.push_back({at(beside), color, std::move(words)});
}

std::optional<ChartPoint> Chart::pointer() const {
  const ImVec2 mouse = ImGui::GetMousePos();
  if (!ImGui::IsWindowHovered(ImGuiHoveredFlags_ChildWindows) || mouse.x < least_.x || mouse.x > most_.x ||
      mouse.y < least_.y || mouse.y > most_.y)
    return std::nullopt;
  const ImPlotPoint p = ImPlot::PixelsToPlot(mouse);
  return ChartPoint{p.x, p.y};
}

float Chart::from_pointer(ChartPoint p) const {
  const ImVec2 pixel = at(p), mouse = ImGui::GetMousePos();
  return std::hypot(pixel.x - mouse.x, pixel.y - mouse.y);
}

void chart_title(const Look& look, std::string_view title, std::string_view sentence, float width) {
  const float gap = look.px(10);
  if (width <= 0) width = ImGui::GetContentRegionAvail().x;
  text_fitted(look, TextRole::title, look.color().text, title, width);
  width -= text_size_of(look, TextRole::title, title).x + gap;
  if (sentence.empty() || width <= gap) return;
  ImGui::SameLine(0, gap);
  text_fitted(look, TextRole::caption, look.color().dim, sentence, width);
}

}  // namespace app::gui
