#include "sim/report/report_json.h"

#include <limits>

#include "sim/plan/names.h"
#include "sim/scenario/scenario_json.h"

namespace sim {
namespace {

constexpr std::string_view kPhaseWords = "forward, recompute, backward, optimizer, prefill, decode";

// 8 PiB, and as many runs: sums of such numbers stay inside 64 bits.
constexpr std::int64_t kMost = std::int64_t{1} << 53;

std::int64_t count_at(JsonObject& object, std::string_view key) {
  const std::int64_t value = object.integer(key);
  if (value < 0 || value > kMost) object.fail(key, "must be from 0 to 2^53, but is " + std::to_string(value));
  return value;
}
Bytes bytes_at(JsonObject& object, std::string_view key) {
  return {count_at(object, key)};
}
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

Row row_from(JsonObject& object) {
  Row r;
  r.id = object.text("id");
  r.phase = object.word("phase", phase_from_name, kPhaseWords);
  r.rank = object.small_integer("rank", 0);
  r.kind = object.word("kind", op_kind_from_name, "the kinds of operations of a plan");
  r.count = count_at(object, "count");
  r.start = seconds_at(object, "start_seconds");
  r.duration = seconds_at(object, "duration_seconds");
  r.low = seconds_at(object, "low_seconds");
  r.high = seconds_at(object, "high_seconds");
  r.flops = {object.number("flops")};
  r.model_flops = {object.number("model_flops")};
  r.memory = bytes_at(object, "memory_bytes");
  r.network = bytes_at(object, "network_bytes");
  r.bound = object.word("bound", bound_from_name, "compute, memory, launch, network, host, bubble");
  r.provenance =
      object.word("provenance", provenance_from_name, "measured, calibrated, interpolated, datasheet");
  r.fused_into = object.text("fused_into", "");
  if (object.has_value("exposed_seconds")) {
    r.exposed = seconds_at(object, "exposed_seconds");
    if (!(r.exposed->value >= 0)) object.fail("exposed_seconds", "must be 0 or more");
  }
  return r;
}

Json json_of(const Row& r) {
  Json json{{"id", r.id},
            {"phase", name(r.phase)},
            {"rank", r.rank},
            {"kind", name(r.kind)},
            {"count", r.count},
            {"start_seconds", r.start.value},
            {"duration_seconds", r.duration.value},
            {"low_seconds", r.low.value},
            {"high_seconds", r.high.value},
            {"flops", r.flops.value},
            {"model_flops", r.model_flops.value},
            {"memory_bytes", r.memory.value},
            {"network_bytes", r.network.value},
            {"bound", name(r.bound)},
            {"provenance", name(r.provenance)}};
  if (!r.fused_into.empty()) json["fused_into"] = r.fused_into;
  if (r.exposed) json["exposed_seconds"] = r.exposed->value;
  return json;
}

MemoryLine memory_line_from(JsonObject& object) {
  MemoryLine line;
  line.category = object.text("category");
  line.rank = object.small_integer("rank", 0);
  line.bytes = bytes_at(object, "bytes");
  return line;
}

Json json_of(const MemoryLine& line) {
  return {{"category", line.category}, {"rank", line.rank}, {"bytes", line.bytes.value}};
}

MemoryTimePoint memory_time_point_from(JsonObject& object) {
  MemoryTimePoint point;
  point.time = seconds_at(object, "time_seconds");
  JsonObject bytes = object.object("bytes");
  for (int c = 0; c < kBufferClasses; ++c)
    point.bytes[c] = bytes_at(bytes, name(static_cast<BufferClass>(c)));
  bytes.finish();
  return point;
}

Json json_of(const MemoryTimePoint& point) {
  Json bytes = Json::object();
  for (int c = 0; c < kBufferClasses; ++c)
    bytes[std::string(name(static_cast<BufferClass>(c)))] = point.bytes[c].value;
  return {{"time_seconds", point.time.value}, {"bytes", std::move(bytes)}};
}

StepResult step_from(JsonObject& object) {
  StepResult step;
  step.step = object.integer("step");
  step.loss = object.number("loss");
  step.grad_norm = object.number("grad_norm");
  step.duration = seconds_at(object, "seconds");
  step.tokens = count_at(object, "tokens");
  return step;
}

Json json_of(const StepResult& step) {
  return {{"step", step.step},
          {"loss", step.loss},
          {"grad_norm", step.grad_norm},
          {"seconds", step.duration.value},
          {"tokens", step.tokens}};
}

TokenResult token_from(JsonObject& object) {
  TokenResult token;
  token.index = object.integer("index");
  token.token = object.small_integer("token", -1);
  token.text = object.text("text");
  token.duration = seconds_at(object, "seconds");
  return token;
}

Json json_of(const TokenResult& token) {
  return {{"index", token.index},
          {"token", token.token},
          {"text", token.text},
          {"seconds", token.duration.value}};
}

DeviceSample device_sample_from(JsonObject& object) {
  DeviceSample sample;
  sample.time = seconds_at(object, "time_seconds");
  sample.sm_clock_mhz = object.number("sm_clock_mhz");
  sample.memory_clock_mhz = object.number("memory_clock_mhz");
  sample.power_w = object.number("power_w");
  sample.temperature_c = object.number("temperature_c");
  sample.throttle = object.text("throttle");
  return sample;
}

Json json_of(const DeviceSample& sample) {
  return {{"time_seconds", sample.time.value},           {"sm_clock_mhz", sample.sm_clock_mhz},
          {"memory_clock_mhz", sample.memory_clock_mhz}, {"power_w", sample.power_w},
          {"temperature_c", sample.temperature_c},       {"throttle", sample.throttle}};
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
