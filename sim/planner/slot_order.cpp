#include "sim/planner/slot_order.h"

#include <algorithm>
#include <array>
#include <utility>

#include "sim/planner/lanes.h"

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
  std::vector<Event> works;  // that go together
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
    works.clear();
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
  share_messages();
}

// A message's place is free for another once it has been received: few are under way at a time.
void SlotOrder::share_messages() {
  std::vector<std::int32_t> place(messages_, -1), free;
  std::int32_t places = 0;
  for (std::size_t first = 0; first < events_.size();) {
    std::size_t end = first + 1;
    while (events_[end - 1].with_next) ++end;
    for (std::size_t i = first; i < end; ++i) {
      std::int32_t& received = events_[i].received;
      if (received < 0) continue;
      received = place[static_cast<std::size_t>(received)];
      free.push_back(received);
    }
    for (std::size_t i = first; i < end; ++i) {
      std::int32_t& sent = events_[i].sent;
      if (sent < 0) continue;
      std::int32_t& own = place[static_cast<std::size_t>(sent)];
      if (free.empty()) {
        own = places++;
      } else {
        own = free.back();
        free.pop_back();
      }
      sent = own;
    }
    first = end;
  }
  messages_ = static_cast<std::size_t>(places);
}

// What a run, or several beside each other, are made of and write to.
template <class Time>
struct SlotOrder::Machine {
  struct Pass {
    Time duration, compute_after_collectives, collectives_after_compute, collectives, slower, most_slower;
    Time launches, ahead, before;  // of the host
    bool waits = false;
  };
  struct Gradients {
    Time duration, launches, ahead;
  };
  // DeviceClock for passes as a whole.
  struct Clock {
    Time compute, collectives, sends, host;

    SIM_INLINE void wait_for_all(bool waits) {
      if (waits) host = larger(larger(larger(host, compute), collectives), sends);
    }
    // By earlier collectives.
    SIM_INLINE Time slower(const Pass& pass) const {
      return larger(smaller((collectives - compute) * pass.slower, pass.most_slower), Time{});
    }
    template <bool kHost>
    SIM_INLINE void run(const Pass& pass) {
      if constexpr (kHost) {
        wait_for_all(pass.waits);
        host = host + pass.before;
      }
      const Time alone = compute + pass.duration + slower(pass);
      compute = larger(alone, collectives + pass.compute_after_collectives);
      if constexpr (kHost) {
        compute = larger(compute, host + pass.ahead);
        host = host + pass.launches;
      }
      const Time end = compute - pass.duration + pass.collectives_after_compute;
      collectives = larger(collectives + pass.collectives, end);
    }
    SIM_INLINE void begin_gradients(const Gradients& g) {
      compute = larger(compute + g.duration, host + g.ahead);
      host = host + g.launches;
    }
    SIM_INLINE void receive(const ActionTime& time, const Time& arrival) {
      host = host + time.work.before.value;
      compute = larger(larger(compute, host), arrival);
      host = host + time.host.launches.value;
      if (time.work.waits) host = larger(host, compute);
    }
    SIM_INLINE Time send(const ActionTime& time, bool in_order) {
      Time& free = in_order ? compute : sends;
      wait_for_all(time.work.waits);
      host = host + time.work.before.value;
      free = larger(larger(larger(free, compute), host) + time.duration.value, host + time.host.ahead.value);
      host = host + time.host.launches.value;
      if (time.work.waits) host = larger(host, free);
      return free;
    }
  };

  std::span<const std::size_t> piece_of;  // by stage and chunk
  std::vector<Pass> passes;               // of pieces, in the order of kPasses
  std::vector<Gradients> gradients;       // of pieces
  std::vector<Time> first_forward;        // PipelineBegin's
  std::vector<Clock> begin;               // of stages
  std::vector<Clock> clocks;
  std::vector<Time> arrivals;  // of messages

  void set(std::size_t lane, const PipelinePasses& run);
  void start(std::size_t messages) {
    clocks = begin;
    arrivals.resize(messages);
  }
};

template <class Time, bool kHost, class Observer>
SIM_INLINE void SlotOrder::run_events(Machine<Time>& m, const TransferTimes& transfers,
                                      Observer& observer) const {
  std::size_t together = 0;  // first of those that are worked on together
  for (std::size_t i = 0; i < events_.size(); ++i) {
    const Event& e = events_[i];
    auto& clock = m.clocks[static_cast<std::size_t>(e.stage)];
    // Both begin when both inputs are there, and both results go when both have ended.
    if (i == together)
      for (std::size_t j = i;; ++j) {
        const Event& with = events_[j];
        if (with.received >= 0) {
          const Time& arrival = m.arrivals[static_cast<std::size_t>(with.received)];
          const Time before = clock.compute;
          if constexpr (kHost)
            clock.receive(with.forward ? transfers.receive_forward : transfers.receive_backward, arrival);
          else
            clock.compute = larger(clock.compute, arrival);
          observer.received(with, before, arrival, clock.compute);
        }
        if (!with.with_next) break;
      }
    const auto at = static_cast<std::size_t>(e.at);
    observer.begins(e, clock.compute);
    const std::size_t piece = m.piece_of[at];
    if (e.begins_gradients) clock.begin_gradients(m.gradients[piece]);
    clock.template run<kHost>(m.passes[piece * kPasses.size() + e.pass]);
    if (e.pass == kFirstForward && !m.first_forward.empty())
      clock.compute = larger(clock.compute, m.first_forward[at]);
    observer.ends(e, i);
    if (e.with_next) continue;
    for (std::size_t j = together; j <= i; ++j) {
      const Event& done = events_[j];
      if (done.sent < 0) continue;
      const ActionTime& send = done.forward ? transfers.send_forward : transfers.send_backward;
      if constexpr (!kHost) clock.sends = larger(clock.sends, clock.compute) + send.duration.value;
      m.arrivals[static_cast<std::size_t>(done.sent)] =
          kHost ? clock.send(send, transfers.in_order) : clock.sends;
      observer.sends(done, i);
    }
    together = i + 1;
  }
}

namespace {

struct Unobserved {
  template <class Event, class Time>
  SIM_INLINE void received(const Event&, const Time&, const Time&, const Time&) {}
  template <class Event, class Time>
  SIM_INLINE void begins(const Event&, const Time&) {}
  template <class Event>
  SIM_INLINE void ends(const Event&, std::size_t) {}
  template <class Event>
  SIM_INLINE void sends(const Event&, std::size_t) {}
};

constexpr std::int32_t kNone = -1;

// What led to when each event ended.
template <bool kHost>
struct Path {
  static constexpr bool kOfHosts = kHost;
  PipelineRun& run;
  std::vector<std::int32_t> waited;        // of each event, the one that it waited for
  std::vector<std::int32_t> last_compute;  // events, of each stage
  std::vector<std::int32_t> senders;       // of messages, events

  template <class Event>
  void received(const Event& e, double before, double arrival, double now) {
    if (kHost ? now == arrival : arrival > before)
      last_compute[static_cast<std::size_t>(e.stage)] = senders[static_cast<std::size_t>(e.received)];
  }
  template <class Event>
  void begins(const Event& e, double now) {
    if (e.reduces) run.last_began[static_cast<std::size_t>(e.at)] = {now};
    Seconds& first = run.first_backward[static_cast<std::size_t>(e.stage)];
    if (!e.forward && first == kNever) first = {now};
  }
  template <class Event>
  void ends(const Event& e, std::size_t event) {
    std::int32_t& last = last_compute[static_cast<std::size_t>(e.stage)];
    waited[event] = last;
    last = static_cast<std::int32_t>(event);
  }
  template <class Event>
  void sends(const Event& e, std::size_t event) {
    senders[static_cast<std::size_t>(e.sent)] = static_cast<std::int32_t>(event);
  }
};

bool takes_part(const HostTime& t, const HostWork& w) {
  return t.launches.value > 0 || w.waits || w.before.value > 0;
}

// Whether hosts decide when something begins.
bool hosts_take_part(const TransferTimes& transfers) {
  bool host = transfers.in_order;
  for (const ActionTime& t : {transfers.send_forward, transfers.send_backward, transfers.receive_forward,
                              transfers.receive_backward})
    host = host || takes_part(t.host, t.work);
  return host;
}
bool hosts_take_part(std::span<const ChunkPasses> pieces) {
  for (const ChunkPasses& p : pieces)
    for (const auto pass : kPasses)
      if (takes_part((p.*pass).host, (p.*pass).work)) return true;
  return false;
}

}  // namespace

template <class Time>
void SlotOrder::Machine<Time>::set(std::size_t lane, const PipelinePasses& run) {
  const auto put = [lane](Time& time, Seconds value) { set_lane(time, lane, value.value); };
  const bool ahead = !run.begin.first_forward.empty();
  for (std::size_t p = 0; p < run.passes.size(); ++p) {
    const ChunkPasses& of_piece = run.passes[p];
    for (std::size_t i = 0; i < kPasses.size(); ++i) {
      const PassTime& from = of_piece.*kPasses[i];
      Pass& to = passes[p * kPasses.size() + i];
      const bool gathered = ahead && i == kFirstForward;
      put(to.duration, from.duration);
      put(to.compute_after_collectives, gathered ? kNever : from.compute_after_collectives);
      put(to.collectives_after_compute, from.collectives_after_compute);
      put(to.collectives, gathered ? Seconds{} : from.collectives);
      put(to.slower, {from.slower});
      put(to.most_slower, from.most_slower);
      put(to.launches, from.host.launches);
      put(to.ahead, from.host.ahead);
      put(to.before, from.work.before);
      to.waits = from.work.waits;
    }
    const ActionTime& begins = of_piece.begin_gradients;
    put(gradients[p].duration, begins.duration);
    put(gradients[p].launches, begins.host.launches);
    put(gradients[p].ahead, begins.host.ahead);
  }
  for (std::size_t i = 0; i < begin.size(); ++i) {
    const StageEnd& from = run.begin.stages[i];
    put(begin[i].compute, from.compute);
    put(begin[i].collectives, from.collectives);
    put(begin[i].sends, from.sends);
    put(begin[i].host, from.host);
  }
  for (std::size_t i = 0; i < first_forward.size(); ++i)
    put(first_forward[i], ahead ? run.begin.first_forward[i] : kNever);
}

template <class Time>
SlotOrder::Machine<Time>& SlotOrder::machine(std::span<const PipelinePasses> runs,
                                             std::span<const std::size_t> piece_of) {
  thread_local Machine<Time> m;  // kept from one run to the next
  m.piece_of = piece_of;
  m.passes.resize(runs.front().passes.size() * kPasses.size());
  m.gradients.resize(runs.front().passes.size());
  const bool ahead = std::any_of(runs.begin(), runs.end(),
                                 [](const PipelinePasses& r) { return !r.begin.first_forward.empty(); });
  m.first_forward.resize(ahead ? piece_of.size() : 0);
  m.begin.resize(runs.front().begin.stages.size());
  for (std::size_t lane = 0; lane < lanes_of<Time>; ++lane)
    m.set(lane, runs[std::min(lane, runs.size() - 1)]);
  return m;
}

PipelineRun SlotOrder::run(std::span<const ChunkPasses> passes, std::span<const std::size_t> piece_of,
                           const TransferTimes& transfers) const {
  const auto stages = static_cast<std::size_t>(stages_);
  PipelineRun run;
  run.last_began.resize(piece_of.size());
  run.on_path.resize(piece_of.size());
  run.followed.resize(piece_of.size());
  run.first_backward.assign(stages, kNever);
  const PipelinePasses plain{passes, {std::vector<StageEnd>(stages), {}}};
  Machine<double>& m = machine<double>({&plain, 1}, piece_of);
  m.start(messages_);
  const auto with_path = [&](auto path) {
    path.waited.resize(events_.size());
    path.last_compute.assign(stages, kNone);
    path.senders.resize(messages_);
    run_events<double, decltype(path)::kOfHosts>(m, transfers, path);
    std::size_t latest = 0;
    for (std::size_t i = 0; i < stages; ++i)
      if (m.clocks[i].compute > m.clocks[latest].compute) latest = i;
    const Event* next = nullptr;  // on the path
    for (std::int32_t i = path.last_compute[latest]; i != kNone;
         i = path.waited[static_cast<std::size_t>(i)]) {
      const Event& e = events_[static_cast<std::size_t>(i)];
      if (next && next->stage == e.stage) ++run.followed[static_cast<std::size_t>(e.at)][e.pass];
      next = &e;
      ++run.on_path[static_cast<std::size_t>(e.at)][e.pass];
      if (e.begins_gradients) ++run.on_path[static_cast<std::size_t>(e.at)][kPasses.size()];
    }
  };
  if (hosts_take_part(transfers) || hosts_take_part(passes))
    with_path(Path<true>{run, {}, {}, {}});
  else
    with_path(Path<false>{run, {}, {}, {}});
  for (const auto& c : m.clocks) run.ends.push_back({{c.compute}, {c.collectives}, {c.sends}, {c.host}});
  return run;
}

SIM_MULTIVERSION
void SlotOrder::run_lanes(Machine<Lanes>& m, const TransferTimes& transfers) const {
  Unobserved nothing;
  run_events<Lanes, false>(m, transfers, nothing);
}
SIM_MULTIVERSION
void SlotOrder::run_lanes_after_hosts(Machine<Lanes>& m, const TransferTimes& transfers) const {
  Unobserved nothing;
  run_events<Lanes, true>(m, transfers, nothing);
}

void SlotOrder::run(std::span<const SlotOrder* const> orders, std::span<const PipelinePasses> runs,
                    std::span<const std::size_t> piece_of, const TransferTimes& transfers,
                    std::vector<StageEnd>& ends) {
  const bool hosts = hosts_take_part(transfers) ||
                     std::any_of(runs.begin(), runs.end(),
                                 [](const PipelinePasses& r) { return hosts_take_part(r.passes); });
  const auto stages = static_cast<std::size_t>(orders.front()->stages_);
  ends.resize(runs.size() * orders.size() * stages);
  const auto take = [&](const auto& clocks, std::size_t run, std::size_t order, std::size_t lane) {
    const auto of = [lane](const auto& time) { return Seconds{lane_of(time, lane)}; };
    StageEnd* end = ends.data() + (run * orders.size() + order) * stages;
    for (const auto& c : clocks) *end++ = {of(c.compute), of(c.collectives), of(c.sends), of(c.host)};
  };
  for (std::size_t first = 0; first < runs.size(); first += kLanes) {
    const auto some = runs.subspan(first, std::min(kLanes, runs.size() - first));
    if (some.size() == 1) {
      Machine<double>& m = machine<double>(some, piece_of);
      for (std::size_t o = 0; o < orders.size(); ++o) {
        m.start(orders[o]->messages_);
        Unobserved nothing;
        if (hosts)
          orders[o]->run_events<double, true>(m, transfers, nothing);
        else
          orders[o]->run_events<double, false>(m, transfers, nothing);
        take(m.clocks, first, o, 0);
      }
      continue;
    }
    Machine<Lanes>& m = machine<Lanes>(some, piece_of);
    for (std::size_t o = 0; o < orders.size(); ++o) {
      m.start(orders[o]->messages_);
      if (hosts)
        orders[o]->run_lanes_after_hosts(m, transfers);
      else
        orders[o]->run_lanes(m, transfers);
      for (std::size_t lane = 0; lane < some.size(); ++lane) take(m.clocks, first + lane, o, lane);
    }
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

}  // namespace sim
