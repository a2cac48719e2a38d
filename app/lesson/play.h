// A lesson with its numbers: each step under a scenario, as words, tables and curves that can be drawn.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/lesson/lesson.h"
#include "app/lesson/measure.h"

namespace app::lesson {

struct ShownSpan {
  Span::Kind kind{};
  std::string words;
};
using ShownWords = std::vector<ShownSpan>;
std::string plain(const ShownWords& words);

struct ShownParagraph {
  ShownWords words;
  bool bullet = false;
};
struct ShownFormula {
  std::string words, result;
  std::string numbers;  // the words with the numbers put in; empty: same as words or result
};
struct ShownQuestion {
  ShownWords ask, because;
  std::vector<ShownWords> choices;
  std::vector<std::string> values;   // of the choices
  std::optional<std::size_t> right;  // of the choices
  Value answer;                      // of a number that is typed
  std::string answer_text;
  double tolerance = 0;
};
struct ShownPlot {
  struct Curve {
    std::string label;
    std::vector<std::pair<double, double>> points;  // of values that are legal
  };
  std::string quantity, over;  // in words: "step", "seq len, tokens"
  std::string by;              // the field in which curves differ: "recompute"; empty: one curve
  Dimension dimension;
  Style style = Style::plain;
  std::vector<Curve> curves;
  bool measured = false;  // over steps of runs here, from 1 on; others are predictions at values that double
};
struct ShownTable {
  std::vector<std::string> columns;  // the first is what rows differ in
  std::vector<std::vector<std::string>> rows;
};
struct ShownMeasurement {
  struct Row {
    std::string variant;                    // "flash"; empty where there is one variant
    std::string name, predicted, measured;  // empty: no prediction of it, not measured yet
    double ratio = 0;                       // measured over predicted; 0: none
    std::string what() const { return variant.empty() ? name : variant + " \u00B7 " + name; }
  };
  std::string by;                    // the field that variants differ in: "attention"; empty: one alone
  std::vector<Row> rows;             // by variant
  std::string measured;              // when and on what: "2026-11-24, AMD EPYC, 2 threads"; empty: not yet
  std::vector<std::string> why_not;  // of variants that did not run: sentences
  std::optional<ShownPlot> losses;   // a curve for each variant, where the loss was asked for and measured
};
struct ShownGoal {
  Tier tier = Tier::bronze;
  ShownWords words;
  std::string numbers;  // "31.2 % >= 40 %"
  bool holds = false;
};
struct ShownSeries {
  std::string name, title;
  // Exponents of time and of working memory. Predictions are for this machine, where it is known.
  struct Row {
    std::string what, varied, claim, why_apart;
    std::optional<double> time_claimed, time_predicted, memory_claimed, memory_predicted;
  };
  std::vector<Row> rows;
};
struct ShownFilm {
  std::shared_ptr<const Film> film;
};
using ShownBlock = std::variant<ShownParagraph, ShownFormula, ShownQuestion, ShownPlot, ShownTable,
                                ShownMeasurement, ShownGoal, ShownSeries, ShownFilm>;

struct ShownStep {
  std::vector<ShownBlock> blocks;
  std::vector<ShownParagraph> notes;  // for the lecturer alone
  std::vector<ShownParagraph> hints;
  ShownWords take_home;               // empty: none
  std::vector<std::string> failures;  // of blocks that this scenario has no numbers for: each a sentence
};

// The best tier whose goals hold with those of all lower tiers; nothing where a bronze goal does not hold, or
// where there are no goals.
std::optional<Tier> tier_reached(const ShownStep& step);

// The scenario that a lesson begins with. Throws sim::PresetError.
sim::Scenario first_scenario(const Lesson& lesson);
// The scenario at a step's beginning: with the changes of all steps up to it. Throws sim::PresetError.
sim::Scenario scenario_at(const Lesson& lesson, std::size_t step);
// The same with the changes of the :solution of a mission's step.
sim::Scenario solved_at(const Lesson& lesson, std::size_t step);

// A step shown under a scenario. `measured` has its measured runs, or is null; runs of other scenarios are
// not shown. `stopped` is asked between blocks.
ShownStep show(const Lesson& lesson, std::size_t step, const sim::Scenario& scenario,
               Predictions& predictions, const MeasuredRuns* measured = nullptr,
               const std::function<bool()>& stopped = {});

// The errors of a lesson that parses: steps with an illegal scenario, questions without one right answer,
// panels that do not exist, figures in the text without a source, missions that are solved as they begin or
// that their solution does not solve. Each is a sentence with file and line.
std::vector<std::string> problems_of(const Lesson& lesson, Predictions& predictions);

}  // namespace app::lesson
