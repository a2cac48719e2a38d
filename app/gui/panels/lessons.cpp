// Lessons: a step at a time, beside the panels that it talks about. Its numbers are those of the scenario of
// the moment; its questions show nothing before they are answered.
#include "app/gui/panels/lessons.h"

#include <imgui_internal.h>
#include <misc/cpp/imgui_stdlib.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <nlohmann/json.hpp>

#include "app/cli/executable.h"
#include "app/cli/flags.h"
#include "app/gui/panels/empty_state.h"
#include "app/gui/panels/lessons_figures.h"
#include "app/gui/widgets/chart.h"
#include "app/gui/widgets/fields.h"
#include "app/gui/widgets/legend.h"
#include "app/gui/widgets/parts.h"
#include "app/gui/widgets/text.h"
#include "runtime/formats/set_aside.h"
#include "sim/file_text.h"
#include "sim/foreign_text.h"
#include "sim/format.h"

namespace app::gui {
namespace {

using Context = ContextWith<LessonsState>;
using lesson::Span;

constexpr const char* kPanel = "lessons";
constexpr auto kBetweenLooks = std::chrono::seconds(1);
constexpr std::size_t kLettered = 6;  // choices that a letter chooses
constexpr float kTextWidth = 760, kLessonWidth = 420, kLargeType = 1.75f;
constexpr float kBetweenChoices = 24;
constexpr float kPlotOfScreen = .36f;  // no higher: its question stands below
constexpr float kHeadingLines = 2;     // that a table's heading may have before its column is as wide

LessonView make_view(const LessonRequest& request, lesson::Predictions& predictions,
                     const std::function<bool()>& stopped) {
  LessonView view;
  view.scenario = request.scenario ? *request.scenario : lesson::scenario_at(*request.lesson, request.step);
  predictions.forget_if_many();
  view.shown = lesson::show(*request.lesson, request.step, view.scenario, predictions, request.measured.get(),
                            stopped);
  return view;
}

// Words of several kinds, broken into lines as one text.
void draw_words(const Look& look, const lesson::ShownWords& words, TextRole role = TextRole::body) {
  const Palette& c = look.color();
  if (std::ranges::all_of(words, [](const auto& span) { return span.kind == Span::Kind::plain; }))
    return text_wrapped(look, role, c.text, lesson::plain(words));
  const float right = ImGui::GetCursorScreenPos().x + ImGui::GetContentRegionAvail().x;
  const float space = text_size_of(look, role, " ").x;
  bool first = true, gap = false;
  // Its lines stand as close as those of plain text.
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, {ImGui::GetStyle().ItemSpacing.x, look.px(1)});
  for (const lesson::ShownSpan& span : words) {
    const TextRole shown = span.kind == Span::Kind::bold   ? TextRole::title
                           : span.kind == Span::Kind::code ? TextRole::number
                                                           : role;
    const ImU32 color = span.kind == Span::Kind::value ? c.predicted : c.text;
    // A number stays with its unit.
    std::string_view rest = span.words;
    while (!rest.empty()) {
      if (rest.front() == ' ') {
        gap = true;
        rest.remove_prefix(1);
        continue;
      }
      const std::size_t end =
          span.kind == Span::Kind::value ? rest.size() : std::min(rest.find(' '), rest.size());
      const std::string word(rest.substr(0, end));
      rest.remove_prefix(end);
      const float before = gap ? space : 0;
      // From where the last word ended: its width was rounded.
      if (!first && ImGui::GetItemRectMax().x + before + text_size_of(look, shown, word).x <= right)
        ImGui::SameLine(0, before);
      text(look, shown, color, word);
      first = gap = false;
    }
  }
  ImGui::PopStyleVar();
}

std::string title_of(lesson::Tier tier) {
  std::string name(lesson::kTiers[static_cast<std::size_t>(tier)]);
  name.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(name.front())));
  return name;
}

class StepView {
 public:
  StepView(const Context& context, const Look& look, const lesson::Lesson& lesson, const LessonView& view)
      : context_(context),
        look_(look),
        c_(look.color()),
        state_(context.state),
        lesson_(lesson),
        view_(view) {}

  // What stands behind a question shows when that is answered.
  void blocks() {
    for (std::size_t i = 0; i < view_.shown.blocks.size() && !waits_; ++i) {
      block_ = i;
      ImGui::PushID(key().c_str());  // tables keep their widths: each place has its own
      std::visit(*this, view_.shown.blocks[i]);
      ImGui::PopID();
      ImGui::Dummy({0, look_.px(4)});
    }
    for (const std::string& failure : view_.shown.failures)
      text_wrapped(look_, TextRole::caption, c_.bad, failure);
  }
  bool waits_for_answer() const { return waits_; }

  void operator()(const lesson::ShownParagraph& p) {
    if (p.words.empty()) return;
    if (!p.bullet) return draw_words(look_, p.words);
    text(look_, TextRole::body, c_.dim, "\u2022");
    ImGui::SameLine(0, look_.px(8));
    ImGui::BeginGroup();
    draw_words(look_, p.words);
    ImGui::EndGroup();
  }

  void operator()(const lesson::ShownFormula& f) {
    ImGui::Indent(look_.px(14));
    text_wrapped(look_, TextRole::number, c_.dim, f.words);
    if (f.numbers != f.result) text_wrapped(look_, TextRole::number, c_.text, "= " + f.numbers);
    text_wrapped(look_, TextRole::title, c_.predicted, "= " + f.result);
    ImGui::Unindent(look_.px(14));
  }

  void operator()(const lesson::ShownQuestion& q) {
    if (state_.scroll.question == key()) state_.scroll.y = ImGui::GetCursorScreenPos().y;
    ImGui::BeginGroup();
    text(look_, TextRole::title, c_.warn, "?");
    ImGui::SameLine(0, look_.px(8));
    ImGui::BeginGroup();
    draw_words(look_, q.ask, TextRole::title);
    LessonAnswer& answer = state_.progress.answers[key()];
    q.choices.empty() ? typed(q, answer) : chosen(q, answer);
    waits_ = !answer.locked;
    if (waits_) state_.waiting = {key(), q.choices.size(), ImGui::GetFrameCount()};
    if (answer.locked) {
      const bool right = is_right(q, answer), revealed = answer.text.empty();
      text_wrapped(look_, TextRole::title,
                   right      ? c_.good
                   : revealed ? c_.predicted
                              : c_.bad,
                   (right ? "Right: " : "The answer is ") + q.answer_text);
      if (!q.because.empty()) draw_words(look_, q.because);
    }
    ImGui::EndGroup();
    ImGui::EndGroup();
  }

  void operator()(const lesson::ShownPlot& p) {
    double least = 0, most = 0, left = 0, right = 0;
    for (const auto& curve : p.curves)
      for (const auto& [x, y] : curve.points) {
        least = most == 0 ? y : std::min(least, y);
        most = std::max(most, y);
        left = left == 0 ? x : std::min(left, x);
        right = std::max(right, x);
      }
    if (!(most > 0) || right <= left)
      return text_wrapped(look_, TextRole::caption, c_.mute, "Nothing to plot here.");
    const bool wide = least > 0 && most > 20 * least;
    const ScaleUnit unit = scale_of(measure_of(p.dimension, p.style), most);
    const std::string label = p.quantity + (*unit.name ? std::string(", ") + unit.name : "");
    // Above it, in full: beside a low plot there is no room for it.
    text_wrapped(look_, TextRole::caption, c_.dim, label);
    std::vector<LegendEntry> curves;
    for (std::size_t i = 0; i < p.curves.size(); ++i)
      curves.push_back({curve_color(c_, i, p.curves.size()), p.curves[i].label});
    if (curves.size() > 1) draw_legend(look_, curves, ImGui::GetContentRegionAvail().x);
    Chart chart(look_, "##plot",
                {ImGui::GetContentRegionAvail().x,
                 std::min(look_.px(230), kPlotOfScreen * ImGui::GetMainViewport()->Size.y)},
                logarithmic_axis(p.over, left, right),
                wide ? logarithmic_axis("", least, most, unit) : linear_axis("", most, unit));
    if (!chart) return;
    for (std::size_t i = 0; i < p.curves.size(); ++i) {
      const ImU32 color = curve_color(c_, i, p.curves.size());
      std::vector<ChartPoint> line;
      for (const auto& [x, y] : p.curves[i].points) line.push_back({x, y});
      if (line.empty()) continue;
      chart.line(line, color, Stroke::dashed, 1.8f);
      for (const ChartPoint& point : line) chart.dot(point, color);
    }
  }

  void operator()(const lesson::ShownTable& t) {
    const int columns = static_cast<int>(t.columns.size());
    if (!ImGui::BeginTable("##table", columns,
                           ImGuiTableFlags_BordersInnerH | ImGuiTableFlags_SizingStretchProp))
      return;
    for (std::size_t i = 0; i < t.columns.size(); ++i) {
      float width = text_size_of(look_, TextRole::caption, t.columns[i]).x / kHeadingLines;
      for (const auto& cells : t.rows)
        width = std::max(width, text_size_of(look_, i == 0 ? TextRole::body : TextRole::number, cells[i]).x);
      ImGui::TableSetupColumn("", ImGuiTableColumnFlags_WidthStretch, width);
    }
    const auto row = [&](const std::vector<std::string>& cells, bool heading) {
      ImGui::TableNextRow();
      for (int i = 0; i < columns; ++i) {
        ImGui::TableSetColumnIndex(i);
        const std::string& cell = cells[static_cast<std::size_t>(i)];
        if (heading)
          text_wrapped(look_, TextRole::caption, c_.dim, cell);
        else
          text_wrapped(look_, i == 0 ? TextRole::body : TextRole::number, i == 0 ? c_.text : c_.predicted,
                       cell);
      }
    };
    row(t.columns, true);
    for (const auto& cells : t.rows) row(cells, false);
    ImGui::EndTable();
  }

  void operator()(const lesson::ShownMeasurement& m) {
    const StudyProgress& progress = state_.runs.progress();
    if (measure_button(progress)) {
      if (progress.running)
        state_.runs.cancel();
      else
        state_.runs.ask({state_.executable, lesson_.file, state_.step, context_.scenario});
    }
    if (!m.measured.empty()) {
      ImGui::SameLine(0, look_.px(10));
      text_fitted(look_, TextRole::caption, c_.dim, m.measured, ImGui::GetContentRegionAvail().x);
    }
    measured_so_far(progress);
    for (const std::string& why : m.why_not) text_wrapped(look_, TextRole::caption, c_.bad, as_sentence(why));
    if (ImGui::BeginTable("##measured", 4,
                          ImGuiTableFlags_BordersInnerH | ImGuiTableFlags_SizingStretchProp)) {
      ImGui::TableNextRow();
      for (const char* heading : {"", "predicted", "measured here", "measured / predicted"}) {
        ImGui::TableNextColumn();
        text_wrapped(look_, TextRole::caption, c_.dim, heading);
      }
      for (const auto& row : m.rows) {
        ImGui::TableNextRow();
        ImGui::TableNextColumn();
        text_wrapped(look_, TextRole::body, c_.text,
                     row.variant.empty() ? row.name : row.variant + " \u00B7 " + row.name);
        const auto cell = [&](ImU32 color, const std::string& words) {
          ImGui::TableNextColumn();
          text(look_, TextRole::number, color, words.empty() ? "\u2013" : words);
        };
        cell(c_.predicted, row.predicted);
        cell(c_.measured, row.measured);
        cell(c_.text, row.ratio > 0 ? significant(row.ratio) : "");
      }
      ImGui::EndTable();
    }
  }

  void operator()(const lesson::ShownFilm& f) {
    if (!f.film) return;
    FilmPlayer& player = state_.players[key()];
    if (context_.frozen) player = {.6, false};
    player.can_play = !context_.view.still;
    if (draw_film(look_, *f.film, player)) context_.view.moves = true;
  }

  void operator()(const lesson::ShownSeries& s) {
    const StudyProgress& progress = state_.growth.progress();
    if (state_.growth.result() && !progress.running && state_.growth.request().series == s.name)
      state_.keep(s.name, *state_.growth.result());
    const GrowthByName& measured = state_.progress.growth[s.name];
    if (measure_button(progress)) {
      if (progress.running)
        state_.growth.cancel();
      else
        state_.growth.ask({state_.executable, s.name});
    }
    measured_so_far(progress);
    for (const lesson::ShownSeries::Row& row : s.rows) {
      ImGui::Dummy({0, look_.px(2)});
      text_wrapped(look_, TextRole::title, c_.text, row.what);
      const auto found = measured.find(row.what);
      const SeriesGrowth growth = found == measured.end() ? SeriesGrowth{} : found->second;
      growth_table(row, growth);
      if (!row.why_apart.empty() && (growth.time_measured || row.time_predicted))
        text_wrapped(look_, TextRole::caption, c_.dim, row.why_apart);
    }
  }

  void operator()(const lesson::ShownGoal& g) {
    text(look_, TextRole::title, g.holds ? c_.good : c_.mute, g.holds ? "\u2713" : "\u25CB");
    ImGui::SameLine(0, look_.px(8));
    ImGui::BeginGroup();
    if (g.tier != lesson::Tier::bronze) {
      text(look_, TextRole::caption, c_.dim, title_of(g.tier));
    }
    draw_words(look_, g.words);
    text_wrapped(look_, TextRole::number, g.holds ? c_.good : c_.dim, g.numbers);
    ImGui::EndGroup();
  }

 private:
  bool measure_button(const StudyProgress& progress) {
    ImGui::BeginDisabled(state_.executable.empty());
    const bool pressed = primary_button(look_, progress.running ? "Stop" : "Measure it here",
                                        progress.running ? c_.bad : c_.measured);
    ImGui::EndDisabled();
    return pressed;
  }
  // How far it is, and what went wrong the last time.
  void measured_so_far(const StudyProgress& progress) {
    if (progress.running) {
      const float share =
          progress.of > 0 ? static_cast<float>(progress.done) / static_cast<float>(progress.of) : 0;
      ImGui::PushStyleColor(ImGuiCol_PlotHistogram, c_.measured);
      ImGui::ProgressBar(share, {ImGui::GetContentRegionAvail().x, look_.px(6)}, "");
      ImGui::PopStyleColor();
      text_wrapped(look_, TextRole::caption, c_.dim,
                   progress.part.empty() ? "Short runs, one after the other." : progress.part);
    }
    if (!progress.running && !progress.failure.empty())
      text_wrapped(look_, TextRole::caption, c_.bad, as_sentence(progress.failure));
  }

  void growth_table(const lesson::ShownSeries::Row& row, const SeriesGrowth& growth) {
    ImGui::PushID(row.what.c_str());
    if (ImGui::BeginTable("##growth", 4, ImGuiTableFlags_BordersInnerH | ImGuiTableFlags_SizingStretchSame)) {
      ImGui::TableNextRow();
      for (const char* heading : {"exponent of", "claimed", "predicted", "measured here"}) {
        ImGui::TableNextColumn();
        text(look_, TextRole::caption, c_.dim, heading);
      }
      const auto line = [&](const char* what, std::optional<double> claimed, std::optional<double> predicted,
                            std::optional<double> measured) {
        ImGui::TableNextRow();
        ImGui::TableNextColumn();
        text(look_, TextRole::body, c_.text, what);
        const std::pair<std::optional<double>, ImU32> cells[] = {
            {claimed, c_.text}, {predicted, c_.predicted}, {measured, c_.measured}};
        for (const auto& [exponent, color] : cells) {
          ImGui::TableNextColumn();
          text(look_, TextRole::number, exponent ? color : c_.mute,
               exponent ? power_text(*exponent) : "\u2013");
        }
      };
      line("time", row.time_claimed, growth.time_predicted ? growth.time_predicted : row.time_predicted,
           growth.time_measured);
      line("memory", row.memory_claimed,
           growth.memory_predicted ? growth.memory_predicted : row.memory_predicted, growth.memory_measured);
      ImGui::EndTable();
    }
    ImGui::PopID();
  }

  std::string key() const {
    return lesson_.id + "/" + std::to_string(state_.step) + "/" + std::to_string(block_);
  }

  void lock(LessonAnswer& answer) {
    answer.locked = true;
    save_lesson_progress(state_.progress, state_.settings);
  }

  // With the letter that chooses it in the room, and behind it what it comes to.
  std::string choice_text(const lesson::ShownQuestion& q, std::size_t i, bool locked) const {
    std::string words = lesson::plain(q.choices[i]);
    if (locked && q.values[i] != words) words += "   " + q.values[i];
    return state_.presented() ? std::string(1, static_cast<char>('A' + i)) + "  " + words : words;
  }
  // A screen in the room has few lines: choices that fit into one share it.
  bool choices_share_a_line(const lesson::ShownQuestion& q, bool locked) const {
    if (!state_.presented()) return false;
    const TextScope scope(look_, TextRole::body);
    float width = 0;
    for (std::size_t i = 0; i < q.choices.size(); ++i)
      width += text_size_of(look_, TextRole::body, choice_text(q, i, locked)).x + ImGui::GetFrameHeight() +
               look_.px(kBetweenChoices);
    return width <= ImGui::GetContentRegionAvail().x;
  }

  void chosen(const lesson::ShownQuestion& q, LessonAnswer& answer) {
    const bool beside = choices_share_a_line(q, answer.locked);
    for (std::size_t i = 0; i < q.choices.size(); ++i) {
      const std::string number = std::to_string(i);
      const bool picked = answer.text == number;
      const ImU32 color = !answer.locked ? picked ? c_.text : c_.dim
                          : q.right == i ? c_.good
                          : picked       ? c_.bad
                                         : c_.mute;
      ImGui::PushID(static_cast<int>(i));
      ImGui::PushStyleColor(ImGuiCol_Text, color);
      ImGui::PushStyleColor(ImGuiCol_CheckMark, color);
      ImGui::PushStyleColor(ImGuiCol_Border, color);
      ImGui::PushStyleVar(ImGuiStyleVar_FrameBorderSize, look_.px(1));
      ImGui::PushStyleVar(ImGuiStyleVar_FramePadding, {look_.px(4), look_.px(1)});
      {
        const TextScope scope(look_, TextRole::body);
        if (i > 0 && beside) ImGui::SameLine(0, look_.px(kBetweenChoices));
        if (ImGui::RadioButton(choice_text(q, i, answer.locked).c_str(), picked) && !answer.locked)
          answer.text = number;
      }
      ImGui::PopStyleVar(2);
      ImGui::PopStyleColor(3);
      ImGui::PopID();
    }
    if (answer.locked) return;
    ImGui::BeginDisabled(answer.text.empty());
    if (primary_button(look_, "Lock in", c_.predicted)) lock(answer);
    ImGui::EndDisabled();
  }

  void typed(const lesson::ShownQuestion& q, LessonAnswer& answer) {
    // No field any more, which would keep the keyboard: Enter that reveals also goes to what has the focus.
    if (answer.locked) {
      if (!answer.text.empty()) text(look_, TextRole::number, c_.dim, answer.text);
      return;
    }
    // In a narrow panel the button beside it stays whole.
    const ImGuiStyle& style = ImGui::GetStyle();
    const float button =
        text_size_of(look_, TextRole::body, "Lock in").x + 4 * style.FramePadding.x + style.ItemSpacing.x;
    ImGui::SetNextItemWidth(std::min(look_.px(160), ImGui::GetContentRegionAvail().x - button));
    const bool entered = ImGui::InputTextWithHint("##answer", hint(q).c_str(), &answer.text,
                                                  ImGuiInputTextFlags_EnterReturnsTrue);
    ImGui::SameLine();
    const bool pressed = primary_button(look_, "Lock in", c_.predicted);
    std::string problem;
    const bool understood = number_of(q, answer.text, problem).has_value();
    if ((entered || pressed) && understood) lock(answer);
    if (!understood && !answer.text.empty()) text_wrapped(look_, TextRole::caption, c_.warn, problem);
  }

  static std::string hint(const lesson::ShownQuestion& q) {
    const std::string unit = split_unit(q.answer_text).unit;
    return unit.empty() ? "a number" : "a number, in " + unit;
  }

  // What was typed, as an expression with its unit, or a number in the unit of the hint.
  std::optional<double> number_of(const lesson::ShownQuestion& q, const std::string& typed,
                                  std::string& problem) const {
    try {
      const lesson::Expression expression(typed);
      lesson::Predictions predictions;
      double number = expression.value({view_.scenario, predictions}).number;
      if (expression.dimension() == q.answer.dimension) {
        // "59" of a share that is shown in percent.
        if (split_unit(q.answer_text).unit == "%" && typed.find('%') == std::string::npos && number > 1)
          number /= 100;
        return number;
      }
      if (!expression.dimension().is_none()) {
        problem = "the answer is " + q.answer.dimension.name() + ", this is " + expression.dimension().name();
        return std::nullopt;
      }
      const lesson::Expression with_unit(typed + " " + split_unit(q.answer_text).unit);
      if (with_unit.dimension() == q.answer.dimension)
        return with_unit.value({view_.scenario, predictions}).number;
      return number;
    } catch (const std::exception& error) {
      problem = error.what();
      return std::nullopt;
    }
  }

  bool is_right(const lesson::ShownQuestion& q, const LessonAnswer& answer) const {
    if (q.right) return answer.text == std::to_string(*q.right);
    std::string problem;
    const auto number = number_of(q, answer.text, problem);
    return number && std::abs(*number - q.answer.number) <= q.tolerance * std::abs(q.answer.number);
  }

  const Context& context_;
  const Look& look_;
  const Palette& c_;
  LessonsState& state_;
  const lesson::Lesson& lesson_;
  const LessonView& view_;
  std::size_t block_ = 0;
  bool waits_ = false;
};

void draw_library(const Context& context) {
  const Look& look = context.look;
  const Palette& c = look.color();
  LessonsState& state = context.state;
  if (state.entries.empty())
    return draw_empty_state(
        context, "No lessons",
        "There are none in presets/lessons. A lesson is a file; its README says how to write one.");
  std::string chapter;
  for (std::size_t i = 0; i < state.entries.size(); ++i) {
    const LessonsState::Entry& entry = state.entries[i];
    ImGui::PushID(static_cast<int>(i));
    if (!entry.lesson) {
      text_wrapped(look, TextRole::caption, c.bad, entry.problem);
    } else {
      const lesson::Lesson& one = *entry.lesson;
      if (one.chapter != chapter) {
        ImGui::Dummy({0, look.px(6)});
        text(look, TextRole::title, c.text, chapter = one.chapter);
        if (one.mission) {
          const auto missions = std::ranges::count_if(
              state.entries, [](const auto& other) { return other.lesson && other.lesson->mission; });
          ImGui::SameLine(0, look.px(10));
          text(look, TextRole::caption, c.dim,
               "score " + std::to_string(score_of(state.progress)) + " of " +
                   std::to_string(missions * static_cast<std::int64_t>(lesson::kTiers.size())));
        }
      }
      const auto seen = state.progress.steps.find(one.id);
      const std::size_t steps =
          seen == state.progress.steps.end() ? 0 : std::min(seen->second, one.steps.size());
      const auto tier = state.progress.tiers.find(one.id);
      const bool is_done = one.mission ? tier != state.progress.tiers.end() : steps == one.steps.size();
      const std::string done =
          one.mission && is_done      ? std::string(lesson::kTiers[static_cast<std::size_t>(tier->second)])
          : one.mission || steps == 0 ? std::to_string(one.minutes) + " min"
          : steps == one.steps.size() ? "done"
                                      : std::to_string(steps) + " of " + std::to_string(one.steps.size());
      const ImVec2 begin = ImGui::GetCursorScreenPos();
      const float width = std::min(ImGui::GetContentRegionAvail().x, look.px(kTextWidth)),
                  height = look.px(30);
      if (pressable("open", {width, height})) state.open_lesson(i);
      ImDrawList* const list = ImGui::GetWindowDrawList();
      list->AddRectFilled(begin, {begin.x + width, begin.y + height - look.px(4)},
                          ImGui::IsItemHovered() ? c.raised : c.panel, look.px(6));
      const float middle = begin.y + (height - look.px(4)) / 2;
      const float room = width - look.px(40) - text_size_of(look, TextRole::number, done).x;
      draw_text(list, look, TextRole::body, {begin.x + look.px(10), middle}, c.text,
                fitted(look, TextRole::body, (one.mission ? "Mission: " : "") + one.title, room), {0, .5f});
      draw_text(list, look, TextRole::number, {begin.x + width - look.px(10), middle},
                is_done ? c.good : c.dim, done, {1, .5f});
    }
    ImGui::PopID();
  }
}

// Back to the list; where in the lesson; larger type; notes.
void draw_header(const Context& context, const Look& look, const lesson::Lesson& lesson) {
  const Palette& c = look.color();
  LessonsState& state = context.state;
  if (state.presented()) {  // keys walk: no place for buttons
    text_fitted(look, TextRole::caption, c.dim,
                std::to_string(state.step + 1) + " of " + std::to_string(lesson.steps.size()) + " \u00B7 " +
                    lesson.chapter + " \u00B7 " + lesson.title,
                ImGui::GetContentRegionAvail().x);
    return text_wrapped(look, TextRole::heading, c.text, lesson.steps[state.step].title);
  }
  if (ImGui::Button("\u2190 Lessons")) state.current.reset();
  ImGui::SameLine();
  if (ImGui::Button(state.large_type ? "Small type" : "Large type")) state.large_type = !state.large_type;
  if (!lesson.steps[state.step].notes.empty()) {
    ImGui::SameLine();
    if (ImGui::Button(state.notes ? "Hide notes" : "Notes")) state.notes = !state.notes;
  }
  ImGui::SameLine();
  if (ImGui::Button("Reset step")) state.reset_step();
  ImGui::Dummy({0, look.px(2)});
  text_wrapped(look, TextRole::caption, c.dim, lesson.chapter + " \u00B7 " + lesson.title);
  text_wrapped(look, TextRole::heading, c.text, lesson.steps[state.step].title);
  ImGui::Dummy({0, look.px(4)});
}

void draw_footer(const Context& context, const Look& look, const lesson::Lesson& lesson) {
  LessonsState& state = context.state;
  ImGui::BeginDisabled(!state.can_walk(-1));
  if (ImGui::Button("Back")) state.walk(-1);
  ImGui::EndDisabled();
  ImGui::SameLine();
  text(look, TextRole::number, look.color().dim,
       std::to_string(state.step + 1) + " of " + std::to_string(lesson.steps.size()));
  ImGui::SameLine();
  const bool last = !state.can_walk(1);
  if (primary_button(look, last ? "Done" : "Next", look.color().predicted)) {
    if (last)
      state.current.reset();
    else
      state.walk(1);
  }
}

// Whether the room sees what is shown there.
bool is_inside(const ImGuiPlatformMonitor& monitor, const ImGuiViewport& main) {
  const ImVec2 middle = {main.Pos.x + main.Size.x / 2, main.Pos.y + main.Size.y / 2};
  return middle.x >= monitor.MainPos.x && middle.x < monitor.MainPos.x + monitor.MainSize.x &&
         middle.y >= monitor.MainPos.y && middle.y < monitor.MainPos.y + monitor.MainSize.y;
}

// Apart from what the room reads: a window of its own, where the system gives one on the lecturer's screen,
// else above all others of this one.
void draw_notes(const Context& context, const LessonView& view) {
  const Look& look = context.look;
  const ImGuiViewport& main = *ImGui::GetMainViewport();
  ImVec2 corner = {main.Pos.x + main.Size.x - look.px(20), main.Pos.y + main.Size.y - look.px(60)};
  if (ImGui::GetIO().ConfigFlags & ImGuiConfigFlags_ViewportsEnable) {
    ImGuiWindowClass own;
    own.ViewportFlagsOverrideSet = ImGuiViewportFlags_NoAutoMerge;
    own.ViewportFlagsOverrideClear = ImGuiViewportFlags_NoDecoration;
    ImGui::SetNextWindowClass(&own);
    for (const ImGuiPlatformMonitor& monitor : ImGui::GetPlatformIO().Monitors)
      if (!is_inside(monitor, main))
        corner = {monitor.WorkPos.x + monitor.WorkSize.x - look.px(20),
                  monitor.WorkPos.y + monitor.WorkSize.y - look.px(60)};
  }
  ImGui::SetNextWindowSize({main.Size.x * .36f, 0}, ImGuiCond_Appearing);
  ImGui::SetNextWindowPos(corner, ImGuiCond_Appearing, {1, 1});
  ImGui::PushStyleColor(ImGuiCol_WindowBg, look.color().raised);
  if (ImGui::Begin("For the lecturer", &context.state.notes,
                   ImGuiWindowFlags_NoDocking | ImGuiWindowFlags_NoCollapse |
                       ImGuiWindowFlags_NoSavedSettings | ImGuiWindowFlags_NoFocusOnAppearing)) {
    for (const lesson::ShownParagraph& note : view.shown.notes) {
      draw_words(look, note.words);
      ImGui::Dummy({0, look.px(4)});
    }
    ImGui::BringWindowToDisplayFront(ImGui::GetCurrentWindow());
  }
  ImGui::End();
  ImGui::PopStyleColor();
}

// A lesson needs more room than what shares its place: once, as it is opened.
void widen(const Look& look) {
  ImGuiDockNode* const node = ImGui::GetCurrentWindow()->RootWindow->DockNode;
  const float width = look.px(kLessonWidth);
  if (node && node->Size.x < width && ImGui::GetMainViewport()->Size.x > 3 * width)
    ImGui::DockBuilderSetNodeSize(node->ID, {width, node->Size.y});
}

// The window that scrolls is the current one.
void scroll_as_asked(LessonsState& state) {
  LessonsState::Scroll& scroll = state.scroll;
  const float now = ImGui::GetScrollY();
  if (std::exchange(scroll.to_top, false)) ImGui::SetScrollY(0);
  if (const float screens = std::exchange(scroll.screens, 0.0f); screens != 0)
    ImGui::SetScrollY(now + screens * ImGui::GetWindowHeight());
  if (scroll.frames > 0) {
    --scroll.frames;
    ImGui::SetScrollY(std::max(0.0f, now + scroll.y - ImGui::GetWindowPos().y));
  }
}

void draw_step(const Context& context, const Look& look,
               const std::shared_ptr<const lesson::Lesson>& lesson) {
  LessonsState& state = context.state;
  const Palette& c = look.color();
  const lesson::Step& step = lesson->steps[state.step];
  state.take_runs();
  state.study.follow({lesson, state.step, state.entering ? std::nullopt : std::optional(context.scenario),
                      state.entering ? nullptr : state.measured_of(*lesson, state.step)});
  if (std::exchange(state.opening, false)) widen(context.look);
  draw_header(context, look, *lesson);
  const LessonView* const view = state.study.result();
  const bool is_of_step =
      view && state.study.request().lesson == lesson && state.study.request().step == state.step;
  if (state.entering && is_of_step && !state.study.request().scenario) {
    state.entering = false;
    if (!(view->scenario == context.scenario)) context.edit("lesson: " + step.title, view->scenario);
    // Maximised, the lesson stands alone.
    if (context.view.maximised.empty() && !step.panel.empty()) {
      context.invoke("panel." + step.panel);
      context.invoke("panel.lessons");
    }
  }
  const float footer = state.presented() ? 0 : ImGui::GetFrameHeightWithSpacing() + look.px(8);
  // Keys go to what is in it, not to the child as a whole.
  ImGui::BeginChild("step", {0, -footer}, ImGuiChildFlags_NavFlattened);
  ImGui::BeginChild("text",
                    {std::min(ImGui::GetContentRegionAvail().x - look.px(12), look.px(kTextWidth)), 0},
                    ImGuiChildFlags_AutoResizeY | ImGuiChildFlags_NavFlattened);
  if (!state.study.progress().failure.empty()) {
    text_wrapped(look, TextRole::body, c.bad, as_sentence(state.study.progress().failure));
  } else if (!is_of_step) {
    text(look, TextRole::caption, c.mute, "The numbers of this step are on their way.");
  } else {
    StepView shown(context, look, *lesson, *view);
    shown.blocks();
    if (const auto tier = lesson::tier_reached(view->shown)) {
      if (!state.entering) state.keep(*lesson, *tier);
      const bool all = std::ranges::none_of(view->shown.blocks, [](const lesson::ShownBlock& block) {
        const auto* const goal = std::get_if<lesson::ShownGoal>(&block);
        return goal && !goal->holds;
      });
      text_wrapped(
          look, TextRole::heading, c.good,
          title_of(*tier) + (all ? ": every goal is reached." : " is reached. There is a better one."));
    }
    const std::vector<lesson::ShownParagraph>& hints = view->shown.hints;
    for (std::size_t i = 0; i < std::min(state.hints_shown, hints.size()); ++i)
      text_wrapped(look, TextRole::body, c.dim, "Hint: " + lesson::plain(hints[i].words));
    if (state.hints_shown < hints.size() && ImGui::Button(state.hints_shown == 0 ? "A hint" : "Another hint"))
      ++state.hints_shown;
    if (!view->shown.take_home.empty() && !shown.waits_for_answer()) {
      ImGui::Dummy({0, look.px(4)});
      const ImVec2 begin = ImGui::GetCursorScreenPos();
      ImGui::Indent(look.px(12));
      draw_words(look, view->shown.take_home, TextRole::title);
      ImGui::Unindent(look.px(12));
      ImGui::GetWindowDrawList()->AddRectFilled(begin, {begin.x + look.px(3), ImGui::GetItemRectMax().y},
                                                c.predicted);
    }
  }
  ImGui::EndChild();
  scroll_as_asked(state);
  ImGui::EndChild();
  if (!state.presented()) draw_footer(context, look, *lesson);
  if (state.notes && is_of_step && !step.notes.empty()) draw_notes(context, *view);
}

// All that is drawn while it lives is this much larger.
class LargerType {
 public:
  explicit LargerType(float factor) : before_(ImGui::GetStyle().FontScaleMain) {
    ImGui::GetStyle().FontScaleMain = before_ * factor;
    ImGui::PushFont(nullptr, 0);
  }
  ~LargerType() {
    ImGui::PopFont();
    ImGui::GetStyle().FontScaleMain = before_;
  }

 private:
  float before_;
};

std::string caption(const PanelContext&) {
  return "";
}

void draw(const Context& context) {
  LessonsState& state = context.state;
  state.reload();
  if (context.view.maximised == kPanel) state.presented_in = ImGui::GetFrameCount();
  if (!state.current || *state.current >= state.entries.size()) return draw_library(context);
  const LessonsState::Entry& entry = state.entries[*state.current];
  if (!entry.lesson) {
    if (ImGui::Button("\u2190 Lessons")) state.current.reset();
    return text_wrapped(context.look, TextRole::body, context.look.color().bad, entry.problem);
  }
  state.step = std::min(state.step, entry.lesson->steps.size() - 1);
  const std::shared_ptr<const lesson::Lesson> lesson = entry.lesson;
  if (!state.large_type || state.presented()) return draw_step(context, context.look, lesson);
  Look large = context.look;
  large.scale *= kLargeType;
  const LargerType larger(kLargeType);
  draw_step(context, large, lesson);
}

constexpr const char* kProgressFile = "lessons.json";
constexpr const char* kNoProgress = "lessons begin at their first step";

}  // namespace

LessonProgress load_lesson_progress(const std::filesystem::path& directory) {
  LessonProgress progress;
  if (directory.empty()) return progress;
  const std::filesystem::path path = directory / kProgressFile;
  std::optional<std::string> content;
  try {
    content = sim::file_text(path);
  } catch (const std::exception& error) {  // a disk that fails, a file that does not end
    runtime::set_aside(path, error.what(), kNoProgress);
  }
  if (!content) return progress;
  const nlohmann::json file =
      sim::nested_too_deep(*content) ? nlohmann::json() : nlohmann::json::parse(*content, nullptr, false);
  if (!file.is_object()) {
    runtime::set_aside(path, path.string() + " must be a JSON object", kNoProgress);
    return progress;
  }
  if (const auto steps = file.find("steps"); steps != file.end() && steps->is_object())
    for (const auto& [id, seen] : steps->items())
      if (seen.is_number_unsigned()) progress.steps[id] = seen.get<std::size_t>();
  if (const auto tiers = file.find("missions"); tiers != file.end() && tiers->is_object())
    for (const auto& [id, tier] : tiers->items())
      if (const auto known =
              std::ranges::find(lesson::kTiers, tier.is_string() ? tier.get<std::string>() : "");
          known != lesson::kTiers.end())
        progress.tiers[id] = static_cast<lesson::Tier>(known - lesson::kTiers.begin());
  if (const auto growth = file.find("growth"); growth != file.end() && growth->is_object())
    for (const auto& [series, measured] : growth->items()) try {
        progress.growth[series] = growth_from_json(measured.dump());
      } catch (const std::exception&) {  // it can be measured again
      }
  if (const auto answers = file.find("answers"); answers != file.end() && answers->is_object())
    for (const auto& [id, text] : answers->items())
      if (text.is_string()) progress.answers[id] = {text.get<std::string>(), true};
  return progress;
}

void save_lesson_progress(const LessonProgress& progress, const std::filesystem::path& directory) {
  if (directory.empty()) return;
  nlohmann::json file = {{"steps", progress.steps}, {"answers", nlohmann::json::object()}};
  for (const auto& [id, tier] : progress.tiers)
    file["missions"][id] = lesson::kTiers[static_cast<std::size_t>(tier)];
  for (const auto& [series, measured] : progress.growth)
    if (!measured.empty()) file["growth"][series] = nlohmann::json::parse(growth_to_json(measured));
  for (const auto& [id, answer] : progress.answers)
    if (answer.locked) file["answers"][id] = answer.text;
  try {
    std::filesystem::create_directories(directory);
    cli::write_file((directory / kProgressFile).string(), file.dump(2));
  } catch (const std::exception&) {
    // A lesson goes on where nothing can be kept.
  }
}

LessonsState::LessonsState(const PanelTools& tools)
    : study(tools.studies.add<LessonRequest, LessonView>(
          [predictions = std::make_shared<lesson::Predictions>()](const LessonRequest& request,
                                                                  const auto& course) {
            return make_view(request, *predictions, [&course] { return course.stopped(); });
          })),
      growth(tools.studies.add<SeriesQuestion, GrowthByName>(
          [](const SeriesQuestion& question, const auto& course) {
            return measure_growth(question, course);
          })),
      runs(tools.studies.add<LessonRunQuestion, lesson::MeasuredRuns>(
          [](const LessonRunQuestion& question, const auto& course) {
            return measure_step(question, course);
          })),
      executable(cli::executable_path()),
      settings(tools.settings_directory),
      folders({lesson::lesson_directory()}),
      progress(load_lesson_progress(tools.settings_directory)) {
  const auto add = [&](const char* id, const char* label, int steps, ImGuiKey key, bool alone) {
    tools.commands.add(
        {.id = id,
         .category = "Lessons",
         .label = label,
         .run = [this, steps] { walk(steps); },
         .shortcut = key,
         // At the end of what is presented an arrow does nothing, rather than leave it.
         .enabled = [this, steps, alone] { return alone ? presented() && open_now() : can_walk(steps); },
         .in_menu = !alone});
  };
  add("lesson.next", "Next step of the lesson", 1, ImGuiKey_PageDown, false);
  add("lesson.back", "Step before", -1, ImGuiKey_PageUp, false);
  // As all that is presented is walked through, before the commands that go to another panel.
  add("lesson.present-next", "Next step of the lesson that is presented", 1, ImGuiKey_RightArrow, true);
  add("lesson.present-back", "Step before, of the lesson that is presented", -1, ImGuiKey_LeftArrow, true);
  // Presented, a question is answered by keys: letters choose, Enter locks what was chosen, or reveals.
  for (std::size_t i = 0; i < kLettered; ++i) {
    const std::string letter(1, static_cast<char>('A' + i));
    tools.commands.add({.id = "lesson.choose-" + letter,
                        .category = "Lessons",
                        .label = "Choose " + letter + " in the lesson that is presented",
                        .run =
                            [this, i] {
                              progress.answers[waiting.key].text = std::to_string(i);
                              scroll_to_question();
                            },
                        .shortcut = static_cast<ImGuiKey>(ImGuiKey_A + static_cast<int>(i)),
                        .enabled = [this, i] { return presented() && asks() && i < waiting.choices; },
                        .in_menu = false});
  }
  const auto add_scroll = [&](const char* id, const char* label, float screens, ImGuiKey key) {
    tools.commands.add({.id = id,
                        .category = "Lessons",
                        .label = label,
                        .run =
                            [this, screens] {
                              ImGui::NavMoveRequestCancel();  // the arrow is for the page alone
                              scroll = {.screens = screens};
                            },
                        .shortcut = key,
                        .enabled = [this] { return presented() && open_now(); },
                        .in_menu = false});
  };
  constexpr float kOfAScreen = .8f;
  add_scroll("lesson.down", "Further down the step that is presented", kOfAScreen, ImGuiKey_DownArrow);
  add_scroll("lesson.up", "Further up the step that is presented", -kOfAScreen, ImGuiKey_UpArrow);
  tools.commands.add({.id = "lesson.reveal",
                      .category = "Lessons",
                      .label = "Answer of the lesson that is presented",
                      .run =
                          [this] {
                            progress.answers[waiting.key].locked = true;
                            scroll_to_question();
                            save_lesson_progress(progress, settings);
                          },
                      .shortcut = ImGuiKey_Enter,
                      .enabled = [this] { return presented() && asks(); },
                      .in_menu = false});
  tools.commands.add({.id = "lesson.reset",
                      .category = "Lessons",
                      .label = "Reset the step: its scenario, its questions",
                      .run = [this] { reset_step(); },
                      .shortcut = ImGuiMod_Shift | ImGuiKey_R,
                      .enabled = [this] { return open_now() != nullptr; }});
  tools.commands.add(
      {.id = "lesson.open",
       .category = "Lessons",
       .label = "Open lesson",
       .run =
           [this, &commands = tools.commands] {
             current.reset();
             commands.invoke("panel.lessons");
           },
       .detail = [] { return std::string("the list, or a lesson's name behind it: complexity"); },
       .take =
           [this, &commands = tools.commands](const std::string& name) {
             if (open_named(name)) commands.invoke("panel.lessons");
           }});
  tools.commands.add({.id = "lesson.notes",
                      .category = "Lessons",
                      .label = "Notes for the lecturer",
                      .run = [this] { notes = !notes; },
                      .shortcut = ImGuiMod_Shift | ImGuiKey_N,
                      .enabled = [this] { return open_now() != nullptr; }});
}

bool LessonsState::can_walk(int steps) const {
  const lesson::Lesson* const now = open_now();
  if (!now) return false;
  const auto to = static_cast<std::int64_t>(step) + steps;
  if (to >= 0 && to < static_cast<std::int64_t>(now->steps.size())) return true;
  return presented() && neighbour(steps).has_value();
}

// The lesson beside this one in its chapter.
std::optional<std::size_t> LessonsState::neighbour(int direction) const {
  const auto beside = static_cast<std::int64_t>(*current) + (direction > 0 ? 1 : -1);
  if (beside < 0 || beside >= static_cast<std::int64_t>(entries.size())) return std::nullopt;
  const auto index = static_cast<std::size_t>(beside);
  const bool same = entries[index].lesson && entries[index].lesson->chapter == open_now()->chapter;
  return same ? std::optional(index) : std::nullopt;
}

void LessonsState::walk(int steps) {
  if (!can_walk(steps)) return;
  const auto to = static_cast<std::int64_t>(step) + steps;
  if (to >= 0 && to < static_cast<std::int64_t>(open_now()->steps.size()))
    return go_to(static_cast<std::size_t>(to));
  current = neighbour(steps);
  go_to(steps > 0 ? 0 : open_now()->steps.size() - 1);
}

void LessonsState::keep(const lesson::Lesson& mission, lesson::Tier tier) {
  const auto [known, is_new] = progress.tiers.try_emplace(mission.id, tier);
  if (!is_new && known->second >= tier) return;
  known->second = tier;
  save_lesson_progress(progress, settings);
}

void LessonsState::keep(const std::string& series, const GrowthByName& growths) {
  GrowthByName& known = progress.growth[series];
  if (known == growths || growths.empty()) return;
  known = growths;
  save_lesson_progress(progress, settings);
}

std::string LessonsState::place_of(const std::string& lesson, std::size_t at) {
  return lesson + "/" + std::to_string(at);
}

void LessonsState::take_runs() {
  const lesson::MeasuredRuns* const found = runs.result();
  if (!found || found == taken_runs) return;
  taken_runs = found;
  if (found->empty()) return;
  const std::string id = runs.request().file.stem().string();
  const std::size_t at = runs.request().step;
  measured[place_of(id, at)] = std::make_shared<const lesson::MeasuredRuns>(*found);
  if (!runs.progress().running) keep_runs(*found, runs_folder(), id, at);
}

std::shared_ptr<const lesson::MeasuredRuns> LessonsState::measured_of(const lesson::Lesson& lesson,
                                                                      std::size_t at) {
  if (!lesson::measurement_of(lesson.steps[at])) return nullptr;
  auto& known = measured[place_of(lesson.id, at)];
  if (!known) known = std::make_shared<const lesson::MeasuredRuns>(kept_runs(runs_folder(), lesson.id, at));
  return known;
}

int score_of(const LessonProgress& progress) {
  int score = 0;
  for (const auto& [id, tier] : progress.tiers) score += static_cast<int>(tier) + 1;
  return score;
}

void LessonsState::reload() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_look) return;
  next_look = now + kBetweenLooks;
  std::vector<std::filesystem::path> files = lesson::lesson_files(folders);
  files.insert(files.end(), opened.begin(), opened.end());
  const std::filesystem::path shown = current && *current < entries.size() ? entries[*current].file : "";
  std::vector<Entry> fresh;
  for (const std::filesystem::path& file : files) {
    std::error_code error;
    const auto written = std::filesystem::last_write_time(file, error);
    const auto known = std::ranges::find(entries, file, &Entry::file);
    if (known != entries.end() && known->written == written) {
      fresh.push_back(*known);
      continue;
    }
    Entry entry{file, written, nullptr, {}};
    try {
      entry.lesson = std::make_shared<const lesson::Lesson>(lesson::load_lesson(file));
    } catch (const std::exception& problem) {
      entry.problem = problem.what();
    }
    fresh.push_back(std::move(entry));
  }
  std::ranges::stable_sort(fresh, {},
                           [](const Entry& e) { return e.lesson ? e.lesson->chapter : std::string(); });
  entries = std::move(fresh);
  if (!shown.empty()) {
    const auto again = std::ranges::find(entries, shown, &Entry::file);
    if (again == entries.end())
      current.reset();
    else
      current = static_cast<std::size_t>(again - entries.begin());
  }
}

bool LessonsState::open_named(std::string_view id) {
  next_look = {};
  reload();
  const auto entry =
      std::ranges::find_if(entries, [&](const Entry& e) { return e.lesson && e.lesson->id == id; });
  if (entry == entries.end()) return false;
  open_lesson(static_cast<std::size_t>(entry - entries.begin()));
  return true;
}

void LessonsState::add_folder(const std::filesystem::path& folder) {
  folders.push_back(folder);
  next_look = {};
}

const lesson::Lesson* LessonsState::open_now() const {
  return current && *current < entries.size() ? entries[*current].lesson.get() : nullptr;
}

void LessonsState::open_lesson(std::size_t index) {
  current = index;
  opening = true;
  const auto seen = progress.steps.find(entries[index].lesson->id);
  const std::size_t steps = entries[index].lesson->steps.size();
  go_to(seen == progress.steps.end() || seen->second >= steps ? 0
                                                              : seen->second - (seen->second > 0 ? 1 : 0));
}

void LessonsState::go_to(std::size_t to) {
  step = to;
  entering = true;
  hints_shown = 0;
  scroll = {.to_top = true};
  std::size_t& seen = progress.steps[entries[*current].lesson->id];
  seen = std::max(seen, to + 1);
  save_lesson_progress(progress, settings);
}

void LessonsState::reset_step() {
  const std::string place = place_of(open_now()->id, step) + "/";
  std::erase_if(progress.answers, [&](const auto& answer) { return answer.first.starts_with(place); });
  std::erase_if(players, [&](const auto& player) { return player.first.starts_with(place); });
  hints_shown = 0;
  entering = true;
  save_lesson_progress(progress, settings);
}

bool LessonsState::open(const std::filesystem::path& file) {
  if (file.extension() != ".md") return false;
  if (std::ranges::find(opened, file) == opened.end()) opened.push_back(file);
  next_look = {};
  reload();
  const auto entry = std::ranges::find(entries, file, &Entry::file);
  if (entry == entries.end()) return false;
  current = static_cast<std::size_t>(entry - entries.begin());
  opening = true;
  if (entry->lesson) go_to(0);
  return true;
}

extern const PanelEntry lessons_panel = {kPanel,
                                         "Lessons",
                                         "a step at a time: ask, predict, measure",
                                         Dock::right,
                                         panel_of<LessonsState, caption, draw>,
                                         false,
                                         false};

}  // namespace app::gui
