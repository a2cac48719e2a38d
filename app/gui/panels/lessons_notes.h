// What the lecturer alone reads.
#pragma once
#include "app/gui/panels/lessons.h"

namespace app::gui {

// Apart from what the room reads: a window of its own, where the system gives one on the lecturer's screen,
// else above all others of this one.
void draw_notes(const ContextWith<LessonsState>& context, const LessonView& view);

}  // namespace app::gui
