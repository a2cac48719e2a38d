// The maps and schedules of the tensor-core kernels, exhaustively.
#include <algorithm>
#include <bitset>
#include <set>
#include <utility>
#include <vector>

#include "kernels/cuda/attention_arguments.h"
#include "kernels/cuda/attention_schedule.h"
#include "kernels/cuda/cached_tile.h"
#include "kernels/cuda/hopper/warpgroup.h"
#include "kernels/cuda/shared_tile.h"
#include "tests/support/catch.h"

using namespace kernels::cuda;

namespace {

constexpr int kBanks = 32, kBankBytes = 4;

// Eight rows of 16 bytes that ldmatrix reads at a time touch each bank once.
template <int Columns>
bool reads_without_conflicts(Place (*place_of)(int)) {
  for (int matrix = 0; matrix < 4; ++matrix) {
    std::bitset<kBanks> used;
    for (int row = 0; row < 8; ++row) {
      const Place place = place_of(matrix * 8 + row);
      const int byte = SharedTile<Columns>::offset(place.row, place.column) * 2;
      if (byte % 16 != 0) return false;
      for (int word = 0; word < 4; ++word) {
        const auto bank = static_cast<std::size_t>((byte / kBankBytes + word) % kBanks);
        if (used.test(bank)) return false;
        used.set(bank);
      }
    }
  }
  return true;
}

template <int Columns>
bool elements_are_distinct() {
  std::set<int> offsets;
  for (int row = 0; row < 64; ++row)
    for (int column = 0; column < Columns; ++column) offsets.insert(SharedTile<Columns>::offset(row, column));
  return offsets.size() == 64 * Columns && *offsets.rbegin() < SharedTile<Columns>::elements(64);
}

template <int Columns>
void check_tile() {
  CAPTURE(Columns);
  CHECK(elements_are_distinct<Columns>());
  CHECK(reads_without_conflicts<Columns>(place_by_rows));
  CHECK(reads_without_conflicts<Columns>(place_by_columns));
}

}  // namespace

TEST_CASE("every element of a tile has its own place, and no matrix load has a bank conflict") {
  check_tile<16>();
  check_tile<64>();
  check_tile<80>();
  check_tile<96>();
  check_tile<128>();
}

TEST_CASE(
    "a swizzled tile has a place for every element, eight rows at a column lie in all banks, and units stay "
    "whole") {
  constexpr int kRows = 64;
  std::set<int> offsets;
  for (int row = 0; row < kRows; ++row)
    for (int column = 0; column < SwizzledTile::kColumns; ++column) {
      const int offset = SwizzledTile::offset(row, column);
      offsets.insert(offset);
      // 128-byte swizzle: bits 4 to 6 of a byte's address are exchanged by bits 7 to 9.
      const int byte = 2 * (row * SwizzledTile::kColumns + column);
      CHECK(2 * offset == (byte ^ ((byte >> 7 & 7) << 4)));
    }
  CHECK(offsets.size() == static_cast<std::size_t>(SwizzledTile::elements(kRows)));
  CHECK(*offsets.rbegin() == SwizzledTile::elements(kRows) - 1);
  for (int first = 0; first < kRows; first += 8)
    for (int column = 0; column < SwizzledTile::kColumns; column += 8) {
      std::bitset<kBanks> used;
      for (int row = first; row < first + 8; ++row)
        for (int word = 0; word < 4; ++word)
          used.set(static_cast<std::size_t>(2 * SwizzledTile::offset(row, column) / kBankBytes + word) %
                   kBanks);
      CHECK(used.all());
    }
}

TEST_CASE("the 32 lanes point at all rows of four matrices, and hold all elements of an accumulator") {
  for (auto* const place_of : {place_by_rows, place_by_columns}) {
    std::set<std::pair<int, int>> rows;
    for (int lane = 0; lane < 32; ++lane) rows.insert({place_of(lane).row, place_of(lane).column});
    CHECK(rows.size() == 32);
    for (const auto& [row, column] : rows) CHECK((row < 16 && (column == 0 || column == 8)));
  }
  std::set<std::pair<int, int>> elements;
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      const Place place = accumulator_place(lane, i);
      CHECK((place.row >= 0 && place.row < 16 && place.column >= 0 && place.column < 8));
      elements.insert({place.row, place.column});
    }
  CHECK(elements.size() == 16 * 8);
}

TEST_CASE(
    "a tile of queries goes through every key that any of its queries sees, and masks exactly where one does "
    "not") {
  for (const bool causal : {true, false})
    for (const int keys : {1, 63, 64, 65, 128, 200})
      for (const int begin : {0, 1, 64, 100})
        for (const int rows : {1, 16, 64})
          for (int first = 0; begin + first < keys; first += rows) {
            const int count = std::min(rows, keys - begin - first);
            const QueryTile tile{first, count, begin, keys, causal};
            const int all = (keys + kKeyTile - 1) / kKeyTile;
            REQUIRE(tile.key_tiles() <= all);
            for (int j = 0; j < all; ++j) {
              int seen = 0;
              for (int query = first; query < first + count; ++query)
                for (int key = j * kKeyTile; key < (j + 1) * kKeyTile; ++key) {
                  const bool sees = key < keys && (!causal || key <= begin + query);
                  REQUIRE(tile.sees(query, key) == sees);
                  seen += sees;
                }
              REQUIRE((j < tile.key_tiles()) == (seen > 0));
              if (seen > 0) REQUIRE(tile.needs_mask(j) == (seen < count * kKeyTile));
            }
          }
}

TEST_CASE("backward by keys starts at the first tile of queries that sees one of them") {
  constexpr int kQueries = 64;
  for (int first_key = 0; first_key < 300; first_key += kKeyTile) {
    const int tile = first_query_tile(first_key, kQueries, true);
    CHECK((tile + 1) * kQueries > first_key);  // its last query sees the first key
    CHECK(tile * kQueries <= first_key);       // and the tile before sees none
    CHECK(first_query_tile(first_key, kQueries, false) == 0);
  }
}

TEST_CASE("parts of a split cover every tile once, and differ by at most one tile") {
  for (int tiles = 0; tiles < 40; ++tiles)
    for (int splits = 1; splits < 50; ++splits) {
      int next = 0;
      for (int split = 0; split < splits; ++split) {
        const Part part = part_of(tiles, split, splits);
        REQUIRE(part.begin == next);
        REQUIRE(part.end - part.begin >= tiles / splits);
        REQUIRE(part.end - part.begin <= tiles / splits + 1);
        next = part.end;
      }
      REQUIRE(next == tiles);
    }
}

TEST_CASE("division by a number known before is division") {
  for (const std::uint32_t divisor : {1u, 2u, 3u, 7u, 16u, 48u, 100u, 256u, 1000003u, 0x7fffffffu}) {
    const Divisor fast(divisor);
    std::uint32_t x = 0;
    for (int i = 0; i < 40000; ++i, x = x * 1664525u + 1013904223u) {
      const std::uint32_t dividend = x & 0x7fffffffu;
      REQUIRE(fast.quotient(dividend) == dividend / divisor);
      // On both sides of a multiple the quotient changes, if anywhere.
      const std::uint32_t multiple = dividend / divisor * divisor;
      REQUIRE(fast.quotient(multiple) == multiple / divisor);
      if (multiple > 0) REQUIRE(fast.quotient(multiple - 1) == (multiple - 1) / divisor);
    }
    REQUIRE(fast.quotient(0x7fffffffu) == 0x7fffffffu / divisor);
  }
}

namespace {

template <class T>
void check_widening() {
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    if ((byte & 0x7fu) == 0x7fu) continue;  // NaN, which keys and values are not
    const std::uint32_t others = 0x38b87e05u;
    for (int place = 0; place < 4; ++place) {
      const std::uint32_t word = (others & ~(0xffu << 8 * place)) | byte << 8 * place;
      const auto half = [](std::uint32_t pair, int which) {
        return to_float(T{static_cast<std::uint16_t>(pair >> 16 * which)});
      };
      const auto of_place = [&](int p) { return to_float(e4m3{static_cast<std::uint8_t>(word >> 8 * p)}); };
      for (int which = 0; which < 2; ++which) {
        REQUIRE(half(widen_even<T>(word), which) == of_place(2 * which));
        REQUIRE(half(widen_odd<T>(word), which) == of_place(2 * which + 1));
      }
      std::uint32_t first = 0, second = 0;
      widen_in_order<T>(first, second, word);
      for (int p = 0; p < 4; ++p) REQUIRE(half(p < 2 ? first : second, p % 2) == of_place(p));
    }
  }
}

}  // namespace

TEST_CASE("e4m3 widens to bf16 and to fp16 exactly, in every place of a word") {
  check_widening<bf16>();
  check_widening<f16>();
}

namespace {

// A run of e4m3: places, and the banks that a lane's reads of keys and of values fall into.
template <int D>
void check_cached_tile() {
  CAPTURE(D);
  using Tile = CachedTile<D, e4m3>;
  std::set<int> offsets, columns;
  for (int row = 0; row < kCacheRun; ++row)
    for (int column = 0; column < D; ++column) offsets.insert(Tile::offset(row, column));
  CHECK(offsets.size() == kCacheRun * D);
  CHECK(*offsets.rbegin() < Tile::kElements);
  CHECK(Tile::kElements % 16 == 0);
  for (int k = 0; k < D; k += 16) {
    std::bitset<kBanks> of_keys;
    for (int lane = 0; lane < 32; ++lane) {
      const int byte = Tile::offset(lane / 4, k + lane % 4 * 4);
      REQUIRE(byte % 4 == 0);
      of_keys.set(static_cast<std::size_t>(byte / kBankBytes % kBanks));
    }
    CHECK(of_keys.all());
    std::bitset<kBanks> of_values;
    for (int row = 0; row < 8; ++row) {
      const int byte = Tile::offset(row, k);
      REQUIRE(byte % 16 == 0);
      for (int word = 0; word < 4; ++word)
        of_values.set(static_cast<std::size_t>((byte / kBankBytes + word) % kBanks));
    }
    CHECK(of_values.all());
  }
  for (int n = 0; n < D / 8; ++n)
    for (int column = 0; column < 8; ++column) columns.insert(Tile::column_of(n, column));
  CHECK(columns.size() == D);
  CHECK(*columns.begin() == 0);
  CHECK(*columns.rbegin() == D - 1);
}

}  // namespace

TEST_CASE("a run of fp8 keys or values has a place for each, no bank conflicts, and gives all columns") {
  check_cached_tile<64>();
  check_cached_tile<80>();
  check_cached_tile<96>();
  check_cached_tile<128>();
}

TEST_CASE("a token's key lies in the block that the table says, and a run of them behind each other") {
  constexpr std::int64_t kGroups = 3, kSize = 8, kBlocks = 5;
  const kernels::AttentionShape s{2, 1, kGroups, kGroups, kSize};
  const std::vector<std::int32_t> table = {7, 2, 9, 0, 4, 1, 3, 5, 8, 6};
  for (const std::int64_t block_size : {16, 48, 64}) {
    std::vector<float> keys(static_cast<std::size_t>(10 * kGroups * block_size * kSize)), values(keys.size());
    const KvCache paged{.k = {keys.data(), Type::f32},
                        .v = {values.data(), Type::f32},
                        .block_size = block_size,
                        .block_table = table.data(),
                        .blocks_per_sequence = kBlocks};
    CHECK(paged.capacity() == kBlocks * block_size);
    const auto heads = cached_keys<float>(paged, s);
    for (int b = 0; b < 2; ++b)
      for (int group = 0; group < kGroups; ++group) {
        const auto rows = heads.keys_of(b, group), value_rows = heads.values_of(b, group);
        for (int t = 0; t < paged.capacity(); ++t) {
          const std::int64_t block = table[static_cast<std::size_t>(b * kBlocks + t / block_size)];
          const std::int64_t at = ((block * kGroups + group) * block_size + t % block_size) * kSize;
          REQUIRE(rows.at(t) == keys.data() + at);
          REQUIRE(value_rows.at(t) == values.data() + at);
          if (t % kCacheRun > 0) REQUIRE(rows.at(t) == rows.at(t - 1) + rows.row);
        }
      }
  }
}

TEST_CASE(
    "the parts of a query's gradient are one a tile of keys that it sees, and none is awaited in vain") {
  constexpr int kKeys = 128;
  for (const bool causal : {true, false})
    for (const int queries : {64, 128})
      for (const int T : {1, 64, 65, 128, 129, 500, 1024}) {
        const int key_tiles = (T + kKeys - 1) / kKeys, query_tiles = (T + queries - 1) / queries;
        std::vector<int> parts(static_cast<std::size_t>(query_tiles), 0);
        // Blocks begin with the last tile of keys; each adds its parts in the order of the queries.
        for (int key_tile = key_tiles - 1; key_tile >= 0; --key_tile)
          for (int tile = first_query_tile(key_tile * kKeys, queries, causal); tile < query_tiles; ++tile) {
            int& added = parts[static_cast<std::size_t>(tile)];
            REQUIRE(last_key_tile(tile, queries, kKeys, key_tiles, causal) - key_tile == added);
            ++added;
          }
        for (int tile = 0; tile < query_tiles; ++tile) {
          const int last_query = std::min(T, (tile + 1) * queries) - 1;
          const int seen = causal ? last_query / kKeys + 1 : key_tiles;
          CHECK(parts[static_cast<std::size_t>(tile)] == seen);
        }
      }
}
