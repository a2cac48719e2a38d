// A question of a step: asked, answered by a choice or a number, and once that is locked whether it was
// right.
#pragma once
#include "app/gui/panels/lessons_progress.h"
#include "app/gui/theme.h"
#include "app/lesson/play.h"

namespace app::gui {

// A typed answer is read in the scenario. In the room choices have letters. True: it was locked in this
// frame.
bool draw_question(const Look& look, const lesson::ShownQuestion& question, const sim::Scenario& scenario,
                   bool in_the_room, LessonAnswer& answer);

}  // namespace app::gui
