// Products of up to kNarrowRows rows with weights in 8 or 4 bits, by tensor cores: every weight is read once,
// from memory into registers, where it becomes bf16, which holds each of the formats' values exactly, and is
// multiplied with fp32 sums. The weights are the matrix instruction's left factor, so that 16 of their rows
// meet 8 rows of the input. Which column of a slice an element of the fragments stands for is free as long as
// both factors agree: a lane takes 16 bytes of weights, one after the other in memory, and the same columns
// of the input. A block's warps take slices of the columns in turn, and add up in the end.
#include "kernels/cuda/early_start.h"
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

// Bytes of two words by their numbers, as PTX's prmt.
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

// (x & mask) | base, which compilers make two instructions of where both are constants.
CUDA_DEVICE std::uint32_t masked_or(std::uint32_t x, std::uint32_t mask, std::uint32_t base) {
#ifdef __CUDA_ARCH__
  std::uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(x), "r"(mask), "r"(base));
  return result;
#else
  return (x & mask) | base;
#endif
}

// The sums of two pairs of bf16.
CUDA_DEVICE std::uint32_t add_pairs(std::uint32_t a, std::uint32_t b) {
#ifdef __CUDA_ARCH__
  std::uint32_t sums;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sums) : "r"(a), "r"(0x3f803f80u), "r"(b));
  return sums;
#else
  return pack_pair<bf16>(float_of(a << 16) + float_of(b << 16),
                         float_of(a & 0xffff0000u) + float_of(b & 0xffff0000u));
#endif
}

// Two e4m3 numbers, the lower half of `pair`, as bf16, by the instruction that has them in f16.
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

// A word's weights as pairs of bf16, before their scale. int4: weights i and i + 4 are a pair; the others:
// neighbours.
template <WeightFormat Format>
CUDA_DEVICE void widen(std::uint32_t (&pairs)[kInWord<Format> / 2], std::uint32_t word) {
  if constexpr (Format == WeightFormat::int4) {
    // 128 + a nibble, in bf16, whose last place is then 1.
#pragma unroll
    for (int i = 0; i < 4; ++i)
      pairs[i] = add_pairs(masked_or(word >> 4 * i, 0x000f000fu, 0x43004300u), 0xc308c308u);  // -136
  } else if constexpr (Format == WeightFormat::int8) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      // 128 + the lower seven bits, less 128, or 256 where the sign is set: that bit is the exponent's
      // lowest.
      const std::uint32_t bytes = pick_bytes(word, 0, i == 0 ? 0x4140u : 0x4342u);
      pairs[i] =
          add_pairs(masked_or(bytes, 0x007f007fu, 0x43004300u), masked_or(bytes, 0x00800080u, 0xc300c300u));
    }
  } else {
    pairs[0] = fp8_pair(word);
    pairs[1] = fp8_pair(word >> 16);
  }
}

// The input's columns that go with widen()'s pairs of a word.
template <WeightFormat Format>
CUDA_DEVICE void pair_inputs(std::uint32_t (&pairs)[kInWord<Format> / 2], const bf16* columns) {
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

struct Arguments {
  const bf16* inp;
  Weights weights;
  const bf16 *bias, *addend;
  std::int64_t M, N, K;
};

// Tiles of weights, 16 rows each, and of the input, 8 rows each, that a block takes. Groups' scales are of
// sums of their own.
template <WeightFormat Format, int Inputs>
inline constexpr int kTiles = Format == WeightFormat::int4&& Inputs > 4 ? 1 : 2;

// Grid: a block kTiles * 16 rows of the weights. Shared memory: (warps, kTiles * 16, Inputs * 8) sums.
template <class Out, WeightFormat Format, int Inputs>
CUDA_KERNEL(kThreads)
gemv_tensor_cores_kernel(Out* out, Arguments a) {
  constexpr int kOfBlock = kTiles<Format, Inputs>, kPairs = kInWord<Format> / 2;
  constexpr bool kGrouped = Format == WeightFormat::int4;
  static_assert(!kGrouped || kSlice<Format> == kInt4Group);
  const int lane = lane_index(), quad = lane / 4, column_of_lane = lane % 4 * 4 * kInWord<Format>;
  const int N = static_cast<int>(a.N), M = static_cast<int>(a.M);
  const int first_row = block_index().x * kOfBlock * kTileRows;
  const int slices = static_cast<int>(a.K / kSlice<Format>);
  // Rows beyond the last are read as the last, and not written.
  const auto row_of = [&](int tile, int half) {
    const int row = first_row + tile * kTileRows + half * 8 + quad;
    return row < N ? row : N - 1;
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

  float sums[kOfBlock][Inputs][4] = {};
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
    for (int word = 0; word < 4; ++word) {
      std::uint32_t weights[kOfBlock][2][kPairs];
#pragma unroll
      for (int tile = 0; tile < kOfBlock; ++tile)
#pragma unroll
        for (int half = 0; half < 2; ++half) widen<Format>(weights[tile][half], now[tile][half].words[word]);
#pragma unroll
      for (int m = 0; m < Inputs; ++m) {
        std::uint32_t x[kPairs];
        pair_inputs<Format>(x, a.inp + (inputs[m] + static_cast<std::uint32_t>(slice * kSlice<Format> +
                                                                               word * kInWord<Format>)));
#pragma unroll
        for (int tile = 0; tile < kOfBlock; ++tile)
#pragma unroll
          for (int pair = 0; pair < kPairs; pair += 2) {
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
  constexpr int kHeight = kOfBlock * kTileRows, kWidth = Inputs * kTileInputs;
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
  sync_block();
  // Neighbouring threads write neighbouring columns of the output, which are rows of the weights.
  for (int i = thread_index(); i < kHeight * kWidth; i += kThreads) {
    const int row = i % kHeight, m = i / kHeight, n = first_row + row;
    if (n >= N || m >= M) continue;
    float sum = 0;
    for (int warp = 0; warp < kWarps; ++warp) sum += partials[(warp * kHeight + row) * kWidth + m];
    if constexpr (!kGrouped) sum *= a.weights.scales[n];
    const std::int64_t at = m * a.N + n;
    if (a.bias != nullptr) sum += to_float(a.bias[n]);
    if (a.addend != nullptr) sum += to_float(a.addend[at]);
    out[at] = from_float<Out>(sum);
  }
}

template <class Out, WeightFormat Format, int Inputs>
void launch(const Context& context, Out* out, const Arguments& a) {
  constexpr int kHeight = kTiles<Format, Inputs> * kTileRows;
  start_early(context,
              {.grid = {static_cast<int>(ceil_div(a.N, kHeight)), 1, 1},
               .threads = kThreads,
               .shared_bytes = sizeof(float) * kWarps * kHeight * Inputs * kTileInputs},
              gemv_tensor_cores_kernel<Out, Format, Inputs>, out, a);
}

template <class Out, WeightFormat Format>
void with_inputs(const Context& context, Out* out, const Arguments& a) {
  if (a.M <= 8) return launch<Out, Format, 1>(context, out, a);
  if (a.M <= 16) return launch<Out, Format, 2>(context, out, a);
  if (a.M <= 32) return launch<Out, Format, 4>(context, out, a);
  launch<Out, Format, 8>(context, out, a);
}

}  // namespace

bool gemv_tensor_cores_takes(WeightFormat format, std::int64_t M, std::int64_t K) {
  return format != WeightFormat::bf16 && M <= kNarrowRows && K % (4 * 128 / bits_of_format(format)) == 0;
}

void gemv_tensor_cores(const Context& context, Tensor out, ConstTensor inp, const Weights& weights,
                       ConstTensor bias, ConstTensor addend, std::int64_t M, std::int64_t N, std::int64_t K) {
  const Arguments a{inp.as<bf16>(), weights, bias.as<bf16>(), addend.as<bf16>(), M, N, K};
  const auto in_type = [&]<class Out>(Out* to) {
    switch (weights.format) {
      case WeightFormat::int8:
        return with_inputs<Out, WeightFormat::int8>(context, to, a);
      case WeightFormat::fp8:
        return with_inputs<Out, WeightFormat::fp8>(context, to, a);
      case WeightFormat::int4:
        return with_inputs<Out, WeightFormat::int4>(context, to, a);
      case WeightFormat::bf16:
        throw CudaError("weights in bf16 are no weights in 8 or 4 bits");
    }
  };
  out.type == Type::f32 ? in_type(out.as<float>()) : in_type(out.as<bf16>());
}

}  // namespace kernels::cuda
