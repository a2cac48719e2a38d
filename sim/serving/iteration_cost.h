// What one iteration of an inference engine takes: sequences that decode a token each, and stretches of
// prompts. The work is that of the plan's blocks, with the tokens of the iteration bound; kernels are priced by
// the tables of the GPU, and the engine's profile says what lies between them.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "sim/cost/calibration.h"
#include "sim/plan/plan.h"

namespace sim {

// What the time of an iteration is made of; errors of one kind go together, kinds are independent.
enum class CostKind { products, attention, small_kernels, collectives, host };
inline constexpr int kCostKinds = 5;

struct CostBreakdown {
  struct Part {
    Seconds expected;
    Seconds above;  // the upper end of the 90 % band less the expected
  };
  std::array<Part, kCostKinds> parts{};

  Part& of(CostKind kind) { return parts[static_cast<std::size_t>(kind)]; }
  void add(CostKind kind, Seconds expected, double relative_error);
  Seconds total() const;
  // Ratio of the band's upper end to the expected time (and of the expected to the lower end): the parts'
  // errors in quadrature.
  double band() const;
  CostBreakdown& operator+=(const CostBreakdown& o);
  CostBreakdown operator*(double n) const;
};

// One iteration. Lengths are averages over the sequences of a group: attention is linear in them.
struct Iteration {
  double decode_sequences = 0;
  double decode_context = 0;  // tokens in the cache a sequence, the new one included
  struct Prompt {
    double sequences = 1;
    double tokens = 0;   // new ones a sequence
    double context = 0;  // tokens that its last one sees: more than `tokens` where the prompt comes in chunks
    bool last = true;    // ends the prompt: logits of its last token are needed
  };
  std::vector<Prompt> prompts;
};

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
  const CostBreakdown& token_work(std::int64_t tokens, bool decode) const;  // of one layer, by tokens
  CostBreakdown decode_attention(std::int64_t sequences, double context) const;  // of one layer
  CostBreakdown decode_attention_at(std::int64_t sequences, double context) const;
  CostBreakdown prompt_attention(const Iteration::Prompt& prompt) const;
  void add_product(CostBreakdown& cost, const Operation& op, const Variables& v) const;
  void add_small_kernels(CostBreakdown& cost, double kernels, double bytes) const;
  bool in_graph(const Iteration& iteration) const;
  double computed_sequences(const Iteration& iteration) const;  // of a decode step, with padding

  Plan plan_;
  Hardware hardware_;
  std::optional<Calibration> calibration_;
  GpuCalibration tables_;  // the calibration's, or none
  ServingImplementation serving_;
  const Block *layer_ = nullptr, *head_block_ = nullptr;
  const Operation* attention_ = nullptr;  // of the layer
  double layers_ = 0;
  double launches_ = 0;  // of a layer's products, attention and collectives
  double cache_bits_ = 16;
  mutable std::array<std::unordered_map<std::int64_t, CostBreakdown>, 2> token_work_;
  mutable std::unordered_map<std::int64_t, CostBreakdown> head_;
  mutable std::unordered_map<std::int64_t, CostBreakdown> decode_attention_;  // by sequences and length's step
};

}  // namespace sim
