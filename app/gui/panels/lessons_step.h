// The blocks of a step as the panel shows them: words, formulas, questions, plots, measurements, moving
// pictures.
#pragma once
#include "app/gui/panels/lessons.h"

namespace app::gui {

// Blocks behind a question show once it is answered. True: a question waits for its answer.
bool draw_blocks(const ContextWith<LessonsState>& context, const Look& look, const lesson::Lesson& lesson,
                 const LessonView& view);

}  // namespace app::gui
