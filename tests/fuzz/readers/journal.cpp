// The journal of an interrupted search, and the results that it keeps.
// Read by: runtime/work_journal.cpp sim/planner/search_json.cpp
#include <filesystem>

#include "runtime/work_journal.h"
#include "sim/planner/search_json.h"
#include "sim/scenario/preset.h"
#include "tests/fuzz/fuzz.h"

namespace {

constexpr const char* kWork = "a search";
constexpr std::int64_t kPieces = 3;

}  // namespace

std::vector<std::string> fuzz::seeds() {
  const std::filesystem::path path = folder() / "written";
  std::filesystem::remove(path);
  {
    runtime::WorkJournal journal = runtime::WorkJournal::begin(path.string(), kWork, kPieces);
    sim::SearchResult training;
    training.end = training.looked_at = 12;
    training.refused["memory"] = 12;
    journal.add(0, sim::to_json(training));
    journal.add(2, sim::to_json(sim::ServingResult{}));
  }
  return {content(path)};
}

void fuzz::read(std::string_view input) {
  const std::string path = fuzz::file("search.journal", input).string();
  runtime::WorkJournal journal = runtime::WorkJournal::resume(path, kWork, kPieces);
  for (const auto& piece : journal.known()) {
    if (!piece) continue;
    try {
      const std::string training = sim::to_json(sim::search_result_from_json(*piece, path));
      require_same(sim::to_json(sim::search_result_from_json(training, path)), training,
                   "a search's result is written as it is read");
    } catch (const sim::PresetError&) {  // may be of serving
    }
    try {
      sim::serving_result_from_json(*piece, path);
    } catch (const sim::PresetError&) {
    }
  }
  journal.add(1, "{}");
  constexpr const char* kLaw = "what is added is found again";
  const auto resumed =
      require_accepted([&] { return runtime::WorkJournal::resume(path, kWork, kPieces); }, kLaw);
  require(resumed.known()[1] == "{}", kLaw);
}
