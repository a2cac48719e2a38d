// A lesson, and the expressions in it.
// Read by: app/lesson/parse.cpp app/lesson/expression.cpp app/lesson/unit.cpp
#include "app/lesson/lesson.h"

#include "tests/fuzz/fuzz.h"

std::vector<std::string> fuzz::seeds() {
  return files_of("presets/lessons", ".md");
}

void fuzz::read(std::string_view input) {
  const app::lesson::Lesson lesson = app::lesson::parse_lesson(input, kFile);
  require(!lesson.title.empty() && !lesson.steps.empty(), "a lesson has a title and steps");
}
