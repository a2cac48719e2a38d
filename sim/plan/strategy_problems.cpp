#include "sim/plan/strategy_problems.h"

#include <algorithm>

#include "sim/format.h"
#include "sim/plan/builder.h"
#include "sim/plan/legality.h"
#include "sim/plan/ranks.h"
#include "sim/plan/recompute.h"
#include "sim/plan/schedule.h"
#include "sim/scenario/fields.h"

namespace sim {
namespace {

constexpr int kMostRingRanks = 1024;  // each is an exchange and a piece of attention in every layer

class StrategyChecker {
 public:
  explicit StrategyChecker(const Scenario& scenario) : scenario_(scenario), s_(scenario.strategy) {}

  std::vector<Problem> run() {
    const std::string order = rank_order_problem(s_.rank_order);
    if (!order.empty()) add("rank_order", order);
    if (scenario_.workload.task == Task::generate) return std::move(problems_);
    check_recompute();
    if (order.empty()) check_sharding();
    check_context_parallel();
    check_offload();
    check_optimizer();
    return std::move(problems_);
  }

 private:
  template <class... Parts>
  void add(std::string_view field, const Parts&... message) {
    add_problem(problems_, std::string("strategy.").append(field), message...);
  }
  std::string recompute_is() const { return "recompute is " + std::string(name(s_.recompute)); }

  void check_recompute() {
    if (s_.recompute_interval > 1 && s_.recompute != Recompute::full)
      add("recompute_interval", "is ", std::to_string(s_.recompute_interval), ", but ", recompute_is(),
          ": full alone keeps inputs of layers at intervals");
    if (s_.recompute != Recompute::operations && !s_.recompute_operations.empty())
      add("recompute_operations", "names operations, but ", recompute_is(), ", not operations");
    if (s_.recompute == Recompute::operations && s_.recompute_operations.empty())
      add("recompute_operations", "must name what is computed again: ", words());
    for (const std::string& word : s_.recompute_operations) {
      const auto& known = kRecomputeWords;
      if (std::ranges::find(known, word) == known.end())
        add("recompute_operations", "must be of ", words(), ", but has \"", word, "\"");
    }
  }
  static std::string words() { return listed(kRecomputeWords, "and"); }

  void check_sharding() {
    const char* const field = "shard_group";
    const auto is = [&] { return "is " + format_count(s_.shard_group); };
    const int ranks = data_ranks(s_);
    if (s_.shard_group > 0 && s_.zero_stage == 0)
      add(field, is(), ", but zero_stage is 0: states are not divided");
    else if (s_.shard_group > 0 && !is_divided_by(data_group(s_), s_.shard_group))
      add(field, is(), ", which must divide the ", ranks,
          " data- and context-parallel ranks into groups of neighbours");
    else if (s_.shard_group == 1)
      add(field, is(), ", which divides nothing: zero_stage 0 says so");
    check_expert_order();
    if (s_.prefetch != 1 && s_.zero_stage != 3)
      add("prefetch", "is ", std::to_string(s_.prefetch),
          ", but only zero_stage 3 gathers parameters: without it it must be 1");
    if (s_.gradient_bucket > 0 && ranks == 1)
      add("gradient_bucket", "is for what data-parallel ranks reduce: it needs data_parallel above 1");
    if (placement_of(s_.schedule) == Placement::two_directions && s_.zero_stage >= 2 &&
        (scenario_.model.tie_word_embeddings || scenario_.model.num_nextn_predict_layers > 0))
      add("zero_stage", "is ", std::to_string(s_.zero_stage), ", but under schedule ", s_.schedule,
          " both directions add to an embedding that the head uses, too: it must be 0 or 1");
  }

  // Experts are divided over neighbouring ranks, which the order may separate.
  void check_expert_order() {
    if (s_.expert_parallel == 1 || !scenario_.model.has_experts()) return;
    const std::string apart = "is " + s_.rank_order + ", which pulls apart the ranks that ";
    if (s_.devices_of_expert() != s_.tensor_parallel) {
      if (s_.rank_order != kDefaultRankOrder)
        add("rank_order", apart, "experts are divided over: with expert_tensor_parallel it must be ",
            kDefaultRankOrder);
    } else if (const Group group = data_group(s_);
               group.size % s_.expert_parallel == 0 && !is_divided_by(group, s_.expert_parallel)) {
      add("rank_order", apart, "expert_parallel ", s_.expert_parallel, " would join");
    }
  }

  void check_context_parallel() {
    const std::int64_t c = s_.context_parallel, t = s_.tensor_parallel;
    const char* const field = "context_parallel_comm";
    if (c == 1) return;
    if (s_.context_parallel_comm == ContextParallelComm::ring && c > kMostRingRanks)
      add(field, "is ring, which passes keys and values ", c,
          " times in each layer: context_parallel must be at most ", kMostRingRanks);
    const bool windows = scenario_.model.sliding_window > 0,
               chunks = scenario_.model.attention_chunk_size > 0;
    if (s_.context_parallel_comm == ContextParallelComm::ring && (windows || chunks))
      add(field, "is ring, whose steps are halves of all pairs, but the model has ",
          windows ? "a sliding window" : "attention in chunks", ": all_gather and all_to_all know it");
    if (s_.context_parallel_comm != ContextParallelComm::all_to_all) return;
    const std::int64_t key_values = scenario_.model.num_key_value_heads;
    if (key_values % (t * c) != 0)
      add(field, "is all_to_all, which divides heads: tensor_parallel times context_parallel, ", t * c,
          ", must divide the model's ", key_values, " key-value heads");
  }

  void check_offload() {
    const Hardware& h = scenario_.hardware;
    if ((s_.offload_optimizer || s_.offload_activations) && h.host_link.value <= 0)
      add_problem(problems_, "hardware.host_link", "must be above 0: strategy.offload_",
                  s_.offload_optimizer ? "optimizer" : "activations", " copies over it");
    if (s_.offload_optimizer && h.host_memory_bandwidth.value <= 0)
      add_problem(problems_, "hardware.host_memory_bandwidth",
                  "must be above 0: strategy.offload_optimizer updates parameters in it");
  }

  void check_optimizer() {
    const Optimizer optimizer = scenario_.workload.optimizer;
    const bool whole_matrices = optimizer == Optimizer::adafactor || optimizer == Optimizer::muon;
    if (whole_matrices && s_.zero_stage > 0)
      add_problem(problems_, "workload.optimizer", "is ", name(optimizer),
                  ", which works on whole matrices, but zero_stage ", std::to_string(s_.zero_stage),
                  " cuts them: it must be 0");
    if (optimizer != Optimizer::adamw && s_.offload_optimizer)
      add("offload_optimizer", "needs workload.optimizer adamw, but it is ", name(optimizer));
  }

  const Scenario& scenario_;
  const Strategy& s_;
  std::vector<Problem> problems_;
};

}  // namespace

std::vector<Problem> strategy_problems(const Scenario& scenario) {
  return StrategyChecker(scenario).run();
}

}  // namespace sim
