// What one iteration of an inference engine takes: sequences that decode a token each, and stretches of
// prompts. The work is that of the plan's blocks, with the tokens of the iteration bound; kernels are priced
// by the tables of the GPU, and the engine's profile says what lies between them.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "sim/cost/calibration.h"
#include "sim/cost/work.h"
#include "sim/plan/plan.h"
#include "sim/serving/iteration.h"

namespace sim {

class IterationCost {
 public:
  // `scenario` is one of generation, with an implementation that has a serving profile; its pipeline stages
  // are the caller's affair. Throws std::invalid_argument where validate() has problems.
  // Without a calibration datasheet efficiencies apply.
  IterationCost(const Scenario& scenario, const Calibration* calibration);

  IterationCost(const IterationCost&) = delete;
  IterationCost& operator=(const IterationCost&) = delete;

  // A stretch of layers, on the ranks of one pipeline stage.
  CostBreakdown layers(const Iteration& iteration, double count) const;
  // Final norm, logits and the choice of a token for so many sequences.
  CostBreakdown head(double sequences) const;
  // All layers, head and host: without pipeline parallelism.
  CostBreakdown iteration(const Iteration& iteration) const;
  // The same with the host's and the launches' time added to work that was put together by the caller.
  CostBreakdown with_host(CostBreakdown gpu, const Iteration& iteration, double layer_count) const;

  double num_layers() const { return layers_; }
  const ServingImplementation& serving() const { return serving_; }
  const Hardware& hardware() const { return hardware_; }
  // A message of an all-reduce or of a send between neighbouring stages.
  CostBreakdown all_reduce(double bytes) const;

 private:
  // Layers that are alike.
  struct LayerOfKind {
    const Block* block = nullptr;
    const Operation* attention = nullptr;
    bool experts = false;
    double share = 1;  // of all layers
  };
  CostBreakdown token_work(double tokens, bool decode) const;  // of a mean layer
  CostBreakdown token_work_at(std::int64_t tokens, bool decode) const;
  CostBreakdown token_work_of(const LayerOfKind& kind, std::int64_t tokens, bool decode) const;
  CostBreakdown decode_attention(double sequences, double context) const;  // of a mean layer
  const CostBreakdown& decode_attention_node(int sequences, int context) const;
  CostBreakdown decode_attention_at(std::int64_t sequences, double context) const;
  CostBreakdown decode_attention_of(const Operation& attention, std::int64_t sequences, double context) const;
  CostBreakdown head_at(std::int64_t sequences) const;
  CostBreakdown prompt_attention(const Iteration::Prompt& prompt) const;  // of a mean layer
  CostBreakdown prompt_attention_of(const Operation& attention, const Iteration::Prompt& prompt) const;
  Group group_of(const Operation& op) const;
  void add_product(CostBreakdown& cost, const Operation& op, const Variables& v) const;
  void add_grouped_product(CostBreakdown& cost, const Operation& op, const Variables& v, const Work& work) const;
  void add_small_kernels(CostBreakdown& cost, double kernels, double bytes) const;
  bool in_graph(const Iteration& iteration) const;
  double computed_sequences(const Iteration& iteration) const;  // of a decode step, with padding

  Plan plan_;
  Hardware hardware_;
  std::optional<Calibration> calibration_;
  GpuCalibration tables_;  // the calibration's, or none
  ServingImplementation serving_;
  std::vector<LayerOfKind> kinds_;
  const Block* head_block_ = nullptr;
  double layers_ = 0;
  double collective_launches_ = 0, other_launches_ = 0;  // of a layer, on average, without small kernels
  double small_kernels_ = 0;                             // of experts, of a layer on average
  double cache_bits_ = 16;
  // Prices at the steps of a ladder of sizes, found as they are needed; in between they are linear. Tables
  // are noisy: where more would take less time than the step below, it takes as much.
  mutable std::array<std::vector<CostBreakdown>, 2> token_work_;
  mutable std::vector<CostBreakdown> head_;
  mutable std::unordered_map<std::int64_t, CostBreakdown> decode_attention_;  // by steps of sequences, length
};

}  // namespace sim
