#include "sim/validate/row_reader.h"

namespace sim {
namespace {

constexpr std::string_view kPredicted = "predicted_time_s";

std::vector<Prediction> predict_own(const TableRow& row) {
  if (const std::string_view why = row.text("why_not"); !why.empty()) throw CannotPredict(std::string(why));
  return {{.column = "time_s",
           .value = row.positive(kPredicted),
           .low = row.positive("predicted_time_s_low"),
           .high = row.positive("predicted_time_s_high")}};
}

}  // namespace

RowReader own_rows() {
  return {.what = "runs beside their predictions",
          .needs = {"what", "series", "at", "time_s", kPredicted},
          .measured = {{"time_s"}},
          .source = "what",
          .predict = predict_own};
}

}  // namespace sim
