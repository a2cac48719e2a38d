// Pieces of a model, as a pipeline cuts it.
#pragma once
#include <cstdint>
#include <vector>

#include "sim/plan/builder.h"

namespace sim {

// The units of one piece of the model, in the order of a forward pass.
struct Piece {
  struct Run {
    std::size_t kind = 0;  // of StepBlocks::kinds
    Unit unit = Unit::layer;
    std::int32_t layers = 0;
    auto operator<=>(const Run&) const = default;
  };
  bool first = false, last = false;  // has the embedding, the head
  std::vector<Run> runs;
  std::int32_t layers() const;
  std::int32_t units() const { return layers() + first + last; }
  bool operator==(const Piece&) const = default;
};

// All pieces of a scenario's model, as many as its pipeline has; of DualPipe's two copies, one.
std::vector<Piece> pieces_of(const Scenario& scenario, const std::vector<LayerKind>& kinds);

}  // namespace sim
