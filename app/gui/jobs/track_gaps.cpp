#include "app/gui/jobs/track_gaps.h"

#include <algorithm>

#include "sim/plan/plan.h"

namespace app::gui {
namespace {

using Slot = sim::TimelineSlot;

std::string words_of(const Slot& slot) {
  std::string words(sim::name(slot.phase));
  if (slot.phase != sim::Phase::optimizer) words += " of micro-batch " + std::to_string(slot.micro_batch);
  return words;
}

int stages_of(const RankTracks& tracks) {
  int stages = 1;
  for (const auto& slots : tracks.of_rank)
    for (const Slot& slot : slots) stages = std::max(stages, slot.stage + 1);
  return stages;
}

// Whether `before` makes what `slot` begins with.
bool feeds(const Slot& before, const Slot& slot, int stages) {
  if (before.phase != slot.phase || before.micro_batch != slot.micro_batch) return false;
  const bool forward = slot.phase == sim::Phase::forward;
  const int direction = forward ? -1 : 1;
  if (before.chunk == slot.chunk) return before.stage == slot.stage + direction;
  // Interleaved: from the last stage's chunk to the first stage's next one, and back.
  const int first = forward ? 0 : stages - 1, last = stages - 1 - first;
  return before.chunk == slot.chunk + direction && slot.stage == first && before.stage == last;
}

class Naming {
 public:
  explicit Naming(const RankTracks& tracks) : tracks_(tracks), stages_(stages_of(tracks)) {}

  std::string before(const Slot& slot, sim::Seconds begin, sim::Seconds end) const {
    if (slot.phase == sim::Phase::optimizer) {
      const std::size_t last = last_to_end(slot.phase);
      const Slot* const late = last_before(last, sim::Phase::optimizer);
      if (late && late->end > begin)
        return "rank " + std::to_string(last) + ", to reduce gradients: its " + words_of(*late);
      return "gradients to be reduced";
    }
    for (const auto& slots : tracks_.of_rank)
      for (const Slot& other : slots)
        // On its way it may take as long as the rest of the gap.
        if (other.end > begin && other.end <= end && feeds(other, slot, stages_))
          return words_of(other) + " on stage " + std::to_string(other.stage);
    return "the host or a transfer, before " + words_of(slot);
  }

 private:
  const Slot* last_before(std::size_t rank, sim::Phase phase) const {
    const Slot* last = nullptr;
    for (const Slot& slot : tracks_.of_rank[rank])
      if (slot.phase != phase && (!last || slot.end > last->end)) last = &slot;
    return last;
  }
  std::size_t last_to_end(sim::Phase phase) const {
    std::size_t found = 0;
    sim::Seconds latest{-1};
    for (std::size_t rank = 0; rank < tracks_.of_rank.size(); ++rank)
      if (const Slot* slot = last_before(rank, phase); slot && slot->end > latest) {
        latest = slot->end;
        found = rank;
      }
    return found;
  }
  const RankTracks& tracks_;
  int stages_;
};

}  // namespace

std::vector<TrackGap> gaps_of(const RankTracks& tracks, double least_share) {
  const Naming naming(tracks);
  const sim::Seconds least = tracks.duration * least_share;
  std::vector<TrackGap> gaps;
  for (std::size_t rank = 0; rank < tracks.of_rank.size(); ++rank) {
    std::vector<Slot> slots = tracks.of_rank[rank];
    std::sort(slots.begin(), slots.end(), [](const Slot& a, const Slot& b) { return a.start < b.start; });
    sim::Seconds now;
    for (const Slot& slot : slots) {
      if (slot.start - now > least)
        gaps.push_back({rank, now, slot.start, naming.before(slot, now, slot.start)});
      now = std::max(now, slot.end);
    }
    if (!slots.empty() && tracks.duration - now > least)
      gaps.push_back({rank, now, tracks.duration, "the end of the step on other ranks"});
  }
  std::stable_sort(gaps.begin(), gaps.end(),
                   [](const TrackGap& a, const TrackGap& b) { return a.length() > b.length(); });
  return gaps;
}

}  // namespace app::gui
