// Peaks of memory and outcomes of tables: rows written out here, with published figures where one is
// compared.
#include <string>

#include "sim/csv.h"
#include "sim/validate/table_validation.h"
#include "tests/support/catch.h"

namespace {

using namespace sim;

const Prediction& only(const Validation& v, std::size_t row, std::string_view column) {
  INFO(v.rows[row].why_not);
  for (const Prediction& p : v.rows[row].predictions)
    if (p.column == column) return p;
  FAIL("no prediction of " << column);
  return v.rows[row].predictions.front();
}

TEST_CASE(
    "peaks of published runs lie in their bands: nanotron 1B (36.66 GiB), BLOOM's 181B (49 GB), torchtitan "
    "8B") {
  const CsvTable table = csv_from_text(
      "source,date,model_name,gpu,num_gpus,tp,pp,dp,zero_stage,seq_len,micro_batch,global_batch,recompute,"
      "precision,"
      "framework,kind,component,memory_gb,notes\n"
      "HF playbook,2025-02,Llama-style "
      "1B,H100-80GB-SXM,8,1,1,8,,4096,,,,bf16,nanotron,measured,total,36.66,\n"
      "bigscience chronicles,2022-02-21,BLOOM-prequel 181B,A100-80GB-SXM,384,8,12,4,zero1,2048,4,2048,full,,"
      "Megatron-DeepSpeed,measured,total,49,\n"
      "torchtitan,2024-12,Llama 3(.1) 8B,H100-96GB HBM2e 2.4TB/s 500W,8,1,1,8,FSDP2 "
      "(zero3),8192,2,16,selective,bf16,"
      "torchtitan (PyTorch),measured,total,77.0,\n"
      "playbook,2025-02,Llama 1B,,,,,,,1024,,,,bf16,nanotron memory formula,analytic,activations,1.0625,\n",
      "memory.csv");
  const Validation v = validate_table(table);
  for (const std::size_t row : {0u, 1u, 2u}) {
    const Prediction& p = only(v, row, "memory_gb");
    const double measured = std::stod(table.rows[row][17]);
    CHECK(p.low <= measured);
    CHECK(measured <= p.high);
    CHECK(p.value == Approx(measured).epsilon(0.1));
  }
  CHECK(v.rows[3].predictions.empty());
  CHECK(v.rows[3].why_not == "a formula's value, not a measurement");
}

TEST_CASE("what cannot fit is said not to fit, and outcomes are counted by kind") {
  const CsvTable table = csv_from_text(
      "id,model_name,gpu,num_gpus,tp,pp,dp,zero_stage,seq_len,micro_batch,grad_accum,global_batch,outcome\n"
      "ultrascale_a,Llama-style 1B,H100-80GB-SXM,8,1,1,8,zero1,4096,64,1,512,crashed/oom\n"
      "ultrascale_b,Llama-style 1B,H100-80GB-SXM,8,1,1,8,zero1,4096,1,4,32,ran\n"
      "ultrascale_c,Llama-style 1B,H100-80GB-SXM,8,1,1,8,zero1,4096,2,4,64,crashed/oom\n"
      "ultrascale_d,Llama-style 1B,H100-80GB-SXM,512,1,64,8,zero1,4096,1,64,512,crashed/oom\n",
      "outcomes.csv");
  const Validation v = validate_table(table);
  CHECK(only(v, 0, kOutcomeColumn).words == kDoesNotFit);
  CHECK(only(v, 1, kOutcomeColumn).words == kFits);
  CHECK(only(v, 2, kOutcomeColumn).words == kFits);
  CHECK(only(v, 3, kOutcomeColumn).words == kDoesNotFit);  // more stages than layers
  const ErrorSummary all = summarize(table, v).front();
  CHECK(all.fitted == 1);
  CHECK(all.fitted_right == 1);
  CHECK(all.failed == 3);
  CHECK(all.failed_right == 2);
  CHECK(all.balanced_accuracy() == Approx((1.0 + 2.0 / 3) / 2));
  const CsvTable out = with_predictions(table, v);
  CHECK(out.rows[0].back().empty());
  CHECK(to_text(out).find(",does not fit,") != std::string::npos);
}

}  // namespace
