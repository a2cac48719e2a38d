// Rows of training tables: how their words are understood.
#include <string>
#include <vector>

#include "sim/scenario/preset.h"
#include "sim/validate/network_names.h"
#include "sim/validate/peak_memory.h"
#include "sim/validate/row_model.h"
#include "sim/validate/software_names.h"
#include "sim/validate/table_words.h"
#include "sim/validate/training_scenario.h"
#include "tests/support/catch.h"

namespace {

const std::string kHeader =
    "model_name,params_b,layers,hidden,ffn_hidden,heads,kv_heads,vocab,seq_len,arch,gpu,num_gpus,gpus_per_"
    "node,"
    "interconnect,tp,pp,vpp,cp,dp,zero_stage,sequence_parallel,micro_batch,global_batch,recompute,precision,"
    "framework,date,implementation,stalled\n";

sim::CsvTable table_of(const std::string& row) {
  return sim::csv_from_text(kHeader + row + "\n", "rows.csv");
}

sim::Scenario scenario_of(const std::string& row) {
  const sim::CsvTable table = table_of(row);
  return sim::training_row(sim::TableRow(table, 0, {})).scenario();
}

double gigabits(std::string_view interconnect) {
  const auto link = sim::network_link_of(interconnect, 8);
  REQUIRE(link);
  return link->value * 8 / 1e9;
}

}  // namespace

TEST_CASE("a network's words say how much of it a GPU has") {
  CHECK(gigabits("1600 Gbps RoCE node-node") == Approx(200));
  CHECK(gigabits("400 Gb/s backend NIC per GPU") == Approx(400));
  CHECK(gigabits("Selene: DGX A100, 8x200Gb HDR IB") == Approx(200));
  CHECK(gigabits("4 x 100 Gb/s RoCE") == Approx(50));
  CHECK(gigabits("3.2 Tb/s EFA") == Approx(400));
  CHECK(gigabits("InfiniBand NDR") == Approx(400));
  CHECK_FALSE(sim::network_link_of("NVSwitch", 8));
  CHECK_FALSE(sim::network_link_of("", 8));
}

TEST_CASE("the 96 GB, 500 W H100 and export variants are devices of their own") {
  CHECK(sim::hardware_preset_of("H100-96GB HBM2e 2.4TB/s 500W (non-standard)") == "h100-sxm-96gb-500w");
  CHECK(sim::hardware_preset_of("A800-SXM4-80GB") == "a800-sxm-80gb");
  CHECK(sim::hardware_preset_of("A100 40 GB SXM") == "a100-sxm-40gb");
  CHECK(sim::hardware_preset_of("A100 (SXM, NVSwitch)") == "a100-sxm-80gb");
}

TEST_CASE("software is known by name and age, what nobody describes is the nearest, and says so") {
  const auto preset = [](const char* framework, const char* date) {
    return sim::training_software(framework, date).presets.front();
  };
  CHECK(preset("Megatron-LM", "2021-04") == "megatron_2021");
  CHECK(preset("Megatron-LM", "2022-05") == "megatron_2022");
  CHECK(preset("Megatron-LM (Core)", "2024-08") == "mcore_te_2024");
  CHECK(preset("NeMo", "2025-04") == "mcore_te_2024");
  CHECK(preset("Megatron-Bridge", "2025-09") == "mcore_te_2026");
  CHECK(preset("Megatron-DeepSpeed", "2022-02-20") == "megatron_deepspeed_fp16");
  CHECK(preset("Megatron-DeepSpeed", "2022-03") == "megatron_deepspeed");
  CHECK(preset("Megatron-DeepSpeed", "") == "megatron_deepspeed");
  CHECK(preset("llm-foundry/Composer (PyTorch FSDP)", "2023-07") == "llm_foundry_2023");
  CHECK_FALSE(sim::training_software("nanotron", "2025-02").nearest);
  CHECK(sim::training_software("somebody's own", "2023-01").nearest);
}

TEST_CASE("every preset of training software that a name leads to can be loaded") {
  for (const char* framework : {"Megatron-LM",
                                "NeMo",
                                "Megatron-Bridge",
                                "Megatron-DeepSpeed",
                                "GPT-NeoX",
                                "torchtitan",
                                "nanotron",
                                "picotron",
                                "llm-foundry",
                                "llm.c",
                                "LLMQ",
                                "InternEvo",
                                "fms-fsdp",
                                "PAXML",
                                "MaxText",
                                "OLMo-core",
                                "metaseq",
                                "ColossalAI",
                                "EasyContext",
                                "MegaScale",
                                "TinyLlama (lit-gpt)",
                                "flash-attention training",
                                "HF Transformers + DeepSpeed",
                                "HF Accelerate FSDP",
                                "Meta internal",
                                ""})
    for (const char* date : {"2021-04", "2022-05", "2024-01", "2026-03", ""})
      for (const std::string& preset : sim::training_software(framework, date).presets)
        CHECK_NOTHROW(sim::load_implementation_preset(preset));
}

TEST_CASE("empty cells are what the stack does, degrees make up the number of GPUs") {
  const sim::Scenario s = scenario_of(
      "Llama-style "
      "3B,3.57,28,3072,8192,32,32,131072,4096,llama,H100-80GB-SXM,64,8,,4,2,,,,zero1,,2,256,,bf16,"
      "nanotron,2025-02,,");
  CHECK(s.strategy.tensor_parallel == 4);
  CHECK(s.strategy.data_parallel == 8);
  CHECK(s.strategy.zero_stage == 1);
  CHECK(s.strategy.sequence_parallel);
  CHECK(s.strategy.recompute == sim::Recompute::none);
  CHECK(s.model.tie_word_embeddings);  // 3.57 billion with the head's weights counted once
  CHECK(s.hardware.name == "h100-sxm-efa");
}

namespace {

sim::TrainingRow nanotron_row(int gpus, int tensor, int stages, const std::string& implementation = "",
                              const std::string& stalled = "") {
  const auto cell = [](int n) { return std::to_string(n) + ","; };
  const sim::CsvTable table =
      table_of("Llama-style 8B,8.86,32,4096,14336,32,32,131072,4096,llama,H100-80GB-SXM," + cell(gpus) +
               "8,," + cell(tensor) + cell(stages) + ",," + cell(gpus / tensor / stages) +
               "zero1,,2,256,,bf16,nanotron,2025-02," + implementation + "," + stalled);
  return sim::training_row(sim::TableRow(table, 0, {}));
}

struct Mode {
  std::string implementation;
  bool stalls = false;
  bool operator==(const Mode&) const = default;
};
std::vector<Mode> modes_of(const sim::TrainingRow& row) {
  std::vector<Mode> modes;
  for (const sim::Scenario& s : row.modes)
    modes.push_back({s.implementation.name, s.implementation.pipeline.stalls});
  return modes;
}

}  // namespace

TEST_CASE(
    "a row that does not say its mode is predicted in each, first as the software's default on a calm "
    "network") {
  const std::string again = "nanotron_2025", keeps = "nanotron_2025_gathered";
  CHECK(modes_of(nanotron_row(64, 4, 2)) ==
        std::vector<Mode>{{again, false}, {again, true}, {keeps, false}, {keeps, true}});
  CHECK(modes_of(nanotron_row(64, 1, 1)) == std::vector<Mode>{{again}, {keeps}});  // nothing to stall
  CHECK(modes_of(nanotron_row(8, 4, 2)) == std::vector<Mode>{{again}, {keeps}});   // nor inside a node
  CHECK(modes_of(nanotron_row(64, 4, 2, keeps, "n")) == std::vector<Mode>{{keeps}});
  CHECK(modes_of(nanotron_row(64, 4, 2, again, "y")) == std::vector<Mode>{{again, true}});
}

TEST_CASE("memory's band holds every mode that the row may have run in") {
  const auto of = [](const std::string& implementation) {
    return sim::peak_memory(nanotron_row(16, 8, 1, implementation)).reserved;
  };
  const sim::MemoryBand again = of("nanotron_2025"), keeps = of("nanotron_2025_gathered"), either = of("");
  REQUIRE(again.value < keeps.value);
  CHECK(either.value == again.value);
  CHECK(either.low == again.low);
  CHECK(either.high == keeps.high);
}

TEST_CASE("zero_stage is read from what FSDP and Megatron call it") {
  const auto stage = [](const std::string& text) {
    return scenario_of("GPT,,24,2048,,16,,,1024,gpt,A100,8,8,,,,,,," + text +
                       ",,4,32,,bf16,Megatron-LM,2022,,")
        .strategy.zero_stage;
  };
  CHECK(stage("FSDP FULL_SHARD (zero3)") == 3);
  CHECK(stage("FSDP SHARD_GRAD_OP (zero2)") == 2);
  CHECK(stage("distributed optimizer") == 1);
  CHECK(stage("zero0") == 0);
  CHECK(stage("") == 0);
}

TEST_CASE("rows that cannot be are refused with what is wrong") {
  const auto why = [](const std::string& row) {
    try {
      scenario_of(row);
    } catch (const sim::CannotPredict& reason) {
      return std::string(reason.what());
    }
    return std::string();
  };
  CHECK(why("GPT,,24,2048,,16,,,1024,gpt,A100,8,8,,3,,,,,,,4,32,,bf16,Megatron-LM,2022,,") ==
        "tp x pp x cp does not divide num_gpus");
  CHECK(why("GPT,,24,2048,,16,,,1024,gpt,TPU v4,8,8,,,,,,,,,4,32,,bf16,Megatron-LM,2022,,") != "");
  CHECK(why("GPT,,24,2048,,16,,,1024,gpt,A100,8,8,,,,,,,,,4,32,,fp8,Megatron-LM,2022,,") ==
        "the gpu computes nothing in fp8");
  CHECK(why("GPT,,24,2048,,16,,,1024,gpt,A100,8,8,,,,,,,,,4,32,,bf16,Megatron-LM,2022,megatron_2019,") ==
        "implementation \"megatron_2019\" is no preset");
}

TEST_CASE("names of models are spelled as presets are") {
  CHECK(sim::preset_spelling("Llama 3(.1) 8B") == "llama-3.1-8b");
  CHECK(sim::preset_spelling("Qwen2.5_7B ") == "qwen2.5-7b");
}
