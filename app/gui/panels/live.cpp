// The same quantities measured: a run on this machine as it streams in, beside what was predicted for it.
#include <imgui.h>
#include <misc/cpp/imgui_stdlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "app/gui/panels/empty_state.h"
#include "app/gui/panels/panels.h"
#include "app/gui/start_menu.h"
#include "app/gui/widgets/chart.h"
#include "app/gui/widgets/fields.h"
#include "app/gui/widgets/legend.h"
#include "app/gui/widgets/numbers.h"
#include "app/gui/widgets/plot.h"
#include "app/gui/widgets/text.h"
#include "app/gui/widgets/tile.h"
#include "sim/format.h"
#include "sim/report/metrics.h"

namespace app::gui {
namespace {

struct Expected {
  double value = 0, low = 0, high = 0;
};

// A stream plotted over steps or tokens, with what was predicted for it.
void draw_stream(const PanelContext& context, const char* title, const Series& series, const RunView& run,
                 const Expected* expected, bool from_zero, ImVec2 size, std::string (*read_out)(double),
                 std::string (*tick)(double) = tick_label) {
  const Look& look = context.look;
  const Palette& c = look.color();
  ImGui::BeginGroup();
  const ImVec2 begin = ImGui::GetCursorScreenPos();
  const float heading = text_size_of(look, TextRole::caption, "x").y + look.px(2);
  ImDrawList* window = ImGui::GetWindowDrawList();
  draw_text(window, look, TextRole::caption, begin, c.dim, title);
  float right = begin.x + size.x;
  if (series.size() > 0) {
    const std::string words = read_out(series.last().y);
    draw_text(window, look, TextRole::number, {right, begin.y}, c.measured, words, {1, 0});
    right -= text_size_of(look, TextRole::number, words).x + look.px(12);
  }
  if (expected) {
    const std::string words = read_out(expected->value);
    const float width = text_size_of(look, TextRole::number, words).x;
    const float title_end = begin.x + text_size_of(look, TextRole::caption, title).x + look.px(10);
    if (right - width > title_end)
      draw_text(window, look, TextRole::number, {right, begin.y}, c.predicted, words, {1, 0});
  }
  ImGui::Dummy({size.x, heading});
  ImGui::PushID(title);
  const TextScope axes(look, TextRole::caption);
  if (ImPlot::BeginPlot("##stream", {size.x, size.y - heading - ImGui::GetStyle().ItemSpacing.y},
                        ImPlotFlags_CanvasOnly | ImPlotFlags_NoFrame)) {
    // While it runs the whole plan is in view; what was interrupted is drawn as far as it came.
    const double planned = run.active() ? static_cast<double>(run.planned) : 0;
    const double end = std::max({1.0, planned, series.last().x});
    const bool empty = series.size() == 0 && !expected;
    double low = series.least(), high = series.greatest();
    if (expected) {
      low = series.size() ? std::min(low, expected->low) : expected->low;
      high = series.size() ? std::max(high, expected->high) : expected->high;
    }
    if (from_zero) low = 0;
    const double margin = high > low ? (high - low) * 0.1 : std::max(std::abs(high) * 0.1, 1e-9);
    const char* over = run.task == sim::Task::train ? "step" : "token";
    ImPlot::SetupAxes(size.y > look.px(150) ? over : nullptr, nullptr, ImPlotAxisFlags_NoHighlight,
                      ImPlotAxisFlags_NoHighlight | (empty ? ImPlotAxisFlags_NoTickLabels : 0));
    const auto ticks = [](double value, char* buffer, int length, void* write) {
      return std::snprintf(buffer, static_cast<std::size_t>(length), "%s",
                           (*static_cast<std::string (**)(double)>(write))(value).c_str());
    };
    label_axis(ImAxis_X1);
    ImPlot::SetupAxisFormat(ImAxis_Y1, ticks, &tick);
    const double first = run.planned > 1 ? 1 : 0;
    const double last = std::max(first + 1, end);
    const double bottom = from_zero ? 0 : low - margin, top = high + margin;
    ImPlot::SetupAxesLimits(first, last, bottom, top, ImPlotCond_Always);
    // Steps and tokens are whole.
    round_axis(ImAxis_X1, first, last,
               std::min(static_cast<int>(last - first), static_cast<int>(size.x / look.px(70))));
    round_axis(ImAxis_Y1, bottom, top, std::max(2, static_cast<int>(size.y / look.px(40))));
    if (expected) plot_predicted(look, expected->value, expected->low, expected->high);
    plot_measured(look, "measured", series);
    ImPlot::EndPlot();
  }
  ImGui::PopID();
  ImGui::EndGroup();
}

std::string loss_text(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.3f nats", value);
  return buffer;
}
std::string norm_text(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.3g", value);
  return buffer;
}
std::string percent_tick(double value) {
  return tick_label(value * 100) + " %";
}
std::string share_text(double value) {
  return sim::format_percent(value);
}

Expected expected_rate(const sim::Report& predicted) {
  const double rate = sim::tokens_per_second(predicted);
  Expected expected{rate, rate, rate};
  const double step = sim::step_time(predicted).value;
  if (predicted.step_low.value > 0 && predicted.step_high.value > 0)
    expected = {rate, rate * step / predicted.step_high.value, rate * step / predicted.step_low.value};
  return expected;
}

// Categories whose part of a bar is wide enough to be seen, the largest first.
std::vector<LegendEntry> legend_of(const Palette& c, const std::array<double, kMemoryCategories>& bytes,
                                   double greatest) {
  constexpr double kSeen = 0.01;
  std::vector<int> shown;
  for (int category = 0; category < kMemoryCategories; ++category)
    if (bytes[static_cast<std::size_t>(category)] > kSeen * greatest) shown.push_back(category);
  std::stable_sort(shown.begin(), shown.end(), [&](int a, int b) {
    return bytes[static_cast<std::size_t>(a)] > bytes[static_cast<std::size_t>(b)];
  });
  std::vector<LegendEntry> legend;
  for (const int category : shown)
    legend.push_back({c.memory[static_cast<std::size_t>(category)], memory_category_title(category)});
  return legend;
}

// Memory of the run over a step, measured against predicted: bars, since a run reports it once.
void draw_memory_check(const PanelContext& context, const RunView& run, ImVec2 size) {
  const Look& look = context.look;
  const Palette& c = look.color();
  const ImVec2 begin = ImGui::GetCursorScreenPos();
  ImDrawList* list = ImGui::GetWindowDrawList();
  constexpr const char* kTitle = "memory at the peak";
  struct Line {
    const sim::Report* report;
    ImU32 color;
  };
  const std::array<Line, 2> lines = {{{run.predicted.get(), c.predicted}, {run.measured.get(), c.measured}}};
  double greatest = 1;
  std::array<double, kMemoryCategories> most{};
  for (const Line& line : lines) {
    if (!line.report) continue;
    greatest = std::max(greatest, static_cast<double>(sim::peak_memory(*line.report).value));
    for (const sim::MemoryLine& entry : sim::peak_ledger(*line.report))
      if (const int category = memory_category(entry.category); category >= 0) {
        double& known = most[static_cast<std::size_t>(category)];
        known = std::max(known, static_cast<double>(entry.bytes.value));
      }
  }
  const ScaleUnit unit = byte_unit(greatest);
  const float number = text_size_of(look, TextRole::number, "000.0 MiB").x + look.px(10);
  const float caption = text_size_of(look, TextRole::caption, "x").y;
  float y = begin.y + caption + look.px(8);
  // What the colours mean: below the bars, or where the height is short beside the title, the largest first.
  std::vector<LegendEntry> legend = legend_of(c, most, greatest);
  const float below = legend_height(look, legend, size.x);
  const float least_bars = 2 * (look.px(14) + look.px(8));
  const bool is_below = size.y >= y - begin.y + least_bars + below;
  const float beside = size.x - text_size_of(look, TextRole::caption, kTitle).x - look.px(14);
  const auto fits_beside = [&] {
    const float widest = text_size_of(look, TextRole::caption, legend.back().words).x + look.px(16);
    return widest <= beside && legend_height(look, legend, beside) < 1.9f * caption;
  };
  while (!is_below && !legend.empty() && !fits_beside()) legend.pop_back();
  const float thickness =
      std::min(look.px(22), (size.y - (y - begin.y) - (is_below ? below : 0)) / 2 - look.px(8));
  if (thickness < look.px(5)) return ImGui::Dummy(size);
  draw_text(list, look, TextRole::caption, begin, c.dim, kTitle);
  for (const Line& line : lines) {
    if (!line.report || line.report->memory.empty()) continue;
    std::vector<BarPart> parts;
    double sum = 0;
    for (const sim::MemoryLine& entry : sim::peak_ledger(*line.report)) {
      const int category = memory_category(entry.category);
      if (category < 0) continue;
      parts.push_back({static_cast<double>(entry.bytes.value), c.memory[static_cast<std::size_t>(category)]});
      sum += parts.back().value;
    }
    const float width = (size.x - number) * static_cast<float>(sum / greatest);
    draw_bar(list, look, {begin.x, std::floor(y)}, {begin.x + width, std::floor(y + thickness)}, parts, 0);
    draw_text(list, look, TextRole::number, {begin.x + width + look.px(8), y + thickness / 2}, line.color,
              unit.text(sum), {0, 0.5f});
    y += thickness + look.px(8);
  }
  if (!legend.empty()) {
    ImGui::SetCursorScreenPos(is_below ? ImVec2{begin.x, y}
                                       : ImVec2{begin.x + size.x - beside, begin.y - look.px(2)});
    draw_legend(look, legend, is_below ? size.x : beside);
  }
  ImGui::SetCursorScreenPos(begin);
  ImGui::Dummy(size);
}

void draw_controls(const PanelContext& context, const RunView& run) {
  const Look& look = context.look;
  const Palette& c = look.color();
  const bool train = context.scenario.workload.task == sim::Task::train;
  const bool active = context.runs.active();
  static constexpr std::array<std::string_view, 2> tasks = {"Train", "Generate"};
  const auto current = static_cast<std::size_t>(context.scenario.workload.task);
  if (const auto chosen = segmented(look, "task", current, tasks)) {
    sim::Scenario next = context.scenario;
    next.workload.task = static_cast<sim::Task>(*chosen);
    context.edit("task " + std::string(tasks[current]) + " \u2192 " + std::string(tasks[*chosen]), next);
  }
  ImGui::SameLine();
  const bool refused = !active && context.outlook && !context.outlook->refusal.empty();
  ImGui::BeginDisabled(refused);
  if (primary_button(look, active ? "Stop" : "Start", active ? c.bad : c.good, {look.px(64), 0}))
    context.invoke(active ? "run.stop" : "run.start");
  ImGui::EndDisabled();
  ImGui::SameLine();
  if (active) {
    const float width = ImGui::GetContentRegionAvail().x;
    const ImVec2 least = ImGui::GetCursorScreenPos();
    const float height = ImGui::GetFrameHeight();
    const float share =
        run.planned > 0 ? static_cast<float>(run.done) / static_cast<float>(run.planned) : 0.0f;
    std::string words = run.phase == RunPhase::stopping   ? std::string("stopping")
                        : !run.activity.empty()           ? run.activity
                        : run.phase == RunPhase::starting ? std::string("starting")
                                                          : std::string(train ? "step" : "token");
    if (run.planned > 0)
      words.append(" ")
          .append(sim::format_count(run.done))
          .append(" of ")
          .append(sim::format_count(run.planned));
    if (run.left.value > 0 && run.phase == RunPhase::running)
      words.append(", ").append(sim::format(run.left)).append(" left");
    ImDrawList* list = ImGui::GetWindowDrawList();
    const float line = std::floor(look.px(4));
    const float bottom = least.y + height;
    draw_text(list, look, TextRole::caption, {least.x, least.y + look.px(2)}, c.measured,
              fitted(look, TextRole::caption, words, width));
    list->AddRectFilled({least.x, bottom - line}, {least.x + width, bottom}, c.grid, line / 2);
    list->AddRectFilled({least.x, bottom - line}, {least.x + width * share, bottom}, c.measured, line / 2);
    ImGui::Dummy({width, height});
    return;
  }
  const float place_width = std::min(look.px(170), std::floor(ImGui::GetContentRegionAvail().x * 0.45f));
  draw_place_picker(context, place_width);
  ImGui::SameLine();
  if (train) {
    ImGui::AlignTextToFramePadding();
    text(look, TextRole::body, c.dim, "steps");
    ImGui::SameLine();
    ImGui::SetNextItemWidth(look.px(90));
    std::string typed = sim::format_count(context.runs.choices.steps);
    ImGui::InputText("##steps", &typed, ImGuiInputTextFlags_AutoSelectAll);
    std::int64_t steps = 0;
    if (ImGui::IsItemDeactivatedAfterEdit() && sim::parse_count(typed, steps) && steps > 0)
      context.runs.choices.steps = steps;
    if (context.outlook && context.outlook->expected) {
      ImGui::SameLine();
      text_fitted(look, TextRole::caption, c.predicted, "about " + sim::format(*context.outlook->expected),
                  ImGui::GetContentRegionAvail().x);
    }
  } else {
    ImGui::SetNextItemWidth(-FLT_MIN);
    ImGui::InputTextWithHint("##prompt", "Prompt", &context.runs.choices.prompt);
  }
}

// Why Start cannot be pressed, and the nearest that can.
void draw_outlook(const PanelContext& context) {
  if (!context.outlook || context.outlook->refusal.empty()) return;
  const Look& look = context.look;
  text_wrapped(look, TextRole::body, look.color().bad, context.outlook->refusal);
  const std::optional<sim::Scenario>& nearest = context.outlook->nearest;
  if (!nearest) return;
  const std::string words = "Take " + nearest->model.name + ", which runs here";
  if (primary_button(look, words.c_str(), look.color().predicted)) context.edit(words, *nearest);
}

// Lines of text in a room of their own.
void draw_lines(const Look& look, const char* id, TextRole role, ImVec2 size,
                const std::function<void()>& lines) {
  ImGui::BeginChild(id, {size.x, whole_lines(look, role, size.y)});
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, ImVec2(ImGui::GetStyle().ItemSpacing.x, 0));
  lines();
  ImGui::PopStyleVar();
  ImGui::EndChild();
}

void draw_log(const PanelContext& context, const RunView& run, ImVec2 size) {
  const Look& look = context.look;
  const Palette& c = look.color();
  draw_lines(look, "log", TextRole::caption, size, [&] {
    for (const LogLine& line : run.log) {
      const ImU32 color = line.kind == LogLine::Kind::bad    ? c.bad
                          : line.kind == LogLine::Kind::good ? c.good
                                                             : c.dim;
      text_wrapped(look, TextRole::caption, color, line.text);
    }
    // Unless the user has scrolled back.
    if (ImGui::GetScrollY() >= ImGui::GetScrollMaxY()) ImGui::SetScrollHereY(1);
  });
}

// What the driver says of the device while it runs: one quantity over the run's time.
void draw_samples(const PanelContext& context, const char* title,
                  const std::vector<sim::DeviceSample>& samples, double sim::DeviceSample::*value,
                  const char* unit, double limit, ImVec2 size) {
  const Look& look = context.look;
  const Palette& c = look.color();
  Series series;
  for (const sim::DeviceSample& sample : samples) series.append(sample.time.value, sample.*value);
  ImGui::BeginGroup();
  const ImVec2 begin = ImGui::GetCursorScreenPos();
  const float heading = text_size_of(look, TextRole::caption, "x").y + look.px(2);
  ImDrawList* list = ImGui::GetWindowDrawList();
  const std::string now = sim::format_count(std::llround(series.last().y)) + " " + unit;
  draw_text(list, look, TextRole::number, {begin.x + size.x, begin.y}, c.measured, now, {1, 0});
  const std::string& throttle = samples.back().throttle;
  draw_text(list, look, TextRole::caption, begin, throttle.empty() ? c.dim : c.warn,
            fitted(look, TextRole::caption,
                   title + (throttle.empty() ? std::string() : ", held back by " + throttle),
                   size.x - text_size_of(look, TextRole::number, now).x - look.px(10)));
  ImGui::Dummy({size.x, heading});
  const ScaleUnit time = time_unit(series.last().x);
  ChartAxis x = linear_axis(std::string("run, ") + time.name, series.last().x, time);
  Chart chart(look, title, {size.x, size.y - heading - ImGui::GetStyle().ItemSpacing.y}, x,
              linear_axis(unit, std::max(series.greatest(), limit)));
  if (chart) {
    std::vector<ChartPoint> line;
    for (const auto& point : series.points()) line.push_back({point.x, point.y});
    chart.line(line, c.measured);
    if (limit > 0) chart.horizontal(limit, c.dim, "rated", Stroke::dashed);
  }
  ImGui::EndGroup();
}

// Power and clock, where the machine tells them and there is room for them.
void draw_device(const PanelContext& context, const RunView& run) {
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const bool tells = run.measured && run.measured->device_samples.size() > 1;
  if (!tells || room.y < context.look.px(330)) return;
  const ImVec2 size = {room.x, std::floor(room.y * 0.28f)};
  const std::vector<sim::DeviceSample>& samples = run.measured->device_samples;
  const float gap = context.look.px(14), half = std::floor((size.x - gap) / 2);
  draw_samples(context, "power", samples, &sim::DeviceSample::power_w, "W",
               run.measured->source.scenario.hardware.power_w, {half, size.y});
  ImGui::SameLine(0, gap);
  draw_samples(context, "clock", samples, &sim::DeviceSample::sm_clock_mhz, "MHz", 0, {half, size.y});
}

// The gradient's norm, and beside it the noise scale where that is measured.
void draw_gradient(const PanelContext& context, const RunView& run, ImVec2 size) {
  const float gap = context.look.px(14);
  const bool has_noise = run.noise_scale.size() > 0;
  const ImVec2 each = {has_noise ? std::floor((size.x - gap) / 2) : size.x, size.y};
  draw_stream(context, has_noise ? "gradient norm" : "gradient norm, before clipping", run.gradient_norm, run,
              nullptr, true, each, norm_text);
  if (!has_noise) return;
  ImGui::SameLine(0, gap);
  draw_stream(context, "noise scale, sequences", run.noise_scale, run, nullptr, true, each, norm_text);
}

void draw_training(const PanelContext& context, const RunView& run) {
  const Look& look = context.look;
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const float gap = look.px(14);
  const bool wide = room.x > look.px(430);
  const float left = std::floor((room.x - gap) / 2);
  const ImVec2 cell = {wide ? left : room.x, std::floor(room.y / 2)};
  Expected rate, mfu;
  const bool predicted = run.predicted != nullptr;
  if (predicted) {
    rate = expected_rate(*run.predicted);
    const double share = sim::mfu(*run.predicted, sim::FlopsConvention::six_n_causal);
    const double per_rate = rate.value > 0 ? share / rate.value : 0;
    mfu = {share, rate.low * per_rate, rate.high * per_rate};
  }
  draw_stream(context, "loss", run.loss, run, nullptr, false, cell, loss_text);
  if (wide) ImGui::SameLine(0, gap);
  draw_stream(context, "throughput", run.tokens_per_second, run, predicted ? &rate : nullptr, true, cell,
              token_rate);
  if (wide) {
    draw_stream(context, "MFU, 6N + causal", run.mfu, run, predicted ? &mfu : nullptr, true,
                {cell.x, cell.y - ImGui::GetStyle().ItemSpacing.y}, share_text, percent_tick);
    ImGui::SameLine(0, gap);
    ImGui::BeginGroup();
    const float bars = look.px(90) + text_size_of(look, TextRole::caption, "x").y;
    draw_memory_check(context, run, {cell.x, std::min(bars, cell.y - ImGui::GetStyle().ItemSpacing.y)});
    const float rest = cell.y - bars - 2 * ImGui::GetStyle().ItemSpacing.y;
    if (rest > look.px(190)) {
      const float log = look.px(44);
      draw_log(context, run, {cell.x, log});
      draw_gradient(context, run, {cell.x, rest - log - ImGui::GetStyle().ItemSpacing.y});
    } else if (rest > look.px(40)) {
      draw_log(context, run, {cell.x, rest});
    }
    ImGui::EndGroup();
  }
}

void draw_generation(const PanelContext& context, const RunView& run) {
  const Look& look = context.look;
  const Palette& c = look.color();
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const float gap = look.px(14);
  Expected rate;
  const bool predicted = run.predicted != nullptr;
  if (predicted)
    if (const auto token = sim::tpot(*run.predicted); token && token->value > 0) {
      const double value = 1 / token->value;
      const Expected all = expected_rate(*run.predicted);
      const double band = all.value > 0 ? value / all.value : 1;
      rate = {value, all.low * band, all.high * band};
    }
  const float left = std::floor((room.x - gap) * 0.5f);
  // A tall panel has room for the text below a taller plot.
  const ImVec2 upper = {left, std::floor(room.y * (room.y > look.px(500) ? 0.7f : 0.55f))};
  draw_stream(context, "decode, one sequence", run.tokens_per_second, run, predicted ? &rate : nullptr, true,
              upper, token_rate);
  ImGui::SameLine(0, gap);
  ImGui::BeginGroup();
  const auto line = [&](const char* name, const std::string& expected, const std::string& measured) {
    text(look, TextRole::caption, c.dim, name);
    text(look, TextRole::number, c.predicted, expected);
    ImGui::SameLine(0, look.px(16));
    text(look, TextRole::number, c.measured, measured);
  };
  const auto first = predicted ? sim::ttft(*run.predicted) : std::nullopt;
  line("time to the first token", first ? sim::format(*first) : "n/a",
       run.time_to_first_token.value > 0 ? sim::format(run.time_to_first_token) : "");
  const auto per_token = predicted ? sim::tpot(*run.predicted) : std::nullopt;
  // The whole run's once it is over, the last token's until then.
  const Series& rates = run.tokens_per_second;
  auto real = run.measured && !run.active() ? sim::tpot(*run.measured) : std::nullopt;
  if (!real && rates.size() > 0 && rates.last().y > 0) real = sim::Seconds{1 / rates.last().y};
  line("time of a later token", per_token ? sim::format(*per_token) : "n/a", real ? sim::format(*real) : "");
  const float used = ImGui::GetItemRectMax().y - ImGui::GetWindowPos().y;
  draw_memory_check(context, run, {room.x - left - gap, std::max(look.px(30), upper.y - used + look.px(20))});
  ImGui::EndGroup();
  text(look, TextRole::caption, c.dim, "text");
  draw_lines(look, "text", TextRole::number, ImGui::GetContentRegionAvail(), [&] {
    if (run.text.empty() && rates.size() > 0)
      text_wrapped(
          look, TextRole::caption, c.mute,
          "None: a preset's weights are drawn at random, and it has no tokenizer. Pretrained models and "
          "opened folders and GGUF files write words.");
    text_wrapped(look, TextRole::number, c.measured, run.text);
    if (run.active()) ImGui::SetScrollHereY(1);
  });
}

std::string caption(const PanelContext& context) {
  const RunView& run = context.run();
  return run.title.empty() ? "on this machine" : run.title;
}

void draw(const PanelContext& context) {
  const RunView& run = context.run();
  const Look& look = context.look;
  const Palette& c = look.color();
  draw_controls(context, run);
  if (!context.runs.active()) draw_outlook(context);
  ImGui::Dummy({0, look.px(2)});
  // What ran is named, so that it is never taken for the scenario at hand.
  if (run.measured && !context.measured())
    text_wrapped(
        look, TextRole::caption, c.warn,
        "Not this scenario: this was " + run.title +
            (run.measured->source.date.empty() ? "" : ", " + run.measured->source.date.substr(0, 16)) + ".");
  const bool train = context.scenario.workload.task == sim::Task::train;
  if (run.phase == RunPhase::none) {
    draw_empty_state(
        context, "Nothing has run yet",
        train ? "Start trains this model for real on this machine, in a process of its own. What is "
                "measured is drawn solid over the dashed prediction."
              : "Start generates for real on this machine, token by token. What is measured is drawn "
                "solid over the dashed prediction.");
    return;
  }
  if (!run.message.empty())
    text_wrapped(look, TextRole::body, run.phase == RunPhase::failed ? look.color().bad : look.color().dim,
                 run.message);
  const bool nothing = run.loss.size() == 0 && run.tokens_per_second.size() == 0;
  if (nothing && !run.active()) return draw_log(context, run, ImGui::GetContentRegionAvail());
  draw_device(context, run);
  train ? draw_training(context, run) : draw_generation(context, run);
}

std::vector<Figure> figures(const PanelContext& context) {
  const RunView& run = context.run();
  const bool train = run.task == sim::Task::train;
  std::vector<Figure> all;
  const auto add = [&](const char* title, const Series& series, Measure measure) {
    if (series.size() == 0) return;
    FigureCurve measured{"measured", context.look.color().measured, Mark::line, {}};
    for (const Point& p : series.points()) measured.points.push_back({p.x, p.y});
    all.push_back(
        {title, FigurePlot{{train ? "step" : "token", Measure::count}, {title, measure}, {measured}}});
  };
  add("loss", run.loss, Measure::plain);
  add("tokens/s", run.tokens_per_second, Measure::tokens_per_second);
  add("MFU", run.mfu, Measure::share);
  add("gradient norm", run.gradient_norm, Measure::plain);
  add("noise scale, sequences", run.noise_scale, Measure::plain);
  return all;
}

}  // namespace

extern const PanelEntry live_panel = {"live",
                                      "Live run",
                                      "the same quantities, measured",
                                      Dock::lower_left,
                                      panel_of<NoState, caption, draw, figures>,
                                      false,
                                      false};

}  // namespace app::gui
