// A block has two rows of the weights, and all of its threads share their columns. So narrow matrices, too,
// have enough loads under way: 16 bytes each, and kAhead of them before the first is used. The first loads
// begin before the kernel that makes the input has ended.
//
// A norm is part of reading the input. RMSNorm's factor of the row multiplies the results; the row's squares
// are summed for it beside the products. Every block finds LayerNorm's statistics first. An operation that
// takes two results follows in the block whose rows of the weights make both.
#include "kernels/cuda/append.h"
#include "kernels/cuda/early_start.h"
#include "kernels/cuda/gelu.h"
#include "kernels/cuda/gemv.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;
constexpr int kRows = 2;  // of weights, a block
constexpr int kAhead = 4;

struct alignas(16) Vector {
  std::uint32_t words[4];
};

// How many weights 16 bytes hold, and which numbers they are before their scale.
template <WeightFormat Format>
inline constexpr int kWeights = 128 / bits_of_format(Format);

// 2^23 plus a byte of the word: an fp32 number whose last place is 1.
constexpr float kByteBase = 0x1p23f;
CUDA_DEVICE float based_byte(std::uint32_t word, int byte) {
  const std::uint32_t base = bits_of(kByteBase);
#ifdef __CUDA_ARCH__
  return float_of(__byte_perm(word, base, 0x7440u | static_cast<unsigned>(byte)));
#else
  return float_of(base | (word >> 8 * byte & 0xffu));
#endif
}

// The fp8 numbers of a word's lower or upper half.
CUDA_DEVICE void fp8_pair(float& first, float& second, std::uint32_t word, int half) {
  const std::uint32_t pair = word >> 16 * half;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  asm("{\n .reg .b32 halves;\n .reg .f16 low, high;\n cvt.rn.f16x2.e4m3x2 halves, %2;\n mov.b32 {low, high}, "
      "halves;\n"
      " cvt.f32.f16 %0, low;\n cvt.f32.f16 %1, high;\n}"
      : "=f"(first), "=f"(second)
      : "h"(static_cast<std::uint16_t>(pair)));
#else
  first = to_float(e4m3{static_cast<std::uint8_t>(pair & 0xffu)});
  second = to_float(e4m3{static_cast<std::uint8_t>(pair >> 8 & 0xffu)});
#endif
}

// Eight weights before their scale: number `part` of the eights in 16 bytes. Whole words become numbers at
// once, which takes two to three instructions a weight.
template <WeightFormat Format>
CUDA_DEVICE void eight_weights(float (&to)[8], const Vector& vector, int part) {
  if constexpr (Format == WeightFormat::bf16) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t word = vector.words[part * 4 + i];
      to[2 * i] = float_of(word << 16);
      to[2 * i + 1] = float_of(word & 0xffff0000u);
    }
  } else if constexpr (Format == WeightFormat::int4) {
    const std::uint32_t even = vector.words[part] & 0x0f0f0f0fu, odd = vector.words[part] >> 4 & 0x0f0f0f0fu;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      to[2 * i] = based_byte(even, i) - (kByteBase + kInt4Zero);
      to[2 * i + 1] = based_byte(odd, i) - (kByteBase + kInt4Zero);
    }
  } else if constexpr (Format == WeightFormat::int8) {
    constexpr std::uint32_t kSigns = 0x80808080u;  // flipped, -128 to 127 are 0 to 255
#pragma unroll
    for (int i = 0; i < 8; ++i)
      to[i] = based_byte(vector.words[part * 2 + i / 4] ^ kSigns, i % 4) - (kByteBase + 128);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) fp8_pair(to[2 * i], to[2 * i + 1], vector.words[part * 2 + i / 2], i % 2);
  }
}

using NormKind = InputNorm::Kind;
using EndingKind = Ending::Kind;

struct Arguments {
  const bf16* inp;
  Weights weights;
  const bf16 *bias, *addend;
  std::int64_t M, N, K;
  // Distance of the two rows of weights that a block takes: rows i and i + apart of each 2 `apart` rows.
  int apart = 1;
  // From InputNorm.
  const bf16 *gain = nullptr, *shift = nullptr;
  float eps = 0;
  bf16* normed = nullptr;
  // From Ending. `append` is set for a cache in bf16, `append_fp8` for one in e4m3.
  EndingKind ending = EndingKind::none;
  bf16* activated = nullptr;
  AppendArguments<bf16, bf16> append{};
  AppendArguments<bf16, e4m3> append_fp8{};
};

// The mean of a row, and 1 over its deviation.
struct Statistics {
  float mean = 0, rstd = 1;
};

// LayerNorm's statistics of the input, which lies in L1 or L2, by the block. partials: kWarps sums.
CUDA_DEVICE Statistics statistics_of(const Arguments& a, float* partials) {
  const auto sum_of = [&](const auto& term) {
    float sum = 0;
    for (std::int64_t k = thread_index() * 8; k < a.K; k += kThreads * 8) {
      float x[8];
      load<8>(x, a.inp + k);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum += term(x[i]);
    }
    return block_sum(sum, partials);
  };
  const float mean = sum_of([](float x) { return x; }) / static_cast<float>(a.K);
  const float squares = sum_of([=](float x) { return (x - mean) * (x - mean); });
  return {mean, 1 / sqrtf(squares / static_cast<float>(a.K) + a.eps)};
}

// x, the columns from k on, times the gains and plus the shift.
template <NormKind Norm>
CUDA_DEVICE void scale_columns(float (&x)[8], const Arguments& a, std::int64_t k) {
  float term[8];
  load<8>(term, a.gain + k);
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] *= term[i];
  if (Norm == NormKind::layer && a.shift != nullptr) {
    load<8>(term, a.shift + k);
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] += term[i];
  }
}

CUDA_DEVICE void normalise(float (&x)[8], Statistics s) {
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = (x[i] - s.mean) * s.rstd;
}

template <class K>
CUDA_DEVICE void rotate_and_append(const AppendArguments<bf16, K>& a, int first, float x, float y) {
  const int head = first / a.s.D, d = first % a.s.D, half = a.s.D / 2, position = a.positions[0];
  float low[1] = {x}, high[1] = {y};
  if (head < a.s.H + a.s.G) {
    rotate<bf16>(low, high, a.table + static_cast<std::int64_t>(position) * a.s.D + d, half);
  } else {  // as the cache would find them in qkv
    low[0] = to_float(from_float<bf16>(x));
    high[0] = to_float(from_float<bf16>(y));
  }
  store<1>(a.qkv + first, low);
  store<1>(a.qkv + first + half, high);
  if (head < a.s.H) return;
  store_cached(a, 0, head - a.s.H, position, d, low);
  store_cached(a, 0, head - a.s.H, position, d + half, high);
}

// One thread, which has both of a block's results, does this.
template <class Out>
CUDA_DEVICE void end_product(Out* out, const Arguments& a, int first, float x, float y) {
  const int second = first + a.apart;
  if (a.ending == EndingKind::rotate_append)
    return a.append_fp8.qkv != nullptr ? rotate_and_append(a.append_fp8, first, x, y)
                                       : rotate_and_append(a.append, first, x, y);
  out[first] = from_float<Out>(x);
  if (second < a.N) out[second] = from_float<Out>(y);
  if (a.ending == EndingKind::gelu) {
    a.activated[first] = from_float<bf16>(gelu(x));
    if (second < a.N) a.activated[second] = from_float<bf16>(gelu(y));
  } else {
    const float gate = a.ending == EndingKind::gelu_gate ? gelu(x) : x / (1 + expf(-x));
    a.activated[first] = from_float<bf16>(gate * y);
  }
}

// Shared memory: (warps, kRows, Rows) partial sums; with a norm one more for each warp.
template <class Out, WeightFormat Format, int Rows, NormKind Norm>
CUDA_KERNEL(kThreads)
gemv_kernel(Out* out, Arguments a) {
  static_assert(Norm == NormKind::none || Rows == 1);
  constexpr int kVectorWeights = kWeights<Format>;
  const int pair = block_index().x / a.apart;
  const std::int64_t first = block_index().x + pair * a.apart;
  float* const partials = shared_memory<float>();
  float* const warp_squares = partials + kWarps * kRows * Rows;
  const auto row_of = [&](int r) { return first + r * a.apart; };
  const std::int64_t vectors = a.K / kVectorWeights;  // of a row
  const Vector* const weights = static_cast<const Vector*>(a.weights.data);
  Vector ahead[kRows][kAhead];
  const auto load_weights = [&](std::int64_t begin) {
#pragma unroll
    for (int step = 0; step < kAhead; ++step)
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const std::int64_t v = begin + step * kThreads;
        if (v < vectors && row_of(r) < a.N) ahead[r][step] = weights[row_of(r) * vectors + v];
      }
  };
  float sums[kRows][Rows] = {}, squares = 0;
  let_next_kernel_begin();
  load_weights(thread_index());
  wait_for_kernel_before();
  Statistics statistics;
  if constexpr (Norm == NormKind::layer) statistics = statistics_of(a, warp_squares);
  for (std::int64_t begin = thread_index(); begin < vectors; begin += kThreads * kAhead) {
    if (begin != thread_index()) load_weights(begin);
#pragma unroll
    for (int step = 0; step < kAhead; ++step) {
      const std::int64_t v = begin + step * kThreads;
      if (v >= vectors) break;
      const std::int64_t column = v * kVectorWeights;
      float partial[Rows][kRows] = {};
#pragma unroll
      for (int part = 0; part < kVectorWeights / 8; ++part) {
        float weight[kRows][8];
#pragma unroll
        for (int r = 0; r < kRows; ++r) eight_weights<Format>(weight[r], ahead[r][step], part);
#pragma unroll
        for (int m = 0; m < Rows; ++m) {
          if (m >= a.M) break;
          float x[8];
          load<8>(x, a.inp + m * a.K + column + part * 8);
          if constexpr (Norm == NormKind::rms)
#pragma unroll
            for (int i = 0; i < 8; ++i) squares += x[i] * x[i];
          if constexpr (Norm == NormKind::layer) normalise(x, statistics);
          if constexpr (Norm != NormKind::none) scale_columns<Norm>(x, a, column + part * 8);
#pragma unroll
          for (int r = 0; r < kRows; ++r)
#pragma unroll
            for (int i = 0; i < 8; ++i) partial[m][r] += x[i] * weight[r][i];
        }
      }
#pragma unroll
      for (int m = 0; m < Rows; ++m) {
        if (m >= a.M) break;
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          if (row_of(r) >= a.N) break;
          if constexpr (Format == WeightFormat::int4)
            partial[m][r] *= a.weights.scales[row_of(r) * (a.K / kInt4Group) + column / kInt4Group];
          sums[r][m] += partial[m][r];
        }
      }
    }
  }

#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int m = 0; m < Rows; ++m) {
      const float sum = warp_sum(sums[r][m]);
      if (lane_index() == 0) partials[(warp_index() * kRows + r) * Rows + m] = sum;
    }
  if constexpr (Norm == NormKind::rms) {
    squares = warp_sum(squares);
    if (lane_index() == 0) warp_squares[warp_index()] = squares;
  }
  sync_block();
  if constexpr (Norm == NormKind::rms) {
    float sum = 0;
    for (int warp = 0; warp < kWarps; ++warp) sum += warp_squares[warp];
    statistics.rstd = 1 / sqrtf(sum / static_cast<float>(a.K) + a.eps);
  }
  if (Norm != NormKind::none && a.normed != nullptr && block_index().x == 0) {
    for (std::int64_t k = thread_index() * 8; k < a.K; k += kThreads * 8) {
      float x[8];
      load<8>(x, a.inp + k);
      normalise(x, statistics);
      scale_columns<Norm>(x, a, k);
      store<8>(a.normed + k, x);
    }
  }
  const auto result = [&](int r, int m) {
    float sum = 0;
    for (int warp = 0; warp < kWarps; ++warp) sum += partials[(warp * kRows + r) * Rows + m];
    if constexpr (Norm == NormKind::rms) sum *= statistics.rstd;
    if constexpr (Format == WeightFormat::int8 || Format == WeightFormat::fp8)
      sum *= a.weights.scales[row_of(r)];
    if (a.bias != nullptr) sum += to_float(a.bias[row_of(r)]);
    if (a.addend != nullptr) sum += to_float(a.addend[m * a.N + row_of(r)]);
    return sum;
  };
  if constexpr (Rows == 1) {
    if (a.ending != EndingKind::none) {
      if (thread_index() == 0)
        end_product(out, a, static_cast<int>(first), result(0, 0), row_of(1) < a.N ? result(1, 0) : 0.0f);
      return;
    }
  }
  const int r = thread_index() / Rows, m = thread_index() % Rows;
  if (r >= kRows || m >= a.M || row_of(r) >= a.N) return;
  out[m * a.N + row_of(r)] = from_float<Out>(result(r, m));
}

template <class Out, WeightFormat Format, int Rows, NormKind Norm>
void launch(const Context& context, Out* out, const Arguments& arguments) {
  start_early(context,
              {.grid = {static_cast<int>(ceil_div(arguments.N, kRows)), 1, 1},
               .threads = kThreads,
               .shared_bytes = kWarps * (kRows * Rows + (Norm == NormKind::none ? 0 : 1)) * sizeof(float)},
              gemv_kernel<Out, Format, Rows, Norm>, out, arguments);
}

// Each thread takes a vector of 16 bytes at a time.
template <class Out, WeightFormat Format>
CUDA_KERNEL(kThreads)
dequantise_kernel(Out* out, Weights weights, std::int64_t first, std::int64_t rows, std::int64_t K) {
  constexpr int kVectorWeights = kWeights<Format>;
  const std::int64_t vectors = K / kVectorWeights;  // of a row
  const Vector* const from = static_cast<const Vector*>(weights.data) + first * vectors;
  const std::int64_t stride = static_cast<std::int64_t>(grid_size().x) * block_size();
  for (std::int64_t v = static_cast<std::int64_t>(block_index().x) * block_size() + thread_index();
       v < rows * vectors; v += stride) {
    const std::int64_t row = first + v / vectors, column = v % vectors * kVectorWeights;
    float scale = 1;
    if constexpr (Format == WeightFormat::int4)
      scale = weights.scales[row * (K / kInt4Group) + column / kInt4Group];
    else if constexpr (Format != WeightFormat::bf16)
      scale = weights.scales[row];
    const Vector vector = from[v];
#pragma unroll
    for (int part = 0; part < kVectorWeights / 8; ++part) {
      float x[8];
      eight_weights<Format>(x, vector, part);
#pragma unroll
      for (int i = 0; i < 8; ++i) x[i] *= scale;
      store<8>(out + v * kVectorWeights + part * 8, x);
    }
  }
}

template <class Body>
void with_format(WeightFormat format, const Body& body) {
  switch (format) {
    case WeightFormat::bf16:
      return body.template operator()<WeightFormat::bf16>();
    case WeightFormat::int8:
      return body.template operator()<WeightFormat::int8>();
    case WeightFormat::fp8:
      return body.template operator()<WeightFormat::fp8>();
    case WeightFormat::int4:
      return body.template operator()<WeightFormat::int4>();
  }
}

}  // namespace

bool gemv_takes(WeightFormat format, std::int64_t M, std::int64_t K) {
  return M <= kGemvRows && K % (128 / bits_of_format(format)) == 0 &&
         (format != WeightFormat::int4 || K % kInt4Group == 0);
}

void gemv(const Context& context, Tensor out, ConstTensor inp, const Weights& weights, ConstTensor bias,
          ConstTensor addend, std::int64_t M, std::int64_t N, std::int64_t K) {
  const Arguments arguments{inp.as<bf16>(), weights, bias.as<bf16>(), addend.as<bf16>(), M, N, K};
  with_type(out.type, [&]<class Out>(Out) {
    with_format(weights.format, [&]<WeightFormat Format>() {
      M == 1 ? launch<Out, Format, 1, NormKind::none>(context, out.as<Out>(), arguments)
             : launch<Out, Format, kGemvRows, NormKind::none>(context, out.as<Out>(), arguments);
    });
  });
}

void gemv_with(const Context& context, Tensor out, ConstTensor inp, const Weights& weights, ConstTensor bias,
               ConstTensor addend, std::int64_t N, std::int64_t K, const InputNorm& norm,
               const Ending& ending) {
  Arguments arguments{inp.as<bf16>(), weights, bias.as<bf16>(), addend.as<bf16>(), 1, N, K};
  arguments.gain = norm.gain.as<bf16>();
  arguments.shift = norm.shift.as<bf16>();
  arguments.eps = norm.eps;
  arguments.normed = norm.normed.as<bf16>();
  arguments.ending = ending.kind;
  arguments.activated = ending.activated.as<bf16>();
  if (ending.kind == EndingKind::silu_gate || ending.kind == EndingKind::gelu_gate)
    arguments.apart = static_cast<int>(N / 2);
  if (ending.kind == EndingKind::rotate_append) {
    arguments.apart = static_cast<int>(ending.shape.D / 2);
    const auto append = [&]<class K_>(K_) {
      return AppendArguments<bf16, K_>{out.as<bf16>(),
                                       cached_keys<K_>(ending.cache, ending.shape),
                                       {ending.cache.k_scale, ending.cache.v_scale},
                                       ending.table,
                                       ending.position,
                                       sizes(ending.shape)};
    };
    if (ending.cache.is_fp8())
      arguments.append_fp8 = append(e4m3{});
    else
      arguments.append = append(bf16{});
  }
  const auto in_type = [&]<class Out>(Out* to) {
    with_format(weights.format, [&]<WeightFormat Format>() {
      switch (norm.kind) {
        case NormKind::none:
          return launch<Out, Format, 1, NormKind::none>(context, to, arguments);
        case NormKind::rms:
          return launch<Out, Format, 1, NormKind::rms>(context, to, arguments);
        case NormKind::layer:
          return launch<Out, Format, 1, NormKind::layer>(context, to, arguments);
      }
    });
  };
  out.type == Type::f32 ? in_type(out.as<float>()) : in_type(out.as<bf16>());
}

void dequantise(const Context& context, Tensor out, const Weights& weights, std::int64_t first,
                std::int64_t rows, std::int64_t K) {
  with_type(out.type, [&]<class Out>(Out) {
    with_format(weights.format, [&]<WeightFormat Format>() {
      start(context, {.grid = {blocks_for(rows * K / kWeights<Format>, kThreads), 1, 1}, .threads = kThreads},
            dequantise_kernel<Out, Format>, out.as<Out>(), weights, first, rows, K);
    });
  });
}

}  // namespace kernels::cuda
