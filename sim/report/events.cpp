#include "sim/report/events.h"

#include <algorithm>
#include <array>
#include <utility>

#include "sim/report/report_json.h"

namespace sim {

void fields(auto& v, Like<BeginEvent> auto& e) {
  int version = kReportSchemaVersion;
  v.needed("schema_version", version);
  require_this_schema(v, version);
  v.needed("source", e.source);
  v.needed("planned", e.planned);
}

void fields(auto& v, Like<ProgressEvent> auto& e) {
  needed<&ProgressEvent::what, &ProgressEvent::done, &ProgressEvent::of>(v, e);
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
  using P = RankTimelineEvent;
  needed<&P::step, &P::rank, &P::ranks, &P::slots>(v, e);
}

void fields(auto& v, Like<OperationName> auto& name) {
  v.needed("id", name.id);
  v.needed("phase", name.phase);
}

void fields(auto& v, Like<OperationSpan> auto& span) {
  needed<&OperationSpan::name, &OperationSpan::layer, &OperationSpan::micro_batch>(v, span);
  v("stream", span.stream);
  v.needed("start_seconds", span.start.value);
  v.needed("end_seconds", span.end.value);
}

void fields(auto& v, Like<OperationTimelineEvent> auto& e) {
  needed<&OperationTimelineEvent::step, &OperationTimelineEvent::rank, &OperationTimelineEvent::ranks>(v, e);
  v.needed("step_seconds", e.duration.value);
  v.needed("names", e.timeline.names);
  v.needed("spans", e.timeline.spans);
  const std::size_t names = e.timeline.names.size();
  const auto is_named = [&](const OperationSpan& span) {
    return span.name >= 0 && static_cast<std::size_t>(span.name) < names;
  };
  v.require(std::ranges::all_of(e.timeline.spans, is_named), "spans",
            "must each have a name below " + std::to_string(names) + ", as many as there are");
}

void fields(auto& v, Like<StepMemoryEvent> auto& e) {
  v.needed("step", e.step);
  v.needed("begin_seconds", e.begin.value);
  v.needed("step_seconds", e.duration.value);
  v.needed("in_use_bytes", e.in_use.value);
  v.needed("points", e.points);
}

void fields(auto& v, Like<EndEvent> auto& e) {
  v.needed("step_seconds", e.step_time.value);
  v.needed("step_low_seconds", e.step_low.value);
  v.needed("step_high_seconds", e.step_high.value);
  v.needed("message", e.message);
  v("waiting_for_slowest_seconds", e.waiting_for_slowest.value);
  v("expert_imbalance", e.expert_imbalance);
  v("slowdown", e.slowdown);
}

void fields(auto& v, Like<ErrorEvent> auto& e) {
  v.needed("message", e.message);
  v("exit_code", e.exit_code);
}

namespace {

void fields_of_event(auto& v, auto& e) {
  fields(v, e);
}
void fields_of_event(auto& v, Like<StepResult> auto& step) {
  fields(v, step);
  // This is for readers of the stream without this code; it follows from two of the fields before it.
  double tokens_per_s = static_cast<double>(step.tokens) / step.duration.value;
  v("tokens_per_s", tokens_per_s);
}

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};

// The values of the field "event", in the order of the kinds.
// clang-format off
constexpr std::array<std::string_view, std::variant_size_v<Event>> kEventKinds{
    "begin", "progress", "step", "token", "row", "memory", "memory_point", "checkpoint", "device_sample",
    "rank_timeline", "operation_timeline", "step_memory", "end", "error"};
// clang-format on

template <std::size_t... kinds>
Event event_of_kind(std::size_t kind, JsonObject& object, std::index_sequence<kinds...>) {
  Event event;
  const auto read = [&]<class Kind>(Kind) {
    FieldReader reader(object, kReportNumbers);
    fields_of_event(reader, event.emplace<Kind>());
    return true;
  };
  ((kind == kinds && read(std::variant_alternative_t<kinds, Event>{})) || ...);
  return event;
}

Event event_from(JsonObject& object) {
  const std::string said = object.text("event");
  const auto kind = static_cast<std::size_t>(std::ranges::find(kEventKinds, said) - kEventKinds.begin());
  if (kind < kEventKinds.size())
    return event_of_kind(kind, object, std::make_index_sequence<kEventKinds.size()>{});
  std::string all;
  for (const std::string_view other : kEventKinds) all.append(all.empty() ? "" : ", ").append(other);
  object.fail("event", "must be one of " + all + ", but is \"" + excerpt(said) + "\"");
}

// Replaces the part that is the same thing as `part`, or adds `part` at the end.
template <class Part, class Same>
void put(std::vector<Part>& parts, const Part& part, Same same) {
  const auto found = std::ranges::find_if(parts, same);
  if (found == parts.end()) {
    parts.push_back(part);
  } else {
    *found = part;
  }
}

}  // namespace

std::string to_ndjson(const Event& event) {
  Json json{{"event", kEventKinds[event.index()]}};
  FieldWriter writer(json);
  std::visit([&](const auto& e) { fields_of_event(writer, e); }, event);
  return written(json, -1);
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
  std::visit(Overloaded{[&](const BeginEvent& e) {
                          report = Report{};
                          report.source = e.source;
                        },
                        [&](const StepResult& step) { report.steps.push_back(step); },
                        [&](const TokenResult& token) { report.tokens.push_back(token); },
                        [&](const Row& row) {
                          put(report.rows, row, [&](const Row& r) {
                            return r.phase == row.phase && r.rank == row.rank && r.id == row.id;
                          });
                        },
                        [&](const MemoryLine& line) {
                          put(report.memory, line, [&](const MemoryLine& l) {
                            return l.rank == line.rank && l.category == line.category;
                          });
                        },
                        [&](const MemoryTimePoint& point) { report.memory_timeline.push_back(point); },
                        [&](const DeviceSample& sample) { report.device_samples.push_back(sample); },
                        [&](const EndEvent& e) {
                          report.step_time = e.step_time;
                          report.step_low = e.step_low;
                          report.step_high = e.step_high;
                          report.message = e.message;
                          report.waiting_for_slowest = e.waiting_for_slowest;
                          report.expert_imbalance = e.expert_imbalance;
                          if (e.slowdown) report.source.slowdown = *e.slowdown;
                        },
                        [&](const ErrorEvent& e) { report.message = e.message; },
                        [](const auto&) {}},  // a report does not keep these
             event);
}

std::vector<Event> events_of(const Report& report) {
  std::vector<Event> events;
  events.push_back(
      BeginEvent{report.source, static_cast<std::int64_t>(report.steps.size() + report.tokens.size())});
  const auto add = [&](const auto& parts) { events.insert(events.end(), parts.begin(), parts.end()); };
  add(report.steps);
  add(report.tokens);
  add(report.rows);
  add(report.memory);
  add(report.memory_timeline);
  add(report.device_samples);
  events.push_back(EndEvent{report.step_time,
                            report.step_low,
                            report.step_high,
                            report.message,
                            report.waiting_for_slowest,
                            report.expert_imbalance,
                            {}});
  return events;
}

}  // namespace sim
