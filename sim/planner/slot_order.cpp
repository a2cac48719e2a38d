#include "sim/planner/slot_order.h"

#include <algorithm>
#include <array>
#include <utility>

#include "sim/planner/lanes.h"

namespace sim {
namespace {

// No interference: passes already include what compute loses beside exchanges.
struct Undisturbed {
  explicit Undisturbed(Interference) {}
};

using InLanes = std::array<bool, kLanes>;

// By how much a group of micro-batches moves the times that a machine saves of its state, lane by lane. The
// first `deciding` times may not fall behind.
class Pace {
 public:
  Pace(const std::vector<Lanes>& before, const std::vector<Lanes>& now, std::size_t deciding)
      : before_(before),
        now_(now),
        deciding_(deciding),
        pace_(now.front() - before.front()),
        rounding_(pace_ * kRounding) {}

  // The lanes where all deciding times have moved by the pace, and no other time by more.
  InLanes is_even() const {
    Lanes uneven{};
    for (std::size_t i = 0; i < now_.size(); ++i) {
      const Lanes more = moved(i) - pace_;
      uneven = larger(uneven, (i < deciding_ ? larger(more, Lanes{} - more) : more) - rounding_);
    }
    return are_zero(uneven);
  }
  // Lowers the times that fell behind, as if they had never been.
  void lower_those_behind(std::vector<Lanes>& lowered) const {
    constexpr double kFar = 1e9;
    lowered = now_;
    for (std::size_t i = deciding_; i < now_.size(); ++i)
      lowered[i] = where_less(moved(i), pace_ - rounding_, now_[i] - pace_ * kFar, now_[i]);
  }
  // The lanes where a group that ran after the lowering has moved all other times by the pace.
  InLanes goes_on(const std::vector<Lanes>& after_lowered) const {
    Lanes uneven{};
    for (std::size_t i = 0; i < now_.size(); ++i) {
      const Lanes less = now_[i] + pace_ - after_lowered[i] - rounding_;
      uneven = larger(uneven, i < deciding_ ? less : where_less(moved(i), pace_ - rounding_, Lanes{}, less));
    }
    return are_zero(uneven);
  }
  // Time i after `groups` more groups. A time that is behind goes on at its own pace, or follows the others.
  Lanes later(std::size_t i, double groups, const std::vector<Lanes>& after_lowered) const {
    const Lanes even = now_[i] + pace_ * groups;
    if (i < deciding_) return even;
    const Lanes behind = larger(now_[i] + moved(i) * groups, after_lowered[i] + pace_ * (groups - 1));
    return where_less(moved(i), pace_ - rounding_, behind, even);
  }

 private:
  static constexpr double kRounding = 1e-9;
  Lanes moved(std::size_t i) const { return now_[i] - before_[i]; }
  static InLanes are_zero(const Lanes& lanes) {
    InLanes zero{};
    for (std::size_t lane = 0; lane < kLanes; ++lane) zero[lane] = !(lane_of(lanes, lane) > Seconds{});
    return zero;
  }

  const std::vector<Lanes>&before_, &now_;
  std::size_t deciding_;
  Lanes pace_, rounding_;
};

}  // namespace

// What runs beside each other are made of and write to, with a lane for each run.
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
  std::vector<Lanes> carried;             // of those on their way when a segment ended

  // Saves where everything stands. Compute of all stages and the messages on their way come first.
  void save(std::vector<Lanes>& state) const {
    state.clear();
    for (const Clock& clock : clocks) state.push_back(clock.free(kComputeStream));
    state.insert(state.end(), carried.begin(), carried.end());
    for (const Clock& clock : clocks) {
      state.push_back(clock.free(kCollectiveStream));
      state.push_back(clock.free(kSendStream));
      if constexpr (kHost) state.push_back(clock.host());
    }
  }
  void restore(const std::vector<Lanes>& state) {
    auto from = state.begin();
    for (Clock& clock : clocks) clock.free(kComputeStream) = *from++;
    for (std::size_t i = 0; i < carried.size(); ++i) arrivals[i] = carried[i] = *from++;
    for (Clock& clock : clocks) {
      clock.free(kCollectiveStream) = *from++;
      clock.free(kSendStream) = *from++;
      if constexpr (kHost) clock.host() = *from++;
    }
  }

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
SIM_INLINE void SlotOrder::run_events(const SlotSegment& segment, Machine<kHost>& m,
                                      const TransferTimes& transfers) const {
  const std::vector<SlotEvent>& events = segment.events;
  std::size_t together = 0;  // first of those that are worked on together
  for (std::size_t i = 0; i < events.size(); ++i) {
    const SlotEvent& e = events[i];
    auto& clock = m.clocks[static_cast<std::size_t>(e.stage)];
    // Both begin when both inputs are there, and both results go when both have ended.
    if (i == together)
      for (std::size_t j = i;; ++j) {
        const SlotEvent& with = events[j];
        if (with.received >= 0)
          clock.receive(with.forward ? transfers.receive_forward : transfers.receive_backward,
                        clock.free(kComputeStream), m.arrivals[static_cast<std::size_t>(with.received)]);
        if (!with.with_next) break;
      }
    const auto at = static_cast<std::size_t>(e.at);
    clock.pass(m.passes[m.piece_of[at] * events_.kinds.size() + e.kind]);
    if (e.reads_ahead && !m.first_forward.empty())
      clock.free(kComputeStream) = larger(clock.free(kComputeStream), m.first_forward[at]);
    if (e.with_next) continue;
    for (std::size_t j = together; j <= i; ++j)
      if (const SlotEvent& done = events[j]; done.sent >= 0)
        m.arrivals[static_cast<std::size_t>(done.sent)] =
            clock
                .send(done.forward ? transfers.send_forward : transfers.send_backward,
                      clock.free(kComputeStream))
                .end;
    together = i + 1;
  }
  m.carried.clear();
  for (const std::int32_t place : segment.carried)
    m.carried.push_back(m.arrivals[static_cast<std::size_t>(place)]);
  std::ranges::copy(m.carried, m.arrivals.begin());
}

SIM_MULTIVERSION
void SlotOrder::run_segment(const SlotSegment& segment, Machine<false>& m,
                            const TransferTimes& transfers) const {
  run_events(segment, m, transfers);
}
SIM_MULTIVERSION
void SlotOrder::run_segment(const SlotSegment& segment, Machine<true>& m,
                            const TransferTimes& transfers) const {
  run_events(segment, m, transfers);
}

// Runs the group until the further ones are known. F is what it does to all clocks and messages on their way.
// F moves by c where they all move by c, and is never earlier where one of them is later. So where F(x) is
// x + c, each further group adds c. Some times may fall behind (what few exchanges wait for, a host that is
// ahead). Where no time of F(x) is later than x + c, and F gives x + c to all others even if those behind had
// never been, F^n(x) is x + n c for the others: not later by the former, not earlier by the latter. A lane is
// known by its own times alone, so that it ends the same whatever runs beside it.
template <bool kHost>
void SlotOrder::repeat_group(Machine<kHost>& m, const TransferTimes& transfers) const {
  thread_local std::vector<Lanes> before, now, lowered, ends;  // kept from one run to the next
  InLanes known{};
  const auto keep = [&](const InLanes& lanes, const auto& end_of) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      if (!lanes[lane] || std::exchange(known[lane], true)) continue;
      for (std::size_t i = 0; i < ends.size(); ++i) set_lane(ends[i], lane, lane_of(end_of(i), lane));
    }
  };
  m.save(before);
  ends.resize(before.size());
  for (std::int32_t left = events_.repeats; left > 0;) {
    run_segment(events_.group, m, transfers);
    m.save(now);
    if (--left == 0) break;
    const Pace pace(before, now, m.clocks.size() + m.carried.size());
    InLanes even = pace.is_even();
    for (std::size_t lane = 0; lane < kLanes; ++lane) even[lane] = even[lane] && !known[lane];
    if (std::ranges::find(even, true) != even.end()) {
      pace.lower_those_behind(lowered);
      m.restore(lowered);
      run_segment(events_.group, m, transfers);
      m.save(lowered);
      const InLanes goes_on = pace.goes_on(lowered);
      for (std::size_t lane = 0; lane < kLanes; ++lane) even[lane] = even[lane] && goes_on[lane];
      keep(even, [&](std::size_t i) { return pace.later(i, left, lowered); });
      if (std::ranges::find(known, false) == known.end()) break;
      m.restore(now);
    }
    before.swap(now);
  }
  InLanes all;
  all.fill(true);
  keep(all, [&](std::size_t i) { return now[i]; });
  m.restore(ends);
}

template <bool kHost>
void SlotOrder::run_some(std::span<const PipelinePasses> runs, std::span<const std::size_t> piece_of,
                         const TransferTimes& transfers, StageEnd* ends) const {
  thread_local Machine<kHost> m;  // kept from one run to the next
  m.piece_of = piece_of;
  m.passes.resize(runs.front().passes.size() * events_.kinds.size());
  const bool ahead =
      std::ranges::any_of(runs, [](const PipelinePasses& r) { return !r.first_forward.empty(); });
  m.first_forward.resize(ahead ? piece_of.size() : 0);
  m.clocks.assign(static_cast<std::size_t>(events_.stages),
                  typename Machine<kHost>::Clock(transfers.in_order));
  m.arrivals.resize(events_.places);
  for (std::size_t lane = 0; lane < kLanes; ++lane)
    m.set(lane, runs[std::min(lane, runs.size() - 1)], events_.kinds);
  run_segment(events_.head, m, transfers);
  if (events_.repeats > 0) repeat_group(m, transfers);
  run_segment(events_.tail, m, transfers);
  for (std::size_t lane = 0; lane < runs.size(); ++lane)
    for (const auto& c : m.clocks) {
      const auto of = [lane](const auto& time) { return lane_of(time, lane); };
      *ends++ = {of(c.free(kComputeStream)), of(c.free(kCollectiveStream)), of(c.free(kSendStream)),
                 of(c.host())};
    }
}

void SlotOrder::run(std::span<const PipelinePasses> runs, std::span<const std::size_t> piece_of,
                    const TransferTimes& transfers, bool hosts, std::vector<StageEnd>& ends) const {
  const auto stages = static_cast<std::size_t>(events_.stages);
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
