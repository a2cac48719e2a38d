#include "sim/scenario/preset.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iterator>
#include <system_error>

#include "sim/enum_array.h"
#include "sim/file_text.h"
#include "sim/scenario/scenario_json.h"

namespace sim {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepestExtension = 8;  // presets that extend presets; more is a circle

std::string_view folder(PresetKind kind) {
  constexpr EnumArray<PresetKind, std::string_view> kFolders{"models",    "hardware",  "implementations",
                                                             "workloads", "scenarios", "series"};
  return kFolders[kind];
}

// What a name is sorted by: "qwen2.5-1.5b" is the family "qwen2.5-" and the size 1.5e9, so that 124m comes
// before 1.5b and 8b before 70b.
struct SortKey {
  std::string family;
  double size = 0;
  std::string name;
  auto operator<=>(const SortKey&) const = default;
};

SortKey sort_key(const std::string& name) {
  const std::size_t dash = name.rfind('-');
  const std::size_t begin = dash == std::string::npos ? 0 : dash + 1;
  const std::string last = name.substr(begin);
  char* end = nullptr;
  const double number = std::strtod(last.c_str(), &end);
  const std::string unit = end;
  double scale = 0;
  if (unit == "m") scale = 1e6;
  if (unit == "b") scale = 1e9;
  if (end == last.c_str() || scale == 0) return {name, 0, name};
  return {name.substr(0, begin), number * scale, name};
}

// A preset's own fields and those of presets that it extends, with the name of its file.
struct PresetFile {
  Json json;
  std::string file;
};

Json merged(PresetKind kind, Json object, const std::string& file, int depth);

fs::path preset_file(PresetKind kind, std::string_view name) {
  return preset_directory() / folder(kind) / (std::string(name) + ".json");
}

bool is_preset(PresetKind kind, std::string_view name) {
  std::error_code error;
  const bool plain =
      name.find_first_of("/\\") == std::string_view::npos;  // a name, no path out of the folder
  return plain && !name.empty() && fs::is_regular_file(preset_file(kind, name), error);
}

PresetFile open_preset(PresetKind kind, std::string_view name, int depth = 0) {
  const std::string known = resolve_alias(kind, name);
  const fs::path path = preset_file(kind, known);
  if (!is_preset(kind, known)) {
    require_preset_directory();
    const std::vector<std::string> names = preset_names(kind);
    std::vector<std::string> near = nearest(known, names);
    const bool any = !near.empty();
    if (!any) near = names;
    constexpr std::size_t kShown = 5;
    std::string list;
    for (std::size_t i = 0; i < near.size() && (i < kShown || !any); ++i) list += (i ? ", " : "") + near[i];
    throw PresetError("there is no " + std::string(sim::name(kind)) + " preset \"" + excerpt(name) + "\"; " +
                      (any ? "near it: " : "there are: ") + list);
  }
  const Json json = parse_json(preset_text(path), path.string());
  if (depth == 0) JsonObject(json, path.string()).text("source");  // every preset says where it comes from
  return {merged(kind, json, path.string(), depth), path.string()};
}

// A field replaces the field of the same name. In lists of named things, one replaces its namesake or joins.
void merge_into(Json& base, const Json& own) {
  if (base.is_object() && own.is_object()) {
    for (const auto& [key, value] : own.items())
      if (base.contains(key))
        merge_into(base[key], value);
      else
        base[key] = value;
    return;
  }
  const auto is_named = [](const Json& item) { return item.is_object() && item.contains("name"); };
  if (!base.is_array() || !own.is_array() || !std::ranges::all_of(own, is_named)) {
    base = own;
    return;
  }
  for (const Json& item : own) {
    const auto same = std::ranges::find_if(
        base, [&](const Json& other) { return is_named(other) && other["name"] == item["name"]; });
    if (same == base.end())
      base.push_back(item);
    else
      *same = item;
  }
}

Json merged(PresetKind kind, Json object, const std::string& file, int depth) {
  if (!object.is_object() || !object.contains("extends")) return object;
  if (depth >= kDeepestExtension) throw PresetError(file + ": field \"extends\" leads in a circle");
  JsonObject reader(object, file);
  const std::string name = reader.text("extends");
  Json base = [&] {
    try {
      return open_preset(kind, name, depth + 1).json;
    } catch (const PresetError& error) {  // the error says what is wrong, not who asked for it
      throw PresetError(file + ": field \"extends\": " + error.what());
    }
  }();
  object.erase("extends");
  // An implementation's profiles are taken over field by field, everything else whole.
  for (const auto& [key, value] : object.items())
    if (kind == PresetKind::implementation && value.is_object() && base.contains(key))
      merge_into(base[key], value);
    else
      base[key] = value;
  return base;
}

template <class Read>
auto load(PresetKind kind, std::string_view name, Read read) {
  const PresetFile preset = open_preset(kind, name);
  const JsonObject object(preset.json, preset.file);
  if constexpr (std::is_invocable_v<Read, JsonObject>)
    return read(object);
  else
    return read(object, fs::path(preset.file).stem().string());
}

}  // namespace

fs::path preset_directory() {
  if (const char* set = std::getenv("RIDGEPOINT_PRESETS"); set != nullptr && *set != '\0') return set;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    const fs::path installed = program.parent_path().parent_path() / "share" / "ridgepoint" / "presets";
    if (fs::is_directory(installed, error)) return installed;
  }
  return RIDGEPOINT_PRESETS_DIR;
}

void require_preset_directory() {
  const fs::path directory = preset_directory();
  std::error_code error;
  if (fs::is_directory(directory / folder(PresetKind::model), error)) return;
  const char* const set = std::getenv("RIDGEPOINT_PRESETS");
  const bool named = set != nullptr && *set != '\0';
  throw std::system_error(std::make_error_code(std::errc::not_a_directory),
                          (named ? "RIDGEPOINT_PRESETS must name the folder of presets: "
                                 : "the presets are not where this program was built or installed: ") +
                              directory.string());
}

std::string preset_text(const fs::path& file) {
  if (std::optional<std::string> text = file_text(file)) return *std::move(text);
  require_preset_directory();
  throw PresetError(file.string() + ": cannot be read");
}

std::vector<std::string> preset_names(PresetKind kind) {
  std::vector<SortKey> keys;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(preset_directory() / folder(kind), error))
    if (entry.path().extension() == ".json") keys.push_back(sort_key(entry.path().stem().string()));
  std::sort(keys.begin(), keys.end());
  std::vector<std::string> names;
  names.reserve(keys.size());
  for (SortKey& key : keys) names.push_back(std::move(key.name));
  return names;
}

namespace {

// A model's name without what different authors write differently: case, punctuation, who published it
// (before a slash), remarks in parentheses, and words that say nothing of its shape.
std::string bare_name(std::string_view name) {
  static constexpr std::string_view kIdleWords[] = {
      "meta", "instruct", "chat", "base", "hf",    "it",      "fp16",     "f16",        "bf16",
      "fp8",  "model",    "v0.1", "v0.3", "dense", "replica", "pretrain", "pretraining"};
  const std::size_t slash = name.find('/');
  const bool published = slash != std::string_view::npos &&
                         name.find('/', slash + 1) == std::string_view::npos &&
                         name.substr(0, slash).find('.') == std::string_view::npos;
  if (published) name.remove_prefix(slash + 1);
  std::string bare, word;
  int depth = 0;
  const auto end_word = [&] {
    if (std::find(std::begin(kIdleWords), std::end(kIdleWords), word) == std::end(kIdleWords)) bare += word;
    word.clear();
  };
  for (const char c : name) {
    depth += (c == '(') - (c == ')');
    const auto byte = static_cast<unsigned char>(c);
    if (depth == 0 && (std::isalnum(byte) || c == '.' || c == '/'))
      word += static_cast<char>(std::tolower(byte));
    else
      end_word();
  }
  end_word();
  return bare;
}

}  // namespace

std::string resolve_alias(PresetKind kind, std::string_view name) {
  if (is_preset(kind, name)) return std::string(name);
  const fs::path file = preset_directory() / "aliases.json";
  std::error_code error;
  Json aliases = Json::object();
  if (fs::exists(file, error)) {
    const Json json = parse_json(preset_text(file), file.string());
    JsonObject all(json, file.string());
    if (all.has(folder(kind))) aliases = all.at(folder(kind));
    if (aliases.contains(name)) return all.object(folder(kind)).text(name);
  }
  if (kind != PresetKind::model) return std::string(name);
  const std::string bare = bare_name(name);
  for (const std::string& preset : preset_names(kind))
    if (bare_name(preset) == bare) return preset;
  for (const auto& [alias, preset] : aliases.items())
    if (bare_name(alias) == bare) return preset.get<std::string>();
  return std::string(name);
}

Json with_base(PresetKind kind, const Json& object, const std::string& file) {
  return merged(kind, object, file, 0);
}

Model load_model_preset(std::string_view name) {
  return load(PresetKind::model, name, model_from);
}

Hardware load_hardware_preset(std::string_view name) {
  if (name == kThisMachine)
    throw PresetError("hardware \"this-machine\" has no preset: the program measures it where it runs");
  return load(PresetKind::hardware, name, hardware_from);
}

std::optional<fs::path> find_preset(PresetKind kind, std::string_view name) {
  try {
    const std::string known = resolve_alias(kind, name);
    if (is_preset(kind, known)) return preset_file(kind, known);
  } catch (const PresetError&) {  // aliases.json is at fault, and whoever loads the preset reads it again
  }
  return std::nullopt;
}

Implementation load_implementation_preset(std::string_view name) {
  return load(PresetKind::implementation, name, implementation_from);
}

Workload load_workload_preset(std::string_view name) {
  return load(PresetKind::workload, name, workload_from);
}

Scenario load_scenario_preset(std::string_view name) {
  return load(PresetKind::scenario, name, scenario_from);
}

SeriesSet load_series_preset(std::string_view name) {
  return load(PresetKind::series, name, series_from);
}

}  // namespace sim
