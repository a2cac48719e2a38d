#include "sim/scenario/preset.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "sim/json_object.h"
#include "sim/plan/legality.h"
#include "tests/sim/random_scenario.h"
#include "tests/support/catch.h"

using sim::PresetError;
using sim::PresetKind;
using sim::Scenario;
namespace fs = std::filesystem;

namespace {

// A folder of presets of its own for the length of a test.
class PresetFolder {
 public:
  PresetFolder()
      : path_(fs::temp_directory_path() / ("ridgepoint_presets_" + std::to_string(std::random_device{}()))) {
    for (const char* kind : {"models", "hardware", "implementations", "workloads", "scenarios"})
      fs::create_directories(path_ / kind);
    setenv("RIDGEPOINT_PRESETS", path_.c_str(), 1);
  }
  ~PresetFolder() {
    unsetenv("RIDGEPOINT_PRESETS");
    fs::remove_all(path_);
  }
  PresetFolder(const PresetFolder&) = delete;
  PresetFolder& operator=(const PresetFolder&) = delete;
  void write(const std::string& name, const std::string& content) const {
    std::ofstream(path_ / name) << content;
  }

 private:
  fs::path path_;
};

const std::string kSmallModel = R"("norm": "rmsnorm", "activation": "swiglu", "position": "rope",
  "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
  "vocab_size": 256, "max_position_embeddings": 128)";

}  // namespace

TEST_CASE("every preset loads, has a source, and is called what its file is called") {
  for (const std::string& name : sim::preset_names(PresetKind::model)) {
    CAPTURE(name);
    const sim::Model model = sim::load_model_preset(name);
    CHECK(model.name == name);
    CHECK_FALSE(model.source.empty());
  }
  for (const std::string& name : sim::preset_names(PresetKind::hardware)) {
    CAPTURE(name);
    const sim::Hardware hardware = sim::load_hardware_preset(name);
    CHECK(hardware.name == name);
    CHECK_FALSE(hardware.display_name.empty());
    CHECK_FALSE(hardware.source.empty());
  }
  for (const std::string& name : sim::preset_names(PresetKind::implementation)) {
    CAPTURE(name);
    CHECK(sim::load_implementation_preset(name).name == name);
  }
  for (const std::string& name : sim::preset_names(PresetKind::workload)) {
    CAPTURE(name);
    CHECK_NOTHROW(sim::load_workload_preset(name));
  }
}

TEST_CASE("every scenario preset is free of contradictions once its hardware is known") {
  for (const std::string& name : sim::preset_names(PresetKind::scenario)) {
    CAPTURE(name);
    Scenario scenario = sim::load_scenario_preset(name);
    if (scenario.hardware.name == sim::kThisMachine)
      scenario.hardware = sim::load_hardware_preset("a100-sxm-80gb");
    CHECK(sim::validate(scenario).empty());
  }
}

TEST_CASE("every model runs on every hardware without a contradiction") {
  Scenario scenario;
  for (const std::string& model : sim::preset_names(PresetKind::model)) {
    scenario.model = sim::load_model_preset(model);
    scenario.workload.seq_len = 256;
    for (const std::string& hardware : sim::preset_names(PresetKind::hardware)) {
      CAPTURE(model, hardware);
      scenario.hardware = sim::load_hardware_preset(hardware);
      using enum sim::DType;
      scenario.workload.dtype = scenario.hardware.has_peak_for(bf16) ? bf16 : fp16;
      CHECK(sim::validate(scenario).empty());
    }
  }
}

TEST_CASE("names are sorted by size within a family") {
  const auto names = sim::preset_names(PresetKind::model);
  const auto index = [&names](const char* name) {
    const auto found = std::find(names.begin(), names.end(), name);
    REQUIRE(found != names.end());
    return found - names.begin();
  };
  CHECK(index("gpt2-124m") < index("gpt2-355m"));
  CHECK(index("gpt2-774m") < index("gpt2-1558m"));
  CHECK(index("llama-3.1-8b") < index("llama-3.1-70b"));
  CHECK(index("llama-3.1-70b") < index("llama-3.1-405b"));
  CHECK(index("qwen2.5-0.5b") < index("qwen2.5-72b"));
  CHECK(index("smollm2-360m") < index("smollm2-1.7b"));
}

TEST_CASE("an alias is the preset that it names") {
  CHECK(sim::load_hardware_preset("h100") == sim::load_hardware_preset("h100-sxm"));
  CHECK(sim::load_model_preset("gpt2-xl") == sim::load_model_preset("gpt2-1558m"));
  CHECK(sim::resolve_alias(PresetKind::hardware, "h100-sxm") == "h100-sxm");
}

TEST_CASE("models are found in the spellings of others") {
  const auto model = [](const char* name) { return sim::resolve_alias(PresetKind::model, name); };
  CHECK(model("Llama 3.1 70B") == "llama-3.1-70b");
  CHECK(model("Meta-Llama-3-70B-Instruct") == "llama-3-70b");
  CHECK(model("meta-llama/Llama-3.3-70B-Instruct") == "llama-3.1-70b");
  CHECK(model("LLaMA2_7B-chat") == "llama-2-7b");
  CHECK(model("GPT3-175B") == "gpt3-175b");
  CHECK(model("GPT 530B (MT-NLG)") == "gpt-530b");
  CHECK(model("Mixtral 8x7b") == "mixtral-8x7b");
  CHECK(model("Qwen/Qwen3-30B-A3B") == "qwen3-30b-a3b");
  CHECK(model("MPT-1.3B") == "mpt-1b");  // and not 13B
  CHECK(model("DeepSeek R1") == "deepseek-v3");
  CHECK(model("a model that nobody made") == "a model that nobody made");
}

TEST_CASE("every alias names a preset") {
  std::ifstream in(sim::preset_directory() / "aliases.json");
  const sim::Json aliases = sim::Json::parse(in);
  for (const auto& [kind, folder] : {std::pair{PresetKind::model, "models"},
                                     {PresetKind::hardware, "hardware"},
                                     {PresetKind::implementation, "implementations"}}) {
    const std::vector<std::string> names = sim::preset_names(kind);
    for (const auto& [alias, name] : aliases.at(folder).items()) {
      CAPTURE(alias);
      CHECK(std::find(names.begin(), names.end(), name.get<std::string>()) != names.end());
    }
  }
}

TEST_CASE("an unknown name lists the nearest presets") {
  CHECK_THROWS_WITH(sim::load_model_preset("gpt2-124"), contains("\"gpt2-124\"") && contains("gpt2-124m"));
  CHECK_THROWS_WITH(sim::load_hardware_preset("h100-smx"), contains("h100-sxm"));
  CHECK_THROWS_WITH(sim::load_hardware_preset("zzzzzzzzzzzzzzzz"), contains("rtx-4090"));
  CHECK_THROWS_AS(sim::load_model_preset(""), PresetError);
  CHECK_THROWS_AS(sim::load_model_preset("../models/gpt2-124m"), PresetError);
  CHECK_THROWS_WITH(sim::load_hardware_preset("this-machine"), contains("measures"));
}

TEST_CASE("a preset with an unknown, missing or mistyped field is refused by name") {
  const PresetFolder folder;
  folder.write("models/good.json", "{" + kSmallModel + R"(, "source": "a test"})");
  CHECK(sim::load_model_preset("good").head_dim == 16);
  CHECK(sim::load_model_preset("good").num_key_value_heads == 4);

  folder.write("models/extra.json", "{" + kSmallModel + R"(, "hiden_size": 3, "source": "a test"})");
  CHECK_THROWS_WITH(sim::load_model_preset("extra"), contains("extra.json") && contains("hiden_size") &&
                                                         contains("did you mean \"hidden_size\""));
  folder.write("models/sourceless.json", "{" + kSmallModel + "}");
  CHECK_THROWS_WITH(sim::load_model_preset("sourceless"), contains("\"source\" is missing"));
  folder.write("models/typed.json", R"({"extends": "good", "vocab_size": "many", "source": "a test"})");
  CHECK_THROWS_WITH(sim::load_model_preset("typed"), contains("vocab_size") && contains("whole number"));
  folder.write("models/broken.json", "{\n  \"norm\": ,\n}");
  CHECK_THROWS_WITH(sim::load_model_preset("broken"), contains("broken.json") && contains("line 2"));
  folder.write("models/list.json", "[1]");
  CHECK_THROWS_AS(sim::load_model_preset("list"), PresetError);
  folder.write("models/circle.json", R"({"extends": "circle", "source": "a test"})");
  CHECK_THROWS_WITH(sim::load_model_preset("circle"), contains("circle"));
  folder.write("implementations/large.json",
               R"({"kernels": {"loss_bytes_per_logit": 2e6}, "source": "a test"})");
  CHECK_THROWS_WITH(sim::load_implementation_preset("large"),
                    contains("kernels.loss_bytes_per_logit") && contains("at most 1,000,000"));
  folder.write("hardware/twice.json",
               R"({"bf16_tflops_dense": 1, "memory_gib": 1, "memory_bytes": 5, "source": "a test"})");
  CHECK_THROWS_WITH(sim::load_hardware_preset("twice"), contains("memory_bytes") && contains("twice"));
  folder.write("hardware/vast.json", R"({"bf16_tflops_dense": 1, "memory_gib": 1e300, "source": "a test"})");
  CHECK_THROWS_WITH(sim::load_hardware_preset("vast"), contains("memory"));
}

TEST_CASE("a part of a scenario is a preset, a preset with changes, or spelled out") {
  const Scenario named = sim::scenario_from_json(
      R"({"model": "llama-3.1-8b", "hardware": "h100", "workload": "pretrain-2k"})", "named.json");
  CHECK(named.model == sim::load_model_preset("llama-3.1-8b"));
  CHECK(named.hardware == sim::load_hardware_preset("h100-sxm"));
  CHECK(named.implementation == sim::load_implementation_preset("ridgepoint"));

  const Scenario changed = sim::scenario_from_json(
      R"({"model": {"extends": "llama-3.1-8b", "num_hidden_layers": 4}, "hardware": "this-machine",
          "strategy": {"recompute": "full"}})",
      "changed.json");
  CHECK(changed.model.num_hidden_layers == 4);
  CHECK(changed.model.hidden_size == named.model.hidden_size);
  CHECK(changed.strategy.recompute == sim::Recompute::full);
  CHECK(changed.hardware.name == "this-machine");
  CHECK(changed.hardware.peak.empty());

  const Scenario extended = sim::scenario_from_json(
      R"({"extends": "train-llama-3.1-8b-h100", "workload": "pretrain-8k"})", "extended.json");
  CHECK(extended.model == named.model);
  CHECK(extended.workload.seq_len == 8192);

  CHECK_THROWS_WITH(sim::scenario_from_json(R"({"hardware": "h100"})", "s.json"),
                    contains("s.json") && contains("\"model\" is missing"));
  CHECK_THROWS_WITH(sim::scenario_from_json(
                        R"({"model": "gpt2-124m", "hardware": "h100", "strategy": {"tp": 2}})", "s.json"),
                    contains("strategy.tp"));
  CHECK_THROWS_WITH(sim::scenario_from_json(R"({"model": 3, "hardware": "h100"})", "s.json"),
                    contains("model"));
}

TEST_CASE("any scenario and model reads back equal from its JSON") {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200; ++i) {
    const Scenario scenario = random_scenario(random);
    const std::string json = sim::to_json(scenario);
    INFO(json);
    REQUIRE(sim::scenario_from_json(json, "scenario.json") == scenario);
    REQUIRE(sim::to_json(sim::scenario_from_json(json, "scenario.json")) == json);
    REQUIRE(sim::model_from_json(sim::to_json(scenario.model), "model.json") == scenario.model);
  }
}
