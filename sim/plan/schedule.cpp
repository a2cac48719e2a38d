#include "sim/plan/schedule.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "sim/format.h"
#include "sim/plan/schedule_orders.h"

namespace sim {
namespace {

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

  // Since when a slot's input is there; negative: it is not.
  Seconds ready(std::int32_t stage, const Slot& slot, Seconds transfer) const {
    const Seconds never{-1};
    const std::int32_t piece = s_.piece(stage, slot.chunk);
    const auto arrives = [&](const std::vector<Seconds>& ends, std::int32_t from) {
      const Seconds end = ends[at(from, slot.micro_batch)];
      const bool moves = s_.place_of(from, slot.chunk).stage != stage;
      return end.value < 0 || !moves ? end : end + transfer;
    };
    switch (slot.pass) {
      case Pass::forward:
        return piece > 0 ? arrives(forward_, piece - 1) : Seconds{};
      case Pass::backward:
      case Pass::backward_input:
        if (forward_[at(piece, slot.micro_batch)].value < 0) return never;
        return piece + 1 < s_.pieces() ? arrives(backward_, piece + 1) : Seconds{};
      case Pass::backward_weight:
        return backward_[at(piece, slot.micro_batch)].value < 0 ? never : Seconds{};
    }
    return never;
  }

  void ended(std::int32_t stage, const Slot& slot, Seconds end) {
    const std::size_t i = at(s_.piece(stage, slot.chunk), slot.micro_batch);
    if (slot.pass == Pass::forward) forward_[i] = end;
    if (slot.pass == Pass::backward || slot.pass == Pass::backward_input) backward_[i] = end;
  }

  template <class Visit>
  bool step(std::int32_t stage, Seconds transfer, Visit& visit) {
    const auto row = static_cast<std::size_t>(stage);
    const std::vector<Slot>& slots = s_.slots[row];
    std::size_t& next = progress_.next[row];
    if (next == slots.size()) return false;
    std::size_t last = next;  // of those that are worked on together
    while (slots[last].with_next) ++last;
    Seconds all_ready, end;
    for (std::size_t i = next; i <= last; ++i) {
      const Seconds r = ready(stage, slots[i], transfer);
      if (r.value < 0) return false;
      all_ready = std::max(all_ready, r);
    }
    const std::size_t first = next;
    for (; next <= last; ++next) end = visit(stage, next, all_ready);
    for (std::size_t i = first; i <= last; ++i) ended(stage, slots[i], end);
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

std::int32_t Schedule::piece(std::int32_t stage, std::int32_t chunk) const {
  switch (placement) {
    case Placement::loop:
      return chunk * stages + stage;
    case Placement::v:
      return chunk == 0 ? stage : 2 * stages - 1 - stage;
    case Placement::two_directions:
      return chunk == 0 ? stage : stages - 1 - stage;
  }
  return 0;
}

Schedule::Place Schedule::place_of(std::int32_t piece, std::int32_t chunk) const {
  switch (placement) {
    case Placement::loop:
      return {piece % stages, piece / stages};
    case Placement::v:
      return piece < stages ? Place{piece, 0} : Place{2 * stages - 1 - piece, 1};
    case Placement::two_directions:
      return {chunk == 0 ? piece : stages - 1 - piece, chunk};
  }
  return {};
}

BackwardParts backward_parts(std::string_view name) {
  if (name.starts_with("zb-")) return BackwardParts::all_split;
  return name.starts_with("dualpipe") ? BackwardParts::some_split : BackwardParts::whole;
}

bool pairs_passes(std::string_view name) {
  return name.starts_with("dualpipe");
}

Placement placement_of(std::string_view name) {
  if (name == "zb-v" || name == "dualpipev") return Placement::v;
  return name == "dualpipe" ? Placement::two_directions : Placement::loop;
}

std::vector<ScheduleProblem> schedule_problems(std::string_view name, std::int64_t stages,
                                               std::int64_t chunks, std::int64_t micro_batches) {
  const auto names = schedule_names();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    std::string list;
    for (const std::string_view n : names)
      list += (list.empty() ? "" : n == names.back() ? " or " : ", ") + std::string(n);
    return {{"schedule", "must be " + list + ", but is \"" + std::string(name) + "\""}};
  }
  const bool interleaves = name == "interleaved" || (name == "1f1b" && chunks > 1);
  const bool is_v = placement_of(name) == Placement::v;
  const auto is = [&] { return "is " + std::string(name) + ", which "; };
  std::vector<ScheduleProblem> problems;
  if (stages == 1 && name != "1f1b")
    problems.push_back({"schedule", is() + "needs pipeline_parallel above 1"});
  if (chunks > 1 && stages == 1)
    problems.push_back(
        {"virtual_pipeline", "cuts a stage's layers into chunks, which needs pipeline_parallel above 1"});
  if (is_v && chunks != 2)
    problems.push_back({"virtual_pipeline", "is " + format_count(chunks) + ", but schedule " +
                                                std::string(name) + " has two chunks a stage: it must be 2"});
  if (chunks > 1 && !interleaves && !is_v)
    problems.push_back({"virtual_pipeline", "is " + format_count(chunks) + ", but schedule " +
                                                std::string(name) +
                                                " has one chunk a stage; 1f1b and interleaved have several"});
  if (name == "interleaved" && chunks == 1)
    problems.push_back({"schedule", "is interleaved, which needs virtual_pipeline above 1"});
  if (interleaves && stages > 1 && chunks > 1 && micro_batches % stages != 0)
    problems.push_back({"virtual_pipeline", "interleaves groups of pipeline_parallel micro-batches, but " +
                                                format_count(stages) + " does not divide the " +
                                                format_count(micro_batches) + " of a step"});
  if (name == "dualpipe" && stages % 2 != 0)
    problems.push_back({"schedule", is() + "needs an even number of stages, but pipeline_parallel is " +
                                        format_count(stages)});
  if (name == "dualpipe" && micro_batches % 2 != 0)
    problems.push_back({"schedule", is() + "sends half of a step's micro-batches each way, but there are " +
                                        format_count(micro_batches)});
  if (backward_parts(name) == BackwardParts::some_split && micro_batches < 2 * stages)
    problems.push_back({"schedule", is() + "needs two micro-batches a stage, " + format_count(2 * stages) +
                                        ", but a step has " + format_count(micro_batches)});
  return problems;
}

Schedule make_schedule(std::string_view name, std::int32_t stages, std::int32_t chunks,
                       std::int32_t micro_batches) {
  const auto problems = schedule_problems(name, stages, chunks, micro_batches);
  if (!problems.empty()) throw std::invalid_argument(problems[0].field + ": " + problems[0].message);
  Schedule s{.stages = stages,
             .chunks = name == "dualpipe" ? 2 : chunks,
             .micro_batches = micro_batches,
             .placement = placement_of(name)};
  for (std::int32_t stage = 0; stage < stages; ++stage) {
    if (name == "gpipe")
      s.slots.push_back(gpipe(micro_batches));
    else if (name == "zb-h1")
      s.slots.push_back(zero_bubble_h1(stage, stages, micro_batches));
    else if (name == "zb-h2")
      s.slots.push_back(zero_bubble_h2(stage, stages, micro_batches));
    else if (name == "zb-v")
      s.slots.push_back(zero_bubble_v(stage, stages, micro_batches));
    else if (name == "dualpipe")
      s.slots.push_back(dualpipe(stage, stages, micro_batches));
    else if (name == "dualpipev")
      s.slots.push_back(dualpipe_v(stage, stages, micro_batches));
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
          s.micro_batch >= schedule.micro_batches || !schedule.passes(s.micro_batch, s.chunk)) {
        violations.push_back(describe(stage, s) + " does not exist");
        return violations;
      }
      const auto i = static_cast<std::size_t>(s.chunk * schedule.micro_batches + s.micro_batch);
      forward[i] += s.pass == Pass::forward;
      input[i] += s.pass == Pass::backward || s.pass == Pass::backward_input;
      weight[i] += s.pass == Pass::backward || s.pass == Pass::backward_weight;
    }
    if (!schedule.slots[stage].empty() && schedule.slots[stage].back().with_next)
      violations.push_back(describe(stage, schedule.slots[stage].back()) + " has no next slot to go with");
    for (std::size_t i = 0; i < forward.size(); ++i) {
      const auto m = static_cast<std::int32_t>(i) % schedule.micro_batches;
      const int times = schedule.passes(m, static_cast<std::int32_t>(i) / schedule.micro_batches) ? 1 : 0;
      if (forward[i] != times || input[i] != times || weight[i] != times)
        violations.push_back(
            "stage " + std::to_string(stage) + ": micro-batch " +
            std::to_string(i % static_cast<std::size_t>(schedule.micro_batches)) + ", chunk " +
            std::to_string(i / static_cast<std::size_t>(schedule.micro_batches)) + " runs " +
            std::to_string(forward[i]) + " times forward, " + std::to_string(input[i]) +
            " backward of inputs, " + std::to_string(weight[i]) + " of weights, not once each");
    }
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
  std::vector<Seconds> free(schedule.slots.size()), busy(schedule.slots.size());  // by stage
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
  for (std::size_t stage = 0; stage < free.size(); ++stage) {
    r.idle.push_back(r.duration - busy[stage]);
    const bool works = !r.start[stage].empty();
    r.bubble.push_back(works ? free[stage] - r.start[stage].front() - busy[stage] : Seconds{});
  }
  return r;
}

}  // namespace sim
