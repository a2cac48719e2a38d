#include "app/gui/jobs/track_gaps.h"

#include <algorithm>
#include <map>
#include <tuple>

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

// A pass, on all the ranks that have it.
using PassKey = std::tuple<sim::Phase, int, int, int>;  // stage, chunk, micro-batch

PassKey key_of(const Slot& slot) {
  return {slot.phase, slot.stage, slot.chunk, slot.micro_batch};
}

// The pass that makes what `slot` begins with: on the stage before it, for backward behind it. Interleaved
// chunks lead from the last stage to the first one's next chunk, and back.
PassKey key_of_feeder(const Slot& slot, int stages) {
  const bool forward = slot.phase == sim::Phase::forward;
  const int direction = forward ? -1 : 1, first = forward ? 0 : stages - 1;
  if (slot.stage != first) return {slot.phase, slot.stage + direction, slot.chunk, slot.micro_batch};
  return {slot.phase, stages - 1 - first, slot.chunk + direction, slot.micro_batch};
}

class Naming {
 public:
  explicit Naming(const RankTracks& tracks) : tracks_(tracks), stages_(stages_of(tracks)) {
    for (const auto& slots : tracks.of_rank)
      for (const Slot& slot : slots) passes_.emplace(key_of(slot), &slot);
  }

  std::string before(const Slot& slot, sim::Seconds begin, sim::Seconds end) const {
    if (slot.phase == sim::Phase::optimizer) {
      const std::size_t last = last_to_end(slot.phase);
      const Slot* const late = last_before(last, sim::Phase::optimizer);
      if (late && late->end > begin)
        return "rank " + std::to_string(last) + ", to reduce gradients: its " + words_of(*late);
      return "gradients to be reduced";
    }
    // On its way it may take as long as the rest of the gap.
    const auto [from, to] = passes_.equal_range(key_of_feeder(slot, stages_));
    for (auto pass = from; pass != to; ++pass)
      if (const Slot& other = *pass->second; other.end > begin && other.end <= end)
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
  std::multimap<PassKey, const Slot*> passes_;
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

std::vector<TrackGap> gaps_of(const RankOperations& operations, const RankTracks* tracks,
                              double least_share) {
  const std::vector<TrackGap> of_passes = tracks ? gaps_of(*tracks, 0) : std::vector<TrackGap>{};
  // The wait between passes that most of a gap lies in; empty: none.
  const auto waits_for = [&](std::size_t rank, sim::Seconds begin, sim::Seconds end) -> std::string {
    for (const TrackGap& gap : of_passes)
      if (gap.rank == rank && std::min(gap.end, end) - std::max(gap.begin, begin) > (end - begin) * 0.5)
        return gap.why;
    return {};
  };
  const sim::Seconds least = operations.duration * least_share;
  std::vector<TrackGap> gaps;
  for (std::size_t rank = 0; rank < operations.of_rank.size(); ++rank) {
    const sim::OperationTimeline& timeline = operations.of_rank[rank];
    std::vector<const sim::OperationSpan*> spans;
    for (const sim::OperationSpan& span : timeline.spans) spans.push_back(&span);
    std::stable_sort(spans.begin(), spans.end(),
                     [](const auto* a, const auto* b) { return a->start < b->start; });
    sim::Seconds now;
    for (const sim::OperationSpan* span : spans) {
      if (span->start - now > least) {
        std::string why = waits_for(rank, now, span->start);
        if (why.empty()) why = "the host, before " + timeline.names[static_cast<std::size_t>(span->name)].id;
        gaps.push_back({rank, now, span->start, std::move(why)});
      }
      now = std::max(now, span->end);
    }
    if (!spans.empty() && operations.duration - now > least) {
      std::string why = waits_for(rank, now, operations.duration);
      if (why.empty()) why = "the host: the batch, the loss, the report";
      gaps.push_back({rank, now, operations.duration, std::move(why)});
    }
  }
  std::stable_sort(gaps.begin(), gaps.end(),
                   [](const TrackGap& a, const TrackGap& b) { return a.length() > b.length(); });
  return gaps;
}

}  // namespace app::gui
