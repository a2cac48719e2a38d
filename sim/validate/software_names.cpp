#include "sim/validate/software_names.h"

#include <cctype>
#include <charconv>
#include <optional>
#include <utility>

#include "sim/json_object.h"
#include "sim/scenario/preset.h"
#include "sim/validate/table_words.h"

namespace sim {
namespace {

using Version = std::pair<int, int>;  // major, minor

// "0.6.1" is {0, 6}: the first number with a dot that begins a word.
std::optional<Version> version_in(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool begins = std::isdigit(static_cast<unsigned char>(text[i])) != 0 &&
                        (i == 0 || text[i - 1] == ' ' || text[i - 1] == 'v');
    if (!begins) continue;
    Version version;
    const char* const last = text.data() + text.size();
    const auto after = std::from_chars(text.data() + i, last, version.first);
    if (after.ptr == last || *after.ptr != '.') continue;
    std::from_chars(after.ptr + 1, last, version.second);
    return version;
  }
  return std::nullopt;
}

struct Release {
  std::optional<Version> version;  // the first version of this software
  std::string from;                // date; empty where only the version tells, or from the beginning
  NamedSoftware software;

  // A row without version and date counts as the newest.
  bool is_out(const std::optional<Version>& named, std::string_view date, bool first) const {
    if (first) return true;
    if (named && version) return *named >= *version;
    return !from.empty() && (date.empty() || date.substr(0, from.size()) >= from);
  }
};

struct Name {
  Names names;
  std::vector<Release> releases;
};

std::vector<Name> software_of(JsonObject& file, std::string_view task) {
  std::vector<Name> names;
  for (JsonObject& entry : file.objects(task)) {
    Name& name = names.emplace_back();
    name.names = names_of(entry.texts("named"));
    const bool nearest = entry.boolean("nearest", false);
    for (JsonObject& release : entry.objects("presets")) {
      Release& r = name.releases.emplace_back();
      r.software = {{release.text("preset")}, nearest};
      if (release.has("or"))
        for (std::string& other : release.texts("or")) r.software.presets.push_back(std::move(other));
      r.version = version_in(release.text("version", ""));
      r.from = release.text("from", "");
      release.finish();
    }
    if (name.releases.empty()) entry.fail("presets", "must name a preset");
    entry.text("source", "");
    entry.finish();
  }
  return names;
}

struct Software {
  std::vector<Name> training, serving;
};

const Software& software() {
  static const Software all = [] {
    const std::filesystem::path path = preset_directory() / "software.json";
    const Json json = parse_json(preset_text(path), path.string());
    JsonObject file(json, path.string());
    return Software{software_of(file, "training"), software_of(file, "serving")};
  }();
  return all;
}

NamedSoftware meant(const std::vector<Name>& names, std::string_view framework, std::string_view date) {
  const std::string cell = lower(framework);
  const std::optional<Version> version = version_in(cell);
  for (const Name& name : names) {
    if (!is_named(name.names, cell)) continue;
    const Release* found = nullptr;
    for (const Release& release : name.releases)
      if (release.is_out(version, date, !found)) found = &release;
    return found->software;
  }
  return {};
}

}  // namespace

NamedSoftware training_software(std::string_view framework, std::string_view date) {
  return meant(software().training, framework, date);
}

NamedSoftware serving_software(std::string_view framework, std::string_view date) {
  return meant(software().serving, framework, date);
}

}  // namespace sim
