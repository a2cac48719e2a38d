// Shapes against published parameter counts.
#include "sim/scenario/model.h"

#include <cmath>
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
      Golden{"smollm2-360m", 361'821'120}, Golden{"smollm2-1.7b", 1'711'376'384},
      Golden{"llama-7b", 6'738'415'616}, Golden{"llama-13b", 13'015'864'320},
      Golden{"llama-33b", 32'528'943'616}, Golden{"llama-65b", 65'285'660'672},
      Golden{"codellama-34b", 33'743'970'304}, Golden{"tinyllama-1.1b", 1'100'048'384},
      Golden{"olmo-2-7b", 7'298'617'344}, Golden{"olmo-2-13b", 13'716'198'400},
      Golden{"olmo-2-32b", 32'234'279'936}, Golden{"qwen1.5-7b", 7'721'324'544},
      Golden{"qwen2.5-3b", 3'085'938'688}, Golden{"qwen2.5-14b", 14'770'033'664},
      Golden{"qwen2.5-32b", 32'763'876'352}, Golden{"qwen3-0.6b", 596'049'920},
      Golden{"qwen3-1.7b", 1'720'574'976}, Golden{"qwen3-4b", 4'022'468'096},
      Golden{"qwen3-8b", 8'190'735'360}, Golden{"qwen3-14b", 14'768'307'200},
      Golden{"qwen3-32b", 32'762'123'264}, Golden{"qwen3-30b-a3b", 30'532'122'624},
      Golden{"qwen3-235b-a22b", 235'093'634'560}, Golden{"qwen3-coder-480b-a35b", 480'154'875'392},
      Golden{"qwen1.5-moe-a2.7b", 14'315'784'192}, Golden{"mixtral-8x7b", 46'702'792'704},
      Golden{"mixtral-8x22b", 140'620'634'112}, Golden{"deepseek-v3", 671'026'419'200},
      Golden{"deepseek-v2", 235'741'434'880}, Golden{"deepseek-v2-lite", 15'706'484'224},
      Golden{"deepseek-moe-16b", 16'375'728'128}, Golden{"gpt-oss-20b", 20'914'757'184},
      Golden{"gpt-oss-120b", 116'829'156'672}, Golden{"falcon-7b", 6'921'720'704},
      Golden{"bloom-560m", 559'214'592}, Golden{"bloom-7.1b", 7'069'016'064},
      Golden{"bloom-176b", 176'247'271'424}, Golden{"opt-125m", 125'239'296},
      Golden{"opt-1.3b", 1'315'758'080}, Golden{"opt-6.7b", 6'658'473'984},
      Golden{"gpt-neox-20b", 20'554'567'680}, Golden{"pythia-410m", 405'334'016},
      Golden{"pythia-6.9b", 6'857'302'016}, Golden{"gemma-2b", 2'506'172'416},
      Golden{"gemma-7b", 8'537'680'896}, Golden{"gemma-3-1b", 999'885'952}, Golden{"phi-3-mini", 3'821'079'552}, Golden{"phi-4", 14'659'507'200},
      Golden{"yi-6b", 6'061'035'520}, Golden{"yi-34b", 34'388'917'248},
      Golden{"starcoder-15b", 15'517'456'384}, Golden{"mistral-nemo-12b", 12'247'782'400},
      Golden{"mistral-large-123b", 122'610'069'504}, Golden{"internlm2-7b", 7'737'708'544},
      Golden{"internlm2-20b", 19'861'149'696});
  CAPTURE(golden.name);
  CHECK(count_parameters(load_model_preset(golden.name)).total == golden.parameters);
}

TEST_CASE("a token passes a part of a mixture of experts, as published") {
  // Shapes of peers counted with both embeddings; gpt-oss: 3.6 and 5.1 billion without the embedding of
  // tokens (OpenAI 2025, arXiv 2508.10925, table 1).
  CHECK(count_parameters(load_model_preset("mixtral-8x7b")).active == 12'879'925'248);
  CHECK(count_parameters(load_model_preset("deepseek-v3")).active == 37'552'297'472);
  for (const auto& [name, billions] : {std::pair{"gpt-oss-20b", 3.61}, {"gpt-oss-120b", 5.13}}) {
    const sim::ParameterCount n = count_parameters(load_model_preset(name));
    CHECK(static_cast<double>(n.active - n.embedding) / 1e9 == Approx(billions).epsilon(2e-3));
  }
}

TEST_CASE("Gemmas have as many parameters besides their embeddings as published") {
  // Gemma team 2024 (arXiv 2408.00118, table 2) and 2025 (arXiv 2503.19786, table 1), in millions.
  for (const auto& [name, millions] : {std::pair{"gemma-2-27b", 26'047}, {"gemma-3-1b", 698},
                                       {"gemma-3-4b", 3'209}, {"gemma-3-12b", 10'759},
                                       {"gemma-3-27b", 25'600}}) {
    const sim::ParameterCount n = count_parameters(load_model_preset(name));
    CAPTURE(name);
    CHECK(std::llround(static_cast<double>(n.total - n.embedding - n.head) / 1e6) == millions);
  }
}

TEST_CASE("with multi-token prediction DeepSeek-V3 is 684.5 billion numbers on disk") {
  // Safetensors index of https://huggingface.co/deepseek-ai/DeepSeek-V3: with copies of embedding and head,
  // and with a scale for each 128 x 128 of fp8.
  const sim::ParameterCount n = count_parameters(load_model_preset("deepseek-v3"));
  CHECK(static_cast<double>(n.total + n.multi_token_prediction + n.embedding + n.head) / 1e9 ==
        Approx(684.53).epsilon(1e-4));
}

TEST_CASE("parts of a parameter count add up to its total") {
  for (const std::string& name : sim::preset_names(sim::PresetKind::model)) {
    CAPTURE(name);
    const Model m = load_model_preset(name);
    const sim::ParameterCount n = count_parameters(m);
    const std::int64_t sparse = m.expert_layers(), states = m.layers_of(sim::LayerSort::state_space);
    CHECK(n.embedding + m.num_hidden_layers * n.norms_per_layer +
              m.attention_layers() * n.attention_per_layer + states * n.state_space_per_layer +
              m.dense_layers() * n.mlp_per_layer + sparse * n.moe_per_layer + n.final_norm + n.head ==
          n.total);
    CHECK((n.active < n.total) == (sparse > 0));
  }
}
