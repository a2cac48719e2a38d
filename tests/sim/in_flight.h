// How many micro-batches stages hold: counted off a schedule's slots, and as its paper has it.
#pragma once
#include <algorithm>
#include <optional>
#include <string_view>

#include "sim/plan/schedule.h"

namespace tests {

// Most micro-batches, in chunks, whose activations a stage holds at the same time: from the beginning of
// their forward pass to the end of the last part of their backward pass. A chunk counts as one.
inline std::int64_t most_in_flight(const sim::Schedule& schedule, std::int32_t stage) {
  std::int64_t held = 0, most = 0;
  for (const sim::Slot& s : schedule.slots[static_cast<std::size_t>(stage)]) {
    if (s.pass == sim::Pass::forward) most = std::max(most, ++held);
    if (s.pass == sim::Pass::backward || s.pass == sim::Pass::backward_weight) --held;
  }
  return most;
}

// Most micro-batches, in chunks, whose activations any stage holds at the same time:
//   gpipe m, breadth-first v m, 1f1b and zb-h1 min(m, p), interleaved v p + p - 1, zb-h2 min(m, 2p - 1), zb-v
//   2p, dualpipe p + 1, dualpipev 2p + 1
// Empty where there are too few micro-batches for the pattern (interleaved: 2p, zb-v: 2p - 1).
inline std::optional<std::int64_t> closed_form_in_flight(std::string_view schedule, std::int32_t stages,
                                                         std::int32_t chunks, std::int32_t micro_batches) {
  if (schedule == "gpipe" || schedule == "breadth-first") return micro_batches * chunks;
  if (schedule == "zb-h2") return std::min(micro_batches, 2 * stages - 1);
  if (schedule == "zb-v") return micro_batches >= 2 * stages - 1 ? std::optional(2 * stages) : std::nullopt;
  if (schedule == "dualpipe") return stages + 1;
  if (schedule == "dualpipev") return 2 * stages + 1;
  if (chunks == 1) return std::min(micro_batches, stages);
  return micro_batches >= 2 * stages ? std::optional(chunks * stages + stages - 1) : std::nullopt;
}

}  // namespace tests
