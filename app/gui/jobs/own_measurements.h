// The accuracy of predictions on this machine: a series of short runs in a process of its own gives a table
// of measurements that grows as it runs.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "app/gui/jobs/study.h"

namespace app::gui {

struct SeriesToMeasure {
  std::string executable, series;  // this program; a preset's name
  std::filesystem::path file;      // that the table is written into, in place of an older one
  int attempt = 0;                 // the same again is another request
  bool operator==(const SeriesToMeasure&) const = default;
};
struct OwnMeasurements {
  std::filesystem::path file;
  std::int64_t runs = 0;  // in it
};
using OwnMeasurementsStudy = Study<SeriesToMeasure, OwnMeasurements>;

// Runs `ridgepoint measure SERIES --format csv`, and shows the file each time a run is in it. Throws
// std::runtime_error, a sentence.
OwnMeasurements measure_series(const SeriesToMeasure& what, const OwnMeasurementsStudy::Course& course);

}  // namespace app::gui
