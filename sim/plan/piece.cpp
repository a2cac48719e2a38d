#include "sim/plan/piece.h"

#include <algorithm>

#include "sim/plan/layer_division.h"

namespace sim {

std::int32_t Piece::layers() const {
  std::int32_t n = 0;
  for (const Run& r : runs) n += r.layers;
  return n;
}

std::vector<Piece> pieces_of(const Scenario& s, const std::vector<LayerKind>& kinds) {
  std::vector<Piece> pieces(static_cast<std::size_t>(pieces_of(s.strategy)));
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    Piece& piece = pieces[p];
    piece.first = p == 0;
    piece.last = p + 1 == pieces.size();
    const LayerRange range = layers_of(s, static_cast<std::int32_t>(p));
    for (std::int32_t l = range.first; l < range.last; ++l) {
      const LayerKind kind = kind_of_layer(s, l);
      const auto at = static_cast<std::size_t>(std::find(kinds.begin(), kinds.end(), kind) - kinds.begin());
      if (piece.runs.empty() || piece.runs.back().kind != at) piece.runs.push_back({at, kind.unit(), 0});
      ++piece.runs.back().layers;
    }
  }
  return pieces;
}

}  // namespace sim
