#include "app/gui/legal.h"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

#include "app/gui/scenario_fields.h"
#include "sim/scenario/fields.h"
#include "sim/scenario/preset.h"

namespace app::gui {
namespace {

constexpr int kMostRounds = 24;
constexpr std::string_view kBatch = "workload.global_batch_size";

const ScenarioField* field_called(std::string_view name) {
  for (const FieldSection& section : scenario_fields())
    for (const ScenarioField& field : section.fields)
      if (field.name == name) return &field;
  return nullptr;
}

// By "workload.seq_len" or "seq_len" alone.
const ScenarioField* field_meant(std::string_view word) {
  for (const FieldSection& section : scenario_fields())
    for (const ScenarioField& field : section.fields)
      if (field.name == word || field.name.ends_with('.' + std::string(word))) return &field;
  return nullptr;
}

bool is_wrong(const std::vector<sim::Problem>& problems, std::string_view field) {
  return std::any_of(problems.begin(), problems.end(),
                     [&](const sim::Problem& problem) { return problem.field == field; });
}

// One step away, the likeliest first.
std::vector<sim::Scenario> repairs(const sim::Scenario& scenario, const std::vector<sim::Problem>& problems) {
  std::vector<sim::Scenario> found;
  const auto add = [&](auto change) {
    sim::Scenario next = scenario;
    change(next);
    sim::Scenario followed = with_batch_following(scenario, next);
    found.push_back(std::move(next));
    if (!(followed == found.back())) found.push_back(std::move(followed));
  };
  add([](sim::Scenario&) {});
  for (const sim::Problem& problem : problems) {
    const ScenarioField* field = field_called(problem.field);
    if (!field) continue;
    for (const std::int64_t value : accepted_values(scenario, *field))
      add([&](sim::Scenario& s) { field->write(s, value); });
    add([&](sim::Scenario& s) { field->write(s, field->read(sim::Scenario{})); });
  }
  for (const sim::DType dtype : {sim::DType::bf16, sim::DType::fp32})
    if (scenario.hardware.peak.count(dtype)) add([&](sim::Scenario& s) { s.workload.dtype = dtype; });
  for (const char* degree :
       {"strategy.virtual_pipeline", "strategy.expert_parallel", "strategy.context_parallel",
        "strategy.tensor_parallel", "strategy.pipeline_parallel", "strategy.data_parallel"})
    if (const ScenarioField* field = field_called(degree)) add([&](sim::Scenario& s) { field->write(s, 1); });
  const auto shorten = [](sim::Scenario& s) {
    const std::int64_t positions = std::max<std::int64_t>(2, s.model.max_position_embeddings);
    s.workload.seq_len = std::min(s.workload.seq_len, positions);
    s.workload.prompt_length = std::min(s.workload.prompt_length, positions / 2);
    s.workload.max_new_tokens = std::min(s.workload.max_new_tokens, positions / 2);
  };
  add(shorten);
  add([](sim::Scenario& s) { s.strategy = {}; });
  add([](sim::Scenario& s) { s.implementation = sim::load_implementation_preset("ridgepoint"); });
  add([](sim::Scenario& s) {  // types of parts, of a machine that has others
    sim::for_each_stored_type([&](const auto& field) { (s.workload.*field.member).reset(); });
    s.workload.kv_dtype.reset();
    s.workload.mixed_layers.clear();
  });
  add([&](sim::Scenario& s) {
    s.strategy = {};
    shorten(s);
    s.workload.micro_batch_size = s.workload.global_batch_size = 1;
    s.workload.measure_noise = false;
  });
  return found;
}

// More than a hand changes at once, with what follows it: a scenario that was loaded.
bool is_another(const sim::Scenario& from, const sim::Scenario& to) {
  constexpr int kMostAtOnce = 2;
  int changed = (from.model == to.model ? 0 : 1) + (from.hardware == to.hardware ? 0 : 1) +
                (from.implementation == to.implementation ? 0 : 1);
  for (const sim::AnyField& field : sim::all_fields())
    if ((field.part == "workload" || field.part == "strategy") && !field.same(from, to)) ++changed;
  return changed > kMostAtOnce;
}

// The fields that followed a change of task, and were not changed with it; none where all is another
// scenario.
std::vector<const sim::AnyField*> taken_by_task(const sim::Scenario& before, const sim::Scenario& after) {
  sim::Scenario asked = before;
  asked.workload.task = after.workload.task;
  const auto followed = [&](const sim::Scenario& edit) {
    return with_batch_following(before, with_division_following(before, edit));
  };
  const sim::Scenario alone = followed(asked);
  std::vector<const sim::AnyField*> taken;
  sim::Scenario with_others = after;
  for (const sim::AnyField& field : sim::all_fields()) {
    if (field.same(asked, alone)) continue;
    taken.push_back(&field);
    field.copy(before, with_others);
  }
  if (is_another(before, with_others) || !(followed(with_others) == after)) taken.clear();
  return taken;
}

}  // namespace

std::string differences(const sim::Scenario& from, const sim::Scenario& to) {
  std::string words;
  const auto add = [&](std::string_view what, std::string_view before, std::string_view after) {
    words.append(words.empty() ? "" : ", ").append(what).append(" ").append(before);
    words.append(" \u2192 ").append(after);
  };
  for (const FieldSection& section : scenario_fields()) {
    const bool has_name = section.preset_name != nullptr;
    if (has_name && section.preset_name(from) != section.preset_name(to)) {
      add(section.id, section.preset_name(from), section.preset_name(to));
      if (std::string_view(section.id) == "model") continue;  // whose sizes go with it
    }
    for (const ScenarioField& field : section.fields) {
      if (field.applies && !field.applies(from) && !field.applies(to)) continue;
      const std::int64_t before = field.read(from), after = field.read(to);
      if (before != after) add(field.label, field.text(before), field.text(after));
    }
  }
  return words;
}

std::string in_labels(const sim::Problem& problem) {
  return in_labels(problem.field + ' ' + problem.message);
}

std::string in_labels(std::string_view sentence) {
  std::string words, word;
  const auto flush = [&] {
    // A full stop ends a sentence; within a word it parts a field from its section.
    std::string tail;
    while (!word.empty() && word.back() == '.') {
      tail += '.';
      word.pop_back();
    }
    const bool path = word.find('_') != std::string::npos || word.find('.') != std::string::npos;
    const ScenarioField* field = path ? field_meant(word) : nullptr;
    words += field ? field->label : word;
    words += tail;
    word.clear();
  };
  for (const char letter : sentence) {
    if (std::isalnum(static_cast<unsigned char>(letter)) || letter == '_' || letter == '.') {
      word += letter;
    } else {
      flush();
      words += letter;
    }
  }
  flush();
  return words;
}

sim::Scenario with_batch_following(const sim::Scenario& before, sim::Scenario next) {
  if (next.workload.task != sim::Task::train ||
      next.workload.global_batch_size != before.workload.global_batch_size)
    return next;
  const std::vector<sim::Problem> problems = sim::validate(next);
  if (!is_wrong(problems, kBatch)) return next;
  const auto of_one_pass = [](const sim::Scenario& s) {
    return std::max<std::int64_t>(1, s.workload.micro_batch_size * std::max(1, s.strategy.data_parallel));
  };
  const std::int64_t passes =
      std::max<std::int64_t>(1, before.workload.global_batch_size / of_one_pass(before));
  const std::int64_t stages = std::max(1, next.strategy.pipeline_parallel);
  for (const std::int64_t micro_batches : {passes, (passes + stages - 1) / stages * stages}) {
    sim::Scenario followed = next;
    followed.workload.global_batch_size = micro_batches * of_one_pass(next);
    if (!is_wrong(sim::validate(followed), kBatch)) return followed;
  }
  return next;
}

std::vector<sim::Problem> problems_of(const sim::Scenario& scenario) {
  std::vector<sim::Problem> problems = sim::validate(scenario);
  if (scenario.hardware.peak.empty())
    std::erase_if(problems, [](const sim::Problem& p) { return p.field.starts_with("hardware."); });
  return problems;
}

sim::Scenario with_division_following(const sim::Scenario& before, sim::Scenario next) {
  if (before.workload.task == next.workload.task || next.workload.task == sim::Task::train) return next;
  const sim::Scenario undivided;
  // One that goes back may be what another rests on: ZeRO on data parallelism.
  for (bool changed = true; changed;) {
    changed = false;
    for (const sim::Problem& problem : sim::validate(next)) {
      const sim::AnyField* const field = sim::field_at(problem.field);
      const bool is_of_training =
          field && field->part == "strategy" && field->applies && !field->applies(next);
      if (!is_of_training || !field->same(before, next) || field->same(undivided, next)) continue;
      field->copy(undivided, next);
      changed = true;
    }
  }
  return next;
}

sim::Scenario with_taken_fields_back(const sim::Scenario& before, const sim::Scenario& next,
                                     const std::vector<UndoStep>& undo) {
  if (before.workload.task == next.workload.task || is_another(before, next)) return next;
  const sim::Scenario* after = &before;
  for (auto step = undo.rbegin(); step != undo.rend(); ++step) {
    const sim::Scenario& then = step->other_side;
    if (then.workload.task == after->workload.task) {
      if (is_another(then, *after)) return next;
      after = &then;
      continue;
    }
    const std::vector<const sim::AnyField*> taken = taken_by_task(then, *after);
    sim::Scenario back = next;
    for (const sim::AnyField* const field : taken)
      if (field->same(*after, before) && field->same(before, next)) field->copy(then, back);
    // What was edited meanwhile may forbid it.
    const bool can_be =
        sim::validate(with_batch_following(before, back)).size() <= sim::validate(next).size();
    return then.workload.task == next.workload.task && can_be ? back : next;
  }
  return next;
}

std::optional<sim::Scenario> make_legal(const sim::Scenario& scenario) {
  sim::Scenario now = scenario;
  std::vector<sim::Problem> problems = sim::validate(now);
  for (int round = 0; round < kMostRounds && !problems.empty(); ++round) {
    std::optional<sim::Scenario> best;
    std::size_t fewest = problems.size();
    for (sim::Scenario& next : repairs(now, problems)) {
      const std::size_t left = sim::validate(next).size();
      if (left >= fewest) continue;
      fewest = left;
      best = std::move(next);
      if (left == 0) break;
    }
    if (!best) return std::nullopt;
    now = std::move(*best);
    problems = sim::validate(now);
  }
  return problems.empty() ? std::optional(std::move(now)) : std::nullopt;
}

}  // namespace app::gui
