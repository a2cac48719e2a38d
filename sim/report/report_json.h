// The parts of a report to and from JSON values; events are made of the same parts. Included by .cpp files
// only.
#pragma once
#include "sim/json_object.h"
#include "sim/report/report.h"

namespace sim {

// Each asks for its fields without refusing others: an event's object bears the event's name beside them.
Source source_from(JsonObject& object);
Row row_from(JsonObject& object);
MemoryLine memory_line_from(JsonObject& object);
MemoryTimePoint memory_time_point_from(JsonObject& object);
StepResult step_from(JsonObject& object);
TokenResult token_from(JsonObject& object);
DeviceSample device_sample_from(JsonObject& object);

Json json_of(const Source& source);
Json json_of(const Row& row);
Json json_of(const MemoryLine& line);
Json json_of(const MemoryTimePoint& point);
Json json_of(const StepResult& step);
Json json_of(const TokenResult& token);
Json json_of(const DeviceSample& sample);

// Text that is not UTF-8 (half of a character of a byte-level vocabulary) is written with U+FFFD.
std::string written(const Json& json, int indent);

}  // namespace sim
