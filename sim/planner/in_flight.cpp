#include "sim/planner/in_flight.h"

#include <algorithm>
#include <utility>

namespace sim {
namespace {

// Micro-batches in whatever chunks, which are about equal.
struct Totals {
  std::int32_t kept = 0, waiting = 0, carried_back = 0;
  bool within(const Totals& o) const {
    return kept <= o.kept && waiting <= o.waiting && carried_back <= o.carried_back;
  }
};

// A stage from pass to pass.
class Stage {
 public:
  Stage(const Schedule& schedule, std::int32_t stage)
      : schedule_(schedule),
        stage_(stage),
        has_both_ends_(schedule.placement == Placement::v && stage == 0),
        carries_(schedule.chunks > 1 && schedule.placement != Placement::two_directions),
        chunks_(static_cast<std::size_t>(schedule.chunks)),
        chunks_done_(static_cast<std::size_t>(schedule.micro_batches)) {}

  Totals totals_during(const Slot& slot) const {
    return {totals_.kept - ends_kept(slot), totals_.waiting - (slot.pass == Pass::backward_weight),
            now_.carried_back - is_carried(slot)};
  }
  // Chunks that have had a backward pass: where they are as many, they are the same.
  std::int32_t begun() const { return begun_; }
  // While the pass goes on.
  void during(const Slot& slot, InFlight& moment, std::vector<ChunkInFlight>& chunks) const {
    moment = now_;
    moment.pass = slot.pass;
    moment.chunk = slot.chunk;
    moment.carried_back -= is_carried(slot);
    chunks = chunks_;
    ChunkInFlight& own = chunks[static_cast<std::size_t>(slot.chunk)];
    own.kept -= ends_kept(slot);
    own.waiting -= slot.pass == Pass::backward_weight;
  }

  void end(const Slot& slot) {
    ChunkInFlight& own = chunks_[static_cast<std::size_t>(slot.chunk)];
    totals_.kept += (slot.pass == Pass::forward) - ends_kept(slot);
    totals_.waiting += (slot.pass == Pass::backward_input) - (slot.pass == Pass::backward_weight);
    own.kept += slot.pass == Pass::forward;
    own.waiting += slot.pass == Pass::backward_input;
    own.waiting -= slot.pass == Pass::backward_weight;
    if (has_both_ends_ && slot.pass != Pass::backward_weight) {
      const std::int32_t piece = schedule_.piece(stage_, slot.chunk);
      const bool is_first = piece == 0, is_last = piece == schedule_.pieces() - 1;
      const bool forward = slot.pass == Pass::forward;
      std::int32_t& between = forward ? now_.between_forward : now_.between_backward;
      if (is_first || is_last) between += is_first == forward ? 1 : -1;
    }
    if (!ends_kept(slot)) return;
    own.kept -= 1;
    begun_ += !own.begun;
    own.begun = true;
    now_.carried_back -= is_carried(slot);
    ++chunks_done_[static_cast<std::size_t>(slot.micro_batch)];
    now_.carried_back += is_carried(slot);
  }

 private:
  static bool ends_kept(const Slot& slot) {
    return slot.pass == Pass::backward || slot.pass == Pass::backward_input;
  }
  bool is_carried(const Slot& slot) const {
    const std::int32_t done = chunks_done_[static_cast<std::size_t>(slot.micro_batch)];
    return carries_ && done > 0 && done < schedule_.chunks;
  }

  const Schedule& schedule_;
  std::int32_t stage_;
  bool has_both_ends_, carries_;
  InFlight now_;
  std::vector<ChunkInFlight> chunks_;
  std::int32_t begun_ = 0;
  Totals totals_;
  std::vector<std::int32_t> chunks_done_;  // of each micro-batch, backward
};

}  // namespace

std::vector<StageInFlight> in_flight(const Schedule& schedule) {
  struct Moment {
    InFlight flight;
    std::vector<ChunkInFlight> chunks;
    std::int32_t begun = 0;
    Totals totals;
  };
  std::vector<StageInFlight> stages;
  constexpr std::size_t kPasses = 4;
  const auto chunks = static_cast<std::size_t>(schedule.chunks);
  std::vector<std::vector<Moment>> most(kPasses * chunks);  // of each pass and chunk
  for (const std::vector<Slot>& slots : schedule.slots) {
    Stage stage(schedule, static_cast<std::int32_t>(stages.size()));
    for (const Slot& slot : slots) {
      std::vector<Moment>& alike =
          most[static_cast<std::size_t>(slot.pass) * chunks + static_cast<std::size_t>(slot.chunk)];
      const Totals totals = stage.totals_during(slot);
      const bool beaten = std::any_of(alike.begin(), alike.end(), [&](const Moment& m) {
        return m.begun == stage.begun() && totals.within(m.totals);
      });
      if (!beaten) {
        std::erase_if(alike,
                      [&](const Moment& m) { return m.begun == stage.begun() && m.totals.within(totals); });
        Moment& added = alike.emplace_back();
        added.begun = stage.begun();
        added.totals = totals;
        stage.during(slot, added.flight, added.chunks);
      }
      stage.end(slot);
    }
    StageInFlight& of_stage = stages.emplace_back();
    for (std::vector<Moment>& alike : most) {
      for (const Moment& m : alike) {
        of_stage.moments.push_back(m.flight);
        of_stage.chunks.insert(of_stage.chunks.end(), m.chunks.begin(), m.chunks.end());
      }
      alike.clear();
    }
  }
  return stages;
}

namespace {

// Of one moment.
using Numbers = std::span<const std::int32_t>;

bool within(Numbers a, Numbers b) {
  return std::equal(a.begin(), a.end(), b.begin(), [](std::int32_t x, std::int32_t y) { return x <= y; });
}

bool within_any(Numbers moment, const std::vector<std::int32_t>& moments) {
  for (std::size_t i = 0; i < moments.size(); i += moment.size())
    if (within(moment, Numbers(moments).subspan(i, moment.size()))) return true;
  return false;
}

}  // namespace

std::vector<MostHeld> most_held(const std::vector<StageInFlight>& stages) {
  std::vector<MostHeld> held;
  std::vector<std::int32_t> moment, kept;
  for (const StageInFlight& stage : stages) {
    MostHeld most;
    for (std::size_t i = 0; i < stage.moments.size(); ++i) {
      moment.clear();
      std::int32_t waiting = 0;
      for (const ChunkInFlight& c : stage.chunks_of(i)) {
        moment.push_back(c.kept);
        moment.push_back(c.waiting);
        waiting += c.waiting;
      }
      most.waiting = std::max(most.waiting, waiting);
      if (within_any(moment, most.micro_batches)) continue;
      kept = moment;
      for (std::size_t o = 0; o < most.micro_batches.size(); o += moment.size()) {
        const Numbers other = Numbers(most.micro_batches).subspan(o, moment.size());
        if (!within(other, moment)) kept.insert(kept.end(), other.begin(), other.end());
      }
      most.micro_batches = kept;
    }
    if (!held.empty()) {
      const MostHeld& before = held.back();
      most.no_more_than_before = most.waiting <= before.waiting;
      for (std::size_t i = 0; i < most.micro_batches.size() && most.no_more_than_before; i += moment.size())
        most.no_more_than_before =
            within_any(Numbers(most.micro_batches).subspan(i, moment.size()), before.micro_batches);
    }
    held.push_back(std::move(most));
  }
  return held;
}

}  // namespace sim
