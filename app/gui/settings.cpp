#include "app/gui/settings.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>

#include "runtime/formats/set_aside.h"
#include "sim/file_text.h"
#include "sim/foreign_text.h"
#include "sim/scenario/preset.h"

namespace app::gui {
namespace {

constexpr int kSchemaVersion = 1;
constexpr const char* kFile = "desktop.json";

constexpr const char* kDefaults = "the window opens with its own settings";

std::optional<sim::Scenario> read_scenario(const nlohmann::json& json, const std::filesystem::path& file) {
  try {
    return sim::scenario_from_json(json.dump(), file.string());
  } catch (const std::exception& error) {
    runtime::set_aside(file, error.what(), "the window opens with its first scenario");
    return std::nullopt;
  }
}

}  // namespace

bool has_settings(const std::filesystem::path& directory) {
  std::error_code none;
  return std::filesystem::exists(directory / kFile, none);
}

Settings load_settings(const std::filesystem::path& directory) {
  if (directory.empty()) return {};
  const std::filesystem::path file = directory / kFile;
  try {
    const std::optional<std::string> text = sim::file_text(file);
    if (!text) return {};
    const nlohmann::json json =
        sim::nested_too_deep(*text) ? nlohmann::json() : nlohmann::json::parse(*text, nullptr, false);
    if (!json.is_object() || !json.contains("schema_version") || json["schema_version"] != kSchemaVersion) {
      runtime::set_aside(
          file, file.string() + " must be a JSON object of schema_version " + std::to_string(kSchemaVersion),
          kDefaults);
      return {};
    }
    Settings read;
    read.theme = json.at("theme").get<std::string>() == "light" ? Theme::light : Theme::dark;
    read.scale = std::clamp(json.at("scale").get<float>(), kLeastScale, kGreatestScale);
    read.layout = json.at("layout").get<std::string>();
    read.closed_panels = json.at("closed_panels").get<std::vector<std::string>>();
    if (json.contains("recent_files"))
      for (const nlohmann::json& recent : json.at("recent_files"))
        read.recent_files.emplace_back(recent.get<std::string>());
    if (json.contains("scenario")) read.scenario = read_scenario(json.at("scenario"), file);
    return read;
  } catch (const nlohmann::json::exception& error) {
    runtime::set_aside(file, file.string() + " must hold what the window wrote: " + error.what(), kDefaults);
  } catch (const std::system_error& error) {
    runtime::set_aside(file, error.what(), kDefaults);
  }
  return {};
}

void save_settings(const Settings& settings, const std::filesystem::path& directory) {
  if (directory.empty()) return;
  nlohmann::json json = {{"schema_version", kSchemaVersion},
                         {"theme", settings.theme == Theme::light ? "light" : "dark"},
                         {"scale", settings.scale},
                         {"layout", settings.layout},
                         {"closed_panels", settings.closed_panels}};
  for (const std::filesystem::path& recent : settings.recent_files)
    json["recent_files"].push_back(recent.string());
  if (settings.scenario) json["scenario"] = nlohmann::json::parse(sim::to_json(*settings.scenario));
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  const auto file = directory / kFile;
  auto temporary = file;
  temporary += ".new";
  std::ofstream out(temporary);
  out << json.dump(2) << '\n';
  out.close();
  if (out) std::filesystem::rename(temporary, file, error);
  if (!out || error)
    throw std::runtime_error("The window's settings could not be written to " + file.string() + ".");
}

}  // namespace app::gui
