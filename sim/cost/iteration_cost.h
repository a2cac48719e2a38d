// The time of an iteration of an inference engine: sequences that decode a token each, and chunks of prompts.
// It is composed from the prices of the plan's blocks with the iteration's tokens bound, so that a report's
// rows and a simulation's clock have the same.
#pragma once
#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sim/cost/iteration.h"
#include "sim/cost/priced_plan.h"
#include "sim/report/report.h"

namespace sim {

struct GenerationPlan;

// Work of an engine: an iteration over layers of one pipeline stage, and what is before and after them.
struct EnginePass {
  Iteration iteration;
  double layers = 0;   // of the rank; where there are none, the host has nothing to do either
  bool ends = true;    // the embedding, and logits and choice of a token where any sequence is sampled
  double sampled = 0;  // sequences whose next token is chosen
  Seconds sent{};      // to the next stage, or of a whole iteration: to all stages
  double times = 1;    // how often it is done
  double waits = 0;    // and for how many of its own durations the rank waits for other stages
};

// Rows of a report, each the sum over passes of one operation.
class EngineRows {
 public:
  explicit EngineRows(Phase phase) : phase_(phase) {}
  void add(const Operation& op, const PricedOperation& priced, double times);
  // Time that no operation takes, `count` times in all.
  void add_other(std::string_view id, OpKind kind, double count, const Price& all);
  // In the order in which they came, the first at `start`; returns when the first of each has ended.
  std::vector<Row> take(Seconds start);

 private:
  struct Sum {
    Row row;
    double count = 0, memory = 0, network = 0;
    Seconds longest;
  };
  Sum& sum(std::string_view id, OpKind kind, double count, const Price& all);

  Phase phase_;
  std::vector<Sum> sums_;
};

class IterationCost {
 public:
  // `scenario` is one of generation, with an implementation that has a serving profile. Throws
  // std::invalid_argument where validate() has problems. Without a calibration datasheet efficiencies apply.
  IterationCost(const Scenario& scenario, const Calibration* calibration);

  IterationCost(const IterationCost&) = delete;
  IterationCost& operator=(const IterationCost&) = delete;

  // All layers, head and host; through all pipeline stages, one after the other.
  CostBreakdown iteration(const Iteration& iteration) const { return cost(whole(iteration)); }
  EnginePass whole(const Iteration& iteration) const;
  // A pass done once, without waiting.
  CostBreakdown cost(const EnginePass& pass) const;
  // All that the pass does, `scale` times as often: rows add up to cost() times scale (times + waits).
  void add_rows(const EnginePass& pass, double scale, EngineRows& rows) const;

  double num_layers() const { return layers_; }
  const ServingImplementation& serving() const { return serving_; }
  const Hardware& hardware() const { return hardware_; }

 private:
  // Operations priced for one set of variables.
  struct Node {
    struct Entry {
      const Operation* operation;
      double count;
      PricedOperation priced;
    };
    CostBreakdown sum;
    std::vector<Entry> entries;
  };
  // Parts of an iteration, each priced at steps of a ladder of tokens or sequences; attention also at steps
  // of lengths.
  enum Part { prompt_layers, decode_layers, decode_attention, embedding, head };
  // Layers that are alike; latent attention works otherwise while it decodes.
  struct LayersOfKind {
    BlockId prompt = 0, decode = 0;
    double share = 0;  // of all layers
  };

  void add_block(BlockId block, const Variables& v, bool attention, double count, Node& node) const;
  Node priced(Part part, std::int64_t size, std::int64_t context) const;
  const Node& node(Part part, int size, int context) const;
  const Node& prompt_node(const Iteration::Prompt& prompt) const;
  // Calls use(node, weight) with all that makes up a pass but the host's work.
  template <class Use>
  void visit(const EnginePass& pass, Use use) const;
  template <class Use>
  void visit_part(Part part, double size, double context, double weight, Use use) const;
  void add_host(const EnginePass& pass, CostBreakdown& cost) const;
  Seconds passed_on(const Iteration& iteration, double sampled) const;
  bool in_graph(const Iteration& iteration) const;
  double computed_sequences(const Iteration& iteration) const;  // of a decode step, with padding

  std::shared_ptr<const GenerationPlan> generation_;
  Hardware hardware_;
  std::optional<Calibration> calibration_;
  ServingImplementation serving_;
  mutable BlockPricer pricer_;
  std::vector<LayersOfKind> kinds_;
  double layers_ = 0;
  double collective_launches_ = 0, other_launches_ = 0;  // of a layer, on average, without small kernels
  double expert_kernels_ = 0;                            // of a layer on average
  // Prices at the steps of a ladder of sizes, found as they are needed; in between they are linear. Tables
  // are noisy: where more would take less time than the step below, it takes as much.
  mutable std::unordered_map<std::int64_t, Node> nodes_;  // by part and steps
  mutable std::unordered_map<std::int64_t, Node> prompt_attention_;
};

}  // namespace sim
