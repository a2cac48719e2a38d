// The maps and schedules of the tensor-core kernels, exhaustively.
#include <bitset>
#include <set>
#include <utility>

#include "kernels/cuda/attention_schedule.h"
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
