#include "app/gui/figures/figure.h"

#include <algorithm>
#include <cmath>

#include "sim/format.h"

namespace app::gui {
namespace {

bool is_seen(const std::optional<FigureRange>& seen, double low, double high) {
  return !seen || (high >= seen->first && low <= seen->second);
}

FigureTable rows_of(const FigureTable& table) {
  return table;
}

FigureTable rows_of(const FigurePlot& plot) {
  FigureTable table;
  table.columns = {{"curve"},
                   {"point"},
                   {plot.x.label, plot.x.measure},
                   {plot.y.label, plot.y.measure},
                   {"from", plot.y.measure}};
  const auto is_area = [](const FigureCurve& curve) { return curve.mark == Mark::area; };
  const bool areas = std::any_of(plot.curves.begin(), plot.curves.end(), is_area);
  const bool named = std::any_of(plot.curves.begin(), plot.curves.end(),
                                 [](const FigureCurve& curve) { return !curve.names.empty(); });
  for (const FigureCurve& curve : plot.curves)
    for (std::size_t i = 0; i < curve.points.size(); ++i) {
      const FigurePoint& p = curve.points[i];
      if (!is_seen(plot.x.seen, p.x, p.x) || !is_seen(plot.y.seen, p.y, p.y)) continue;
      table.rows.push_back({curve.name, i < curve.names.size() ? Cell(curve.names[i]) : Cell(), p.x, p.y,
                            is_area(curve) ? Cell(p.low) : Cell()});
    }
  const auto drop = [&](std::ptrdiff_t column) {
    table.columns.erase(table.columns.begin() + column);
    for (auto& row : table.rows) row.erase(row.begin() + column);
  };
  if (!areas) drop(4);
  if (!named) drop(1);
  return table;
}

FigureTable rows_of(const FigureBars& bars) {
  FigureTable table;
  table.columns = {{"of"}};
  for (const FigurePart& part : bars.parts) table.columns.push_back({part.name, bars.measure});
  table.columns.push_back({"sum", bars.measure});
  const bool offset =
      std::any_of(bars.rows.begin(), bars.rows.end(), [](const auto& row) { return row.from > 0; });
  if (offset) table.columns.push_back({"from", bars.measure});
  for (const FigureBars::Row& bar : bars.rows) {
    std::vector<Cell> row = {bar.name};
    double sum = 0;
    for (const double value : bar.values) {
      row.emplace_back(value);
      sum += value;
    }
    row.emplace_back(sum);
    if (offset) row.emplace_back(bar.from);
    table.rows.push_back(std::move(row));
  }
  return table;
}

FigureTable rows_of(const FigureTimeline& timeline) {
  FigureTable table;
  table.columns = {{"row"}, {"kind"}, {"name"}, {"start", Measure::seconds}, {"duration", Measure::seconds}};
  for (const FigureSpan& span : timeline.spans)
    if (is_seen(timeline.seen, span.start, span.end))
      table.rows.push_back(
          {timeline.rows[span.row], span.kind, span.name, span.start, span.end - span.start});
  return table;
}

}  // namespace

std::string text_of(double value, Measure measure) {
  if (!std::isfinite(value)) return "n/a";
  switch (measure) {
    case Measure::count:
      return sim::format_count(std::llround(value));
    case Measure::bytes:
      return sim::format(sim::Bytes{std::llround(value)});
    case Measure::seconds:
      return sim::format(sim::Seconds{value});
    case Measure::flops:
      return sim::format(sim::Flops{value});
    case Measure::flops_per_second:
      return sim::format(sim::FlopsPerSecond{value});
    case Measure::bytes_per_second:
      return sim::format(sim::BytesPerSecond{value});
    case Measure::tokens_per_second:
      return token_rate(value);
    case Measure::flops_per_byte:
      return significant(value) + " FLOP/B";
    case Measure::share:
      return sim::format_percent(value);
    case Measure::dollars:
      return std::string("$").append(value >= 1000 ? sim::format_count(std::llround(value))
                                                   : significant(value));
    case Measure::plain:
    case Measure::words:
      break;
  }
  return significant(value, 4);
}

std::string_view unit_of(Measure measure) {
  switch (measure) {
    case Measure::bytes:
      return "bytes";
    case Measure::seconds:
      return "seconds";
    case Measure::flops:
      return "flops";
    case Measure::flops_per_second:
      return "flop_per_s";
    case Measure::bytes_per_second:
      return "bytes_per_s";
    case Measure::tokens_per_second:
      return "tokens_per_s";
    case Measure::flops_per_byte:
      return "flop_per_byte";
    case Measure::share:
      return "share";
    case Measure::dollars:
      return "usd";
    case Measure::words:
    case Measure::count:
    case Measure::plain:
      break;
  }
  return "";
}

ScaleUnit scale_of(Measure measure, double greatest) {
  switch (measure) {
    case Measure::bytes:
      return byte_unit(greatest);
    case Measure::seconds:
      return time_unit(greatest);
    case Measure::flops_per_second:
      return flop_rate_unit(greatest);
    case Measure::bytes_per_second:
      return {1e9, "GB/s"};
    case Measure::share:
      return {0.01, "%"};
    case Measure::tokens_per_second:
      return {1, "tokens/s"};
    case Measure::flops_per_byte:
      return {1, "FLOP/B"};
    case Measure::dollars:
      return {1, "$"};
    case Measure::flops:
      return {1e12, "TFLOP"};
    case Measure::words:
    case Measure::count:
    case Measure::plain:
      break;
  }
  return {1, ""};
}

FigureTable table_of(const Figure& figure) {
  return std::visit([](const auto& data) { return rows_of(data); }, figure.data);
}

}  // namespace app::gui
