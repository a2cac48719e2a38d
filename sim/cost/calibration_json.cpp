// A calibration as a file: {"schema_version":1, "device":..., "hardware":{...}, "launch_us":...,
// "samples":[...]}.
#include <algorithm>
#include <functional>

#include "sim/cost/calibration.h"
#include "sim/cost/kernel_sample_fields.h"
#include "sim/scenario/listed_fields.h"
#include "sim/scenario/scenario_json.h"

namespace sim {
namespace {

constexpr int kSchemaVersion = 1;

}  // namespace

void fields(auto& v, Like<CollectiveSample> auto& s) {
  v.needed_word("kind", s.kind, kKindNames);
  v.needed("ranks", s.ranks);
  v.needed("bytes", s.bytes.value);
  v.needed("median_seconds", s.median.value);
}

void fields(auto& v, Like<CacheShare> auto& s) {
  v.needed("working_set_bytes", s.working_set.value);
  v.needed("from_memory", s.from_memory);
  v.require(s.from_memory <= 1, "from_memory", "must be 1 or less");
}

void fields(auto& v, Like<SustainedLoad> auto& load) {
  using P = SustainedLoad;
  v.needed("burst_flops_per_s", load.burst.value);
  v.needed("sustained_flops_per_s", load.sustained.value);
  v.needed("lasted_seconds", load.lasted.value);
  needed<&P::sm_clock_mhz, &P::power_w, &P::temperature_c, &P::throttle>(v, load);
}

Calibration calibration_from_json(std::string_view text, const std::string& file) {
  const Json json = parse_json(text, file);
  JsonObject object(json, file);
  Calibration c;
  c.schema_version = object.small_integer("schema_version", 0);
  if (c.schema_version != kSchemaVersion)
    object.fail("schema_version", "must be " + std::to_string(kSchemaVersion));
  c.device = object.text("device");
  c.date = object.text("date");
  c.software = object.text("software");
  c.hardware = hardware_from(object.object("hardware"), "");
  c.launch.value = object.number("launch_seconds");
  if (!(c.launch.value >= 0)) object.fail("launch_seconds", "must be 0 or more");
  c.change.value = object.number("change_seconds", 0);
  if (!(c.change.value >= 0)) object.fail("change_seconds", "must be 0 or more");
  c.cores_used_by_others = object.number("cores_used_by_others", 0);
  if (!(c.cores_used_by_others >= 0)) object.fail("cores_used_by_others", "must be 0 or more");
  c.residual = {object.number("residual_median"), object.number("residual_p90")};
  if (object.has_value("residuals"))
    for (JsonObject& of_kind : object.objects("residuals")) {
      const auto kind = of_kind.word<OpKind>("kind", kKindNames);
      const auto dtype = of_kind.word<DType>("dtype");
      Residual& residual = c.residual_of[{kind, dtype}];
      residual = {of_kind.number("median"), of_kind.number("p90")};
      if (!(residual.median >= 0)) of_kind.fail("median", "must be 0 or more");
      if (!(residual.p90 >= 0)) of_kind.fail("p90", "must be 0 or more");
      of_kind.finish();
    }
  FieldReader(object, kAnyNumbers)("load", c.load);
  FieldReader(object, kNotNegative).needed("samples", c.samples);
  FieldReader(object, kNotNegative)("collectives", c.collectives);
  FieldReader(object, kNotNegative)("cache_shares", c.cache_shares);
  object.finish();
  if (std::ranges::adjacent_find(c.cache_shares, std::ranges::greater_equal(), &CacheShare::working_set) !=
      c.cache_shares.end())
    object.fail("cache_shares.working_set_bytes", "must ascend");
  for (const CollectiveSample& s : c.collectives) {
    if (!(s.median.value > 0)) object.fail("collectives.median_seconds", "must be above 0");
    if (s.bytes.value <= 0) object.fail("collectives.bytes", "must be above 0");
    if (s.ranks < 2) object.fail("collectives.ranks", "must be 2 or more");
  }
  for (const KernelSample& s : c.samples) {
    if (!(s.median.value > 0)) object.fail("samples.median_seconds", "must be above 0");
    try {
      roofline_time(c.hardware, c.launch, s.dtype, s.flops, s.bytes);
    } catch (const PresetError& error) {
      object.fail("samples", std::string("is of other hardware: ") + error.what());
    }
  }
  return c;
}

std::string to_json(const Calibration& c) {
  Json json;
  json["schema_version"] = c.schema_version;
  json["device"] = c.device;
  json["date"] = c.date;
  json["software"] = c.software;
  json["hardware"] = json_of(c.hardware);
  json["launch_seconds"] = c.launch.value;
  if (c.change.value > 0) json["change_seconds"] = c.change.value;
  if (c.cores_used_by_others > 0) json["cores_used_by_others"] = c.cores_used_by_others;
  json["residual_median"] = c.residual.median;
  json["residual_p90"] = c.residual.p90;
  for (const auto& [of, residual] : c.residual_of)
    json["residuals"].push_back({{"kind", name(of.first)},
                                 {"dtype", name(of.second)},
                                 {"median", residual.median},
                                 {"p90", residual.p90}});
  FieldWriter writer(json);
  writer("load", c.load);
  writer("samples", c.samples);
  if (!c.collectives.empty()) writer("collectives", c.collectives);
  if (!c.cache_shares.empty()) writer("cache_shares", c.cache_shares);
  return json.dump(1) + "\n";
}

}  // namespace sim
