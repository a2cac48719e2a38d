// What the pipeline panel shows of a step.
#pragma once
#include <memory>
#include <vector>

#include "app/gui/jobs/track_gaps.h"

namespace app::gui {

enum class PipelineColoring { phase, micro_batch };

struct PipelineState {
  PipelineColoring coloring = PipelineColoring::phase;
  double predicted = 0;                           // seconds, of the step that the rest is about
  double duration = 0;                            // of the longer of it and the one measured
  double begin = 0, end = 0;                      // of the time in view
  double cursor = 0;                              // the moment that is read off
  int stage = 0;                                  // the one whose memory is taken apart
  std::shared_ptr<const RankTracks> tracks = {};  // whose gaps are below
  std::vector<TrackGap> gaps = {};
};

}  // namespace app::gui
