// A lesson as data: a file presets/lessons/*.md. presets/lessons/README.md describes the grammar.
#pragma once
#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "app/lesson/expression.h"
#include "app/lesson/film.h"
#include "sim/preset_error.h"

namespace app::lesson {

// A piece of running text.
struct Span {
  enum class Kind { plain, bold, code, value } kind = Kind::plain;
  std::string words;  // of a value: as it was written
  std::optional<Expression>
      value;  // of Kind::value; empty where `words` is model, hardware or implementation
  int line = 0;
};
using Words = std::vector<Span>;

struct Paragraph {
  Words words;
  bool bullet = false;
  int line = 0;  // in the file
};

// A formula, shown by its name and with the numbers put in: "6 x parameters = 6 x 8.03B = 48.2B".
struct Formula {
  Expression expression;
  int line = 0;
};

// Locked until it is answered. The right answer is computed, never written down.
struct Choice {
  Words words;
  std::optional<Expression> value;
  int line = 0;
};
struct Question {
  enum class Right { nearest, least, greatest } right = Right::nearest;
  Words ask;
  std::optional<Expression> answer;  // of Right::nearest
  double tolerance = .1;             // relative, for a typed number
  std::vector<Choice> choices;       // none: a number is typed
  Words because;
  int line = 0, answer_line = 0;
};

// A plot of a quantity over a field, with one curve for each variant.
struct Variant {
  std::string label;  // "full"
  Changes changes;    // none: the scenario as it is
};
struct Plot {
  Expression quantity;
  std::string path;            // "workload.seq_len"
  std::vector<double> values;  // of the field, ascending
  std::vector<Variant> variants;
  int line = 0;
};
// A table with quantities in columns and one row for each variant.
struct Table {
  std::vector<Expression> columns;
  std::vector<Variant> rows;
  int line = 0;
};
// Runs on this machine, one for each variant, whose figures stand beside the predicted ones. A step has one
// measurement at most.
struct Measurement {
  std::vector<Expression> quantities;
  std::vector<Variant> variants;  // one without changes: the scenario as it is
  int line = 0;
};
// How well a mission is done: silver needs the goals of bronze too, gold needs all.
enum class Tier { bronze, silver, gold };
inline constexpr std::array<std::string_view, 3> kTiers = {"bronze", "silver", "gold"};

// What a mission asks for.
struct Goal {
  Tier tier = Tier::bronze;
  Words words;
  Expression holds;
  int line = 0;
};

// A series of runs on this machine (presets/series): exponents of growth, as claimed, predicted and measured.
struct Series {
  std::string name;
  int line = 0;
};
// A film, drawn from the step's plan.
struct MovingPicture {
  FilmKind kind{};
  std::string draft;  // of FilmKind::draft: the preset of the model that proposes
  int line = 0;
};

using Block =
    std::variant<Paragraph, Formula, Question, Plot, Table, Measurement, Goal, Series, MovingPicture>;

// What a line of the file changes in the scenario.
struct SetLine {
  Changes changes;
  int line = 0;
};

struct Step {
  std::string title;
  std::vector<SetLine> set;  // of the scenario as the step before left it
  std::string panel;         // the panel shown beside the step; empty: none
  int panel_line = 0;
  std::vector<Block> blocks;
  std::vector<Paragraph> notes;   // for the lecturer alone
  std::vector<Paragraph> hints;   // a mission's, one at a time
  Paragraph take_home;            // without words: none
  std::vector<SetLine> solution;  // of a mission: changes that reach its goals
  int line = 0;
};

struct Lesson {
  std::string id;  // the file's name without .md
  std::filesystem::path file;
  std::string title, chapter;
  int place = 0;             // in its chapter, from 1; 0: behind those that have one
  std::vector<int> systems;  // of the program's list of 35 (presets/lessons/README.md)
  int minutes = 0;
  std::string scenario;  // a preset, or a file beside the lesson
  int scenario_line = 0;
  bool mission = false;
  std::vector<Step> steps;
};

// The order of lessons in a list: chapters by the number that they begin with, lessons of a chapter by place.
bool stands_before(const Lesson& one, const Lesson& other);

// Both throw sim::PresetError: file, line, what is wrong and what would be accepted.
Lesson parse_lesson(std::string_view text, const std::filesystem::path& file);
Lesson load_lesson(const std::filesystem::path& file);

// The lesson files of a folder, sorted by name: all *.md but its README.
std::vector<std::filesystem::path> lesson_files(const std::filesystem::path& folder);
// The lesson files of several folders: a lesson of a later folder replaces one of the same name before it.
std::vector<std::filesystem::path> lesson_files(const std::vector<std::filesystem::path>& folders);
std::filesystem::path lesson_directory();  // presets/lessons
// Throws sim::PresetError where the path is no folder, or has no lessons.
void require_lesson_folder(const std::filesystem::path& folder);

}  // namespace app::lesson
