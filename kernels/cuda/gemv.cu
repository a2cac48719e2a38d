// Products of up to eight rows; one row's are in gemv_one_row.cu.
//
// A block has two rows of the weights and all of its threads share their columns, so that narrow matrices too
// have enough loads under way: 16 bytes each, kAhead of them before the first is used. The first of them
// begin before the kernel that makes the input has ended.
#include "kernels/cuda/early_start.h"
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

// How many weights 16 bytes hold, and what they are before their scale.
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

// Eight weights before their scale: the part-th of those in 16 bytes. Whole words are turned into numbers at
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

struct Arguments {
  const bf16* inp;
  Weights weights;
  const bf16 *bias, *addend;
  std::int64_t M, N, K;
};

// Shared memory: (warps, kRows, kGemvRows) partial sums.
template <class Out, WeightFormat Format>
CUDA_KERNEL(kThreads)
gemv_kernel(Out* out, Arguments a) {
  constexpr int kVectorWeights = kWeights<Format>, kInputs = kGemvRows;
  const std::int64_t first = static_cast<std::int64_t>(block_index().x) * kRows;
  float* const partials = shared_memory<float>();
  const std::int64_t vectors = a.K / kVectorWeights;  // of a row
  const Vector* const weights = static_cast<const Vector*>(a.weights.data);
  Vector ahead[kRows][kAhead];
  const auto load_weights = [&](std::int64_t begin) {
#pragma unroll
    for (int step = 0; step < kAhead; ++step)
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const std::int64_t v = begin + step * kThreads;
        if (v < vectors && first + r < a.N) ahead[r][step] = weights[(first + r) * vectors + v];
      }
  };
  float sums[kRows][kInputs] = {};
  let_next_kernel_begin();
  load_weights(thread_index());
  wait_for_kernel_before();
  for (std::int64_t begin = thread_index(); begin < vectors; begin += kThreads * kAhead) {
    if (begin != thread_index()) load_weights(begin);
#pragma unroll
    for (int step = 0; step < kAhead; ++step) {
      const std::int64_t v = begin + step * kThreads;
      if (v >= vectors) break;
      const std::int64_t column = v * kVectorWeights;
      float partial[kInputs][kRows] = {};
#pragma unroll
      for (int part = 0; part < kVectorWeights / 8; ++part) {
        float weight[kRows][8];
#pragma unroll
        for (int r = 0; r < kRows; ++r) eight_weights<Format>(weight[r], ahead[r][step], part);
#pragma unroll
        for (int m = 0; m < kInputs; ++m) {
          if (m >= a.M) break;
          float x[8];
          load<8>(x, a.inp + m * a.K + column + part * 8);
#pragma unroll
          for (int r = 0; r < kRows; ++r)
#pragma unroll
            for (int i = 0; i < 8; ++i) partial[m][r] += x[i] * weight[r][i];
        }
      }
#pragma unroll
      for (int m = 0; m < kInputs; ++m) {
        if (m >= a.M) break;
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          if (first + r >= a.N) break;
          if constexpr (Format == WeightFormat::int4)
            partial[m][r] *= a.weights.scales[(first + r) * (a.K / kInt4Group) + column / kInt4Group];
          sums[r][m] += partial[m][r];
        }
      }
    }
  }

#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int m = 0; m < kInputs; ++m) {
      const float sum = warp_sum(sums[r][m]);
      if (lane_index() == 0) partials[(warp_index() * kRows + r) * kInputs + m] = sum;
    }
  sync_block();
  const int r = thread_index() / kInputs, m = thread_index() % kInputs;
  if (r >= kRows || m >= a.M || first + r >= a.N) return;
  float sum = 0;
  for (int warp = 0; warp < kWarps; ++warp) sum += partials[(warp * kRows + r) * kInputs + m];
  if constexpr (Format == WeightFormat::int8 || Format == WeightFormat::fp8)
    sum *= a.weights.scales[first + r];
  if (a.bias != nullptr) sum += to_float(a.bias[first + r]);
  if (a.addend != nullptr) sum += to_float(a.addend[m * a.N + first + r]);
  out[m * a.N + first + r] = from_float<Out>(sum);
}

// A vector of 16 bytes a thread and turn.
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
  return M <= kGemvRows && K <= kGemvColumns && K % (128 / bits_of_format(format)) == 0 &&
         (format != WeightFormat::int4 || K % kInt4Group == 0);
}

void gemv(const Context& context, Tensor out, ConstTensor inp, const Weights& weights, ConstTensor bias,
          ConstTensor addend, std::int64_t M, std::int64_t N, std::int64_t K) {
  if (M == 1) return gemv_with(context, out, inp, weights, bias, addend, N, K, {}, {});
  const Arguments arguments{inp.as<bf16>(), weights, bias.as<bf16>(), addend.as<bf16>(), M, N, K};
  with_type(out.type, [&]<class Out>(Out) {
    with_format(weights.format, [&]<WeightFormat Format>() {
      start_early(context,
                  {.grid = {static_cast<int>(ceil_div(N, kRows)), 1, 1},
                   .threads = kThreads,
                   .shared_bytes = kWarps * kRows * kGemvRows * sizeof(float)},
                  gemv_kernel<Out, Format>, out.as<Out>(), arguments);
    });
  });
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
