// The parts of a report to and from JSON values; events are made of the same parts. Included by .cpp files
// only.
#pragma once
#include "sim/report/report.h"
#include "sim/scenario/listed_fields.h"

namespace sim {

// Each asks for its fields without refusing others: an event's object bears the event's name beside them.
Source source_from(JsonObject& object);
Row row_from(JsonObject& object);
MemoryTimePoint memory_time_point_from(JsonObject& object);

Json json_of(const Source& source);
Json json_of(const Row& row);
Json json_of(const MemoryTimePoint& point);

// Counts and bytes: 8 PiB, and as many runs; sums of such numbers stay inside 64 bits.
inline constexpr LegalNumbers kReportNumbers{
    .least_count = 0, .most_count = std::int64_t{1} << 53, .words = "must be from 0 to 2^53"};

void fields(auto& v, Like<MemoryLine> auto& line) {
  v.needed("category", line.category);
  v("rank", line.rank);
  v.needed("bytes", line.bytes.value);
}

void fields(auto& v, Like<StepResult> auto& step) {
  v.needed("step", step.step);
  v.needed("loss", step.loss);
  v.needed("grad_norm", step.grad_norm);
  v.needed("seconds", step.duration.value);
  v.needed("tokens", step.tokens);
  v("micro_batch_grad_norm", step.micro_batch_grad_norm);
  v("noise_scale_sequences", step.noise_scale);
}

void fields(auto& v, Like<TokenResult> auto& token) {
  v.needed("index", token.index);
  v("token", token.token);
  v.needed("text", token.text);
  v.needed("seconds", token.duration.value);
  v("surprise_nats", token.surprise);
}

void fields(auto& v, Like<DeviceSample> auto& sample) {
  v.needed("time_seconds", sample.time.value);
  v.needed("sm_clock_mhz", sample.sm_clock_mhz);
  v.needed("memory_clock_mhz", sample.memory_clock_mhz);
  v.needed("power_w", sample.power_w);
  v.needed("temperature_c", sample.temperature_c);
  v.needed("throttle", sample.throttle);
}

// Text that is not UTF-8 (half of a character of a byte-level vocabulary) is written with U+FFFD.
std::string written(const Json& json, int indent);

}  // namespace sim
