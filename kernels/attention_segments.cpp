#include "kernels/attention_segments.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/attention_tile.h"
#include "kernels/parallel.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

// Rows of a rank that are consecutive tokens, and where in the sequence they lie.
struct Segment {
  std::int64_t row, position, rows;
  std::int64_t end() const { return position + rows; }
};

std::array<Segment, 2> segments_of(ContextPart part, std::int64_t T) {
  const std::int64_t half = T / 2;
  return {{{0, part.position(0, T), half}, {half, part.position(half, T), T - half}}};
}

// A key/value head of a rank's keys: the heads of values lie behind those of keys.
template <class Float>
struct HeadOfKeys {
  HeadRows<Float> keys, values;
};
template <class Float>
HeadOfKeys<Float> head_of(Float* kv, const SegmentKeys& of, AttentionShape s, std::int64_t b,
                          std::int64_t g) {
  Float* const head = kv + b * s.T * of.stride + g * s.D;
  return {{head, of.stride}, {head + s.G * s.D, of.stride}};
}

// A tile of queries lies in one segment.
std::int64_t tiles_of(std::int64_t rows) {
  return (rows + kQueryTile - 1) / kQueryTile;
}

// to = own * to + its * part, for rows of one head.
KERNELS_MULTIVERSION void merge_row(float* to, const float* part, float own, float its, std::int64_t D) {
#pragma omp simd
  for (std::int64_t d = 0; d < D; ++d) to[d] = own * to[d] + its * part[d];
}

}  // namespace

void attention_segments_forward(float* out, float* lse, const float* qkv, ContextPart queries,
                                std::span<const SegmentKeys> keys, AttentionShape s) {
  const PackedHeads<const float> packed{qkv, s};
  const std::array<Segment, 2> own = segments_of(queries, s.T);
  const std::int64_t tiles[] = {tiles_of(own[0].rows), tiles_of(own[1].rows)};
  // Later tiles see more keys: handed out first.
  parallel_tasks((tiles[0] + tiles[1]) * s.B * s.H, [&](std::int64_t task) {
    const std::int64_t place = tiles[0] + tiles[1] - 1 - task / (s.B * s.H);
    const std::size_t half = place < tiles[0] ? 0 : 1;
    const std::int64_t i = (half == 0 ? place : place - tiles[0]) * kQueryTile, row = own[half].row + i;
    const std::int64_t b = task % (s.B * s.H) / s.H, h = task % s.H, g = h / (s.H / s.G);
    QueryTile tile(from_row(output_rows(out, s, b, h), row), from_row(packed.queries(b, h), row),
                   mask_of_head(s, h), own[half].position + i, std::min(kQueryTile, own[half].rows - i), s.D,
                   s.D);
    for (const SegmentKeys& of : keys) {
      const HeadOfKeys<const float> head = head_of(of.kv, of, s, b, g);
      for (const Segment& seg : segments_of(of.part, s.T))
        tile.add(DirectTiles{from_row(head.keys, seg.row)}, DirectTiles{from_row(head.values, seg.row)},
                 seg.position, seg.end());
    }
    tile.finish(lse ? lse + (b * s.H + h) * s.T + row : nullptr);
  });
}

void attention_segments_backward(float* dqkv, bool add_to_queries, const float* dout, const float* qkv,
                                 const float* out, const float* lse, ContextPart queries,
                                 std::span<const SegmentKeys> keys, AttentionShape s) {
  const PackedHeads<const float> packed{qkv, s};
  const PackedHeads<float> gradients{dqkv, s};
  const std::int64_t group = s.H / s.G;
  // A task owns a key/value head and the query heads that read it.
  parallel_tasks(s.B * s.G, [&](std::int64_t task) {
    const std::int64_t b = task / s.G, g = task % s.G;
    for (const SegmentKeys& of : keys) {
      const HeadOfKeys<float> head = head_of(of.dkv, of, s, b, g);
      zero_rows(head.keys, s.T, s.D);
      zero_rows(head.values, s.T, s.D);
    }
    GradientTile tile(s.D);
    for (std::int64_t h = g * group; h < (g + 1) * group; ++h)
      for (const Segment& own : segments_of(queries, s.T))
        for (std::int64_t i = 0; i < own.rows; i += kQueryTile) {
          const std::int64_t row = own.row + i;
          tile.begin(from_row(gradients.queries(b, h), row), add_to_queries,
                     from_row(packed.queries(b, h), row), from_row(output_rows(dout, s, b, h), row),
                     from_row(output_rows(out, s, b, h), row), lse + (b * s.H + h) * s.T + row,
                     own.position + i, std::min(kQueryTile, own.rows - i));
          for (const SegmentKeys& of : keys) {
            const HeadOfKeys<const float> head = head_of(of.kv, of, s, b, g);
            const HeadOfKeys<float> gradient = head_of(of.dkv, of, s, b, g);
            for (const Segment& seg : segments_of(of.part, s.T))
              tile.add(from_row(gradient.keys, seg.row), from_row(gradient.values, seg.row),
                       from_row(head.keys, seg.row), from_row(head.values, seg.row), mask_of_head(s, h),
                       seg.position, seg.end());
          }
          tile.finish();
        }
  });
}

void attention_merge(float* out, float* lse, const float* part, const float* part_lse, AttentionShape s) {
  parallel_ranges(s.B * s.T, 2 * s.H * s.D, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t h = 0; h < s.H; ++h) {
        const std::int64_t sums = (row / s.T * s.H + h) * s.T + row % s.T, first = (row * s.H + h) * s.D;
        const float whole = lse[sums], other = part_lse[sums];
        if (other == kMinusInfinity) continue;
        const float high = std::max(whole, other);
        const float sum = std::exp(whole - high) + std::exp(other - high);
        merge_row(out + first, part + first, std::exp(whole - high) / sum, std::exp(other - high) / sum, s.D);
        lse[sums] = high + std::log(sum);
      }
  });
}

}  // namespace kernels::cpu
