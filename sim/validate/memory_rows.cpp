#include "sim/validate/peak_memory.h"
#include "sim/validate/table_validation.h"
#include "sim/validate/table_words.h"

namespace sim {
namespace {

std::vector<Prediction> predict_memory(const TableRow& row) {
  if (!meaning("formula", row.text("kind")).empty()) throw LeftAside("a formula's value, not a measurement");
  const std::string component = lower(row.text("component"));
  if (!component.empty() && component != "total" && component != "allocated")
    throw CannotPredict("component \"" + std::string(row.text("component")) + "\" is no total");
  return {memory_prediction(row, "memory_gb", peak_memory(training_row(row)))};
}

std::vector<Prediction> predict_outcome(const TableRow& row) {
  try {
    const PeakMemory peak = peak_memory(training_row(row));
    return {memory_prediction(row, "peak_memory_gb", peak), outcome_prediction(peak)};
  } catch (const IllegalStrategy&) {  // such a run does not start either
    PeakMemory none;
    none.fits = false;
    return {outcome_prediction(none)};
  }
}

}  // namespace

RowReader memory_rows() {
  return {.what = "memory",
          .needs = {"gpu", "component", "kind", "memory_gb"},
          .measured = {{"memory_gb"}},
          .predict = predict_memory};
}

RowReader outcome_rows() {
  return {.what = "outcomes",
          .needs = {"gpu", "num_gpus", "tp", "outcome"},
          .measured = {{"peak_memory_gb"}, {kOutcomeColumn}},
          .source = "model_name",
          .predict = predict_outcome};
}

}  // namespace sim
