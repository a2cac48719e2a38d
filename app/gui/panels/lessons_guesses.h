// What a class guessed, beside what is right: a CSV file with a row a guess, and its chart at the end of the
// lesson.
#pragma once
#include <compare>
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "app/gui/theme.h"
#include "app/lesson/play.h"

namespace app::gui {

struct ClassGuesses {
  struct Place {
    std::string lesson;
    std::size_t step = 0, question = 0;  // from 0
    auto operator<=>(const Place&) const = default;
  };
  std::map<Place, std::vector<std::string>> guesses;  // as they were written
  bool has(const std::string& lesson) const;
};

// Whether the file is one, by its columns: lesson, step and guess, whatever else it has.
bool is_class_guesses(const std::filesystem::path& file);
// `lesson` is a lesson's name, `step` counts from 1, and so does `question`, which may be left out where a
// step asks once; `guess` is the letter of a choice, or a number with or without its unit. Throws
// sim::PresetError: one sentence with file and line.
ClassGuesses load_class_guesses(const std::filesystem::path& file);

// A question as the class answered it.
struct GuessedQuestion {
  std::string ask, answer;
  struct Row {
    std::string label;
    std::size_t guesses = 0;
    bool is_right = false;
  };
  std::vector<Row> rows;  // choices, or how far numbers are off
  std::size_t guesses = 0;
};
// The lesson's questions that were guessed at, in its order.
std::vector<GuessedQuestion> guessed_questions(const lesson::Lesson& lesson, const ClassGuesses& guesses,
                                               lesson::Predictions& predictions);

struct GuessRequest {
  std::shared_ptr<const lesson::Lesson> lesson;
  std::shared_ptr<const ClassGuesses> guesses;
  bool operator==(const GuessRequest&) const = default;
};

void draw_guesses(const Look& look, const std::vector<GuessedQuestion>& questions);

}  // namespace app::gui
