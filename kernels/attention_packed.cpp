#include "kernels/attention_packed.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "kernels/attention_tile.h"
#include "kernels/bf16_values.h"
#include "kernels/cached_tiles.h"
#include "kernels/matmul_packed.h"
#include "kernels/packed_panels.h"
#include "kernels/parallel.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

// One dimension of a tile of scores holds queries, the other keys: 64 of either.
constexpr std::int64_t kSide = kQueryTile;
static_assert(kQueryTile == kKeyTile);

template <class T>
PackedFactor<T> along_rows(HeadRows<const T> rows) {
  return {rows.data, rows.stride, false};
}
template <class T>
PackedFactor<T> along_columns(HeadRows<const T> rows) {
  return {rows.data, rows.stride, true};
}

// The kernels that products of T use; null where none of them packs its factors.
template <class T>
const auto* product_kernels() {
  if constexpr (std::is_same_v<T, bf16>)
    return &bf16_kernels();
  else
    return fp32_kernels();
}

// Where the diagonal goes through a tile of scores: query j sees its keys up to j - ahead. Scores that no
// query sees are zero, and are not multiplied.
struct Diagonal {
  std::int64_t ahead;

  Diagonal(std::int64_t first_key, std::int64_t position) : ahead(first_key - position) {}
  // Whether the last of `queries` queries from `query` on sees the first of the keys from `key` on.
  bool any_seen(std::int64_t key, std::int64_t query, std::int64_t queries) const {
    return key + ahead < query + queries;
  }
  std::int64_t first_query(std::int64_t key) const { return std::max<std::int64_t>(0, key + ahead); }
  std::int64_t keys_until(std::int64_t query) const { return query - ahead; }  // that those before it see
};

// Products of at most 64 rows and columns, or as many columns as a head is wide.
template <class T>
class TileProducts {
 public:
  explicit TileProducts(std::int64_t D)
      : kernels_(*product_kernels<T>()), D_(D), width_(whole(D, std::max(kernels_.rows, kernels_.columns))) {
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
  // The most words of a packed factor: 64 rows or columns with sums over a head, or the reverse.
  std::int64_t packed() const { return kernels_.words * kSide * std::max(pairs_of_head(), width_ / 2); }
  std::int64_t packed_tile() const { return kernels_.words * kSide * pairs_of_side(); }

  // Packs a factor of products that are sums over a head.
  void pack_first(PackedWord* to, HeadRows<const T> rows, std::int64_t count) const {
    pack_panels<T>(kernels_, kernels_.first, kernels_.rows, to, along_rows(rows), 0, count, 0, D_,
                   pairs_of_head());
  }
  void pack_second(PackedWord* to, HeadRows<const T> rows, std::int64_t count) const {
    pack_panels<T>(kernels_, kernels_.second, kernels_.columns, to, along_rows(rows), 0, count, 0, D_,
                   pairs_of_head());
  }
  // Packs a factor of sums over `count` rows; the head's columns are the columns of the result.
  void pack_columns(PackedWord* to, HeadRows<const T> rows, std::int64_t count) const {
    pack_panels<T>(kernels_, kernels_.second, kernels_.columns, to, along_columns(rows), 0, D_, 0, count,
                   pairs_of_side());
  }
  // Packs a tile (keys, queries), whose queries are the rows of the result.
  void pack_queries(PackedWord* to, const T* tile, std::int64_t keys, std::int64_t queries) const {
    pack_panels<T>(kernels_, kernels_.first, kernels_.rows, to, {tile, kSide, true}, 0, queries, 0, keys,
                   pairs_of_side());
  }

  // A tile (rows, 64) of fp32 as a tile of T: the tile itself, or rounded into `rounded`.
  const T* as_factor([[maybe_unused]] T* rounded, const float* tile,
                     [[maybe_unused]] std::int64_t rows) const {
    if constexpr (std::is_same_v<T, float>) {
      return tile;
    } else {
      kernels_.narrow(rounded, tile, rows * kSide);
      return rounded;
    }
  }

  // scores, rows 64 apart, = a of pack_first() times b of pack_second(); zero where no query sees them.
  void scores(float* to, const PackedWord* a, const PackedWord* b, std::int64_t keys, std::int64_t queries,
              Diagonal diagonal) const {
    const std::int64_t pairs = pairs_of_head();
    for (std::int64_t j = 0; j < queries; j += kernels_.columns)
      for (std::int64_t i = 0; i < keys; i += kernels_.rows) {
        float* const block = to + i * kSide + j;
        if (diagonal.any_seen(i, j, kernels_.columns))
          kernels_.tile(block, kSide, a + kernels_.words * i * pairs, b + kernels_.words * j * pairs, pairs,
                        false);
        else
          for (std::int64_t r = 0; r < kernels_.rows; ++r)
            std::fill_n(block + r * kSide, kernels_.columns, 0.0f);
      }
  }
  // to (queries, width()) = or += a of pack_queries() times b of pack_columns(): summed over keys.
  void of_queries(float* to, const PackedWord* a, const PackedWord* b, std::int64_t queries, bool add,
                  Diagonal diagonal) const {
    for (std::int64_t i = 0; i < queries; i += kernels_.rows) {
      const std::int64_t pairs = whole_pairs(diagonal.keys_until(i + kernels_.rows) + 1);
      const PackedWord* const rows = a + kernels_.words * i * pairs_of_side();
      each_panel(b, 0, [&](std::int64_t j, const PackedWord* panel) {
        kernels_.tile(to + i * width_ + j, width_, rows, panel, pairs, add);
      });
    }
  }
  // to (keys, width()) += a tile (keys, queries) times b of pack_columns(): summed over queries. `packed`
  // takes the tile where its rows cannot be multiplied in place.
  void of_keys(float* to, const T* tile, PackedWord* packed, const PackedWord* b, std::int64_t keys,
               std::int64_t queries, Diagonal diagonal) const {
    const bool in_place = kernels_.tile_of_rows && queries == kSide;  // beyond fewer lies any number
    if (!in_place)
      pack_panels<T>(kernels_, kernels_.first, kernels_.rows, packed, {tile, kSide, false}, 0, keys, 0,
                     queries, pairs_of_side());
    for (std::int64_t i = 0; i < keys; i += kernels_.rows) {
      const std::int64_t hidden = diagonal.first_query(i) / 2 / kernels_.whole_pairs * kernels_.whole_pairs;
      const std::int64_t first = std::min(hidden, pairs_of_side() - kernels_.whole_pairs);
      const std::int64_t pairs = pairs_of_side() - first;
      const PackedWord* const rows = packed + kernels_.words * (i * pairs_of_side() + first * kernels_.rows);
      each_panel(b, first, [&](std::int64_t j, const PackedWord* panel) {
        float* const sums = to + i * width_ + j;
        if (in_place)
          kernels_.tile_of_rows(sums, width_, {tile + i * kSide + 2 * first, kSide}, panel, pairs, true);
        else
          kernels_.tile(sums, width_, rows, panel, pairs, true);
      });
    }
  }

 private:
  // How many pairs `count` elements fill: at least those of one tile, and at most those of a side.
  std::int64_t whole_pairs(std::int64_t count) const {
    return std::clamp(whole(count / 2, kernels_.whole_pairs), kernels_.whole_pairs, pairs_of_side());
  }
  // visit(column, panel) for each panel of a factor of pack_columns(), from pair `first` on.
  void each_panel(const PackedWord* b, std::int64_t first, const auto& visit) const {
    for (std::int64_t j = 0; j < width_; j += kernels_.columns)
      visit(j, b + kernels_.words * (j * pairs_of_side() + first * kernels_.columns));
  }

  const std::remove_pointer_t<decltype(product_kernels<T>())>& kernels_;
  std::int64_t D_, width_;
};

// A thread's memory, from which parts are taken one after the other.
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
  Lines<PackedWord> packed;
  Lines<float> sums;
};
Scratch& scratch() {
  static thread_local Scratch of_thread;
  return of_thread;
}

KERNELS_MULTIVERSION void scale_rows(float* rows, std::int64_t count, float factor) {
  multiply(rows, factor, count);
}

// Writes rows of a head from sums in fp32.
void write_rows(HeadRows<bf16> to, ConstRows sums, std::int64_t count, std::int64_t D) {
  for (std::int64_t i = 0; i < count; ++i) narrow(to.row(i), sums.row(i), D);
}
void write_rows(Rows to, ConstRows sums, std::int64_t count, std::int64_t D) {
  for (std::int64_t i = 0; i < count; ++i) std::copy_n(sums.row(i), D, to.row(i));
}

// delta[i] = dout row i . out row i. wide: 2 D.
void dots_of_rows(float* delta, HeadRows<const bf16> dout, HeadRows<const bf16> out, std::int64_t rows,
                  std::int64_t D, float* wide) {
  for (std::int64_t i = 0; i < rows; ++i) {
    widen(wide, dout.row(i), D);
    widen(wide + D, out.row(i), D);
    row_dots(delta + i, ConstRows{wide, D}, ConstRows{wide + D, D}, 1, D);
  }
}
void dots_of_rows(float* delta, ConstRows dout, ConstRows out, std::int64_t rows, std::int64_t D, float*) {
  row_dots(delta, dout, out, rows, D);
}

// A range of keys that includes all that a tile of `rows` queries from `position` on sees.
struct KeyRange {
  std::int64_t begin, end;
};
KeyRange seen(const AttentionMask& mask, std::int64_t position, std::int64_t rows) {
  return {std::max<std::int64_t>(0, mask.first_key(position)) / kSide * kSide, position + rows};
}

// So many tiles of queries of a head share a packed tile of keys and values.
constexpr std::int64_t kMostTilesTogether = 4;

// Fewer where there would be too few tasks for the threads. No result depends on this number.
std::int64_t tiles_together(AttentionShape s) {
  std::int64_t tiles = kMostTilesTogether;
  const auto tasks = [&] { return s.B * s.H * (whole(s.T, tiles * kSide) / (tiles * kSide)); };
  while (tiles > 1 && tasks() < 2 * omp_get_max_threads()) tiles /= 2;
  return tiles;
}

// A tile of queries, and what it has summed up from the keys so far.
struct OpenTile {
  std::int64_t position, rows;
  KeyRange keys;
  PackedWord* queries;
  float* sums;  // (rows, width of a head)
  OnlineSoftmax state;
};

// Consecutive queries of a head, from `position` on, and all keys and values that they see.
template <class T, class KeyTiles, class ValueTiles>
void attend(HeadRows<T> out, float* lse, HeadRows<const T> queries, const KeyTiles& keys,
            const ValueTiles& values, const HeadMask& mask, std::int64_t position, std::int64_t rows,
            std::int64_t D) {
  const TileProducts<T> products(D);
  const std::int64_t width = products.width(), tiles = whole(rows, kSide) / kSide;
  Parts<PackedWord> packed(scratch().packed, (tiles + 2) * products.packed() + products.packed_tile());
  PackedWord *const packed_keys = packed.take(products.packed()),
                    *const packed_values = packed.take(products.packed()),
                    *const packed_probabilities = packed.take(products.packed_tile());
  Parts<float> sums(scratch().sums, tiles * kSide * width + kSide * D);
  float* const gathered = sums.take(kSide * D);
  OpenTile open[kMostTilesTogether];
  for (std::int64_t i = 0; i < tiles; ++i) {
    const std::int64_t first = i * kSide, count = std::min(kSide, rows - first);
    open[i] = {position + first,
               count,
               seen(mask.mask, position + first, count),
               packed.take(products.packed()),
               sums.take(kSide * width),
               {}};
    begin_softmax(open[i].state, mask);
    products.pack_second(open[i].queries, from_row(queries, first), count);
  }
  alignas(64) float scores[kSide * kSide];
  alignas(64) T rounded[kSide * kSide];
  const float scale = 1.0f / std::sqrt(static_cast<float>(D));
  for (std::int64_t j = open[0].keys.begin; j < open[tiles - 1].keys.end; j += kSide) {
    const std::int64_t there = std::min(kSide, position + rows - j);
    products.pack_first(packed_keys, keys.tile(j, there, gathered), there);
    products.pack_columns(packed_values, values.tile(j, there, gathered), there);
    for (OpenTile* of = open; of < open + tiles; ++of) {
      if (j < of->keys.begin || j >= of->keys.end) continue;
      const bool add = j > of->keys.begin;
      const std::int64_t count = std::min(kSide, of->keys.end - j), lanes = padded(of->rows);
      const Diagonal diagonal(j, of->position);
      products.scores(scores, packed_keys, of->queries, count, lanes, diagonal);
      scale_rows(scores, count * kSide, scale);
      mask_tile(scores, mask, of->position, j, count, of->rows);
      online_softmax_tile(scores, of->state, count, lanes);
      products.pack_queries(packed_probabilities, products.as_factor(rounded, scores, count), count,
                            of->rows);
      if (add) multiply_rows(Rows{of->sums, width}, of->state.factor, of->rows, width);
      products.of_queries(of->sums, packed_probabilities, packed_values, of->rows, add, diagonal);
    }
  }
  for (std::int64_t i = 0; i < tiles; ++i) {
    OpenTile& of = open[i];
    end_softmax(of.state, lse ? lse + i * kSide : nullptr, of.rows);
    multiply_rows(Rows{of.sums, width}, of.state.factor, of.rows, D);
    write_rows(from_row(out, i * kSide), {of.sums, width}, of.rows, D);
  }
}

// Keys and values of one head, packed, and their gradients.
template <class T>
class KeyHead {
 public:
  KeyHead(const TileProducts<T>& products, HeadRows<const T> keys, HeadRows<const T> values,
          std::int64_t tokens, Parts<PackedWord>& packed, Parts<float>& sums)
      : products_(products), tiles_(whole(tokens, kSide) / kSide), tokens_(tokens) {
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
  static std::int64_t packed_size(const TileProducts<T>& products, std::int64_t tokens) {
    return 3 * whole(tokens, kSide) / kSide * products.packed();
  }
  static std::int64_t sums_size(const TileProducts<T>& products, std::int64_t tokens) {
    return 2 * whole(tokens, kSide) * products.width();
  }

  std::int64_t rows_of(std::int64_t tile) const { return std::min(kSide, tokens_ - tile * kSide); }
  const PackedWord* keys(std::int64_t tile) const { return at(keys_, tile); }
  const PackedWord* values(std::int64_t tile) const { return at(values_, tile); }
  const PackedWord* columns_of_keys(std::int64_t tile) const { return at(columns_of_keys_, tile); }
  float* dkeys(std::int64_t tile) const { return dkeys_ + tile * kSide * products_.width(); }
  float* dvalues(std::int64_t tile) const { return dvalues_ + tile * kSide * products_.width(); }

 private:
  PackedWord* at(PackedWord* all, std::int64_t tile) const { return all + tile * products_.packed(); }

  const TileProducts<T>& products_;
  std::int64_t tiles_, tokens_;
  PackedWord *keys_, *values_, *columns_of_keys_;
  float *dkeys_, *dvalues_;
};

// A tile of queries: its rows of each operand, its first position and the number of its rows.
template <class T>
struct QueryRows {
  HeadRows<const T> queries, dout, out;
  HeadRows<T> dqueries;
  const float* lse;
  std::int64_t position, rows;
};

template <class T>
void add_gradients(const KeyHead<T>& head, const QueryRows<T>& of, const HeadMask& mask, std::int64_t D,
                   const TileProducts<T>& products, Parts<PackedWord> packed, Parts<float> sums) {
  const std::int64_t rows = of.rows, width = products.width(), lanes = padded(rows);
  PackedWord *const queries = packed.take(products.packed()), *const dout = packed.take(products.packed()),
                    *const columns_of_queries = packed.take(products.packed()),
                    *const columns_of_dout = packed.take(products.packed()),
                    *const tile_of = packed.take(products.packed_tile());
  float *const dqueries = sums.take(kSide * width), *const wide = sums.take(2 * D);
  alignas(64) float scores[kSide * kSide], gradients[kSide * kSide];
  alignas(64) float lse[kSide] = {}, delta[kSide] = {};
  alignas(64) T rounded[kSide * kSide];
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
    const Diagonal diagonal(j, of.position);
    products.scores(scores, head.keys(tile), queries, count, lanes, diagonal);
    scale_rows(scores, count * kSide, scale);
    mask_tile(scores, mask, of.position, j, count, rows);
    products.scores(gradients, head.values(tile), dout, count, lanes, diagonal);
    softmax_gradient_tile(scores, gradients, lse, delta, scale, count, lanes, mask.mask.cap);
    products.of_keys(head.dvalues(tile), products.as_factor(rounded, scores, count), tile_of, columns_of_dout,
                     count, rows, diagonal);
    const T* const dscores = products.as_factor(rounded, gradients, count);
    products.of_keys(head.dkeys(tile), dscores, tile_of, columns_of_queries, count, rows, diagonal);
    products.pack_queries(tile_of, dscores, count, rows);
    products.of_queries(dqueries, tile_of, head.columns_of_keys(tile), rows, j > begin, diagonal);
  }
  write_rows(of.dqueries, {dqueries, width}, rows, D);
}

}  // namespace

template <class T>
bool packs_attention(std::int64_t tokens) {
  constexpr std::int64_t kLeast = 32;  // below, tiles are mostly padding
  const auto* const kernels = product_kernels<T>();
  return kernels && kernels->for_attention && kSide % kernels->rows == 0 && kSide % kernels->columns == 0 &&
         tokens >= kLeast;
}

template <class T>
void packed_attention_forward(T* out, float* lse, const T* qkv, AttentionShape s, const T* sinks) {
  const PackedHeads<const T> packed{qkv, s};
  const std::int64_t group = s.H / s.G;
  each_query_tile(s, tiles_together(s) * kSide,
                  [&](std::int64_t b, std::int64_t h, std::int64_t first, std::int64_t rows) {
                    HeadMask mask = mask_of_head(s, h);
                    const float sink = sinks ? cuda::to_float(sinks[h]) : 0.0f;
                    mask.sink = sinks ? &sink : nullptr;
                    attend(from_row(output_rows(out, s, b, h), first),
                           lse ? lse + (b * s.H + h) * s.T + first : nullptr,
                           from_row(packed.queries(b, h), first), DirectTiles<T>{packed.keys(b, h / group)},
                           DirectTiles<T>{packed.values(b, h / group)}, mask, first, rows, s.D);
                  });
}

void packed_attention_cached(float* out, const float* qkv, const KvCache& cache,
                             const std::int32_t* positions, AttentionShape s) {
  const PackedHeads<const float> packed{qkv, s};
  const std::int64_t group = s.H / s.G;
  each_query_tile(s, tiles_together(s) * kSide,
                  [&](std::int64_t b, std::int64_t h, std::int64_t first, std::int64_t rows) {
                    attend(from_row(output_rows(out, s, b, h), first), nullptr,
                           from_row(packed.queries(b, h), first),
                           CachedTiles(cache, CachedTiles::kKeys, s, b, h / group),
                           CachedTiles(cache, CachedTiles::kValues, s, b, h / group), mask_of_head(s, h),
                           positions[b] + first, rows, s.D);
                  });
}

template <class T>
void packed_attention_backward(T* dqkv, const T* dout, const T* qkv, const T* out, const float* lse,
                               AttentionShape s) {
  const PackedHeads<const T> packed_heads{qkv, s};
  const PackedHeads<T> gradients{dqkv, s};
  const std::int64_t group = s.H / s.G;
  // A task owns a key/value head and the query heads that read it.
  parallel_tasks(s.B * s.G, [&](std::int64_t task) {
    const std::int64_t b = task / s.G, g = task % s.G;
    const TileProducts<T> products(s.D);
    Parts<PackedWord> packed(scratch().packed, KeyHead<T>::packed_size(products, s.T) +
                                                   4 * products.packed() + products.packed_tile());
    Parts<float> sums(scratch().sums,
                      KeyHead<T>::sums_size(products, s.T) + kSide * products.width() + 2 * s.D);
    const KeyHead<T> head(products, packed_heads.keys(b, g), packed_heads.values(b, g), s.T, packed, sums);
    for (std::int64_t h = g * group; h < (g + 1) * group; ++h)
      for (std::int64_t i = 0; i < s.T; i += kSide)
        add_gradients<T>(head,
                         {from_row(packed_heads.queries(b, h), i), from_row(output_rows(dout, s, b, h), i),
                          from_row(output_rows(out, s, b, h), i), from_row(gradients.queries(b, h), i),
                          lse + (b * s.H + h) * s.T + i, i, std::min(kSide, s.T - i)},
                         mask_of_head(s, h), s.D, products, packed, sums);
    write_rows(gradients.keys(b, g), {head.dkeys(0), products.width()}, s.T, s.D);
    write_rows(gradients.values(b, g), {head.dvalues(0), products.width()}, s.T, s.D);
  });
}

template bool packs_attention<bf16>(std::int64_t);
template bool packs_attention<float>(std::int64_t);
template void packed_attention_forward(bf16*, float*, const bf16*, AttentionShape, const bf16*);
template void packed_attention_forward(float*, float*, const float*, AttentionShape, const float*);
template void packed_attention_backward(bf16*, const bf16*, const bf16*, const bf16*, const float*,
                                        AttentionShape);
template void packed_attention_backward(float*, const float*, const float*, const float*, const float*,
                                        AttentionShape);

}  // namespace kernels::cpu
