#include "sim/scenario/memory_levels.h"

#include <algorithm>
#include <functional>

#include "sim/json_object.h"
#include "sim/scenario/preset.h"

namespace sim {
namespace {

constexpr double kGiga = 1e9;

}  // namespace

std::vector<MemoryLevel> levels_on_chip(std::string_view json, const std::string& file,
                                        std::string_view hardware) {
  const Json parsed = parse_json(json, file);
  JsonObject all(parsed, file);
  std::vector<MemoryLevel> levels;
  for (JsonObject& object : all.objects("levels")) {
    const std::vector<std::string> names = object.texts("hardware");
    MemoryLevel level{object.text("level"), BytesPerSecond{object.number("gb_per_s") * kGiga},
                      object.text("source")};
    if (!(level.bandwidth.value > 0)) object.fail("gb_per_s", "must be above 0");
    object.finish();
    if (std::ranges::find(names, hardware) != names.end()) levels.push_back(std::move(level));
  }
  all.finish();
  return levels;
}

std::vector<MemoryLevel> memory_levels(const Hardware& hardware) {
  std::vector<MemoryLevel> levels;
  if (hardware.name != kThisMachine) {
    const std::filesystem::path path = preset_directory() / "memory_levels.json";
    levels = levels_on_chip(preset_text(path), path.string(), hardware.name);
  }
  if (hardware.memory_bandwidth.value > 0)
    levels.push_back({"memory", hardware.memory_bandwidth, hardware.source});
  if (hardware.host_link.value > 0) levels.push_back({"host link", hardware.host_link, hardware.source});
  std::ranges::stable_sort(levels, std::greater<>{}, &MemoryLevel::bandwidth);
  return levels;
}

}  // namespace sim
