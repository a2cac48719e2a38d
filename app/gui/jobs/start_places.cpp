#include "app/gui/jobs/start_places.h"

#include <algorithm>
#include <exception>
#include <fstream>
#include <optional>
#include <variant>

#include "app/cli/device_list.h"
#include "app/gui/jobs/child_process.h"
#include "sim/report/events.h"
#include "sim/scenario/preset.h"

namespace app::gui {
namespace {

namespace fs = std::filesystem;

// By its first event.
std::optional<Recording> recording_in(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string line;
  if (!std::getline(in, line)) return std::nullopt;
  try {
    const sim::Event event = sim::event_from_ndjson(line);
    if (const auto* begin = std::get_if<sim::BeginEvent>(&event)) return Recording{file, begin->source};
  } catch (const std::exception&) {
    // Some other file.
  }
  return std::nullopt;
}

std::vector<fs::path> shipped_recordings() {
  std::vector<fs::path> files;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(sim::preset_directory() / "recordings", none))
    if (entry.path().extension() == ".ndjson") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::string title_of(const Recording& recording) {
  const sim::Source& source = recording.source;
  const bool train = source.scenario.workload.task == sim::Task::train;
  std::string words =
      (train ? "train " : "generate with ") + source.scenario.model.name + " on " + source.device;
  if (!source.date.empty()) words += ", " + source.date.substr(0, 10);
  return words;
}

StartPlaces places_of(const PlacesQuestion& question, const std::function<bool()>& stopped) {
  StartPlaces places;
  std::vector<fs::path> files = shipped_recordings();
  files.insert(files.end(), question.recordings.begin(), question.recordings.end());
  for (const fs::path& file : files)
    if (auto recording = recording_in(file)) places.recordings.push_back(*std::move(recording));
  std::string json;
  run_to_end(
      {question.executable, "doctor", "--devices", "--format", "json"},
      [&](std::string_view line) { json += line; }, stopped);
  if (!stopped()) places.devices = cli::devices_from_json(json);
  return places;
}

}  // namespace app::gui
