#include "sim/planner/in_flight.h"

#include <algorithm>
#include <utility>

#include "sim/enum_array.h"

namespace sim {
namespace {

// A moment with what each chunk holds.
struct Moment {
  InFlight flight;
  std::vector<ChunkInFlight> chunks;
};

// Whether b, of the same pass and chunk, holds at least as much of everything as a. Then a is never the only
// fullest moment, whatever a micro-batch takes in a chunk.
bool within(const Moment& a, const Moment& b) {
  return a.flight.between_forward <= b.flight.between_forward &&
         a.flight.between_backward <= b.flight.between_backward &&
         a.flight.carried_back <= b.flight.carried_back &&
         std::equal(a.chunks.begin(), a.chunks.end(), b.chunks.begin(),
                    [](const ChunkInFlight& x, const ChunkInFlight& y) {
                      return x.kept <= y.kept && x.waiting <= y.waiting && x.begun == y.begun;
                    });
}

// What a stage holds, from pass to pass.
class Stage {
 public:
  Stage(const Schedule& schedule, std::int32_t stage, bool begins_gradients)
      : schedule_(schedule),
        stage_(stage),
        has_both_ends_(schedule.placement == Placement::v && stage == 0),
        carries_(schedule.chunks > 1 && schedule.placement != Placement::two_directions),
        chunks_(static_cast<std::size_t>(schedule.chunks), ChunkInFlight{.begun = !begins_gradients}),
        chunks_done_(static_cast<std::size_t>(schedule.micro_batches)) {}

  // Sets the moment to what the stage holds while the pass runs.
  void during(const Slot& slot, Moment& moment) const {
    moment.flight = now_;
    moment.flight.pass = slot.pass;
    moment.flight.chunk = slot.chunk;
    moment.flight.carried_back -= is_carried(slot);
    moment.chunks = chunks_;
    ChunkInFlight& own = moment.chunks[static_cast<std::size_t>(slot.chunk)];
    own.kept -= ends_kept(slot);
    own.waiting -= slot.pass == Pass::backward_weight;
  }

  void end(const Slot& slot) {
    ChunkInFlight& own = chunks_[static_cast<std::size_t>(slot.chunk)];
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
  std::vector<std::int32_t> chunks_done_;  // of each micro-batch, backward
};

}  // namespace

StagesInFlight in_flight(const Schedule& schedule, bool begins_gradients) {
  const auto chunks = static_cast<std::size_t>(schedule.chunks);
  // Moments by pass and chunk: those of all stages, and those of the stage at hand.
  std::vector<std::vector<Moment>> all(kCount<Pass> * chunks), most(all);
  std::vector<std::size_t> before(all.size());  // where those of the stage before begin
  Moment now;
  for (std::int32_t i = 0; i < schedule.stages; ++i) {
    Stage stage(schedule, i, begins_gradients);
    for (const Slot& slot : schedule.slots[static_cast<std::size_t>(i)]) {
      std::vector<Moment>& alike =
          most[static_cast<std::size_t>(slot.pass) * chunks + static_cast<std::size_t>(slot.chunk)];
      stage.during(slot, now);
      // Most slots repeat a recent moment, so the newest are compared first.
      if (std::none_of(alike.rbegin(), alike.rend(), [&](const Moment& m) { return within(now, m); })) {
        std::erase_if(alike, [&](const Moment& m) { return within(m, now); });
        alike.push_back(now);
      }
      stage.end(slot);
    }
    for (std::size_t g = 0; g < all.size(); ++g) {
      const std::size_t own = all[g].size();
      for (Moment& m : most[g]) {
        m.flight.stage = i;
        m.flight.covered = std::any_of(all[g].begin() + static_cast<std::ptrdiff_t>(before[g]),
                                       all[g].begin() + static_cast<std::ptrdiff_t>(own),
                                       [&](const Moment& other) { return within(m, other); });
        all[g].push_back(std::move(m));
      }
      before[g] = own;
      most[g].clear();
    }
  }
  StagesInFlight found;
  for (const std::vector<Moment>& alike : all)
    for (const Moment& m : alike) {
      found.moments.push_back(m.flight);
      found.chunks.insert(found.chunks.end(), m.chunks.begin(), m.chunks.end());
    }
  return found;
}

}  // namespace sim
