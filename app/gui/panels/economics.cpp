// What a run costs in hours, money, energy and carbon; what failures, the batch and the model's size do to
// it; and what published models took for how well they do.
#include "app/gui/panels/economics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "app/counted.h"
#include "app/gui/panels/cost_text.h"
#include "app/gui/panels/empty_state.h"
#include "app/gui/panels/panels.h"
#include "app/gui/widgets/chart.h"
#include "app/gui/widgets/fields.h"
#include "app/gui/widgets/numbers.h"
#include "app/gui/widgets/parts.h"
#include "app/gui/widgets/text.h"
#include "sim/economics/batch_size.h"
#include "sim/economics/run_cost.h"
#include "sim/economics/scaling_law.h"
#include "sim/format.h"
#include "sim/report/metrics.h"

namespace app::gui {
namespace {

// A share of the time near all of it, in as many digits as tell it from all.
std::string share_of_time(double share) {
  const int digits = share < 1 ? static_cast<int>(std::ceil(-std::log10(1 - share))) - 2 : 0;
  return digits > 1 ? fmt::format("{:.{}f} %", 100 * share, digits) : sim::format_percent(share);
}

// Families in colours that neighbours do not share.
ImU32 family_color(const Look& look, std::size_t family) {
  using B = sim::BufferClass;
  static constexpr std::array<B, 6> like = {B::parameter,     B::activation, B::gradient,
                                            B::communication, B::optimizer,  B::kv_cache};
  return look.color().memory[static_cast<std::size_t>(like[family % like.size()])];
}

class EconomicsParts {
 public:
  explicit EconomicsParts(const ContextWith<EconomicsState>& context)
      : context_(context),
        look_(context.look),
        c_(look_.color()),
        study_(*context.state.study.result()),
        scope_(context.state),
        report_(context.prediction.report.get()),
        parameters_(static_cast<double>(sim::count_parameters(context.scenario.model).active)) {
    const sim::Hardware& hardware = context.scenario.hardware;
    price_ = study_.rates.price_of(hardware.name);
    const sim::Site* site = study_.rates.site(scope_.site);
    if (site == nullptr && !study_.rates.sites.empty()) site = &study_.rates.sites.front();
    if (site) site_ = *site;
    if (scope_.pue > 0) site_.pue = scope_.pue;
    if (scope_.kg_co2e_per_kwh > 0) site_.kg_co2e_per_kwh = scope_.kg_co2e_per_kwh;
    if (scope_.checkpoint_s > 0) reliability_.checkpoint = {scope_.checkpoint_s};
    usd_per_hour_ = scope_.usd_per_hour > 0 ? scope_.usd_per_hour : price_ ? price_->usd() : 0;
    tokens_ = scope_.tokens > 0 ? scope_.tokens : sim::compute_optimal_tokens(parameters_);
    devices_ = context.scenario.strategy.devices();
    interval_ = sim::best_checkpoint_interval(reliability_, devices_);
    if (!report_) return;
    plan_ = {.tokens = tokens_,
             .tokens_per_second = sim::tokens_per_second(*report_),
             .devices = devices_,
             .power_w = hardware.power_w,
             .usd_per_device_hour = usd_per_hour_,
             .site = site_,
             .goodput = trains() ? sim::goodput(reliability_, devices_, interval_) : 1};
  }

  bool trains() const { return context_.scenario.workload.task == sim::Task::train; }

  void run(ImVec2 size) {
    const PartPlace place(size);
    chart_title(look_, trains() ? "The whole run" : "A million tokens", run_sentence());
    const float gap = look_.px(6), half = std::floor((size.x - gap) / 2);
    if (trains()) {
      if (slider(look_, "tokens", tokens_, {1e8, 1e14, true}, sim::format_short(tokens_), half))
        scope_.tokens = tokens_;
      ImGui::SameLine(0, gap);
    }
    double price = std::max(usd_per_hour_, 0.01);
    if (slider(look_, "a device hour", price, {0.1, 20, true},
               usd_per_hour_ > 0 ? fmt::format("${:.2f}", price) : "not set", trains() ? half : size.x))
      scope_.usd_per_hour = price;
    if (slider(look_, "PUE", site_.pue, {1, 2, false}, significant(site_.pue), half)) scope_.pue = site_.pue;
    ImGui::SameLine(0, gap);
    if (slider(look_, "grid, kg CO2e/kWh", site_.kg_co2e_per_kwh, {0.01, 1, true},
               significant(site_.kg_co2e_per_kwh), half))
      scope_.kg_co2e_per_kwh = site_.kg_co2e_per_kwh;
    site_picker();
    ImGui::Dummy({0, look_.px(2)});
    facts(place.rest());
    place.fill();
  }

  void failures(ImVec2 size) {
    const PartPlace place(size);
    const sim::Seconds between = sim::mean_time_between_failures(reliability_, devices_);
    chart_title(look_, "Failures",
                "one every " + sim::format(between) + " on " + counted(std::llround(devices_), "device"));
    double wait = reliability_.checkpoint.value;
    if (slider(look_, "a checkpoint takes", wait, {0.1, 600, true}, sim::format(sim::Seconds{wait}), size.x))
      scope_.checkpoint_s = wait;
    std::vector<ChartPoint> points;
    constexpr int kPoints = 96;
    const double least = interval_.value / 30, most = interval_.value * 30;
    double lowest = 100;
    for (int i = 0; i <= kPoints; ++i) {
      const double at = least * std::pow(most / least, 1.0 * i / kPoints);
      points.push_back({at, 100 * sim::goodput(reliability_, devices_, {at})});
      lowest = std::min(lowest, points.back().y);
    }
    constexpr double kHour = 3600;
    const ScaleUnit unit = interval_.value >= kHour ? ScaleUnit{kHour, "h"} : time_unit(interval_.value);
    Chart chart(look_, "##failures", place.rest(),
                {std::string("checkpoint every, ") + unit.name, least, most, true, unit},
                {"time that is progress, %",
                 std::max(0.0, lowest - 0.08 * (100 - lowest)),
                 100 + 0.08 * (100 - lowest),
                 false,
                 {1, ""}});
    if (!chart) return;
    chart.line(points, c_.predicted, Stroke::dashed, 1.8f);
    const double share = sim::goodput(reliability_, devices_, interval_);
    const ChartPoint best = {interval_.value, 100 * share};
    chart.dot(best, c_.predicted);
    chart.name(best, c_.text, "best: every " + sim::format(interval_) + ", " + share_of_time(share));
  }

  void batch(ImVec2 size) {
    const PartPlace place(size);
    if (study_.batches.size() < 2) {
      chart_title(look_, "Batch size");
      text_wrapped(
          look_, TextRole::body, c_.dim,
          trains()
              ? "No other number of data-parallel devices divides this batch."
              : "How many steps and tokens a loss takes at each batch is of training: choose Train above.");
      return place.fill();
    }
    const double now = static_cast<double>(context_.scenario.workload.global_batch_size *
                                           context_.scenario.workload.seq_len);
    const double loss = law().loss(parameters_, tokens_);
    double critical = scope_.critical_batch > 0 ? scope_.critical_batch : sim::critical_batch_by_loss(loss);
    const sim::BatchTradeOff run = sim::trade_off(tokens_, now, critical);
    const double least = study_.batches.front().tokens / 2,
                 most = std::max(study_.batches.back().tokens, critical) * 2;
    constexpr double kRatio = 1.05;
    const auto step = [&](double tokens) { return study_.step(tokens); };
    const auto usd = [&](double tokens) { return study_.devices(tokens) * usd_per_hour_ / 3600; };
    const sim::BatchOptimum fastest = sim::best_batch(run, least, most, kRatio, step);
    const bool priced = usd_per_hour_ > 0;
    const sim::BatchOptimum cheapest =
        sim::best_batch(run, least, most, kRatio, step, priced ? usd : std::function<double(double)>{});
    std::string sentence =
        "soonest at " + sim::format_short(fastest.batch) + " tokens: " + sim::format(fastest.time);
    if (priced)
      sentence += "; cheapest at " + sim::format_short(cheapest.batch) + ": " + dollars(cheapest.usd);
    chart_title(look_, "Batch size", sentence);
    if (slider(look_, "critical batch", critical, {1e4, 1e9, true}, sim::format_short(critical) + " tokens",
               size.x))
      scope_.critical_batch = critical;
    std::vector<ChartPoint> steps, tokens, time, money;
    double greatest = 2;
    for (double at = least; at <= most; at *= kRatio) {
      const double seconds = step(at).value * run.steps(at);
      steps.push_back({at, run.steps(at) / run.least_steps});
      tokens.push_back({at, run.tokens(at) / run.least_tokens});
      time.push_back({at, seconds / fastest.time.value});
      if (priced) money.push_back({at, seconds * usd(at) / cheapest.usd});
    }
    for (const auto* curve : {&steps, &tokens, &time, &money})
      for (const ChartPoint& p : *curve) greatest = std::max(greatest, p.y);
    Chart chart(look_, "##batch", place.rest(),
                {"batch, tokens, each device with as many", least, most, true, {1, ""}},
                {"times the least", 0.9, std::min(greatest * 1.2, 1000.0), true, {1, ""}});
    if (!chart) return;
    const ImU32 dim = c_.mute, paid = c_.text;
    chart.line(steps, dim);
    chart.line(tokens, dim);
    chart.line(time, c_.predicted, Stroke::dashed, 1.8f);
    chart.line(money, paid, Stroke::dashed, 1.8f);
    chart.vertical(critical, c_.ceiling, "critical");
    chart.vertical(now, c_.good, "now", Stroke::dashed);
    chart.dot({fastest.batch, 1}, c_.predicted);
    if (priced) chart.dot({cheapest.batch, 1}, paid);
    chart.name(steps[steps.size() / 8], dim, "steps");
    chart.name(tokens[tokens.size() * 7 / 8], dim, "tokens");
    chart.name(time[time.size() / 5], c_.predicted, "time");
    if (priced) chart.name(money[money.size() * 3 / 4], paid, "money");
  }

  void model_size(ImVec2 size) {
    const PartPlace place(size);
    const sim::ScalingLaw fit = law();
    const double loss = fit.loss(parameters_, tokens_);
    const sim::ModelAndData least = sim::least_lifetime_flops(fit, loss, scope_.served_tokens);
    chart_title(look_, "Model size for the same loss",
                "least in all: " + sim::format_short(least.parameters) + " on " +
                    sim::format_short(least.tokens) + " tokens");
    const float gap = look_.px(6);
    static constexpr std::array<std::string_view, 2> laws = {"Hoffmann 2022", "refitted 2024"};
    const float laws_width = std::min(size.x * 0.5f, look_.px(220));
    slider(look_, "tokens served", scope_.served_tokens, {1e8, 1e16, true},
           sim::format_short(scope_.served_tokens), size.x - laws_width - gap);
    ImGui::SameLine(0, gap);
    if (const auto picked = segmented(look_, "law", scope_.hoffmann ? 0 : 1, laws, laws_width))
      scope_.hoffmann = *picked == 0;
    const auto lifetime = [&](double n) {
      const sim::ModelAndData model{n, sim::tokens_to_loss(fit, n, loss)};
      return std::pair(model.training_flops(), model.inference_flops(scope_.served_tokens));
    };
    std::vector<ChartPoint> training, serving, whole;
    const double from = sim::smallest_model(fit, loss) * 1.15;
    const double to = std::max(parameters_, least.parameters) * 30;
    constexpr int kPoints = 96;
    double lowest = 1e300;
    for (int i = 0; i <= kPoints; ++i) {
      const double n = from * std::pow(to / from, 1.0 * i / kPoints);
      const auto [train, serve] = lifetime(n);
      training.push_back({n, train});
      serving.push_back({n, serve});
      whole.push_back({n, train + serve});
      lowest = std::min(lowest, train + serve);
    }
    Chart chart(look_, "##size", place.rest(),
                {"parameters; at the dots: tokens a parameter", from, to, true, {1, ""}},
                {"ZFLOP over the model's life", lowest / 12, lowest * 40, true, {1e21, "ZFLOP"}});
    if (!chart) return;
    chart.line(training, c_.mute);
    chart.line(serving, c_.mute);
    chart.line(whole, c_.predicted, Stroke::dashed, 1.8f);
    const auto at = [&](double n) {
      const auto [train, serve] = lifetime(n);
      return ChartPoint{n, train + serve};
    };
    chart.dot(at(least.parameters), c_.predicted);
    chart.dot(at(parameters_), c_.good);
    chart.name(at(parameters_), c_.good, "this: " + significant(tokens_ / parameters_));
    chart.name(at(least.parameters), c_.predicted,
               "least: " + sim::format_short(least.tokens / least.parameters));
    chart.name(training[kPoints / 2], c_.mute, "training");
    chart.name(serving[kPoints / 2], c_.mute, "serving");
  }

  void hours_and_quality(ImVec2 size) {
    const PartPlace place(size);
    chart_title(look_, "Training against quality", "published: model cards and papers");
    quality_picker();
    std::vector<Mark> marks;
    for (std::size_t i = 0; i < study_.published.size(); ++i) {
      const sim::PublishedModel& m = study_.published[i];
      const auto quality = m.quality(scope_.quality);
      if (quality && m.gpu_hours)
        marks.push_back({{*m.gpu_hours / 1e6, *quality},
                         i,
                         true,
                         m.name,
                         sim::format_short(*m.gpu_hours) + " hours of " + m.gpu + "\n" + m.hours_source});
    }
    scatter("##hours", place.rest(), "million GPU hours", marks);
  }

  void throughput_and_quality(ImVec2 size) {
    const PartPlace place(size);
    const std::string& gpu = context_.scenario.hardware.name;
    chart_title(look_, "Generation against quality", "on one " + gpu + " or as named; hollow: 4-bit weights");
    std::vector<Mark> marks;
    for (const PublishedThroughput& t : study_.throughput) {
      const sim::PublishedModel& m = study_.published[t.model];
      const auto quality = m.quality(scope_.quality);
      if (!quality) continue;
      const auto mark = [&](const SequenceRate& rate, bool filled, const char* weights, std::string name) {
        if (!(rate.tokens_per_second > 0)) return;
        const std::string devices = sim::format_count(rate.devices) + " x " + gpu;
        if (rate.devices > 1)
          name += (name.empty() ? "" : ", ") + sim::format_count(rate.devices) + " devices";
        marks.push_back({{rate.tokens_per_second, *quality},
                         t.model,
                         filled,
                         std::move(name),
                         weights + token_rate(rate.tokens_per_second) + " on " + devices});
      };
      mark(t.bf16, true, "16 bits: ", m.name);
      // A model is named once.
      mark(t.int4, false, "4-bit weights: ", t.bf16.tokens_per_second > 0 ? "" : m.name);
    }
    scatter("##throughput", place.rest(), "tokens/s, one sequence, predicted", marks);
  }

  FigureTable facts_figure() const {
    FigureTable table{{{"of the run"}, {"predicted"}, {"by"}}, {}};
    for (const Fact& fact : run_facts()) table.rows.push_back({fact.words, fact.value, fact.note});
    return table;
  }

 private:
  struct Mark {
    ChartPoint at;
    std::size_t model = 0;
    bool filled = true;
    std::string name, says;
  };

  sim::ScalingLaw law() const { return scope_.hoffmann ? sim::hoffmann_2022() : sim::besiroglu_2024(); }

  std::string run_sentence() const {
    if (!trains()) return "";
    return significant(tokens_ / parameters_) + " tokens a parameter, loss " +
           significant(law().loss(parameters_, tokens_)) + " by scaling law";
  }

  void site_picker() {
    ImGui::AlignTextToFramePadding();
    text(look_, TextRole::caption, c_.dim, "site");
    ImGui::SameLine(0, look_.px(6));
    if (begin_picker(look_, "site", site_.name, look_.px(200))) {
      for (const sim::Site& site : study_.rates.sites)
        if (ImGui::Selectable(site.name.c_str(), site.name == site_.name)) {
          scope_.site = site.name;
          scope_.pue = scope_.kg_co2e_per_kwh = 0;
        }
      end_picker();
    }
    const bool edited = scope_.usd_per_hour > 0 || scope_.pue > 0 || scope_.kg_co2e_per_kwh > 0;
    if (!edited) return;
    ImGui::SameLine(0, look_.px(8));
    if (ImGui::Button("Dated rates")) scope_.usd_per_hour = scope_.pue = scope_.kg_co2e_per_kwh = 0;
  }

  struct Fact {
    std::string words, value, note = {};
  };
  // What the run costs; none without a prediction.
  std::vector<Fact> run_facts() const {
    std::vector<Fact> facts;
    if (!report_ || !(plan_.tokens_per_second > 0) || !(plan_.goodput > 0)) return facts;
    const auto add = [&](const char* words, std::string value, std::string note = {}) {
      facts.push_back({words, std::move(value), std::move(note)});
    };
    const std::string price = scope_.usd_per_hour > 0 ? "as set"
                              : price_                ? price_->market + ", " + price_->date
                                                      : "no price is known: set one";
    if (!trains()) {
      sim::RunPlan million = plan_;
      million.tokens = 1e6;
      const sim::RunCost cost = sim::cost_of_run(million);
      if (usd_per_hour_ > 0) add("Money", dollars(cost.usd), price);
      add("Device time", sim::format(sim::Seconds{cost.device_hours * 3600}));
      if (plan_.power_w > 0) {
        add("Energy", energy_text(cost), "rated power, PUE " + significant(site_.pue));
        add("Carbon", carbon_text(cost));
      }
      return facts;
    }
    const sim::RunCost cost = sim::cost_of_run(plan_);
    add("Time", days_text(cost.days), token_rate(plan_.tokens_per_second));
    add("Device hours", sim::format_short(cost.device_hours), counted(std::llround(devices_), "device"));
    if (usd_per_hour_ > 0) add("Money", dollars(cost.usd), price);
    if (plan_.power_w > 0) {
      add("Energy", energy_text(cost), "rated power, PUE " + significant(site_.pue));
      add("Carbon", carbon_text(cost));
    }
    add("Time that is progress", share_of_time(plan_.goodput), "checkpoint every " + sim::format(interval_));
    return facts;
  }

  // Closer to each other where they would not all be seen.
  void facts(ImVec2 room) const {
    const std::vector<Fact> all = run_facts();
    if (all.empty()) return text_wrapped(look_, TextRole::body, c_.dim, "No prediction: Overview says why.");
    const ImVec2 usual = ImGui::GetStyle().ItemSpacing;
    const float line = text_size_of(look_, TextRole::body, "x").y;
    const float between = std::clamp(room.y / static_cast<float>(all.size()) - line, 0.0f, usual.y);
    ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, ImVec2(usual.x, std::floor(between)));
    for (const Fact& fact : all) fact_row(look_, fact.words, fact.value, room.x, fact.note);
    ImGui::PopStyleVar();
  }

  void quality_picker() {
    static constexpr std::array<std::string_view, sim::kCount<sim::QualityMeasure>> names = {"commonsense",
                                                                                             "MMLU"};
    if (const auto picked = segmented(look_, "quality", static_cast<std::size_t>(scope_.quality), names))
      scope_.quality = static_cast<sim::QualityMeasure>(*picked);
  }

  std::size_t family_of(std::size_t model) const {
    std::vector<std::string> families;
    for (std::size_t i = 0; i <= model; ++i)
      if (std::find(families.begin(), families.end(), study_.published[i].family) == families.end())
        families.push_back(study_.published[i].family);
    return static_cast<std::size_t>(
        std::find(families.begin(), families.end(), study_.published[model].family) - families.begin());
  }

  void scatter(const char* id, ImVec2 size, const char* label, const std::vector<Mark>& marks) const {
    if (marks.empty()) return text(look_, TextRole::body, c_.dim, "No published model has both figures.");
    double least = 1e300, most = 0, worst = 100, best = 0;
    for (const Mark& mark : marks) {
      least = std::min(least, mark.at.x);
      most = std::max(most, mark.at.x);
      worst = std::min(worst, mark.at.y);
      best = std::max(best, mark.at.y);
    }
    const std::string quality = std::string(sim::name(scope_.quality)) + ", %";
    Chart chart(look_, id, size, logarithmic_axis(label, least, most),
                {quality, std::max(0.0, worst - 3), std::min(100.0, best + 3), false, {1, ""}});
    if (!chart) return;
    for (const Mark& mark : marks) {
      const ImU32 color = family_color(look_, family_of(mark.model));
      chart.dot(mark.at, color, mark.filled, 4);
      if (!mark.name.empty()) chart.name(mark.at, c_.dim, mark.name);
    }
    const Mark* mark = chart.nearest(
        marks, [](const Mark& one) { return one.at; }, 8);
    if (!mark) return;
    const sim::PublishedModel& model = study_.published[mark->model];
    ImGui::SetTooltip("%s: %s %s %%\n%s\n%s", model.name.c_str(),
                      std::string(sim::name(scope_.quality)).c_str(), significant(mark->at.y).c_str(),
                      mark->says.c_str(), model.quality_source.c_str());
  }

  const PanelContext& context_;
  const Look& look_;
  const Palette& c_;
  const EconomicsStudy& study_;
  EconomicsState& scope_;
  const sim::Report* report_;
  const sim::HourlyPrice* price_ = nullptr;
  sim::Site site_;
  sim::Reliability reliability_;
  sim::RunPlan plan_;
  sim::Seconds interval_;
  double usd_per_hour_ = 0, tokens_ = 0, parameters_ = 0, devices_ = 1;
};

std::string caption(const PanelContext& context) {
  const std::int64_t devices = context.scenario.strategy.devices();
  return context.scenario.model.name + " on " + sim::format_count(devices) + " x " +
         context.scenario.hardware.name;
}

void draw(const ContextWith<EconomicsState>& context) {
  if (!context.prediction.report) {
    draw_missing_prediction(context);
    return;
  }
  context.state.study.follow({context.scenario, context.calibration});
  if (draw_missing_result(context, context.state.study, "A preset cannot be read")) return;
  EconomicsParts parts(context);
  const std::array<PanelPart, 6> all = {
      {{"run", [&](ImVec2 size) { parts.run(size); }},
       {"failures", [&](ImVec2 size) { parts.failures(size); }},
       {"batch", [&](ImVec2 size) { parts.batch(size); }},
       {"size", [&](ImVec2 size) { parts.model_size(size); }},
       {"training", [&](ImVec2 size) { parts.hours_and_quality(size); }},
       {"generation", [&](ImVec2 size) { parts.throughput_and_quality(size); }}}};
  draw_parts(context.look, context.state.tab, all);
}

std::vector<Figure> figures(const ContextWith<EconomicsState>& context) {
  const auto& study = context.state.study;
  if (!study.result() || !context.prediction.report) return {};
  std::vector<Figure> all = {{"What it costs", EconomicsParts(context).facts_figure()}};
  if (study.result()->batches.size() > 1) {
    FigureTable batches{
        {{"batch, tokens", Measure::count}, {"devices", Measure::count}, {"step", Measure::seconds}}, {}};
    for (const BatchStep& b : study.result()->batches)
      batches.rows.push_back({b.tokens, b.devices, b.step.value});
    all.push_back({"Steps at other batches", std::move(batches)});
  }
  return all;
}

}  // namespace

EconomicsState::EconomicsState(const PanelTools& tools)
    : study(tools.studies.add<EconomicsQuestion, EconomicsStudy>(
          [studies = EconomicsStudies()](const EconomicsQuestion& question, const auto&) mutable {
            return studies.study(question);
          })) {}

extern const PanelEntry economics_panel = {"economics", "Economics",
                                           "what it costs: days, money, energy, carbon", Dock::lower_left,
                                           panel_of<EconomicsState, caption, draw, figures>};

}  // namespace app::gui
