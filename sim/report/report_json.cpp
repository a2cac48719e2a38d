#include "sim/report/report_json.h"

#include "sim/scenario/scenario_json.h"

namespace sim {
namespace {

Seconds seconds_at(JsonObject& object, std::string_view key) {
  return {object.number(key)};
}

std::uint64_t seed_at(JsonObject& object) {
  const Json& value = object.at("seed");
  if (!value.is_number_unsigned()) object.fail("seed", "must be a whole number from 0 to 2^64 - 1");
  return value.get<std::uint64_t>();
}

template <class Part>
std::vector<Part> parts(JsonObject& object, std::string_view key, Part (*read)(JsonObject&)) {
  std::vector<Part> all;
  for (JsonObject& element : object.objects(key)) {
    all.push_back(read(element));
    element.finish();
  }
  return all;
}

template <class Part>
Json array_of(const std::vector<Part>& all) {
  Json array = Json::array();
  for (const Part& part : all) array.push_back(json_of(part));
  return array;
}

}  // namespace

std::string written(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

Source source_from(JsonObject& object) {
  Source s;
  s.kind = object.word<ReportKind>("kind");
  s.scenario = scenario_from(object.object("scenario"));
  s.device = object.text("device");
  s.date = object.text("date");
  s.software = object.text("software");
  s.seed = seed_at(object);
  s.calibration = object.text("calibration");
  if (object.has_value("slowdown")) {
    JsonObject slowdown = object.object("slowdown");
    for (auto [key, value] :
         {std::pair{"arithmetic", &s.slowdown.arithmetic}, {"memory", &s.slowdown.memory}}) {
      *value = slowdown.number(key);
      if (!(*value > 0)) slowdown.fail(key, "must be above 0: 2 is twice as long as when calibrated");
    }
    slowdown.finish();
  }
  return s;
}

Json json_of(const Source& s) {
  Json json{{"kind", name(s.kind)},        {"scenario", json_of(s.scenario)},
            {"device", s.device},          {"date", s.date},
            {"software", s.software},      {"seed", s.seed},
            {"calibration", s.calibration}};
  if (s.slowdown != Slowdown{})
    json["slowdown"] = {{"arithmetic", s.slowdown.arithmetic}, {"memory", s.slowdown.memory}};
  return json;
}

void fields(auto& v, Like<Row> auto& r) {
  v.needed("id", r.id);
  v.needed("phase", r.phase);
  v("rank", r.rank);
  v.needed_word("kind", r.kind, "the kinds of operations of a plan");
  v.needed("count", r.count);
  v.needed("start_seconds", r.start.value);
  v.needed("duration_seconds", r.duration.value);
  v.needed("low_seconds", r.low.value);
  v.needed("high_seconds", r.high.value);
  v.needed("flops", r.flops.value);
  v.needed("model_flops", r.model_flops.value);
  v.needed("memory_bytes", r.memory.value);
  v.needed("network_bytes", r.network.value);
  v.needed("bound", r.bound);
  v.needed("provenance", r.provenance);
  v.unless_zero("fused_into", r.fused_into);
}

Row row_from(JsonObject& object) {
  Row r = struct_from<Row>(object, kReportNumbers);
  if (object.has_value("exposed_seconds")) {
    r.exposed = seconds_at(object, "exposed_seconds");
    if (!(r.exposed->value >= 0)) object.fail("exposed_seconds", "must be 0 or more");
  }
  return r;
}

Json json_of(const Row& r) {
  Json json = FieldWriter::object_of(r);
  if (r.exposed) json["exposed_seconds"] = r.exposed->value;
  return json;
}

MemoryTimePoint memory_time_point_from(JsonObject& object) {
  MemoryTimePoint point;
  point.time = seconds_at(object, "time_seconds");
  JsonObject bytes = object.object("bytes");
  FieldReader bytes_reader(bytes, kReportNumbers);
  for (int c = 0; c < kBufferClasses; ++c)
    bytes_reader.needed(std::string(name(static_cast<BufferClass>(c))).c_str(), point.bytes[c].value);
  bytes.finish();
  return point;
}

Json json_of(const MemoryTimePoint& point) {
  Json bytes = Json::object();
  for (int c = 0; c < kBufferClasses; ++c)
    bytes[std::string(name(static_cast<BufferClass>(c)))] = point.bytes[c].value;
  return {{"time_seconds", point.time.value}, {"bytes", std::move(bytes)}};
}

std::string to_json(const Report& report, int indent) {
  const auto listed_array = [](const auto& parts) {
    Json array = Json::array();
    for (const auto& part : parts) array.push_back(FieldWriter::object_of(part));
    return array;
  };
  const Json json{{"schema_version", report.schema_version},
                  {"source", json_of(report.source)},
                  {"step_seconds", report.step_time.value},
                  {"step_low_seconds", report.step_low.value},
                  {"step_high_seconds", report.step_high.value},
                  {"waiting_for_slowest_seconds", report.waiting_for_slowest.value},
                  {"expert_imbalance", report.expert_imbalance},
                  {"message", report.message},
                  {"rows", array_of(report.rows)},
                  {"memory", listed_array(report.memory)},
                  {"memory_timeline", array_of(report.memory_timeline)},
                  {"steps", listed_array(report.steps)},
                  {"tokens", listed_array(report.tokens)},
                  {"device_samples", listed_array(report.device_samples)}};
  return written(json, indent);
}

Report report_from_json(std::string_view text, const std::string& file) {
  const Json json = parse_json(text, file);
  JsonObject object(json, file);
  Report report;
  report.schema_version = object.small_integer("schema_version", 0);
  if (report.schema_version != kReportSchemaVersion)
    object.fail("schema_version", "must be " + std::to_string(kReportSchemaVersion));
  JsonObject source = object.object("source");
  report.source = source_from(source);
  source.finish();
  report.step_time = seconds_at(object, "step_seconds");
  report.step_low = seconds_at(object, "step_low_seconds");
  report.step_high = seconds_at(object, "step_high_seconds");
  report.waiting_for_slowest = {object.number("waiting_for_slowest_seconds", 0)};
  report.expert_imbalance = object.number("expert_imbalance", 0);
  report.message = object.text("message");
  report.rows = parts(object, "rows", row_from);
  FieldReader reader(object, kReportNumbers);
  reader.needed("memory", report.memory);
  report.memory_timeline = parts(object, "memory_timeline", memory_time_point_from);
  reader.needed("steps", report.steps);
  reader.needed("tokens", report.tokens);
  if (object.has_value("device_samples"))
    reader("device_samples", report.device_samples);  // none in older ones
  object.finish();
  return report;
}

}  // namespace sim
