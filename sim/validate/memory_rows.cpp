#include "sim/units.h"
#include "sim/validate/peak_memory.h"
#include "sim/validate/row_reader.h"
#include "sim/validate/text_search.h"

namespace sim {
namespace {

std::vector<Prediction> predict_memory(const TableRow& row) {
  const std::string component = lower(row.text("component"));
  if (!component.empty() && component != "total" && component != "allocated")
    throw CannotPredict("component \"" + std::string(row.text("component")) + "\" is no total");
  const PeakMemory peak = peak_memory(training_row(row), reported_stage(row));
  const double gib = static_cast<double>(reported_bytes(row, peak).value) / kGiB;
  return {{"memory_gb", gib, gib * peak.low, gib * peak.high}};
}

}  // namespace

RowReader memory_rows() {
  return {.what = "memory",
          .needs = {"gpu", "component", "kind", "memory_gb"},
          .measured = {{"memory_gb"}},
          .predict = predict_memory};
}

}  // namespace sim
