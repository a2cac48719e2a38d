#include "sim/planner/pipeline_time.h"

#include <algorithm>

namespace sim {

namespace {

// What ends a chunk's gradients as a slot does: of inputs (embedding, head), or of weights.
auto ends_as(const Slot& slot) {
  return [&slot](const Slot& other) {
    const bool inputs = slot.pass != Pass::backward_weight && other.pass != Pass::backward_weight;
    const bool weights = slot.pass != Pass::backward_input && other.pass != Pass::backward_input;
    const bool backward = slot.pass != Pass::forward && other.pass != Pass::forward;
    return other.chunk == slot.chunk && backward && (inputs || weights);
  };
}

}  // namespace

SlotOrder::SlotOrder(const Schedule& s) : stages_(s.stages) {
  const std::size_t each = static_cast<std::size_t>(s.pieces()) * static_cast<std::size_t>(s.micro_batches);
  // Messages by the piece that they reach and the micro-batch, forward ones first.
  messages_ = 2 * each;
  const auto message = [&](bool forward, std::int32_t piece, std::int32_t micro_batch) {
    return (forward ? 0 : each) +
           static_cast<std::size_t>(piece) * static_cast<std::size_t>(s.micro_batches) +
           static_cast<std::size_t>(micro_batch);
  };
  std::vector<bool> sent(messages_);
  std::vector<std::size_t> next(s.slots.size());
  // The piece next to a slot's in its direction, or before it; negative: none.
  const auto neighbour = [&](std::int32_t piece, bool forward, bool before) {
    const std::int32_t n = piece + (forward != before ? 1 : -1);
    return n < s.pieces() ? n : -1;
  };
  const auto advance = [&](std::int32_t stage) {
    const auto row = static_cast<std::size_t>(stage);
    const std::vector<Slot>& slots = s.slots[row];
    const std::size_t first = next[row];
    if (first == slots.size()) return false;
    std::size_t last = first;
    while (slots[last].with_next) ++last;
    const auto remote = [&](const Slot& slot, std::int32_t piece) {
      return piece >= 0 && s.place_of(piece, slot.chunk).stage != stage;
    };
    std::vector<Event> receives, works, sends;
    for (std::size_t i = first; i <= last; ++i) {
      const Slot& slot = slots[i];
      const bool forward = slot.pass == Pass::forward;
      const auto same = [&](const Slot& other) {
        return other.pass == slot.pass && other.chunk == slot.chunk;
      };
      const auto at = slots.begin() + static_cast<std::ptrdiff_t>(i);
      Event e{.kind = Kind::work,
              .pass = slot.pass,
              .first = std::none_of(slots.begin(), at, same),
              .last = std::none_of(at + 1, slots.end(), ends_as(slot)),
              .stage = static_cast<std::int16_t>(stage),
              .chunk = static_cast<std::int16_t>(slot.chunk)};
      works.push_back(e);
      if (slot.pass == Pass::backward_weight) continue;
      const std::int32_t piece = s.piece(stage, slot.chunk);
      if (const std::int32_t from = neighbour(piece, forward, true); from >= 0) {
        const std::size_t m = message(forward, piece, slot.micro_batch);
        if (remote(slot, from)) {
          if (!sent[m]) return false;
          e.kind = forward ? Kind::receive_forward : Kind::receive_backward;
          e.message = static_cast<std::int32_t>(m);
          receives.push_back(e);
        }
      }
      if (const std::int32_t to = neighbour(piece, forward, false); to >= 0 && remote(slot, to)) {
        e.kind = forward ? Kind::send_forward : Kind::send_backward;
        e.message = static_cast<std::int32_t>(message(forward, to, slot.micro_batch));
        sends.push_back(e);
      }
    }
    for (const auto* part : {&receives, &works, &sends})
      for (const Event& e : *part) events_.push_back(e);
    for (const Event& e : sends) sent[static_cast<std::size_t>(e.message)] = true;
    next[row] = last + 1;
    return true;
  };
  bool moved = true;
  while (moved) {
    moved = false;
    for (std::int32_t stage = 0; stage < s.stages; ++stage)
      while (advance(stage)) moved = true;
  }
}

namespace {

const PassTime& time_of(const ChunkPasses& passes, Pass pass, bool first, bool last) {
  switch (pass) {
    case Pass::forward:
      return first ? passes.first_forward : passes.forward;
    case Pass::backward:
      return last ? passes.last_backward : passes.backward;
    case Pass::backward_input:
      return last ? passes.last_input : passes.input;
    case Pass::backward_weight:
      return last ? passes.last_weight : passes.weight;
  }
  return passes.forward;
}

// DeviceClock for passes as a whole.
struct StageClock {
  Seconds compute, collectives, sends, host;

  void run(const PassTime& pass) {
    if (pass.work.waits) host = std::max({host, compute, collectives, sends});
    host += pass.work.before;
    const Seconds begin = compute;
    compute = std::max(
        {begin + pass.duration, collectives + pass.compute_after_collectives, host + pass.host.ahead});
    const Seconds late = compute - begin - pass.duration;
    collectives = std::max(collectives + pass.collectives, begin + late + pass.collectives_after_compute);
    host += pass.host.launches;
  }
  void receive(const ActionTime& time, Seconds arrival) {
    host += time.work.before;
    compute = std::max({compute, host, arrival});
    host += time.host.launches;
    if (time.work.waits) host = std::max(host, compute);
  }
  Seconds send(const ActionTime& time, bool in_order) {
    Seconds& free = in_order ? compute : sends;
    if (time.work.waits) host = std::max({host, compute, collectives, sends});
    host += time.work.before;
    free = std::max(std::max({free, compute, host}) + time.duration, host + time.host.ahead);
    host += time.host.launches;
    if (time.work.waits) host = std::max(host, free);
    return free;
  }
};

}  // namespace

std::vector<StageEnd> SlotOrder::run(const std::vector<StageTimes>& stages,
                                     const TransferTimes& transfers) const {
  std::vector<StageClock> clocks;
  for (const StageTimes& s : stages) clocks.push_back({s.begin, {}, {}, s.host_begin});
  std::vector<Seconds> arrival(messages_);
  for (const Event& e : events_) {
    const auto stage = static_cast<std::size_t>(e.stage);
    StageClock& clock = clocks[stage];
    const auto m = static_cast<std::size_t>(e.message);
    switch (e.kind) {
      case Kind::receive_forward:
        clock.receive(transfers.receive_forward, arrival[m]);
        break;
      case Kind::receive_backward:
        clock.receive(transfers.receive_backward, arrival[m]);
        break;
      case Kind::work:
        clock.run(time_of(stages[stage].chunks[static_cast<std::size_t>(e.chunk)], e.pass, e.first, e.last));
        break;
      case Kind::send_forward:
        arrival[m] = clock.send(transfers.send_forward, transfers.in_order);
        break;
      case Kind::send_backward:
        arrival[m] = clock.send(transfers.send_backward, transfers.in_order);
        break;
    }
  }
  std::vector<StageEnd> ends;
  for (const StageClock& c : clocks) ends.push_back({c.compute, c.collectives, c.sends, c.host});
  return ends;
}

std::int32_t PipelineClock::enough_micro_batches(const std::string& schedule, std::int32_t stages,
                                                 std::int32_t micro_batches) {
  if (schedule == "gpipe") return micro_batches;  // all are in flight
  const std::int32_t group = placement_of(schedule) == Placement::two_directions ? 2 * stages : stages;
  return std::min(micro_batches, 4 * group + micro_batches % group);
}

const SlotOrder& PipelineClock::order(const std::string& schedule, std::int32_t stages, std::int32_t chunks,
                                      std::int32_t micro_batches) {
  auto& known = orders_[{schedule, stages, chunks, micro_batches}];
  if (!known) known = std::make_unique<SlotOrder>(make_schedule(schedule, stages, chunks, micro_batches));
  return *known;
}

std::vector<StageEnd> PipelineClock::run(const std::string& schedule, std::int32_t stages,
                                         std::int32_t chunks, std::int32_t micro_batches,
                                         const std::vector<StageTimes>& times,
                                         const TransferTimes& transfers) {
  // After so many the pattern repeats itself: all schedules have filled the pipeline both ways by then.
  // Groups of as many as there are stages (and both directions of them) are alike for all.
  const std::int32_t group = placement_of(schedule) == Placement::two_directions ? 2 * stages : stages;
  const std::int32_t shorter = 3 * group + micro_batches % group, longer = shorter + group;
  if (micro_batches <= longer) return order(schedule, stages, chunks, micro_batches).run(times, transfers);
  std::vector<StageEnd> ends = order(schedule, stages, chunks, longer).run(times, transfers);
  const std::vector<StageEnd> less = order(schedule, stages, chunks, shorter).run(times, transfers);
  const double more = (micro_batches - longer) / group;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const auto grown = [&](Seconds StageEnd::*t) { ends[i].*t += (ends[i].*t - less[i].*t) * more; };
    grown(&StageEnd::compute);
    grown(&StageEnd::collectives);
    grown(&StageEnd::sends);
    grown(&StageEnd::host);
  }
  return ends;
}

}  // namespace sim
