// The whole answer at a glance: does it fit, how long, how fast, how well used, and what bounds it.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include "app/counted.h"
#include "app/gui/figures/figure.h"
#include "app/gui/jobs/whole_run.h"
#include "app/gui/panels/cost_text.h"
#include "app/gui/panels/empty_state.h"
#include "app/gui/panels/explain.h"
#include "app/gui/panels/last_change.h"
#include "app/gui/panels/panels.h"
#include "app/gui/widgets/fields.h"
#include "app/gui/widgets/numbers.h"
#include "app/gui/widgets/text.h"
#include "app/gui/widgets/tile.h"
#include "sim/format.h"
#include "sim/report/metrics.h"
#include "sim/report/step_parts.h"

namespace app::gui {
namespace {

struct OverviewState {
  explicit OverviewState(const PanelTools& tools) : tabs(tools.tabs) {}
  const Tabs& tabs;
  LastChange change;
};

std::string band(const sim::Report& report) {
  if (!(report.step_high.value > report.step_low.value)) return "";
  return sim::format(report.step_low) + " to " + sim::format(report.step_high);
}

Tile memory_tile(const PanelContext& context, const sim::Report& report) {
  const Palette& c = context.look.color();
  const sim::Bytes peak = sim::peak_memory(report), capacity = context.scenario.hardware.memory;
  const ValueAndUnit value = split_unit(sim::format(peak));
  Tile tile{.id = "memory",
            .title = "Memory at the peak",
            .value = value.value,
            .unit = value.unit,
            .of = "of " + sim::format(capacity)};
  for (const sim::MemoryLine& line : sim::peak_ledger(report)) {
    const int category = memory_category(line.category);
    if (category >= 0)
      tile.bar.push_back(
          {static_cast<double>(line.bytes.value), c.memory[static_cast<std::size_t>(category)]});
  }
  tile.bar_limit = static_cast<double>(capacity.value);
  const bool fits = sim::fits(report);
  tile.line = fits ? "fits, " + sim::format(capacity - peak) + " free"
                   : "does not fit: " + sim::format(peak - capacity) + " too much";
  tile.short_line = fits ? "fits" : sim::format(peak - capacity) + " too much";
  tile.line_color = fits ? c.good : c.bad;
  return tile;
}

std::vector<Tile> training_tiles(const PanelContext& context, const sim::Report& report) {
  const Palette& c = context.look.color();
  const sim::Report* measured = context.measured();
  const ValueAndUnit step = split_unit(sim::format(sim::step_time(report)));
  Tile time{.id = "step",
            .title = "Step",
            .value = step.value,
            .unit = step.unit,
            .line = band(report),
            .line_color = c.mute};
  Tile rate{.id = "rate",
            .title = "Throughput",
            .value = token_rate_digits(sim::tokens_per_second(report)),
            .unit = "tokens/s",
            .line = sim::format_count(context.scenario.workload.global_batch_size *
                                      context.scenario.workload.seq_len) +
                    " tokens a step",
            .line_color = c.mute,
            .short_value = sim::format_short(sim::tokens_per_second(report))};
  Tile mfu{.id = "mfu",
           .title = "MFU, " + std::string(sim::name(context.view.convention)),
           .value = sim::format_percent(sim::mfu(report, context.view.convention)),
           .unit = "",
           .line = "HFU " + sim::format_percent(sim::hfu(report)),
           .line_color = c.mute,
           .action = "Click: the next FLOPs convention"};
  if (measured && measured->step_time.value > 0) {
    time.measured = sim::format(sim::step_time(*measured));
    rate.measured = token_rate(sim::tokens_per_second(*measured));
    mfu.measured = sim::format_percent(sim::mfu(*measured, context.view.convention));
  }
  return {time, rate, mfu};
}

std::vector<Tile> generation_tiles(const PanelContext& context, const sim::Report& report) {
  const Palette& c = context.look.color();
  const sim::Report* measured = context.measured();
  const auto per_token = sim::tpot(report);
  const ValueAndUnit token = split_unit(per_token ? sim::format(*per_token) : "n/a");
  const auto first = sim::ttft(report);
  Tile time{.id = "step",
            .title = "Time per token",
            .value = token.value,
            .unit = token.unit,
            .line = first ? "first after " + sim::format(*first) : "",
            .line_color = c.mute};
  Tile rate{.id = "rate",
            .title = "Throughput",
            .value = token_rate_digits(sim::tokens_per_second(report)),
            .unit = "tokens/s",
            .line = counted(context.scenario.workload.batch_size, "sequence"),
            .line_color = c.mute,
            .short_value = sim::format_short(sim::tokens_per_second(report))};
  Tile mbu{.id = "mbu",
           .title = "MBU, decode",
           .value = sim::format_percent(sim::mbu(report)),
           .unit = "",
           .line = "of " + sim::format(context.scenario.hardware.memory_bandwidth),
           .line_color = c.mute};
  if (measured && measured->step_time.value > 0) {
    if (const auto t = sim::tpot(*measured)) time.measured = sim::format(*t);
    rate.measured = token_rate(sim::tokens_per_second(*measured));
    mbu.measured = sim::format_percent(sim::mbu(*measured));
  }
  return {time, rate, mbu};
}

// Money and energy, as far as they are known.
std::string cost_of(const WholeRun& run) {
  std::string words = run.is_priced ? dollars(run.cost.usd) : "";
  if (run.is_powered) words.append(words.empty() ? "" : ", ").append(energy_text(run.cost));
  return words;
}

Tile parameters_tile(const PanelContext& context, const sim::Report& report) {
  const auto count = sim::count_parameters(context.scenario.model);
  const bool train = context.scenario.workload.task == sim::Task::train;
  return {.id = "parameters",
          .title = "Parameters",
          .value = sim::format_short(static_cast<double>(count.total)),
          .unit = "",
          .line = sim::format(sim::executed_flops(report)) + (train ? " a step" : " in all"),
          .line_color = context.look.color().mute,
          .second = context.scenario.strategy.devices() > 1
                        ? sim::format_count(context.scenario.strategy.devices()) + " devices"
                        : ""};
}

// A whole training run in days, a million generated tokens in money.
std::optional<Tile> run_tile(const PanelContext& context, const sim::Report& report) {
  const auto run = whole_run(report);
  if (!run) return std::nullopt;
  const bool train = report.source.scenario.workload.task == sim::Task::train;
  const bool by_money = !train && run->is_priced;
  const ValueAndUnit time = split_unit(train ? days_text(run->cost.days)
                                             : sim::format(sim::Seconds{run->cost.device_hours * 3600}));
  const bool has_energy = run->is_powered;
  const std::string energy = has_energy ? energy_text(run->cost) : "";
  Tile tile{.id = "run",
            .title = train ? "Whole run, " + sim::format_short(run->tokens) + " tokens" : "A million tokens",
            .value = by_money ? dollars(run->cost.usd) : time.value,
            .unit = by_money ? "" : time.unit,
            .line = by_money ? energy : cost_of(*run),
            .short_line = run->is_priced && train ? dollars(run->cost.usd) : "",
            .line_color = context.look.color().mute,
            .second = has_energy ? carbon_text(run->cost) : "",
            .action = "Click: Economics, with the price, the site and the tokens that this is of"};
  if (tile.line.empty()) {
    tile.line = "no price or power is known";
    tile.short_line = "no known price";
  }
  return tile;
}

// The tiles' numbers in two reports of one task: `say` is given each tile with its change, where it has one.
void compare_tiles(const sim::Report& report, const sim::Report& then, sim::FlopsConvention convention,
                   std::vector<Tile>& tiles, const std::function<void(Tile&, double change)>& write) {
  const auto say = [&](std::string_view tile, double now, double was) {
    for (Tile& one : tiles)
      if (one.id == tile && now > 0 && was > 0) write(one, now / was - 1);
  };
  const bool train = report.source.scenario.workload.task == sim::Task::train;
  if (sim::fits(report))
    say("memory", static_cast<double>(sim::peak_memory(report).value),
        static_cast<double>(sim::peak_memory(then).value));
  const auto tpot = sim::tpot(report), tpot_then = sim::tpot(then);
  if (train)
    say("step", sim::step_time(report).value, sim::step_time(then).value);
  else if (tpot && tpot_then)
    say("step", tpot->value, tpot_then->value);
  say("rate", sim::tokens_per_second(report), sim::tokens_per_second(then));
  if (const auto run = whole_run(report), was = whole_run(then); run && was) {
    const bool by_money = !train && run->is_priced && was->is_priced;
    say("run", by_money ? run->cost.usd : run->cost.days, by_money ? was->cost.usd : was->cost.days);
  }
  say("mfu", sim::mfu(report, convention), sim::mfu(then, convention));
  say("mbu", sim::mbu(report), sim::mbu(then));
}

// In place of what stands below a number: how it differs from the baseline.
void compare_with_baseline(const PanelContext& context, const sim::Report& report, std::vector<Tile>& tiles) {
  const Pin* baseline = context.pins.baseline();
  if (!baseline || (!baseline->measured() && baseline->scenario() == report.source.scenario)) return;
  compare_tiles(report, *baseline->report, context.view.convention, tiles, [&](Tile& tile, double change) {
    tile.line = signed_percent(change) + " against " + baseline->name();
    tile.short_line = signed_percent(change);
    tile.line_color = pin_color(context.look, *baseline);
  });
}

// For a moment, what the last edit has changed: the tile is lit, and says by how much where no baseline does.
void show_last_change(const ContextWith<OverviewState>& context, const sim::Report& report,
                      std::vector<Tile>& tiles) {
  if (context.frozen) return;
  LastChange& change = context.state.change;
  const double now = ImGui::GetTime();
  change.follow(context.prediction.report, context.state.tabs.current().id, now);
  const sim::Report* before = change.before(now);
  if (!before) return;
  context.view.changes_in = change.left(now);
  constexpr double kSeen = 0.0005;  // less is "0.0 %"
  compare_tiles(report, *before, context.view.convention, tiles, [&](Tile& tile, double by) {
    if (std::abs(by) < kSeen) return;
    tile.is_lit = true;
    if (context.pins.baseline()) return;  // its difference stays
    tile.short_line = std::string(by > 0 ? "\u25b2 " : "\u25bc ") + sim::format_percent(std::abs(by));
    tile.line = tile.short_line + " by the last edit";
    tile.line_color = context.look.color().text;
  });
}

Quantity quantity_of(std::string_view tile) {
  if (tile == "memory") return Quantity::memory;
  if (tile == "rate") return Quantity::tokens_per_second;
  if (tile == "mfu" || tile == "mbu") return Quantity::utilization;
  if (tile == "parameters") return Quantity::parameters;
  return Quantity::step_time;
}

ImU32 part_color(const Palette& c, sim::StepPart part) {
  return c.parts[static_cast<std::size_t>(part)];
}

void draw_bottleneck(const PanelContext& context, const sim::Report& report, ImVec2 size) {
  const Look& look = context.look;
  const Palette& c = look.color();
  const ImVec2 least = ImGui::GetCursorScreenPos();
  const ImVec2 most = {least.x + size.x, least.y + size.y};
  ImGui::Dummy(size);
  draw_card_frame(look, least, most, c.border);
  ImDrawList* list = ImGui::GetWindowDrawList();
  const float pad = look.px(14);
  const float inner = size.x - 2 * pad;
  draw_text(list, look, TextRole::title, {least.x + pad, least.y + look.px(9)}, c.text,
            fitted(look, TextRole::title, sim::bottleneck_sentence(report), inner));
  std::vector<BarPart> parts;
  const auto shares = sim::part_shares(report);
  for (const sim::PartShare& share : shares) parts.push_back({share.share, part_color(c, share.part)});
  const float bar_top = std::floor(least.y + look.px(33));
  const float thickness = std::floor(look.px(5));
  draw_bar(list, look, {least.x + pad, bar_top}, {most.x - pad, bar_top + thickness}, parts, 0);
  float x = least.x + pad;
  for (const sim::PartShare& share : shares) {
    if (share.share < 0.005) continue;
    const float y = bar_top + thickness + look.px(5);
    const std::string words = std::string(sim::name(share.part)) + " " + sim::format_percent(share.share);
    const float swatch = std::floor(look.px(8));
    const ImVec2 extent = text_size_of(look, TextRole::caption, words);
    if (y + extent.y > most.y || x + swatch + extent.x > most.x - pad) break;
    list->AddRectFilled({x, y + extent.y / 2 - swatch / 2}, {x + swatch, y + extent.y / 2 + swatch / 2},
                        part_color(c, share.part), look.px(2));
    draw_text(list, look, TextRole::caption, {x + swatch + look.px(6), y}, c.dim, words);
    x += swatch + look.px(24) + extent.x;
  }
}

// Why the figures above are not of this scenario, and the ways out.
void draw_disagreement(const PanelContext& context, ImVec2 size) {
  const Look& look = context.look;
  const ImVec2 least = ImGui::GetCursorScreenPos();
  ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, ImVec2(look.px(14), look.px(7)));
  ImGui::BeginChild(std::string(kNotGreyed).c_str(), size, ImGuiChildFlags_AlwaysUseWindowPadding);
  ImGui::PopStyleVar();
  draw_card_frame(look, least, {least.x + size.x, least.y + size.y}, look.color().bad);
  text_fitted(look, TextRole::title, look.color().bad,
              "This cannot be: " + std::string(context.disagreement) + ".", ImGui::GetContentRegionAvail().x);
  if (primary_button(look, "Make it legal", look.color().predicted)) context.invoke("edit.make_legal");
  ImGui::SameLine();
  if (ImGui::Button("Undo")) context.invoke("edit.undo");
  ImGui::SameLine();
  text_fitted(look, TextRole::caption, look.color().dim,
              "Greyed figures are of the last scenario that could be.", ImGui::GetContentRegionAvail().x);
  ImGui::EndChild();
}

// Where the time goes, operation by operation: only where the panel has room for it.
void draw_longest_operations(const PanelContext& context, const sim::Report& report, ImVec2 size) {
  const Look& look = context.look;
  const Palette& c = look.color();
  const ImVec2 least = ImGui::GetCursorScreenPos();
  ImGui::Dummy(size);
  draw_card_frame(look, least, {least.x + size.x, least.y + size.y}, c.border);
  std::vector<const sim::Row*> rows;
  double whole = 0;
  for (const sim::Row& row : report.rows)
    if (row.rank == 0) {
      rows.push_back(&row);
      whole += row.duration.value;
    }
  std::stable_sort(rows.begin(), rows.end(), [](const sim::Row* a, const sim::Row* b) {
    return a->duration.value > b->duration.value;
  });
  if (rows.empty() || whole <= 0) return;
  ImDrawList* list = ImGui::GetWindowDrawList();
  const float pad = look.px(14), line = look.px(24);
  float y = least.y + look.px(11);
  draw_text(list, look, TextRole::title, {least.x + pad, y}, c.text, "Where the time goes");
  y += look.px(28);
  const float name_width = std::min(look.px(330), size.x * 0.36f), number_width = look.px(170);
  const float bar_begin = least.x + pad + name_width, bar_end = least.x + size.x - pad - number_width;
  for (const sim::Row* row : rows) {
    if (y + line > least.y + size.y - look.px(6)) break;
    const float middle = y + line / 2;
    const std::string name = std::string(sim::name(row->phase)) + " " + row->id;
    draw_text(list, look, TextRole::number, {least.x + pad, middle}, c.text,
              fitted_name(look, TextRole::number, name, name_width - look.px(10)), {0, 0.5f});
    const double share = row->duration.value / whole;
    const double longest = rows.front()->duration.value / whole;
    const float end = bar_begin + (bar_end - bar_begin) * static_cast<float>(share / longest);
    list->AddRectFilled({bar_begin, middle - look.px(6)}, {std::max(end, bar_begin + 1), middle + look.px(6)},
                        with_alpha(c.predicted, 0.55f), std::min(look.px(3), (end - bar_begin) / 2));
    draw_text(list, look, TextRole::number, {least.x + size.x - pad - look.px(62), middle}, c.predicted,
              sim::format(row->duration), {1, 0.5f});
    draw_text(list, look, TextRole::number, {least.x + size.x - pad, middle}, c.dim,
              sim::format_percent(share), {1, 0.5f});
    y += line;
  }
}

std::string caption(const PanelContext& context) {
  return context.scenario.model.name + " on " + context.scenario.hardware.name;
}

void draw(const ContextWith<OverviewState>& context) {
  const Look& look = context.look;
  if (!context.prediction.report) {
    const ImVec2 least = ImGui::GetCursorScreenPos(), size = ImGui::GetContentRegionAvail();
    draw_card_frame(look, least, {least.x + size.x, least.y + size.y}, look.color().border);
    draw_missing_prediction(context, true);
    return;
  }
  const sim::Report& report = *context.prediction.report;
  std::vector<Tile> tiles = {memory_tile(context, report)};
  const bool train = report.source.scenario.workload.task == sim::Task::train;
  for (Tile& tile : train ? training_tiles(context, report) : generation_tiles(context, report))
    tiles.push_back(std::move(tile));
  const float gap = std::floor(look.px(8));
  tiles.push_back(parameters_tile(context, report));
  // The least that a tile can be read in; where there is less for six, what a run costs goes before a unit
  // does.
  const float least_width = look.px(140);
  if (ImGui::GetContentRegionAvail().x / static_cast<float>(tiles.size() + 1) >= least_width)
    if (auto tile = run_tile(context, report)) tiles.push_back(std::move(*tile));
  // Below this a number is cut: then there are fewer, the memory's and the step's to the end.
  constexpr float kLeastOfNumber = 92;
  while (tiles.size() > 2 &&
         ImGui::GetContentRegionAvail().x / static_cast<float>(tiles.size()) < look.px(kLeastOfNumber))
    tiles.pop_back();
  compare_with_baseline(context, report, tiles);
  show_last_change(context, report, tiles);

  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, ImVec2(gap, gap));
  // Borders stand half a pixel outside their card: keep them off the window's clipping edge.
  const ImVec2 inset = {1, 1};
  ImGui::SetCursorPos(inset);
  const ImVec2 all = ImGui::GetContentRegionAvail();
  const ImVec2 room = {all.x - inset.x, all.y - inset.y};
  const float sentence_height = look.px(64);
  const float tile_height = std::min(look.px(106), room.y - gap - sentence_height);
  const auto n = static_cast<float>(tiles.size());
  const float width = std::floor((room.x - gap * (n - 1)) / n);
  for (Tile& tile : tiles)
    if (tile.id == std::string_view("mfu") &&
        text_size_of(look, TextRole::caption, tile.title).x > width - look.px(28)) {
      tile.title = "MFU";
      tile.second = sim::name(context.view.convention);
    }
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    if (i > 0) ImGui::SameLine();
    const bool last = i + 1 == tiles.size();
    const bool is_run = std::string_view(tiles[i].id) == "run";
    const Quantity quantity = quantity_of(tiles[i].id);
    const std::string action = std::exchange(tiles[i].action, "");
    const bool clicked =
        draw_tile(look, tiles[i], {last ? room.x - (width + gap) * (n - 1) : width, tile_height},
                  !is_run && context.view.selection.quantity == quantity);
    if (ImGui::IsItemHovered())
      ImGui::SetItemTooltip("%s%s", is_run ? "" : (explained(context, quantity) + "\n").c_str(),
                            action.empty() ? "Click to explain" : action.c_str());
    if (clicked) {
      if (is_run) {
        context.invoke("panel.economics");
        continue;
      }
      if (context.view.selection.quantity == quantity && quantity == Quantity::utilization && train)
        context.invoke("view.next_convention");
      context.view.selection.quantity = quantity;
    }
  }
  ImGui::SetCursorPosX(inset.x);
  if (context.disagreement.empty())
    draw_bottleneck(context, report, {room.x, sentence_height});
  else
    draw_disagreement(context, {room.x, sentence_height});
  const float rest = ImGui::GetContentRegionAvail().y - inset.y;
  if (rest > look.px(120)) {
    ImGui::SetCursorPosX(inset.x);
    draw_longest_operations(context, report, {room.x, rest});
  }
  ImGui::PopStyleVar();
}

std::vector<Figure> figures(const PanelContext& context) {
  if (!context.prediction.report) return {};
  const sim::Report& report = *context.prediction.report;
  const sim::Report* measured = context.measured();
  const bool train = report.source.scenario.workload.task == sim::Task::train;
  FigureTable totals{{{"quantity"}, {"predicted"}, {"measured"}}, {}};
  const auto add = [&](std::string what, Measure measure, auto value) {
    totals.rows.push_back({std::move(what), text_of(value(report), measure),
                           measured ? Cell(text_of(value(*measured), measure)) : Cell()});
  };
  add("memory at the peak", Measure::bytes,
      [](const sim::Report& r) { return static_cast<double>(sim::peak_memory(r).value); });
  add(train ? "step" : "generation", Measure::seconds,
      [](const sim::Report& r) { return sim::step_time(r).value; });
  add("throughput", Measure::tokens_per_second, sim::tokens_per_second);
  if (train) {
    add("MFU, " + std::string(sim::name(context.view.convention)), Measure::share,
        [&](const sim::Report& r) { return sim::mfu(r, context.view.convention); });
    add("HFU", Measure::share, sim::hfu);
  } else {
    const auto seconds = [](std::optional<sim::Seconds> t) { return t ? t->value : std::nan(""); };
    add("time to the first token", Measure::seconds,
        [&](const sim::Report& r) { return seconds(sim::ttft(r)); });
    add("time per token", Measure::seconds, [&](const sim::Report& r) { return seconds(sim::tpot(r)); });
    add("MBU, decode", Measure::share, sim::mbu);
  }
  add("FLOPs", Measure::flops, [](const sim::Report& r) { return sim::executed_flops(r).value; });
  if (const auto run = whole_run(report)) {
    const std::string of = train ? "whole run" : "a million tokens";
    const auto say = [&](const char* what, std::string value) {
      totals.rows.push_back({of + ", " + what, std::move(value), Cell()});
    };
    say("tokens", sim::format_short(run->tokens));
    say("device time", sim::format(sim::Seconds{run->cost.device_hours * 3600}));
    if (train) say("days", days_text(run->cost.days));
    if (run->is_priced) say("money", dollars(run->cost.usd));
    if (run->is_powered) {
      say("energy", energy_text(run->cost));
      say("carbon", carbon_text(run->cost));
    }
  }

  const sim::StepParts parts = sim::step_parts(report);
  FigureBars time{Measure::seconds, {}, {{"predicted", {}}}};
  for (const sim::PartShare& share : sim::part_shares(report)) {
    time.parts.push_back({std::string(sim::name(share.part)), part_color(context.look.color(), share.part)});
    time.rows.front().values.push_back(parts[share.part].value);
  }
  return {{"Totals", std::move(totals)},
          {train ? "What the step takes" : "What the generation takes", std::move(time)}};
}

}  // namespace

extern const PanelEntry overview_panel = {"overview",
                                          "Overview",
                                          "the whole answer at a glance",
                                          Dock::top,
                                          panel_of<OverviewState, caption, draw, figures>,
                                          true};

}  // namespace app::gui
