// Peak memory of a pipeline stage from what passes over a few layers keep and need: lives of buffers are
// found once, in a program of two micro-batches, and grow with the layers in proportion.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "sim/planner/piece.h"
#include "sim/planner/unit_prices.h"

namespace sim {

// Moments of a pass at which memory may be fullest: elsewhere it is between two of them.
enum class Moment { embedding, first_layer, last_layer, head };
inline constexpr std::size_t kMoments = 4;

// Bytes at the moments of a pass, above what other micro-batches keep.
using PassPeaks = std::array<double, kMoments>;

// What the passes of one micro-batch through a piece keep and need, in bytes, beside what lives always.
struct PieceMemory {
  double kept = 0;             // from forward to backward
  double kept_for_weight = 0;  // from the backward pass of inputs to that of weights
  PassPeaks forward{}, backward{}, input{}, weight{};
  // Of the chunk's first micro-batch, where accumulators are begun by its backward pass.
  PassPeaks first_backward{}, first_input{}, first_weight{};
};

// Finds them for pieces with so many layers.
class PassMemory {
 public:
  // Refers to the blocks, whose programs it writes.
  explicit PassMemory(BlockTimes& blocks) : blocks_(blocks) {}
  PieceMemory of(const Piece& piece, const Strategy& strategy, std::int64_t sequences);

 private:
  struct Shape {
    bool first = false, last = false;
    std::size_t kind = 0;
    std::int32_t interval = 1;
    auto operator<=>(const Shape&) const = default;
  };
  PieceMemory of_sequences(const Shape& shape, std::int32_t layers, std::int64_t sequences);
  const PieceMemory& measured(const Shape& shape, std::int32_t layers, std::int64_t sequences);
  PieceMemory of_kind(const Shape& shape, std::int32_t layers, std::int64_t sequences, bool splits);

  BlockTimes& blocks_;
  std::map<std::tuple<Shape, std::int32_t, std::int64_t>, PieceMemory> measured_;
};

// A number of bytes for each unit.
struct UnitBytes {
  double embedding = 0, head = 0;
  std::vector<double> layers;  // of each kind
};

// What parameters and their states take, and what passes gather and reduce of them.
struct StateMemory {
  // Live at all times; `shared` where embedding and head of one stage have it in common.
  UnitBytes always, accumulators;
  double shared = 0, shared_accumulators = 0, of_stage = 0;
  double per_sequence = 0;                        // inputs and losses of each micro-batch
  UnitBytes whole_gradients;                      // ZeRO 2 and 3: of one micro-batch
  UnitBytes gathered_forward, gathered_backward;  // ZeRO 3
  UnitBytes optimizer;                            // while it updates a unit
  UnitBytes parameters;                           // elements
  double shared_parameters = 0;
  std::int32_t bucket_layers = 1;
};
StateMemory state_memory(const BlockTimes& blocks);

// Most passes of each kind in flight at a moment that matters: of all, the moments that hold most.
struct InFlight {
  Pass pass{};
  std::int32_t chunk = 0;
  bool begun = false;                       // the chunk's gradients
  std::vector<std::int32_t> kept, waiting;  // others' micro-batches by chunk; waiting for their weights' pass
};
std::vector<std::vector<InFlight>> in_flight(const Schedule& schedule);

// What a stage's activations make of it, whatever its states: for each kind of pass that matters the most at
// its moments.
struct StageActivations {
  std::vector<const Piece*> pieces;  // of its chunks
  std::int32_t micro_batches = 1;
  std::int64_t micro_batch_size = 1;
  std::int32_t together = 1;  // layers that are recomputed at once
  struct Peak {
    Pass pass{};
    std::size_t chunk = 0;
    bool begun = false;
    PassPeaks bytes{};
    std::vector<std::int32_t> waiting;  // micro-batches, of each chunk; empty: none
  };
  std::vector<Peak> peaks;
};
StageActivations stage_activations(const Scenario& scenario, std::vector<const Piece*> pieces,
                                   const std::vector<const PieceMemory*>& chunks,
                                   const std::vector<InFlight>& in_flight, std::int32_t micro_batches);

Bytes peak_of_stage(const Scenario& scenario, const StageActivations& activations, const StateMemory& states);

}  // namespace sim
