// Training scenarios drawn at random from presets, without contradictions: models dense and with experts,
// hardware, software, and every field of a strategy and of a training workload.
#pragma once
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "sim/cost/calibration_preset.h"
#include "sim/plan/legality.h"
#include "sim/plan/recompute.h"
#include "sim/plan/schedule.h"
#include "sim/scenario/preset.h"

class RandomStrategies {
 public:
  explicit RandomStrategies(std::uint64_t seed) : random_(seed) {}

  // Steps with so many actions that a prediction takes long are not drawn.
  sim::Scenario next() {
    while (true)
      if (std::optional<sim::Scenario> s = draw()) return *std::move(s);
  }

  const sim::Calibration* calibration(const std::string& hardware) {
    const auto [it, added] = calibrations_.try_emplace(hardware);
    if (added) it->second = sim::load_calibration_preset(hardware);
    return it->second ? &*it->second : nullptr;
  }

 private:
  std::int64_t uniform(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
  }
  int power_of_two(int most) { return 1 << uniform(0, most); }
  bool one_in(int n) { return uniform(1, n) == 1; }
  template <class T>
  const T& one_of(const std::vector<T>& values) {
    return values[static_cast<std::size_t>(uniform(0, static_cast<std::int64_t>(values.size()) - 1))];
  }

  std::optional<sim::Scenario> draw() {
    static const std::vector<std::string> models{
        "gpt2-124m", "gpt3-1.3b",    "llama-3.2-1b",  "llama-3.1-8b", "llama-2-70b", "llama-3.1-405b",
        "gpt3-175b", "mixtral-8x7b", "qwen3-30b-a3b", "gpt-oss-20b",  "deepseek-v3", "deepseek-moe-16b",
        "gemma-2b",  "falcon-7b",    "bloom-7.1b",    "qwen3-8b",     "tiny-llama"};
    static const std::vector<std::string> hardware{"h100-sxm", "a100-sxm-80gb", "h200-sxm", "a100-sxm-40gb",
                                                   "b200-sxm", "v100-sxm",      "mi300x"};
    static const std::vector<std::string> software{
        "ridgepoint",      "ideal",         "mcore_te_2024", "mcore_te_2026",      "megatron_2022",
        "megatron_2021",   "pytorch_eager", "hf_fsdp",       "hf_zero3",           "nanotron_2025",
        "torchtitan_2025", "meta_2024",     "gpt_neox",      "megatron_deepspeed", "llm_foundry_2024",
        "picotron",        "llmc",          "colossalai",    "maxtext_2026",       "transformers_eager"};
    static const std::vector<std::string> rank_orders{"tp-dp-pp-cp-ep", "tp-cp-ep-pp-dp", "tp-ep-dp-cp-pp",
                                                      "pp-tp-cp-ep-dp", "cp-tp-ep-dp-pp"};
    sim::Scenario s;
    s.model = sim::load_model_preset(one_of(models));
    s.hardware = sim::load_hardware_preset(one_of(hardware));
    s.implementation = sim::load_implementation_preset(one_of(software));
    sim::Strategy& t = s.strategy;
    t.tensor_parallel = power_of_two(3);
    t.pipeline_parallel = one_in(2) ? 1 : power_of_two(4);
    t.context_parallel = one_in(4) ? power_of_two(2) : 1;
    t.data_parallel = power_of_two(6);
    if (s.model.has_experts()) {
      t.expert_parallel = power_of_two(4);
      t.expert_tensor_parallel = one_in(2) ? 1 : 0;
      if (one_in(3)) t.expert_dispatch = sim::ExpertDispatch::each_node;
    }
    t.sequence_parallel = t.tensor_parallel > 1 && one_in(2);
    t.context_parallel_comm = static_cast<sim::ContextParallelComm>(uniform(0, 2));
    t.zero_stage = static_cast<int>(uniform(0, 3));
    if (t.zero_stage > 0 && one_in(4)) t.shard_group = power_of_two(3);
    if (t.zero_stage == 3) t.prefetch = static_cast<int>(one_in(8) ? uniform(0, 40) : uniform(0, 2));
    if (one_in(4)) t.gradient_bucket = uniform(1, 1000) << 20;
    if (t.pipeline_parallel > 1) {
      const auto names = sim::schedule_names();
      t.schedule = std::string(
          names[static_cast<std::size_t>(uniform(0, static_cast<std::int64_t>(names.size()) - 1))]);
      const sim::Chunks chunks = sim::traits_of_schedule(t.schedule).chunks;
      if (chunks == sim::Chunks::several || chunks == sim::Chunks::any)
        t.virtual_pipeline = static_cast<int>(uniform(1, 4));
      if (sim::placement_of(t.schedule) == sim::Placement::v) t.virtual_pipeline = 2;
    }
    t.recompute = static_cast<sim::Recompute>(uniform(0, 4));
    if (t.recompute == sim::Recompute::operations)
      for (const std::string_view word : sim::recompute_words())
        if (one_in(2)) t.recompute_operations.emplace_back(word);
    if (t.recompute == sim::Recompute::full && one_in(4))
      t.recompute_interval = static_cast<int>(uniform(2, 4));
    t.offload_optimizer = one_in(6);
    t.offload_activations = one_in(12);
    if (one_in(4)) t.rank_order = one_of(rank_orders);
    sim::Workload& w = s.workload;
    w.seq_len = std::int64_t{512} << uniform(0, 5);
    w.micro_batch_size = one_in(8) ? uniform(1, 9) : power_of_two(2);
    w.optimizer = one_in(2) ? sim::Optimizer::adamw : static_cast<sim::Optimizer>(uniform(0, 5));
    if (s.model.has_experts() && one_in(4))
      w.expert_imbalance = 1.0 + 0.25 * static_cast<double>(uniform(1, 4));
    if (s.model.has_experts() && one_in(6))
      w.expert_capacity_factor = 1.0 + 0.25 * static_cast<double>(uniform(0, 4));
    if (one_in(12)) s.model.num_nextn_predict_layers = uniform(1, 2);
    const std::int64_t micro_batches = one_in(2) ? uniform(1, 8) : t.pipeline_parallel * uniform(1, 6);
    w.global_batch_size = w.micro_batch_size * t.data_parallel * micro_batches;
    if (one_in(8)) w.dtype = sim::DType::fp16;
    if (one_in(10) && s.hardware.has_peak_for(sim::DType::fp8)) w.dtype = sim::DType::fp8;
    constexpr std::int64_t kMostPasses = 1500;
    if (micro_batches * t.pipeline_parallel > kMostPasses || !sim::validate(s).empty()) return std::nullopt;
    // Some software's head cannot be in chunks.
    s.implementation.head_chunks = 1 << std::uniform_int_distribution<int>(0, 4)(random_chunks_);
    if (!sim::validate(s).empty()) s.implementation.head_chunks = 1;
    return s;
  }

  std::mt19937_64 random_, random_chunks_;
  std::map<std::string, std::optional<sim::Calibration>> calibrations_;
};

// Kendall's tau of two rankings of the same things: pairs that agree less those that do not, of all pairs.
inline double kendalls_tau(const std::vector<double>& a, const std::vector<double>& b) {
  std::int64_t agree = 0, pairs = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = i + 1; j < a.size(); ++j) {
      const double product = (a[i] - a[j]) * (b[i] - b[j]);
      agree += product > 0 ? 1 : product < 0 ? -1 : 0;
      ++pairs;
    }
  return pairs > 0 ? static_cast<double>(agree) / static_cast<double>(pairs) : 1;
}

// The share of values up to a limit.
inline double share_within(const std::vector<double>& values, double limit) {
  const auto within = std::count_if(values.begin(), values.end(), [limit](double v) { return v <= limit; });
  return static_cast<double>(within) / static_cast<double>(values.size());
}
