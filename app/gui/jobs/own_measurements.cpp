#include "app/gui/jobs/own_measurements.h"

#include <fstream>
#include <stdexcept>

#include "app/gui/jobs/child_process.h"
#include "sim/scenario/preset.h"

namespace app::gui {

std::int64_t runs_of_series(const std::string& series) {
  std::int64_t runs = 0;
  for (const sim::ScenarioSeries& one : sim::load_series_preset(series).series)
    runs += static_cast<std::int64_t>(one.points.size());
  return runs;
}

OwnMeasurements measure_series(const SeriesToMeasure& what, const OwnMeasurementsStudy::Course& course) {
  const std::int64_t all = runs_of_series(what.series);
  std::filesystem::create_directories(what.file.parent_path());
  std::ofstream file(what.file, std::ios::binary);
  OwnMeasurements measured{.file = what.file};
  bool heading = true;
  course.report(0, all, "calibrating");
  run_to_end(
      {what.executable, "measure", what.series, "--format", "csv"},
      [&](std::string_view line) {
        file << line << '\n' << std::flush;
        // A run's own line comes before those of its operations.
        const bool run = !heading && !line.starts_with("operations,");
        heading = false;
        if (!run) return;
        course.report(++measured.runs, all, "measuring");
        course.show(measured);
      },
      [&] { return course.stopped() || !file; });
  if (!file) throw std::runtime_error(what.file.string() + " cannot be written: is the disk full?");
  return measured;
}

}  // namespace app::gui
