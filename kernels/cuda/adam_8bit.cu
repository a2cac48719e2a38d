#include "kernels/cuda/adam_8bit.h"
#include "kernels/cuda/update.h"

namespace kernels::cuda {
namespace {

constexpr int kCodes = 256;
constexpr int kEach = static_cast<int>(kMomentBlock) / kWarp;  // a lane's of a block
constexpr int kWarps = kUpdateThreads / kWarp;

// The code of the nearest of `values`, as kernels::moment_code() finds it. The decade of x tells where the
// next value below it is, or the one below that: one comparison is left. x is at most 1.
template <bool is_signed>
CUDA_DEVICE int code_of(float x, const float* values) {
  constexpr int kZero = kMomentZero<is_signed>, kTop = kMomentParts<is_signed> << 6;
  // A decade's values begin at a tenth of it and are 0.9 / parts of it apart. So parts + the number of x's
  // part is parts / 0.9 * x / decade + parts * 8 / 9. Each decade further down has half as many parts and a
  // tenth of the size.
  const float size = fabsf(x);
  float slope = kTop / 0.9f, offset = kTop * 8 / 9.0f, bound = 0.1f;
#pragma unroll
  for (int decade = 1; decade < 7; ++decade) {
    if (size < bound) {
      slope *= 5;
      offset /= 2;
    }
    bound /= 10;
  }
  // Between two decades, the middle of the neighbours is at most a fifth of a part above the decade's start.
  const int steps = static_cast<int>(size * slope + offset - 0.25f) + 1 - kMomentParts<is_signed>;
  int below = x < 0 ? kZero - steps - 1 : kZero + steps;
  below = below < 0 ? 0 : below > kCodes - 2 ? kCodes - 2 : below;
  return below + (x - values[below] > values[below + 1] - x ? 1 : 0);  // of NaN the one below
}

// A warp moves a block of moments. Whole: a lane's elements lie side by side, and the count of elements is a
// multiple of theirs.
template <class P, class G, bool Whole>
CUDA_KERNEL(kUpdateThreads)
adamw_8bit_kernel(P* parameter, const G* gradient, std::uint8_t* moment1, std::uint8_t* moment2,
                  float* scale1, float* scale2, float* master, std::int64_t count,
                  const double* gradient_scale, const AdamWStep* step, bool decay, std::uint64_t stream) {
  if (*gradient_scale == 0) return;
  float* const values1 = shared_memory<float>();
  float* const values2 = values1 + kCodes;
  values1[thread_index()] = moment_value<true>(thread_index());
  values2[thread_index()] = moment_value<false>(thread_index());
  sync_block();

  const AdamWStep s = *step;
  const float scale = static_cast<float>(*gradient_scale), shrink = decay ? s.shrink : 1.0f;
  const Moved<P> moved{parameter, master, rounding_key(s.step, stream)};
  const std::int64_t blocks = (count + kMomentBlock - 1) / kMomentBlock;
  for (std::int64_t block = static_cast<std::int64_t>(block_index().x) * kWarps + warp_index();
       block < blocks; block += static_cast<std::int64_t>(grid_size().x) * kWarps) {
    const std::int64_t first = block * kMomentBlock + lane_index() * (Whole ? kEach : 1);
    constexpr int kWidth = Whole ? kEach : 1, kApart = Whole ? kEach : kWarp;
    const float old1 = scale1[block], old2 = scale2[block];
    float m[kEach] = {}, v[kEach] = {}, greatest1 = 0, greatest2 = 0;
#pragma unroll
    for (int part = 0; part < kEach / kWidth; ++part) {
      const std::int64_t i = first + part * kApart;
      if (i >= count) break;
      float value[kWidth], g[kWidth];
      moved.load(value, i);
      load<kWidth>(g, gradient + i);
      const auto code1 = *reinterpret_cast<const Pack<std::uint8_t, kWidth>*>(moment1 + i);
      const auto code2 = *reinterpret_cast<const Pack<std::uint8_t, kWidth>*>(moment2 + i);
      Pack<P, kWidth> out;
#pragma unroll
      for (int w = 0; w < kWidth; ++w) {
        float &m1 = m[part + w], &m2 = v[part + w];
        g[w] *= scale;
        m1 = s.beta1 * (values1[code1.values[w]] * old1) + s.one_minus_beta1 * g[w];
        m2 = s.beta2 * (values2[code2.values[w]] * old2) + s.one_minus_beta2 * g[w] * g[w];
        greatest1 = fmaxf(greatest1, fabsf(m1));
        greatest2 = fmaxf(greatest2, m2);
        value[w] = value[w] * shrink - s.step_size * m1 / (sqrtf(m2) * s.rsqrt_correction2 + s.eps);
        out.values[w] = moved.rounded_at(i + w, value[w]);
      }
      moved.store(i, value, out);
    }
    greatest1 = warp_max(greatest1);
    greatest2 = warp_max(greatest2);
    if (lane_index() == 0) {
      scale1[block] = greatest1;
      scale2[block] = greatest2;
    }
    const float inverse1 = greatest1 > 0 ? 1 / greatest1 : 0, inverse2 = greatest2 > 0 ? 1 / greatest2 : 0;
#pragma unroll
    for (int part = 0; part < kEach / kWidth; ++part) {
      const std::int64_t i = first + part * kApart;
      if (i >= count) break;
      Pack<std::uint8_t, kWidth> code1, code2;
#pragma unroll
      for (int w = 0; w < kWidth; ++w) {
        code1.values[w] = static_cast<std::uint8_t>(code_of<true>(m[part + w] * inverse1, values1));
        code2.values[w] = static_cast<std::uint8_t>(code_of<false>(v[part + w] * inverse2, values2));
      }
      *reinterpret_cast<Pack<std::uint8_t, kWidth>*>(moment1 + i) = code1;
      *reinterpret_cast<Pack<std::uint8_t, kWidth>*>(moment2 + i) = code2;
    }
  }
}

}  // namespace

void adamw_8bit(const Context& context, std::span<const AdamW8BitTensor> tensors,
                const double* gradient_scale, const AdamWStep* step, bool decay) {
  for (const AdamW8BitTensor& t : tensors)
    with_type(t.parameter.type, [&]<class P>(P) {
      with_type(t.gradient.type, [&]<class G>(G) {
        const auto launch = [&]<bool Whole>() {
          start(context,
                {.grid = {blocks_for(ceil_div(t.count, kMomentBlock), kWarps), 1, 1},
                 .threads = kUpdateThreads,
                 .shared_bytes = 2 * kCodes * sizeof(float)},
                adamw_8bit_kernel<P, G, Whole>, t.parameter.as<P>(), t.gradient.as<G>(), t.moment1, t.moment2,
                t.scale1, t.scale2, t.master, t.count, gradient_scale, step, decay, t.stream);
        };
        t.count % kEach == 0 ? launch.template operator()<true>() : launch.template operator()<false>();
      });
    });
}

}  // namespace kernels::cuda
