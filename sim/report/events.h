// A report as a stream: what a run emits line by line (NDJSON), a file stores and the window replays. Folding
// the events of a run gives its report.
//
//   {"event":"begin","schema_version":1,"source":{...},"planned":100}
//   {"event":"progress","what":"calibrating","done":3,"of":12,"seconds_left":4.1}
//   {"event":"step","step":1,"loss":4.1,"grad_norm":1.2,"seconds":0.35,"tokens":1024,"tokens_per_s":2925}
//   {"event":"step",...,"micro_batch_grad_norm":2.1,"noise_scale_sequences":35.2,...}   where noise is
//   measured
//   {"event":"token","index":0,"token":17,"text":" the","seconds":0.04}
//   {"event":"token","index":0,"token":17,"text":" the","seconds":0.04,"surprise_nats":2.1}   of a text that
//   is read
//   {"event":"row",...}  {"event":"memory",...}  {"event":"memory_point",...}
//   {"event":"checkpoint","step":50,"file":"..."}
//   {"event":"device_sample","time_seconds":1.2,"sm_clock_mhz":1755,"memory_clock_mhz":2619,"power_w":698.5,
//    "temperature_c":61,"throttle":"power cap"}
//   {"event":"rank_timeline","step":7,"rank":0,"ranks":8,"slots":[{"stage":0,"phase":"forward",
//    "micro_batch":0,"chunk":0,"start_seconds":0,"end_seconds":0.002},...]}
//   {"event":"operation_timeline","step":7,"rank":0,"ranks":1,"step_seconds":0.2,
//    "names":[{"id":"layer.mlp.up.forward","phase":"forward"},...],
//    "spans":[{"name":0,"layer":3,"micro_batch":0,"stream":0,"start_seconds":0.01,"end_seconds":0.011},...]}
//   {"event":"step_memory","step":1,"begin_seconds":0,"step_seconds":0.2,"in_use_bytes":1234,"points":[...]}
//   {"event":"end","step_seconds":...,"step_low_seconds":...,"step_high_seconds":...,"message":"",
//    "waiting_for_slowest_seconds":...,"expert_imbalance":...,
//    "slowdown":{"arithmetic":1.1,"memory":1.2,"error":0.05}}   where the machine was looked at meanwhile
//   {"event":"error","message":"...","exit_code":6}
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sim/report/operation_timeline.h"
#include "sim/report/report.h"

namespace sim {

struct BeginEvent {
  Source source;
  std::int64_t planned = 0;
};  // steps or tokens
struct ProgressEvent {
  std::string what;
  std::int64_t done = 0, of = 0;
  Seconds left;
};
struct CheckpointEvent {
  std::int64_t step = 0;
  std::string file;
};
// When a rank's passes ran in a step, on a clock shared by all ranks that begins with the first pass. Sent
// while a run of several ranks goes on; a report does not keep it.
struct RankTimelineEvent {
  std::int64_t step = 0;
  std::int32_t rank = 0, ranks = 1;
  std::vector<TimelineSlot> slots;
};
// A rank's newest step, operation by operation, on the clock of RankTimelineEvent. Sent while a run goes on;
// a report does not keep it.
struct OperationTimelineEvent {
  std::int64_t step = 0;
  std::int32_t rank = 0, ranks = 1;
  Seconds duration;  // of the step, with what the host does after its last operation
  OperationTimeline timeline;
};
// The memory of one of the first steps. They differ from later ones, since buffers made once are not there
// from the beginning. A report does not keep it.
struct StepMemoryEvent {
  std::int64_t step = 0;
  Seconds begin, duration;              // since the first step began
  Bytes in_use;                         // on the device at the end of the step, as the system reports
  std::vector<MemoryTimePoint> points;  // live bytes, since the step began
};
struct EndEvent {
  Seconds step_time, step_low, step_high;
  std::string message;
  Seconds waiting_for_slowest{};
  double expert_imbalance = 0;
  std::optional<Slowdown> slowdown{};  // of the machine while it ran, in place of Source's
};
struct ErrorEvent {
  std::string message;
  int exit_code = 1;
};

// Parts of a report are events as they are.
using Event = std::variant<BeginEvent, ProgressEvent, StepResult, TokenResult, Row, MemoryLine,
                           MemoryTimePoint, CheckpointEvent, DeviceSample, RankTimelineEvent,
                           OperationTimelineEvent, StepMemoryEvent, EndEvent, ErrorEvent>;

std::string to_ndjson(const Event& event);       // one line, no newline
Event event_from_ndjson(std::string_view line);  // throws PresetError; unknown events are an error

// Folds an event into the report that the stream builds. A row replaces an earlier one with the same (id,
// phase, rank), so a running measurement can send a row again as it refines it.
void apply(Report& report, const Event& event);

// A finished report as the stream that folds to it: begin, steps, tokens, rows, memory, samples,
// end.
std::vector<Event> events_of(const Report& report);

}  // namespace sim
