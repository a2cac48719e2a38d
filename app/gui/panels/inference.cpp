// Serving the model: what prefill and decode are bound by, what the cache holds, what latency buys in
// throughput, requests that come and go, and what a draft saves.
#include "app/gui/panels/inference.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "app/counted.h"
#include "app/gui/panels/empty_state.h"
#include "app/gui/panels/panels.h"
#include "app/gui/presets.h"
#include "app/gui/widgets/chart.h"
#include "app/gui/widgets/fields.h"
#include "app/gui/widgets/legend.h"
#include "app/gui/widgets/parts.h"
#include "app/gui/widgets/text.h"
#include "app/gui/widgets/tile.h"
#include "sim/format.h"

namespace app::gui {
namespace {

ImU32 kind_color(const Palette& c, std::size_t kind) {
  using B = sim::BufferClass;
  static constexpr std::array<B, sim::kCount<sim::CostKind>> like = {B::parameter, B::kv_cache, B::activation,
                                                                     B::communication, B::gradient};
  return c.memory[static_cast<std::size_t>(like[kind])];
}
ImU32 memory_color(const Palette& c, sim::BufferClass like) {
  return c.memory[static_cast<std::size_t>(like)];
}

double d(std::int64_t n) {
  return static_cast<double>(n);
}
std::int64_t whole(double value) {
  return std::llround(value);
}

// Two significant digits where there is little, none after the point where there is much.
std::string few_digits(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, value < 10 ? "%.2g" : "%.0f", value);
  return buffer;
}

// Doubling from what the value is near to.
std::int64_t power_of_two_near(double value) {
  return std::int64_t{1} << static_cast<int>(std::lround(std::log2(std::max(1.0, value))));
}

const std::vector<std::string>& engines() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const std::string& name : preset_choices(sim::PresetKind::implementation))
      if (sim::load_implementation_preset(name).serving) all.push_back(name);
    return all;
  }();
  return names;
}

void engine_picker(const ContextWith<InferenceState>& context) {
  const Look& look = context.look;
  InferenceChoices& choices = context.state.choices;
  const std::string engine = engine_of(context.scenario, choices.engine);
  ImGui::AlignTextToFramePadding();
  text(look, TextRole::caption, look.color().dim, "engine");
  ImGui::SameLine(0, look.px(6));
  if (!begin_picker(look, "engine", engine, look.px(200))) return;
  for (const std::string& name : engines())
    if (ImGui::Selectable(name.c_str(), name == engine)) {
      // The scenario's own is edited; beside another implementation, the panel's choice is no edit.
      if (context.scenario.implementation.serving)
        context.invoke("implementation." + name);
      else
        choices.engine = name;
    }
  end_picker();
}

class InferenceParts {
 public:
  explicit InferenceParts(const ContextWith<InferenceState>& context)
      : context_(context),
        look_(context.look),
        c_(look_.color()),
        study_(*context.state.study.result()),
        scope_(context.state) {}

  void phases(ImVec2 size) {
    const PartPlace place(size);
    const sim::Workload& w = study_.scenario.workload;
    chart_title(look_, "Prefill and decode",
                counted(w.batch_size, "sequence") + " of " + sim::format_count(w.prompt_length) + " + " +
                    sim::format_count(w.max_new_tokens) + " tokens");
    phase("First token", study_.prefill, size.x);
    phase("A later token", study_.decode, size.x, beside_overview());
    std::vector<LegendEntry> entries;
    for (std::size_t kind = 0; kind < kKindNames.size(); ++kind)
      if (study_.prefill.time.parts[kind].expected.value + study_.decode.time.parts[kind].expected.value > 0)
        entries.push_back({kind_color(c_, kind), kKindNames[kind]});
    ImGui::Dummy({0, look_.px(4)});
    draw_legend(look_, entries, size.x);
    const sim::ServedBatch& served = *study_.served;
    ImGui::Dummy({0, look_.px(4)});
    fact_row(look_, "Whole batch", sim::format(served.times.total.total()), size.x);
    fact_row(look_, "Output", token_rate(served.output_per_second), size.x);
    fact_row(look_, "90 % band", "a factor of " + few_digits(served.band), size.x);
    fact_row(look_, "Weights a device", sim::format(served.memory.weights), size.x);
    fact_row(look_, "Cache of a token, a device",
             sim::format(sim::Bytes{static_cast<std::int64_t>(served.memory.cache_of_token)}), size.x);
    fact_row(look_, "Requests that fit",
             sim::format_count(static_cast<std::int64_t>(served.requests_that_fit)), size.x);
    place.fill();
  }

  void cache(ImVec2 size) {
    const CacheStudy& s = study_.cache;
    const PartPlace place(size);
    chart_title(look_, "KV cache", cache_sentence());
    double sequences = d(s.sequences);
    if (slider(look_, "sequences", sequences, {1, 1024, true}, sim::format_count(s.sequences), size.x))
      scope_.choices.sequences = power_of_two_near(sequences);
    const double greatest = std::min(
        std::max({s.device * 1.1, s.weights + s.reserved + s.points.back().contiguous}), s.device * 2);
    const ScaleUnit unit = byte_unit(s.device);
    Chart chart(look_, "##cache", place.rest(), {"tokens a sequence", 0, d(s.longest), false, {1, ""}},
                linear_axis(std::string("memory of a device, ") + unit.name, greatest, unit));
    if (!chart) return;
    draw_cache(chart, s);
  }

  void rates(ImVec2 size) {
    const PartPlace place(size);
    chart_title(look_, "Latency against throughput", "each dot a batch; hollow: its cache does not fit");
    const RateCurve& asked = study_.rates.front();
    double tokens = d(asked.context);
    const double most = d(std::max<std::int64_t>(4096, study_.scenario.model.max_position_embeddings));
    if (slider(look_, "context", tokens, {64, most, true}, sim::format_count(asked.context) + " tokens",
               size.x))
      scope_.choices.context = std::min(whole(most), power_of_two_near(tokens));
    double user = 0, device = 0, least_device = 1e300, least_user = 1e300;
    for (const RateCurve& curve : study_.rates)
      for (const RatePoint& point : curve.points) {
        user = std::max(user, point.per_user);
        device = std::max(device, point.per_device);
        least_user = std::min(least_user, point.per_user);
        least_device = std::min(least_device, point.per_device);
      }
    Chart chart(look_, "##rates", place.rest(),
                logarithmic_axis("tokens/s a user (1 / time a token)", least_user, user),
                logarithmic_axis("tokens/s a device", least_device, device));
    if (!chart) return;
    for (std::size_t i = study_.rates.size(); i-- > 0;) draw_rate_curve(chart, study_.rates[i], i == 0);
  }

  void traffic(ImVec2 size) {
    const TrafficStudy& s = study_.traffic;
    const PartPlace place(size);
    chart_title(look_, "Continuous batching", s.refusal.empty() ? traffic_sentence() : "");
    traffic_sliders(size.x);
    if (!s.refusal.empty()) {
      text_wrapped(look_, TextRole::body, c_.bad, s.refusal);
      return place.fill();
    }
    traffic_table(size.x);
    const bool both = place.rest().y >= look_.px(160);
    if (!both) return requests_over_time(place.rest());
    if (!ImPlot::BeginAlignedPlots("traffic")) return;
    requests_over_time({size.x, std::floor(place.rest().y * 0.55f)});
    occupancy_over_time(place.rest());
    ImPlot::EndAlignedPlots();
  }

  void speculation(ImVec2 size) {
    const SpeculationStudy& s = study_.speculation;
    const PartPlace place(size);
    chart_title(look_, "Speculative decoding", speculation_sentence());
    draft_picker();
    if (!s.refusal.empty()) {
      text_wrapped(look_, TextRole::body, c_.bad, s.refusal);
      return place.fill();
    }
    ImGui::SameLine(0, look_.px(8));
    double percent = scope_.acceptance * 100;
    if (slider(look_, "accepted", percent, {0, 100, false}, few_digits(percent) + " %",
               std::max(look_.px(90), ImGui::GetContentRegionAvail().x)))
      scope_.acceptance = percent / 100;
    Chart chart(look_, "##speculation", place.rest(),
                {"share of the draft's tokens that are accepted, %", 0, 100, false, {1, ""}},
                {"draft's tokens", 0.5, static_cast<double>(kLongestDraft) + 0.5, false, {1, ""}});
    if (chart) draw_speedups(chart, s);
  }

 private:
  // Why Overview has another number: the implementation that is configured is no engine.
  std::string beside_overview() const {
    const sim::Scenario& s = context_.scenario;
    if (s.workload.task != sim::Task::generate || s.implementation.serving || !context_.prediction.report)
      return "";
    const auto alone = sim::tpot(*context_.prediction.report);
    return alone ? "with " + s.implementation.name + ", which is no engine, " + sim::format(*alone) : "";
  }

  void phase(std::string_view words, const PhaseStudy& phase, float width,
             const std::string& note = "") const {
    ImGui::Dummy({0, look_.px(4)});
    fact_row(look_, words, sim::format(phase.time.total()), width, note);
    std::vector<BarPart> parts;
    for (std::size_t kind = 0; kind < phase.time.parts.size(); ++kind)
      parts.push_back({phase.time.parts[kind].expected.value, kind_color(c_, kind)});
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float height = std::floor(look_.px(16));
    draw_bar(ImGui::GetWindowDrawList(), look_, at, {at.x + width, at.y + height}, parts, 0);
    pressable(std::string(words).c_str(), {width, height});
    if (ImGui::IsItemHovered()) describe_parts(phase.time);
    text_fitted(look_, TextRole::caption, c_.dim,
                "bound by " + std::string(sim::name(phase.bound)) + ": " +
                    sim::format_percent(phase.of_peak) + " of the peak FLOP/s, " +
                    sim::format_percent(phase.of_bandwidth) + " of the bandwidth",
                width);
  }

  void describe_parts(const sim::CostBreakdown& time) const {
    ImGui::BeginTooltip();
    for (std::size_t kind = 0; kind < time.parts.size(); ++kind)
      if (time.parts[kind].expected.value > 0)
        text(look_, TextRole::number, c_.text,
             std::string(kKindNames[kind]) + "  " + sim::format(time.parts[kind].expected));
    ImGui::EndTooltip();
  }

  std::string cache_sentence() const {
    const CacheStudy& s = study_.cache;
    if (s.limit <= s.weights + s.reserved) return "the weights alone do not fit";
    if (s.full_at) return "full at " + sim::format_count(whole(*s.full_at)) + " tokens a sequence";
    return "all fit at " + sim::format_count(s.longest) + " tokens";
  }

  void draw_cache(Chart& chart, const CacheStudy& s) const {
    std::vector<ChartPoint> nothing, weights, used, paged, contiguous;
    const double below = s.weights + s.reserved;
    for (const CachePoint& p : s.points) {
      nothing.push_back({p.tokens, 0});
      weights.push_back({p.tokens, below});
      used.push_back({p.tokens, below + p.used});
      paged.push_back({p.tokens, below + p.paged});
      contiguous.push_back({p.tokens, below + p.contiguous});
    }
    const ImU32 weight = memory_color(c_, sim::BufferClass::parameter);
    const ImU32 cache = memory_color(c_, sim::BufferClass::kv_cache);
    chart.area(weights, nothing, with_alpha(weight, 0.75f));
    chart.area(used, weights, with_alpha(cache, 0.75f));
    chart.area(contiguous, used, with_alpha(cache, 0.13f));
    chart.line(contiguous, with_alpha(cache, 0.9f), Stroke::dashed);
    chart.line(used, cache);
    chart.horizontal(s.device, c_.bad, "the device's memory");
    if (s.limit < s.device * 0.99)
      chart.horizontal(s.limit, c_.warn, "what the engine fills", Stroke::dashed);
    const CachePoint &middle = s.points[s.points.size() / 2], &end = s.points.back();
    chart.name({middle.tokens, below / 2}, text_on(weight), "weights and the engine's own");
    chart.name({0, below + end.contiguous * 0.75}, c_.text,
               "contiguous: " + sim::format_percent(1 - middle.used / std::max(1.0, middle.contiguous)) +
                   " unused half-way");
    if (s.block > 1)
      chart.name({end.tokens, below + end.used * 0.25}, c_.text,
                 "pages of " + sim::format_count(s.block) + ": " +
                     sim::format_percent(d(s.block - 1) / 2 / std::max(1.0, middle.tokens)) + " unused");
    if (const auto at = chart.pointer()) {
      const auto after = std::find_if(s.points.begin(), s.points.end(),
                                      [&](const CachePoint& p) { return p.tokens >= at->x; });
      const CachePoint& p = after == s.points.end() ? s.points.back() : *after;
      const auto bytes = [](double b) { return sim::format(sim::Bytes{static_cast<std::int64_t>(b)}); };
      ImGui::SetTooltip("%s tokens a sequence\nused %s, in pages %s, contiguous %s",
                        sim::format_count(whole(p.tokens)).c_str(), bytes(p.used).c_str(),
                        bytes(p.paged).c_str(), bytes(p.contiguous).c_str());
    }
  }

  void draw_rate_curve(Chart& chart, const RateCurve& curve, bool asked) const {
    const ImU32 color = asked ? c_.predicted : with_alpha(c_.mute, 0.75f);
    std::vector<ChartPoint> points;
    for (const RatePoint& p : curve.points) points.push_back({p.per_user, p.per_device});
    chart.line(points, color, Stroke::dashed, asked ? 1.8f : 1.2f);
    if (!asked) {
      chart.name(points.back(), c_.mute, sim::format_count(curve.context) + " tokens");
      return;
    }
    for (const RatePoint& p : curve.points) {
      chart.dot({p.per_user, p.per_device}, p.fits ? color : c_.bad, p.fits);
      chart.name({p.per_user, p.per_device}, p.fits ? c_.text : c_.bad,
                 p.batch == 1 ? "batch 1" : sim::format_count(p.batch));
    }
    const RatePoint* p = chart.nearest(
        curve.points,
        [](const RatePoint& one) {
          return ChartPoint{one.per_user, one.per_device};
        },
        10);
    if (p)
      ImGui::SetTooltip("batch %s: %s a token, %s a device%s", sim::format_count(p->batch).c_str(),
                        sim::format(p->tpot).c_str(), token_rate(p->per_device).c_str(),
                        p->fits ? "" : "\nits cache does not fit");
  }

  std::string traffic_sentence() const {
    const TrafficStudy& s = study_.traffic;
    std::string words = token_rate(s.run.output_per_second()) + ", " +
                        sim::format_percent(s.requests_per_second / s.most_per_second) +
                        " of what the engine can answer";
    if (s.run.preemptions > 0) words += ", " + sim::format_count(s.run.preemptions) + " preempted";
    return words;
  }

  void traffic_sliders(float width) {
    const TrafficStudy& s = study_.traffic;
    InferenceChoices& choices = scope_.choices;
    const float gap = look_.px(6), each = std::floor((width - 2 * gap) / 3);
    double rate = s.refusal.empty() ? s.requests_per_second : std::max(0.1, choices.requests_per_second);
    const double most = std::max(1.0, s.most_per_second * 1.5);
    if (slider(look_, "requests", rate, {most / 300, most, true}, few_digits(rate) + " /s", each))
      choices.requests_per_second = rate;
    ImGui::SameLine(0, gap);
    double prompt = d(s.prompt), output = d(s.output);
    const double longest = d(std::max<std::int64_t>(1024, study_.scenario.model.max_position_embeddings / 2));
    if (slider(look_, "prompt, tokens", prompt, {16, longest, true}, sim::format_count(s.prompt), each))
      choices.prompt = power_of_two_near(prompt);
    ImGui::SameLine(0, gap);
    if (slider(look_, "output, tokens", output, {1, std::min(longest, 8192.0), true},
               sim::format_count(s.output), each))
      choices.output = power_of_two_near(output);
  }

  void traffic_table(float width) const {
    const TrafficStudy& s = study_.traffic;
    if (!ImGui::BeginTable("percentiles", 4, ImGuiTableFlags_SizingStretchSame, {width, 0})) return;
    ImGui::TableNextRow();
    for (const char* heading : {"requests within", "50 %", "90 %", "99 %"}) {
      ImGui::TableNextColumn();
      (heading[0] == 'r' ? text : text_right)(look_, TextRole::caption, c_.dim, heading);
    }
    for (const auto& [words, times] :
         {std::pair("first token", &s.ttft), std::pair("a later token", &s.tpot)}) {
      ImGui::TableNextRow();
      ImGui::TableNextColumn();
      text(look_, TextRole::caption, c_.text, words);
      for (const sim::Seconds time : *times) {
        ImGui::TableNextColumn();
        text_right(look_, TextRole::number, c_.predicted, sim::format(time));
      }
    }
    ImGui::EndTable();
  }

  // Where there are more points than pixels: the highest and the last of each pixel.
  template <class Value>
  std::vector<ChartPoint> over_time(float pixels, Value value) const {
    const sim::Simulation& run = study_.traffic.run;
    std::vector<ChartPoint> points;
    const double cell = run.duration.value / std::max(1.0f, pixels);
    double until = 0, highest = 0, last = 0;
    for (const sim::OccupancyPoint& p : run.occupancy) {
      if (p.time.value >= until) {
        if (highest > last) points.push_back({p.time.value, highest});
        points.push_back({p.time.value, value(p)});
        until = p.time.value + cell;
        highest = 0;
      }
      last = value(p);
      highest = std::max(highest, last);
    }
    return points;
  }

  void requests_over_time(ImVec2 size) const {
    const TrafficStudy& s = study_.traffic;
    const auto running = over_time(size.x, [](const sim::OccupancyPoint& p) { return d(p.running); });
    const auto waiting = over_time(size.x, [](const sim::OccupancyPoint& p) { return d(p.waiting); });
    double greatest = 4;
    for (const auto* points : {&running, &waiting})
      for (const ChartPoint& p : *points) greatest = std::max(greatest, p.y);
    Chart chart(look_, "##requests", size, {"", 0, s.run.duration.value, false, {1, ""}},
                linear_axis("requests", greatest));
    if (!chart) return;
    std::vector<ChartPoint> zero;
    for (const ChartPoint& p : running) zero.push_back({p.x, 0});
    chart.area(running, zero, with_alpha(c_.predicted, 0.2f));
    chart.line(running, c_.predicted);
    if (!running.empty()) chart.name(running[running.size() / 3], c_.predicted, "running");
    const auto peak = std::max_element(waiting.begin(), waiting.end(),
                                       [](const auto& a, const auto& b) { return a.y < b.y; });
    // None waits: a line upon the axis would say so without a name.
    if (peak != waiting.end() && peak->y > 0) {
      chart.line(waiting, c_.warn);
      chart.name(*peak, c_.warn, "waiting, at most " + sim::format_count(whole(peak->y)));
    }
    if (d(s.max_sequences) < greatest * 1.06)
      chart.horizontal(d(s.max_sequences), c_.ceiling, "most at a time");
  }

  void occupancy_over_time(ImVec2 size) const {
    const TrafficStudy& s = study_.traffic;
    const auto used = over_time(size.x, [&](const sim::OccupancyPoint& p) {
      return 100 * d(p.used_blocks) / d(std::max<std::int64_t>(1, s.blocks));
    });
    double greatest = 5;
    for (const ChartPoint& p : used) greatest = std::max(greatest, p.y);
    Chart chart(look_, "##occupancy", size, {"seconds", 0, s.run.duration.value, false, {1, ""}},
                linear_axis("KV used, %", std::min(100.0, greatest * 1.2)));
    if (!chart) return;
    std::vector<ChartPoint> zero;
    for (const ChartPoint& p : used) zero.push_back({p.x, 0});
    const ImU32 cache = memory_color(c_, sim::BufferClass::kv_cache);
    chart.area(used, zero, with_alpha(cache, 0.4f));
    chart.line(used, cache);
    // A low plot has no room for its axis' name.
    if (!used.empty()) chart.name(used[used.size() / 3], c_.text, "KV cache used, %");
    chart.horizontal(100, c_.bad, "full");
  }

  std::string speculation_sentence() const {
    const SpeculationStudy& s = study_.speculation;
    if (!s.refusal.empty()) return "";
    const std::int64_t best = s.best_length(scope_.acceptance);
    const double speedup = s.speedup(scope_.acceptance, best);
    if (speedup <= 1) return "no gain at this acceptance";
    return "best: " + counted(best, "token") + ", " + few_digits(speedup) + "x, " +
           sim::format(s.plain_step * (1 / speedup)) + " a token at batch " + few_digits(s.sequences);
  }

  void draft_picker() {
    InferenceChoices& choices = scope_.choices;
    ImGui::AlignTextToFramePadding();
    text(look_, TextRole::caption, c_.dim, "draft");
    ImGui::SameLine(0, look_.px(6));
    if (!begin_picker(look_, "draft", study_.speculation.draft, look_.px(190))) return;
    if (ImGui::Selectable("one layer of the model", choices.draft.empty())) choices.draft.clear();
    for (const std::string& name : smaller_models())
      if (ImGui::Selectable(name.c_str(), name == choices.draft)) choices.draft = name;
    end_picker();
  }

  // That speak the same vocabulary.
  std::vector<std::string> smaller_models() const {
    const sim::Model& model = study_.scenario.model;
    static const std::vector<sim::Model> all = [] {
      std::vector<sim::Model> models;
      for (const std::string& name : sim::preset_names(sim::PresetKind::model))
        models.push_back(sim::load_model_preset(name));
      return models;
    }();
    const std::int64_t size = sim::count_parameters(model).active;
    std::vector<std::string> names;
    for (const sim::Model& other : all)
      if (other.vocab_size == model.vocab_size && sim::count_parameters(other).active * 2 < size)
        names.push_back(other.name);
    return names;
  }

  // Blue where it gains, red where it loses; as much as twice is full colour.
  ImU32 speedup_color(double speedup) const {
    const double strength = std::min(1.0, std::abs(std::log2(speedup)) / 1.5);
    return mix(c_.panel, speedup >= 1 ? c_.predicted : c_.bad, static_cast<float>(0.12 + 0.78 * strength));
  }

  void draw_speedups(Chart& chart, const SpeculationStudy& s) {
    constexpr int kColumns = 50;
    std::vector<ChartPoint> best;
    for (int column = 0; column < kColumns; ++column) {
      const double from = 1.0 * column / kColumns, to = 1.0 * (column + 1) / kColumns;
      for (std::int64_t length = 1; length <= kLongestDraft; ++length) {
        const ImU32 left = speedup_color(s.speedup(from, length)),
                    right = speedup_color(s.speedup(to, length));
        const ImVec2 a = chart.at({100 * from, d(length) + 0.5}), b = chart.at({100 * to, d(length) - 0.5});
        chart.list()->AddRectFilledMultiColor({std::floor(a.x), std::floor(a.y)},
                                              {std::floor(b.x), std::floor(b.y)}, left, right, right, left);
      }
      if (s.speedup(to, s.best_length(to)) > 1) best.push_back({100 * to, d(s.best_length(to))});
    }
    chart.line(best, c_.text, Stroke::solid, 1.6f);
    // Where neither line is.
    for (const int percent : {10, 25, 40, 55, 75, 92})
      for (const std::int64_t length : {std::int64_t{1}, std::int64_t{4}, std::int64_t{8}, kLongestDraft}) {
        const double acceptance = percent / 100.0, speedup = s.speedup(acceptance, length);
        if (std::abs(acceptance - scope_.acceptance) < 0.06) continue;
        if (speedup > 1 && std::abs(s.best_length(acceptance) - length) <= 1) continue;
        const ImVec2 at = chart.at({static_cast<double>(percent), d(length)});
        draw_text(chart.list(), look_, TextRole::caption, at, text_on(speedup_color(speedup)),
                  few_digits(speedup) + "x", {0.5f, 0.5f});
      }
    chart.vertical(scope_.acceptance * 100, c_.text, "");
    if (const auto at = chart.pointer()) {
      const std::int64_t length = std::clamp<std::int64_t>(whole(at->y), 1, kLongestDraft);
      const double acceptance = std::clamp(at->x / 100, 0.0, 1.0);
      ImGui::SetTooltip("%s accepted, %s tokens: %sx", sim::format_percent(acceptance).c_str(),
                        sim::format_count(length).c_str(), few_digits(s.speedup(acceptance, length)).c_str());
      if (ImGui::IsMouseClicked(ImGuiMouseButton_Left)) scope_.acceptance = acceptance;
    }
  }

  const PanelContext& context_;
  const Look& look_;
  const Palette& c_;
  const InferenceStudy& study_;
  InferenceState& scope_;
};

std::string caption(const ContextWith<InferenceState>& context) {
  const auto& study = context.state.study;
  if (!study.result() || !study.progress().failure.empty()) return "";
  const sim::Scenario& s = study.result()->scenario;
  std::string words = s.model.name;
  if (s.strategy.tensor_parallel > 1) words += ", tensor " + sim::format_count(s.strategy.tensor_parallel);
  return words + ", " + std::string(sim::name(s.workload.dtype)) + " on " + s.hardware.name;
}

void draw(const ContextWith<InferenceState>& context) {
  if (!context.prediction.report && context.scenario.hardware.peak.empty()) {
    draw_missing_prediction(context);
    return;
  }
  context.state.study.follow({context.scenario, context.calibration, context.state.choices});
  engine_picker(context);
  if (draw_missing_result(context, context.state.study, "This cannot be served")) return;
  InferenceParts parts(context);
  const std::array<PanelPart, 5> all = {{{"phases", [&](ImVec2 size) { parts.phases(size); }},
                                         {"cache", [&](ImVec2 size) { parts.cache(size); }},
                                         {"rates", [&](ImVec2 size) { parts.rates(size); }},
                                         {"traffic", [&](ImVec2 size) { parts.traffic(size); }, 2},
                                         {"drafts", [&](ImVec2 size) { parts.speculation(size); }}}};
  draw_parts(context.look, context.state.tab, all, true);
}

std::vector<Figure> figures(const ContextWith<InferenceState>& context) {
  const auto& study = context.state.study;
  if (!study.result() || !study.progress().failure.empty()) return {};
  const InferenceStudy& s = *study.result();
  const Palette& c = context.look.color();
  FigurePlot rates{
      {"of a user", Measure::tokens_per_second, true}, {"of a device", Measure::tokens_per_second, true}, {}};
  for (const RateCurve& curve : s.rates) {
    FigureCurve line{sim::format_count(curve.context) + " tokens of context",
                     rates.curves.empty()
                         ? c.predicted
                         : mix(c.mute, c.panel, 0.2f * static_cast<float>(rates.curves.size())),
                     Mark::dashed,
                     {}};
    for (const RatePoint& p : curve.points) {
      line.points.push_back({p.per_user, p.per_device});
      line.names.push_back("batch " + sim::format_count(p.batch));
    }
    if (!line.points.empty()) rates.curves.push_back(std::move(line));
  }
  FigurePlot cache{{"tokens of a sequence", Measure::count},
                   {"memory of a device", Measure::bytes},
                   {},
                   {{"the device's memory", s.cache.device, c.bad}}};
  const ImU32 used = memory_color(c, sim::BufferClass::kv_cache);
  FigureCurve by_tokens{"used", used, Mark::line, {}}, contiguous{"contiguous", c.mute, Mark::dashed, {}};
  for (const CachePoint& p : s.cache.points) {
    const double below = s.cache.weights + s.cache.reserved;
    by_tokens.points.push_back({p.tokens, below + p.used});
    contiguous.points.push_back({p.tokens, below + p.contiguous});
  }
  cache.curves = {std::move(by_tokens), std::move(contiguous)};
  std::vector<Figure> all = {{"Throughput against latency", std::move(rates)},
                             {"Memory of the cache", std::move(cache)}};
  if (s.traffic.refusal.empty()) {
    FigureTable percentiles{{{"requests within"},
                             {"50 %", Measure::seconds},
                             {"90 %", Measure::seconds},
                             {"99 %", Measure::seconds}},
                            {}};
    percentiles.rows = {{std::string("first token"), s.traffic.ttft[0].value, s.traffic.ttft[1].value,
                         s.traffic.ttft[2].value},
                        {std::string("a later token"), s.traffic.tpot[0].value, s.traffic.tpot[1].value,
                         s.traffic.tpot[2].value}};
    all.push_back({"Latency under traffic", std::move(percentiles)});
  }
  return all;
}

}  // namespace

InferenceState::InferenceState(const PanelTools& tools)
    : study(tools.studies.add<InferenceQuestion, InferenceStudy>(
          [studies = std::make_shared<InferenceStudies>()](const InferenceQuestion& question, const auto&) {
            return studies->study(question);
          })) {}

extern const PanelEntry inference_panel = {
    "inference", "Inference", "what serving the model takes: latency, memory, traffic", Dock::lower_left,
    panel_of<InferenceState, caption, draw, figures>};

}  // namespace app::gui
