#include "sim/planner/pipeline_time.h"

#include <algorithm>
#include <array>
#include <utility>

namespace sim {

namespace {

std::size_t place(PassTime ChunkPasses::*pass) {
  return static_cast<std::size_t>(std::find(kPasses.begin(), kPasses.end(), pass) - kPasses.begin());
}

}  // namespace

std::vector<UnitStep>& ChunkSteps::of(PassTime ChunkPasses::*pass) {
  return passes[place(pass)];
}
const std::vector<UnitStep>& ChunkSteps::of(PassTime ChunkPasses::*pass) const {
  return passes[place(pass)];
}

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
constexpr std::uint8_t kFirstForward = 4;  // of kPasses
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
  std::vector<char> has_gradients(static_cast<std::size_t>(s.stages) * static_cast<std::size_t>(s.chunks));
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
    std::vector<Event> works;
    for (std::size_t i = first; i <= last; ++i) {
      const Slot& slot = slots[i];
      const bool forward = slot.pass == Pass::forward;
      const bool first_of_all = i == ends.first_forward[static_cast<std::size_t>(slot.chunk)];
      const bool last_of_all = ends.is_last(i, slot);
      Event e{.pass = index_of(slot.pass, first_of_all, last_of_all),
              .forward = forward,
              .reduces = last_of_all,
              .with_next = slot.with_next,
              .begins = i == 0 || slots[i - 1].chunk != slot.chunk ||
                        slots[i - 1].micro_batch != slot.micro_batch ||
                        (slots[i - 1].pass == Pass::forward) != forward,
              .begins_stage = i == 0,
              .stage = stage,
              .at = stage * s.chunks + slot.chunk};
      if (slot.pass != Pass::backward_weight) {
        const std::int32_t piece = s.piece(stage, slot.chunk);
        const std::int32_t from = neighbour(piece, forward, true), to = neighbour(piece, forward, false);
        if (from >= 0 && remote(slot, from)) {
          const std::size_t m = message(forward, piece, slot.micro_batch);
          if (!sent[m]) return false;
          e.received = static_cast<std::int32_t>(m);
        }
        if (to >= 0 && remote(slot, to))
          e.sent = static_cast<std::int32_t>(message(forward, to, slot.micro_batch));
      }
      works.push_back(e);
    }
    for (Event& e : works) {
      if (!e.forward)
        e.begins_gradients = !std::exchange(has_gradients[static_cast<std::size_t>(e.at)], true);
      events_.push_back(e);
      if (e.sent >= 0) sent[static_cast<std::size_t>(e.sent)] = true;
    }
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
    const Seconds begin = compute, alone = begin + pass.duration + slower(pass);
    compute = std::max({alone, collectives + pass.compute_after_collectives, host + pass.host.ahead});
    const Seconds late = compute - begin - pass.duration;
    collectives = std::max(collectives + pass.collectives, begin + late + pass.collectives_after_compute);
    host += pass.host.launches;
  }
  // By earlier collectives.
  Seconds slower(const PassTime& pass) const {
    return collectives > compute ? std::min((collectives - compute) * pass.slower, pass.most_slower)
                                 : Seconds{};
  }
  void begin_gradients(const ActionTime& time) {
    compute = std::max(compute + time.duration, host + time.host.ahead);
    host += time.host.launches;
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

// What a run writes to: kept from one to the next.
struct SlotOrder::Clocks {
  struct Message {
    Seconds arrival;
    std::int32_t sender = -1;  // event
  };
  std::vector<StageClock> stages;
  std::vector<Message> messages;
  std::vector<std::int32_t> waited;        // of each event, the one that it waited for
  std::vector<std::int32_t> last_compute;  // events, of each stage
};

template <bool kHost>
void SlotOrder::run_events(const std::vector<const PassTime*>& passes, const TransferTimes& transfers,
                           const std::vector<const ChunkPasses*>& chunks, const PipelineBegin& begun,
                           Clocks& c, PipelineRun& run) const {
  std::size_t together = 0;  // first of those that are worked on together
  for (std::size_t i = 0; i < events_.size(); ++i) {
    // Both begin when both inputs are there, and both results go when both have ended.
    if (i == together)
      for (std::size_t j = i;; ++j) {
        const Event& e = events_[j];
        if (e.received >= 0) {
          StageClock& clock = c.stages[static_cast<std::size_t>(e.stage)];
          const Clocks::Message& m = c.messages[static_cast<std::size_t>(e.received)];
          if constexpr (kHost) {
            clock.receive(e.forward ? transfers.receive_forward : transfers.receive_backward, m.arrival);
            if (clock.compute == m.arrival) c.last_compute[static_cast<std::size_t>(e.stage)] = m.sender;
          } else if (m.arrival > clock.compute) {
            clock.compute = m.arrival;
            c.last_compute[static_cast<std::size_t>(e.stage)] = m.sender;
          }
        }
        if (!e.with_next) break;
      }
    const Event& e = events_[i];
    const auto stage = static_cast<std::size_t>(e.stage), at = static_cast<std::size_t>(e.at);
    StageClock& clock = c.stages[stage];
    if (e.reduces) run.last_began[at] = clock.compute;
    if (!e.forward && run.first_backward[stage] == kNever) run.first_backward[stage] = clock.compute;
    const PassTime& pass = *passes[at * kPasses.size() + e.pass];
    if (e.begins_gradients) clock.begin_gradients(chunks[at]->begin_gradients);
    if constexpr (kHost) {
      clock.run(pass);
    } else {
      const Seconds alone = clock.compute + pass.duration + clock.slower(pass);
      clock.compute = std::max(alone, clock.collectives + pass.compute_after_collectives);
      const Seconds end = clock.compute - pass.duration + pass.collectives_after_compute;
      clock.collectives = std::max(clock.collectives + pass.collectives, end);
    }
    if (e.pass == kFirstForward && !begun.first_forward.empty())
      clock.compute = std::max(clock.compute, begun.first_forward[at]);
    c.waited[i] = c.last_compute[stage];
    c.last_compute[stage] = static_cast<std::int32_t>(i);
    if (e.with_next) continue;
    for (std::size_t j = together; j <= i; ++j) {
      const Event& done = events_[j];
      if (done.sent < 0) continue;
      const ActionTime& send = done.forward ? transfers.send_forward : transfers.send_backward;
      Seconds arrival;
      if constexpr (kHost)
        arrival = clock.send(send, transfers.in_order);
      else
        arrival = clock.sends = std::max(clock.sends, clock.compute) + send.duration;
      c.messages[static_cast<std::size_t>(done.sent)] = {arrival, static_cast<std::int32_t>(i)};
    }
    together = i + 1;
  }
}

void SlotOrder::run(const std::vector<const ChunkSteps*>& steps, const TransferTimes& transfers,
                    Seconds host_first, std::vector<DeviceClock>& clocks) const {
  std::vector<Seconds> arrivals(messages_);
  std::size_t together = 0;
  for (std::size_t i = 0; i < events_.size(); ++i) {
    DeviceClock& clock = clocks[static_cast<std::size_t>(events_[i].stage)];
    if (i == together)
      for (std::size_t j = i;; ++j) {
        const Event& e = events_[j];
        if (e.received >= 0)
          clock.receive(e.forward ? transfers.receive_forward : transfers.receive_backward, {},
                        arrivals[static_cast<std::size_t>(e.received)]);
        if (!e.with_next) break;
      }
    const Event& e = events_[i];
    const ChunkSteps& chunk = *steps[static_cast<std::size_t>(e.at)];
    run_pass(clock, chunk.passes[e.pass], chunk.prefetch,
             {e.begins, e.begins_gradients, e.begins_stage ? host_first : Seconds{}});
    if (e.with_next) continue;
    for (std::size_t j = together; j <= i; ++j) {
      const Event& done = events_[j];
      if (done.sent >= 0)
        arrivals[static_cast<std::size_t>(done.sent)] =
            clock
                .send(done.forward ? transfers.send_forward : transfers.send_backward,
                      clock.free(kComputeStream))
                .end;
    }
    together = i + 1;
  }
}

PipelineRun SlotOrder::run(const std::vector<const ChunkPasses*>& passes, const TransferTimes& transfers,
                           const PipelineBegin& begun) const {
  constexpr std::int32_t kNone = -1;
  const auto stages = static_cast<std::size_t>(stages_);
  PipelineRun run;
  run.last_began.resize(passes.size());
  run.on_path.resize(passes.size());
  run.followed.resize(passes.size());
  run.first_backward.assign(stages, kNever);
  thread_local Clocks clocks;
  clocks.stages.assign(stages, {});
  for (std::size_t i = 0; i < begun.stages.size(); ++i) {
    const StageEnd& e = begun.stages[i];
    clocks.stages[i] = {e.compute, e.collectives, e.sends, e.host};
  }
  clocks.messages.resize(messages_);
  clocks.waited.resize(events_.size());
  clocks.last_compute.assign(stages, kNone);
  std::vector<const PassTime*> times;
  bool host = transfers.in_order;
  const auto takes_part = [](const HostTime& t, const HostWork& w) {
    return t.launches.value > 0 || w.waits || w.before.value > 0;
  };
  for (const ActionTime& t : {transfers.send_forward, transfers.send_backward, transfers.receive_forward,
                              transfers.receive_backward})
    host = host || takes_part(t.host, t.work);
  for (const ChunkPasses* p : passes)
    for (const auto pass : kPasses) {
      times.push_back(&(p->*pass));
      host = host || takes_part(times.back()->host, times.back()->work);
    }
  if (host)
    run_events<true>(times, transfers, passes, begun, clocks, run);
  else
    run_events<false>(times, transfers, passes, begun, clocks, run);
  std::size_t latest = 0;
  for (std::size_t i = 0; i < stages; ++i) {
    const StageClock& c = clocks.stages[i];
    run.ends.push_back({c.compute, c.collectives, c.sends, c.host});
    if (c.compute > clocks.stages[latest].compute) latest = i;
  }
  const Event* next = nullptr;  // on the path
  for (std::int32_t i = clocks.last_compute[latest]; i != kNone;
       i = clocks.waited[static_cast<std::size_t>(i)]) {
    const Event& e = events_[static_cast<std::size_t>(i)];
    if (next && next->stage == e.stage) ++run.followed[static_cast<std::size_t>(e.at)][e.pass];
    next = &e;
    ++run.on_path[static_cast<std::size_t>(e.at)][e.pass];
    if (e.begins_gradients) ++run.on_path[static_cast<std::size_t>(e.at)][kPasses.size()];
  }
  return run;
}

namespace {

// Micro-batches that the pattern of a schedule repeats itself after.
std::int32_t group_of(const std::string& schedule, std::int32_t stages) {
  return placement_of(schedule) == Placement::two_directions ? 2 * stages : stages;
}
// Groups that fill the pipeline; with one more it does what it goes on doing.
std::int32_t groups_of(const std::string& schedule) {
  const bool fills_twice = schedule == "zb-h2" || placement_of(schedule) == Placement::v;
  return fills_twice ? 3 : 2;
}

}  // namespace

std::int32_t enough_micro_batches(const std::string& schedule, std::int32_t stages,
                                  std::int32_t micro_batches) {
  if (schedule == "gpipe") return micro_batches;  // all are in flight
  const std::int32_t group = group_of(schedule, stages);
  return std::min(micro_batches, (groups_of(schedule) + 1) * group + micro_batches % group);
}

ScheduleClock::ScheduleClock(const std::string& schedule, std::int32_t stages, std::int32_t chunks,
                             std::int32_t micro_batches)
    : schedule_(schedule), stages_(stages), chunks_(chunks), micro_batches_(micro_batches) {
  const std::int32_t group = group_of(schedule, stages);
  const std::int32_t shorter = groups_of(schedule) * group + micro_batches % group, longer = shorter + group;
  const auto order = [&](std::int32_t m) {
    return std::make_unique<SlotOrder>(make_schedule(schedule, stages, chunks, m));
  };
  longer_ = order(std::min(micro_batches, longer));
  if (micro_batches <= longer) return;
  shorter_ = order(shorter);
  more_ = (micro_batches - longer) / group;
}

const SlotOrder& ScheduleClock::whole() const {
  if (!shorter_) return *longer_;
  std::call_once(made_whole_, [&] {
    whole_ = std::make_unique<SlotOrder>(make_schedule(schedule_, stages_, chunks_, micro_batches_));
  });
  return *whole_;
}

const ScheduleClock::UnitOrders& ScheduleClock::unit_orders() const {
  constexpr std::int32_t kMoreGroups = 2;  // than fill the pipeline
  std::call_once(made_unit_orders_, [&] {
    const std::int32_t group = group_of(schedule_, stages_);
    const std::int32_t shorter = (groups_of(schedule_) + kMoreGroups) * group + micro_batches_ % group,
                       longer = shorter + group;
    if (micro_batches_ <= shorter + longer) return;
    const auto order = [&](std::int32_t m) {
      return std::make_unique<SlotOrder>(make_schedule(schedule_, stages_, chunks_, m));
    };
    unit_orders_ = {order(shorter), order(longer), static_cast<double>((micro_batches_ - longer) / group)};
  });
  return unit_orders_;
}

bool ScheduleClock::goes_on(const std::vector<DeviceClock>& shorter, const std::vector<DeviceClock>& longer,
                            double more) {
  constexpr double kNegligible = 0.001;  // of a step
  Seconds least{1e30}, most, end;
  for (std::size_t i = 0; i < longer.size(); ++i) {
    const Seconds grew = longer[i].free(kComputeStream) - shorter[i].free(kComputeStream);
    least = std::min(least, grew);
    most = std::max(most, grew);
    end = std::max(end, longer[i].end() + grew * more);
  }
  if ((most - least) * more > end * kNegligible) return false;
  for (std::size_t i = 0; i < longer.size(); ++i) {
    const Seconds behind = longer[i].free(kComputeStream) - longer[i].host();
    const Seconds catches_up = longer[i].host() - shorter[i].host() - least;
    // A host that is behind compute may come to be ahead of it.
    if (catches_up * more > std::max(behind, end * kNegligible)) return false;
  }
  return true;
}

PipelineRun ScheduleClock::run(const std::vector<const ChunkPasses*>& passes, const TransferTimes& transfers,
                               const PipelineBegin& begun) const {
  PipelineRun run = longer_->run(passes, transfers, begun);
  if (!shorter_) return run;
  const PipelineRun less = shorter_->run(passes, transfers, begun);
  const auto grow = [this](auto& value, const auto& before) { value += (value - before) * more_; };
  for (std::size_t i = 0; i < run.ends.size(); ++i)
    for (Seconds StageEnd::*t :
         {&StageEnd::compute, &StageEnd::collectives, &StageEnd::sends, &StageEnd::host})
      grow(run.ends[i].*t, less.ends[i].*t);
  for (std::size_t i = 0; i < run.last_began.size(); ++i) {
    grow(run.last_began[i], less.last_began[i]);
    for (std::size_t pass = 0; pass < run.on_path[i].size(); ++pass)
      grow(run.on_path[i][pass], less.on_path[i][pass]);
    for (std::size_t pass = 0; pass < kPasses.size(); ++pass)
      grow(run.followed[i][pass], less.followed[i][pass]);
  }
  return run;
}

}  // namespace sim
