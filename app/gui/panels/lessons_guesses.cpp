#include "app/gui/panels/lessons_guesses.h"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>

#include "app/gui/panels/lessons_question.h"
#include "app/gui/widgets/text.h"
#include "sim/csv.h"
#include "sim/file_text.h"
#include "sim/preset_error.h"

namespace app::gui {
namespace {

constexpr std::size_t kFirstRow = 2;  // its line in the file

bool has_columns(const sim::CsvTable& table) {
  return table.column("lesson") && table.column("step") && table.column("guess");
}

// Counted from 1 in the file, from 0 here.
std::size_t place_from(std::string_view cell, const std::string& where, std::string_view column) {
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), number);
  if (error != std::errc() || end != cell.data() + cell.size() || number == 0)
    throw sim::PresetError(fmt::format("{}: {} is \"{}\": it counts from 1", where, column, cell));
  return number - 1;
}

// As a hand in the room says it: the letter alone.
std::optional<std::size_t> choice_of(const std::string& guess, std::size_t choices) {
  if (guess.size() != 1) return std::nullopt;
  const int letter = std::toupper(static_cast<unsigned char>(guess[0])) - 'A';
  if (letter < 0 || static_cast<std::size_t>(letter) >= choices) return std::nullopt;
  return static_cast<std::size_t>(letter);
}

// How far a number is off, from too low to too high; the middle one is right.
constexpr std::array<const char*, 5> kHowFar = {"less than half of it", "too low", "right", "too high",
                                                "more than twice as much"};
std::size_t how_far(double guess, const lesson::ShownQuestion& q) {
  if (is_near_enough(guess, q)) return 2;
  const double times = guess / q.answer.number;
  return times < .5 ? 0 : times < 1 ? 1 : times <= 2 ? 3 : 4;
}

GuessedQuestion counted(const lesson::ShownQuestion& q, const std::vector<std::string>& guesses,
                        const sim::Scenario& scenario) {
  GuessedQuestion result{lesson::plain(q.ask), q.answer_text, {}, guesses.size()};
  for (std::size_t i = 0; i < q.choices.size(); ++i)
    result.rows.push_back(
        {std::string(1, static_cast<char>('A' + i)) + "  " + lesson::plain(q.choices[i]), 0, q.right == i});
  if (q.choices.empty())
    for (std::size_t i = 0; i < kHowFar.size(); ++i) result.rows.push_back({kHowFar[i], 0, i == 2});
  std::size_t not_understood = 0;
  for (const std::string& guess : guesses) {
    std::optional<std::size_t> row = choice_of(guess, q.choices.size());
    std::string problem;
    if (q.choices.empty())
      if (const auto number = typed_number(guess, q, scenario, problem)) row = how_far(*number, q);
    ++(row ? result.rows[*row].guesses : not_understood);
  }
  if (not_understood > 0) result.rows.push_back({"not understood", not_understood, false});
  return result;
}

}  // namespace

bool ClassGuesses::has(const std::string& lesson) const {
  return std::ranges::any_of(guesses, [&](const auto& one) { return one.first.lesson == lesson; });
}

bool is_class_guesses(const std::filesystem::path& file) {
  if (file.extension() != ".csv") return false;
  try {
    const auto text = sim::file_text(file);
    return text && has_columns(sim::csv_from_text(text->substr(0, text->find('\n')), file.string()));
  } catch (const std::exception&) {
    return false;
  }
}

ClassGuesses load_class_guesses(const std::filesystem::path& file) {
  const auto text = sim::file_text(file);
  if (!text) throw sim::PresetError(file.string() + ": cannot be read");
  const sim::CsvTable table = sim::csv_from_text(*text, file.string());
  if (!has_columns(table))
    throw sim::PresetError(file.string() +
                           ": line 1 has the columns lesson, step, guess and perhaps question");
  const bool has_questions = table.column("question").has_value();
  ClassGuesses result;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const std::string where = fmt::format("{}: line {}", file.string(), i + kFirstRow);
    result
        .guesses[{std::string(table.cell(i, "lesson")), place_from(table.cell(i, "step"), where, "step"),
                  has_questions ? place_from(table.cell(i, "question"), where, "question") : 0}]
        .emplace_back(table.cell(i, "guess"));
  }
  return result;
}

std::vector<GuessedQuestion> guessed_questions(const lesson::Lesson& lesson, const ClassGuesses& guesses,
                                               lesson::Predictions& predictions) {
  std::vector<GuessedQuestion> result;
  for (std::size_t step = 0; step < lesson.steps.size(); ++step) {
    const sim::Scenario scenario = lesson::scenario_at(lesson, step);
    const lesson::ShownStep shown = lesson::show(lesson, step, scenario, predictions);
    std::size_t number = 0;
    for (const lesson::ShownBlock& block : shown.blocks)
      if (const auto* q = std::get_if<lesson::ShownQuestion>(&block))
        if (const auto found = guesses.guesses.find({lesson.id, step, number++});
            found != guesses.guesses.end())
          result.push_back(counted(*q, found->second, scenario));
  }
  return result;
}

void draw_guesses(const Look& look, const std::vector<GuessedQuestion>& questions) {
  constexpr float kBars = .45f;  // of the width
  const Palette& c = look.color();
  text(look, TextRole::heading, c.text, "What the class guessed");
  for (const GuessedQuestion& q : questions) {
    ImGui::Dummy({0, look.px(4)});
    text_wrapped(look, TextRole::title, c.text, q.ask);
    const float width = ImGui::GetContentRegionAvail().x, line = ImGui::GetTextLineHeightWithSpacing();
    const float left = ImGui::GetCursorScreenPos().x + width * (1 - kBars);
    std::size_t most = 1;
    for (const GuessedQuestion::Row& row : q.rows) most = std::max(most, row.guesses);
    for (const GuessedQuestion::Row& row : q.rows) {
      const float top = ImGui::GetCursorScreenPos().y;
      const std::string number = std::to_string(row.guesses);
      const float room = width * kBars - look.px(8) - text_size_of(look, TextRole::number, "000").x;
      const float bar = room * static_cast<float>(row.guesses) / static_cast<float>(most);
      const float thin = line * .3f;
      ImDrawList& list = *ImGui::GetWindowDrawList();
      list.AddRectFilled({left, top + thin}, {left + bar, top + line - thin}, row.is_right ? c.good : c.mute,
                         look.px(2));
      draw_text(&list, look, TextRole::number, {left + bar + look.px(8), top + line / 2},
                row.is_right ? c.good : c.dim, number, {0, .5f});
      text_fitted(look, TextRole::body, row.is_right ? c.good : c.text, row.label,
                  width * (1 - kBars) - look.px(8));
    }
    text_wrapped(look, TextRole::caption, c.dim,
                 fmt::format("{} guesses; the answer is {}", q.guesses, q.answer));
  }
}

}  // namespace app::gui
