#include "app/gui/panels/lessons_step.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <span>

#include "app/gui/panels/empty_state.h"
#include "app/gui/panels/lessons_figures.h"
#include "app/gui/panels/lessons_question.h"
#include "app/gui/panels/lessons_words.h"
#include "app/gui/widgets/chart.h"
#include "app/gui/widgets/fields.h"
#include "app/gui/widgets/legend.h"
#include "app/gui/widgets/numbers.h"
#include "app/gui/widgets/text.h"

namespace app::gui {
namespace {

using Context = ContextWith<LessonsState>;

constexpr float kPlotOfScreen = .36f;  // no higher: its question stands below
constexpr float kHeadingLines = 2;     // that a table's heading may have before its column is as wide

class StepBlocks {
 public:
  StepBlocks(const Context& context, const Look& look, const lesson::Lesson& lesson, const LessonView& view)
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
    if (!f.numbers.empty()) text_wrapped(look_, TextRole::number, c_.text, "= " + f.numbers);
    text_wrapped(look_, TextRole::title, c_.predicted, "= " + f.result);
    ImGui::Unindent(look_.px(14));
  }

  void operator()(const lesson::ShownQuestion& q) {
    if (state_.scroll.question == key()) state_.scroll.y = ImGui::GetCursorScreenPos().y;
    LessonAnswer& answer = state_.progress.answers[key()];
    if (draw_question(look_, q, view_.scenario, state_.presented(), answer))
      save_lesson_progress(state_.progress, state_.settings);
    waits_ = !answer.locked;
    if (waits_) state_.waiting = {key(), q.choices.size(), ImGui::GetFrameCount()};
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
    const bool says_unit = *unit.name == '\0' || p.quantity == unit.name;  // "tokens/s"
    const std::string label =
        p.quantity + (says_unit ? "" : std::string(", ") + unit.name) + (p.by.empty() ? "" : ", by " + p.by);
    std::vector<LegendEntry> curves;
    for (std::size_t i = 0; i < p.curves.size(); ++i)
      curves.push_back({curve_color(c_, p, i), p.curves[i].label});
    plot_heading(label, curves);
    Chart chart(look_, "##plot",
                {ImGui::GetContentRegionAvail().x,
                 std::min(look_.px(230), kPlotOfScreen * ImGui::GetMainViewport()->Size.y)},
                p.measured ? near_axis(p.over, left, right) : logarithmic_axis(p.over, left, right),
                p.measured ? near_axis("", least, most, unit)
                : wide     ? logarithmic_axis("", least, most, unit)
                           : linear_axis("", most, unit));
    if (!chart) return;
    for (std::size_t i = 0; i < p.curves.size(); ++i) {
      const ImU32 color = curve_color(c_, p, i);
      std::vector<ChartPoint> line;
      for (const auto& [x, y] : p.curves[i].points) line.push_back({x, y});
      if (line.empty()) continue;
      chart.line(line, color, p.measured ? Stroke::solid : Stroke::dashed, 1.8f);
      if (p.measured) continue;
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
      for (const char* heading : {m.by.c_str(), "predicted", "measured here", "measured / predicted"}) {
        ImGui::TableNextColumn();
        text_wrapped(look_, TextRole::caption, c_.dim, heading);
      }
      for (const auto& row : m.rows) {
        ImGui::TableNextRow();
        ImGui::TableNextColumn();
        text_wrapped(look_, TextRole::body, c_.text, row.what());
        const auto cell = [&](ImU32 color, const std::string& words) {
          ImGui::TableNextColumn();
          text(look_, TextRole::number, words.empty() ? c_.mute : color, words.empty() ? "\u2013" : words);
        };
        cell(c_.predicted, row.predicted);
        cell(c_.measured, row.measured);
        cell(c_.text, row.ratio > 0 ? significant(row.ratio) : "");
      }
      ImGui::EndTable();
    }
    if (m.losses) (*this)(*m.losses);
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
  // Above the plot, in full: beside a low one there is no room for it. Curves are named behind it where they
  // fit.
  void plot_heading(const std::string& label, std::span<const LegendEntry> curves) {
    const float room = ImGui::GetContentRegionAvail().x, gap = look_.px(20);
    const float left = room - text_size_of(look_, TextRole::caption, label).x - gap;
    text_wrapped(look_, TextRole::caption, c_.dim, label);
    if (curves.size() < 2) return;
    const bool beside =
        left > 0 && legend_height(look_, curves, left) == legend_height(look_, curves, FLT_MAX);
    if (beside) {
      ImGui::SameLine(0, gap);
      const float lower = (legend_height(look_, curves, FLT_MAX) - ImGui::GetItemRectSize().y) / 2;
      ImGui::SetCursorPosY(ImGui::GetCursorPosY() - lower);
    }
    draw_legend(look_, curves, beside ? left : room);
  }

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

  const Context& context_;
  const Look& look_;
  const Palette& c_;
  LessonsState& state_;
  const lesson::Lesson& lesson_;
  const LessonView& view_;
  std::size_t block_ = 0;
  bool waits_ = false;
};

}  // namespace

bool draw_blocks(const Context& context, const Look& look, const lesson::Lesson& lesson,
                 const LessonView& view) {
  StepBlocks step(context, look, lesson, view);
  step.blocks();
  return step.waits_for_answer();
}

}  // namespace app::gui
