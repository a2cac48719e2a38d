// A step operation by operation: as predicted of a stage, and as its ranks ran it.
#pragma once
#include <imgui.h>

#include <memory>
#include <vector>

#include "app/gui/panels/panels.h"
#include "app/gui/panels/pipeline.h"

namespace app::gui {

// Lanes beneath each other on the step's time axis. `tracks` say what ranks waited for; both may be null.
void draw_operations(const ContextWith<PipelineState>& context,
                     const std::shared_ptr<const RankOperations>& measured, const RankTracks* tracks,
                     const ScaleUnit& time, ImVec2 size);

std::vector<Figure> operation_figures(const ContextWith<PipelineState>& context,
                                      const std::shared_ptr<const RankOperations>& measured,
                                      const RankTracks* tracks);

}  // namespace app::gui
