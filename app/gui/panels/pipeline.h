// What the pipeline panel shows of a step.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "app/gui/jobs/track_gaps.h"
#include "app/gui/widgets/gantt.h"

namespace app::gui {

enum class PipelineColoring { phase, micro_batch };
enum class PipelineView { stages, operations };

// The operations of one stream. Lanes are drawn one below the other.
struct OperationLane {
  std::string label;  // "predicted", "rank 3, collectives"
  bool measured = false;
  std::size_t rank = 0;  // of `of`
  std::shared_ptr<const RankOperations> of;
  std::vector<sim::OperationSpan> spans;  // by start
};
// The lanes of one stage.
struct OperationLanes {
  std::shared_ptr<const RankOperations> predicted, measured;
  int stage = -1;
  std::vector<OperationLane> lanes;
  std::vector<TrackGap> predicted_gaps, measured_gaps;
};

struct PipelineState {
  PipelineView view = PipelineView::stages;
  PipelineColoring coloring = PipelineColoring::phase;
  double predicted = 0;                           // seconds of the step that is shown
  double duration = 0;                            // seconds of the longer of the two, predicted and measured
  double begin = 0, end = 0;                      // of the time in view
  double cursor = 0;                              // the moment that is read off
  int stage = 0;                                  // the one whose memory is taken apart
  std::shared_ptr<const RankTracks> tracks = {};  // whose gaps are below
  std::vector<TrackGap> gaps = {};
  OperationLanes operations = {};
  KeptBars stage_bars = {}, track_bars = {};
};

}  // namespace app::gui
