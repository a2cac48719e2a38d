#include "app/gui/settings.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "sim/foreign_text.h"
#include "sim/scenario/preset.h"

namespace app::gui {
namespace {

constexpr int kSchemaVersion = 1;
constexpr const char* kFile = "desktop.json";

std::optional<sim::Scenario> read_scenario(const nlohmann::json& json, const std::filesystem::path& file) {
  try {
    return sim::scenario_from_json(json.dump(), file.string());
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace

Settings load_settings(const std::filesystem::path& directory) {
  Settings settings;
  std::ifstream in(directory / kFile);
  if (directory.empty() || !in) return settings;
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (sim::nested_too_deep(text)) return settings;
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("schema_version") || json["schema_version"] != kSchemaVersion)
    return settings;
  try {
    Settings read;
    read.theme = json.at("theme").get<std::string>() == "light" ? Theme::light : Theme::dark;
    read.scale = std::clamp(json.at("scale").get<float>(), kLeastScale, kGreatestScale);
    read.layout = json.at("layout").get<std::string>();
    read.closed_panels = json.at("closed_panels").get<std::vector<std::string>>();
    if (json.contains("scenario")) read.scenario = read_scenario(json.at("scenario"), directory / kFile);
    return read;
  } catch (const nlohmann::json::exception&) {
    return settings;
  }
}

void save_settings(const Settings& settings, const std::filesystem::path& directory) {
  if (directory.empty()) return;
  nlohmann::json json = {{"schema_version", kSchemaVersion},
                         {"theme", settings.theme == Theme::light ? "light" : "dark"},
                         {"scale", settings.scale},
                         {"layout", settings.layout},
                         {"closed_panels", settings.closed_panels}};
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
