// A question of a step: asked, answered by a choice or a number, and once that is locked whether it was
// right.
#pragma once
#include <optional>
#include <string>

#include "app/gui/panels/lessons_progress.h"
#include "app/gui/theme.h"
#include "app/lesson/play.h"

namespace app::gui {

// What was typed, as an expression with its unit, or a number in the unit of the answer. Nothing, and why,
// where it is neither.
std::optional<double> typed_number(const std::string& typed, const lesson::ShownQuestion& question,
                                   const sim::Scenario& scenario, std::string& problem);
// Within the question's tolerance of its answer.
bool is_near_enough(double number, const lesson::ShownQuestion& question);

// A typed answer is read in the scenario. In the room choices have letters. True: it was locked in this
// frame.
bool draw_question(const Look& look, const lesson::ShownQuestion& question, const sim::Scenario& scenario,
                   bool in_the_room, LessonAnswer& answer);

}  // namespace app::gui
