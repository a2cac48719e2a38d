#include <stdexcept>

#include "sim/plan/legality.h"
#include "sim/plan/plan.h"
#include "sim/plan/programs.h"

namespace sim {

std::int64_t Buffer::elements(const Variables& v) const {
  std::int64_t n = 1;
  for (const Extent& e : shape) n *= e.value(v);
  return n;
}

Bytes Buffer::bytes(const Variables& v) const {
  return {(elements(v) * bits(dtype) + 7) / 8};
}

Bytes Buffer::memory(const Variables& v) const {
  std::int64_t n = 1;
  for (const Extent& e : shape) n *= e.most_value(v);
  return {(n * bits(dtype) + 7) / 8};
}

BufferId Plan::find(std::string_view buffer_name) const {
  for (std::size_t i = 0; i < buffers.size(); ++i)
    if (buffers[i].name == buffer_name) return static_cast<BufferId>(i);
  return kNoBuffer;
}

double Plan::elements_of(const Operation& op, Role role, const Variables& v) const {
  const Operands& rows = info(op.kind).operands;
  double sum = 0;
  for (std::size_t i = 0; i < op.operands.size(); ++i)
    if (rows.at(i).role == role && op.operands[i].buffer != kNoBuffer)
      sum += static_cast<double>(buffer(op.operands[i])->elements(v));
  return sum;
}

void require_valid(const Scenario& scenario) {
  const std::vector<Problem> problems = validate(scenario);
  if (!problems.empty()) throw std::invalid_argument(problems[0].field + ": " + problems[0].message);
}

Plan make_plan(const Scenario& scenario) {
  require_valid(scenario);
  return scenario.workload.task == Task::train ? make_training_plan(scenario)
                                               : make_generation_plan(scenario);
}

}  // namespace sim
