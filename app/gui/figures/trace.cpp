#include "app/gui/figures/trace.h"

#include <nlohmann/json.hpp>

namespace app::gui {

std::string to_chrome_trace(std::span<const Figure> figures) {
  constexpr double kMicroseconds = 1e6;
  nlohmann::json events = nlohmann::json::array();
  int process = 0;
  for (const Figure& figure : figures) {
    const auto* timeline = std::get_if<FigureTimeline>(&figure.data);
    if (!timeline) continue;
    ++process;
    events.push_back(
        {{"ph", "M"}, {"pid", process}, {"name", "process_name"}, {"args", {{"name", figure.title}}}});
    for (std::size_t row = 0; row < timeline->rows.size(); ++row) {
      events.push_back({{"ph", "M"},
                        {"pid", process},
                        {"tid", row},
                        {"name", "thread_name"},
                        {"args", {{"name", timeline->rows[row]}}}});
      events.push_back({{"ph", "M"},
                        {"pid", process},
                        {"tid", row},
                        {"name", "thread_sort_index"},
                        {"args", {{"sort_index", row}}}});
    }
    for (const FigureSpan& span : timeline->spans)
      events.push_back({{"ph", "X"},
                        {"pid", process},
                        {"tid", span.row},
                        {"name", span.name},
                        {"cat", span.kind},
                        {"ts", span.start * kMicroseconds},
                        {"dur", (span.end - span.start) * kMicroseconds}});
  }
  if (process == 0) return "";
  return nlohmann::json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}.dump();
}

}  // namespace app::gui
