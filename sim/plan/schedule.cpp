#include "sim/plan/schedule.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "sim/format.h"
#include "sim/scenario/fields.h"

namespace sim {
std::int32_t Schedule::piece(std::int32_t stage, std::int32_t chunk) const {
  switch (placement) {
    case Placement::loop:
      return chunk * stages + stage;
    case Placement::v:
      return chunk == 0 ? stage : 2 * stages - 1 - stage;
    case Placement::two_directions:
      return chunk == 0 ? stage : stages - 1 - stage;
  }
  return 0;
}

Schedule::Place Schedule::place_of(std::int32_t piece, std::int32_t chunk) const {
  switch (placement) {
    case Placement::loop:
      return {piece % stages, piece / stages};
    case Placement::v:
      return piece < stages ? Place{piece, 0} : Place{2 * stages - 1 - piece, 1};
    case Placement::two_directions:
      return {chunk == 0 ? piece : stages - 1 - piece, chunk};
  }
  return {};
}

std::vector<Problem> schedule_problems(std::string_view name, std::int64_t stages, std::int64_t chunks,
                                       std::int64_t micro_batches) {
  const auto& names = kScheduleNames;
  if (std::ranges::find(names, name) == names.end())
    return {{"schedule", sentence("must be ", listed(names), ", but is \"", name, "\"")}};
  const ScheduleTraits* const schedule = &traits_of_schedule(name);
  const bool two_ways = schedule->placement == Placement::two_directions;
  const auto is = [&] { return "is " + std::string(name) + ", which "; };
  std::vector<Problem> problems;
  const auto add = [&](const char* field, const auto&... message) {
    add_problem(problems, field, message...);
  };
  if (stages == 1 && name != kPlainSchedule) add("schedule", is(), "needs pipeline_parallel above 1");
  if (chunks > 1 && stages == 1)
    add("virtual_pipeline", "cuts a stage's layers into chunks, which needs pipeline_parallel above 1");
  if (schedule->chunks == Chunks::two && chunks != 2)
    add("virtual_pipeline", "is ", chunks, ", but schedule ", name, " has two chunks a stage: it must be 2");
  if (chunks > 1 && schedule->chunks == Chunks::one)
    add("virtual_pipeline", "is ", chunks, ", but schedule ", name,
        " has one chunk a stage; 1f1b, interleaved and breadth-first have several");
  if (schedule->chunks == Chunks::several && chunks == 1)
    add("schedule", is(), "needs virtual_pipeline above 1");
  if (schedule->in_groups && stages > 1 && chunks > 1 && micro_batches % stages != 0)
    add("virtual_pipeline", "interleaves groups of pipeline_parallel micro-batches, but ", stages,
        " does not divide the ", micro_batches, " of a step");
  if (two_ways && stages % 2 != 0)
    add("schedule", is(), "needs an even number of stages, but pipeline_parallel is ", stages);
  if (two_ways && micro_batches % 2 != 0)
    add("schedule", is(), "sends half of a step's micro-batches each way, but there are ", micro_batches);
  if (schedule->pairs && micro_batches < 2 * stages)
    add("schedule", is(), "needs two micro-batches a stage, ", 2 * stages, ", but a step has ",
        micro_batches);
  return problems;
}

Schedule make_schedule(std::string_view name, std::int32_t stages, std::int32_t chunks,
                       std::int32_t micro_batches) {
  const auto problems = schedule_problems(name, stages, chunks, micro_batches);
  if (!problems.empty()) throw std::invalid_argument(problems[0].field + ": " + problems[0].message);
  const ScheduleTraits& traits = traits_of_schedule(name);
  Schedule s{.stages = stages,
             .chunks = traits.placement == Placement::two_directions ? 2 : chunks,
             .micro_batches = micro_batches,
             .placement = traits.placement};
  for (std::int32_t stage = 0; stage < stages; ++stage)
    s.slots.push_back(traits.order(stage, stages, chunks, micro_batches));
  return s;
}

LayerRange layers_of(std::int32_t piece, std::int32_t pieces, std::int32_t layers, double head) {
  if (head > 0) {
    const double share = (layers + head) / pieces;
    const auto end = [&](std::int32_t p) {
      if (p < 0) return 0;
      return p == pieces - 1 ? layers : std::min(layers, static_cast<std::int32_t>(share * (p + 1)) + 1);
    };
    return {end(piece - 1), end(piece)};
  }
  const std::int32_t each = layers / pieces, more = layers % pieces, first_with_more = (pieces - more) / 2;
  const auto begin = [&](std::int32_t p) { return p * each + std::clamp(p - first_with_more, 0, more); };
  return {begin(piece), begin(piece + 1)};
}

ScheduleEvents events_of(const Schedule& s) {
  const auto micro_batches = static_cast<std::size_t>(s.micro_batches);
  const std::size_t each = static_cast<std::size_t>(s.pieces()) * micro_batches;
  // Which passes have ended, by piece and micro-batch: forward ones, then backward ones (of inputs). A pass
  // that ends is a message to the neighbouring piece, where that lies on another stage.
  std::vector<char> ended(2 * each);
  const auto at = [&](bool forward, std::int32_t piece, std::int32_t micro_batch) {
    return (forward ? 0 : each) + static_cast<std::size_t>(piece) * micro_batches +
           static_cast<std::size_t>(micro_batch);
  };
  // A chunk's piece; whether there are pieces before and after it; and whether these lie on other stages.
  struct Chunk {
    std::int32_t piece;
    bool has_before, has_after, from_other, to_other;
  };
  std::vector<Chunk> chunks;
  ScheduleEvents all{.messages = 2 * each};
  std::size_t slots_of_all = 0;
  for (std::int32_t stage = 0; stage < s.stages; ++stage) {
    slots_of_all += s.slots[static_cast<std::size_t>(stage)].size();
    for (std::int32_t chunk = 0; chunk < s.chunks; ++chunk) {
      const std::int32_t piece = s.piece(stage, chunk);
      const bool has_before = piece > 0, has_after = piece + 1 < s.pieces();
      chunks.push_back({piece, has_before, has_after,
                        has_before && s.place_of(piece - 1, chunk).stage != stage,
                        has_after && s.place_of(piece + 1, chunk).stage != stage});
    }
  }
  all.events.reserve(slots_of_all);
  std::vector<std::size_t> next(s.slots.size());
  std::vector<ScheduleEvent> together;
  // The next slots that go together, if all that they need has ended.
  const auto advance = [&](std::int32_t stage) {
    const auto row = static_cast<std::size_t>(stage);
    const std::vector<Slot>& slots = s.slots[row];
    if (next[row] == slots.size()) return false;
    together.clear();
    for (std::size_t i = next[row]; together.empty() || slots[i - 1].with_next; ++i) {
      const Slot& slot = slots[i];
      const Chunk& chunk = chunks[static_cast<std::size_t>(stage * s.chunks + slot.chunk)];
      ScheduleEvent& e = together.emplace_back(ScheduleEvent{.stage = stage, .slot = i});
      if (slot.pass == Pass::backward_weight) {
        if (!ended[at(false, chunk.piece, slot.micro_batch)]) return false;
        continue;
      }
      const bool forward = slot.pass == Pass::forward;
      const std::size_t own = at(forward, chunk.piece, slot.micro_batch);
      const std::size_t before = forward ? own - micro_batches : own + micro_batches;
      if (!forward && !ended[at(true, chunk.piece, slot.micro_batch)]) return false;
      if ((forward ? chunk.has_before : chunk.has_after) && !ended[before]) return false;
      if (forward ? chunk.from_other : chunk.to_other) e.received = static_cast<std::int32_t>(before);
      if (forward ? chunk.to_other : chunk.from_other) e.sent = static_cast<std::int32_t>(own);
    }
    for (const ScheduleEvent& e : together) {
      const Slot& slot = slots[e.slot];
      const Chunk& chunk = chunks[static_cast<std::size_t>(stage * s.chunks + slot.chunk)];
      if (slot.pass != Pass::backward_weight)
        ended[at(slot.pass == Pass::forward, chunk.piece, slot.micro_batch)] = 1;
      all.events.push_back(e);
    }
    next[row] += together.size();
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::int32_t stage = 0; stage < s.stages; ++stage)
      while (advance(stage)) moved = true;
  }
  return all;
}

}  // namespace sim
