#include "sim/report/report_json.h"

#include "sim/plan/names.h"
#include "sim/scenario/listed_fields.h"
#include "sim/scenario/scenario_json.h"

namespace sim {
namespace {

// 8 PiB, and as many runs: sums of such numbers stay inside 64 bits.
constexpr std::int64_t kMost = std::int64_t{1} << 53;
constexpr LegalNumbers kReportNumbers{
    .least_count = 0, .most_count = kMost, .words = "must be from 0 to 2^53"};

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
  s.kind = object.word("kind", report_kind_from_name, "predicted, measured, recorded");
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
  v.needed_word("phase", r.phase, phase_from_name,
                "forward, recompute, backward, optimizer, prefill, decode");
  v("rank", r.rank);
  v.needed_word("kind", r.kind, op_kind_from_name, "the kinds of operations of a plan");
  v.needed("count", r.count);
  v.needed("start_seconds", r.start.value);
  v.needed("duration_seconds", r.duration.value);
  v.needed("low_seconds", r.low.value);
  v.needed("high_seconds", r.high.value);
  v.needed("flops", r.flops.value);
  v.needed("model_flops", r.model_flops.value);
  v.needed("memory_bytes", r.memory.value);
  v.needed("network_bytes", r.network.value);
  v.needed_word("bound", r.bound, bound_from_name, "compute, memory, launch, network, host, bubble");
  v.needed_word("provenance", r.provenance, provenance_from_name,
                "measured, calibrated, interpolated, datasheet");
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

void fields(auto& v, Like<MemoryLine> auto& line) {
  v.needed("category", line.category);
  v("rank", line.rank);
  v.needed("bytes", line.bytes.value);
}

MemoryLine memory_line_from(JsonObject& object) {
  return struct_from<MemoryLine>(object, kReportNumbers);
}

Json json_of(const MemoryLine& line) {
  return FieldWriter::object_of(line);
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

void fields(auto& v, Like<StepResult> auto& step) {
  v.needed("step", step.step);
  v.needed("loss", step.loss);
  v.needed("grad_norm", step.grad_norm);
  v.needed("seconds", step.duration.value);
  v.needed("tokens", step.tokens);
}

StepResult step_from(JsonObject& object) {
  return struct_from<StepResult>(object, kReportNumbers);
}

Json json_of(const StepResult& step) {
  return FieldWriter::object_of(step);
}

void fields(auto& v, Like<TokenResult> auto& token) {
  v.needed("index", token.index);
  v("token", token.token);
  v.needed("text", token.text);
  v.needed("seconds", token.duration.value);
}

TokenResult token_from(JsonObject& object) {
  return struct_from<TokenResult>(object, kReportNumbers);
}

Json json_of(const TokenResult& token) {
  return FieldWriter::object_of(token);
}

void fields(auto& v, Like<DeviceSample> auto& sample) {
  v.needed("time_seconds", sample.time.value);
  v.needed("sm_clock_mhz", sample.sm_clock_mhz);
  v.needed("memory_clock_mhz", sample.memory_clock_mhz);
  v.needed("power_w", sample.power_w);
  v.needed("temperature_c", sample.temperature_c);
  v.needed("throttle", sample.throttle);
}

DeviceSample device_sample_from(JsonObject& object) {
  return struct_from<DeviceSample>(object, kReportNumbers);
}

Json json_of(const DeviceSample& sample) {
  return FieldWriter::object_of(sample);
}

std::string to_json(const Report& report, int indent) {
  const Json json{{"schema_version", report.schema_version},
                  {"source", json_of(report.source)},
                  {"step_seconds", report.step_time.value},
                  {"step_low_seconds", report.step_low.value},
                  {"step_high_seconds", report.step_high.value},
                  {"waiting_for_slowest_seconds", report.waiting_for_slowest.value},
                  {"message", report.message},
                  {"rows", array_of(report.rows)},
                  {"memory", array_of(report.memory)},
                  {"memory_timeline", array_of(report.memory_timeline)},
                  {"steps", array_of(report.steps)},
                  {"tokens", array_of(report.tokens)},
                  {"device_samples", array_of(report.device_samples)}};
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
  report.message = object.text("message");
  report.rows = parts(object, "rows", row_from);
  report.memory = parts(object, "memory", memory_line_from);
  report.memory_timeline = parts(object, "memory_timeline", memory_time_point_from);
  report.steps = parts(object, "steps", step_from);
  report.tokens = parts(object, "tokens", token_from);
  // Reports of before there were any have none.
  if (object.has_value("device_samples"))
    report.device_samples = parts(object, "device_samples", device_sample_from);
  object.finish();
  return report;
}

}  // namespace sim
