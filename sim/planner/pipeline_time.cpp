#include "sim/planner/pipeline_time.h"

#include <algorithm>
#include <array>

namespace sim {

namespace {

// Of each chunk of a stage, its first forward pass, and its last ones backward: of inputs (embedding, head),
// and of weights.
struct ChunkSlots {
  explicit ChunkSlots(const std::vector<Slot>& slots, std::int32_t chunks)
      : first_forward(static_cast<std::size_t>(chunks), slots.size()),
        last_input(static_cast<std::size_t>(chunks)),
        last_weight(static_cast<std::size_t>(chunks)) {
    for (std::size_t i = slots.size(); i-- > 0;)
      if (slots[i].pass == Pass::forward) first_forward[static_cast<std::size_t>(slots[i].chunk)] = i;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const auto chunk = static_cast<std::size_t>(slots[i].chunk);
      const Pass pass = slots[i].pass;
      if (pass == Pass::backward || pass == Pass::backward_input) last_input[chunk] = i;
      if (pass == Pass::backward || pass == Pass::backward_weight) last_weight[chunk] = i;
    }
  }
  bool is_last(std::size_t i, const Slot& slot) const {
    const auto chunk = static_cast<std::size_t>(slot.chunk);
    switch (slot.pass) {
      case Pass::forward:
        return false;
      case Pass::backward_input:
        return i == last_input[chunk];
      case Pass::backward:
      case Pass::backward_weight:
        return i == last_weight[chunk];
    }
    return false;
  }
  std::vector<std::size_t> first_forward, last_input, last_weight;
};

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
  std::vector<ChunkSlots> chunk_slots;
  for (const std::vector<Slot>& slots : s.slots) chunk_slots.emplace_back(slots, s.chunks);
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
    const ChunkSlots& ends = chunk_slots[row];
    std::vector<Event> receives, works, sends;
    for (std::size_t i = first; i <= last; ++i) {
      const Slot& slot = slots[i];
      const bool forward = slot.pass == Pass::forward;
      const bool first_of_all = i == ends.first_forward[static_cast<std::size_t>(slot.chunk)];
      const bool last_of_all = ends.is_last(i, slot);
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
  Seconds compute{}, collectives{}, sends{}, host{};

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

PipelineRun SlotOrder::run(const std::vector<const ChunkPasses*>& passes,
                           const TransferTimes& transfers) const {
  constexpr std::int32_t kNone = -1;
  const auto stages = static_cast<std::size_t>(stages_);
  PipelineRun run;
  run.last_began.resize(passes.size());
  run.on_path.resize(passes.size());
  run.first_backward.assign(stages, kNever);
  std::vector<StageClock> clocks(stages);
  struct Message {
    Seconds arrival;
    std::int32_t sent = kNone;  // event
  };
  std::vector<Message> messages(messages_);
  // Which event each one waited for, and the last ones of each stage.
  std::vector<std::int32_t> waited(events_.size(), kNone);
  std::vector<std::int32_t> last_compute(stages, kNone), last_send(stages, kNone);
  for (std::size_t i = 0; i < events_.size(); ++i) {
    const Event& e = events_[i];
    const auto stage = static_cast<std::size_t>(e.stage), at = static_cast<std::size_t>(e.at);
    StageClock& clock = clocks[stage];
    const auto number = static_cast<std::int32_t>(i);
    switch (e.kind) {
      case Kind::receive_forward:
      case Kind::receive_backward: {
        const Message& m = messages[at];
        clock.receive(
            e.kind == Kind::receive_forward ? transfers.receive_forward : transfers.receive_backward,
            m.arrival);
        waited[i] = clock.compute == m.arrival ? m.sent : last_compute[stage];
        last_compute[stage] = number;
        break;
      }
      case Kind::work: {
        if (e.reduces) run.last_began[at] = clock.compute;
        const bool first_backward = e.pass % 4 != 0 && run.first_backward[stage] == kNever;
        if (first_backward) run.first_backward[stage] = clock.compute;
        clock.run(passes[at]->*kPasses[e.pass]);
        waited[i] = last_compute[stage];
        last_compute[stage] = number;
        break;
      }
      case Kind::send_forward:
      case Kind::send_backward: {
        waited[i] =
            transfers.in_order || clock.compute >= clock.sends ? last_compute[stage] : last_send[stage];
        const ActionTime& send =
            e.kind == Kind::send_forward ? transfers.send_forward : transfers.send_backward;
        messages[at] = {clock.send(send, transfers.in_order), number};
        (transfers.in_order ? last_compute : last_send)[stage] = number;
        break;
      }
    }
  }
  std::size_t latest = 0;
  for (std::size_t i = 0; i < stages; ++i) {
    run.ends.push_back({clocks[i].compute, clocks[i].collectives, clocks[i].sends, clocks[i].host});
    if (clocks[i].compute > clocks[latest].compute) latest = i;
  }
  for (std::int32_t i = last_compute[latest]; i != kNone; i = waited[static_cast<std::size_t>(i)]) {
    const Event& e = events_[static_cast<std::size_t>(i)];
    if (e.kind == Kind::work) ++run.on_path[static_cast<std::size_t>(e.at)][e.pass];
  }
  return run;
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

PipelineRun ScheduleClock::run(const std::vector<const ChunkPasses*>& passes,
                               const TransferTimes& transfers) const {
  PipelineRun run = longer_->run(passes, transfers);
  if (!shorter_) return run;
  const PipelineRun less = shorter_->run(passes, transfers);
  const auto grow = [this](auto& value, const auto& before) { value += (value - before) * more_; };
  for (std::size_t i = 0; i < run.ends.size(); ++i)
    for (Seconds StageEnd::*t :
         {&StageEnd::compute, &StageEnd::collectives, &StageEnd::sends, &StageEnd::host})
      grow(run.ends[i].*t, less.ends[i].*t);
  for (std::size_t i = 0; i < run.last_began.size(); ++i) {
    grow(run.last_began[i], less.last_began[i]);
    for (std::size_t pass = 0; pass < run.on_path[i].size(); ++pass)
      grow(run.on_path[i][pass], less.on_path[i][pass]);
  }
  return run;
}

}  // namespace sim
