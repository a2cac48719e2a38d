#include "sim/planner/in_flight.h"

#include <algorithm>
#include <utility>

namespace sim {
namespace {

// A moment with what each chunk holds.
struct Moment {
  InFlight flight;
  std::vector<ChunkInFlight> chunks;
};

// Whether another moment of the same pass and chunk holds as much of everything, and more: then this one is
// never the fullest, whatever a micro-batch takes in a chunk.
bool within(const InFlight& a, std::span<const ChunkInFlight> of_a, const InFlight& b,
            std::span<const ChunkInFlight> of_b) {
  if (a.between_forward > b.between_forward || a.between_backward > b.between_backward ||
      a.carried_back > b.carried_back)
    return false;
  return std::equal(of_a.begin(), of_a.end(), of_b.begin(), [](ChunkInFlight x, ChunkInFlight y) {
    return x.begun == y.begun && x.kept <= y.kept && x.waiting <= y.waiting;
  });
}
bool within(const Moment& a, const Moment& b) {
  return within(a.flight, a.chunks, b.flight, b.chunks);
}

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

  // While the pass goes on.
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

std::vector<StageInFlight> in_flight(const Schedule& schedule) {
  std::vector<StageInFlight> stages;
  constexpr std::size_t kPasses = 4;
  const auto chunks = static_cast<std::size_t>(schedule.chunks);
  std::vector<std::vector<Moment>> most(kPasses * chunks);  // of each pass and chunk
  Moment now;
  for (const std::vector<Slot>& slots : schedule.slots) {
    Stage stage(schedule, static_cast<std::int32_t>(stages.size()));
    for (const Slot& slot : slots) {
      std::vector<Moment>& alike =
          most[static_cast<std::size_t>(slot.pass) * chunks + static_cast<std::size_t>(slot.chunk)];
      stage.during(slot, now);
      if (std::none_of(alike.begin(), alike.end(), [&](const Moment& m) { return within(now, m); })) {
        std::erase_if(alike, [&](const Moment& m) { return within(m, now); });
        alike.push_back(now);
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

bool within(const StageInFlight& a, const StageInFlight& b) {
  for (std::size_t i = 0; i < a.moments.size(); ++i) {
    const InFlight& moment = a.moments[i];
    bool is = false;
    for (std::size_t j = 0; j < b.moments.size() && !is; ++j)
      is = moment.pass == b.moments[j].pass && moment.chunk == b.moments[j].chunk &&
           within(moment, a.chunks_of(i), b.moments[j], b.chunks_of(j));
    if (!is) return false;
  }
  return true;
}

}  // namespace sim
