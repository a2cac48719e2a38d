// What a panel shows, as data: tables, curves, stacked bars, timelines. A panel returns its figures; writers
// (text.h, svg.h, trace.h, page.h) know no panel.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "app/gui/widgets/numbers.h"

namespace app::gui {

// What a number measures. Numbers of figures are in base units: bytes, seconds, FLOPs, shares of one.
enum class Measure {
  words,  // no number
  count,
  plain,  // a ratio, a loss: no unit
  bytes,
  seconds,
  flops,
  flops_per_second,
  bytes_per_second,
  tokens_per_second,
  flops_per_byte,
  share,
  dollars
};
// A number for people, with its unit: "61.4 GiB".
std::string text_of(double value, Measure measure);
// The unit that files write behind a column's name: "seconds"; empty for what has no unit.
std::string_view unit_of(Measure measure);
// One unit for values up to `greatest`, as axes and bars write them.
ScaleUnit scale_of(Measure measure, double greatest);

using Cell = std::variant<std::monostate, std::string, double>;
struct FigureColumn {
  std::string name;
  Measure measure = Measure::words;
};
struct FigureTable {
  std::vector<FigureColumn> columns;
  std::vector<std::vector<Cell>> rows;  // each as long as the columns
};

struct FigurePoint {
  double x = 0, y = 0;
  double low = 0;  // of an area: its lower edge
};
enum class Mark { line, dashed, dots, area };
struct FigureCurve {
  std::string name;
  std::uint32_t color = 0;  // as ImGui packs it
  Mark mark = Mark::line;
  std::vector<FigurePoint> points;
  std::vector<std::string> names = {};  // of the points, where they have any
  std::vector<double> weights = {};     // of dots, where their areas say something: shares of one
};
struct FigureLimit {
  std::string name;
  double at = 0;
  std::uint32_t color = 0;
  bool vertical = false;
};
using FigureRange = std::pair<double, double>;
struct FigureAxis {
  std::string label;
  Measure measure = Measure::plain;
  bool logarithmic = false;
  std::optional<FigureRange> seen = {};   // where the user zoomed: all else is left out of exports
  std::optional<FigureRange> drawn = {};  // what a drawing shows, where that is less than all; files have all
};
struct FigurePlot {
  FigureAxis x, y;
  std::vector<FigureCurve> curves;
  std::vector<FigureLimit> limits = {};
};

struct FigurePart {
  std::string name;
  std::uint32_t color = 0;
};
struct FigureBars {
  Measure measure = Measure::bytes;
  std::vector<FigurePart> parts;
  struct Row {
    std::string name;
    std::vector<double> values;  // of the parts
    double from = 0;             // where the first begins: a waterfall's rows follow each other
  };
  std::vector<Row> rows;
  std::optional<FigureLimit> limit = {};
};

struct FigureSpan {
  std::size_t row = 0;
  std::string name, kind;
  std::uint32_t color = 0;
  double start = 0, end = 0;  // seconds
};
struct FigureTimeline {
  std::vector<std::string> rows;
  std::vector<FigureSpan> spans;
  std::optional<FigureRange> seen = {};
};

struct Figure {
  std::string title;
  std::variant<FigureTable, FigurePlot, FigureBars, FigureTimeline> data;
};

// Any figure as a table with one row for each point of a curve, part of a bar or span of a timeline. Only
// what is in sight.
FigureTable table_of(const Figure& figure);

// What a panel gives to an export.
struct PanelFigures {
  std::string id, title, caption;
  std::vector<Figure> figures;
};

}  // namespace app::gui
