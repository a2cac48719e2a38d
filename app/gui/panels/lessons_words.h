// The words of lessons: text, numbers and code in one.
#pragma once
#include "app/gui/widgets/text.h"
#include "app/lesson/play.h"

namespace app::gui {

// Broken into lines as one text, over the width that there is.
void draw_words(const Look& look, const lesson::ShownWords& words, TextRole role = TextRole::body);
std::string title_of(lesson::Tier tier);  // "Gold"

}  // namespace app::gui
