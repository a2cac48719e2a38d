// Profiles of memory over time, and what is predicted of their steps.
#include "sim/validate/memory_series.h"

#include <algorithm>
#include <string>

#include "sim/scenario/preset.h"
#include "sim/validate/table_validation.h"
#include "tests/support/catch.h"

using namespace sim;

namespace {

const std::string kHeader = "t_s,parameter_gib,optimizer_state_gib,activation_gib,gradient_gib,total_gib\n";
// Two steps; the optimizer's states come at the end of the first.
const std::string kSeries =
    "0,4,0,1,0,5\n"
    "1,4,0,9,0,13\n"
    "2,4,0,2,3,9\n"
    "3,4,8,0,4,16\n"
    "4,4,8,1,0,13\n"
    "5,4,8,10,0,22\n"
    "6,4,8,0,4,16\n";

CsvTable table_of(const std::string& rows) {
  return csv_from_text(kHeader + rows, "series.csv");
}

std::string cell(const CsvTable& table, std::size_t row, const std::string& column) {
  const auto found = std::find(table.header.begin(), table.header.end(), column);
  REQUIRE(found != table.header.end());
  return table.rows[row][static_cast<std::size_t>(found - table.header.begin())];
}

}  // namespace

TEST_CASE("a series of memory becomes the largest of each category in each step") {
  const CsvTable steps = comparable_table(table_of(kSeries), "series.csv");
  REQUIRE(steps.rows.size() == 2);
  CHECK(cell(steps, 0, "step") == "1");
  CHECK(cell(steps, 0, "total_gib") == "16");
  CHECK(cell(steps, 0, "activation_gib") == "9");
  CHECK(cell(steps, 0, "gradient_gib") == "4");
  CHECK(cell(steps, 1, "total_gib") == "22");
  CHECK(cell(steps, 1, "optimizer_state_gib") == "8");
}

TEST_CASE("a step that is cut off before its gradients is none, and no sample may be no number") {
  CHECK(comparable_table(table_of(kSeries + "7,4,8,1,0,13\n"), "series.csv").rows.size() == 2);
  REQUIRE_THROWS_WITH(comparable_table(table_of("0,4,0,one,0,5\n"), "series.csv"),
                      "series.csv: row 1: activation_gib must be a number of GiB, 0 or more");
}

TEST_CASE("what is no series stays as it is") {
  const CsvTable rows = csv_from_text("gpu,kernel\nA100,copy\n", "kernels.csv");
  CHECK(comparable_table(rows, "kernels.csv").header == rows.header);
}

TEST_CASE(
    "predictions of steps are the same whatever was measured, and later steps hold the optimizer's states") {
  const std::string header =
      "model_name,seq_len,micro_batch,step,parameter_gib,optimizer_state_gib,activation_gib,gradient_gib,"
      "total_gib\n";
  const auto predict = [&](const std::string& rows) {
    return validate_table(csv_from_text(header + rows, "steps.csv")).rows;
  };
  const auto empty = predict("gpt2-124m,1024,4,1,,,,,\ngpt2-124m,1024,4,2,,,,,\n");
  const auto full = predict("gpt2-124m,1024,4,1,1,1,1,1,1\ngpt2-124m,1024,4,2,2,2,2,2,2\n");
  REQUIRE(empty[0].predictions.size() == full[0].predictions.size());
  for (std::size_t i = 0; i < empty[0].predictions.size(); ++i)
    CHECK(empty[0].predictions[i].value == full[0].predictions[i].value);
  const auto value = [](const ValidatedRow& row, std::string_view column) {
    for (const Prediction& p : row.predictions)
      if (p.column == column) return p.value;
    return 0.0;
  };
  // AdamW in fp32: two moments of the parameters' type, which the first step makes after its peak.
  CHECK(value(empty[1], "optimizer_state_gib") == Approx(2 * value(empty[1], "parameter_gib")).epsilon(1e-3));
  CHECK(value(empty[1], "total_gib") > value(empty[0], "total_gib"));
  CHECK(value(empty[1], "gradient_gib") == Approx(value(empty[1], "parameter_gib")).epsilon(1e-3));
}
