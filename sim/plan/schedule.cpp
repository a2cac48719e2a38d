#include "sim/plan/schedule.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "sim/format.h"

namespace sim {
namespace {

using Slots = std::vector<Slot>;

Slots gpipe(std::int32_t micro_batches) {
  Slots slots;
  for (std::int32_t m = 0; m < micro_batches; ++m) slots.push_back({Pass::forward, m});
  for (std::int32_t m = 0; m < micro_batches; ++m) slots.push_back({Pass::backward, m});
  return slots;
}

Slots one_forward_one_backward(std::int32_t stage, std::int32_t stages, std::int32_t micro_batches) {
  const std::int32_t warm_up = std::min(stages - stage - 1, micro_batches);
  Slots slots;
  for (std::int32_t m = 0; m < warm_up; ++m) slots.push_back({Pass::forward, m});
  for (std::int32_t m = 0; m < micro_batches; ++m) {
    if (warm_up + m < micro_batches) slots.push_back({Pass::forward, warm_up + m});
    slots.push_back({Pass::backward, m});
  }
  return slots;
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

// A stage lags with the weights' parts by as many micro-batches as there are stages before it: it then holds
// as many activations as the first stage of 1f1b.
Slots zero_bubble_h1(std::int32_t stage, std::int32_t stages, std::int32_t micro_batches) {
  Slots slots;
  for (const Slot& s : one_forward_one_backward(stage, stages, micro_batches)) {
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

// Times and meeting points of slots, for whoever walks a schedule: `work(stage, index)` returns when the slot
// ends. Returns how far each stage came: less than all where they wait for each other.
struct Progress {
  std::vector<std::size_t> next;  // of each stage
  bool complete = true;
};

class Walker {
 public:
  explicit Walker(const Schedule& s)
      : s_(s),
        forward_(size()),
        backward_(size()),
        progress_{std::vector<std::size_t>(s.slots.size()), true} {}

  // visit(stage, index, ready): runs a slot whose input is there since `ready`, and returns its end.
  template <class Visit>
  Progress walk(Seconds transfer, Visit visit) {
    const Seconds never{-1};
    std::fill(forward_.begin(), forward_.end(), never);
    std::fill(backward_.begin(), backward_.end(), never);
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::int32_t stage = 0; stage < s_.stages; ++stage)
        while (step(stage, transfer, visit)) moved = true;
    }
    for (std::size_t i = 0; i < s_.slots.size(); ++i)
      progress_.complete = progress_.complete && progress_.next[i] == s_.slots[i].size();
    return progress_;
  }

 private:
  std::size_t size() const {
    return static_cast<std::size_t>(s_.pieces()) * static_cast<std::size_t>(s_.micro_batches);
  }
  std::size_t at(std::int32_t piece, std::int32_t micro_batch) const {
    return static_cast<std::size_t>(piece) * static_cast<std::size_t>(s_.micro_batches) +
           static_cast<std::size_t>(micro_batch);
  }

  template <class Visit>
  bool step(std::int32_t stage, Seconds transfer, Visit& visit) {
    const auto row = static_cast<std::size_t>(stage);
    std::size_t& next = progress_.next[row];
    if (next == s_.slots[row].size()) return false;
    const Slot& slot = s_.slots[row][next];
    const std::int32_t piece = s_.piece(stage, slot.chunk);
    Seconds ready;
    switch (slot.pass) {
      case Pass::forward:
        if (piece > 0) {
          ready = forward_[at(piece - 1, slot.micro_batch)];
          if (ready.value < 0) return false;
          if (s_.stages > 1) ready += transfer;
        }
        break;
      case Pass::backward:
      case Pass::backward_input:
        if (forward_[at(piece, slot.micro_batch)].value < 0) return false;
        if (piece + 1 < s_.pieces()) {
          ready = backward_[at(piece + 1, slot.micro_batch)];
          if (ready.value < 0) return false;
          if (s_.stages > 1) ready += transfer;
        }
        break;
      case Pass::backward_weight:
        if (backward_[at(piece, slot.micro_batch)].value < 0) return false;
        break;
    }
    const Seconds end = visit(stage, next, ready);
    if (slot.pass == Pass::forward) forward_[at(piece, slot.micro_batch)] = end;
    if (slot.pass == Pass::backward || slot.pass == Pass::backward_input)
      backward_[at(piece, slot.micro_batch)] = end;
    ++next;
    return true;
  }

  const Schedule& s_;
  std::vector<Seconds> forward_, backward_;  // ends by piece and micro-batch; negative: not yet
  Progress progress_;
};

std::string_view pass_name(Pass pass) {
  switch (pass) {
    case Pass::forward:
      return "forward";
    case Pass::backward:
      return "backward";
    case Pass::backward_input:
      return "backward of inputs";
    case Pass::backward_weight:
      return "backward of weights";
  }
  return "";
}

std::string describe(std::size_t stage, const Slot& s) {
  return "stage " + std::to_string(stage) + ": " + std::string(pass_name(s.pass)) + " of micro-batch " +
         std::to_string(s.micro_batch) + ", chunk " + std::to_string(s.chunk);
}

}  // namespace

std::span<const std::string_view> schedule_names() {
  static constexpr std::array<std::string_view, 4> names = {"gpipe", "1f1b", "interleaved", "zb-h1"};
  return names;
}

std::vector<ScheduleProblem> schedule_problems(std::string_view name, std::int64_t stages,
                                               std::int64_t chunks, std::int64_t micro_batches) {
  const bool interleaves = name == "interleaved" || (name == "1f1b" && chunks > 1);
  if (name != "gpipe" && name != "1f1b" && name != "interleaved" && name != "zb-h1")
    return {{"schedule", "must be gpipe, 1f1b, interleaved or zb-h1, but is \"" + std::string(name) + "\""}};
  std::vector<ScheduleProblem> problems;
  if (stages == 1 && name != "1f1b")
    problems.push_back({"schedule", "is " + std::string(name) + ", which needs pipeline_parallel above 1"});
  if (chunks > 1 && stages == 1)
    problems.push_back(
        {"virtual_pipeline", "cuts a stage's layers into chunks, which needs pipeline_parallel above 1"});
  if (chunks > 1 && !interleaves)
    problems.push_back({"virtual_pipeline", "is " + format_count(chunks) + ", but schedule " +
                                                std::string(name) +
                                                " has one chunk a stage; 1f1b and interleaved have several"});
  if (name == "interleaved" && chunks == 1)
    problems.push_back({"schedule", "is interleaved, which needs virtual_pipeline above 1"});
  if (interleaves && stages > 1 && chunks > 1 && micro_batches % stages != 0)
    problems.push_back({"virtual_pipeline", "interleaves groups of pipeline_parallel micro-batches, but " +
                                                format_count(stages) + " does not divide the " +
                                                format_count(micro_batches) + " of a step"});
  return problems;
}

bool splits_backward(std::string_view name) {
  return name.starts_with("zb-");
}

Schedule make_schedule(std::string_view name, std::int32_t stages, std::int32_t chunks,
                       std::int32_t micro_batches) {
  const auto problems = schedule_problems(name, stages, chunks, micro_batches);
  if (!problems.empty()) throw std::invalid_argument(problems[0].field + ": " + problems[0].message);
  Schedule s{.stages = stages, .chunks = chunks, .micro_batches = micro_batches, .slots = {}};
  for (std::int32_t stage = 0; stage < stages; ++stage) {
    if (name == "gpipe")
      s.slots.push_back(gpipe(micro_batches));
    else if (name == "zb-h1")
      s.slots.push_back(zero_bubble_h1(stage, stages, micro_batches));
    else if (chunks > 1)
      s.slots.push_back(interleaved(stage, stages, chunks, micro_batches));
    else
      s.slots.push_back(one_forward_one_backward(stage, stages, micro_batches));
  }
  return s;
}

LayerRange layers_of(std::int32_t piece, std::int32_t pieces, std::int32_t layers, double head) {
  if (head > 0) {
    const double share = (layers + head) / pieces;
    const auto end = [&](std::int32_t p) {
      if (p < 0) return 0;
      return p == pieces - 1 ? layers : std::min(layers, static_cast<std::int32_t>(share * (p + 1)) + 1);
    };
    return {end(piece - 1), end(piece)};
  }
  const std::int32_t each = layers / pieces, more = layers % pieces, first_with_more = (pieces - more) / 2;
  const auto begin = [&](std::int32_t p) { return p * each + std::clamp(p - first_with_more, 0, more); };
  return {begin(piece), begin(piece + 1)};
}

std::vector<std::string> check(const Schedule& schedule) {
  std::vector<std::string> violations;
  for (std::size_t stage = 0; stage < schedule.slots.size(); ++stage) {
    std::vector<int> forward(static_cast<std::size_t>(schedule.chunks * schedule.micro_batches));
    std::vector<int> input = forward, weight = forward;
    for (const Slot& s : schedule.slots[stage]) {
      if (s.chunk < 0 || s.chunk >= schedule.chunks || s.micro_batch < 0 ||
          s.micro_batch >= schedule.micro_batches) {
        violations.push_back(describe(stage, s) + " does not exist");
        return violations;
      }
      const auto i = static_cast<std::size_t>(s.chunk * schedule.micro_batches + s.micro_batch);
      forward[i] += s.pass == Pass::forward;
      input[i] += s.pass == Pass::backward || s.pass == Pass::backward_input;
      weight[i] += s.pass == Pass::backward || s.pass == Pass::backward_weight;
    }
    for (std::size_t i = 0; i < forward.size(); ++i)
      if (forward[i] != 1 || input[i] != 1 || weight[i] != 1)
        violations.push_back(
            "stage " + std::to_string(stage) + ": micro-batch " +
            std::to_string(i % static_cast<std::size_t>(schedule.micro_batches)) + ", chunk " +
            std::to_string(i / static_cast<std::size_t>(schedule.micro_batches)) + " runs " +
            std::to_string(forward[i]) + " times forward, " + std::to_string(input[i]) +
            " backward of inputs, " + std::to_string(weight[i]) + " of weights, not once each");
  }
  if (!violations.empty()) return violations;
  const Progress p =
      Walker(schedule).walk({}, [](std::int32_t, std::size_t, Seconds ready) { return ready; });
  if (p.complete) return violations;
  for (std::size_t stage = 0; stage < schedule.slots.size(); ++stage)
    if (p.next[stage] < schedule.slots[stage].size())
      violations.push_back(describe(stage, schedule.slots[stage][p.next[stage]]) +
                           " waits for what cannot come before it");
  return violations;
}

ScheduleTimes run(const Schedule& schedule, const std::vector<PassTimes>& times, Seconds transfer) {
  ScheduleTimes r;
  for (const auto& slots : schedule.slots) r.start.emplace_back(slots.size());
  std::vector<Seconds> free(schedule.slots.size()), busy(schedule.slots.size());
  Walker(schedule).walk(transfer, [&](std::int32_t stage, std::size_t index, Seconds ready) {
    const auto row = static_cast<std::size_t>(stage);
    const PassTimes& t = times[row];
    const Pass pass = schedule.slots[row][index].pass;
    Seconds duration = t.forward;
    if (pass == Pass::backward) duration = t.backward_input + t.backward_weight;
    if (pass == Pass::backward_input) duration = t.backward_input;
    if (pass == Pass::backward_weight) duration = t.backward_weight;
    const Seconds start = std::max(free[row], ready);
    r.start[row][index] = start;
    busy[row] += duration;
    return free[row] = start + duration;
  });
  r.duration = *std::max_element(free.begin(), free.end());
  for (const Seconds b : busy) r.idle.push_back(r.duration - b);
  return r;
}

std::int64_t most_in_flight(const Schedule& schedule, std::int32_t stage) {
  std::int64_t held = 0, most = 0;
  for (const Slot& s : schedule.slots[static_cast<std::size_t>(stage)]) {
    if (s.pass == Pass::forward) most = std::max(most, ++held);
    if (s.pass == Pass::backward || s.pass == Pass::backward_weight) --held;
  }
  return most;
}

}  // namespace sim
