// Tables of whole training runs.
#include <string>

#include "sim/validate/table_validation.h"
#include "tests/support/catch.h"

using namespace sim;

namespace {

Validation predict(const std::string& rows) {
  return validate_table(csv_from_text(
      "site,date,model_name,gpu,num_gpus,tokens_t,gpu_power_w,gpu_hours,energy_mwh,co2_t,cost_usd,"
      "wall_clock_days\n" +
          rows,
      "runs.csv"));
}

double value(const ValidatedRow& row, std::string_view column) {
  for (const Prediction& p : row.predictions)
    if (p.column == column) return p.value;
  return 0;
}

}  // namespace

TEST_CASE("a run of twice the tokens takes twice the hours, energy, carbon, money and days") {
  const Validation v = predict(
      ",2023-07,Llama 2 7B,A100-80GB,512,1,400,,,,,\n"
      ",2023-07,Llama 2 7B,A100-80GB,512,2,400,,,,,\n");
  for (const char* column : {"gpu_hours", "energy_mwh", "co2_t", "cost_usd", "wall_clock_days"}) {
    CAPTURE(column);
    REQUIRE(value(v.rows[0], column) > 0);
    CHECK(value(v.rows[1], column) == Approx(2 * value(v.rows[0], column)));
  }
  CHECK(value(v.rows[0], "gpu_hours") == Approx(value(v.rows[0], "wall_clock_days") * 24 * 512));
}

TEST_CASE("energy is hours of rated power, by the factors of the site that its row names") {
  const Validation v = predict(
      "llama-1-paper,2023-02,LLaMA-7B,A100-80GB,,1,400,,,,,\n"
      "llama-1-paper,2023-02,LLaMA-7B,A100-80GB,,1,200,,,,,\n");
  const double hours = value(v.rows[0], "gpu_hours");
  CHECK(value(v.rows[0], "energy_mwh") == Approx(hours * 400 * 1.1 / 1e6));
  CHECK(value(v.rows[0], "co2_t") == Approx(value(v.rows[0], "energy_mwh") * 0.385));
  CHECK(value(v.rows[1], "energy_mwh") == Approx(value(v.rows[0], "energy_mwh") / 2));
}

TEST_CASE("a run of which too little is said is left aside and says what is missing") {
  const Validation v = predict(
      ",2023,Llama 2 7B,A100-80GB,,,400,184320,,,,\n"
      ",2023,Llama 2 family total,A100-80GB,,2,400,3311616,,,,\n"
      ",2023,Llama 2 7B,TPU v4,,2,400,184320,,,,\n");
  CHECK(v.rows[0].aside);
  CHECK(v.rows[0].why_not == "no inputs to predict from: tokens_t is not given");
  CHECK(v.rows[1].aside);
  CHECK_FALSE(v.rows[2].aside);  // a device that is not known is a gap of ours
  CHECK_FALSE(v.rows[2].why_not.empty());
}
