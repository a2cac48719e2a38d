#include "app/gui/jobs/run_state.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "runtime/machine_probe.h"
#include "runtime/watched_run.h"
#include "sim/format.h"
#include "sim/report/metrics.h"

namespace app::gui {
namespace {

constexpr std::size_t kLogLines = 500;

// As many as a run here starts; a file may say anything.
bool is_rank(std::int32_t rank, std::int32_t ranks) {
  constexpr std::int32_t kMostRanks = 4096;
  return ranks >= 1 && ranks <= kMostRanks && rank >= 0 && rank < ranks;
}

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

}  // namespace

RunState::RunState(sim::Task task, PredictFor predict) : predict_(std::move(predict)) {
  view_.task = task;
  view_.phase = RunPhase::starting;
}

void RunState::line(std::string_view ndjson) {
  if (ndjson.empty()) return;
  try {
    apply(sim::event_from_ndjson(ndjson));
  } catch (const std::exception& error) {
    note(LogLine::Kind::bad, error.what());
  }
}

void RunState::apply(const sim::Event& event) {
  // Steps live on as decimated series: a report that kept each one would grow with the run.
  if (!std::holds_alternative<sim::StepResult>(event)) sim::apply(report_, event);
  std::visit(Overloaded{
                 [this](const sim::BeginEvent& e) { begin(e.source, e.planned); },
                 [this](const sim::ProgressEvent& e) {
                   view_.activity = e.what;
                   view_.left = e.left;
                   if (view_.task != sim::Task::train || view_.loss.size() == 0) {
                     if (view_.tokens_per_second.size() == 0) {
                       view_.done = e.done;
                       view_.planned = e.of;
                     }
                   }
                 },
                 [this](const sim::StepResult& e) { step(e); },
                 [this](const sim::TokenResult& e) { token(e); },
                 [this](const sim::Row&) { rows_changed(); },
                 [this](const sim::MemoryLine&) { rows_changed(); },
                 [this](const sim::MemoryTimePoint&) { rows_changed(); },
                 [this](const sim::CheckpointEvent& e) {
                   note(LogLine::Kind::good,
                        "step " + sim::format_count(e.step) + ": checkpoint written, " + e.file);
                 },
                 [this](const sim::DeviceSample&) { rows_changed(); },
                 [this](const sim::RankTimelineEvent& e) { rank_timeline(e); },
                 [this](const sim::OperationTimelineEvent& e) { operation_timeline(e); },
                 [this](const sim::StepMemoryEvent& e) { step_memory(e); },
                 [this](const sim::EndEvent& e) {
                   if (e.slowdown) predict_again(*e.slowdown);
                   rows_changed();
                   view_.message = e.message;
                 },
                 [this](const sim::ErrorEvent& e) {
                   view_.message = e.message;
                   note(LogLine::Kind::bad, e.message);
                 },
             },
             event);
}

void RunState::begin(const sim::Source& source, std::int64_t planned) {
  view_.phase = RunPhase::running;
  view_.task = source.scenario.workload.task;
  view_.title = source.scenario.model.name + " on " + source.device;
  if (source.kind == sim::ReportKind::recorded) view_.title += ", recorded " + source.date.substr(0, 10);
  view_.done = 0;
  view_.planned = planned;
  view_.activity.clear();
  view_.predicted = predict_(source);
  predicted_at_ = source.slowdown;
  note(LogLine::Kind::note, view_.title);
  if (!runtime::is_steady(source.slowdown))
    note(LogLine::Kind::note, runtime::slowdown_sentence(source.slowdown));
  rows_changed();
}

void RunState::predict_again(const sim::Slowdown& meanwhile) {
  view_.predicted = predict_(report_.source);
  std::string sentence = runtime::meanwhile_sentence(predicted_at_, meanwhile);
  if (!sentence.empty()) note(LogLine::Kind::note, std::move(sentence));
}

void RunState::step(const sim::StepResult& step) {
  const double x = static_cast<double>(step.step);
  view_.loss.append(x, step.loss);
  view_.gradient_norm.append(x, step.grad_norm);
  if (step.noise_scale) view_.noise_scale.append(x, *step.noise_scale);
  view_.activity.clear();
  if (step.duration.value > 0) {
    const double rate = static_cast<double>(step.tokens) / step.duration.value;
    view_.tokens_per_second.append(x, rate);
    const double mfu = sim::mfu(report_.source.scenario, rate, sim::FlopsConvention::six_n_causal);
    if (mfu > 0) view_.mfu.append(x, mfu);
  }
  view_.done = step.step;
  seconds_so_far_ += step.duration.value;
  const double steps = static_cast<double>(view_.loss.size());
  view_.left = {seconds_so_far_ / steps * static_cast<double>(view_.planned - view_.done)};
}

void RunState::token(const sim::TokenResult& token) {
  view_.activity.clear();
  view_.text += token.text;
  if (token.index == 0) view_.time_to_first_token = token.duration;
  // The first token's time is the prefill: another quantity than the rate of decoding.
  if (token.index > 0 && token.duration.value > 0)
    view_.tokens_per_second.append(static_cast<double>(token.index), 1 / token.duration.value);
  view_.done = token.index + 1;
  seconds_so_far_ += token.duration.value;
  view_.left = {seconds_so_far_ / static_cast<double>(view_.done) *
                static_cast<double>(view_.planned - view_.done)};
}

void RunState::rank_timeline(const sim::RankTimelineEvent& event) {
  if (!is_rank(event.rank, event.ranks)) return;
  if (coming_.step != event.step || coming_.of_rank.size() != static_cast<std::size_t>(event.ranks)) {
    coming_ = {
        event.step, std::vector<std::vector<sim::TimelineSlot>>(static_cast<std::size_t>(event.ranks)), {}};
    told_ranks_ = 0;
  }
  coming_.of_rank[static_cast<std::size_t>(event.rank)] = event.slots;
  for (const sim::TimelineSlot& slot : event.slots) coming_.duration = std::max(coming_.duration, slot.end);
  if (++told_ranks_ == event.ranks) view_.tracks = std::make_shared<const RankTracks>(coming_);
}

void RunState::operation_timeline(const sim::OperationTimelineEvent& event) {
  if (!is_rank(event.rank, event.ranks)) return;
  RankOperations& coming = coming_operations_;
  const auto ranks = static_cast<std::size_t>(event.ranks);
  if (coming.step != event.step || coming.of_rank.size() != ranks) {
    coming = {event.step, std::vector<sim::OperationTimeline>(ranks), event.duration};
    told_operations_ = 0;
  }
  coming.of_rank[static_cast<std::size_t>(event.rank)] = event.timeline;
  for (const sim::OperationSpan& span : event.timeline.spans)
    coming.duration = std::max(coming.duration, span.end);
  if (++told_operations_ == event.ranks) view_.operations = std::make_shared<const RankOperations>(coming);
}

void RunState::step_memory(const sim::StepMemoryEvent& event) {
  // A run tells of four; a file may hold any number.
  constexpr std::size_t kMostSteps = 16;
  auto steps = view_.first_steps ? *view_.first_steps : std::vector<sim::StepMemoryEvent>{};
  if (steps.size() >= kMostSteps) return;
  steps.push_back(event);
  view_.first_steps = std::make_shared<const std::vector<sim::StepMemoryEvent>>(std::move(steps));
}

void RunState::stopping() {
  if (view_.active()) view_.phase = RunPhase::stopping;
}

void RunState::ended(int exit_code, const std::string& message) {
  const bool interrupted = view_.phase == RunPhase::stopping;
  if (view_.message.empty() && !message.empty()) {
    view_.message = message;
    note(LogLine::Kind::bad, message);
  }
  view_.phase = exit_code == 0 || interrupted ? RunPhase::ended : RunPhase::failed;
  view_.activity.clear();
  view_.left = {};
  note(view_.phase == RunPhase::ended ? LogLine::Kind::good : LogLine::Kind::bad,
       interrupted
           ? "stopped after " + sim::format_count(view_.done) + " of " + sim::format_count(view_.planned)
       : view_.phase == RunPhase::ended ? "finished"
                                        : "ended with exit code " + std::to_string(exit_code));
}

void RunState::replay(std::span<const sim::Event> events) {
  for (const sim::Event& event : events) apply(event);
  ended(0, view_.message);
}

void RunState::note(LogLine::Kind kind, std::string text) {
  if (view_.log.size() == kLogLines) view_.log.erase(view_.log.begin());
  view_.log.push_back({kind, std::move(text)});
}

void RunState::refresh_report() const {
  if (!rows_are_new_) return;
  rows_are_new_ = false;
  auto measured = std::make_shared<sim::Report>(report_);
  // Until the run ends and says it, a step takes what steps have taken so far.
  if (measured->step_time.value <= 0 && view_.loss.size() > 0)
    measured->step_time = {seconds_so_far_ / static_cast<double>(view_.loss.size())};
  view_.measured = std::move(measured);
  const bool comparable = view_.predicted && !report_.rows.empty() && view_.measured->step_time.value > 0;
  view_.comparison =
      comparable ? std::make_shared<const sim::Comparison>(sim::compare(*view_.predicted, *view_.measured))
                 : nullptr;
}

std::shared_ptr<const RunView> RunState::view() const {
  refresh_report();
  return std::make_shared<const RunView>(view_);
}

}  // namespace app::gui
