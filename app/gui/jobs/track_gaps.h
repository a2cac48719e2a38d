// The times at which ranks of a measured step did nothing, and what each waited for.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "app/gui/jobs/run_state.h"

namespace app::gui {

struct TrackGap {
  std::size_t rank = 0;
  sim::Seconds begin, end;
  std::string why;  // "forward of micro-batch 3 on stage 0"; where nobody was late: "the host, before ..."
  sim::Seconds length() const { return end - begin; }
};

// Gaps between a rank's passes, before its first and after its last, of at least this share of the step; the
// longest first. A pass waits for the same micro-batch's pass on the stage before (backward: after) it, where
// that ended within the gap. The optimizer waits for the rank whose passes end last, with which it reduces.
std::vector<TrackGap> gaps_of(const RankTracks& tracks, double least_share = 0.01);

// Gaps between the operations of each rank, on all its streams together. `tracks`, if not null, say what a
// rank waited for. Before a step's first and after its last operation the host works.
std::vector<TrackGap> gaps_of(const RankOperations& operations, const RankTracks* tracks,
                              double least_share = 0.002);

}  // namespace app::gui
