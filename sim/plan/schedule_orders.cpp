// The orders of the schedules, a function each: the slots of one stage; and the table of the schedules. The
// functions require schedule_problems(...).empty().
#include <algorithm>
#include <array>
#include <deque>
#include <utility>
#include <vector>

#include "sim/plan/schedule.h"
#include "sim/scenario/fields.h"

namespace sim {
namespace {

using Slots = std::vector<Slot>;

Slots breadth_first(std::int32_t, std::int32_t, std::int32_t chunks, std::int32_t micro_batches) {
  Slots slots;
  for (std::int32_t chunk = 0; chunk < chunks; ++chunk)
    for (std::int32_t m = 0; m < micro_batches; ++m) slots.push_back({Pass::forward, m, chunk});
  for (std::int32_t chunk = chunks; chunk-- > 0;)
    for (std::int32_t m = 0; m < micro_batches; ++m) slots.push_back({Pass::backward, m, chunk});
  return slots;
}

// GPipe is the plain order of looped pipelines, with one chunk.
Slots gpipe(std::int32_t stage, std::int32_t stages, std::int32_t, std::int32_t micro_batches) {
  return breadth_first(stage, stages, 1, micro_batches);
}

// Megatron-LM, core/pipeline_parallel/schedules.py: groups of `stages` micro-batches pass one chunk after the
// other.
Slots interleaved(std::int32_t stage, std::int32_t stages, std::int32_t chunks, std::int32_t micro_batches) {
  const std::int32_t passes = micro_batches * chunks;
  const std::int32_t group = stages * chunks;
  const auto slot = [&](Pass pass, std::int32_t i) {
    const std::int32_t chunk = i % group / stages;
    return Slot{pass, i / group * stages + i % stages, pass == Pass::forward ? chunk : chunks - 1 - chunk};
  };
  const std::int32_t warm_up = std::min(2 * (stages - stage - 1) + (chunks - 1) * stages, passes);
  Slots slots;
  for (std::int32_t i = 0; i < warm_up; ++i) slots.push_back(slot(Pass::forward, i));
  for (std::int32_t i = 0; i < passes; ++i) {
    if (warm_up + i < passes) slots.push_back(slot(Pass::forward, warm_up + i));
    slots.push_back(slot(Pass::backward, i));
  }
  return slots;
}

// With several chunks it is interleaved().
Slots one_forward_one_backward(std::int32_t stage, std::int32_t stages, std::int32_t chunks,
                               std::int32_t micro_batches) {
  if (chunks > 1) return interleaved(stage, stages, chunks, micro_batches);
  const std::int32_t warm_up = std::min(stages - stage - 1, micro_batches);
  Slots slots;
  for (std::int32_t m = 0; m < warm_up; ++m) slots.push_back({Pass::forward, m});
  for (std::int32_t m = 0; m < micro_batches; ++m) {
    if (warm_up + m < micro_batches) slots.push_back({Pass::forward, warm_up + m});
    slots.push_back({Pass::backward, m});
  }
  return slots;
}

// A stage runs the weights' parts later, by as many micro-batches as there are stages before it. It holds
// as many activations then as the first stage of 1f1b.
Slots zero_bubble_h1(std::int32_t stage, std::int32_t stages, std::int32_t, std::int32_t micro_batches) {
  Slots slots;
  for (const Slot& s : one_forward_one_backward(stage, stages, 1, micro_batches)) {
    if (s.pass == Pass::forward) {
      slots.push_back(s);
      continue;
    }
    slots.push_back({Pass::backward_input, s.micro_batch});
    if (s.micro_batch >= stage) slots.push_back({Pass::backward_weight, s.micro_batch - stage});
  }
  for (std::int32_t m = std::max(0, micro_batches - stage); m < micro_batches; ++m)
    slots.push_back({Pass::backward_weight, m});
  return slots;
}

// Twice the warm-up of 1f1b and twice the lag of h1: every stage holds 2 stages - 1 micro-batches.
Slots zero_bubble_h2(std::int32_t stage, std::int32_t stages, std::int32_t, std::int32_t micro_batches) {
  const std::int32_t warm_up = std::min(2 * (stages - stage) - 1, micro_batches), lag = 2 * stage;
  Slots slots;
  for (std::int32_t m = 0; m < warm_up; ++m) slots.push_back({Pass::forward, m});
  for (std::int32_t m = 0; m < micro_batches; ++m) {
    slots.push_back({Pass::backward_input, m});
    if (m >= lag) slots.push_back({Pass::backward_weight, m - lag});
    if (warm_up + m < micro_batches) slots.push_back({Pass::forward, warm_up + m});
  }
  for (std::int32_t m = std::max(0, micro_batches - lag); m < micro_batches; ++m)
    slots.push_back({Pass::backward_weight, m});
  return slots;
}

// Writes the passes of two chunks, each of which takes its micro-batches in order from first[chunk] on.
class TwoChunks {
 public:
  explicit TwoChunks(std::array<std::int32_t, 2> first = {}) : forward_(first), backward_(first) {}

  void forward(int chunk, bool with_next = false) {
    add(Pass::forward, next(forward_, chunk), chunk, with_next);
  }
  void backward(int chunk) { add(Pass::backward, next(backward_, chunk), chunk); }
  void backward_input(int chunk) {
    waiting_.push_back({Pass::backward_weight, next(backward_, chunk), chunk});
    add(Pass::backward_input, waiting_.back().micro_batch, chunk);
  }
  // Runs the weights' part that has waited longest since its part of inputs.
  void backward_weight() {
    slots_.push_back(waiting_.front());
    waiting_.pop_front();
  }
  bool weights_wait() const { return !waiting_.empty(); }
  std::int32_t forwards(int chunk) const { return forward_[static_cast<std::size_t>(chunk)]; }
  Slots take() { return std::move(slots_); }

 private:
  static std::int32_t next(std::array<std::int32_t, 2>& of, int chunk) {
    return of[static_cast<std::size_t>(chunk)]++;
  }
  void add(Pass pass, std::int32_t micro_batch, int chunk, bool with_next = false) {
    slots_.push_back({pass, micro_batch, chunk, with_next});
  }

  Slots slots_;
  std::array<std::int32_t, 2> forward_, backward_;  // next micro-batches
  std::deque<Slot> waiting_;
};

// As in PyTorch, torch/distributed/pipelining/schedules.py. The order is drawn up for at least 2 stages - 1
// micro-batches, which fill the pipeline. Those that a step does not have are left out.
Slots zero_bubble_v(std::int32_t stage, std::int32_t stages, std::int32_t, std::int32_t micro_batches) {
  const std::int32_t drawn_up = std::max(2 * stages - 1, micro_batches);
  TwoChunks w;
  const auto backward_in_parts = [&w](int chunk) {
    w.backward_input(chunk);
    w.backward_weight();
  };
  for (std::int32_t i = 0; i < 2 * (stages - stage) - 1; ++i) w.forward(0);
  for (std::int32_t i = 0; i < stage; ++i) {
    w.forward(1);
    w.forward(0);
  }
  for (std::int32_t i = 0; i < stages - stage; ++i) {
    w.forward(1);
    backward_in_parts(1);
  }
  while (w.forwards(1) < w.forwards(0) || w.forwards(0) < drawn_up) {
    if (w.forwards(0) < drawn_up) w.forward(0);
    backward_in_parts(0);
    w.forward(1);
    backward_in_parts(1);
  }
  for (std::int32_t i = 0; i < stage; ++i) {
    w.backward_input(0);
    w.backward_input(1);
  }
  for (std::int32_t i = 0; i < stages - stage; ++i) {
    w.backward_input(0);
    w.backward_weight();
  }
  while (w.weights_wait()) w.backward_weight();
  Slots slots = w.take();
  std::erase_if(slots, [&](const Slot& s) { return s.micro_batch >= micro_batches; });
  return slots;
}

// The eight steps of github.com/deepseek-ai/DualPipe. Micro-batches of chunk `near` have passed `depth`
// stages when they reach this one; both directions meet after `half` stages.
Slots both_ways(std::int32_t depth, std::int32_t half, std::int32_t micro_batches_each_way, TwoChunks w,
                int near) {
  const int far = 1 - near;
  const auto forward_and_backward = [&w](int forward) {
    w.forward(forward, true);
    w.backward(1 - forward);
  };
  const std::int32_t ahead = half - depth - 1, behind = depth + 1;
  for (std::int32_t i = 0; i < 2 * ahead; ++i) w.forward(near);
  for (std::int32_t i = 0; i < behind; ++i) {
    w.forward(near);
    w.forward(far);
  }
  for (std::int32_t i = 0; i < ahead; ++i) {
    w.backward_input(far);
    w.backward_weight();
    w.forward(far);
  }
  for (std::int32_t i = 0; i < micro_batches_each_way - 2 * half + behind; ++i) {
    if (i == 0 && ahead == 0) {  // where the directions meet, one waits for what the other sends
      w.forward(near);
      w.backward(far);
    } else {
      forward_and_backward(near);
    }
    forward_and_backward(far);
  }
  for (std::int32_t i = 0; i < ahead; ++i) {
    w.backward(far);
    forward_and_backward(far);
  }
  for (std::int32_t i = 0; i < 2 * behind; ++i) {  // the latter half in two parts
    const int chunk = i % 2 == 0 ? far : near;
    if (i < behind)
      w.backward(chunk);
    else
      w.backward_input(chunk);
  }
  for (std::int32_t i = 0; i < ahead; ++i) {
    w.backward_weight();
    w.backward_input(near);
  }
  while (w.weights_wait()) w.backward_weight();
  return w.take();
}

Slots dualpipe(std::int32_t stage, std::int32_t stages, std::int32_t, std::int32_t micro_batches) {
  const std::int32_t each_way = micro_batches / 2;
  const bool near_first = stage < stages / 2;
  return both_ways(near_first ? stage : stages - 1 - stage, stages / 2, each_way, TwoChunks({0, each_way}),
                   near_first ? 0 : 1);
}

Slots dualpipe_v(std::int32_t stage, std::int32_t stages, std::int32_t, std::int32_t micro_batches) {
  return both_ways(stage, stages, micro_batches, TwoChunks(), 0);
}

// clang-format off
constexpr auto all_split = BackwardParts::all_split, some_split = BackwardParts::some_split;
constexpr std::array<ScheduleTraits, 9> kSchedules{{
    {.name = "gpipe", .order = gpipe, .filling = 0},
    {.name = kPlainSchedule, .order = one_forward_one_backward, .chunks = Chunks::any, .in_groups = true},
    {.name = "interleaved", .order = interleaved, .chunks = Chunks::several, .in_groups = true},
    {.name = "breadth-first", .order = breadth_first, .chunks = Chunks::several, .filling = 0},
    {.name = "zb-h1", .order = zero_bubble_h1, .parts = all_split},
    {.name = "zb-h2", .order = zero_bubble_h2, .parts = all_split, .filling = 3},
    {.name = "zb-v", .order = zero_bubble_v, .chunks = Chunks::two, .parts = all_split, .placement = Placement::v, .filling = 3},
    {.name = "dualpipe", .order = dualpipe, .parts = some_split, .placement = Placement::two_directions, .pairs = true},
    {.name = "dualpipev", .order = dualpipe_v, .chunks = Chunks::two, .parts = some_split, .placement = Placement::v, .pairs = true, .filling = 3},
}};
// clang-format on
static_assert(std::ranges::equal(kSchedules, kScheduleNames, {}, &ScheduleTraits::name),
              "what a strategy may name (scenario/fields.h) are these rows, in their order");

}  // namespace

const ScheduleTraits& traits_of_schedule(std::string_view name) {
  const auto row = std::ranges::find(kSchedules, name, &ScheduleTraits::name);
  return row == kSchedules.end() ? *std::ranges::find(kSchedules, kPlainSchedule, &ScheduleTraits::name)
                                 : *row;
}

std::string_view plainest_schedule(Placement placement, bool pairs) {
  if (placement == Placement::loop && !pairs) return kPlainSchedule;
  const auto row = std::ranges::find_if(
      kSchedules, [&](const ScheduleTraits& s) { return s.placement == placement && s.pairs == pairs; });
  return row == kSchedules.end() ? kPlainSchedule : row->name;
}

}  // namespace sim
