// Products of few rows by tensor cores. Every weight is read once, from memory into registers. Weights in 8
// or 4 bits become bf16 there, which holds each of the formats' values exactly; sums are fp32. The weights
// are the matrix instruction's left factor, so that 16 of their rows meet 8 rows of the input. An element of
// the fragments may stand for any column of a slice as long as both factors agree: a lane takes 16 bytes of
// weights that follow each other in memory, and the same columns of the input. A block's warps take slices of
// the columns in turn, and add up in the end.
//
// An RMSNorm is part of reading the input: gains multiply the input; the rows' factors, from squares summed
// beside the products, multiply the results. A gate and what it opens are a block's two tiles of weights.
#include "kernels/cuda/early_start.h"
#include "kernels/cuda/gelu.h"
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/shared_tile.h"

namespace kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kTileRows = 16;   // of weights, in a fragment
constexpr int kTileInputs = 8;  // rows of the input, in a fragment

struct alignas(16) Vector {
  std::uint32_t words[4];
};

// How many weights a word has, and how many columns a warp's lanes take at a time.
template <WeightFormat Format>
inline constexpr int kInWord = 32 / bits_of_format(Format);
template <WeightFormat Format>
inline constexpr int kSlice = 4 * 4 * kInWord<Format>;

// Bytes of two words, chosen by number, as PTX's prmt does it.
CUDA_DEVICE std::uint32_t pick_bytes(std::uint32_t low, std::uint32_t high, std::uint32_t which) {
#ifdef __CUDA_ARCH__
  return __byte_perm(low, high, which);
#else
  const std::uint64_t both = static_cast<std::uint64_t>(high) << 32 | low;
  std::uint32_t picked = 0;
  for (int i = 0; i < 4; ++i)
    picked |= static_cast<std::uint32_t>(both >> 8 * (which >> 4 * i & 7u) & 0xffu) << 8 * i;
  return picked;
#endif
}

// (x & mask) | base in one instruction; compilers make two where mask and base are constants.
CUDA_DEVICE std::uint32_t masked_or(std::uint32_t x, std::uint32_t mask, std::uint32_t base) {
#ifdef __CUDA_ARCH__
  std::uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(x), "r"(mask), "r"(base));
  return result;
#else
  return (x & mask) | base;
#endif
}

CUDA_DEVICE float first_of(std::uint32_t pair) {
  return float_of(pair << 16);
}
CUDA_DEVICE float second_of(std::uint32_t pair) {
  return float_of(pair & 0xffff0000u);
}

// The sums of two pairs of bf16, and their products.
CUDA_DEVICE std::uint32_t add_pairs(std::uint32_t a, std::uint32_t b) {
#ifdef __CUDA_ARCH__
  std::uint32_t sums;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sums) : "r"(a), "r"(0x3f803f80u), "r"(b));
  return sums;
#else
  return pack_pair<bf16>(first_of(a) + first_of(b), second_of(a) + second_of(b));
#endif
}
CUDA_DEVICE std::uint32_t multiply_pairs(std::uint32_t a, std::uint32_t b) {
#ifdef __CUDA_ARCH__
  std::uint32_t products;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(products) : "r"(a), "r"(b), "r"(0x80008000u));  // -0
  return products;
#else
  return pack_pair<bf16>(first_of(a) * first_of(b), second_of(a) * second_of(b));
#endif
}

// Two e4m3 numbers, from the lower half of `pair`, as bf16, by the instruction that turns them into f16.
CUDA_DEVICE std::uint32_t fp8_pair(std::uint32_t pair) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  std::uint32_t both;
  asm("{\n .reg .b32 halves;\n .reg .f16 low, high;\n .reg .f32 first, second;\n"
      " cvt.rn.f16x2.e4m3x2 halves, %1;\n mov.b32 {low, high}, halves;\n"
      " cvt.f32.f16 first, low;\n cvt.f32.f16 second, high;\n cvt.rn.bf16x2.f32 %0, second, first;\n}"
      : "=r"(both)
      : "h"(static_cast<std::uint16_t>(pair)));
  return both;
#else
  return pack_pair<bf16>(to_float(e4m3{static_cast<std::uint8_t>(pair & 0xffu)}),
                         to_float(e4m3{static_cast<std::uint8_t>(pair >> 8 & 0xffu)}));
#endif
}

// The fewest words that a matrix instruction takes, their number of bf16 pairs, and their columns.
template <WeightFormat Format>
inline constexpr int kWords = Format == WeightFormat::bf16 ? 2 : 1;
template <WeightFormat Format>
inline constexpr int kColumns = kWords<Format>* kInWord<Format>;
template <WeightFormat Format>
inline constexpr int kPairs = kColumns<Format> / 2;

// Weights as pairs of bf16, before their scale. In int4 weights i and i + 4 are a pair, else neighbours.
template <WeightFormat Format>
CUDA_DEVICE void widen(std::uint32_t (&pairs)[kPairs<Format>], const std::uint32_t* words) {
  const std::uint32_t word = words[0];
  if constexpr (Format == WeightFormat::bf16) {
    pairs[0] = word;
    pairs[1] = words[1];
  } else if constexpr (Format == WeightFormat::int4) {
    // 128 + a nibble, in bf16. At 128 the last place of bf16 is worth 1.
#pragma unroll
    for (int i = 0; i < 4; ++i)
      pairs[i] = add_pairs(masked_or(word >> 4 * i, 0x000f000fu, 0x43004300u), 0xc308c308u);  // -136
  } else if constexpr (Format == WeightFormat::int8) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      // 128 + the lower seven bits, less 128, or less 256 where the sign is set: the sign bit becomes the
      // lowest bit of the exponent.
      const std::uint32_t bytes = pick_bytes(word, 0, i == 0 ? 0x4140u : 0x4342u);
      pairs[i] =
          add_pairs(masked_or(bytes, 0x007f007fu, 0x43004300u), masked_or(bytes, 0x00800080u, 0xc300c300u));
    }
  } else {
    pairs[0] = fp8_pair(word);
    pairs[1] = fp8_pair(word >> 16);
  }
}

// Columns, of the input or of the gains, that go with widen()'s pairs.
template <WeightFormat Format>
CUDA_DEVICE void pair_inputs(std::uint32_t (&pairs)[kPairs<Format>], const bf16* columns) {
  if constexpr (Format == WeightFormat::int4) {
    const Vector x = *reinterpret_cast<const Vector*>(columns);
    pairs[0] = pick_bytes(x.words[0], x.words[2], 0x5410u);
    pairs[1] = pick_bytes(x.words[0], x.words[2], 0x7632u);
    pairs[2] = pick_bytes(x.words[1], x.words[3], 0x5410u);
    pairs[3] = pick_bytes(x.words[1], x.words[3], 0x7632u);
  } else {
    struct alignas(8) Half {
      std::uint32_t words[2];
    };
    const Half x = *reinterpret_cast<const Half*>(columns);
    pairs[0] = x.words[0];
    pairs[1] = x.words[1];
  }
}

using EndingKind = Ending::Kind;

struct Arguments {
  const bf16* inp;
  Weights weights;
  const bf16 *bias, *addend;
  std::int64_t M, N, K;
  // From InputNorm: an RMSNorm.
  const bf16* gain = nullptr;
  float eps = 0;
  bf16* normed = nullptr;
  // From Ending: GELU or a gate.
  EndingKind ending = EndingKind::none;
  bool gate = false;
  bf16* activated = nullptr;
};

// How many tiles of weights, 16 rows each, a block takes for `Inputs` tiles of 8 rows of the input. In int4
// each group has its own scale, so its products have sums of their own.
template <WeightFormat Format, int Inputs>
inline constexpr int kTiles = Format == WeightFormat::int4&& Inputs > 4 ? 1 : 2;

// The fewest blocks on a multiprocessor; 0: any number. Left alone, the compiler would spill a register to
// fit one block more, where this allows fewer; or lose a block for a few registers, where this asks for it.
template <WeightFormat Format, int Inputs, bool Norm>
inline constexpr int kBlocks = Format == WeightFormat::int8 && (Norm || Inputs == 1) ? 2
                               : Inputs > 1                                          ? 0
                               : Format == WeightFormat::fp8                         ? (Norm ? 1 : 4)
                               : Format == WeightFormat::bf16&& Norm                 ? 3
                                                                                     : 0;

// Grid: a block for each kTiles * 16 rows of the weights; with a gate, for 16 rows of the gate and 16 of what
// it opens. Shared memory: (warps, kTiles * 16, Inputs * 8) sums; with a norm also (warps, Inputs * 8) sums
// of squares, and as many factors as rows.
template <class Out, WeightFormat Format, int Inputs, bool Norm>
CUDA_KERNEL_RESIDENT(kThreads, (kBlocks<Format, Inputs, Norm>))
gemv_tensor_cores_kernel(Out* out, Arguments a) {
  constexpr int kOfBlock = kTiles<Format, Inputs>, kOfStep = kPairs<Format>;
  constexpr int kHeight = kOfBlock * kTileRows, kWidth = Inputs * kTileInputs;
  constexpr bool kGrouped = Format == WeightFormat::int4;
  static_assert(!kGrouped || kSlice<Format> == kInt4Group);
  const int lane = lane_index(), quad = lane / 4, column_of_lane = lane % 4 * 4 * kInWord<Format>;
  const int N = static_cast<int>(a.N), M = static_cast<int>(a.M);
  // Where the block's two tiles lie: one after the other, or half of all rows apart.
  const bool gate = kOfBlock == 2 && a.gate;
  const int first_row = block_index().x * (gate ? kTileRows : kHeight);
  const int rows_of_first = gate ? N / 2 : N, apart = gate ? N / 2 : kTileRows;
  const int slices = static_cast<int>(a.K / kSlice<Format>);
  const auto is_row = [&](int tile, int in_tile) {
    return first_row + in_tile + (gate ? 0 : tile * kTileRows) < rows_of_first;
  };
  const auto row_at = [&](int tile, int in_tile) { return first_row + in_tile + tile * apart; };
  // Rows beyond the last are read as if they were the last, and are not written.
  const auto row_of = [&](int tile, int half) {
    return is_row(tile, half * 8 + quad) ? row_at(tile, half * 8 + quad) : N - 1;
  };
  // Where a lane's weights and inputs begin: in vectors and elements, of which there are below 2^32.
  const Vector* const all_weights = static_cast<const Vector*>(a.weights.data);
  std::uint32_t rows[kOfBlock][2];
#pragma unroll
  for (int tile = 0; tile < kOfBlock; ++tile)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      rows[tile][half] =
          static_cast<std::uint32_t>((row_of(tile, half) * a.K + column_of_lane) / (4 * kInWord<Format>));
  std::uint32_t inputs[Inputs];
#pragma unroll
  for (int m = 0; m < Inputs; ++m) {
    const int row = m * kTileInputs + quad;
    inputs[m] = static_cast<std::uint32_t>((row < M ? row : M - 1) * a.K + column_of_lane);
  }
  constexpr int kVectorsASlice = 4;  // of a row
  Vector next[kOfBlock][2];
  const auto load_weights = [&](int slice) {
#pragma unroll
    for (int tile = 0; tile < kOfBlock; ++tile)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        next[tile][half] = all_weights[rows[tile][half] + static_cast<std::uint32_t>(slice * kVectorsASlice)];
  };

  float sums[kOfBlock][Inputs][4] = {}, squares[Norm ? Inputs : 1] = {};
  let_next_kernel_begin();
  if (warp_index() < slices) load_weights(warp_index());
  wait_for_kernel_before();
  for (int slice = warp_index(); slice < slices; slice += kWarps) {
    Vector now[kOfBlock][2];
#pragma unroll
    for (int tile = 0; tile < kOfBlock; ++tile)
#pragma unroll
      for (int half = 0; half < 2; ++half) now[tile][half] = next[tile][half];
    if (slice + kWarps < slices) load_weights(slice + kWarps);
    float of_group[kGrouped ? kOfBlock : 1][kGrouped ? Inputs : 1][4] = {};
#pragma unroll
    for (int word = 0; word < 4; word += kWords<Format>) {
      std::uint32_t weights[kOfBlock][2][kOfStep];
#pragma unroll
      for (int tile = 0; tile < kOfBlock; ++tile)
#pragma unroll
        for (int half = 0; half < 2; ++half) widen<Format>(weights[tile][half], now[tile][half].words + word);
      const auto of_slice = static_cast<std::uint32_t>(slice * kSlice<Format> + word * kInWord<Format>);
      std::uint32_t gains[kOfStep];
      if constexpr (Norm)
        pair_inputs<Format>(gains, a.gain + (of_slice + static_cast<std::uint32_t>(column_of_lane)));
#pragma unroll
      for (int m = 0; m < Inputs; ++m) {
        std::uint32_t x[kOfStep];
        pair_inputs<Format>(x, a.inp + (inputs[m] + of_slice));
        if constexpr (Norm) {
#pragma unroll
          for (int pair = 0; pair < kOfStep; ++pair) {
            squares[m] += first_of(x[pair]) * first_of(x[pair]) + second_of(x[pair]) * second_of(x[pair]);
            x[pair] = multiply_pairs(x[pair], gains[pair]);
          }
        }
#pragma unroll
        for (int tile = 0; tile < kOfBlock; ++tile)
#pragma unroll
          for (int pair = 0; pair < kOfStep; pair += 2) {
            const std::uint32_t fragment[4] = {weights[tile][0][pair], weights[tile][1][pair],
                                               weights[tile][0][pair + 1], weights[tile][1][pair + 1]};
            if constexpr (kGrouped)
              multiply_add<bf16>(of_group[tile][m], fragment, x[pair], x[pair + 1]);
            else
              multiply_add<bf16>(sums[tile][m], fragment, x[pair], x[pair + 1]);
          }
      }
    }
    if constexpr (kGrouped) {
#pragma unroll
      for (int tile = 0; tile < kOfBlock; ++tile)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float scale =
              a.weights.scales[static_cast<std::int64_t>(row_of(tile, half)) * slices + slice];
#pragma unroll
          for (int m = 0; m < Inputs; ++m)
#pragma unroll
            for (int i = 0; i < 2; ++i)
              sums[tile][m][2 * half + i] += scale * of_group[tile][m][2 * half + i];
        }
    }
  }

  float* const partials = shared_memory<float>();
  float* const warp_squares = partials + kWarps * kHeight * kWidth;
  float* const factors = warp_squares + kWarps * kWidth;
#pragma unroll
  for (int tile = 0; tile < kOfBlock; ++tile)
#pragma unroll
    for (int m = 0; m < Inputs; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Place place = accumulator_place(lane, i);
        partials[(warp_index() * kHeight + tile * kTileRows + place.row) * kWidth + m * kTileInputs +
                 place.column] = sums[tile][m][i];
      }
  if constexpr (Norm) {
#pragma unroll
    for (int m = 0; m < Inputs; ++m) {
      float sum = squares[m];  // of four lanes, which have a row's columns
      sum += shuffle_xor(sum, 1);
      sum += shuffle_xor(sum, 2);
      if (lane % 4 == 0) warp_squares[warp_index() * kWidth + m * kTileInputs + quad] = sum;
    }
  }
  sync_block();
  if constexpr (Norm) {
    if (thread_index() < kWidth) {
      float sum = 0;
      for (int warp = 0; warp < kWarps; ++warp) sum += warp_squares[warp * kWidth + thread_index()];
      factors[thread_index()] = 1 / sqrtf(sum / static_cast<float>(a.K) + a.eps);
    }
    sync_block();
    // Writes the normed input for whoever else reads it, a block for each row.
    const std::int64_t blocks = grid_size().x;
    for (std::int64_t row = block_index().x; a.normed != nullptr && row < M; row += blocks)
      for (std::int64_t k = thread_index() * 8; k < a.K; k += kThreads * 8) {
        float x[8], gain[8];
        load<8>(x, a.inp + row * a.K + k);
        load<8>(gain, a.gain + k);
#pragma unroll
        for (int i = 0; i < 8; ++i) x[i] *= factors[row] * gain[i];
        store<8>(a.normed + row * a.K + k, x);
      }
  }
  const auto result = [&](int tile, int in_tile, int m) {
    const int n = row_at(tile, in_tile);
    float sum = 0;
    for (int warp = 0; warp < kWarps; ++warp)
      sum += partials[(warp * kHeight + tile * kTileRows + in_tile) * kWidth + m];
    if constexpr (Norm) sum *= factors[m];
    if constexpr (Format == WeightFormat::int8 || Format == WeightFormat::fp8) sum *= a.weights.scales[n];
    if (a.bias != nullptr) sum += to_float(a.bias[n]);
    if (a.addend != nullptr) sum += to_float(a.addend[m * a.N + n]);
    return sum;
  };
  // Neighbouring threads write neighbouring columns of the output, which are rows of the weights.
  static_assert(kHeight == kTileRows || kHeight == 2 * kTileRows);
  const int height = gate ? kTileRows : kHeight, height_bits = height == kTileRows ? 4 : 5;
  for (int i = thread_index(); i < height * kWidth; i += kThreads) {
    const int row = i & (height - 1), m = i >> height_bits, tile = row / kTileRows, in_tile = row % kTileRows;
    if (!is_row(tile, in_tile) || m >= M) continue;
    const int n = row_at(tile, in_tile);
    const float x = result(tile, in_tile, m);
    out[m * a.N + n] = from_float<Out>(x);
    if (a.ending == EndingKind::gelu) a.activated[m * a.N + n] = from_float<bf16>(gelu(x));
    if (!gate) continue;
    const float opened = result(1, in_tile, m);
    out[m * a.N + n + apart] = from_float<Out>(opened);
    const float by = a.ending == EndingKind::gelu_gate ? gelu(x) : x / (1 + expf(-x));
    a.activated[m * (a.N / 2) + n] = from_float<bf16>(by * opened);
  }
}

template <class Out, WeightFormat Format, int Inputs, bool Norm>
void launch(const Context& context, Out* out, const Arguments& a) {
  constexpr int kHeight = kTiles<Format, Inputs> * kTileRows, kWidth = Inputs * kTileInputs;
  const std::int64_t blocks = a.gate ? ceil_div(a.N / 2, kTileRows) : ceil_div(a.N, kHeight);
  start_early(
      context,
      {.grid = {static_cast<int>(blocks), 1, 1},
       .threads = kThreads,
       .shared_bytes = sizeof(float) * (kWarps * kHeight * kWidth + (Norm ? (kWarps + 1) * kWidth : 0))},
      gemv_tensor_cores_kernel<Out, Format, Inputs, Norm>, out, a);
}

template <class Out, WeightFormat Format>
void with_inputs(const Context& context, Out* out, const Arguments& a) {
  if (a.M <= 8) return launch<Out, Format, 1, false>(context, out, a);
  if (a.M <= 16) return launch<Out, Format, 2, false>(context, out, a);
  if (a.M <= 32) return launch<Out, Format, 4, false>(context, out, a);
  if constexpr (Format != WeightFormat::bf16) launch<Out, Format, 8, false>(context, out, a);
}

template <WeightFormat Format>
void with_norm(const Context& context, bf16* out, const Arguments& a) {
  if (a.M <= 8) return launch<bf16, Format, 1, true>(context, out, a);
  if (a.M <= 16) return launch<bf16, Format, 2, true>(context, out, a);
  if constexpr (Format == WeightFormat::bf16) launch<bf16, Format, 4, true>(context, out, a);
}

}  // namespace

bool gemv_tensor_cores_takes(WeightFormat format, std::int64_t M, std::int64_t K) {
  return M <= (format == WeightFormat::bf16 ? kNarrowRowsOfBf16 : kNarrowRows) &&
         K % (4 * 128 / bits_of_format(format)) == 0;
}

bool gemv_tensor_cores_has_gate(WeightFormat format, std::int64_t M) {
  return format != WeightFormat::int4 || M <= 32;
}

bool gemv_tensor_cores_has_norm(WeightFormat format, std::int64_t M) {
  return format != WeightFormat::int4 && M <= (format == WeightFormat::bf16 ? kNarrowRowsOfBf16 : 16);
}

void gemv_tensor_cores(const Context& context, Tensor out, ConstTensor inp, const Weights& weights,
                       ConstTensor bias, ConstTensor addend, std::int64_t M, std::int64_t N, std::int64_t K,
                       const InputNorm& norm, const Ending& ending) {
  Arguments a{inp.as<bf16>(), weights, bias.as<bf16>(), addend.as<bf16>(), M, N, K};
  a.ending = ending.kind;
  a.gate = ending.kind == EndingKind::silu_gate || ending.kind == EndingKind::gelu_gate;
  a.activated = ending.activated.as<bf16>();
  if (norm.kind != InputNorm::Kind::none) {
    a.gain = norm.gain.as<bf16>();
    a.eps = norm.eps;
    a.normed = norm.normed.as<bf16>();
    switch (weights.format) {
      case WeightFormat::int8:
        return with_norm<WeightFormat::int8>(context, out.as<bf16>(), a);
      case WeightFormat::fp8:
        return with_norm<WeightFormat::fp8>(context, out.as<bf16>(), a);
      case WeightFormat::bf16:
        return with_norm<WeightFormat::bf16>(context, out.as<bf16>(), a);
      case WeightFormat::int4:
        throw CudaError("products of weights in int4 do not norm their input");
    }
  }
  const auto in_type = [&]<class Out>(Out* to) {
    switch (weights.format) {
      case WeightFormat::int8:
        return with_inputs<Out, WeightFormat::int8>(context, to, a);
      case WeightFormat::fp8:
        return with_inputs<Out, WeightFormat::fp8>(context, to, a);
      case WeightFormat::int4:
        return with_inputs<Out, WeightFormat::int4>(context, to, a);
      case WeightFormat::bf16:
        return with_inputs<Out, WeightFormat::bf16>(context, to, a);
    }
  };
  out.type == Type::f32 ? in_type(out.as<float>()) : in_type(out.as<bf16>());
}

}  // namespace kernels::cuda
