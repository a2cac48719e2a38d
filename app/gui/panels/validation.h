// What the validation panel shows of the tables.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "app/gui/jobs/own_measurements.h"
#include "app/gui/jobs/validation_study.h"
#include "app/gui/panels/panels.h"

namespace app::gui {

struct ValidationState {
  explicit ValidationState(const PanelTools& tools);
  // Predicts the published tables, which come first; done when the panel is first seen.
  void start();
  bool started() const { return files_.has_value(); }
  // Any file: what is no table says so in its place.
  bool open(const std::filesystem::path& file);
  ValidationStudy& study;

  // Runs the series of configurations here, and shows its table while it grows.
  OwnMeasurementsStudy& own;
  void measure_here();
  bool can_measure() const { return !executable.empty() && !own.progress().running; }
  // Opens the table again when runs were added to it. Once a frame.
  void follow_own();
  std::string executable;  // this program; empty: unknown
  std::filesystem::path own_file;

  std::string path;                // of the file to open
  std::string table, column;       // names; empty: the first
  std::string source, gpu;         // shown alone; empty: all
  std::optional<std::size_t> row;  // whose facts are shown
  std::string framed;              // the choice of points that the axes were fitted to
  int tab = 0;                     // where there is room for one part alone

 private:
  void add(const std::filesystem::path& file);

  std::optional<OpenedFiles> files_;  // unset: not started
  std::int64_t own_runs_ = 0;         // of the table that is open
  int attempts_ = 0;
};

}  // namespace app::gui
