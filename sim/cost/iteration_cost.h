// The time of an iteration of an inference engine: sequences that decode a token each, and chunks of prompts.
// It is composed from the prices of the plan's blocks for the iteration's tokens, so that a report's rows and
// a simulation's clock agree.
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

// Work of an engine: an iteration through layers of one pipeline stage, and the work before and after them.
struct EnginePass {
  Iteration iteration;
  double layers = 0;   // that the rank runs; 0: the host has nothing to do either
  bool ends = true;    // has the embedding and, where a sequence is sampled, logits and choice of a token
  double sampled = 0;  // sequences whose next token is chosen
  Seconds sent{};      // transfer to the next stage, or for a whole iteration through all stages
  double times = 1;    // how often it is done
  double waits = 0;    // time that the rank waits for other stages, in durations of this pass
};

// Rows of a report, each the sum over passes of one operation.
class EngineRows {
 public:
  explicit EngineRows(Phase phase) : phase_(phase) {}
  void add(const Operation& op, const PricedOperation& priced, double times);
  // Time outside the plan's operations. It occurs `count` times; `all` is its sum.
  void add_other(std::string_view id, OpKind kind, double count, const Price& all);
  // Rows in the order of their first add(). One starts at `start`, each next after one execution of the last.
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
  // `scenario` is a generation. Throws std::invalid_argument where validate() has problems or its
  // implementation has no serving profile. Without a calibration, datasheet efficiencies apply.
  IterationCost(const Scenario& scenario, const Calibration* calibration);

  IterationCost(const IterationCost&) = delete;
  IterationCost& operator=(const IterationCost&) = delete;

  // The time of all layers, head and host, through all pipeline stages one after the other.
  CostBreakdown iteration(const Iteration& iteration) const { return cost(whole(iteration)); }
  EnginePass whole(const Iteration& iteration) const;
  // The time of a pass done once, without its waits.
  CostBreakdown cost(const EnginePass& pass) const;
  // Adds rows of all that the pass does, `scale` times over. They sum to cost() x scale x (times + waits).
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
  // Calls use(node, weight) for each part of a pass except the host's work.
  template <class Use>
  void visit(const EnginePass& pass, Use use) const;
  template <class Use>
  void visit_part(Part part, double size, double context, double weight, Use use) const;
  void add_host(const EnginePass& pass, CostBreakdown& cost) const;
  Seconds passed_on(const Iteration& iteration, double sampled) const;
  bool in_graph(const Iteration& iteration) const;
  double computed_sequences(const Iteration& iteration) const;  // of a decode step, padding included

  std::shared_ptr<const GenerationPlan> generation_;
  Hardware hardware_;
  std::optional<Calibration> calibration_;
  ServingImplementation serving_;
  mutable BlockPricer pricer_;
  std::vector<LayersOfKind> kinds_;
  double layers_ = 0;
  double collective_launches_ = 0, other_launches_ = 0;  // of a layer, on average, without small kernels
  double expert_kernels_ = 0;                            // of a layer on average
  // Prices at the steps of a ladder of sizes, found when needed; between steps they are linear. Tables are
  // noisy: a size that would take less time than the step below takes as much as that step.
  mutable std::unordered_map<std::int64_t, Node> nodes_;  // by part and steps
  mutable std::unordered_map<std::int64_t, Node> prompt_attention_;
};

}  // namespace sim
