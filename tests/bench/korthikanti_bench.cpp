// Step times of Korthikanti et al. 2022 (arXiv 2205.05198), table 5, beside what is predicted for them: A100s
// with Megatron-LM, full recompute against selective recompute with sequence parallelism. Nothing is fitted
// to them. Usage: korthikanti_bench [CALIBRATION.json]
#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "sim/cost/calibration_preset.h"
#include "sim/cost/predict.h"
#include "sim/report/metrics.h"
#include "sim/scenario/preset.h"

namespace {

struct PublishedRun {
  const char* name;
  std::int64_t hidden, layers, heads;
  int pipeline, chunks;
  std::int64_t micro_batch, batch;
  double full_s, selective_s;
};

constexpr PublishedRun kTable5[] = {{"22B", 6144, 48, 64, 1, 1, 4, 4, 1.42, 1.10},
                                    {"175B", 12288, 96, 96, 8, 3, 1, 64, 18.13, 13.75},
                                    {"530B", 20480, 105, 128, 35, 3, 1, 280, 49.05, 37.83},
                                    {"1T", 25600, 128, 160, 64, 1, 1, 512, 94.42, 71.49}};

sim::Scenario scenario(const PublishedRun& run, bool selective) {
  sim::Scenario s;
  s.model = sim::load_model_preset("gpt3-175b");
  s.model.hidden_size = run.hidden;
  s.model.intermediate_size = 4 * run.hidden;
  s.model.num_hidden_layers = run.layers;
  s.model.num_attention_heads = s.model.num_key_value_heads = run.heads;
  s.model.head_dim = run.hidden / run.heads;
  s.model.vocab_size = 51200;
  s.hardware = sim::load_hardware_preset("a100-sxm-80gb");
  s.implementation = sim::load_implementation_preset("megatron_2022");
  s.workload.dtype = sim::DType::fp16;
  s.workload.seq_len = 2048;
  s.workload.micro_batch_size = run.micro_batch;
  s.workload.global_batch_size = run.batch;
  s.strategy.tensor_parallel = 8;
  s.strategy.pipeline_parallel = run.pipeline;
  s.strategy.virtual_pipeline = run.chunks;
  s.strategy.sequence_parallel = selective;
  s.strategy.recompute = selective ? sim::Recompute::selective : sim::Recompute::full;
  return s;
}

double gib(sim::Bytes b) {
  return static_cast<double>(b.value) / static_cast<double>(1 << 30);
}

void print_table(const char* title, const sim::Calibration* calibration) {
  std::printf("%s\n", title);
  std::printf("%-6s %-10s %10s %12s %22s %9s %10s %10s\n", "model", "recompute", "measured s", "predicted s",
              "90 % band s", "error %", "comm. s", "peak GiB");
  for (const PublishedRun& run : kTable5)
    for (const bool selective : {false, true}) {
      const sim::Report r = sim::predict(scenario(run, selective), calibration);
      std::map<std::int32_t, sim::Seconds> communication;
      std::map<std::int32_t, sim::Bytes> memory;
      for (const sim::Row& row : r.rows)
        if (sim::is_collective(row.kind) && row.kind != sim::OpKind::receive)
          communication[row.rank] += row.duration;
      for (const sim::MemoryLine& line : r.memory) memory[line.rank] += line.bytes;
      sim::Seconds most;
      sim::Bytes peak;
      for (const auto& [rank, seconds] : communication) most = std::max(most, seconds);
      for (const auto& [rank, bytes] : memory) peak = std::max(peak, bytes);
      const double measured = selective ? run.selective_s : run.full_s;
      std::printf("%-6s %-10s %10.2f %12.2f %10.2f .. %8.2f %9.1f %10.2f %10.2f\n", run.name,
                  selective ? "selective" : "full", measured, r.step_time.value, r.step_low.value,
                  r.step_high.value, 100 * (r.step_time.value / measured - 1), most.value, gib(peak));
    }
}

// Achieved TFLOPS a device of Llama 3 405B (arXiv 2407.21783, table 4: 430 on 8,192 H100s, 400 on 16,384),
// counted as 6 N and causal attention. That run sharded parameters as well and interleaved; its schedule is
// not published in full.
void print_llama_3(const sim::Calibration* calibration) {
  for (const auto& [data_parallel, published] : {std::pair{64, 430.0}, std::pair{128, 400.0}}) {
    sim::Scenario s = sim::load_scenario_preset("train-llama-3.1-405b-16384-h100");
    s.strategy.data_parallel = data_parallel;
    const sim::Report r = sim::predict(s, calibration);
    const double rate =
        sim::tokens_per_second(r) / s.strategy.devices() *
        sim::flops_per_token(s.model, s.workload.seq_len, sim::FlopsConvention::six_n_causal).value;
    std::printf(
        "Llama 3 405B on %6d H100: %.0f TFLOPS a device published, %.0f predicted, step %.2f s, peak %.1f "
        "GiB\n",
        s.strategy.devices(), published, rate / 1e12, r.step_time.value, gib(sim::peak_memory(r)));
  }
}

}  // namespace

int main() {
  print_table("datasheet efficiencies", nullptr);
  const std::optional<sim::Calibration> calibration = sim::load_calibration_preset("a100-sxm-80gb");
  if (calibration) print_table("calibration a100-sxm-80gb", &*calibration);
  print_llama_3(nullptr);
  const std::optional<sim::Calibration> h100 = sim::load_calibration_preset("h100-sxm");
  if (h100) print_llama_3(&*h100);
}
