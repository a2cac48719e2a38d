#include "app/gui/settings.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>

#include "runtime/formats/set_aside.h"
#include "runtime/text/unicode.h"
#include "sim/file_text.h"
#include "sim/foreign_text.h"
#include "sim/preset_error.h"

namespace app::gui {
namespace {

constexpr int kSchemaVersion = 1;
constexpr const char* kFile = "desktop.json";

constexpr const char* kDefaults = "the window opens with its own settings";

void read_tabs(Settings& settings, const nlohmann::json& json, const std::filesystem::path& file,
               std::string& problem) {
  const auto add = [&](const nlohmann::json& one) {
    if (auto tab = tab_from_json(one, file.string(), problem)) settings.tabs.push_back(std::move(*tab));
  };
  if (json.contains("tabs")) {
    for (const nlohmann::json& one : json.at("tabs")) add(one);
    settings.tab = json.at("tab").get<std::size_t>();
  } else if (json.contains("scenario")) {
    add(json);  // as versions without tabs wrote it
  }
  if (settings.tab >= settings.tabs.size()) settings.tab = 0;
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
    read.theme = theme_called(json.at("theme").get<std::string>()).value_or(Theme::dark);
    read.scale = std::clamp(json.at("scale").get<float>(), kLeastScale, kGreatestScale);
    read.layout = json.at("layout").get<std::string>();
    read.closed_panels = json.at("closed_panels").get<std::vector<std::string>>();
    if (json.contains("bytes"))
      read.bytes = sim::from_name<sim::ByteUnits>(json.at("bytes").get<std::string>())
                       .value_or(sim::ByteUnits::binary);
    if (json.contains("reduced_motion")) read.still = json.at("reduced_motion").get<bool>();
    if (json.contains("recent_files"))
      for (const nlohmann::json& recent : json.at("recent_files"))
        read.recent_files.emplace_back(recent.get<std::string>());
    if (json.contains("keys")) read.keys = json.at("keys").get<std::map<std::string, std::string>>();
    std::string problem;  // of one part, which costs the others nothing
    read_tabs(read, json, file, problem);
    if (json.contains("lectures"))
      read.lectures = lectures_from_json(json.at("lectures"), file.string(), problem);
    if (!problem.empty())
      runtime::set_aside(file, problem,
                         read.tabs.empty() ? "the window opens with its first scenario"
                                           : "the window opens with what could be read");
    return read;
  } catch (const nlohmann::json::exception& error) {
    runtime::set_aside(file, file.string() + " must hold what the window wrote: " + error.what(), kDefaults);
  } catch (const std::system_error& error) {
    runtime::set_aside(file, error.what(), kDefaults);
  } catch (const sim::PresetError& error) {  // it does not end
    runtime::set_aside(file, error.what(), kDefaults);
  }
  return {};
}

void save_settings(const Settings& settings, const std::filesystem::path& directory) {
  if (directory.empty()) return;
  nlohmann::json json = {{"schema_version", kSchemaVersion},
                         {"theme", name(settings.theme)},
                         {"scale", settings.scale},
                         {"bytes", sim::name(settings.bytes)},
                         {"reduced_motion", settings.still},
                         {"layout", settings.layout},
                         {"closed_panels", settings.closed_panels}};
  // JSON is UTF-8, and a name of a file need not be: such a one is forgotten.
  for (const std::filesystem::path& recent : settings.recent_files)
    if (runtime::is_valid_utf8(recent.string())) json["recent_files"].push_back(recent.string());
  if (!settings.keys.empty()) json["keys"] = settings.keys;
  if (!settings.lectures.empty()) json["lectures"] = to_json(settings.lectures);
  for (const SavedTab& tab : settings.tabs) json["tabs"].push_back(to_json(tab));
  if (!settings.tabs.empty()) json["tab"] = settings.tab;
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
