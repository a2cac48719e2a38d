// What a scenario asks of hardware and model that they do not have: refused, or remarked.
#include <algorithm>

#include "sim/plan/legality.h"
#include "sim/scenario/fields.h"
#include "sim/scenario/preset.h"
#include "tests/sim/scenarios.h"
#include "tests/support/catch.h"

using namespace sim;

namespace {

std::string problem_with(const Scenario& s, std::string_view field) {
  for (const Problem& problem : validate(s))
    if (problem.field == field) return problem.message;
  return {};
}

}  // namespace

TEST_CASE("a type is computed in where the datasheet has a rate for it, and is else refused") {
  Scenario s;
  s.model = load_model_preset("llama-3.2-1b");
  for (const std::string& hardware : preset_names(PresetKind::hardware)) {
    s.hardware = load_hardware_preset(hardware);
    for (const std::string_view type : kComputeTypes) {
      CAPTURE(hardware, type);
      s.workload.dtype = *from_name<DType>(type);
      const std::string problem = problem_with(s, "workload.dtype");
      REQUIRE(problem.empty() == s.hardware.peak.contains(s.workload.dtype));
      if (problem.empty()) continue;
      CHECK(problem.find(hardware) != std::string::npos);
      const std::string said = problem.substr(problem.find("must be"));
      for (const std::string_view other : kComputeTypes)
        CHECK((said.find(other) != std::string::npos) == s.hardware.peak.contains(*from_name<DType>(other)));
    }
  }
}

// Tensor cores of V100 multiply fp16 alone (NVIDIA 2017, Tesla V100 GPU architecture, WP-08608-001).
TEST_CASE("a V100 computes in fp16 and fp32, not in bf16 or tf32") {
  Scenario s;
  s.model = load_model_preset("llama-3.2-1b");
  s.hardware = load_hardware_preset("v100-sxm");
  s.workload.dtype = DType::bf16;
  CHECK(problem_with(s, "workload.dtype") ==
        "is bf16, but hardware v100-sxm has no bf16 arithmetic: it must be fp32 or fp16");
  s.workload.dtype = DType::tf32;
  CHECK_FALSE(problem_with(s, "workload.dtype").empty());
  for (const DType type : {DType::fp16, DType::fp32}) {
    s.workload.dtype = type;
    CHECK(validate(s).empty());
  }
}

TEST_CASE("sequences are remarked on from the first token beyond the trained positions") {
  for (const std::string& name : preset_names(PresetKind::model)) {
    CAPTURE(name);
    Scenario s;
    s.model = load_model_preset(name);
    const std::int64_t trained = s.model.max_position_embeddings;
    s.workload.task = Task::train;
    s.workload.seq_len = trained;
    CHECK(remarks(s).empty());
    ++s.workload.seq_len;
    REQUIRE(remarks(s).size() == 1);
    CHECK(remarks(s).front().field == "workload.seq_len");

    s.workload.task = Task::generate;
    s.workload.max_new_tokens = 1;
    s.workload.prompt_length = trained - 1;
    CHECK(remarks(s).empty());
    ++s.workload.prompt_length;
    REQUIRE(remarks(s).size() == 1);
    CHECK(remarks(s).front().field == "workload.prompt_length");
  }
}

TEST_CASE("arithmetic that a chip lacks is refused with the field that its file would have") {
  Hardware chip = load_hardware_preset("h100-sxm");
  chip.peak.erase(DType::fp32);
  CHECK_THROWS_WITH(chip.peak_for(DType::fp32),
                    contains("h100-sxm has no fp32 arithmetic (field \"fp32_tflops_dense\"), only "));
}
