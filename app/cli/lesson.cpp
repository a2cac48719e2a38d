// ridgepoint lesson: lists lessons, plays one as text, checks them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <memory>

#include "app/cli/command.h"
#include "app/cli/event_output.h"
#include "app/cli/flags.h"
#include "app/cli/interrupt.h"
#include "app/cli/progress.h"
#include "app/cli/scenario_flags.h"
#include "app/cli/text_table.h"
#include "app/counted.h"
#include "app/gui/panels/lessons_handout.h"
#include "app/gui/print_page.h"
#include "app/lesson/measure.h"
#include "app/lesson/play.h"
#include "sim/format.h"
#include "sim/scenario/preset.h"

namespace app::cli {

namespace {

struct LessonFlags {
  std::vector<std::string> names;
  std::vector<std::string> folders;  // lesson folders beside the program's own
  std::string handout;               // the file to write one to
  std::string scenario;              // replaces the lesson's own; with measure
  int step = 0;                      // the only one played, from 1; 0: all
  double seconds = 1;                // for which a training is repeated
  bool check = false, answers = false, notes = false, quantities = false, measure = false;
  bool stream = false;
};

// Takes a file, or the name of a lesson in presets/lessons or in a folder of the user's.
std::filesystem::path lesson_file(const std::string& name,
                                  const std::vector<std::filesystem::path>& folders) {
  if (std::filesystem::is_regular_file(name)) return name;
  sim::require_preset_directory();
  std::vector<std::string> names;
  for (const auto& file : lesson::lesson_files(folders)) {
    if (file.stem() == name) return file;
    names.push_back(file.stem().string());
  }
  throw sim::PresetError(fmt::format("{}: no such file, and no lesson of that name; there are {}", name,
                                     fmt::join(names, ", ")));
}

// A lesson that is wrong is reported on stderr, and does not stop the others.
ExitCode list_lessons(const std::vector<std::filesystem::path>& folders) {
  TextTable table{{{"lesson", TextTable::Align::left},
                   {"chapter", TextTable::Align::left},
                   {"title", TextTable::Align::left},
                   {"steps"},
                   {"min"}},
                  {}};
  sim::require_preset_directory();
  std::vector<lesson::Lesson> lessons;
  ExitCode code = ExitCode::fine;
  for (const auto& file : lesson::lesson_files(folders)) try {
      lessons.push_back(lesson::load_lesson(file));
    } catch (const sim::PresetError& error) {
      to_stderr(fmt::format("ridgepoint: {}\n", error.what()));
      code = ExitCode::bad_input;
    }
  std::ranges::stable_sort(lessons, lesson::stands_before);
  for (const lesson::Lesson& l : lessons)
    table.rows.push_back(
        {l.id, l.chapter, l.title, std::to_string(l.steps.size()), std::to_string(l.minutes)});
  fmt::print("{}", table.text());
  return code;
}

ExitCode list_quantities() {
  TextTable table{{{"quantity", TextTable::Align::left},
                   {"unit", TextTable::Align::left},
                   {"what it is", TextTable::Align::left}},
                  {}};
  for (const lesson::Quantity& q : lesson::quantities())
    table.rows.push_back({std::string(q.name), q.dimension.name(),
                          std::string(q.words).append(q.help.empty() ? "" : ": ").append(q.help)});
  fmt::print("{}", table.text());
  return ExitCode::fine;
}

// Steps 1, 2, 4, ... and the last: all of them would be a long table.
lesson::ShownPlot at_doublings(lesson::ShownPlot plot) {
  for (auto& curve : plot.curves) {
    const double last = curve.points.empty() ? 0 : curve.points.back().first;
    std::erase_if(curve.points, [last](const std::pair<double, double>& point) {
      const auto step = static_cast<std::uint64_t>(point.first);
      return !std::has_single_bit(step) && point.first != last;
    });
  }
  return plot;
}

struct Printer {
  bool answers = false;
  std::string name;  // of the lesson

  void operator()(const lesson::ShownParagraph& p) const {
    if (!p.words.empty()) fmt::print("{}{}\n\n", p.bullet ? "  - " : "", lesson::plain(p.words));
  }
  void operator()(const lesson::ShownFormula& f) const {
    fmt::print("    {}\n{}    = {}\n\n", f.words, f.numbers.empty() ? "" : "    = " + f.numbers + "\n",
               f.result);
  }
  void operator()(const lesson::ShownQuestion& q) const {
    fmt::print("? {}\n", lesson::plain(q.ask));
    for (std::size_t i = 0; i < q.choices.size(); ++i)
      fmt::print("  {} {}\n", answers && q.right == i ? '*' : 'o', lesson::plain(q.choices[i]));
    if (answers) fmt::print("  Answer: {}. {}\n", q.answer_text, lesson::plain(q.because));
    fmt::print("\n");
  }
  void operator()(const lesson::ShownPlot& p) const {
    TextTable table{{{p.over}}, {}};
    for (const auto& curve : p.curves)
      table.columns.push_back({curve.label.empty() ? p.quantity : curve.label});
    std::vector<double> values;
    for (const auto& curve : p.curves)
      for (const auto& point : curve.points) values.push_back(point.first);
    std::ranges::sort(values);
    values.erase(std::unique(values.begin(), values.end()), values.end());
    for (const double x : values) {
      std::vector<std::string> row = {sim::format_count(static_cast<std::int64_t>(x))};
      for (const auto& curve : p.curves) {
        const auto at = std::ranges::find(curve.points, x, &std::pair<double, double>::first);
        row.push_back(at == curve.points.end() ? "" : lesson::text({at->second, p.dimension}, p.style));
      }
      table.rows.push_back(std::move(row));
    }
    fmt::print("{}:\n{}\n", p.quantity, table.text());
  }
  void operator()(const lesson::ShownTable& t) const {
    TextTable table;
    for (const std::string& column : t.columns) table.columns.push_back({column});
    table.columns.front().align = TextTable::Align::left;
    table.rows = t.rows;
    fmt::print("{}\n", table.text());
  }
  void operator()(const lesson::ShownMeasurement& m) const {
    fmt::print("On this machine{}:\n", m.measured.empty() ? "" : ", measured " + m.measured);
    TextTable table{{{m.by, TextTable::Align::left},
                     {"", TextTable::Align::left},
                     {"predicted"},
                     {"measured"},
                     {"ratio"}},
                    {}};
    for (const auto& row : m.rows)
      table.rows.push_back({row.variant, row.name, row.predicted, row.measured,
                            row.ratio > 0 ? fmt::format("{:.2f}", row.ratio) : ""});
    fmt::print("{}\n", table.text());
    if (m.losses) (*this)(at_doublings(*m.losses));
    for (const std::string& why : m.why_not) fmt::print("{}\n\n", why);
    if (m.measured.empty()) fmt::print("`ridgepoint lesson {} --measure` measures it.\n\n", name);
  }
  void operator()(const lesson::ShownFilm& f) const {
    if (!f.film) return;
    fmt::print("Moving picture: {}\n", f.film->title);
    for (const double share : {.25, .5, .75})
      fmt::print("    at {}: {}\n", sim::format(sim::Seconds{share * f.film->end}),
                 f.film->says(share * f.film->end));
    fmt::print("\n");
  }
  void operator()(const lesson::ShownSeries& s) const {
    TextTable table{{{"grows with a power of", TextTable::Align::left},
                     {"time claimed"},
                     {"predicted"},
                     {"memory claimed"},
                     {"predicted"}},
                    {}};
    const auto power = [](std::optional<double> exponent) {
      return exponent ? fmt::format("{:.2f}", *exponent) : "";
    };
    for (const auto& row : s.rows)
      table.rows.push_back({row.what, power(row.time_claimed), power(row.time_predicted),
                            power(row.memory_claimed), power(row.memory_predicted)});
    fmt::print("{}\n`ridgepoint measure {}` measures them on this machine.\n\n", table.text(), s.name);
  }
  void operator()(const lesson::ShownGoal& g) const {
    const std::string_view tier =
        g.tier == lesson::Tier::bronze ? "" : lesson::kTiers[static_cast<std::size_t>(g.tier)];
    fmt::print("  [{}] {}{}{} ({})\n", g.holds ? 'x' : ' ', tier, tier.empty() ? "" : ": ",
               lesson::plain(g.words), g.numbers);
  }
};

ExitCode play(const std::filesystem::path& file, const LessonFlags& flags) {
  const lesson::Lesson lesson = lesson::load_lesson(file);
  lesson::Predictions predictions;
  if (flags.step > static_cast<int>(lesson.steps.size()))
    throw UsageError(fmt::format("--step is 1 to {} of {}", lesson.steps.size(), lesson.id));
  const InterruptSignals interrupt;
  EventOutput events({.stream = flags.stream, .record = {}});
  const bool tells = !flags.stream;
  if (tells) fmt::print("{}\n{}\n\n", lesson.title, lesson.chapter);
  for (std::size_t i = 0; i < lesson.steps.size() && !interrupt.arrived(); ++i) {
    if (flags.step > 0 && i + 1 != static_cast<std::size_t>(flags.step)) continue;
    const lesson::Step& step = lesson.steps[i];
    const sim::Scenario scenario = flags.scenario.empty()
                                       ? lesson::scenario_at(lesson, i)
                                       : read_scenario(read_file(flags.scenario), flags.scenario);
    lesson::MeasuredRuns measured;
    const lesson::Measurement* const measurement = lesson::measurement_of(step);
    const std::function<void(const lesson::MeasuredRun&)> stream = [&](const lesson::MeasuredRun& run) {
      if (!run.report)
        return events.write(sim::ErrorEvent{run.why_not, static_cast<int>(ExitCode::constraint)});
      for (const sim::Event& event : sim::events_of(*run.report)) events.write(event);
    };
    if (flags.measure && measurement)
      measured = lesson::measure(*measurement, scenario, predictions, {flags.seconds}, events.sink(),
                                 interrupt.stop(), flags.stream ? stream : nullptr);
    if (flags.stream) continue;
    fmt::print("{}. {}\n\n", i + 1, step.title);
    const lesson::ShownStep shown = lesson::show(lesson, i, scenario, predictions, &measured);
    for (const lesson::ShownBlock& block : shown.blocks) std::visit(Printer{flags.answers, lesson.id}, block);
    for (const std::string& failure : shown.failures) to_stderr(fmt::format("ridgepoint: {}\n", failure));
    if (!shown.take_home.empty()) fmt::print("  => {}\n\n", lesson::plain(shown.take_home));
    if (flags.notes)
      for (const lesson::ShownParagraph& note : shown.notes)
        fmt::print("  [{}]\n\n", lesson::plain(note.words));
  }
  return interrupt.arrived() ? ExitCode::interrupted : ExitCode::fine;
}

ExitCode check(const std::vector<std::filesystem::path>& files) {
  std::int64_t steps = 0, wrong = 0;
  for (const auto& file : files) {
    std::vector<std::string> problems;
    try {
      const lesson::Lesson lesson = lesson::load_lesson(file);
      lesson::Predictions predictions;
      problems = lesson::problems_of(lesson, predictions);
      steps += std::ssize(lesson.steps);
    } catch (const sim::PresetError& error) {
      problems.emplace_back(error.what());
    }
    for (const std::string& problem : problems) fmt::print("{}\n", problem);
    wrong += !problems.empty();
  }
  fmt::print(
      "{}, {} played from first to last: {}\n", counted(std::ssize(files), "lesson"), counted(steps, "step"),
      wrong == 0 ? "nothing is wrong" : fmt::format("{} {} problems", wrong, wrong == 1 ? "has" : "have"));
  return wrong == 0 ? ExitCode::fine : ExitCode::bad_input;
}

ExitCode run(LessonFlags flags) {
  if (flags.quantities) return list_quantities();
  if (!flags.names.empty() && flags.names.front() == "check") {
    flags.check = true;
    flags.names.erase(flags.names.begin());
  }
  std::vector<std::filesystem::path> own(flags.folders.begin(), flags.folders.end());
  for (const std::filesystem::path& folder : own) lesson::require_lesson_folder(folder);
  std::vector<std::filesystem::path> folders = own;
  folders.insert(folders.begin(), lesson::lesson_directory());
  if (flags.names.empty() && !flags.handout.empty())
    throw UsageError("--handout is of one lesson: NAME --handout FILE.html, or FILE.pdf");
  if (flags.names.empty() && !flags.check) return list_lessons(folders);
  std::vector<std::filesystem::path> files;
  for (const std::string& name : flags.names) files.push_back(lesson_file(name, folders));
  // A user who names a folder wants that one checked.
  if (flags.check) return check(files.empty() ? lesson::lesson_files(own.empty() ? folders : own) : files);
  if (!flags.handout.empty()) {
    if (files.size() != 1)
      throw UsageError("--handout is of one lesson: NAME --handout FILE.html, or FILE.pdf");
    lesson::Predictions predictions;
    const std::string page =
        handout(lesson::load_lesson(files[0]), predictions, {flags.answers, flags.notes});
    if (std::filesystem::path(flags.handout).extension() == ".pdf")
      print_page(page, flags.handout);
    else
      write_file(flags.handout, page);
    fmt::print("{}\n", flags.handout);
    return ExitCode::fine;
  }
  if (flags.stream && !flags.measure) throw UsageError("--stream tells what --measure finds: give both");
  if (!flags.scenario.empty() && (files.size() != 1 || flags.step == 0))
    throw UsageError("--scenario is of one step of one lesson: NAME --step 2 --scenario FILE");
  if (!(flags.seconds > 0)) throw UsageError(fmt::format("--seconds is above 0, not {}", flags.seconds));
  ExitCode code = ExitCode::fine;
  for (const auto& file : files)
    if (code == ExitCode::fine) code = play(file, flags);
  return code;
}

}  // namespace

void add_lesson(CLI::App& program, Invocation& invocation) {
  const auto flags = std::make_shared<LessonFlags>();
  CLI::App* command = program.add_subcommand(
      "lesson",
      describe("List the lessons, read one as text, or check what a lecturer wrote.",
               {"ridgepoint lesson", "ridgepoint lesson cost-of-a-step --answers",
                "ridgepoint lesson check my_lesson.md", "ridgepoint lesson --check",
                "ridgepoint lesson check --lessons my_class", "ridgepoint lesson flash-attention --measure",
                "ridgepoint lesson pipeline --handout pipeline.html", "ridgepoint lesson --quantities"}));
  command->add_option("LESSON", flags->names, "a lesson's name or file; `check` before them checks")
      ->type_name("NAME|FILE");
  command->add_option("--lessons", flags->folders, "a folder of lessons beside the program's own")
      ->type_name("DIR");
  command->add_flag("--check", flags->check,
                    "play every step and say what is wrong; all lessons where none is named");
  command->add_flag("--answers", flags->answers, "with the answers, as the model computes them");
  command->add_flag("--notes", flags->notes, "with the lecturer's notes");
  command
      ->add_option("--handout", flags->handout,
                   "write it to print: formulas, numbers, pictures and room for answers; as PDF by Chromium, "
                   "where that is installed")
      ->type_name("FILE.html|FILE.pdf");
  command->add_flag("--measure", flags->measure,
                    "run what its steps measure on this machine, some seconds a run");
  command->add_option("--step", flags->step, "one step alone, from 1")
      ->check(CLI::PositiveNumber)
      ->type_name("N");
  command->add_option("--scenario", flags->scenario, "a step's scenario in place of the lesson's own")
      ->type_name("FILE");
  command->add_option("--seconds", flags->seconds, "that a training is repeated for, at least five steps")
      ->capture_default_str();
  command->add_flag("--stream", flags->stream,
                    "with --measure: what is measured alone, to stdout, an event a line (NDJSON)");
  command->add_flag("--quantities", flags->quantities, "what the expressions of a lesson may name");
  command->callback([flags, &invocation] {
    invocation.stream = flags->stream;
    invocation.run = [flags] { return run(*flags); };
  });
}

}  // namespace app::cli
