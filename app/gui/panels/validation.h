// What the validation panel shows of the tables.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

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

  std::string path;                // of the file to open
  std::string table, column;       // names; empty: the first
  std::string source, gpu;         // shown alone; empty: all
  std::optional<std::size_t> row;  // whose facts are shown
  std::string framed;              // the choice of points that the axes were fitted to
  int tab = 0;                     // where there is room for one part alone

 private:
  std::optional<OpenedFiles> files_;  // unset: not started
};

}  // namespace app::gui
