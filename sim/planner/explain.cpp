#include "sim/planner/explain.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "sim/cost/predict.h"
#include "sim/cost/priced_plan.h"
#include "sim/format.h"
#include "sim/report/metrics.h"

namespace sim {
namespace {

using Spent = EnumArray<Spending, Seconds>;

Spending part_of_compute(OpKind kind) {
  if (is_product(kind)) return Spending::matrix_products;
  return info(kind).family == Family::attention ? Spending::attention : Spending::other_compute;
}

Spending part_of_exchange(const Group& group) {
  if (group.axis == Axis::tensor || group.axis == Axis::key_value) return Spending::tensor_exchange;
  if (group.axis == Axis::context) return Spending::context_exchange;
  if (group.axis == Axis::expert) return Spending::expert_exchange;
  return group.axis == Axis::pipeline ? Spending::pipeline_exchange_and_bubble : Spending::data_exchange;
}

Spending part_of(const Plan& plan, Phase phase, const Operation& op) {
  if (phase == Phase::optimizer) return Spending::optimizer;
  if (op.group >= 0) return part_of_exchange(plan.group(op.group));
  return phase == Phase::recompute ? Spending::recomputation : part_of_compute(op.kind);
}

// Along the compute stream of one stage: each moment of the step goes to one part.
class Ledger {
 public:
  Ledger(const Plan& plan, const PricedPlan& priced, std::size_t program, double interference)
      : plan_(plan), priced_(priced), program_(program), interference_(interference) {
    const std::vector<Action>& actions = plan.programs[program].actions;
    for (std::size_t i = 0; i < actions.size(); ++i)
      if (actions[i].stream == kComputeStream) add(actions[i], i);
    // What the stage's other streams do when its compute is over.
    const Seconds end = priced.expected.duration;
    const bool on_host = plan.scenario.strategy.offload_optimizer;
    spend(on_host ? Spending::optimizer : Spending::data_exchange, end - now_);
  }
  const Spent& spent() const { return spent_; }

 private:
  void spend(Spending part, Seconds t) { spent_[part] += t; }

  void add(const Action& a, std::size_t i) {
    const ExecutedProgram& executed = priced_.expected.programs[program_];
    const Seconds start = executed.start[i], end = executed.end[i];
    if (start > now_) spend(waits_for(a, start), start - now_);
    now_ = std::max(now_, end);
    if (a.peer >= 0) return spend(Spending::pipeline_exchange_and_bubble, end - start);
    const PricedBlock& block = priced_.block(program_, i);
    const auto& operations = plan_.block(a.block).operations;
    Seconds in_turn;
    for (const PricedOperation& op : block.operations) in_turn += op.price.seconds;
    const double share = in_turn.value > 0 ? block.duration / in_turn : 0;
    for (std::size_t op = 0; op < operations.size(); ++op)
      spend(part_of(plan_, a.phase, operations[op]), block.operations[op].price.seconds * share);
    // The block ran slower beside exchanges, or was launched late.
    const Seconds longer = end - start - block.duration;
    const Seconds slowed = std::min(longer, block.duration * (interference_ - 1));
    spend(Spending::data_exchange, slowed);
    spend(Spending::host, longer - slowed);
  }

  Spending waits_for(const Action& a, Seconds start) const {
    for (const std::int32_t wait : {a.wait, a.wait_also}) {
      if (wait < 0) continue;
      const auto w = static_cast<std::size_t>(wait);
      const bool until = priced_.expected.programs[program_].end[w] >= start;
      if (until && plan_.programs[program_].actions[w].stream == kCollectiveStream)
        return Spending::data_exchange;
    }
    return Spending::host;
  }

  const Plan& plan_;
  const PricedPlan& priced_;
  std::size_t program_;
  double interference_;
  Seconds now_;
  Spent spent_{};
};

std::size_t last_to_end(const Plan& plan, const PricedPlan& priced) {
  std::size_t last = 0;
  Seconds latest;
  for (std::size_t p = 0; p < plan.programs.size(); ++p)
    for (const Seconds end : priced.expected.programs[p].end)
      if (end > latest) {
        latest = end;
        last = p;
      }
  return last;
}

std::string sentence_of(const Explanation& e) {
  if (e.rows.empty()) return {};
  const SpendingRow& largest = e.rows.front();
  if (e.step.size() == 1)
    return "Most of its step is " + std::string(name(largest.part)) + ", " + format(largest.seconds[0]) +
           " of " + format(e.step[0]) + ".";
  const Seconds less = e.step[1] - e.step[0];
  const bool first_is_faster = less >= Seconds{};
  const double faster = first_is_faster ? e.step[1] / e.step[0] - 1 : e.step[0] / e.step[1] - 1;
  std::string text =
      std::string(first_is_faster ? "The first" : "The second") + " is " + format_percent(faster) + " faster";
  const char* before = ": ";
  for (std::size_t i = 0; i < std::min<std::size_t>(2, e.rows.size()); ++i) {
    const SpendingRow& row = e.rows[i];
    const Seconds saved = first_is_faster ? row.seconds[1] - row.seconds[0] : row.seconds[0] - row.seconds[1];
    if (saved == Seconds{}) break;
    text += before + format(Seconds{std::abs(saved.value)}) + (saved > Seconds{} ? " less " : " more ") +
            std::string(name(row.part));
    before = ", ";
  }
  return text + ".";
}

}  // namespace

Explanation explain(const std::vector<Scenario>& scenarios, const Calibration* calibration) {
  Explanation e;
  std::vector<Spent> spent;
  for (const Scenario& s : scenarios) {
    const Plan plan = make_plan(s);
    const PricedPlan priced = price_plan(plan, s.hardware, calibration);
    const Report report = predict(plan, s.hardware, calibration, priced);
    e.step.push_back(report.step_time);
    e.memory.push_back(peak_memory(report));
    Spent of_step = Ledger(plan, priced, last_to_end(plan, priced), interference(s, s.hardware)).spent();
    of_step[Spending::slowest] = report.waiting_for_slowest;
    spent.push_back(of_step);
  }
  for (const Spending part : kAll<Spending>) {
    SpendingRow row{part, {}};
    for (const Spent& s : spent) row.seconds.push_back(s[part]);
    bool any = false;  // more than what rounding leaves
    for (std::size_t i = 0; i < spent.size(); ++i) any = any || spent[i][part] > e.step[i] * 1e-9;
    if (any) e.rows.push_back(std::move(row));
  }
  const auto weight = [](const SpendingRow& row) {
    return row.seconds.size() == 1 ? row.seconds[0].value
                                   : std::abs(row.seconds[1].value - row.seconds[0].value);
  };
  std::ranges::stable_sort(e.rows, std::greater<>{}, weight);
  e.sentence = sentence_of(e);
  return e;
}

}  // namespace sim
