// Rows of training tables: how their words are understood.
#include <string>

#include "sim/scenario/preset.h"
#include "sim/validate/device_names.h"
#include "sim/validate/network_names.h"
#include "sim/validate/peak_memory.h"
#include "sim/validate/row_model.h"
#include "sim/validate/stack_names.h"
#include "sim/validate/training_scenario.h"
#include "tests/support/catch.h"

namespace {

const std::string kHeader =
    "model_name,params_b,layers,hidden,ffn_hidden,heads,kv_heads,vocab,seq_len,arch,gpu,num_gpus,gpus_per_"
    "node,"
    "interconnect,tp,pp,vpp,cp,dp,zero_stage,sequence_parallel,micro_batch,global_batch,recompute,precision,"
    "framework,date,notes\n";

sim::CsvTable table_of(const std::string& row) {
  return sim::csv_from_text(kHeader + row + "\n", "rows.csv");
}

sim::Scenario scenario_of(const std::string& row) {
  const sim::CsvTable table = table_of(row);
  return sim::training_row(sim::TableRow(table, 0, {})).scenario;
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

TEST_CASE("software is known by name and age; what nobody describes is the nearest, and says so") {
  CHECK(sim::stack_of("Megatron-LM", "2021-04", "").preset == "megatron_2021");
  CHECK(sim::stack_of("Megatron-LM", "2022-05", "").preset == "megatron_2022");
  CHECK(sim::stack_of("Megatron-LM (Core)", "2024-08", "").preset == "mcore_te_2024");
  CHECK(sim::stack_of("NeMo", "2025-04", "").preset == "mcore_te_2024");
  CHECK(sim::stack_of("Megatron-Bridge", "2025-09", "").preset == "mcore_te_2026");
  CHECK(sim::stack_of("Megatron-DeepSpeed", "2022", "").preset == "megatron_deepspeed");
  CHECK(sim::stack_of("torchtitan (PyTorch)", "2024-12", "no compile").preset == "torchtitan_2024_eager");
  CHECK(sim::stack_of("llm-foundry/Composer (PyTorch FSDP)", "2023-07", "").preset == "llm_foundry_2023");
  CHECK_FALSE(sim::stack_of("nanotron", "2025-02", "").nearest);
  CHECK(sim::stack_of("somebody's own", "2023-01", "").nearest);
}

TEST_CASE("every stack that a name leads to has a preset") {
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
      CHECK_NOTHROW(sim::load_implementation_preset(sim::stack_of(framework, date, "").preset));
}

TEST_CASE("empty cells are what the stack does; degrees make up the number of GPUs") {
  const sim::Scenario s = scenario_of(
      "Llama-style "
      "3B,3.57,28,3072,8192,32,32,131072,4096,llama,H100-80GB-SXM,64,8,,4,2,,,,zero1,,2,256,,bf16,"
      "nanotron,2025-02,grad_accum=16");
  CHECK(s.strategy.tensor_parallel == 4);
  CHECK(s.strategy.data_parallel == 8);
  CHECK(s.strategy.zero_stage == 1);
  CHECK(s.strategy.sequence_parallel);
  CHECK(s.strategy.recompute == sim::Recompute::none);
  CHECK(s.model.tie_word_embeddings);  // 3.57 billion with the head's weights counted once
  CHECK(s.hardware.name == "h100-sxm-efa");
}

namespace {

// Of the playbook's sweep.
sim::TrainingRow nanotron_row(const std::string& model, int gpus, int tensor, int stages, int zero,
                              int micro_batch) {
  const std::string shape = model == "3B"   ? "3.57,28,3072,8192,32,32,131072"
                            : model == "8B" ? "8.86,32,4096,14336,32,32,131072"
                                            : "80,80,8192,28672,64,64,131072";
  const auto cell = [](int n) { return std::to_string(n) + ","; };
  const sim::CsvTable table =
      table_of("Llama-style " + model + "," + shape + ",4096,llama,H100-80GB-SXM," + cell(gpus) + "8,," +
               cell(tensor) + cell(stages) + ",," + cell(gpus / tensor / stages) + "zero" + cell(zero) + "," +
               cell(micro_batch) + "256,,bf16,nanotron,2025-02,");
  return sim::training_row(sim::TableRow(table, 0, {}));
}

}  // namespace

TEST_CASE("a run of the playbook's sweep is taken to keep gathered inputs as most like it, where that fits") {
  const auto keeps = [](const std::string& model, int gpus, int tensor, int stages, int micro_batch) {
    return sim::peak_memory(nanotron_row(model, gpus, tensor, stages, 1, micro_batch)).in_other_mode;
  };
  CHECK(keeps("8B", 128, 16, 1, 8));
  CHECK(keeps("8B", 512, 32, 1, 8));
  CHECK_FALSE(keeps("80B", 512, 32, 1, 8));  // would take more than 80 GB
  CHECK_FALSE(keeps("8B", 512, 8, 1, 2));
  CHECK_FALSE(keeps("8B", 128, 8, 2, 2));
  CHECK_FALSE(keeps("8B", 128, 1, 1, 1));  // gathers none
}

TEST_CASE("two series of the playbook's pipelines are taken to have stalled, and no run without stages") {
  const auto stalls = [](const std::string& model, int gpus, int stages, int zero, int micro_batch) {
    const sim::Scenario s = nanotron_row(model, gpus, 4, stages, zero, micro_batch).scenario;
    return s.implementation.pipeline.stalls_from_ranks == 1;
  };
  CHECK(stalls("8B", 64, 4, 0, 1));
  CHECK(stalls("8B", 256, 4, 1, 2));
  CHECK_FALSE(stalls("8B", 64, 4, 1, 1));
  CHECK_FALSE(stalls("3B", 256, 4, 1, 2));
  CHECK_FALSE(stalls("8B", 256, 4, 1, 1));
  CHECK_FALSE(stalls("8B", 256, 1, 1, 2));
}

TEST_CASE("zero_stage is read from what FSDP and Megatron call it") {
  const auto stage = [](const std::string& text) {
    return scenario_of("GPT,,24,2048,,16,,,1024,gpt,A100,8,8,,,,,,," + text +
                       ",,4,32,,bf16,Megatron-LM,2022,")
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
  CHECK(why("GPT,,24,2048,,16,,,1024,gpt,A100,8,8,,3,,,,,,,4,32,,bf16,Megatron-LM,2022,") ==
        "tp x pp x cp does not divide num_gpus");
  CHECK(why("GPT,,24,2048,,16,,,1024,gpt,TPU v4,8,8,,,,,,,,,4,32,,bf16,Megatron-LM,2022,") != "");
  CHECK(why("GPT,,24,2048,,16,,,1024,gpt,A100,8,8,,,,,,,,,4,32,,fp8,Megatron-LM,2022,") ==
        "the gpu computes nothing in fp8");
  CHECK(why("GPT,,24,2048,,16,,,1024,gpt,A100,8,8,,,,,,,,,4,32,,bf16,Megatron-LM,2022,LoRA") != "");
}

TEST_CASE("names of models are spelled as presets are") {
  CHECK(sim::preset_spelling("Llama 3(.1) 8B") == "llama-3.1-8b");
  CHECK(sim::preset_spelling("Qwen2.5_7B ") == "qwen2.5-7b");
}
