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

// A scenario's model as its pipeline cuts it: the pieces that differ, and which of them each piece is. One
// of DualPipe's two copies counts.
struct Pieces {
  std::vector<Piece> distinct;
  std::vector<std::size_t> of_piece;
  const Piece& operator[](std::int32_t piece) const {
    return distinct[of_piece[static_cast<std::size_t>(piece)]];
  }
};
Pieces pieces_of(const Scenario& scenario, const std::vector<LayerKind>& kinds);

}  // namespace sim
