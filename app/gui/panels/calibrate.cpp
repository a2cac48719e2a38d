// How well what was measured is known: the fits of this machine and of every preset with their residuals,
// presets refitted to a user's own measurements, and those that the selected operation's time rests on.
#include "app/gui/panels/calibrate.h"

#include <imgui.h>
#include <misc/cpp/imgui_stdlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "app/counted.h"
#include "app/gui/panels/empty_state.h"
#include "app/gui/presets.h"
#include "app/gui/widgets/chart.h"
#include "app/gui/widgets/fields.h"
#include "app/gui/widgets/numbers.h"
#include "app/gui/widgets/parts.h"
#include "app/gui/widgets/text.h"
#include "runtime/gpu_calibration.h"
#include "runtime/machine_probe.h"
#include "runtime/measured.h"
#include "sim/cost/calibration_preset.h"
#include "sim/file_text.h"
#include "sim/format.h"
#include "sim/report/report.h"
#include "sim/validate/refit_rows.h"

namespace app::gui {
namespace {

using Context = ContextWith<CalibrateState>;

// What a calibration's own samples are fitted by, beneath what the view has.
void add_samples(const sim::Calibration& calibration, FitsView& view) {
  for (sim::FittedRows& fit : sim::fits_of(calibration)) view.fits.push_back(std::move(fit));
  for (const sim::HeldOut& one : sim::held_out(calibration))
    view.points.push_back(
        {std::string(sim::name(one.sample->kind)) + ", " + std::string(sim::name(one.sample->dtype)),
         sim::shape_text(*one.sample), one.sample->median.value, one.predicted.value});
}

FitsView fits_view(const FitsQuestion& question) {
  FitsView view;
  if (!question.here) {
    view.fits = sim::published_fits(question.hardware);
    if (const auto gpu = sim::load_gpu_calibration(question.hardware))
      for (const sim::KernelTable& table : gpu->kernels) {
        const std::string kernel(sim::name(table.kernel));
        const bool known = std::any_of(view.bands.begin(), view.bands.end(),
                                       [&](const FittedBand& band) { return band.kernel == kernel; });
        if (!known && view.bands.size() < kPins) view.bands.push_back({kernel, table.bands});
      }
    // This program's own kernels on it: of this machine's GPU, or as they ship.
    auto own = runtime::cached_gpu_calibration(question.hardware);
    if (!own) own = sim::load_measured_preset(question.hardware);
    if (own) add_samples(*own, view);
    return view;
  }
  add_samples(*question.here, view);
  return view;
}

sim::Refit refit(const RefitQuestion& question, const Study<RefitQuestion, sim::Refit>::Course& course) {
  const std::optional<std::string> text = sim::file_text(question.rows);
  if (!text) throw sim::PresetError(question.rows.string() + " cannot be read: is the path right?");
  const sim::CsvTable table = sim::csv_from_text(*text, question.rows.string());
  return sim::refit(table, question.rows.filename().string(), question.hardware, runtime::utc_now(),
                    [&](std::size_t) { return !course.stopped(); });
}

std::optional<sim::PriceTrace> trace(const TraceQuestion& question) {
  const std::size_t space = question.operation.find(' ');
  const auto phase = sim::from_name<sim::Phase>(question.operation.substr(0, space));
  if (!phase || space == std::string::npos) return std::nullopt;
  return sim::trace_price(sim::make_plan(question.scenario), *phase, question.operation.substr(space + 1),
                          question.calibration.get());
}

const std::string& shown_hardware(const Context& context) {
  return context.state.hardware.empty() ? context.scenario.hardware.name : context.state.hardware;
}

std::string error_text(double error) {
  return error > 0 ? sim::format_percent(error) : "";
}

// A number that a fit does not have stays empty.
std::string optional_percent(const std::optional<double>& share) {
  return share ? sim::format_percent(*share) : "";
}

// The refit that is seen: the one that was just made, else the one that is kept; null where there is none.
const sim::Refit* shown_refit(const Context& context) {
  const CalibrateState& state = context.state;
  if (state.tried && state.refit.result() && state.refit.request().hardware == shown_hardware(context))
    return state.refit.result();
  return state.calibrations.refit_of(shown_hardware(context)).get();
}

// "x1.08: 12.4 % to 3.1 %"; of a table that stays as it is its error; of one that no row is of nothing.
std::string shift_text(const sim::Refit& refit, const sim::FittedRows& fit) {
  for (const sim::TableShift& shift : refit.shifts)
    if (shift.what == fit.what && shift.software == fit.software) {
      const std::string before = sim::format_percent(shift.median_before);
      if (shift.factor == 1) return before + ", as it is";
      return "x" + significant(shift.factor) + ": " + before + " to " + sim::format_percent(shift.median);
    }
  return "";
}

std::string refit_sentence(const sim::Refit& refit) {
  std::int64_t rows = 0, moved = 0;
  for (const sim::TableShift& shift : refit.shifts) {
    rows += shift.rows;
    moved += shift.factor != 1;
  }
  if (moved == 0)
    return refit.rows_of + ": held out, a factor on their tables predicts " + counted(rows, "row") +
           " no better.";
  return refit.rows_of + ": " + counted(moved, "table") + " refitted to " + counted(rows, "row") + ".";
}

// A preset's tables set to a table of measurements of the user's own: tried, then kept or not.
void draw_refit(const Context& context) {
  const Look& look = context.look;
  const Palette& c = look.color();
  CalibrateState& state = context.state;
  const std::string& shown = shown_hardware(context);
  const float button = look.px(64), room = ImGui::GetContentRegionAvail().x;
  ImGui::SetNextItemWidth(std::min(look.px(420), room - button - look.px(4)));
  const bool entered = ImGui::InputTextWithHint("##rows", "your measurements of it, FILE.csv", &state.rows,
                                                ImGuiInputTextFlags_EnterReturnsTrue);
  ImGui::SameLine(0, look.px(4));
  if ((ImGui::Button("Refit", {button, 0}) || entered) && !state.rows.empty()) {
    state.refit.ask({shown, state.rows, ++state.attempts});
    state.tried = true;
  }
  const StudyProgress& progress = state.refit.progress();
  if (state.tried && progress.running) return text(look, TextRole::caption, c.mute, "Refitting");
  if (state.tried && !progress.failure.empty())
    return text_wrapped(look, TextRole::caption, c.warn, progress.failure);
  const sim::Refit* const refit = shown_refit(context);
  if (!refit) return;
  const bool is_new = state.tried && refit == state.refit.result();
  if (is_new && primary_button(look, "Use it", c.predicted)) {
    state.calibrations.keep(*refit);
    state.tried = false;
  } else if (!is_new && ImGui::Button("As shipped")) {
    state.calibrations.forget_refit(shown);
  }
  ImGui::SameLine(0, look.px(8));
  text_wrapped(look, TextRole::caption, is_new ? c.text : c.measured, refit_sentence(*refit));
}

const char* measure_label(const Calibrations& calibrations) {
  if (calibrations.is_begun()) return "Go on measuring";
  return calibrations.this_machine() ? "Measure again" : "Measure this machine";
}

void draw_head(const Context& context) {
  const Look& look = context.look;
  CalibrateState& state = context.state;
  const std::string& shown = shown_hardware(context);
  if (begin_picker(look, "hardware", shown, look.px(220))) {
    for (const std::string& name : preset_choices(sim::PresetKind::hardware))
      if (ImGui::Selectable(name.c_str(), name == shown)) state.hardware = name;
    end_picker();
  }
  if (shown != sim::kThisMachine) {
    const bool has_tables =
        state.fits.result() && !state.fits.result()->bands.empty() && state.fits.request().hardware == shown;
    if (has_tables) draw_refit(context);
    return;
  }
  ImGui::SameLine(0, look.px(8));
  if (context.measuring.running) {
    if (primary_button(look, "Stop", look.color().bad)) state.calibrations.stop();
    ImGui::SameLine(0, look.px(8));
    ImGui::AlignTextToFramePadding();
    return text_fitted(look, TextRole::body, look.color().measured,
                       "measuring, " + progress_text(context.measuring), ImGui::GetContentRegionAvail().x);
  }
  if (primary_button(look, measure_label(state.calibrations), look.color().measured))
    context.invoke("run.calibrate");
}

void draw_fits(const Context& context, const FitsView& view, ImVec2 size) {
  const Look& look = context.look;
  const Palette& c = look.color();
  if (view.fits.empty())
    return text_wrapped(look, TextRole::body, c.dim,
                        "Nothing was measured of " + shown_hardware(context) +
                            ": its times are datasheet peaks times the efficiencies of "
                            "sim/cost/efficiency.cpp.");
  double worst = 0;
  for (const sim::FittedRows& fit : view.fits) worst = std::max(worst, fit.p90);
  const sim::Refit* const refit = shown_refit(context);
  std::vector<Droppable> others = {
      {look.px(150), 1}, {look.px(64), 3}, {look.px(64), 5}, {look.px(64), 4}, {look.px(84), 0}};
  if (refit) others.push_back({look.px(160), 6});
  // A bar that is full stands for an error as large as the time itself.
  worst = std::min(worst, 1.0);
  std::vector<bool> shows = columns_beside(look.px(170), others, size.x);
  // One software for all stands beside the table.
  const bool several = std::any_of(view.fits.begin(), view.fits.end(), [&](const sim::FittedRows& fit) {
    return fit.software != view.fits.front().software;
  });
  shows[0] = shows[0] && several;
  // Where this machine's kernels were timed one by one, no band is stated for each.
  shows[4] = shows[4] && std::ranges::any_of(view.fits, [](const sim::FittedRows& fit) {
               return fit.inside_band.has_value();
             });
  const auto columns = static_cast<int>(1 + std::count(shows.begin(), shows.end(), true));
  constexpr ImGuiTableFlags kFlags =
      ImGuiTableFlags_ScrollY | ImGuiTableFlags_BordersInnerH | ImGuiTableFlags_PadOuterX;
  if (!ImGui::BeginTable("fits", columns, kFlags, size)) return;
  constexpr std::array<const char*, 6> kNames = {"software", "rows",        "median",
                                                 "90 %",     "in its band", "your rows"};
  ImGui::TableSetupScrollFreeze(0, 1);
  ImGui::TableSetupColumn("fit", ImGuiTableColumnFlags_WidthStretch);
  for (std::size_t i = 0; i < shows.size(); ++i)
    if (shows[i])
      ImGui::TableSetupColumn(kNames[i], ImGuiTableColumnFlags_WidthFixed, others[i].width - look.px(16));
  ImGui::TableNextRow(ImGuiTableRowFlags_Headers);
  ImGui::TableNextColumn();
  text(look, TextRole::caption, c.dim, "measured together");
  for (std::size_t i = 0; i < shows.size(); ++i)
    if (shows[i]) {
      ImGui::TableNextColumn();
      (i == 0 ? text : text_right)(look, TextRole::caption, c.dim, kNames[i]);
    }
  ImGuiListClipper clipper;
  clipper.Begin(static_cast<int>(view.fits.size()));
  while (clipper.Step())
    for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) {
      const sim::FittedRows& fit = view.fits[static_cast<std::size_t>(i)];
      ImGui::TableNextRow();
      ImGui::TableNextColumn();
      const ImVec2 at = ImGui::GetCursorScreenPos();
      const float room = ImGui::GetContentRegionAvail().x;
      const float height = text_size_of(look, TextRole::number, "x").y;
      // The error that one row in ten passes, as a bar beneath the name.
      if (worst > 0)
        ImGui::GetWindowDrawList()->AddRectFilled(
            {at.x, at.y}, {at.x + room * static_cast<float>(std::min(1.0, fit.p90 / worst)), at.y + height},
            with_alpha(c.predicted, 0.18f), look.px(2));
      text_fitted(look, TextRole::number, c.text, fit.what, room);
      if (ImGui::IsItemHovered())
        ImGui::SetTooltip("%s\n%s%s%s", fit.what.c_str(), fit.source.c_str(),
                          fit.hardware.empty() ? "" : "\nmeasured on ", fit.hardware.c_str());
      const std::array<std::string, 6> cells = {fit.software,
                                                fit.rows > 0 ? sim::format_count(fit.rows) : "",
                                                error_text(fit.median),
                                                error_text(fit.p90),
                                                optional_percent(fit.inside_band),
                                                refit ? shift_text(*refit, fit) : ""};
      for (std::size_t k = 0; k < shows.size(); ++k) {
        if (!shows[k]) continue;
        ImGui::TableNextColumn();
        if (k == 0)
          text_fitted(look, TextRole::caption, c.dim, cells[k], ImGui::GetContentRegionAvail().x);
        else
          text_right(look, TextRole::number,
                     k == 2 || k == 3 ? c.predicted
                     : k == 5         ? c.measured
                                      : c.dim,
                     cells[k]);
      }
    }
  ImGui::EndTable();
}

// How far from its prediction a kernel may lie, by how long it is predicted to take.
void draw_bands(const Context& context, const FitsView& view, ImVec2 size) {
  const Look& look = context.look;
  const Palette& c = look.color();
  chart_title(look, "Bands", "90 % of measured times lie between the lines", size.x);
  constexpr double kShortest = 2e-6, kLongest = 10e-3;
  double most = 0.05;
  for (const FittedBand& band : view.bands)
    for (const sim::ErrorBand& part : band.bands) most = std::max({most, part.high, -part.low});
  Chart chart(look, "##bands", ImGui::GetContentRegionAvail(),
              logarithmic_axis("predicted, \u00b5s", kShortest, kLongest, {1e-6, ""}),
              {"error, %", -most * 1.1, most * 1.1, false, {0.01, ""}});
  if (!chart) return;
  const std::array<ChartPoint, 2> none = {{{kShortest, 0}, {kLongest, 0}}};
  chart.line(none, c.dim, Stroke::solid, 1);
  for (std::size_t i = 0; i < view.bands.size(); ++i) {
    std::vector<ChartPoint> low, high;
    double from = kShortest;
    for (const sim::ErrorBand& part : view.bands[i].bands) {
      const double to = std::clamp(part.below.value, from, kLongest);
      for (const double at : {from, to}) {
        low.push_back({at, part.low});
        high.push_back({at, part.high});
      }
      from = to;
    }
    const ImU32 color = c.pins[i % kPins];
    chart.line(low, color, Stroke::solid, 1.6f);
    chart.line(high, color, Stroke::solid, 1.6f);
    chart.name(high[high.size() / 2], color, view.bands[i].kernel);
  }
}

// Each kernel that was timed, against what all others of its kind say of it.
void draw_points(const Context& context, const FitsView& view, ImVec2 size) {
  const Look& look = context.look;
  const Palette& c = look.color();
  if (view.points.empty())
    return text_wrapped(look, TextRole::body, c.dim, "No kernel was timed beside others of its kind.");
  double least = 1e300, most = 0;
  for (const FittedPoint& point : view.points) {
    least = std::min({least, point.measured, point.predicted});
    most = std::max({most, point.measured, point.predicted});
  }
  const ScaleUnit unit = time_unit(most);
  chart_title(look, "Held out", "each kernel predicted from all others of its kind", size.x);
  const ImVec2 rest = ImGui::GetContentRegionAvail();
  Chart chart(look, "##points", rest,
              logarithmic_axis(std::string("measured, ") + unit.name, least, most, unit),
              logarithmic_axis(std::string("predicted, ") + unit.name, least, most, unit));
  if (!chart) return;
  const auto along = [&](double factor, ImU32 color, Stroke stroke, const char* name) {
    const std::array<ChartPoint, 2> line = {{{least, least * factor}, {most, most * factor}}};
    chart.line(line, color, stroke, 1.2f);
    if (*name) chart.name(line[1], color, name);
  };
  along(1, c.text, Stroke::solid, "");
  for (const double factor : {1.1, 1 / 1.1}) along(factor, c.dim, Stroke::dashed, factor > 1 ? "10 %" : "");
  for (const double factor : {1.25, 0.8}) along(factor, c.mute, Stroke::dashed, factor > 1 ? "25 %" : "");
  const auto place = [](const FittedPoint& p) { return ChartPoint{p.measured, p.predicted}; };
  for (const FittedPoint& point : view.points) chart.dot(place(point), c.measured, true, 2.5f);
  if (const FittedPoint* hovered = chart.nearest(view.points, place))
    ImGui::SetTooltip("%s\n%s\nmeasured %s, predicted %s", hovered->kind.c_str(), hovered->shape.c_str(),
                      sim::format(sim::Seconds{hovered->measured}).c_str(),
                      sim::format(sim::Seconds{hovered->predicted}).c_str());
}

// What the fits are of, and what disturbed them.
void draw_machine(const Context& context, ImVec2 size) {
  const Look& look = context.look;
  const Palette& c = look.color();
  const std::string& shown = shown_hardware(context);
  const auto fact = [&](std::string_view words, const std::string& value) {
    if (!value.empty()) fact_row(look, words, value, size.x);
  };
  const sim::Calibration* const here = context.state.calibrations.this_machine();
  if (shown != sim::kThisMachine) {
    const sim::Hardware hardware = shown == context.scenario.hardware.name ? context.scenario.hardware
                                                                           : sim::load_hardware_preset(shown);
    chart_title(look, hardware.display_name.empty() ? shown : hardware.display_name, "", size.x);
    for (const auto& [dtype, peak] : hardware.peak)
      fact("peak, " + std::string(sim::name(dtype)), sim::format(peak));
    fact("memory's bandwidth", sim::format(hardware.memory_bandwidth));
    fact("launch", sim::format(hardware.launch));
    fact("clock under load", sim::format_percent(hardware.sustained_clock));
    ImGui::Dummy({0, look.px(4)});
    return text_wrapped(look, TextRole::caption, c.dim, "Source: " + hardware.source);
  }
  if (!here) return text_wrapped(look, TextRole::body, c.dim, "This machine has not been measured yet.");
  chart_title(look, here->device, here->date.substr(0, 16), size.x);
  fact("kernels", here->software);
  for (const auto& [dtype, peak] : here->hardware.peak)
    fact("reached peak, " + std::string(sim::name(dtype)), sim::format(peak));
  fact("reached bandwidth", sim::format(here->hardware.memory_bandwidth));
  fact("launch", sim::format(here->launch));
  fact("kernels timed", sim::format_count(std::ssize(here->samples)));
  fact("median error", error_text(here->residual.median));
  fact("error of one in ten", error_text(here->residual.p90));
  constexpr double kNoticed = 0.1;  // cores
  if (here->cores_used_by_others > kNoticed)
    text_wrapped(look, TextRole::caption, c.warn,
                 "Other programs kept " + significant(here->cores_used_by_others) +
                     " cores busy meanwhile: errors are less where the machine is quiet.");
  if (here->load) {
    fact("clock under load",
         sim::format_percent(here->load->sustained.value / std::max(1.0, here->load->burst.value)));
    fact("held back by", here->load->throttle);
  }
  const RunView& run = context.run();
  if (run.measured && !runtime::is_steady(run.measured->source.slowdown))
    text_wrapped(look, TextRole::caption, c.warn,
                 "The last run: " + runtime::slowdown_sentence(run.measured->source.slowdown));
}

void draw_trace(const Context& context, ImVec2 size) {
  const Look& look = context.look;
  const Palette& c = look.color();
  const Selection& selection = context.view.selection;
  chart_title(look, "Selected operation", "", size.x);
  if (selection.quantity != Quantity::operation)
    return text_wrapped(look, TextRole::body, c.dim,
                        "Click an operation in Roofline, Predicted and measured or Memory: here stand the "
                        "measurements that its time rests on.");
  context.state.trace.follow({context.scenario, context.calibration, selection.operation});
  const auto* found = context.state.trace.result();
  if (!found) return text(look, TextRole::body, c.mute, "Working");
  text_wrapped(look, TextRole::number, c.text, selection.operation);
  if (!*found)
    return text_wrapped(look, TextRole::body, c.dim,
                        "This row is a sum: an engine's iteration, or an operation of another plan.");
  const sim::PriceTrace& trace = **found;
  const auto fact = [&](std::string_view words, const std::string& value) {
    if (!value.empty()) fact_row(look, words, value, size.x);
  };
  text_wrapped(look, TextRole::caption, c.dim, sim::shape_text(trace.shape));
  fact("launch", sim::format(trace.best.launch));
  if (trace.best.compute.value > 0) fact("FLOPs at the peak", sim::format(trace.best.compute));
  if (trace.best.memory.value > 0) fact("bytes at the bandwidth", sim::format(trace.best.memory));
  if (trace.ratio)
    fact("takes", significant(*trace.ratio) +
                      " times launch + the longer = " + sim::format(trace.best.time() * *trace.ratio));
  for (const sim::KernelSample* sample : trace.nearest)
    fact_row(look, sim::shape_text(*sample), sim::format(sample->median), size.x,
             "spread " + sim::format_percent(sample->spread));
  for (const sim::FittedRows& table : trace.tables) {
    fact_row(look, table.what + ", " + table.software, "median error " + error_text(table.median), size.x,
             counted(table.rows, "row"));
    text_wrapped(look, TextRole::caption, c.mute, table.source);
  }
  if (trace.nearest.empty() && trace.tables.empty())
    text_wrapped(look, TextRole::body, c.dim,
                 "No measurement: the hardware's peaks times the efficiency of the kernel's kind "
                 "(sim/cost/efficiency.cpp), or of links the formulas of sim/cost/network.cpp.");
}

std::string caption(const Context&) {
  return "errors of rows that were held out of their fit";
}

void draw(const Context& context) {
  CalibrateState& state = context.state;
  draw_head(context);
  const std::string& shown = shown_hardware(context);
  const bool here = shown == sim::kThisMachine;
  if (here && !state.calibrations.this_machine() && !context.measuring.running)
    return draw_empty_state(context, "Not measured yet",
                            "Peaks, bandwidth and every kernel of this machine are timed in about a minute.",
                            measure_label(state.calibrations), "run.calibrate");
  state.fits.follow({shown, here ? state.calibrations.of_this_machine() : nullptr});
  if (draw_missing_result(context, state.fits, "The measurements cannot be read")) return;
  const FitsView& view = *state.fits.result();
  const std::array<PanelPart, 4> parts = {
      {{"fits", [&](ImVec2 size) { draw_fits(context, view, size); }, 2},
       {"machine", [&](ImVec2 size) { draw_machine(context, size); }},
       {"errors", [&](ImVec2 size) { (view.bands.empty() ? draw_points : draw_bands)(context, view, size); },
        2},
       {"operation", [&](ImVec2 size) { draw_trace(context, size); }}}};
  draw_parts(context.look, state.tab, parts);
}

std::vector<Figure> figures(const Context& context) {
  const auto& study = context.state.fits;
  if (!study.result() || study.result()->fits.empty()) return {};
  FigureTable table{{{"measured together"},
                     {"software"},
                     {"rows", Measure::count},
                     {"median error", Measure::share},
                     {"error of one in ten", Measure::share},
                     {"in the 90 % band", Measure::share},
                     {"source"}},
                    {}};
  for (const sim::FittedRows& fit : study.result()->fits)
    table.rows.push_back({fit.what, fit.software, static_cast<double>(fit.rows), fit.median, fit.p90,
                          fit.inside_band ? Cell(*fit.inside_band) : Cell(), fit.source});
  std::vector<Figure> all = {{"Fits of " + study.request().hardware, std::move(table)}};
  if (const sim::Refit* const refit = shown_refit(context)) {
    FigureTable shifts{{{"refitted"},
                        {"software"},
                        {"rows", Measure::count},
                        {"factor"},
                        {"median error as shipped", Measure::share},
                        {"median error, held out", Measure::share}},
                       {}};
    for (const sim::TableShift& shift : refit->shifts)
      shifts.rows.push_back({shift.what, shift.software, static_cast<double>(shift.rows),
                             significant(shift.factor), shift.median_before, shift.median});
    all.push_back({"Refit to " + refit->rows_of, std::move(shifts)});
  }
  const Palette& c = context.look.color();
  if (!study.result()->points.empty()) {
    FigureCurve dots{"kernels", c.measured, Mark::dots, {}};
    for (const FittedPoint& point : study.result()->points) {
      dots.points.push_back({point.measured, point.predicted});
      dots.names.push_back(point.kind + ": " + point.shape);
    }
    all.push_back({"Each kernel predicted from all others of its kind",
                   FigurePlot{{"measured", Measure::seconds, true},
                              {"predicted", Measure::seconds, true},
                              {std::move(dots)}}});
  }
  return all;
}

}  // namespace

CalibrateState::CalibrateState(const PanelTools& tools)
    : calibrations(tools.calibrations),
      fits(tools.studies.add<FitsQuestion, FitsView>(
          [](const FitsQuestion& question, const auto&) { return fits_view(question); })),
      trace(tools.studies.add<TraceQuestion, std::optional<sim::PriceTrace>>(
          [](const TraceQuestion& question, const auto&) { return gui::trace(question); })),
      refit(tools.studies.add<RefitQuestion, sim::Refit>(
          [](const RefitQuestion& question, const auto& course) { return gui::refit(question, course); })) {}

extern const PanelEntry calibrate_panel = {"calibrate",
                                           "Calibrate",
                                           "what was measured, how well it is fitted, and what rests on it",
                                           Dock::lower_left,
                                           panel_of<CalibrateState, caption, draw, figures>,
                                           false,
                                           false};

}  // namespace app::gui
