// A calibration as a file: {"schema_version":1, "device":..., "hardware":{...}, "launch_us":...,
// "samples":[...]}.
#include "sim/cost/calibration.h"
#include "sim/plan/names.h"
#include "sim/scenario/scenario_json.h"

namespace sim {
namespace {

constexpr int kSchemaVersion = 1;
constexpr const char* kKindNames = "the operation kinds of sim/plan/operation.h";
constexpr const char* kTypeNames = "fp32, tf32, bf16, fp16, fp8, int8, int4, fp64";

// The dimensions of a sample under the names of its file; 0 where a kind has none.
void for_each_dimension(auto& sample, auto visit) {
  visit("rows", sample.rows);
  visit("cols", sample.cols);
  visit("inner", sample.inner);
  visit("batch", sample.batch);
  visit("query_length", sample.query_length);
  visit("kv_length", sample.kv_length);
  visit("heads", sample.heads);
  visit("kv_heads", sample.kv_heads);
  visit("head_dim", sample.head_dim);
  visit("working_set_bytes", sample.working_set.value);
}

KernelSample sample_from(JsonObject object) {
  KernelSample s;
  s.kind = object.word<OpKind>("kind", op_kind_from_name, kKindNames);
  s.dtype = object.word<DType>("dtype", dtype_from_name, kTypeNames);
  if (object.has_value("weights")) s.weights = object.word<DType>("weights", dtype_from_name, kTypeNames);
  for_each_dimension(s, [&](const char* key, std::int64_t& value) { value = object.integer(key, 0); });
  s.flops.value = object.number("flops");
  s.bytes.value = object.integer("bytes");
  s.median.value = object.number("median_seconds");
  s.spread = object.number("spread", 0);
  if (!(s.median.value > 0)) object.fail("median_seconds", "must be above 0");
  if (!(s.flops.value >= 0)) object.fail("flops", "must be 0 or more");
  if (s.bytes.value < 0) object.fail("bytes", "must be 0 or more");
  if (s.working_set.value < 0) object.fail("working_set_bytes", "must be 0 or more");
  object.finish();
  return s;
}

Json json_of(const KernelSample& s) {
  Json json{{"kind", name(s.kind)},   {"dtype", name(s.dtype)},           {"flops", s.flops.value},
            {"bytes", s.bytes.value}, {"median_seconds", s.median.value}, {"spread", s.spread}};
  if (s.weights) json["weights"] = name(*s.weights);
  for_each_dimension(s, [&](const char* key, std::int64_t value) {
    if (value != 0) json[key] = value;
  });
  return json;
}

}  // namespace

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
  c.cores_used_by_others = object.number("cores_used_by_others", 0);
  if (!(c.cores_used_by_others >= 0)) object.fail("cores_used_by_others", "must be 0 or more");
  c.residual = {object.number("residual_median"), object.number("residual_p90")};
  if (object.has_value("residuals"))
    for (JsonObject& of_kind : object.objects("residuals")) {
      const auto kind = of_kind.word<OpKind>("kind", op_kind_from_name, kKindNames);
      const auto dtype = of_kind.word<DType>("dtype", dtype_from_name, kTypeNames);
      Residual& residual = c.residual_of[{kind, dtype}];
      residual = {of_kind.number("median"), of_kind.number("p90")};
      if (!(residual.median >= 0)) of_kind.fail("median", "must be 0 or more");
      if (!(residual.p90 >= 0)) of_kind.fail("p90", "must be 0 or more");
      of_kind.finish();
    }
  if (object.has_value("load")) {
    JsonObject load = object.object("load");
    c.load = SustainedLoad{{load.number("burst_flops_per_s")},
                           {load.number("sustained_flops_per_s")},
                           {load.number("lasted_seconds")},
                           load.number("sm_clock_mhz"),
                           load.number("power_w"),
                           load.number("temperature_c"),
                           load.text("throttle")};
    load.finish();
  }
  for (JsonObject& sample : object.objects("samples")) c.samples.push_back(sample_from(std::move(sample)));
  object.finish();
  for (const KernelSample& s : c.samples) {
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
  if (c.cores_used_by_others > 0) json["cores_used_by_others"] = c.cores_used_by_others;
  json["residual_median"] = c.residual.median;
  json["residual_p90"] = c.residual.p90;
  for (const auto& [of, residual] : c.residual_of)
    json["residuals"].push_back({{"kind", name(of.first)},
                                 {"dtype", name(of.second)},
                                 {"median", residual.median},
                                 {"p90", residual.p90}});
  if (c.load)
    json["load"] = {{"burst_flops_per_s", c.load->burst.value},
                    {"sustained_flops_per_s", c.load->sustained.value},
                    {"lasted_seconds", c.load->lasted.value},
                    {"sm_clock_mhz", c.load->sm_clock_mhz},
                    {"power_w", c.load->power_w},
                    {"temperature_c", c.load->temperature_c},
                    {"throttle", c.load->throttle}};
  json["samples"] = Json::array();
  for (const KernelSample& s : c.samples) json["samples"].push_back(json_of(s));
  return json.dump(1) + "\n";
}

}  // namespace sim
