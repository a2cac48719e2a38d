#include "kernels/attention_bf16.h"

#include <algorithm>
#include <cmath>

#include "kernels/attention_tile.h"
#include "kernels/bf16_panels.h"
#include "kernels/bf16_values.h"
#include "kernels/parallel.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

// One dimension of a tile of scores holds queries, the other keys: 64 of either.
constexpr std::int64_t kSide = kQueryTile;
static_assert(kQueryTile == kKeyTile);

using HeadRowsBf16 = HeadRows<const bf16>;

PackedFactor<bf16> along_rows(HeadRowsBf16 rows) {
  return {rows.data, rows.stride, false};
}
PackedFactor<bf16> along_columns(HeadRowsBf16 rows) {
  return {rows.data, rows.stride, true};
}

// Products of at most 64 rows and columns, or as many columns as a head is wide.
class TileProducts {
 public:
  explicit TileProducts(std::int64_t D)
      : kernels_(bf16_kernels()), D_(D), width_(whole(D, std::max(kernels_.rows, kernels_.columns))) {
    if (kernels_.begin_tiles) kernels_.begin_tiles();
  }
  ~TileProducts() {
    if (kernels_.end_tiles) kernels_.end_tiles();
  }
  TileProducts(const TileProducts&) = delete;
  TileProducts& operator=(const TileProducts&) = delete;

  std::int64_t width() const { return width_; }  // of a head, in whole tiles
  std::int64_t pairs_of_head() const { return pairs_of(kernels_, D_); }
  static std::int64_t pairs_of_side() { return kSide / 2; }
  // What a packed factor takes at most: 64 rows or columns of which a head is summed, or the reverse.
  std::int64_t packed() const { return kSide * std::max(pairs_of_head(), width_ / 2); }

  // Summed over a head.
  void pack_first(Bf16Pair* to, HeadRowsBf16 rows, std::int64_t count) const {
    pack_panels<bf16>(kernels_.first, kernels_.rows, to, along_rows(rows), 0, count, 0, D_, pairs_of_head());
  }
  void pack_second(Bf16Pair* to, HeadRowsBf16 rows, std::int64_t count) const {
    pack_panels<bf16>(kernels_.second, kernels_.columns, to, along_rows(rows), 0, count, 0, D_,
                      pairs_of_head());
  }
  // Summed over `count` rows, of which the head's columns are those of the result.
  void pack_columns(Bf16Pair* to, HeadRowsBf16 rows, std::int64_t count) const {
    pack_panels<bf16>(kernels_.second, kernels_.columns, to, along_columns(rows), 0, D_, 0, count,
                      pairs_of_side());
  }
  // A tile (keys, queries): its keys, or its queries, are the rows of the result.
  void pack_keys(Bf16Pair* to, const bf16* tile, std::int64_t keys, std::int64_t queries) const {
    pack_panels<bf16>(kernels_.first, kernels_.rows, to, {tile, kSide, false}, 0, keys, 0, queries,
                      pairs_of_side());
  }
  void pack_queries(Bf16Pair* to, const bf16* tile, std::int64_t keys, std::int64_t queries) const {
    pack_panels<bf16>(kernels_.first, kernels_.rows, to, {tile, kSide, true}, 0, queries, 0, keys,
                      pairs_of_side());
  }

  // A tile (rows, 64).
  void narrow(bf16* to, const float* from, std::int64_t rows) const {
    kernels_.narrow(to, from, rows * kSide);
  }

  // scores, rows 64 apart, = a of pack_first() times b of pack_second().
  void scores(float* to, const Bf16Pair* a, const Bf16Pair* b, std::int64_t rows,
              std::int64_t columns) const {
    multiply(to, kSide, a, b, rows, columns, pairs_of_head(), false);
  }
  // to (rows, width()) = or += a of a tile times b of pack_columns().
  void of_head(float* to, const Bf16Pair* a, const Bf16Pair* b, std::int64_t rows, bool add) const {
    multiply(to, width_, a, b, rows, width_, pairs_of_side(), add);
  }

 private:
  void multiply(float* c, std::int64_t stride, const Bf16Pair* a, const Bf16Pair* b, std::int64_t rows,
                std::int64_t columns, std::int64_t pairs, bool add) const {
    for (std::int64_t j = 0; j < columns; j += kernels_.columns)
      for (std::int64_t i = 0; i < rows; i += kernels_.rows)
        kernels_.tile(c + i * stride + j, stride, a + i * pairs, b + j * pairs, pairs, add);
  }

  const Bf16Kernels& kernels_;
  std::int64_t D_, width_;
};

// A thread's memory: parts are taken one after the other.
template <class T>
class Parts {
 public:
  Parts(Lines<T>& lines, std::int64_t count) : next_(lines.at_least(count)) {}
  T* take(std::int64_t count) {
    T* const part = next_;
    next_ += count;
    return part;
  }

 private:
  T* next_;
};

struct Scratch {
  Lines<Bf16Pair> packed;
  Lines<float> sums;
};
Scratch& scratch() {
  static thread_local Scratch of_thread;
  return of_thread;
}

KERNELS_MULTIVERSION void scale_rows(float* rows, std::int64_t count, float factor) {
  multiply(rows, factor, count);
}

void narrow_rows(HeadRows<bf16> to, const float* from, std::int64_t stride, std::int64_t count,
                 std::int64_t D) {
  for (std::int64_t i = 0; i < count; ++i) narrow(to.row(i), from + i * stride, D);
}

// delta[i] = dout row i . out row i.
void dots_of_rows(float* delta, HeadRowsBf16 dout, HeadRowsBf16 out, std::int64_t rows, std::int64_t D,
                  float* wide) {
  for (std::int64_t i = 0; i < rows; ++i) {
    widen(wide, dout.row(i), D);
    widen(wide + D, out.row(i), D);
    row_dots(delta + i, ConstRows{wide, D}, ConstRows{wide + D, D}, 1, D);
  }
}

// Of which keys a tile of queries from `position` on sees some.
struct KeyRange {
  std::int64_t begin, end;
};
KeyRange seen(const AttentionMask& mask, std::int64_t position, std::int64_t rows) {
  return {std::max<std::int64_t>(0, mask.first_key(position)) / kSide * kSide, position + rows};
}

void attend(HeadRows<bf16> out, float* lse, HeadRowsBf16 queries, HeadRowsBf16 keys, HeadRowsBf16 values,
            const HeadMask& mask, std::int64_t position, std::int64_t rows, std::int64_t D) {
  const TileProducts products(D);
  const std::int64_t width = products.width(), lanes = padded(rows);
  Parts<Bf16Pair> packed(scratch().packed, 3 * products.packed() + kSide * kSide / 2);
  Bf16Pair *const packed_queries = packed.take(products.packed()),
                  *const packed_keys = packed.take(products.packed()),
                  *const packed_values = packed.take(products.packed()),
                  *const packed_probabilities = packed.take(kSide * kSide / 2);
  float* const sums = scratch().sums.at_least(kSide * width);
  alignas(64) float scores[kSide * kSide];
  alignas(64) bf16 probabilities[kSide * kSide];
  OnlineSoftmax state;
  begin_softmax(state, mask);
  products.pack_second(packed_queries, queries, rows);
  const float scale = 1.0f / std::sqrt(static_cast<float>(D));
  const auto [begin, end] = seen(mask.mask, position, rows);
  for (std::int64_t j = begin; j < end; j += kSide) {
    const std::int64_t count = std::min(kSide, end - j);
    products.pack_first(packed_keys, from_row(keys, j), count);
    products.scores(scores, packed_keys, packed_queries, count, lanes);
    scale_rows(scores, count * kSide, scale);
    mask_tile(scores, mask, position, j, count, rows);
    online_softmax_tile(scores, state, count, lanes);
    products.narrow(probabilities, scores, count);
    products.pack_queries(packed_probabilities, probabilities, count, rows);
    products.pack_columns(packed_values, from_row(values, j), count);
    if (j > begin) multiply_rows(Rows{sums, width}, state.factor, rows, width);
    products.of_head(sums, packed_probabilities, packed_values, rows, j > begin);
  }
  end_softmax(state, lse, rows);
  multiply_rows(Rows{sums, width}, state.factor, rows, D);
  narrow_rows(out, sums, width, rows, D);
}

// Keys and values of one head, packed, and their gradients.
class KeyHead {
 public:
  KeyHead(const TileProducts& products, HeadRowsBf16 keys, HeadRowsBf16 values, std::int64_t T,
          Parts<Bf16Pair>& packed, Parts<float>& sums)
      : products_(products), tiles_(whole(T, kSide) / kSide), T_(T) {
    keys_ = packed.take(tiles_ * products.packed());
    values_ = packed.take(tiles_ * products.packed());
    columns_of_keys_ = packed.take(tiles_ * products.packed());
    dkeys_ = sums.take(tiles_ * kSide * products.width());
    dvalues_ = sums.take(tiles_ * kSide * products.width());
    std::fill_n(dkeys_, tiles_ * kSide * products.width(), 0.0f);
    std::fill_n(dvalues_, tiles_ * kSide * products.width(), 0.0f);
    for (std::int64_t tile = 0; tile < tiles_; ++tile) {
      const std::int64_t count = rows_of(tile);
      products.pack_first(at(keys_, tile), from_row(keys, tile * kSide), count);
      products.pack_first(at(values_, tile), from_row(values, tile * kSide), count);
      products.pack_columns(at(columns_of_keys_, tile), from_row(keys, tile * kSide), count);
    }
  }
  static std::int64_t packed_size(const TileProducts& products, std::int64_t T) {
    return 3 * whole(T, kSide) / kSide * products.packed();
  }
  static std::int64_t sums_size(const TileProducts& products, std::int64_t T) {
    return 2 * whole(T, kSide) * products.width();
  }

  std::int64_t rows_of(std::int64_t tile) const { return std::min(kSide, T_ - tile * kSide); }
  const Bf16Pair* keys(std::int64_t tile) const { return at(keys_, tile); }
  const Bf16Pair* values(std::int64_t tile) const { return at(values_, tile); }
  const Bf16Pair* columns_of_keys(std::int64_t tile) const { return at(columns_of_keys_, tile); }
  float* dkeys(std::int64_t tile) const { return dkeys_ + tile * kSide * products_.width(); }
  float* dvalues(std::int64_t tile) const { return dvalues_ + tile * kSide * products_.width(); }

 private:
  Bf16Pair* at(Bf16Pair* all, std::int64_t tile) const { return all + tile * products_.packed(); }

  const TileProducts& products_;
  std::int64_t tiles_, T_;
  Bf16Pair *keys_, *values_, *columns_of_keys_;
  float *dkeys_, *dvalues_;
};

// Of a tile of queries.
struct QueryRows {
  HeadRowsBf16 queries, dout, out;
  HeadRows<bf16> dqueries;
  const float* lse;
  std::int64_t position, rows;
};

void add_gradients(const KeyHead& head, const QueryRows& of, const HeadMask& mask, std::int64_t D,
                   const TileProducts& products, Parts<Bf16Pair> packed, Parts<float> sums) {
  const std::int64_t rows = of.rows, width = products.width(), lanes = padded(rows);
  Bf16Pair *const queries = packed.take(products.packed()), *const dout = packed.take(products.packed()),
                  *const columns_of_queries = packed.take(products.packed()),
                  *const columns_of_dout = packed.take(products.packed()),
                  *const tile_of = packed.take(kSide * kSide / 2);
  float *const dqueries = sums.take(kSide * width), *const wide = sums.take(2 * D);
  alignas(64) float scores[kSide * kSide], gradients[kSide * kSide];
  alignas(64) float lse[kSide] = {}, delta[kSide] = {};
  alignas(64) bf16 narrowed[kSide * kSide];
  products.pack_second(queries, of.queries, rows);
  products.pack_second(dout, of.dout, rows);
  products.pack_columns(columns_of_queries, of.queries, rows);
  products.pack_columns(columns_of_dout, of.dout, rows);
  dots_of_rows(delta, of.dout, of.out, rows, D, wide);
  std::copy_n(of.lse, rows, lse);
  const float scale = 1.0f / std::sqrt(static_cast<float>(D));
  const auto [begin, end] = seen(mask.mask, of.position, rows);
  for (std::int64_t j = begin; j < end; j += kSide) {
    const std::int64_t tile = j / kSide, count = std::min(head.rows_of(tile), end - j);
    products.scores(scores, head.keys(tile), queries, count, lanes);
    scale_rows(scores, count * kSide, scale);
    mask_tile(scores, mask, of.position, j, count, rows);
    products.scores(gradients, head.values(tile), dout, count, lanes);
    softmax_gradient_tile(scores, gradients, lse, delta, scale, count, lanes, mask.mask.cap);
    products.narrow(narrowed, scores, count);
    products.pack_keys(tile_of, narrowed, count, rows);
    products.of_head(head.dvalues(tile), tile_of, columns_of_dout, count, true);
    products.narrow(narrowed, gradients, count);
    products.pack_keys(tile_of, narrowed, count, rows);
    products.of_head(head.dkeys(tile), tile_of, columns_of_queries, count, true);
    products.pack_queries(tile_of, narrowed, count, rows);
    products.of_head(dqueries, tile_of, head.columns_of_keys(tile), rows, j > begin);
  }
  narrow_rows(of.dqueries, dqueries, width, rows, D);
}

}  // namespace

bool attention_takes_bf16_tiles() {
  const Bf16Kernels& kernels = bf16_kernels();
  return kSide % kernels.rows == 0 && kSide % kernels.columns == 0;
}

void attention_by_bf16_tiles(bf16* out, float* lse, const bf16* qkv, AttentionShape s, const bf16* sinks) {
  const PackedHeads<const bf16> packed{qkv, s};
  const std::int64_t group = s.H / s.G;
  each_query_tile(s, [&](std::int64_t b, std::int64_t h, std::int64_t first, std::int64_t rows) {
    HeadMask mask = mask_of_head(s, h);
    const float sink = sinks ? cuda::to_float(sinks[h]) : 0.0f;
    mask.sink = sinks ? &sink : nullptr;
    attend(from_row(output_rows(out, s, b, h), first), lse ? lse + (b * s.H + h) * s.T + first : nullptr,
           from_row(packed.queries(b, h), first), packed.keys(b, h / group), packed.values(b, h / group),
           mask, first, rows, s.D);
  });
}

void attention_backward_by_bf16_tiles(bf16* dqkv, const bf16* dout, const bf16* qkv, const bf16* out,
                                      const float* lse, AttentionShape s) {
  const PackedHeads<const bf16> packed_heads{qkv, s};
  const PackedHeads<bf16> gradients{dqkv, s};
  const std::int64_t group = s.H / s.G;
  // A task owns a key/value head and the query heads that read it.
  parallel_tasks(s.B * s.G, [&](std::int64_t task) {
    const std::int64_t b = task / s.G, g = task % s.G;
    const TileProducts products(s.D);
    Parts<Bf16Pair> packed(scratch().packed,
                           KeyHead::packed_size(products, s.T) + 4 * products.packed() + kSide * kSide / 2);
    Parts<float> sums(scratch().sums, KeyHead::sums_size(products, s.T) + kSide * products.width() + 2 * s.D);
    const KeyHead head(products, packed_heads.keys(b, g), packed_heads.values(b, g), s.T, packed, sums);
    for (std::int64_t h = g * group; h < (g + 1) * group; ++h)
      for (std::int64_t i = 0; i < s.T; i += kSide)
        add_gradients(head,
                      {from_row(packed_heads.queries(b, h), i), from_row(output_rows(dout, s, b, h), i),
                       from_row(output_rows(out, s, b, h), i), from_row(gradients.queries(b, h), i),
                       lse + (b * s.H + h) * s.T + i, i, std::min(kSide, s.T - i)},
                      mask_of_head(s, h), s.D, products, packed, sums);
    narrow_rows(gradients.keys(b, g), head.dkeys(0), products.width(), s.T, s.D);
    narrow_rows(gradients.values(b, g), head.dvalues(0), products.width(), s.T, s.D);
  });
}

}  // namespace kernels::cpu
