#include "app/gui/opened_file.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "app/cli/report_output.h"
#include "app/gui/figures/carried.h"
#include "runtime/model_source.h"
#include "sim/file_text.h"
#include "sim/foreign_text.h"
#include "sim/scenario/preset.h"

namespace app::gui {
namespace {

std::string text_of(const std::filesystem::path& file) {
  if (std::optional<std::string> text = sim::file_text(file)) return *std::move(text);
  throw std::runtime_error(file.string() + " cannot be read.");
}

}  // namespace

OpenedFile read_opened(const std::filesystem::path& file) {
  const std::string ending = file.extension().string();
  if (std::filesystem::is_directory(file) || ending == ".gguf")
    return runtime::open_model(file.string()).model;
  if (ending == ".ndjson") return cli::read_events(file.string());
  const bool is_export = ending == ".png" || ending == ".svg" || ending == ".html";
  if (ending != ".json" && !is_export) return {};
  const std::string text = text_of(file);
  if (is_export) {
    const auto carried = carried_scenario(text);
    if (!carried) throw std::runtime_error(file.string() + " carries no scenario.");
    return sim::scenario_from_json(*carried, file.string());
  }
  const nlohmann::json json =
      sim::nested_too_deep(text) ? nlohmann::json() : nlohmann::json::parse(text, nullptr, false);
  const auto has = [&](const char* key) { return json.is_object() && json.contains(key); };
  if (has("report") || has("rows")) return cli::read_events(file.string());
  if (has("model_type") || has("architectures"))
    return sim::model_from_hugging_face_config(text, file.string());
  return sim::scenario_from_json(text, file.string());
}

void save_scenario(const sim::Scenario& scenario, const std::filesystem::path& file) {
  auto beside = file;
  beside += ".new";
  std::ofstream out(beside);
  out << sim::to_json(scenario) << '\n';
  out.close();
  std::error_code error;
  if (out) std::filesystem::rename(beside, file, error);
  if (!out || error) throw std::runtime_error("The scenario could not be written to " + file.string() + ".");
}

}  // namespace app::gui
