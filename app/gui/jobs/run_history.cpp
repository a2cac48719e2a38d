#include "app/gui/jobs/run_history.h"

#include <algorithm>
#include <optional>

#include "runtime/formats/atomic_file.h"
#include "runtime/formats/set_aside.h"
#include "sim/file_text.h"

namespace app::gui {
namespace {

// By its date, which sorts as text; without what file systems refuse.
std::string file_name(const sim::Report& report) {
  std::string name = report.source.date.empty() ? "undated" : report.source.date;
  std::replace(name.begin(), name.end(), ':', '-');
  std::replace(name.begin(), name.end(), '/', '-');
  return name + "_" + report.source.scenario.model.name.substr(0, 40) + ".json";
}

}  // namespace

RunHistory::RunHistory(std::filesystem::path folder) : folder_(std::move(folder)) {
  std::error_code none;
  if (folder_.empty()) return;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, none))
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  std::sort(files.rbegin(), files.rend());
  if (files.size() > kMost) files.resize(kMost);
  for (const auto& file : files) try {
      if (const std::optional<std::string> text = sim::file_text(file))
        all_.push_back(std::make_shared<const sim::Report>(sim::report_from_json(*text, file.string())));
    } catch (const std::exception& error) {  // of another version, or damaged: the others are worth more
      runtime::set_aside(file, error.what(), "the other runs are listed");
    }
}

void RunHistory::add(std::shared_ptr<const sim::Report> report) {
  if (!folder_.empty()) try {
      std::filesystem::create_directories(folder_);
      runtime::write_file(folder_ / file_name(*report), sim::to_json(*report));
      failure_.clear();
    } catch (const std::exception& error) {
      failure_ = std::string("The last run is not kept for the next session: ") + error.what();
    }
  all_.insert(all_.begin(), std::move(report));
  if (all_.size() <= kMost) return;
  if (!folder_.empty()) {
    std::error_code ignored;
    std::filesystem::remove(folder_ / file_name(*all_.back()), ignored);
  }
  all_.pop_back();
}

}  // namespace app::gui
