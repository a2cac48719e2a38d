// A calibration as a file: {"schema_version":1, "device":..., "hardware":{...}, "launch_us":...,
// "samples":[...]}.
#include "sim/cost/calibration.h"
#include "sim/plan/names.h"
#include "sim/scenario/scenario_json.h"

namespace sim {
namespace {

constexpr int kSchemaVersion = 1;

KernelSample sample_from(JsonObject object) {
  KernelSample s;
  s.kind = object.word<OpKind>("kind", op_kind_from_name, "the operation kinds of sim/plan/operation.h");
  s.dtype = object.word<DType>("dtype", dtype_from_name, "fp32, tf32, bf16, fp16, fp8, int8, int4, fp64");
  s.rows = object.integer("rows", 0);
  s.cols = object.integer("cols", 0);
  s.inner = object.integer("inner", 0);
  s.batch = object.integer("batch", 0);
  s.query_length = object.integer("query_length", 0);
  s.kv_length = object.integer("kv_length", 0);
  s.heads = object.integer("heads", 0);
  s.kv_heads = object.integer("kv_heads", 0);
  s.head_dim = object.integer("head_dim", 0);
  s.flops.value = object.number("flops");
  s.bytes.value = object.integer("bytes");
  s.working_set.value = object.integer("working_set_bytes", 0);
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
  Json json;
  json["kind"] = name(s.kind);
  json["dtype"] = name(s.dtype);
  const auto put = [&](const char* key, std::int64_t value) {
    if (value != 0) json[key] = value;
  };
  put("rows", s.rows);
  put("cols", s.cols);
  put("inner", s.inner);
  put("batch", s.batch);
  put("query_length", s.query_length);
  put("kv_length", s.kv_length);
  put("heads", s.heads);
  put("kv_heads", s.kv_heads);
  put("head_dim", s.head_dim);
  json["flops"] = s.flops.value;
  json["bytes"] = s.bytes.value;
  put("working_set_bytes", s.working_set.value);
  json["median_seconds"] = s.median.value;
  json["spread"] = s.spread;
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
  c.residual_median = object.number("residual_median");
  c.residual_p90 = object.number("residual_p90");
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
  json["residual_median"] = c.residual_median;
  json["residual_p90"] = c.residual_p90;
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
