// The blocks that a training step is made of; -1 where a step has no use for one.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "sim/plan/builder.h"
#include "sim/plan/plan.h"
#include "sim/plan/recompute.h"

namespace sim {

// By a layer's place among those that are recomputed from one kept input: [first][last].
class PlacedBlocks {
 public:
  BlockId& at(RecomputePlace p) { return blocks_[p.first ? 1 : 0][p.last ? 1 : 0]; }
  BlockId at(RecomputePlace p) const { return blocks_[p.first ? 1 : 0][p.last ? 1 : 0]; }

 private:
  std::array<std::array<BlockId, 2>, 2> blocks_{{{-1, -1}, {-1, -1}}};
};

struct LayerBlocks {
  PlacedBlocks forward, recompute;
  // The whole pass; in two parts, of inputs and of weights, where the schedule splits some passes or all.
  PlacedBlocks backward, backward_input;
  BlockId weight = -1;
  // What backward reads, to the host's memory after forward and back before backward.
  BlockId to_host = -1, from_host = -1;
};

// For each unit, its block of one sort of work; -1: the unit has nothing to do there.
struct UnitBlocks : PerUnit<BlockId> {
  UnitBlocks() { fill(-1); }
};

// Layers of each sort whose gradients are reduced together.
struct BucketLayers : PerUnit<std::int32_t> {
  BucketLayers() { fill(1); }
};

// The buffers that a unit's passes read and write: its parameters and their whole gradients.
using UnitParameters = PerUnit<std::vector<BufferId>>;

// Gradients of several layers in one message.
struct BucketBlocks {
  Bytes layer_bytes;  // gradients of one of them, whole
  // How many layers so many bytes hold, from 1 (layers' gradients go one by one) to all of the model.
  std::int32_t layers_in(std::int64_t bytes, std::int64_t layers_of_model) const {
    return static_cast<std::int32_t>(
        std::clamp<std::int64_t>(bytes / std::max<std::int64_t>(1, layer_bytes.value), 1, layers_of_model));
  }
  std::int32_t layers = 1;                 // that a bucket holds
  std::map<std::int32_t, BlockId> reduce;  // of so many layers
};

struct StepBlocks {
  BlockId embedding = -1, head = -1, head_backward = -1, embedding_backward = -1;
  std::vector<LayerKind> kinds;
  UnitParameters parameters;
  std::vector<LayerBlocks> layers;  // of each kind
  BlockId send_activation = -1, receive_activation = -1, send_gradient = -1, receive_gradient = -1;
  UnitBlocks zero;        // of what is accumulated over the step
  UnitBlocks zero_whole;  // ZeRO 2, 3: of one micro-batch's gradients
  UnitBlocks reduce;
  PerUnit<BucketBlocks> buckets;  // of layers
  BucketLayers bucket() const {
    BucketLayers all;
    for (const Unit unit : kLayerUnits) all[unit] = buckets[unit].layers;
    return all;
  }
  UnitBlocks reduce_replicas;                          // hybrid sharding: of shards
  UnitBlocks reduce_directions;                        // DualPipe
  UnitBlocks gather_for_forward, gather_for_backward;  // ZeRO 3
  UnitBlocks gather_updated;                           // ZeRO 1, 2
  BlockId zero_norm = -1, sum_norm = -1, clip = -1, sum_tied_embedding = -1;
  UnitBlocks unscale;  // fp16: gradients by the loss's scale; whether any overflowed is then read
  BlockId read_overflow = -1;
  UnitBlocks norm, update;
  // Where the gradient noise scale is measured: squares of gradients as the first micro-batch leaves them.
  BlockId zero_first_squares = -1;
  UnitBlocks first_squares;
  UnitBlocks gradients_to_host, parameters_from_host;  // where the host updates
};

}  // namespace sim
