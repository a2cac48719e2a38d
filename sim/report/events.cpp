#include "sim/report/events.h"

#include <algorithm>

#include "sim/report/report_json.h"

namespace sim {

void fields(auto& v, Like<ProgressEvent> auto& e) {
  v.needed("what", e.what);
  v.needed("done", e.done);
  v.needed("of", e.of);
  v.needed("seconds_left", e.left.value);
}

void fields(auto& v, Like<CheckpointEvent> auto& e) {
  v.needed("step", e.step);
  v.needed("file", e.file);
}

void fields(auto& v, Like<TimelineSlot> auto& slot) {
  v.needed("stage", slot.stage);
  v.needed("phase", slot.phase);
  v("inputs", slot.inputs);
  v("weights", slot.weights);
  v.needed("micro_batch", slot.micro_batch);
  v.needed("chunk", slot.chunk);
  v.needed("start_seconds", slot.start.value);
  v.needed("end_seconds", slot.end.value);
  v("recompute_seconds", slot.recompute.value);
}

void fields(auto& v, Like<RankTimelineEvent> auto& e) {
  v.needed("step", e.step);
  v.needed("rank", e.rank);
  v.needed("ranks", e.ranks);
  v.needed("slots", e.slots);
}

void fields(auto& v, Like<OperationName> auto& name) {
  v.needed("id", name.id);
  v.needed("phase", name.phase);
}

void fields(auto& v, Like<OperationSpan> auto& span) {
  v.needed("name", span.name);
  v.needed("layer", span.layer);
  v.needed("micro_batch", span.micro_batch);
  v("stream", span.stream);
  v.needed("start_seconds", span.start.value);
  v.needed("end_seconds", span.end.value);
}

void fields(auto& v, Like<OperationTimelineEvent> auto& e) {
  v.needed("step", e.step);
  v.needed("rank", e.rank);
  v.needed("ranks", e.ranks);
  v.needed("step_seconds", e.duration.value);
  v.needed("names", e.timeline.names);
  v.needed("spans", e.timeline.spans);
}

void fields(auto& v, Like<EndEvent> auto& e) {
  v.needed("step_seconds", e.step_time.value);
  v.needed("step_low_seconds", e.step_low.value);
  v.needed("step_high_seconds", e.step_high.value);
  v.needed("message", e.message);
  v("waiting_for_slowest_seconds", e.waiting_for_slowest.value);
  v("expert_imbalance", e.expert_imbalance);
}

void fields(auto& v, Like<ErrorEvent> auto& e) {
  v.needed("message", e.message);
  v("exit_code", e.exit_code);
}

namespace {

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};

// {"event": name, ...fields}
Json named(std::string_view event, const Json& fields) {
  Json json{{"event", event}};
  json.update(fields);
  return json;
}

Json json_of(const StepMemoryEvent& e) {
  Json points = Json::array();
  for (const MemoryTimePoint& point : e.points) points.push_back(sim::json_of(point));
  return {{"event", "step_memory"},         {"step", e.step},
          {"begin_seconds", e.begin.value}, {"step_seconds", e.duration.value},
          {"in_use_bytes", e.in_use.value}, {"points", std::move(points)}};
}

StepMemoryEvent step_memory_from(JsonObject& object) {
  StepMemoryEvent e{object.integer("step"),
                    {object.number("begin_seconds")},
                    {object.number("step_seconds")},
                    {object.integer("in_use_bytes")},
                    {}};
  for (JsonObject& point : object.objects("points")) {
    e.points.push_back(memory_time_point_from(point));
    point.finish();
  }
  return e;
}

// Spans name one of the names.
OperationTimelineEvent operation_timeline_from(JsonObject& object) {
  auto e = struct_from<OperationTimelineEvent>(object, kReportNumbers);
  for (const OperationSpan& span : e.timeline.spans)
    if (span.name < 0 || static_cast<std::size_t>(span.name) >= e.timeline.names.size())
      object.fail("spans", "must each have a name below " + std::to_string(e.timeline.names.size()) +
                               ", as many as there are");
  return e;
}

Json json_of(const Event& event) {
  return std::visit(
      Overloaded{
          [](const BeginEvent& e) {
            return Json{{"event", "begin"},
                        {"schema_version", kReportSchemaVersion},
                        {"source", sim::json_of(e.source)},
                        {"planned", e.planned}};
          },
          [](const ProgressEvent& e) { return named("progress", FieldWriter::object_of(e)); },
          [](const StepEvent& e) {
            Json json = named("step", FieldWriter::object_of(e.step));
            // For whoever reads the stream without this code; it follows from the two fields before
            // it.
            json["tokens_per_s"] = static_cast<double>(e.step.tokens) / e.step.duration.value;
            return json;
          },
          [](const TokenEvent& e) { return named("token", FieldWriter::object_of(e.token)); },
          [](const RowEvent& e) { return named("row", sim::json_of(e.row)); },
          [](const MemoryEvent& e) { return named("memory", FieldWriter::object_of(e.line)); },
          [](const MemoryPointEvent& e) { return named("memory_point", sim::json_of(e.point)); },
          [](const CheckpointEvent& e) { return named("checkpoint", FieldWriter::object_of(e)); },
          [](const DeviceSampleEvent& e) { return named("device_sample", FieldWriter::object_of(e.sample)); },
          [](const RankTimelineEvent& e) { return named("rank_timeline", FieldWriter::object_of(e)); },
          [](const OperationTimelineEvent& e) {
            return named("operation_timeline", FieldWriter::object_of(e));
          },
          [](const StepMemoryEvent& e) { return json_of(e); },
          [](const EndEvent& e) { return named("end", FieldWriter::object_of(e)); },
          [](const ErrorEvent& e) { return named("error", FieldWriter::object_of(e)); }},
      event);
}

Event event_from(JsonObject& object) {
  const std::string kind = object.text("event");
  if (kind == "begin") {
    if (object.integer("schema_version") != kReportSchemaVersion)
      object.fail("schema_version", "must be " + std::to_string(kReportSchemaVersion));
    JsonObject source = object.object("source");
    BeginEvent e{source_from(source), object.integer("planned")};
    source.finish();
    return e;
  }
  if (kind == "progress") return struct_from<ProgressEvent>(object, kAnyNumbers);
  if (kind == "step") {
    object.number("tokens_per_s", 0);
    return StepEvent{struct_from<StepResult>(object, kReportNumbers)};
  }
  if (kind == "token") return TokenEvent{struct_from<TokenResult>(object, kReportNumbers)};
  if (kind == "row") return RowEvent{row_from(object)};
  if (kind == "memory") return MemoryEvent{struct_from<MemoryLine>(object, kReportNumbers)};
  if (kind == "memory_point") return MemoryPointEvent{memory_time_point_from(object)};
  if (kind == "checkpoint") return struct_from<CheckpointEvent>(object, kAnyNumbers);
  if (kind == "device_sample") return DeviceSampleEvent{struct_from<DeviceSample>(object, kReportNumbers)};
  if (kind == "rank_timeline") return struct_from<RankTimelineEvent>(object, kReportNumbers);
  if (kind == "operation_timeline") return operation_timeline_from(object);
  if (kind == "step_memory") return step_memory_from(object);
  if (kind == "end") return struct_from<EndEvent>(object, kAnyNumbers);
  if (kind == "error") return struct_from<ErrorEvent>(object, kAnyNumbers);
  object.fail("event",
              "must be one of begin, progress, step, token, row, memory, memory_point, checkpoint, "
              "device_sample, rank_timeline, operation_timeline, step_memory, end, error, but is \"" +
                  kind + "\"");
}

// Puts `part` in the place of the one that is the same thing, or at the end.
template <class Part, class Same>
void put(std::vector<Part>& parts, const Part& part, Same same) {
  const auto found = std::find_if(parts.begin(), parts.end(), same);
  if (found == parts.end()) {
    parts.push_back(part);
  } else {
    *found = part;
  }
}

}  // namespace

std::string to_ndjson(const Event& event) {
  return written(json_of(event), -1);
}

Event event_from_ndjson(std::string_view line) {
  const std::string file = "event stream";
  const Json json = parse_json(line, file);
  JsonObject object(json, file);
  Event event = event_from(object);
  object.finish();
  return event;
}

void apply(Report& report, const Event& event) {
  std::visit(
      Overloaded{[&](const BeginEvent& e) {
                   report = Report{};
                   report.source = e.source;
                 },
                 [](const ProgressEvent&) {}, [&](const StepEvent& e) { report.steps.push_back(e.step); },
                 [&](const TokenEvent& e) { report.tokens.push_back(e.token); },
                 [&](const RowEvent& e) {
                   put(report.rows, e.row, [&](const Row& row) {
                     return row.phase == e.row.phase && row.rank == e.row.rank && row.id == e.row.id;
                   });
                 },
                 [&](const MemoryEvent& e) {
                   put(report.memory, e.line, [&](const MemoryLine& line) {
                     return line.rank == e.line.rank && line.category == e.line.category;
                   });
                 },
                 [&](const MemoryPointEvent& e) { report.memory_timeline.push_back(e.point); },
                 [](const CheckpointEvent&) {},
                 [&](const DeviceSampleEvent& e) { report.device_samples.push_back(e.sample); },
                 [](const RankTimelineEvent&) {}, [](const OperationTimelineEvent&) {},
                 [](const StepMemoryEvent&) {},
                 [&](const EndEvent& e) {
                   report.step_time = e.step_time;
                   report.step_low = e.step_low;
                   report.step_high = e.step_high;
                   report.message = e.message;
                   report.waiting_for_slowest = e.waiting_for_slowest;
                   report.expert_imbalance = e.expert_imbalance;
                 },
                 [&](const ErrorEvent& e) { report.message = e.message; }},
      event);
}

std::vector<Event> events_of(const Report& report) {
  std::vector<Event> events;
  events.reserve(2 + report.steps.size() + report.tokens.size() + report.rows.size() + report.memory.size() +
                 report.memory_timeline.size() + report.device_samples.size());
  events.push_back(
      BeginEvent{report.source, static_cast<std::int64_t>(report.steps.size() + report.tokens.size())});
  for (const StepResult& step : report.steps) events.push_back(StepEvent{step});
  for (const TokenResult& token : report.tokens) events.push_back(TokenEvent{token});
  for (const Row& row : report.rows) events.push_back(RowEvent{row});
  for (const MemoryLine& line : report.memory) events.push_back(MemoryEvent{line});
  for (const MemoryTimePoint& point : report.memory_timeline) events.push_back(MemoryPointEvent{point});
  for (const DeviceSample& sample : report.device_samples) events.push_back(DeviceSampleEvent{sample});
  events.push_back(EndEvent{report.step_time, report.step_low, report.step_high, report.message,
                            report.waiting_for_slowest, report.expert_imbalance});
  return events;
}

}  // namespace sim
