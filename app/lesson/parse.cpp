// Reads a lesson's file: front matter, then steps of paragraphs and directives.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <regex>
#include <tuple>

#include "app/lesson/field_words.h"
#include "app/lesson/lesson.h"
#include "sim/file_text.h"
#include "sim/foreign_text.h"
#include "sim/format.h"
#include "sim/scenario/preset.h"

namespace app::lesson {
namespace {

constexpr std::uintmax_t kLargestFile = 1 << 20;
constexpr int kSystems = 35;
constexpr int kMostLessons = 100;        // of a chapter
constexpr std::size_t kMostPoints = 24;  // of a curve

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

// Splits at commas outside of brackets.
std::vector<std::string_view> at_commas(std::string_view text) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '(' || text[i] == '[') ++depth;
    if (text[i] == ')' || text[i] == ']') --depth;
    if (text[i] != ',' || depth > 0) continue;
    parts.push_back(trimmed(text.substr(begin, i - begin)));
    begin = i + 1;
  }
  parts.push_back(trimmed(text.substr(begin)));
  return parts;
}

class Reader {
 public:
  Reader(std::string_view text, const std::filesystem::path& file) : file_(file) {
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      std::string_view line = text.substr(0, end);
      if (line.ends_with('\r')) line.remove_suffix(1);
      lines_.push_back(line);
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  }

  Lesson read() {
    lesson_.file = file_;
    lesson_.id = file_.stem().string();
    front_matter();
    for (; line_ < lines_.size(); ++line_) body_line(trimmed(lines_[line_]));
    end_paragraph();
    if (notes_from_ > 0) notes_without_end();
    if (lesson_.steps.empty()) fail("has no step: a line that begins with \"## \" begins one");
    finish_questions();
    return std::move(lesson_);
  }

 private:
  [[noreturn]] void fail(const std::string& why) const { fail_at(number(), why); }
  [[noreturn]] void fail_at(int line, const std::string& why) const {
    throw sim::PresetError(fmt::format("{}:{}: {}", file_.string(), line, why));
  }
  int number() const { return static_cast<int>(std::min(line_, lines_.size() - 1)) + 1; }

  void front_matter() {
    if (lines_.empty() || trimmed(lines_[0]) != "---")
      throw sim::PresetError(file_.string() +
                             ":1: begins with a line ---, then title: and the like, then ---");
    std::vector<std::string_view> seen;
    for (line_ = 1; line_ < lines_.size() && trimmed(lines_[line_]) != "---"; ++line_) {
      const std::string_view line = trimmed(lines_[line_]);
      if (line.empty()) continue;
      const std::size_t colon = line.find(':');
      if (colon == std::string_view::npos) fail("is no KEY: VALUE; a line --- ends the front matter");
      const std::string_view key = trimmed(line.substr(0, colon));
      const std::string value(trimmed(line.substr(colon + 1)));
      if (std::ranges::find(seen, key) != seen.end()) fail(fmt::format("{} is there twice", key));
      if (value.empty()) fail(fmt::format("{}: has no value", sim::excerpt(key)));
      seen.push_back(key);
      if (key == "title")
        lesson_.title = value;
      else if (key == "chapter")
        lesson_.chapter = value;
      else if (key == "scenario") {
        lesson_.scenario = value;
        lesson_.scenario_line = number();
      } else if (key == "minutes")
        lesson_.minutes = whole(value, 1, 240);
      else if (key == "place")
        lesson_.place = whole(value, 1, kMostLessons);
      else if (key == "systems")
        for (const std::string_view one : at_commas(value))
          lesson_.systems.push_back(whole(one, 1, kSystems));
      else if (key == "kind")
        lesson_.mission = one_of(value, {"lesson", "mission"}) == 1;
      else
        fail(fmt::format("{} is none of title, chapter, place, systems, minutes, scenario, kind",
                         sim::excerpt(key)));
    }
    if (line_ >= lines_.size()) fail("the front matter does not end: a line --- is missing");
    for (const std::string_view key : {"title", "chapter", "minutes", "scenario"})
      if (std::ranges::find(seen, key) == seen.end()) fail(fmt::format("{}: is missing above", key));
    ++line_;
  }

  int whole(std::string_view text, int least, int most) const {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
      fail(fmt::format("\"{}\" is no whole number from {} to {}", sim::excerpt(text), least, most));
    return value;
  }
  std::size_t one_of(std::string_view word, std::initializer_list<std::string_view> words) const {
    const auto found = std::find(words.begin(), words.end(), word);
    if (found == words.end())
      fail(fmt::format("\"{}\" is none of {}", sim::excerpt(word), fmt::join(words, ", ")));
    return static_cast<std::size_t>(found - words.begin());
  }

  void body_line(std::string_view line) {
    if (notes_from_ > 0 && line == ":end") {
      end_paragraph();
      notes_from_ = 0;
    } else if (notes_from_ > 0 && (line.starts_with("## ") || line.starts_with(":"))) {
      notes_without_end();
    } else if (line.starts_with("## ")) {
      end_paragraph();
      Step& begun = lesson_.steps.emplace_back();
      begun.title = trimmed(line.substr(3));
      begun.line = number();
    } else if (line.empty()) {
      end_paragraph();
    } else if (line.starts_with("#")) {
      fail("a step begins with \"## \" and its title; the lesson's title stands in the front matter");
    } else if (lesson_.steps.empty()) {
      fail("stands before the first step: a line that begins with \"## \" begins one");
    } else if (line.starts_with(":")) {
      end_paragraph();
      directive(line);
    } else if (line.starts_with("- ")) {
      end_paragraph();
      paragraph_ = line.substr(2);
      bullet_ = true;
      paragraph_line_ = number();
    } else {
      if (paragraph_.empty()) paragraph_line_ = number();
      paragraph_.append(paragraph_.empty() ? "" : "\n").append(line);
    }
  }

  void end_paragraph() {
    if (!paragraph_.empty()) {
      Paragraph paragraph{words(paragraph_, paragraph_line_), bullet_, paragraph_line_};
      if (notes_from_ > 0)
        step().notes.push_back(std::move(paragraph));
      else
        step().blocks.push_back(std::move(paragraph));
    }
    paragraph_.clear();
    bullet_ = false;
  }

  [[noreturn]] void notes_without_end() const {
    fail_at(notes_from_,
            "the notes that begin here do not end: paragraphs and \"- \" bullets, then a line :end");
  }

  Step& step() { return lesson_.steps.back(); }

  void directive(std::string_view line) {
    const std::size_t space = std::min(line.find(' '), line.size());
    const std::string_view word = line.substr(1, space - 1), rest = trimmed(line.substr(space));
    static const std::map<std::string_view, void (Reader::*)(std::string_view)> kDirectives = {
        {"set", &Reader::set},         {"panel", &Reader::panel},   {"formula", &Reader::formula},
        {"ask", &Reader::ask},         {"answer", &Reader::answer}, {"choice", &Reader::choice},
        {"because", &Reader::because}, {"plot", &Reader::plot},     {"table", &Reader::table},
        {"measure", &Reader::measure}, {"take", &Reader::take},     {"note", &Reader::note},
        {"hint", &Reader::hint},       {"goal", &Reader::goal},     {"solution", &Reader::solution},
        {"notes", &Reader::notes},     {"silver", &Reader::silver}, {"gold", &Reader::gold},
        {"film", &Reader::film},       {"series", &Reader::series}};
    const auto found = kDirectives.find(word);
    if (found == kDirectives.end()) {
      std::vector<std::string_view> names;
      for (const auto& [name, read] : kDirectives) names.push_back(name);
      fail(fmt::format("\":{}\" is none of :{}", sim::excerpt(word), fmt::join(names, ", :")));
    }
    if (rest.empty() && word != "notes") fail(fmt::format(":{} says nothing behind it", word));
    (this->*found->second)(rest);
  }

  void set(std::string_view rest) { step().set.push_back(set_line(rest)); }
  void solution(std::string_view rest) { step().solution.push_back(set_line(rest)); }
  SetLine set_line(std::string_view rest) const {
    return {attempt(number(), [&] { return parse_changes(rest); }), number()};
  }
  void panel(std::string_view rest) {
    step().panel = rest;
    step().panel_line = number();
  }
  Paragraph line_of(std::string_view rest) const { return {words(rest, number()), false, number()}; }
  void take(std::string_view rest) { step().take_home = line_of(rest); }
  void note(std::string_view rest) { step().notes.push_back(line_of(rest)); }
  void notes(std::string_view rest) {
    if (!rest.empty())
      fail(":notes stands alone, before the lines of the notes; a note of one line is :note WORDS");
    notes_from_ = number();
  }
  void hint(std::string_view rest) { step().hints.push_back(line_of(rest)); }
  void formula(std::string_view rest) { step().blocks.push_back(Formula{expression(rest), number()}); }
  // EXPRESSIONS [for PATH: VALUE, VALUE]
  void measure(std::string_view rest) {
    for (const Block& block : step().blocks)
      if (const auto* other = std::get_if<Measurement>(&block))
        fail(fmt::format("the step measures already, in line {}; a step has one :measure", other->line));
    const std::size_t variants = std::min(rest.rfind(" for "), rest.size());
    Measurement measurement{expressions(rest.substr(0, variants)), {}, number()};
    if (variants < rest.size())
      measurement.variants = variants_of(rest.substr(variants + 5));
    else
      measurement.variants.push_back({});
    step().blocks.push_back(std::move(measurement));
  }
  void goal(std::string_view rest) { goal_of(Tier::bronze, rest); }
  void silver(std::string_view rest) { goal_of(Tier::silver, rest); }
  void gold(std::string_view rest) { goal_of(Tier::gold, rest); }
  void goal_of(Tier tier, std::string_view rest) {
    const std::size_t equals = rest.find(" if ");
    if (equals == std::string_view::npos)
      fail("is not of the form WORDS if COMPARISON, as :goal It fits if peak_memory <= capacity");
    Expression holds = expression(rest.substr(equals + 4));
    if (!holds.is_comparison()) fail("a goal is a comparison: <, <=, > or >=");
    step().blocks.push_back(
        Goal{tier, words(trimmed(rest.substr(0, equals)), number()), std::move(holds), number()});
  }

  void film(std::string_view rest) {
    const std::size_t with = std::min(rest.find(" with "), rest.size());
    const auto kind = film_kind_from_name(trimmed(rest.substr(0, with)));
    if (!kind) fail(fmt::format("\"{}\" is none of {}", sim::excerpt(rest), fmt::join(kFilmNames, ", ")));
    const std::string draft(with < rest.size() ? trimmed(rest.substr(with + 6)) : "");
    if ((kind == FilmKind::draft) != !draft.empty())
      fail("a model proposes in a draft alone: :film draft with MODEL, as :film draft with llama-3.2-1b");
    step().blocks.push_back(MovingPicture{*kind, draft, number()});
  }
  void series(std::string_view rest) {
    const std::vector<std::string> names = sim::preset_names(sim::PresetKind::series);
    if (std::ranges::find(names, rest) == names.end())
      fail(fmt::format("\"{}\" is no series; there are {}", sim::excerpt(rest), fmt::join(names, ", ")));
    step().blocks.push_back(Series{std::string(rest), number()});
  }

  void ask(std::string_view rest) {
    Question question;
    question.ask = words(rest, number());
    question.line = number();
    step().blocks.push_back(std::move(question));
  }
  Question& question(std::string_view directive) {
    if (!step().blocks.empty())
      if (auto* const last = std::get_if<Question>(&step().blocks.back())) return *last;
    fail(fmt::format(":{} stands right behind its :ask", directive));
  }
  void answer(std::string_view rest) {
    Question& q = question("answer");
    q.answer_line = number();
    if (rest == "least" || rest == "greatest") {
      q.right = rest == "least" ? Question::Right::least : Question::Right::greatest;
      return;
    }
    if (const std::size_t within = rest.rfind(" within "); within != std::string_view::npos) {
      const Expression share = expression(rest.substr(within + 8));
      if (!share.dimension().is_none()) fail("a tolerance is a share: within 10%");
      Predictions none;
      const sim::Scenario nothing;
      q.tolerance = share.value({nothing, none}).number;
      rest = rest.substr(0, within);
    }
    q.answer = expression(rest);
  }
  void choice(std::string_view rest) {
    Question& q = question("choice");
    Choice choice{{}, {}, number()};
    const std::size_t equals = rest.rfind(" = ");
    try {
      choice.value = Expression(equals == std::string_view::npos ? rest : rest.substr(equals + 3));
    } catch (const ExpressionError& error) {
      fail(fmt::format("{}; a choice is WORDS = EXPRESSION, or an expression alone", error.what()));
    }
    choice.words = words(trimmed(rest.substr(0, equals)), number());
    q.choices.push_back(std::move(choice));
  }
  void because(std::string_view rest) { question("because").because = words(rest, number()); }

  // EXPRESSION over PATH from A to B [for VARIANTS]
  void plot(std::string_view rest) {
    constexpr std::string_view kForm = ":plot QUANTITY over PATH from A to B [for PATH: VALUE, VALUE]";
    const std::size_t over = rest.find(" over "), from = rest.find(" from "), to = rest.find(" to ");
    if (over == std::string_view::npos || from == std::string_view::npos || to == std::string_view::npos ||
        !(over < from && from < to))
      fail(fmt::format("is not of the form {}", kForm));
    const std::size_t variants = std::min(rest.find(" for ", to), rest.size());
    Plot plot{expression(rest.substr(0, over)),
              std::string(trimmed(rest.substr(over + 6, from - over - 6))),
              {},
              {},
              number()};
    const double low = count(rest.substr(from + 6, to - from - 6)),
                 high = count(rest.substr(to + 4, variants - to - 4));
    if (!(low >= 1 && high > low)) fail("a plot goes from a number of at least 1 to a greater one");
    for (double value = low; value < high * 1.0001; value *= 2) plot.values.push_back(value);
    if (plot.values.size() < 2 || plot.values.size() > kMostPoints)
      fail(fmt::format("a plot doubles from A to B: that is 2 to {} points, not {}", kMostPoints,
                       plot.values.size()));
    if (variants < rest.size())
      plot.variants = variants_of(rest.substr(variants + 5));
    else
      plot.variants.push_back({});
    step().blocks.push_back(std::move(plot));
  }
  double count(std::string_view text) const {
    std::int64_t value = 0;
    if (!sim::parse_count(std::string(trimmed(text)), value, true))
      fail(fmt::format("\"{}\" is no number, as 8 or 8k", sim::excerpt(trimmed(text))));
    return static_cast<double>(value);
  }

  // EXPRESSIONS for PATH: VALUE, VALUE
  void table(std::string_view rest) {
    const std::size_t rows = rest.rfind(" for ");
    if (rows == std::string_view::npos)
      fail("is not of the form :table QUANTITY, QUANTITY for PATH: VALUE, VALUE");
    step().blocks.push_back(
        Table{expressions(rest.substr(0, rows)), variants_of(rest.substr(rows + 5)), number()});
  }
  // PATH: VALUE, VALUE
  std::vector<Variant> variants_of(std::string_view text) const {
    const std::size_t colon = text.find(':');
    if (colon == std::string_view::npos)
      fail("variants are PATH: VALUE, VALUE, as strategy.recompute: none, full");
    const std::string path(trimmed(text.substr(0, colon)));
    static const std::regex thousands(R"(\d,\d{3}(?!\d))");
    if (std::regex_search(text.begin(), text.end(), thousands))
      fail("commas divide values, with a blank behind each, and numbers have none: 8192, 32768");
    std::vector<Variant> variants;
    for (const std::string_view value : at_commas(text.substr(colon + 1))) {
      if (value.empty()) fail("a value is missing between commas");
      variants.push_back({value_words(std::string(value)), {{path, std::string(value)}}});
    }
    return variants;
  }

  std::vector<Expression> expressions(std::string_view list) const {
    std::vector<Expression> all;
    for (const std::string_view one : at_commas(list)) all.push_back(expression(one));
    return all;
  }
  Expression expression(std::string_view text) const {
    return attempt(number(), [&] { return Expression(text); });
  }
  template <class Make>
  auto attempt(int line, const Make& make) const -> decltype(make()) {
    try {
      return make();
    } catch (const ExpressionError& error) {
      fail_at(line, error.what());
    }
  }

  // **bold**, `code`, {expression} and {expression|style}, over lines from this one on.
  Words words(std::string_view text, int line) const {
    Words spans;
    std::string plain;
    const auto flush = [&] {
      if (!plain.empty()) spans.push_back({Span::Kind::plain, std::move(plain), {}, line});
      plain.clear();
    };
    const auto until = [&](std::size_t from, std::string_view end) {
      const std::size_t found = text.find(end, from);
      if (found == std::string_view::npos) fail_at(line, fmt::format("{} is not closed", end));
      return found;
    };
    for (std::size_t i = 0; i < text.size();) {
      const auto marked = [&](std::string_view begin, std::string_view end, Span::Kind kind) {
        if (!text.substr(i).starts_with(begin)) return false;
        const std::size_t close = until(i + begin.size(), end);
        flush();
        std::string inside(text.substr(i + begin.size(), close - i - begin.size()));
        spans.push_back({kind, inside, {}, line});
        std::ranges::replace(spans.back().words, '\n', ' ');
        if (kind == Span::Kind::value) read_value(spans.back());
        line += static_cast<int>(std::ranges::count(inside, '\n'));
        i = close + end.size();
        return true;
      };
      if (marked("**", "**", Span::Kind::bold) || marked("`", "`", Span::Kind::code)) continue;
      if (marked("{", "}", Span::Kind::value)) continue;
      const char next = text[i++];
      plain += next == '\n' ? ' ' : next;
      if (next != '\n') continue;
      flush();
      ++line;
    }
    flush();
    return spans;
  }
  void read_value(Span& span) const {
    if (span.words == "model" || span.words == "hardware" || span.words == "implementation") return;
    span.value = attempt(span.line, [&] { return Expression(span.words); });
  }

  void finish_questions() const {
    for (const Step& step : lesson_.steps)
      for (const Block& block : step.blocks) {
        const auto* q = std::get_if<Question>(&block);
        if (!q) continue;
        const bool nearest = q->right == Question::Right::nearest;
        if (nearest && !q->answer) fail_at(q->line, "the question has no :answer");
        if (!nearest && q->choices.size() < 2)
          fail_at(q->line, ":answer least and greatest ask for two choices or more");
        if (q->choices.size() == 1) fail_at(q->line, "a question has no :choice, or two and more");
        for (const Choice& choice : q->choices) {
          const Dimension& asked = nearest ? q->answer->dimension() : q->choices[0].value->dimension();
          if (!(choice.value->dimension() == asked))
            fail_at(choice.line, fmt::format("the choice is {}, {} {}", choice.value->dimension().name(),
                                             nearest ? "the answer" : "the first one", asked.name()));
        }
      }
  }

  std::filesystem::path file_;
  std::vector<std::string_view> lines_;
  std::size_t line_ = 0;  // from 0
  Lesson lesson_;
  std::string paragraph_;
  bool bullet_ = false;
  int paragraph_line_ = 0;
  int notes_from_ = 0;  // the line of the :notes being read; 0: none
};

// The number that a chapter's name begins with. A chapter without a number comes after all numbered ones.
int number_of_chapter(std::string_view chapter) {
  int number = std::numeric_limits<int>::max();
  std::from_chars(chapter.data(), chapter.data() + chapter.size(), number);
  return number;
}

}  // namespace

bool stands_before(const Lesson& one, const Lesson& other) {
  const auto key = [](const Lesson& lesson) {
    return std::tuple(number_of_chapter(lesson.chapter), std::string_view(lesson.chapter),
                      lesson.place > 0 ? lesson.place : kMostLessons + 1);
  };
  return key(one) < key(other);
}

Lesson parse_lesson(std::string_view text, const std::filesystem::path& file) {
  return Reader(text, file).read();
}

Lesson load_lesson(const std::filesystem::path& file) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(file, error);
  if (!error && size > kLargestFile)
    throw sim::PresetError(file.string() + ": is larger than a lesson may be, 1 MiB");
  const std::optional<std::string> text = sim::file_text(file);
  if (!text) throw sim::PresetError(file.string() + ": cannot be read");
  return parse_lesson(*text, file);
}

std::filesystem::path lesson_directory() {
  return sim::preset_directory() / "lessons";
}

std::vector<std::filesystem::path> lesson_files(const std::vector<std::filesystem::path>& folders) {
  std::map<std::string, std::filesystem::path> by_name;
  for (const std::filesystem::path& folder : folders)
    for (const std::filesystem::path& file : lesson_files(folder)) by_name[file.stem().string()] = file;
  std::vector<std::filesystem::path> files;
  for (const auto& [name, file] : by_name) files.push_back(file);
  return files;
}

void require_lesson_folder(const std::filesystem::path& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error))
    throw sim::PresetError(folder.string() + ": is no folder; one of lessons, NAME.md each, would be");
  if (lesson_files(folder).empty())
    throw sim::PresetError(folder.string() +
                           ": has no lessons, which are files NAME.md other than README.md");
}

std::vector<std::filesystem::path> lesson_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (entry.path().extension() == ".md" && entry.path().stem() != "README") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace app::lesson
