#include "sim/planner/slot_order.h"

#include <algorithm>
#include <array>
#include <utility>

#include "sim/planner/lanes.h"

namespace sim {
namespace {

// Slots of each chunk of a stage: the first in either direction, and the last that give gradients, of inputs
// (embedding, head) and of weights.
struct ChunkSlots {
  explicit ChunkSlots(const std::vector<Slot>& slots, std::int32_t chunks)
      : first_forward(static_cast<std::size_t>(chunks), slots.size()),
        first_backward(first_forward),
        last_input(first_forward),
        last_weight(first_forward) {
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const auto chunk = static_cast<std::size_t>(slots[i].chunk);
      const Pass pass = slots[i].pass;
      std::size_t& first = (pass == Pass::forward ? first_forward : first_backward)[chunk];
      first = std::min(first, i);
      if (pass == Pass::backward || pass == Pass::backward_input) last_input[chunk] = i;
      if (pass == Pass::backward || pass == Pass::backward_weight) last_weight[chunk] = i;
    }
  }
  bool is_first(std::size_t i, const Slot& slot) const {
    return i == (slot.pass == Pass::forward ? first_forward
                                            : first_backward)[static_cast<std::size_t>(slot.chunk)];
  }
  bool is_last(std::size_t i, const Slot& slot) const {
    return i == (slot.pass == Pass::backward_input ? last_input
                                                   : last_weight)[static_cast<std::size_t>(slot.chunk)];
  }
  std::vector<std::size_t> first_forward, first_backward, last_input, last_weight;
};

}  // namespace

SlotOrder::SlotOrder(const Schedule& s) : stages_(s.stages), chunks_(s.chunks) {
  std::vector<ChunkSlots> chunk_slots;
  for (const std::vector<Slot>& slots : s.slots) chunk_slots.emplace_back(slots, s.chunks);
  // Places among kinds_, by PassKind::code(); those that are not yet there have none.
  std::array<std::uint8_t, kPassCodes> places;
  constexpr std::uint8_t kNone = kPassCodes;
  places.fill(kNone);
  const auto place_of = [&](const PassKind& kind) {
    std::uint8_t& place = places[kind.code()];
    if (place != kNone) return place;
    place = static_cast<std::uint8_t>(kinds_.size());
    kinds_.push_back(static_cast<std::uint8_t>(std::ranges::find(kPassKinds, kind.code(), &PassKind::code) -
                                               kPassKinds.begin()));
    return place;
  };
  ScheduleEvents all = events_of(s);
  messages_ = all.messages;
  events_.reserve(all.events.size());
  for (const ScheduleEvent& event : all.events) {
    const std::vector<Slot>& slots = s.slots[static_cast<std::size_t>(event.stage)];
    const std::size_t i = event.slot;
    const Slot& slot = slots[i];
    const bool forward = slot.pass == Pass::forward;
    const bool begins = i == 0 || slots[i - 1].chunk != slot.chunk ||
                        slots[i - 1].micro_batch != slot.micro_batch ||
                        (slots[i - 1].pass == Pass::forward) != forward;
    const ChunkSlots& ends = chunk_slots[static_cast<std::size_t>(event.stage)];
    const bool of_weight = slot.pass == Pass::backward_weight, first = ends.is_first(i, slot) && !of_weight;
    const PassKind kind{.pass = slot.pass,
                        .begins_step = i == 0,
                        .reads_ahead = forward && first,
                        .begins_gradients = !forward && first,
                        .ends_gradients = !forward && !first && ends.is_last(i, slot),
                        .follows_input = of_weight && !begins};
    events_.push_back({.kind = place_of(kind),
                       .forward = forward,
                       .reads_ahead = kind.reads_ahead,
                       .with_next = slot.with_next,
                       .stage = event.stage,
                       .at = event.stage * s.chunks + slot.chunk,
                       .received = event.received,
                       .sent = event.sent});
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

namespace {

// Passes know what compute beside exchanges loses.
struct Undisturbed {
  explicit Undisturbed(Interference) {}
};

}  // namespace

// What runs beside each other are made of and write to, a lane each.
template <bool kHost>
struct SlotOrder::Machine {
  static constexpr std::size_t kStreamsOfPipeline = 3;
  using Row = std::array<Lanes, kHost ? static_cast<std::size_t>(kFroms) : 2>;
  struct Pass {
    Row compute, collectives;
    std::array<Lanes, kHost ? static_cast<std::size_t>(kFroms) : 0> host;
    Lanes slower, most_slower;
  };
  // A device that runs passes as a whole.
  struct Clock : StreamClock<Lanes, Undisturbed, kHost, kStreamsOfPipeline> {
    explicit Clock(bool in_order)
        : StreamClock<Lanes, Undisturbed, kHost, kStreamsOfPipeline>(Interference{}, in_order) {}
    SIM_INLINE Lanes after(const Row& row, const Lanes& slower) const {
      const Lanes from_compute = this->free(kComputeStream) + slower + row[kFromCompute];
      Lanes latest = larger(from_compute, this->free(kCollectiveStream) + row[kFromCollectives]);
      if constexpr (kHost) {
        latest = larger(latest, this->host() + row[kFromHost]);
        latest = larger(latest, this->free(kSendStream) + row[kFromSends]);
      }
      return latest;
    }
    SIM_INLINE void pass(const Pass& p) {
      const Lanes beside = this->free(kCollectiveStream) - this->free(kComputeStream);
      const Lanes slower = larger(smaller(beside * p.slower, p.most_slower), Seconds{});
      const Lanes compute = after(p.compute, slower), collectives = after(p.collectives, slower);
      if constexpr (kHost) this->host() = after(p.host, slower);
      this->free(kComputeStream) = compute;
      this->free(kCollectiveStream) = collectives;
    }
  };

  std::span<const std::size_t> piece_of;  // by stage and chunk
  std::vector<Pass> passes;               // of pieces, by place of their kind
  std::vector<Lanes> first_forward;       // PipelinePasses'
  std::vector<Clock> clocks;              // of stages
  std::vector<Lanes> arrivals;            // of messages

  void set(std::size_t lane, const PipelinePasses& run, const std::vector<std::uint8_t>& kinds) {
    for (std::size_t p = 0; p < run.passes.size(); ++p)
      for (std::size_t k = 0; k < kinds.size(); ++k) {
        const PassTime& from = *run.passes[p][kinds[k]];
        Pass& to = passes[p * kinds.size() + k];
        for (std::size_t i = 0; i < to.compute.size(); ++i) {
          set_lane(to.compute[i], lane, from.compute[i]);
          set_lane(to.collectives[i], lane, from.collectives[i]);
          if constexpr (kHost) set_lane(to.host[i], lane, from.host[i]);
        }
        set_lane(to.slower, lane, {from.slower});
        set_lane(to.most_slower, lane, from.most_slower);
      }
    for (std::size_t i = 0; i < clocks.size(); ++i) {
      const StageEnd& from = run.begin[i];
      set_lane(clocks[i].free(kComputeStream), lane, from.compute);
      set_lane(clocks[i].free(kCollectiveStream), lane, from.collectives);
      set_lane(clocks[i].free(kSendStream), lane, from.sends);
      set_lane(clocks[i].host(), lane, from.host);
    }
    for (std::size_t i = 0; i < first_forward.size(); ++i)
      set_lane(first_forward[i], lane, run.first_forward.empty() ? kNever : run.first_forward[i]);
  }
};

template <bool kHost>
SIM_INLINE void SlotOrder::run_events(Machine<kHost>& m, const TransferTimes& transfers) const {
  std::size_t together = 0;  // first of those that are worked on together
  for (std::size_t i = 0; i < events_.size(); ++i) {
    const Event& e = events_[i];
    auto& clock = m.clocks[static_cast<std::size_t>(e.stage)];
    // Both begin when both inputs are there, and both results go when both have ended.
    if (i == together)
      for (std::size_t j = i;; ++j) {
        const Event& with = events_[j];
        if (with.received >= 0)
          clock.receive(with.forward ? transfers.receive_forward : transfers.receive_backward,
                        clock.free(kComputeStream), m.arrivals[static_cast<std::size_t>(with.received)]);
        if (!with.with_next) break;
      }
    const auto at = static_cast<std::size_t>(e.at);
    clock.pass(m.passes[m.piece_of[at] * kinds_.size() + e.kind]);
    if (e.reads_ahead && !m.first_forward.empty())
      clock.free(kComputeStream) = larger(clock.free(kComputeStream), m.first_forward[at]);
    if (e.with_next) continue;
    for (std::size_t j = together; j <= i; ++j)
      if (const Event& done = events_[j]; done.sent >= 0)
        m.arrivals[static_cast<std::size_t>(done.sent)] =
            clock
                .send(done.forward ? transfers.send_forward : transfers.send_backward,
                      clock.free(kComputeStream))
                .end;
    together = i + 1;
  }
}

SIM_MULTIVERSION
void SlotOrder::run_machine(Machine<false>& m, const TransferTimes& transfers) const {
  run_events(m, transfers);
}
SIM_MULTIVERSION
void SlotOrder::run_machine(Machine<true>& m, const TransferTimes& transfers) const {
  run_events(m, transfers);
}
template <bool kHost>
void SlotOrder::run_some(std::span<const PipelinePasses> runs, std::span<const std::size_t> piece_of,
                         const TransferTimes& transfers, StageEnd* ends) const {
  thread_local Machine<kHost> m;  // kept from one run to the next
  m.piece_of = piece_of;
  m.passes.resize(runs.front().passes.size() * kinds_.size());
  const bool ahead =
      std::any_of(runs.begin(), runs.end(), [](const PipelinePasses& r) { return !r.first_forward.empty(); });
  m.first_forward.resize(ahead ? piece_of.size() : 0);
  m.clocks.assign(static_cast<std::size_t>(stages_), typename Machine<kHost>::Clock(transfers.in_order));
  m.arrivals.resize(messages_);
  for (std::size_t lane = 0; lane < kLanes; ++lane)
    m.set(lane, runs[std::min(lane, runs.size() - 1)], kinds_);
  run_machine(m, transfers);
  for (std::size_t lane = 0; lane < runs.size(); ++lane)
    for (const auto& c : m.clocks) {
      const auto of = [lane](const auto& time) { return lane_of(time, lane); };
      *ends++ = {of(c.free(kComputeStream)), of(c.free(kCollectiveStream)), of(c.free(kSendStream)),
                 of(c.host())};
    }
}

void SlotOrder::run(std::span<const PipelinePasses> runs, std::span<const std::size_t> piece_of,
                    const TransferTimes& transfers, bool hosts, std::vector<StageEnd>& ends) const {
  const auto stages = static_cast<std::size_t>(stages_);
  ends.resize(runs.size() * stages);
  for (std::size_t first = 0; first < runs.size(); first += kLanes) {
    const auto some = runs.subspan(first, std::min(kLanes, runs.size() - first));
    StageEnd* const of_some = ends.data() + first * stages;
    if (hosts)
      run_some<true>(some, piece_of, transfers, of_some);
    else
      run_some<false>(some, piece_of, transfers, of_some);
  }
}

}  // namespace sim
