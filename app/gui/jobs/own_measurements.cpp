#include "app/gui/jobs/own_measurements.h"

#include <fstream>
#include <stdexcept>
#include <string_view>

#include "app/gui/jobs/child_process.h"
#include "sim/scenario/preset.h"

namespace app::gui {

OwnMeasurements measure_series(const SeriesToMeasure& what, const OwnMeasurementsStudy::Course& course) {
  const auto all = static_cast<std::int64_t>(sim::load_series_preset(what.series).points());
  std::filesystem::create_directories(what.file.parent_path());
  std::ofstream file;
  OwnMeasurements measured{.file = what.file};
  std::string heading;
  course.report(0, all, "calibrating");
  run_to_end(
      {what.executable, "measure", what.series, "--format", "csv"},
      [&](std::string_view line) {
        if (heading.empty()) {
          heading = line;
          return;
        }
        // An older table stays until there is something to put in its place.
        if (!file.is_open()) {
          file.open(what.file, std::ios::binary);
          file << heading << '\n';
        }
        file << line << '\n' << std::flush;
        if (line.starts_with("operations,")) return;  // a run's own line comes before these
        course.report(++measured.runs, all, "measuring");
        course.show(measured);
      },
      [&] { return course.stopped() || !file; });
  if (!file) throw std::runtime_error(what.file.string() + " cannot be written: is the disk full?");
  return measured;
}

}  // namespace app::gui
