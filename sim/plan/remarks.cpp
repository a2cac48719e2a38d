#include "sim/plan/remarks.h"

#include "sim/format.h"

namespace sim {

std::vector<Problem> remarks(const Scenario& scenario) {
  const Model& m = scenario.model;
  const Workload& w = scenario.workload;
  const bool trains = w.task == Task::train;
  const std::int64_t length = trains ? w.seq_len : w.prompt_length + w.max_new_tokens;
  if (length <= m.max_position_embeddings) return {};
  return {{trains ? "workload.seq_len" : "workload.prompt_length",
           "sequences of " + format_count(length) + " tokens" + (trains ? "" : ", new ones included,") +
               " go beyond the " + format_count(m.max_position_embeddings) + " positions that " + m.name +
               " was trained on: time and memory are predicted as if it knew them"}};
}

}  // namespace sim
