// The rule by which an embedding's rows are those of tokens and of positions (embedding.h), in every type.
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/embedding.h"
#include "kernels/parallel.h"

namespace kernels::cpu {

// read(row, i) writes row i of this part's weight; add(row, position) adds a row of position_weight (P, C),
// which may be null, to what is there.
template <class T, class Read, class Add>
void embed_rows(T* out, const std::int32_t* tokens, const T* position_weight, const std::int32_t* positions,
                EmbeddingShape s, const Read& read, const Add& add) {
  const bool adds_positions = position_weight && s.first == 0;
  parallel_ranges(s.B * s.T, s.C, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      T* const row = out + r * s.C;
      if (s.has(tokens[r]))
        read(row, tokens[r] - s.first);
      else
        std::fill_n(row, s.C, T{});
      if (!adds_positions) continue;
      const std::int64_t start = positions ? positions[r / s.T] : 0;
      add(row, position_weight + (start + r % s.T) * s.C);
    }
  });
}

}  // namespace kernels::cpu
