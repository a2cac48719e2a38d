// {"schema_version":1, "calibration":{...}, "pieces":3, "timed":[{"piece":0, "place":0, "sample":{...},
// ...}]}
#include "runtime/begun_calibration.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "sim/cost/kernel_sample_fields.h"
#include "sim/scenario/listed_fields.h"

namespace runtime {
namespace {

constexpr int kSchemaVersion = 1;
constexpr std::int64_t kMostPieces = 1'000'000;  // a calibration has some thousands

// A sample of a piece, as a file holds it.
struct PlacedSample {
  std::int64_t piece = 0, place = 0;
  TimedSample timed;
};

void fields(auto& v, sim::Like<PlacedSample> auto& s) {
  v.needed("piece", s.piece);
  v.needed("place", s.place);
  v.needed("sample", s.timed.sample);
  v.needed("arithmetic_seconds", s.timed.pace.arithmetic);
  v.needed("memory_seconds", s.timed.pace.memory);
  v.needed("cores_of_others", s.timed.load);
}

}  // namespace

std::string to_json(const BegunCalibration& begun) {
  std::vector<PlacedSample> timed;
  const std::vector<TimedPiece>& pieces = begun.pieces.all();
  for (std::size_t i = 0; i < pieces.size(); ++i)
    for (const auto& [place, sample] : pieces[i])
      timed.push_back({static_cast<std::int64_t>(i), static_cast<std::int64_t>(place), sample});
  sim::Json json;
  json["schema_version"] = kSchemaVersion;
  json["calibration"] = sim::Json::parse(sim::to_json(begun.calibration));
  json["pieces"] = pieces.size();
  sim::FieldWriter writer(json);
  writer("timed", timed);
  return json.dump(1) + "\n";
}

BegunCalibration begun_calibration_from_json(std::string_view text, const std::string& file) {
  const sim::Json json = sim::parse_json(text, file);
  sim::JsonObject object(json, file);
  if (object.small_integer("schema_version", 0) != kSchemaVersion)
    object.fail("schema_version", "must be " + std::to_string(kSchemaVersion));
  BegunCalibration begun;
  begun.calibration = sim::calibration_from_json(object.at("calibration").dump(), file);
  std::vector<PlacedSample> timed;
  sim::FieldReader(object, sim::kNotNegative).needed("timed", timed);
  const std::int64_t count = object.integer("pieces");
  if (count < 0 || count > kMostPieces) object.fail("pieces", "must be 0 to " + std::to_string(kMostPieces));
  object.finish();
  std::vector<TimedPiece> pieces(static_cast<std::size_t>(count));
  for (const PlacedSample& placed : timed) {
    if (placed.piece >= count) object.fail("timed.piece", "must be below " + std::to_string(count));
    const TimedSample& one = placed.timed;
    if (!(one.sample.median.value > 0)) object.fail("timed.sample.median_seconds", "must be above 0");
    if (!(one.pace.arithmetic > 0) || !(one.pace.memory > 0)) object.fail("timed", "seconds must be above 0");
    pieces[static_cast<std::size_t>(placed.piece)].emplace_back(static_cast<std::size_t>(placed.place), one);
  }
  begun.pieces = TimedPieces(std::move(pieces));
  return begun;
}

}  // namespace runtime
