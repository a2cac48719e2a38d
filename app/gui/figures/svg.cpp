#include "app/gui/figures/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "app/gui/figures/text.h"
#include "app/gui/theme.h"
#include "app/gui/widgets/plot.h"

namespace app::gui {
namespace {

constexpr double kWidth = 960, kPlotHeight = 460, kTitle = 34, kLine = 20, kBar = 30;
constexpr double kLeft = 84, kRight = 230, kFoot = 56;
constexpr double kWholeRadius = 32;    // of a dot whose share is one
constexpr std::size_t kMostRows = 60;  // of a table that is drawn

constexpr const char* kText = "#1b2430";
constexpr const char* kDim = "#55616f";
constexpr const char* kGrid = "#d9dfe7";

// A drawing with its height: its parts are put below each other.
struct Drawing {
  std::string body;
  double height = 0;
};

std::string hex(std::uint32_t color) {
  const auto channel = [&](int shift) { return color >> shift & 255u; };
  return fmt::format("#{:02x}{:02x}{:02x}", channel(IM_COL32_R_SHIFT), channel(IM_COL32_G_SHIFT),
                     channel(IM_COL32_B_SHIFT));
}

// What is wider than its place would run into its neighbour: Inter's letters are 0.56 of their size wide on
// the average.
std::string shortened(std::string words, double size, double width) {
  const auto most = static_cast<std::size_t>(std::max(1.0, width / (0.56 * size)));
  std::size_t letters = 0, end = 0;
  while (end < words.size() && letters < most) {
    ++letters;
    do ++end;
    while (end < words.size() && (static_cast<unsigned char>(words[end]) & 0xc0) == 0x80);
  }
  if (end >= words.size()) return words;
  words.resize(end);
  return words + "\u2026";
}

enum class Anchor { start, middle, end };
std::string text_at(double x, double y, std::string_view words, const char* color = kText, double size = 12.5,
                    Anchor anchor = Anchor::start, std::string_view more = "") {
  static constexpr std::array<const char*, 3> names = {"start", "middle", "end"};
  return fmt::format(R"(<text x="{:.1f}" y="{:.1f}" fill="{}" font-size="{}" text-anchor="{}"{}>{}</text>)"
                     "\n",
                     x, y, color, size, names[static_cast<std::size_t>(anchor)], more, escaped(words));
}

std::string line_from(double x1, double y1, double x2, double y2, std::string_view color, double weight = 1,
                      bool dashed = false) {
  return fmt::format(
      R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="{}" stroke-width="{}"{}/>)"
      "\n",
      x1, y1, x2, y2, color, weight, dashed ? R"( stroke-dasharray="7 4")" : "");
}

std::string box(double x, double y, double width, double height, std::string_view color, double rounding = 0,
                std::string_view tooltip = "") {
  return fmt::format(
      R"(<rect x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}" fill="{}" rx="{}">{}</rect>)"
      "\n",
      x, y, width, height, color, rounding,
      tooltip.empty() ? "" : fmt::format("<title>{}</title>", escaped(tooltip)));
}

// An axis from data to drawing.
struct Axis {
  double low = 0, high = 1, from = 0, to = 1;
  bool logarithmic = false;
  ScaleUnit unit{1, ""};
  std::vector<double> ticks = {};

  double at(double value) const {
    const auto place = [&](double v) { return logarithmic ? std::log10(std::max(v, 1e-300)) : v; };
    return from + (to - from) * (place(value) - place(low)) / (place(high) - place(low));
  }
};

Axis axis_of(const FigureAxis& axis, double least, double most, double from, double to) {
  Axis a{least, most, from, to, axis.logarithmic && least > 0, scale_of(axis.measure, most)};
  const std::optional<FigureRange> range = axis.seen ? axis.seen : axis.drawn;
  if (range) std::tie(a.low, a.high) = *range;
  a.unit = scale_of(axis.measure, a.high);
  if (a.logarithmic) {
    if (!range) {
      const double margin = std::pow(a.high / a.low, 0.03);
      a.low /= margin;
      a.high *= margin;
    }
    if (a.high <= a.low * 1.001) {
      a.low /= 2;
      a.high *= 2;
    }
    // Round numbers, as many as find room: 1, 2 and 5 of a decade, or decades alone.
    const double decades = std::log10(a.high / a.low);
    for (int e = static_cast<int>(std::floor(std::log10(a.low))); e <= std::ceil(std::log10(a.high)); ++e)
      for (const double digit : {1.0, 2.0, 5.0})
        if (const double tick = digit * std::pow(10, e);
            (digit == 1 || decades < 3) && tick >= a.low && tick <= a.high)
          a.ticks.push_back(tick);
  } else {
    if (!range) {
      if (a.low > 0 && a.low < 0.6 * a.high) a.low = 0;
      if (a.high <= a.low) a.high = a.low + 1;
      a.high += 0.06 * (a.high - a.low);
    }
    for (const double tick : round_ticks(a.low / a.unit.size, a.high / a.unit.size, 7))
      a.ticks.push_back(tick * a.unit.size);
  }
  return a;
}

std::string axis_label(const FigureAxis& axis, const ScaleUnit& unit) {
  return axis.label + (unit.name[0] ? std::string(", ") + unit.name : "");
}

Drawing draw(const FigurePlot& plot) {
  double x_low = std::numeric_limits<double>::infinity(), x_high = -x_low, y_low = x_low, y_high = x_high;
  const auto take = [](double v, double& low, double& high) {
    low = std::min(low, v);
    high = std::max(high, v);
  };
  for (const FigureCurve& curve : plot.curves)
    for (const FigurePoint& p : curve.points) {
      take(p.x, x_low, x_high);
      take(p.y, y_low, y_high);
      if (curve.mark == Mark::area) take(p.low, y_low, y_high);
    }
  if (!(x_low <= x_high)) return {};
  // What lies far past a limit would flatten all below it.
  constexpr double kPastLimit = 2.5;
  for (const FigureLimit& limit : plot.limits)
    if (!limit.vertical && !plot.y.logarithmic) y_high = std::min(y_high, kPastLimit * limit.at);
  // Limits widen the picture where that leaves the curves readable.
  for (const FigureLimit& limit : plot.limits)
    if (!limit.vertical && limit.at < (plot.y.logarithmic ? 10 : 2) * y_high) take(limit.at, y_low, y_high);
  const double left = kLeft, right = kWidth - kRight, top = 10, bottom = kPlotHeight - kFoot;
  Axis x = axis_of(plot.x, x_low, x_high, left, right);
  // A sweep has few values, which are the ticks that one looks for.
  constexpr std::size_t kMostValues = 14;
  std::set<double> values;
  for (const FigureCurve& curve : plot.curves)
    for (const FigurePoint& p : curve.points)
      if (values.size() <= kMostValues) values.insert(p.x);
  if (plot.x.measure == Measure::count && plot.x.logarithmic && values.size() <= kMostValues)
    x.ticks.assign(values.begin(), values.end());
  const Axis y = axis_of(plot.y, y_low, y_high, bottom, top);
  std::string body;
  double last = -1e9;
  for (const double tick : x.ticks) {
    body += line_from(x.at(tick), top, x.at(tick), bottom, kGrid);
    const std::string label =
        plot.x.measure == Measure::count ? text_of(tick, Measure::count) : tick_label(tick / x.unit.size);
    const double half = 3.6 * static_cast<double>(label.size());
    if (x.at(tick) - half < last + 6) continue;
    last = x.at(tick) + half;
    body += text_at(x.at(tick), bottom + 18, label, kDim, 12, Anchor::middle);
  }
  for (const double tick : y.ticks) {
    body += line_from(left, y.at(tick), right, y.at(tick), kGrid);
    body += text_at(left - 8, y.at(tick) + 4, tick_label(tick / y.unit.size), kDim, 12, Anchor::end);
  }
  body += text_at((left + right) / 2, bottom + 42, axis_label(plot.x, x.unit), kText, 13, Anchor::middle);
  body += text_at(20, (top + bottom) / 2, axis_label(plot.y, y.unit), kText, 13, Anchor::middle,
                  fmt::format(R"x( transform="rotate(-90 20 {:.1f})")x", (top + bottom) / 2));
  body += fmt::format(
      R"(<svg x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" viewBox="{:.1f} {:.1f} {:.1f} {:.1f}" overflow="hidden">)"
      "\n",
      left, top, right - left, bottom - top, left, top, right - left, bottom - top);
  struct Entry {
    std::string name;
    std::uint32_t color;
    Mark mark;
  };
  std::vector<Entry> legend;
  for (const FigureCurve& curve : plot.curves) {
    const std::string color = hex(curve.color);
    std::string path;
    for (const FigurePoint& p : curve.points)
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x.at(p.x), y.at(p.y));
    if (curve.mark == Mark::area) {
      for (auto p = curve.points.rbegin(); p != curve.points.rend(); ++p)
        path += fmt::format("L{:.1f} {:.1f}", x.at(p->x), y.at(p->low));
      body += fmt::format(R"(<path d="{}Z" fill="{}" fill-opacity="0.85"/>)"
                          "\n",
                          path, color);
    } else if (curve.mark != Mark::dots) {
      body +=
          fmt::format(R"(<path d="{}" fill="none" stroke="{}" stroke-width="2.2" stroke-linejoin="round"{}/>)"
                      "\n",
                      path, color, curve.mark == Mark::dashed ? R"( stroke-dasharray="8 5")" : "");
    }
    if (curve.mark == Mark::dots || (curve.mark == Mark::dashed && curve.points.size() <= 40))
      for (std::size_t i = 0; i < curve.points.size(); ++i) {
        const FigurePoint& p = curve.points[i];
        const bool weighed = i < curve.weights.size();
        const double radius = weighed ? std::max(2.5, kWholeRadius * std::sqrt(curve.weights[i])) : 4;
        const std::string what = (i < curve.names.size() ? curve.names[i] : curve.name) + ": " +
                                 text_of(p.x, plot.x.measure) + ", " + text_of(p.y, plot.y.measure);
        body += fmt::format(
            R"(<circle cx="{:.1f}" cy="{:.1f}" r="{:.1f}" fill="{}" fill-opacity="{}"><title>{}</title></circle>)"
            "\n",
            x.at(p.x), y.at(p.y), radius, color, weighed ? 0.35 : 0.8, escaped(what));
      }
    if (!curve.name.empty()) legend.push_back({curve.name, curve.color, curve.mark});
  }
  body += "</svg>\n";
  for (const FigureLimit& limit : plot.limits) {
    const double at = limit.vertical ? x.at(limit.at) : y.at(limit.at);
    const double low = limit.vertical ? left : top, high = limit.vertical ? right : bottom;
    if (!(at >= low - 0.5 && at <= high + 0.5)) continue;
    body += limit.vertical ? line_from(at, top, at, bottom, hex(limit.color), 1.5, true)
                           : line_from(left, at, right, at, hex(limit.color), 1.8);
    legend.push_back({limit.name, limit.color, limit.vertical ? Mark::dashed : Mark::line});
  }
  double entry_y = top + 14;
  for (const Entry& entry : legend) {
    if (entry_y > bottom + kFoot) break;
    const double begin = right + 18;
    if (entry.mark == Mark::area)
      body += box(begin, entry_y - 10, 14, 12, hex(entry.color), 2);
    else if (entry.mark == Mark::dots)
      body += fmt::format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="4" fill="{}"/>)"
                          "\n",
                          begin + 7, entry_y - 4, hex(entry.color));
    else
      body += line_from(begin, entry_y - 4, begin + 18, entry_y - 4, hex(entry.color), 2.2,
                        entry.mark == Mark::dashed);
    body += text_at(begin + 24, entry_y, shortened(entry.name, 12.5, kRight - 46));
    entry_y += kLine;
  }
  return {body, std::max(kPlotHeight, entry_y)};
}

Drawing draw(const FigureBars& bars) {
  if (bars.rows.empty()) return {};
  double greatest = 0;
  for (const FigureBars::Row& row : bars.rows) {
    double sum = row.from;
    for (const double value : row.values) sum += value;
    greatest = std::max(greatest, sum);
  }
  if (greatest <= 0) return {};
  const bool limit_in_view = bars.limit && bars.limit->at < 3 * greatest;
  const double left = 220, right = kWidth - 110, top = 24;
  const ScaleUnit unit = scale_of(bars.measure, greatest);
  const double range = std::max(greatest, limit_in_view ? bars.limit->at : 0) * 1.02;
  const auto at = [&](double value) { return left + (right - left) * value / range; };
  const double bottom = top + kBar * static_cast<double>(bars.rows.size());
  std::string body;
  for (const double tick : round_ticks(0, range / unit.size, 8)) {
    body += line_from(at(tick * unit.size), top, at(tick * unit.size), bottom, kGrid);
    body += text_at(at(tick * unit.size), bottom + 18, tick_label(tick), kDim, 12, Anchor::middle);
  }
  body += text_at((left + right) / 2, bottom + 38, unit.name, kText, 13, Anchor::middle);
  double y = top;
  for (const FigureBars::Row& row : bars.rows) {
    body +=
        text_at(left - 10, y + kBar / 2 + 4, shortened(row.name, 12.5, left - 20), kText, 12.5, Anchor::end);
    double sum = row.from;
    for (std::size_t i = 0; i < row.values.size(); ++i) {
      if (row.values[i] <= 0) continue;
      const double begin = at(sum), end = at(sum + row.values[i]);
      const std::string value = unit.digits(row.values[i]);
      body += box(begin, y + 4, std::max(0.3, end - begin - 0.8), kBar - 8, hex(bars.parts[i].color), 2,
                  bars.parts[i].name + ": " + text_of(row.values[i], bars.measure));
      if (end - begin > 9.0 * static_cast<double>(value.size()))
        body += text_at((begin + end) / 2, y + kBar / 2 + 4, value, hex(text_on(bars.parts[i].color)).c_str(),
                        12, Anchor::middle);
      sum += row.values[i];
    }
    body += text_at(at(sum) + 8, y + kBar / 2 + 4, unit.text(sum - row.from));
    y += kBar;
  }
  if (limit_in_view) {
    body += line_from(at(bars.limit->at), top - 4, at(bars.limit->at), bottom, hex(bars.limit->color), 1.8);
    body += text_at(at(bars.limit->at), top - 9, bars.limit->name, hex(bars.limit->color).c_str(), 12,
                    Anchor::middle);
  }
  y = bottom + 62;
  double x = left;
  for (std::size_t i = 0; i < bars.parts.size(); ++i) {
    if (std::none_of(bars.rows.begin(), bars.rows.end(), [&](const auto& row) { return row.values[i] > 0; }))
      continue;
    const double width = 34 + 7.2 * static_cast<double>(bars.parts[i].name.size());
    if (x + width > kWidth) {
      x = left;
      y += kLine;
    }
    body += box(x, y - 10, 12, 12, hex(bars.parts[i].color), 2) + text_at(x + 18, y, bars.parts[i].name);
    x += width;
  }
  return {body, y + 16};
}

// Spans narrower than this are merged with their neighbours of the same kind.
constexpr double kLeastSpan = 0.4;

Drawing draw(const FigureTimeline& timeline) {
  double begin = std::numeric_limits<double>::infinity(), end = 0;
  for (const FigureSpan& span : timeline.spans) {
    begin = std::min(begin, span.start);
    end = std::max(end, span.end);
  }
  if (timeline.seen) std::tie(begin, end) = *timeline.seen;
  if (!(begin < end)) return {};
  const double left = 100, right = kWidth - 20, top = 6;
  const double row_height = std::clamp(620.0 / static_cast<double>(timeline.rows.size()), 2.0, 26.0);
  const double bottom = top + row_height * static_cast<double>(timeline.rows.size());
  const ScaleUnit unit = time_unit(end);
  const auto at = [&](double t) { return left + (right - left) * (t - begin) / (end - begin); };
  std::string body;
  for (const double tick : round_ticks(begin / unit.size, end / unit.size, 9)) {
    body += line_from(at(tick * unit.size), top, at(tick * unit.size), bottom, kGrid);
    body += text_at(at(tick * unit.size), bottom + 18, tick_label(tick), kDim, 12, Anchor::middle);
  }
  body += text_at((left + right) / 2, bottom + 38, unit.name, kText, 13, Anchor::middle);
  const std::size_t every = std::max<std::size_t>(1, static_cast<std::size_t>(std::ceil(14 / row_height)));
  for (std::size_t row = 0; row < timeline.rows.size(); row += every)
    body += text_at(left - 8, top + row_height * (static_cast<double>(row) + 0.5) + 4, timeline.rows[row],
                    kText, 12, Anchor::end);
  std::vector<std::pair<std::string, std::uint32_t>> kinds;
  std::vector<double> drawn(timeline.rows.size(), -1e9);
  for (const FigureSpan& span : timeline.spans) {
    const std::pair kind(span.kind, span.color);
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
    const double from = std::max(left, at(span.start)), to = std::min(right, at(span.end));
    if (to - from <= 0 || to - drawn[span.row] < kLeastSpan) continue;
    drawn[span.row] = to;
    body += box(from, top + row_height * static_cast<double>(span.row) + 0.5, std::max(0.2, to - from - 0.3),
                row_height - 1, hex(span.color), 0,
                span.name + ", " + text_of(span.end - span.start, Measure::seconds));
  }
  double x = left;
  for (const auto& [name, color] : kinds) {
    body += box(x, bottom + 52, 12, 12, hex(color), 2) + text_at(x + 18, bottom + 62, name);
    x += 34 + 7.2 * static_cast<double>(name.size());
  }
  return {body, bottom + 76};
}

Drawing draw(const FigureTable& table) {
  if (table.columns.empty()) return {};
  // Columns as wide as what is in them, and not wider than the page.
  std::vector<double> widths;
  const std::size_t rows = std::min(table.rows.size(), kMostRows);
  double sum = 0;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    std::size_t most = table.columns[c].name.size();
    for (std::size_t r = 0; r < rows; ++r)
      most = std::max(most, cell_text(table.rows[r][c], table.columns[c].measure).size());
    widths.push_back(std::min(340.0, 7.2 * static_cast<double>(most) + 18));
    sum += widths.back();
  }
  const double shrink = std::min(1.0, (kWidth - 20) / sum);
  std::string body;
  double y = 16;
  const auto write = [&](const auto& words_of, const char* color) {
    double x = 10;
    for (std::size_t c = 0; c < widths.size(); ++c) {
      const double width = widths[c] * shrink;
      const bool number = table.columns[c].measure != Measure::words;
      body += text_at(number ? x + width - 12 : x, y, shortened(words_of(c), 12, width - 12), color, 12,
                      number ? Anchor::end : Anchor::start);
      x += width;
    }
    y += kLine;
  };
  write([&](std::size_t c) { return table.columns[c].name; }, kDim);
  body += line_from(10, y - 14, kWidth - 10, y - 14, kGrid);
  for (std::size_t r = 0; r < rows; ++r)
    write([&](std::size_t c) { return cell_text(table.rows[r][c], table.columns[c].measure); }, kText);
  if (table.rows.size() > rows) {
    body += text_at(10, y, fmt::format("and {} more rows", table.rows.size() - rows), kDim, 12);
    y += kLine;
  }
  return {body, y};
}

std::string page(double height, const std::string& body) {
  return fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1:.0f}" viewBox="0 0 {0} {1:.0f}" )"
      R"(font-family="Inter, 'Helvetica Neue', Arial, sans-serif">)"
      "\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{2}</svg>\n",
      kWidth, height, body);
}

Drawing draw_titled(const Figure& figure) {
  Drawing drawing = std::visit([](const auto& data) { return draw(data); }, figure.data);
  if (drawing.body.empty()) return {};
  return {text_at(10, 22, figure.title, kText, 15, Anchor::start, R"( font-weight="600")") +
              fmt::format("<g transform=\"translate(0 {})\">\n{}</g>\n", kTitle, drawing.body),
          drawing.height + kTitle};
}

}  // namespace

std::string to_svg(const Figure& figure) {
  const Drawing drawing = draw_titled(figure);
  return page(drawing.height, drawing.body);
}

std::string to_svg(const PanelFigures& panel, const std::string& footer) {
  std::string body = text_at(10, 26, panel.title, kText, 19, Anchor::start, R"( font-weight="600")") +
                     text_at(10, 46, panel.caption, kDim);
  double y = 60;
  const auto is_table = [](const Figure& figure) { return std::holds_alternative<FigureTable>(figure.data); };
  const bool tables_alone = std::all_of(panel.figures.begin(), panel.figures.end(), is_table);
  for (const Figure& figure : panel.figures) {
    if (is_table(figure) && !tables_alone) continue;
    const Drawing drawing = draw_titled(figure);
    if (drawing.body.empty()) continue;
    body += fmt::format("<g transform=\"translate(0 {:.1f})\">\n{}</g>\n", y, drawing.body);
    y += drawing.height + 12;
  }
  if (!footer.empty()) {
    body += text_at(10, y + 10, footer, kDim);
    y += 20;
  }
  return page(y, body);
}

}  // namespace app::gui
