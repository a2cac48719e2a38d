// Where the codes and the numbers of a tile of a quantised weight lie (quantised.h): for all that reads or
// writes them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cuda/types.h"
#include "kernels/quantised.h"

namespace kernels::cpu {

// The codes of 32 columns are taken in fours of columns: here is the first column of the f-th.
inline constexpr int kFours = 8;
constexpr int column_of_four(int code_bits, int f) {
  return code_bits == 8 ? 4 * f : 4 * (f / 2) + 16 * (f % 2);
}

// Some bits of each code of 32 columns of a tile.
struct CodePlane {
  int bits, first;  // the first of them is this bit of the code; 0 bits: there is no such plane

  // A line is 4 bytes for each of the tile's rows. A plane has as many lines as bits, so that those before it
  // are as many as the bits below its own.
  constexpr int line(int f) const { return first + f * bits / 8; }
  constexpr int shift(int f) const { return f * bits % 8; }
  constexpr int mask() const { return (1 << bits) - 1; }
  constexpr int mask_in_code() const { return mask() << first; }
};
constexpr CodePlane low_plane(int code_bits) {
  return {code_bits == 8 ? 8 : code_bits >= 4 ? 4 : 2, 0};
}
constexpr CodePlane high_plane(int code_bits) {
  const int below = low_plane(code_bits).bits;
  return {code_bits - below, below};
}

// In bytes from a tile's numbers on: where those of a group of columns begin, and the factors of a block.
constexpr std::int64_t block_at(QuantisedFormat format, std::int64_t rows, std::int64_t block) {
  return format.number_bytes(rows, block * QuantisedFormat::kBlock);
}
constexpr std::int64_t group_at(QuantisedFormat format, std::int64_t rows, std::int64_t group) {
  constexpr std::int64_t kHalf = sizeof(std::uint16_t);
  const std::int64_t numbers = rows * format.numbers_of_group();
  if (!format.blocks) return numbers * group * kHalf;
  const std::int64_t block = group * format.group / QuantisedFormat::kBlock;
  return block_at(format, rows, block) + numbers * (kHalf + group - block * format.groups_of_block());
}

// One row of a tile: its codes and its numbers.
class TileRow {
 public:
  // Row `lane` of a tile of `rows`.
  TileRow(QuantisedWeight tile, std::int64_t rows, std::int64_t lane)
      : tile_(tile), rows_(rows), lane_(lane) {}

  struct Numbers {
    float scale, minimum;
  };
  Numbers numbers(std::int64_t group) const {
    if (!tile_.format.blocks) {
      const float scale = half_at(group_place(group), 0);
      return {scale, tile_.format.minima ? half_at(group_place(group), 1) : tile_.format.minimum_of(scale)};
    }
    const std::int64_t block = group * tile_.format.group / QuantisedFormat::kBlock;
    const float scale =
        half_at(block_place(block), 0) * static_cast<float>(static_cast<std::int8_t>(*integer(group, 0)));
    if (!tile_.format.minima) return {scale, tile_.format.minimum_of(scale)};
    return {scale, -half_at(block_place(block), 1) *
                       static_cast<float>(static_cast<std::uint8_t>(*integer(group, 1)))};
  }

  // The numbers of a group in fp16, for formats without blocks.
  void write_numbers(std::int64_t group, Numbers to) const {
    write_half(group_place(group), 0, to.scale);
    if (tile_.format.minima) write_half(group_place(group), 1, to.minimum);
  }
  // The factors of a block and the integers of a group, for formats in blocks.
  void write_factors(std::int64_t block, Numbers to) const {
    write_half(block_place(block), 0, to.scale);
    if (tile_.format.minima) write_half(block_place(block), 1, to.minimum);
  }
  void write_integers(std::int64_t group, int scale, int minimum) const {
    *integer(group, 0) = static_cast<std::byte>(scale);
    if (tile_.format.minima) *integer(group, 1) = static_cast<std::byte>(minimum);
  }

  // Codes of 32 columns, one a byte.
  void read_codes(std::uint8_t* codes, std::int64_t chunk) const {
    const int bits = tile_.format.bits;
    const std::byte* const lines = chunk_place(chunk);
    const std::int64_t line_bytes = 4 * rows_;
    for (const CodePlane plane : {low_plane(bits), high_plane(bits)})
      for (int f = 0; plane.bits > 0 && f < kFours; ++f) {
        // Four codes at a time: what a shift brings in from the byte beside it, the mask takes away.
        std::uint8_t* const to = codes + column_of_four(bits, f);
        std::uint32_t four = 0, before = 0;
        std::memcpy(&four, lines + plane.line(f) * line_bytes, sizeof four);
        if (plane.first > 0) std::memcpy(&before, to, sizeof before);
        constexpr std::uint32_t kEachByte = 0x01010101;
        const auto mask = kEachByte * static_cast<std::uint32_t>(plane.mask());
        four = before | (four >> plane.shift(f) & mask) << plane.first;
        std::memcpy(to, &four, sizeof four);
      }
  }
  void write_codes(const std::uint8_t* codes, std::int64_t chunk) const {
    const int bits = tile_.format.bits;
    std::byte* const lines = chunk_place(chunk);
    const std::int64_t line_bytes = 4 * rows_;
    for (const CodePlane plane : {low_plane(bits), high_plane(bits)})
      for (int f = 0; plane.bits > 0 && f < kFours; ++f) {
        std::byte* const to = lines + plane.line(f) * line_bytes;
        const std::uint8_t* const from = codes + column_of_four(bits, f);
        for (int i = 0; i < 4; ++i) {
          const int own = (from[i] >> plane.first & plane.mask()) << plane.shift(f);
          to[i] = static_cast<std::byte>((plane.shift(f) > 0 ? static_cast<int>(to[i]) : 0) | own);
        }
      }
  }

 private:
  // The row's 4 bytes in the first line of 32 columns.
  std::byte* chunk_place(std::int64_t chunk) const {
    return tile_.codes + tile_.format.code_bytes(rows_, chunk * QuantisedFormat::kColumns) + lane_ * 4;
  }
  std::byte* group_place(std::int64_t group) const {
    return tile_.numbers + group_at(tile_.format, rows_, group);
  }
  std::byte* block_place(std::int64_t block) const {
    return tile_.numbers + block_at(tile_.format, rows_, block);
  }
  std::byte* integer(std::int64_t group, int which) const {
    return group_place(group) + which * rows_ + lane_;
  }
  // The row's number among the first or the second `rows` in fp16 at `place`.
  std::byte* half(std::byte* place, int which) const {
    return place + (which * rows_ + lane_) * static_cast<std::int64_t>(sizeof(std::uint16_t));
  }
  float half_at(std::byte* place, int which) const {
    cuda::f16 number;
    std::memcpy(&number.bits, half(place, which), sizeof number.bits);
    return cuda::to_float(number);
  }
  void write_half(std::byte* place, int which, float value) const {
    const cuda::f16 number = cuda::to_f16(value);
    std::memcpy(half(place, which), &number.bits, sizeof number.bits);
  }

  QuantisedWeight tile_;
  std::int64_t rows_, lane_;
};

}  // namespace kernels::cpu
