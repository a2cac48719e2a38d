// Shapes against published parameter counts.
#include "sim/scenario/model.h"

#include <string>

#include "sim/scenario/preset.h"
#include "tests/support/catch.h"

using sim::count_parameters;
using sim::load_model_preset;
using sim::Model;

TEST_CASE("presets have the published number of parameters") {
  struct Golden {
    const char* name;
    std::int64_t parameters;
  };
  // GPT-2, GPT-3 and Llama 3.1: the counts that the closed forms below give too. The others: the number of
  // parameters in the safetensors index of the repository that the preset names.
  const Golden golden = GENERATE(
      Golden{"gpt2-124m", 124'439'808}, Golden{"gpt2-355m", 354'823'168}, Golden{"gpt2-774m", 774'030'080},
      Golden{"gpt2-1558m", 1'557'611'200}, Golden{"gpt3-175b", 174'604'259'328},
      Golden{"llama-2-7b", 6'738'415'616}, Golden{"llama-2-13b", 13'015'864'320},
      Golden{"llama-2-70b", 68'976'648'192}, Golden{"llama-3.1-8b", 8'030'261'248},
      Golden{"llama-3.1-70b", 70'553'706'496}, Golden{"llama-3.1-405b", 405'853'388'800},
      Golden{"llama-3.2-1b", 1'235'814'400}, Golden{"llama-3.2-3b", 3'212'749'824},
      Golden{"qwen2.5-0.5b", 494'032'768}, Golden{"qwen2.5-1.5b", 1'543'714'304},
      Golden{"qwen2.5-7b", 7'615'616'512}, Golden{"qwen2.5-72b", 72'706'203'648},
      Golden{"mistral-7b", 7'241'732'096}, Golden{"smollm2-135m", 134'515'008},
      Golden{"smollm2-360m", 361'821'120}, Golden{"smollm2-1.7b", 1'711'376'384});
  CAPTURE(golden.name);
  CHECK(count_parameters(load_model_preset(golden.name)).total == golden.parameters);
}

TEST_CASE("parts of a parameter count add up to its total") {
  for (const std::string& name : sim::preset_names(sim::PresetKind::model)) {
    CAPTURE(name);
    const Model m = load_model_preset(name);
    const sim::ParameterCount n = count_parameters(m);
    const std::int64_t layers = n.attention_per_layer + n.norms_per_layer;
    const std::int64_t sparse = m.expert_layers(), dense = m.num_hidden_layers - sparse;
    CHECK(n.embedding + m.num_hidden_layers * layers + dense * n.mlp_per_layer + sparse * n.moe_per_layer +
              n.final_norm + n.head ==
          n.total);
    CHECK((n.active < n.total) == (sparse > 0));
  }
}
