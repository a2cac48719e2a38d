#include "app/lesson/play.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <regex>

#include "app/cli/flags.h"
#include "app/cli/scenario_flags.h"
#include "app/gui/desktop.h"
#include "app/lesson/field_words.h"
#include "runtime/devices.h"
#include "runtime/run.h"
#include "runtime/this_machine.h"
#include "sim/cost/predict.h"
#include "sim/format.h"
#include "sim/plan/legality.h"
#include "sim/report/metrics.h"
#include "sim/scenario/preset.h"
#include "sim/scenario/scenario_series.h"

namespace app::lesson {
namespace {

std::string where(const Lesson& lesson, int line) {
  return fmt::format("{}:{}", lesson.file.string(), line);
}

// Adds to an error the line that changed the scenario.
sim::Scenario with_lines(sim::Scenario scenario, const std::vector<SetLine>& lines, const Lesson& lesson) {
  for (const SetLine& one : lines)
    scenario = sim::with_overrides(scenario, one.changes, where(lesson, one.line));
  cli::settle_hardware(scenario, {}, {});
  return scenario;
}

// Says what cannot be computed, and which line asks for it.
struct LineError : std::runtime_error {
  LineError(int at, const std::string& why) : std::runtime_error(why), line(at) {}
  int line;
};
template <class Make>
auto of_line(int line, const Make& make) -> decltype(make()) {
  try {
    return make();
  } catch (const std::exception& error) {
    throw LineError(line, error.what());
  }
}

std::string text_of(const Expression& expression, const Situation& situation) {
  return text(expression.value(situation), expression.style());
}

ShownWords shown(const Words& words, const Situation& situation) {
  ShownWords result;
  for (const Span& span : words) {
    if (span.kind != Span::Kind::value) {
      result.push_back({span.kind, span.words});
    } else if (span.value) {
      result.push_back({span.kind, of_line(span.line, [&] { return text_of(*span.value, situation); })});
    } else {
      const sim::Scenario& s = situation.scenario;
      result.push_back({span.kind, span.words == "model"      ? s.model.name
                                   : span.words == "hardware" ? s.hardware.name
                                                              : s.implementation.name});
    }
  }
  return result;
}

// How far apart two numbers are: the logarithm of their ratio, or their difference if there is no logarithm.
double distance(double a, double b) {
  return a > 0 && b > 0 ? std::abs(std::log(a / b)) : std::abs(a - b);
}

// The prediction for a run here: for the machine as the probes before or during the run found it. Empty where
// this machine has not been measured.
std::optional<sim::Report> prediction_here(const sim::Scenario& scenario, const sim::Report* measured) {
  auto here = runtime::cached_this_machine();
  if (!here) return std::nullopt;
  if (measured) here->slowdown = measured->source.slowdown;
  return sim::predict(scenario, &*here);
}

ShownPlot::Curve loss_over_steps(const std::string& label, const sim::Report& measured) {
  ShownPlot::Curve curve{label, {}};
  for (const sim::StepResult& step : measured.steps)
    curve.points.emplace_back(static_cast<double>(step.step), step.loss);
  return curve;
}

struct Shower {
  const Situation& situation;
  const MeasuredRuns* measured;  // null: none
  const std::function<bool()>& stopped;

  ShownBlock operator()(const Paragraph& p) const {
    return ShownParagraph{shown(p.words, situation), p.bullet};
  }

  ShownBlock operator()(const Formula& f) const {
    ShownFormula result{f.expression.in_words(), text_of(f.expression, situation),
                        f.expression.in_numbers(situation)};
    if (result.numbers == result.words || result.numbers == result.result) result.numbers.clear();
    return result;
  }

  ShownBlock operator()(const Question& q) const {
    ShownQuestion result;
    result.ask = shown(q.ask, situation);
    result.because = shown(q.because, situation);
    result.tolerance = q.tolerance;
    std::vector<double> values;
    for (const Choice& choice : q.choices) {
      result.choices.push_back(shown(choice.words, situation));
      values.push_back(of_line(choice.line, [&] { return choice.value->value(situation).number; }));
      result.values.push_back(text_of(*choice.value, situation));
    }
    if (q.right == Question::Right::nearest) {
      result.answer = of_line(q.answer_line, [&] { return q.answer->value(situation); });
      result.answer_text = text_of(*q.answer, situation);
      for (double& value : values) value = distance(value, result.answer.number);
    } else if (q.right == Question::Right::greatest) {
      for (double& value : values) value = -value;
    }
    if (!values.empty())
      result.right = static_cast<std::size_t>(std::ranges::min_element(values) - values.begin());
    if (q.right != Question::Right::nearest) {  // name the choice and its value
      const std::string &value = result.values[*result.right], words = plain(result.choices[*result.right]);
      result.answer_text = words == value ? value : words + ", " + value;
    }
    return result;
  }

  ShownBlock operator()(const Plot& p) const {
    const Changes& differ = p.variants[0].changes;
    ShownPlot result{
        p.quantity.in_words(),  axis_words(p.path), differ.empty() ? "" : axis_words(differ[0].path),
        p.quantity.dimension(), p.quantity.style(), {}};
    for (const Variant& variant : p.variants) {
      ShownPlot::Curve curve{variant.label, {}};
      for (const double value : p.values) {
        if (stopped && stopped()) break;
        Changes changes = variant.changes;
        changes.push_back({p.path, fmt::format("{:.0f}", value)});
        const Situation other{situation.predictions.changed(situation.scenario, changes, "the plot"),
                              situation.predictions};
        // A value that gives no valid scenario leaves a gap.
        if (sim::validate(other.scenario).empty())
          curve.points.emplace_back(value, p.quantity.value(other).number);
      }
      result.curves.push_back(std::move(curve));
    }
    return result;
  }

  ShownBlock operator()(const Table& t) const {
    ShownTable result;
    result.columns.push_back(t.rows.empty() ? "" : axis_words(t.rows[0].changes[0].path));
    for (const Expression& column : t.columns) result.columns.push_back(column.in_words());
    for (const Variant& row : t.rows) {
      const Situation other{situation.predictions.changed(situation.scenario, row.changes, "the table"),
                            situation.predictions};
      std::vector<std::string> cells = {row.label};
      const auto problems = sim::validate(other.scenario);
      for (const Expression& column : t.columns)
        cells.push_back(problems.empty() ? text_of(column, other) : "cannot be");
      result.rows.push_back(std::move(cells));
    }
    return result;
  }

  ShownBlock operator()(const Measurement& m) const {
    ShownMeasurement result;
    if (!m.variants[0].changes.empty()) result.by = axis_words(m.variants[0].changes[0].path);
    for (std::size_t v = 0; v < m.variants.size(); ++v) {
      const Variant& variant = m.variants[v];
      const sim::Scenario one = as_measured_here(
          situation.predictions.changed(situation.scenario, variant.changes, "the measurement"), m);
      const MeasuredRun* const known = measured && v < measured->size() ? &(*measured)[v] : nullptr;
      const sim::Report* const found =
          known && known->report && is_run_of(*known->report, one) ? known->report.get() : nullptr;
      if (known && !known->why_not.empty())
        result.why_not.push_back((variant.label.empty() ? "" : variant.label + ": ") + known->why_not);
      if (found) result.measured = found->source.date.substr(0, 10) + ", " + found->source.device;
      if (found && asks_for(m, "loss")) {
        if (!result.losses)
          result.losses = ShownPlot{"loss", "step", result.by, Dimension(), Style::plain, {}, true};
        result.losses->curves.push_back(loss_over_steps(variant.label, *found));
      }
      const auto prediction = prediction_here(one, found);
      for (const Expression& quantity : m.quantities) {
        ShownMeasurement::Row row{variant.label, quantity.in_words(), {}, {}, 0};
        const bool is_predicted = prediction && !quantity.is_only_measured();
        const auto of = [&](const sim::Report& report) {
          return quantity.value({one, situation.predictions, &report});
        };
        if (is_predicted) row.predicted = text(of(*prediction), quantity.style());
        if (found) row.measured = text(of(*found), quantity.style());
        if (is_predicted && found) row.ratio = of(*found).number / of(*prediction).number;
        result.rows.push_back(std::move(row));
      }
    }
    return result;
  }

  ShownBlock operator()(const Goal& g) const {
    return ShownGoal{g.tier, shown(g.words, situation), g.holds.in_numbers(situation),
                     g.holds.holds(situation)};
  }

  ShownBlock operator()(const MovingPicture& picture) const {
    const auto calibration = cli::calibration_of(situation.scenario.hardware);
    const sim::Report& predicted = *situation.predictions.of(situation.scenario);
    return ShownFilm{std::make_shared<const Film>(
        make_film(picture.kind, situation.scenario, predicted, cli::pointer_to(calibration), picture.draft,
                  [this](const sim::Scenario& other) { return *situation.predictions.of(other); }))};
  }

  ShownBlock operator()(const Series& series) const {
    const sim::SeriesSet set = sim::load_series_preset(series.name);
    const auto here = runtime::cached_this_machine();
    ShownSeries result{series.name, set.title, {}};
    for (const sim::ScenarioSeries& one : set.series) {
      if (!one.claim) continue;
      ShownSeries::Row row{one.name,        one.varied, one.claim->says,   one.claim->why_apart,
                           one.claim->time, {},         one.claim->memory, {}};
      std::vector<double> x, time, memory;
      for (const sim::SeriesPoint& point : one.points) {
        if (!here || (stopped && stopped())) break;
        sim::Scenario scenario = point.scenario;
        scenario.hardware = here->hardware;
        const auto report = situation.predictions.of(scenario);
        x.push_back(point.x);
        time.push_back(sim::step_time(*report).value);
        memory.push_back(static_cast<double>(sim::working_memory(*report).value));
      }
      row.time_predicted = sim::power_of_growth(x, time);
      row.memory_predicted = sim::power_of_growth(x, memory);
      result.rows.push_back(std::move(row));
    }
    return result;
  }
};

int line_of(const Block& block) {
  return std::visit([](const auto& b) { return b.line; }, block);
}

// The line of a figure whose source a reader would ask for: one with a unit, or with three digits and more,
// outside of {}.
std::optional<int> line_of_bare_figure(const Words& words) {
  static const std::regex figure(
      R"((^|[^A-Za-z0-9_.-])(\d[\d,.]*\s?(%|percent|times|GB|GiB|TB|MB|ms|TFLOP|GFLOP|PFLOP|tokens/s|W|kWh|dollars|\$|hours|days)|\d{3,}))");
  static const std::regex cited(R"(\[[^\]]*\d{4}[^\]]*\])");
  std::string all;
  std::vector<std::pair<std::size_t, int>> ends;  // the ends of its spans, and their lines
  for (const Span& span : words) {
    if (span.kind == Span::Kind::value || span.kind == Span::Kind::code) continue;
    all += span.words;
    ends.emplace_back(all.size(), span.line);
  }
  std::smatch found;
  if (std::regex_search(all, cited) || !std::regex_search(all, found, figure)) return std::nullopt;
  const auto at = static_cast<std::size_t>(found.position(2));
  return std::ranges::find_if(ends, [at](const auto& end) { return at < end.first; })->second;
}

constexpr double kSameNumber = 1e-6;  // numbers nearer than this are shown alike

class Checker {
 public:
  Checker(const Lesson& lesson, Predictions& predictions) : lesson_(lesson), predictions_(predictions) {}

  std::vector<std::string> problems() {
    if (!lesson_.mission && lesson_.systems.empty())
      add(1, "systems: is missing: which of the 35 it teaches");
    try {
      first_scenario(lesson_);
    } catch (const std::exception& error) {  // once, not again for every step that uses it
      add(lesson_.scenario_line, std::string("scenario: ") + error.what());
      return std::move(problems_);
    }
    for (std::size_t i = 0; i < lesson_.steps.size() && check(i); ++i) {
    }
    return std::move(problems_);
  }

 private:
  void add(int line, const std::string& why) { add(where(lesson_, line) + ": " + why); }
  // Later steps meet the same wrong line again, so a problem is added only once.
  void add(std::string problem) {
    if (std::ranges::find(problems_, problem) == problems_.end()) problems_.push_back(std::move(problem));
  }

  // The line that set the field, or else the last line that set anything, because the scenario was valid
  // before the step.
  int line_that_set(const sim::Problem& problem, const Step& step) const {
    int line = step.set.empty() ? lesson_.scenario_line : step.set.back().line;
    for (const SetLine& one : step.set)
      for (const sim::Override& change : one.changes)
        if (problem.field == change.path || problem.field.starts_with(change.path + ".")) line = one.line;
    return line;
  }

  // Returns false if the step begins with an invalid scenario. All later steps then do as well.
  bool check(std::size_t index) {
    const Step& step = lesson_.steps[index];
    const std::vector<std::string> panels = panel_names();
    if (!step.panel.empty() && !panels.empty() && std::ranges::find(panels, step.panel) == panels.end())
      add(step.panel_line, fmt::format(":panel {} is none of {}", step.panel, fmt::join(panels, ", ")));
    for (const Block& block : step.blocks)
      if (const auto* p = std::get_if<Paragraph>(&block))
        check_figures(p->words);
      else if (const auto* q = std::get_if<Question>(&block))
        check_figures(q->because);  // a question may assume any figure
    for (const Paragraph& note : step.notes) check_figures(note.words);
    for (const Paragraph& hint : step.hints) check_figures(hint.words);
    check_figures(step.take_home.words);
    try {
      const sim::Scenario scenario = scenario_at(lesson_, index);
      const std::vector<sim::Problem> cannot_be = sim::validate(scenario);
      for (const sim::Problem& problem : cannot_be)
        add(line_that_set(problem, step), problem.field + " " + problem.message);
      if (!cannot_be.empty()) return false;
      const ShownStep shown = show(lesson_, index, scenario, predictions_);
      problems_.insert(problems_.end(), shown.failures.begin(), shown.failures.end());
      for (std::size_t b = 0; b < shown.blocks.size(); ++b)
        if (const auto* plot = std::get_if<ShownPlot>(&shown.blocks[b]))
          check_points(std::get<Plot>(step.blocks[b]), *plot);
      const Situation situation{scenario, predictions_};
      for (std::size_t b = 0; b < shown.blocks.size(); ++b)
        if (std::holds_alternative<ShownQuestion>(shown.blocks[b])) {  // else its error is reported already
          const auto& q = std::get<Question>(step.blocks[b]);
          check_question(q, situation);
          check_nothing_is_given_away(step, shown, q, situation);
        }
      for (const Block& block : step.blocks)
        if (const auto* formula = std::get_if<Formula>(&block))
          told_.push_back(
              {formula->line, formula->expression.dimension(), formula->expression.value(situation).number});
      if (const Measurement* measurement = measurement_of(step)) check_measurement(*measurement, scenario);
      if (lesson_.mission) check_mission(index, shown);
    } catch (const sim::PresetError& error) {  // from a :set or :solution, whose line it names
      add(error.what());
    } catch (const std::exception& error) {
      add(step.line, error.what());
    }
    return true;
  }

  void check_figures(const Words& words) {
    if (const auto line = line_of_bare_figure(words))
      add(*line, "a figure without a source: compute it, {EXPRESSION}, or cite it, [Author YEAR, where]");
  }

  static std::string text_of_value(double number, const Question& q) {
    const Expression& of = *q.choices[0].value;
    return text({number, of.dimension()}, of.style());
  }

  // The second best must be clearly worse, or the reader can only guess.
  void check_question(const Question& q, const Situation& situation) {
    if (q.choices.empty()) return;
    std::vector<double> values;
    for (const Choice& choice : q.choices) values.push_back(choice.value->value(situation).number);
    if (q.right == Question::Right::nearest) {
      const double answer = q.answer->value(situation).number;
      for (double& value : values) value = distance(value, answer);
      std::ranges::sort(values);
      if (values[1] < 2 * values[0] || values[0] == values[1])
        add(q.line,
            fmt::format("two choices are about as near to the answer, {}", text_of(*q.answer, situation)));
    } else {
      std::ranges::sort(values);
      if (q.right == Question::Right::greatest) std::ranges::reverse(values);
      if (distance(values[0], values[1]) < .01)
        add(q.line, fmt::format("two choices are the same to one percent: {} and {}",
                                text_of_value(values[0], q), text_of_value(values[1], q)));
    }
  }

  // Values without a valid scenario leave gaps. A curve that is mostly gaps does not show what it claims.
  void check_points(const Plot& plot, const ShownPlot& shown) {
    for (const ShownPlot::Curve& curve : shown.curves)
      if (2 * curve.points.size() < plot.values.size())
        add(plot.line,
            fmt::format("of {} values of {} the scenario can have {}: a plot wants half of them at least",
                        plot.values.size(), plot.path, curve.points.size()));
  }

  // Blocks before a question must not give its answer away: not the number itself, not two numbers of one
  // column or curve with that ratio or difference, and not the results of all choices. No earlier step may
  // have had the number as a result either.
  void check_nothing_is_given_away(const Step& step, const ShownStep& shown, const Question& q,
                                   const Situation& situation) {
    std::vector<double> asked;
    if (q.right == Question::Right::nearest)
      asked.push_back(q.answer->value(situation).number);
    else
      for (const Choice& choice : q.choices) asked.push_back(choice.value->value(situation).number);
    const Dimension asked_in =
        q.right == Question::Right::nearest ? q.answer->dimension() : q.choices[0].value->dimension();
    for (const Told& told : told_)
      if (asked.size() == 1 && told.dimension == asked_in && distance(told.number, asked[0]) < kSameNumber)
        add(told.line,
            fmt::format("the formula is the answer of the question in line {}, in a later step", q.line));
    for (std::size_t b = 0; b < shown.blocks.size() && line_of(step.blocks[b]) < q.line; ++b) {
      for (const Numbers& numbers : numbers_of(step.blocks[b], shown.blocks[b], situation)) {
        const bool all =
            std::ranges::all_of(asked, [&](double answer) { return numbers.tell(answer, asked_in); });
        if (!all) continue;
        add(line_of(step.blocks[b]),
            fmt::format("the {} is the answer of the question in line {}: it stands behind it", numbers.what,
                        q.line));
        break;
      }
    }
  }

  // The result of a formula of an earlier step.
  struct Told {
    int line;
    Dimension dimension;
    double number;
  };
  // Numbers that are seen together: a formula's result, a column, the curves of a plot.
  struct Numbers {
    std::string_view what;
    Dimension dimension;
    std::vector<double> values;

    bool tell(double answer, const Dimension& in) const {
      const auto is_answer = [&](double value) { return distance(value, answer) < kSameNumber; };
      for (const double value : values) {
        if (in == dimension && is_answer(value)) return true;
        for (const double other : values)
          if (&other != &value &&
              ((in.is_none() && is_answer(value / other)) || (in == dimension && is_answer(value - other))))
            return true;
      }
      return false;
    }
  };
  static std::vector<Numbers> numbers_of(const Block& block, const ShownBlock& shown,
                                         const Situation& situation) {
    std::vector<Numbers> all;
    if (const auto* formula = std::get_if<Formula>(&block);
        formula && std::holds_alternative<ShownFormula>(shown)) {
      all.push_back(
          {"formula", formula->expression.dimension(), {formula->expression.value(situation).number}});
    } else if (const auto* plot = std::get_if<ShownPlot>(&shown)) {
      all.push_back({"plot", plot->dimension, {}});
      for (const ShownPlot::Curve& curve : plot->curves)
        for (const auto& [x, y] : curve.points) all.back().values.push_back(y);
    } else if (const auto* table = std::get_if<Table>(&block);
               table && std::holds_alternative<ShownTable>(shown)) {
      for (const Expression& column : table->columns) {
        all.push_back({"table", column.dimension(), {}});
        for (const Variant& row : table->rows) {
          const Situation other{situation.predictions.changed(situation.scenario, row.changes, "the table"),
                                situation.predictions};
          if (sim::validate(other.scenario).empty()) all.back().values.push_back(column.value(other).number);
        }
      }
    }
    return all;
  }

  // Checks that the measurement runs on a laptop.
  void check_measurement(const Measurement& measurement, const sim::Scenario& scenario) {
    constexpr sim::Bytes kMostMemory = sim::gib(8);
    for (const Variant& variant : measurement.variants) try {
        const sim::Scenario& one = predictions_.changed(scenario, variant.changes, "the measurement");
        runtime::require_runnable(as_measured_here(one, measurement), *runtime::make_cpu_device(1));
        const sim::Bytes needed = sim::peak_memory(*predictions_.of(one));
        if (needed > kMostMemory)
          add(measurement.line,
              fmt::format(
                  "{} needs {} here; what a lesson measures needs {} at most, as a model of 10M to 150M "
                  "parameters does",
                  one.model.name, sim::format(needed), sim::format(kMostMemory)));
      } catch (const std::exception& error) {
        add(measurement.line, error.what());
      }
  }

  void check_mission(std::size_t index, const ShownStep& begun) {
    const Step& step = lesson_.steps[index];
    const bool has_goals = std::ranges::any_of(
        begun.blocks, [](const ShownBlock& block) { return std::holds_alternative<ShownGoal>(block); });
    if (!has_goals) return;
    if (step.solution.empty()) return add(step.line, "the mission has no :solution");
    if (tier_reached(begun)) add(step.line, "the mission is solved as it begins");
    const ShownStep end = show(lesson_, index, solved_at(lesson_, index), predictions_);
    for (const std::string& failure : end.failures) problems_.push_back(failure + " (under the solution)");
    for (const ShownBlock& block : end.blocks)
      if (const auto* goal = std::get_if<ShownGoal>(&block); goal && !goal->holds)
        add(step.solution.back().line, fmt::format("the solution misses a goal: {}", goal->numbers));
  }

  const Lesson& lesson_;
  Predictions& predictions_;
  std::vector<Told> told_;
  std::vector<std::string> problems_;
};

}  // namespace

std::optional<Tier> tier_reached(const ShownStep& step) {
  std::optional<Tier> reached;
  for (const Tier tier : {Tier::bronze, Tier::silver, Tier::gold}) {
    bool any = false;
    for (const ShownBlock& block : step.blocks) {
      const auto* const goal = std::get_if<ShownGoal>(&block);
      if (!goal || goal->tier != tier) continue;
      if (!goal->holds) return reached;
      any = true;
    }
    if (any) reached = tier;
  }
  return reached;
}

std::string plain(const ShownWords& words) {
  std::string text;
  for (const ShownSpan& span : words) text += span.words;
  return text;
}

sim::Scenario first_scenario(const Lesson& lesson) {
  const std::filesystem::path beside = lesson.file.parent_path() / lesson.scenario;
  sim::Scenario scenario;
  if (lesson.scenario.ends_with(".json") && beside.parent_path() == lesson.file.parent_path())
    scenario = cli::read_scenario(cli::read_file(beside.string()), beside.string());
  else
    scenario = sim::load_scenario_preset(lesson.scenario);
  cli::settle_hardware(scenario, {}, {});
  return scenario;
}

sim::Scenario scenario_at(const Lesson& lesson, std::size_t step) {
  sim::Scenario scenario = first_scenario(lesson);
  for (std::size_t i = 0; i <= step; ++i)
    scenario = with_lines(std::move(scenario), lesson.steps[i].set, lesson);
  return scenario;
}

sim::Scenario solved_at(const Lesson& lesson, std::size_t step) {
  return with_lines(scenario_at(lesson, step), lesson.steps[step].solution, lesson);
}

ShownStep show(const Lesson& lesson, std::size_t step, const sim::Scenario& scenario,
               Predictions& predictions, const MeasuredRuns* measured, const std::function<bool()>& stopped) {
  const Situation situation{scenario, predictions};
  ShownStep result;
  const auto shown_line = [&](const Paragraph& line) -> ShownParagraph {
    try {
      return {shown(line.words, situation), line.bullet};
    } catch (const LineError& error) {
      result.failures.push_back(where(lesson, error.line) + ": " + error.what());
      return {};
    }
  };
  for (const Paragraph& note : lesson.steps[step].notes) result.notes.push_back(shown_line(note));
  for (const Paragraph& hint : lesson.steps[step].hints) result.hints.push_back(shown_line(hint));
  result.take_home = shown_line(lesson.steps[step].take_home).words;
  for (const Block& block : lesson.steps[step].blocks) {
    if (stopped && stopped()) break;
    try {
      result.blocks.push_back(std::visit(Shower{situation, measured, stopped}, block));
    } catch (const LineError& error) {
      result.failures.push_back(where(lesson, error.line) + ": " + error.what());
      result.blocks.push_back(ShownParagraph{});
    } catch (const std::exception& error) {
      result.failures.push_back(where(lesson, line_of(block)) + ": " + error.what());
      result.blocks.push_back(ShownParagraph{});
    }
  }
  return result;
}

std::vector<std::string> problems_of(const Lesson& lesson, Predictions& predictions) {
  return Checker(lesson, predictions).problems();
}

}  // namespace app::lesson
