// What the functions that write plans share: short names for operands and the scenario's element types.
#pragma once
#include <array>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "sim/enum_array.h"
#include "sim/plan/plan.h"

namespace sim {

inline Operand reads(BufferId b, std::int32_t layer_offset = 0) {
  return {b, Access::read, layer_offset};
}
inline Operand writes(BufferId b, std::int32_t layer_offset = 0) {
  return {b, Access::write, layer_offset};
}
inline Operand updates(BufferId b, std::int32_t layer_offset = 0) {
  return {b, Access::update, layer_offset};
}

// A list that holds this one operation. The operation is moved: an initializer list would copy it.
inline std::vector<Operation> list_of(Operation op) {
  std::vector<Operation> list;
  list.push_back(std::move(op));
  return list;
}

// The element types of a scenario's tensors and of its arithmetic.
struct ElementTypes {
  DType product;         // arithmetic of the layers' matrix products
  DType wide_product;    // of attention and of the head, which stay in 16 bits where `product` is fp8
  DType stored;          // parameters, activations
  DType weights;         // of the layers' products
  DType expert_weights;  // of the experts' products
  DType embedding;       // of tokens, and of a head that is the embedding
  DType head;            // with weights of its own
  DType cache;           // keys and values of earlier tokens
  DType gradient;        // of parameters
  DType shard;           // parameters as ZeRO 3 divides them
  DType statistic;  // norms' mean and rstd, log-sum-exp, logits; arithmetic of everything that is no product
  bool master;      // an fp32 copy of the parameters for the optimizer
};
ElementTypes element_types(const Scenario& scenario);
// `stored` where `wanted` has 16 bits, else `wanted`: bf16 and fp16 do not meet in a product.
DType sixteen_bits_as(DType stored, DType wanted);

inline bool uses_dropout(const Scenario& s) {
  return s.workload.task == Task::train && s.implementation.dropout;
}
// Whether the projections into the residual stream add it themselves. Dropout or a collective prevents it.
inline bool fuses_residual(const Scenario& s) {
  return s.implementation.fused_residual && !uses_dropout(s) && s.strategy.tensor_parallel == 1;
}

// The model as a rank of a tensor-parallel group holds it: heads, feed-forward width and vocabulary divided.
// Key-value heads are held by several ranks where there are fewer than ranks; the vocabulary is padded to a
// multiple of the ranks.
Model shard_of(const Model& model, const Strategy& strategy);
// Rows of embedding and head that a rank holds, with padding.
std::int64_t held_vocabulary(const Scenario& scenario);

// data_ranks(): how many ranks hold the same parameters and divide a step's tokens. shard_ranks(): over how
// many of these ZeRO divides states.
inline int data_ranks(const Strategy& s) {
  return s.data_parallel * s.context_parallel;
}
inline int shard_ranks(const Strategy& s) {
  return s.shard_group > 0 ? s.shard_group : data_ranks(s);
}

// Whether products write their weights' gradients, instead of adding to zeros, where nothing was written yet:
// in a unit's first backward pass of a step, or in every backward pass where ZeRO adds up shards.
inline bool products_write_gradients(const Scenario& s) {
  return s.implementation.runs_here && s.implementation.memory.weight_gradient == WeightGradient::accumulated;
}
// Whether each micro-batch's gradients are added to shards, and exist whole in one unit's backward only.
inline bool adds_up_shards(const Strategy& s) {
  return s.zero_stage >= 2;
}

// Parameters and their states are gathered, reduced and updated in units: the embedding, one layer (named by
// what it consists of), the head.
enum class Unit { embedding, layer, expert_layer, state_space, attention, feed_forward, experts_alone, head };
inline constexpr std::array kLayerUnits{Unit::layer,     Unit::expert_layer, Unit::state_space,
                                        Unit::attention, Unit::feed_forward, Unit::experts_alone};

// Something of each unit.
template <class T>
using PerUnit = EnumArray<Unit, T>;

inline constexpr bool is_layer(Unit unit) {
  return unit != Unit::embedding && unit != Unit::head;
}
inline constexpr bool has_experts(Unit unit) {
  return unit == Unit::expert_layer || unit == Unit::experts_alone;
}

inline bool has_whole_vocabulary(const Scenario& s) {
  return s.workload.task == Task::generate && s.implementation.serving &&
         s.implementation.serving->whole_head_on_each_rank;
}

// All that makes the operations of one decoder layer differ from those of another.
struct LayerKind {
  LayerSort sort = LayerSort::whole;
  bool experts = false;
  bool window = false;     // a query sees a window or a segment of the tokens before it
  bool unrotated = false;  // no rotary embedding
  bool lowest = false;     // nothing below it learns
  bool mixed = false;      // listed in mixed_layers: its weights have types that other layers' have not
  bool operator==(const LayerKind&) const = default;
  bool attends() const { return sort == LayerSort::whole || sort == LayerSort::attention; }
  bool has_states() const { return sort == LayerSort::state_space; }
  bool mixes() const { return attends() || has_states(); }
  bool feeds_forward() const {
    return sort == LayerSort::whole || sort == LayerSort::feed_forward || sort == LayerSort::experts;
  }
  // The unit of such a layer, which says what parameters it has.
  Unit unit() const {
    switch (sort) {
      case LayerSort::whole:
        break;
      case LayerSort::state_space:
        return Unit::state_space;
      case LayerSort::attention:
        return Unit::attention;
      case LayerSort::feed_forward:
        return Unit::feed_forward;
      case LayerSort::experts:
        return Unit::experts_alone;
    }
    return experts ? Unit::expert_layer : Unit::layer;
  }
  // The beginning of its blocks' names: "layer", "layer.experts", "layer.window",
  // "layer.window.experts", "layer.unrotated", "layer.lowest", "layer.mixed", ...; in hybrid models
  // "layer.state_space", "layer.attention", "layer.mlp", "layer.experts".
  std::string prefix() const {
    const std::string_view own = has_states()                      ? ".state_space"
                                 : sort == LayerSort::attention    ? ".attention"
                                 : sort == LayerSort::feed_forward ? ".mlp"
                                                                   : "";
    return std::string("layer").append(own) + (window ? ".window" : "") + (unrotated ? ".unrotated" : "") +
           (lowest ? ".lowest" : "") + (mixed ? ".mixed" : "") + (experts ? ".experts" : "");
  }
};
// Tokens of the longest sequence that a workload makes.
inline std::int64_t longest_sequence(const Workload& w) {
  return w.task == Task::train ? w.seq_len : w.prompt_length + w.max_new_tokens;
}
// A window or a segment as long as all sequences hides nothing: such a layer is like any other.
LayerKind kind_of_layer(const Scenario& scenario, std::int64_t layer);
// The kinds of layers that a scenario's model has, in the order in which they first come.
std::vector<LayerKind> layer_kinds(const Scenario& scenario);
// The units of these layers, each once.
std::vector<Unit> layer_units(const Scenario& scenario);

class PlanBuilder {
 public:
  explicit PlanBuilder(const Scenario& scenario);

  const Scenario& scenario() const { return plan_.scenario; }
  // The model as one rank holds it (shard_of()); num_hidden_layers and hidden_size are the whole model's.
  const Model& model() const { return model_; }
  const Strategy& strategy() const { return plan_.scenario.strategy; }
  const ElementTypes& types() const { return types_; }
  // Rows of the residual stream that a rank holds: sequence parallelism divides them.
  Extent stream_rows() const { return stream_rows_; }
  // Whether the backward pass being written has two parts, of inputs and of weights (zero-bubble schedules).
  bool splits_backward() const { return splits_backward_; }
  void split_backward(bool split) { splits_backward_ = split; }
  bool tensor_parallel() const { return groups_.tensor >= 0; }
  // Whether ranks divide embedding and head; some inference engines hold both whole on each rank.
  bool divides_vocabulary() const { return tensor_parallel() && !has_whole_vocabulary(scenario()); }
  // How many experts of a layer a rank holds, and how many ranks hold the same experts (or parts of them).
  std::int64_t experts_held() const { return model_.moe.num_experts / strategy().expert_parallel; }
  int expert_data_ranks() const;

  // Indices into Plan::groups, -1 where a group would be of one rank.
  struct Groups {
    std::int32_t tensor = -1, key_value = -1, context = -1, data = -1, pipeline = -1, tied_embedding = -1;
    // The data-parallel ranks that states are divided over, and those that hold the same shard (hybrid
    // sharding).
    std::int32_t shard = -1, replica = -1;
    std::int32_t directions = -1;  // the two stages that hold the same pieces (DualPipe)
    std::int32_t expert = -1, expert_data = -1;
  };
  const Groups& groups() const { return groups_; }

  BufferId add(Buffer&& buffer);
  void place_on_host(BufferId b, bool on_host) {
    plan_.buffers[static_cast<std::size_t>(b)].on_host = on_host;
  }
  const Buffer& buffer(BufferId b) const { return plan_.buffer(b); }
  // Kept from forward for backward: an instance for each layer and micro-batch.
  BufferId add_kept(const std::string& name, DType dtype, const Shape& shape);
  // A buffer that lives inside one action of one block; its name begins with the block's.
  BufferId add_scratch(const std::string& block, const std::string& name, DType dtype, const Shape& shape);
  // A buffer that the caller of a program fills or reads; it exists all the time.
  BufferId add_input(std::string_view name, DType dtype, const Shape& shape, bool per_micro_batch = false);

  BlockId add(Block block);
  // Operands on `buffer` at `layer_offset` become operands on `by` at `by_layer_offset`.
  struct Replacement {
    BufferId buffer = kNoBuffer;
    std::int32_t layer_offset = 0;
    BufferId by = kNoBuffer;
    std::int32_t by_layer_offset = layer_offset;
  };
  // A block with the operations of the block `of` on other buffers, and with scratch of its own.
  BlockId add_variant(BlockId of, const std::string& name, const std::vector<Replacement>& replacements);
  void replace(BlockId in, const std::vector<Replacement>& replacements);
  const Block& block(BlockId b) const { return plan_.block(b); }
  // The scales, then the zeros, that a weight of fewer than 16 bits has; either may be absent.
  std::vector<BufferId> scales_of(BufferId weight) const;
  Plan take() { return std::move(plan_); }

 private:
  std::int32_t add_group(Group group);

  Plan plan_;
  Model model_;
  Extent stream_rows_ = kRows;
  bool splits_backward_ = false;
  Groups groups_;
  ElementTypes types_;
};

// Adds the buffer of one result and returns it. The caller thus chooses whether results are kept or scratch.
using AddBuffer = std::function<BufferId(PlanBuilder& builder, const std::string& block,
                                         const std::string& name, DType dtype, const Shape& shape)>;

}  // namespace sim
