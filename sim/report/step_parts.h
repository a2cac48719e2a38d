// Where the time of a step or generation goes: parts that exclude each other and add up to the whole. Every
// share that a user reads (what bounds a step, its bubble, its exposed communication) is one of these parts
// over the whole.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/enum_array.h"
#include "sim/report/report.h"

namespace sim {

enum class StepPart {
  compute,  // operations that arithmetic bounds
  memory,   // that memory bandwidth bounds
  launch,   // that their launch bounds
  host,     // in the host's memory, or on the way there
  network,  // exposed communication: the part of exchanges that compute waits for
  bubble,   // pipeline stages without work, and transfers that they wait for
  slowest,  // all ranks wait for the slowest
  other     // what no row accounts for
};
template <>
inline constexpr std::array<std::string_view, kCount<StepPart>> kOtherWords<StepPart>{
    "compute",
    "memory",
    "launch",
    "host",
    "exposed communication",
    "pipeline bubble",
    "waiting for the slowest",
    "between operations"};

struct StepParts {
  EnumArray<StepPart, Seconds> seconds{};
  Seconds whole;  // their sum: the step or generation

  Seconds operator[](StepPart part) const { return seconds[part]; }
  double share(StepPart part) const { return whole.value > 0 ? (*this)[part] / whole : 0; }
};

// The parts of one rank, or the mean over all ranks that have rows. Rows of operations count their duration,
// exchanges their exposed part (Row::exposed). Where a row does not say it, the exchange counts as far as the
// rest of the step has room, at the share that fits on the stage with the least room. The time that is left
// is bubble in a pipeline, else `other`. Zero where nothing has been priced or measured.
StepParts step_parts(const Report& report, std::optional<std::int32_t> rank = {});

// The parts that are not 0, largest first.
struct PartShare {
  StepPart part{};
  double share = 0;
};
std::vector<PartShare> part_shares(const Report& report);

// The one sentence that says what bounds the step or generation.
std::string bottleneck_sentence(const Report& report);

}  // namespace sim
