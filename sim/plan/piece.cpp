#include "sim/plan/piece.h"

#include <algorithm>

#include "sim/plan/layer_division.h"

namespace sim {

std::int32_t Piece::layers() const {
  std::int32_t n = 0;
  for (const Run& r : runs) n += r.layers;
  return n;
}

Pieces pieces_of(const Scenario& s, const std::vector<LayerKind>& kinds) {
  const std::int32_t n = pieces_of(s.strategy);
  Pieces pieces;
  pieces.of_piece.reserve(static_cast<std::size_t>(n));
  Piece piece;
  for (std::int32_t p = 0; p < n; ++p) {
    piece.first = p == 0;
    piece.last = p + 1 == n;
    piece.runs.clear();
    const LayerRange range = layers_of(s, p);
    for (std::int32_t l = range.first; l < range.last; ++l) {
      const LayerKind kind = kind_of_layer(s, l);
      const auto at = static_cast<std::size_t>(std::ranges::find(kinds, kind) - kinds.begin());
      if (piece.runs.empty() || piece.runs.back().kind != at) piece.runs.push_back({at, kind.unit(), 0});
      ++piece.runs.back().layers;
    }
    const auto same = std::ranges::find(pieces.distinct, piece);
    pieces.of_piece.push_back(static_cast<std::size_t>(same - pieces.distinct.begin()));
    if (same == pieces.distinct.end()) pieces.distinct.push_back(piece);
  }
  return pieces;
}

}  // namespace sim
