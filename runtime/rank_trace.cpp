#include "runtime/rank_trace.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <type_traits>
#include <utility>

#include "sim/cost/step_detail.h"
#include "sim/plan/ranks.h"

namespace runtime {
namespace {

// What one rank tells of an operation.
struct Span {
  double action = 0, operation = 0, start = 0, end = 0;
};

constexpr int kRounds = 8;
constexpr MessageTag kAsk = MessageTag{3} << 60, kAnswer = kAsk + 1;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// How far this rank's clock is ahead of rank 0's.
double ahead_of_first(Communicator& communicator) {
  double theirs = 0;
  const MutableBytes answer = std::as_writable_bytes(std::span(&theirs, 1));
  if (communicator.rank() == 0) {
    for (std::int32_t rank = 1; rank < communicator.size(); ++rank)
      for (int round = 0; round < kRounds; ++round) {
        communicator.receive(rank, kAsk, answer);
        const double own = now();
        communicator.send(rank, kAnswer, std::as_bytes(std::span(&own, 1)));
      }
    return 0;
  }
  double quickest = std::numeric_limits<double>::infinity(), ahead = 0;
  for (int round = 0; round < kRounds; ++round) {
    const double asked = now();
    communicator.send(0, kAsk, std::as_bytes(std::span(&asked, 1)));
    communicator.receive(0, kAnswer, answer);
    const double answered = now();
    if (answered - asked >= quickest) continue;
    quickest = answered - asked;
    ahead = (asked + answered) / 2 - theirs;
  }
  return ahead;
}

struct OperationRun {
  std::size_t action = 0, operation = 0;
  double start = 0, end = 0;
};

// An action's stamps are those of its block's operations, in their order.
std::vector<OperationRun> operation_runs(Run& run) {
  const std::span<const double> stamps = run.executor().stamps();
  const sim::Program& program = run.executor().program();
  std::vector<OperationRun> runs;
  for (const ActionSpan& span : run.executor().action_spans()) {
    const auto block = static_cast<std::size_t>(program.actions[span.action].block);
    const std::size_t count = run.plan().blocks[block].operations.size();
    for (std::size_t i = 0; i < count && runs.size() + 1 < stamps.size(); ++i)
      runs.push_back({span.action, i, stamps[runs.size()], stamps[runs.size() + 1]});
  }
  return runs;
}

constexpr std::array<std::string_view, sim::kStreams> kStreamNames{"compute",     "collectives",   "sends",
                                                                   "to the host", "from the host", "host"};

const sim::Program& program_of(const sim::Plan& plan, std::int32_t rank) {
  const std::int32_t stage = sim::place_of_rank(plan.scenario.strategy, rank).pipeline;
  return plan.programs[static_cast<std::size_t>(stage)];
}

}  // namespace

std::vector<TracedOperation> gather_trace(Run& run) {
  Communicator& communicator = run.communicator();
  const double ahead = ahead_of_first(communicator), began = run.executor().began() - ahead;
  std::vector<Span> own;
  for (const OperationRun& one : operation_runs(run))
    own.push_back({static_cast<double>(one.action), static_cast<double>(one.operation), began + one.start,
                   began + one.end});
  const auto all = communicator.gather_to_first(std::as_bytes(std::span(own)));
  std::vector<TracedOperation> operations;
  double first = std::numeric_limits<double>::infinity();
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    std::vector<Span> spans(all[rank].size() / sizeof(Span));
    if (!spans.empty()) std::memcpy(spans.data(), all[rank].data(), all[rank].size());
    for (const Span& span : spans) {
      first = std::min(first, span.start);
      operations.push_back({static_cast<std::int32_t>(rank), static_cast<std::size_t>(span.action),
                            static_cast<std::size_t>(span.operation), span.start, span.end});
    }
  }
  for (TracedOperation& operation : operations) {
    operation.start -= first;
    operation.end -= first;
  }
  return operations;
}

std::vector<TracedAction> actions_of(const std::vector<TracedOperation>& operations) {
  std::vector<TracedAction> actions;
  for (const TracedOperation& one : operations) {
    if (actions.empty() || actions.back().rank != one.rank || actions.back().action != one.action)
      actions.push_back({one.rank, one.action, one.start, one.end});
    actions.back().end = one.end;
  }
  return actions;
}

namespace {

// visit(rank, stage, times) for each rank's run of what was traced, each told as `timed` makes it.
template <class Traced, class Timed, class Visit>
void each_rank(const sim::Plan& plan, const std::vector<Traced>& traced, Timed timed, Visit visit) {
  std::vector<std::invoke_result_t<Timed, const Traced&>> times;
  for (auto begin = traced.begin(); begin != traced.end();) {
    const std::int32_t rank = begin->rank;
    times.clear();
    for (; begin != traced.end() && begin->rank == rank; ++begin) times.push_back(timed(*begin));
    visit(rank, static_cast<std::size_t>(sim::place_of_rank(plan.scenario.strategy, rank).pipeline), times);
  }
}

}  // namespace

std::vector<sim::RankTimelineEvent> rank_timelines(const sim::Plan& plan,
                                                   const std::vector<TracedAction>& actions,
                                                   std::int64_t step) {
  const std::int32_t ranks = plan.scenario.strategy.devices();
  std::vector<sim::RankTimelineEvent> timelines;
  each_rank(
      plan, actions,
      [](const TracedAction& one) {
        return sim::RanAction{one.action, {one.start}, {one.end}};
      },
      [&](std::int32_t rank, std::size_t stage, const std::vector<sim::RanAction>& times) {
        timelines.push_back({step, rank, ranks, sim::timeline_of(plan, stage, times)});
      });
  return timelines;
}

std::vector<sim::OperationTimelineEvent> operation_timelines(const sim::Plan& plan,
                                                             const std::vector<TracedOperation>& operations,
                                                             std::int64_t step, sim::Seconds duration,
                                                             std::size_t most) {
  const std::int32_t ranks = plan.scenario.strategy.devices();
  std::vector<sim::OperationTimelineEvent> timelines;
  each_rank(
      plan, operations,
      [](const TracedOperation& one) {
        return sim::RanOperation{one.action, one.operation, {one.start}, {one.end}};
      },
      [&](std::int32_t rank, std::size_t stage, const std::vector<sim::RanOperation>& times) {
        if (times.size() <= most)
          timelines.push_back({step, rank, ranks, duration, sim::operations_of(plan, stage, times)});
      });
  return timelines;
}

std::string to_chrome_trace(const sim::Plan& plan, const std::vector<TracedAction>& actions) {
  constexpr double kMicroseconds = 1e6;
  nlohmann::json events = nlohmann::json::array();
  const auto name = [&](const char* what, std::int32_t rank, std::int32_t stream, const std::string& text) {
    events.push_back(
        {{"ph", "M"}, {"pid", rank}, {"tid", stream}, {"name", what}, {"args", {{"name", text}}}});
  };
  std::set<std::pair<std::int32_t, std::int32_t>> named;
  for (const TracedAction& traced : actions) {
    const sim::Program& program = program_of(plan, traced.rank);
    const sim::Action& action = program.actions[traced.action];
    if (named.emplace(traced.rank, -1).second)
      name("process_name", traced.rank, 0,
           plan.programs.size() > 1 ? "rank " + std::to_string(traced.rank) + ", " + program.role
                                    : "rank " + std::to_string(traced.rank));
    if (named.emplace(traced.rank, action.stream).second)
      name("thread_name", traced.rank, action.stream,
           std::string(kStreamNames[static_cast<std::size_t>(action.stream)]));
    events.push_back(
        {{"ph", "X"},
         {"pid", traced.rank},
         {"tid", action.stream},
         {"name", plan.blocks[static_cast<std::size_t>(action.block)].name},
         {"cat", std::string(sim::name(action.phase))},
         {"ts", traced.start * kMicroseconds},
         {"dur", (traced.end - traced.start) * kMicroseconds},
         {"args", {{"layer", action.layer}, {"micro_batch", action.micro_batch}, {"chunk", action.chunk}}}});
  }
  return nlohmann::json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}.dump();
}

}  // namespace runtime
