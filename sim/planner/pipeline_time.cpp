#include "sim/planner/pipeline_time.h"

#include <algorithm>
#include <array>

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

// A chunk's passes in the order of ChunkPasses.
constexpr std::array<PassTime ChunkPasses::*, 8> kPasses{
    &ChunkPasses::forward,    &ChunkPasses::backward,      &ChunkPasses::input,
    &ChunkPasses::weight,     &ChunkPasses::first_forward, &ChunkPasses::last_backward,
    &ChunkPasses::last_input, &ChunkPasses::last_weight};
std::uint8_t index_of(Pass pass, bool first, bool last) {
  const auto own = static_cast<std::uint8_t>(pass);
  const bool special = pass == Pass::forward ? first : last;
  return static_cast<std::uint8_t>(special ? own + 4 : own);
}
static_assert(static_cast<int>(Pass::forward) == 0 && static_cast<int>(Pass::backward_weight) == 3);

}  // namespace

SlotOrder::SlotOrder(const Schedule& s) : stages_(s.stages), chunks_(s.chunks) {
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
      const bool first_of_all = std::none_of(slots.begin(), at, same);
      const bool last_of_all = std::none_of(at + 1, slots.end(), ends_as(slot));
      const std::int32_t own = stage * s.chunks + slot.chunk;
      Event e{.kind = Kind::work,
              .pass = index_of(slot.pass, first_of_all, last_of_all),
              .reduces = last_of_all && slot.pass != Pass::forward,
              .stage = static_cast<std::int16_t>(stage),
              .at = own};
      works.push_back(e);
      if (slot.pass == Pass::backward_weight) continue;
      const std::int32_t piece = s.piece(stage, slot.chunk);
      if (const std::int32_t from = neighbour(piece, forward, true); from >= 0) {
        const std::size_t m = message(forward, piece, slot.micro_batch);
        if (remote(slot, from)) {
          if (!sent[m]) return false;
          e.kind = forward ? Kind::receive_forward : Kind::receive_backward;
          e.at = static_cast<std::int32_t>(m);
          receives.push_back(e);
        }
      }
      if (const std::int32_t to = neighbour(piece, forward, false); to >= 0 && remote(slot, to)) {
        e.kind = forward ? Kind::send_forward : Kind::send_backward;
        e.at = static_cast<std::int32_t>(message(forward, to, slot.micro_batch));
        sends.push_back(e);
      }
    }
    for (const auto* part : {&receives, &works, &sends})
      for (const Event& e : *part) events_.push_back(e);
    for (const Event& e : sends) sent[static_cast<std::size_t>(e.at)] = true;
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

void SlotOrder::run(const std::vector<const ChunkPasses*>& passes, const std::vector<StageBegin>& begins,
                    const TransferTimes& transfers, std::vector<StageEnd>& ends,
                    std::vector<Seconds>* last_began) const {
  std::vector<StageClock> clocks;
  clocks.reserve(begins.size());
  for (const StageBegin& b : begins) clocks.push_back({b.device, {}, {}, b.host});
  std::vector<Seconds> arrival(messages_);
  for (const Event& e : events_) {
    StageClock& clock = clocks[static_cast<std::size_t>(e.stage)];
    const auto at = static_cast<std::size_t>(e.at);
    switch (e.kind) {
      case Kind::receive_forward:
        clock.receive(transfers.receive_forward, arrival[at]);
        break;
      case Kind::receive_backward:
        clock.receive(transfers.receive_backward, arrival[at]);
        break;
      case Kind::work:
        if (e.reduces && last_began) (*last_began)[at] = clock.compute;
        clock.run(passes[at]->*kPasses[e.pass]);
        break;
      case Kind::send_forward:
        arrival[at] = clock.send(transfers.send_forward, transfers.in_order);
        break;
      case Kind::send_backward:
        arrival[at] = clock.send(transfers.send_backward, transfers.in_order);
        break;
    }
  }
  for (std::size_t i = 0; i < clocks.size(); ++i)
    ends[i] = {clocks[i].compute, clocks[i].collectives, clocks[i].sends, clocks[i].host};
}

namespace {

// Micro-batches that the pattern of a schedule repeats itself after.
std::int32_t group_of(const std::string& schedule, std::int32_t stages) {
  return placement_of(schedule) == Placement::two_directions ? 2 * stages : stages;
}
// Groups that fill the pipeline and empty it, with one between.
constexpr std::int32_t kGroups = 3;

}  // namespace

std::int32_t enough_micro_batches(const std::string& schedule, std::int32_t stages,
                                  std::int32_t micro_batches) {
  if (schedule == "gpipe") return micro_batches;  // all are in flight
  const std::int32_t group = group_of(schedule, stages);
  return std::min(micro_batches, (kGroups + 1) * group + micro_batches % group);
}

ScheduleClock::ScheduleClock(const std::string& schedule, std::int32_t stages, std::int32_t chunks,
                             std::int32_t micro_batches) {
  const std::int32_t group = group_of(schedule, stages);
  const std::int32_t shorter = kGroups * group + micro_batches % group, longer = shorter + group;
  const auto order = [&](std::int32_t m) {
    return std::make_unique<SlotOrder>(make_schedule(schedule, stages, chunks, m));
  };
  longer_ = order(std::min(micro_batches, longer));
  if (micro_batches <= longer) return;
  shorter_ = order(shorter);
  more_ = (micro_batches - longer) / group;
}

void ScheduleClock::run(const std::vector<const ChunkPasses*>& passes, const std::vector<StageBegin>& begins,
                        const TransferTimes& transfers, std::vector<StageEnd>& ends,
                        std::vector<Seconds>* last_began) const {
  longer_->run(passes, begins, transfers, ends, last_began);
  if (!shorter_) return;
  std::vector<StageEnd> less(ends.size());
  std::vector<Seconds> began_less(last_began ? last_began->size() : 0);
  shorter_->run(passes, begins, transfers, less, last_began ? &began_less : nullptr);
  for (std::size_t i = 0; i < ends.size(); ++i)
    for (Seconds StageEnd::*t :
         {&StageEnd::compute, &StageEnd::collectives, &StageEnd::sends, &StageEnd::host})
      ends[i].*t += (ends[i].*t - less[i].*t) * more_;
  for (std::size_t i = 0; i < began_less.size(); ++i)
    (*last_began)[i] += ((*last_began)[i] - began_less[i]) * more_;
}

}  // namespace sim
