// Where Start can be: the devices of this machine, and recordings of runs.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "app/gui/jobs/study.h"
#include "runtime/devices.h"
#include "sim/report/report.h"

namespace app::gui {

// A run's events in a file, and what they say they are of.
struct Recording {
  std::filesystem::path file;
  sim::Source source;
  bool operator==(const Recording&) const = default;
};
std::string title_of(const Recording& recording);  // "train tiny-llama on NVIDIA H200, 2026-11-23"

struct StartPlaces {
  std::vector<runtime::MachineDevice> devices;
  std::vector<Recording> recordings;
};

struct PlacesQuestion {
  int attempt = 0;
  std::string executable;  // this program
  std::vector<std::filesystem::path>
      recordings;  // that were opened; those in presets/recordings are listed too
  bool operator==(const PlacesQuestion&) const = default;
};

// The devices are what `ridgepoint doctor --devices` says: a driver's libraries stay out of this process.
// Files that are no recording are left out. Throws std::runtime_error, a sentence.
StartPlaces places_of(const PlacesQuestion& question, const std::function<bool()>& stopped);

}  // namespace app::gui
