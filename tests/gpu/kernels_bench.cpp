// How fast the GPU's kernels are: matrix products by cuBLASLt and by our own tensor-core kernel as a share of
// it, attention, products of one row and of few by format of the weights, decoding against a cache, copies,
// and what starting a kernel costs, alone and in a replayed graph. Times are the GPU's own, medians of many
// runs on random data.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_choice.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/gemm_tensor_cores.h"
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/hopper/attention_hopper.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/products.h"

namespace {

namespace cuda = kernels::cuda;

constexpr std::int64_t kScratchBytes = std::int64_t{512} << 20;

class Bench {
 public:
  Bench() : gpu_(0), products_(false), scratch_(gpu_.allocate(kScratchBytes)) {}

  cuda::Context context() { return {gpu_.stream(), scratch_, kScratchBytes}; }
  cuda::Products& products() { return products_; }
  cuda::Gpu& gpu() { return gpu_; }

  // Random bf16 in (-1, 1); freed at the end of the program.
  cuda::Tensor random(std::int64_t count) {
    static std::mt19937 generator(1);
    constexpr std::size_t kPattern = 1 << 20;
    static const std::vector<cuda::bf16> pattern = [] {
      std::vector<cuda::bf16> values(kPattern);
      std::uniform_real_distribution<float> uniform(-1, 1);
      for (cuda::bf16& x : values) x = cuda::to_bf16(uniform(generator));
      return values;
    }();
    std::byte* const memory = gpu_.allocate(count * 2);
    for (std::int64_t done = 0; done < count; done += static_cast<std::int64_t>(kPattern)) {
      const auto part = static_cast<std::size_t>(std::min<std::int64_t>(count - done, kPattern));
      gpu_.copy_to_device(memory + done * 2, std::as_bytes(std::span(pattern).first(part)));
    }
    return {memory, cuda::Type::bf16};
  }
  void release(std::initializer_list<cuda::Tensor> tensors) {
    for (const cuda::Tensor& tensor : tensors) gpu_.release(static_cast<std::byte*>(tensor.data));
  }

  // Bytes that are no number in any type: what is read before it is written shows in the result.
  void poison(std::byte* memory, std::int64_t bytes) {
    const std::vector<std::byte> nan(std::size_t{1} << 24, std::byte{0xff});
    for (std::int64_t done = 0; done < bytes; done += static_cast<std::int64_t>(nan.size())) {
      const auto part = static_cast<std::size_t>(std::min<std::int64_t>(bytes - done, std::ssize(nan)));
      gpu_.copy_to_device(memory + done, std::span(nan).first(part));
    }
  }
  void poison_scratch() { poison(scratch_, kScratchBytes); }

  // The bf16 elements of a tensor.
  std::vector<float> values(const cuda::Tensor& tensor, std::int64_t count) {
    std::vector<cuda::bf16> stored(static_cast<std::size_t>(count));
    gpu_.synchronise();
    gpu_.copy_from_device(std::as_writable_bytes(std::span(stored)),
                          static_cast<const std::byte*>(tensor.data));
    std::vector<float> values(stored.size());
    std::transform(stored.begin(), stored.end(), values.begin(),
                   [](cuda::bf16 x) { return cuda::to_float(x); });
    return values;
  }

  double seconds(const std::function<void()>& work) {
    constexpr std::size_t kWarmUp = 5, kRuns = 20;
    for (std::size_t run = 0; run < kWarmUp; ++run) work();
    std::vector<double> samples;
    for (std::size_t run = 0; run < kRuns; ++run) {
      gpu_.record(0);
      work();
      gpu_.record(1);
      gpu_.synchronise();
      samples.push_back(gpu_.seconds_between(0, 1));
    }
    std::nth_element(samples.begin(), samples.begin() + kRuns / 2, samples.end());
    return samples[kRuns / 2];
  }

 private:
  cuda::Gpu gpu_;
  cuda::Products products_;
  std::byte* scratch_;
};

void matrix_products(Bench& bench) {
  std::printf("product M x N x K            cuBLASLt TFLOP/s   mma.sync TFLOP/s   share\n");
  struct Shape {
    std::int64_t M, N, K;
  };
  for (const Shape s : {Shape{4096, 4096, 4096}, Shape{16384, 6144, 4096}, Shape{16384, 4096, 14336},
                        Shape{16384, 50304, 768}}) {
    const cuda::Tensor a = bench.random(s.M * s.K), b = bench.random(s.N * s.K),
                       out = bench.random(s.M * s.N);
    const double flops = 2.0 * static_cast<double>(s.M) * static_cast<double>(s.N) * static_cast<double>(s.K);
    const double library = bench.seconds([&] {
      bench.products().run(bench.context(),
                           {.M = s.M, .N = s.N, .K = s.K, .a = a, .b = b, .out = out, .transpose_b = true});
    });
    const double own =
        bench.seconds([&] { cuda::gemm_tensor_cores(bench.context(), out, a, b, s.M, s.N, s.K); });
    std::printf("%6lld x %6lld x %6lld   %16.1f   %16.1f   %5.2f\n", static_cast<long long>(s.M),
                static_cast<long long>(s.N), static_cast<long long>(s.K), flops / library * 1e-12,
                flops / own * 1e-12, library / own);
    bench.release({a, b, out});
  }
}

// Dense bf16 and memory bandwidth by the datasheets (NVIDIA A100 80GB SXM, H100 SXM and H200 SXM data
// sheets).
struct Datasheet {
  double flops, bytes;  // a second
};
Datasheet datasheet_of(const std::string& name) {
  if (name.find("H200") != std::string::npos) return {989.4e12, 4.8e12};
  if (name.find("H100") != std::string::npos) return {989.4e12, 3.35e12};
  return {312e12, 2.039e12};
}

void print_share(double rate, double peak) {
  std::printf("  %7.1f %5.1f%%", rate * 1e-12, 100 * rate / peak);
}

// Forward products are two, backward ones five (the scores once more), half of them under a causal mask: the
// convention of Dao et al. Whatever a kernel computes beyond that counts as time.
void attention(Bench& bench, const Datasheet& peak) {
  const bool hopper = cuda::Gpu::compute_capability(0) == 90;
  std::printf("\nattention, 16 heads, 16,384 tokens: TFLOP/s and share of the datasheet's\n");
  std::printf("mask      D      T   forward mma.sync  forward wgmma   backward mma.sync  backward wgmma\n");
  for (const bool causal : {true, false})
    for (const std::int64_t D : {64, 128}) {
      for (const std::int64_t T : {1024, 2048, 4096, 8192, 16384}) {
        constexpr std::int64_t kTokens = 16384, kHeads = 16;
        const kernels::AttentionShape s{kTokens / T, T, kHeads, kHeads, D};
        const cuda::AttentionMask mask{.causal = causal};
        const std::int64_t packed = kTokens * 3 * kHeads * D;
        const cuda::Tensor qkv = bench.random(packed), dqkv = bench.random(packed),
                           out = bench.random(packed / 3), dout = bench.random(packed / 3),
                           lse = bench.random(2 * kTokens * kHeads);
        struct Seconds {
          double flash = 0, hopper = 0;
        } forward_times, backward_times;
        const double products = 4.0 * static_cast<double>(kTokens * kHeads) * static_cast<double>(T * D);
        const double flops = causal ? products / 2 : products;
        forward_times.flash = bench.seconds(
            [&] { cuda::attention_flash_forward(bench.context(), out, lse.as<float>(), qkv, s, mask); });
        if (hopper)
          forward_times.hopper = bench.seconds(
              [&] { cuda::attention_hopper_forward(bench.context(), out, lse.as<float>(), qkv, s, mask); });
        backward_times.flash = bench.seconds([&] {
          cuda::attention_flash_backward(bench.context(), dqkv, dout, qkv, out, lse.as<float>(), s, mask);
        });
        if (hopper)
          backward_times.hopper = bench.seconds([&] {
            cuda::attention_hopper_backward(bench.context(), dqkv, dout, qkv, out, lse.as<float>(), s, mask);
          });
        std::printf("%-6s %4lld %6lld ", causal ? "causal" : "full", static_cast<long long>(D),
                    static_cast<long long>(T));
        print_share(flops / forward_times.flash, peak.flops);
        if (hopper) print_share(flops / forward_times.hopper, peak.flops);
        print_share(2.5 * flops / backward_times.flash, peak.flops);
        if (hopper) print_share(2.5 * flops / backward_times.hopper, peak.flops);
        std::printf("\n");
        bench.release({qkv, dqkv, out, dout, lse});
      }
    }
}

// Blocks that run beside each other, which no emulation shows: Hopper's kernels give the same bits twice,
// with what they write into poisoned before, and what the others give.
bool attention_is_right(Bench& bench) {
  bool right = true;
  std::printf("\nattention by warpgroups, checked:   causal  D      T   the same bits twice   as mma.sync\n");
  if (cuda::Gpu::compute_capability(0) != 90) return right;
  for (const bool causal : {true, false})
    for (const std::int64_t D : {64, 128})
      for (const std::int64_t T : {1024, 4096, 16384}) {
        constexpr std::int64_t kTokens = 16384, kHeads = 8, kGroups = 2;
        const kernels::AttentionShape s{kTokens / T, T, kHeads, kGroups, D};
        const cuda::AttentionMask mask{.causal = causal};
        const std::int64_t packed = kTokens * (kHeads + 2 * kGroups) * D, results = kTokens * kHeads * D;
        const cuda::Tensor qkv = bench.random(packed), dqkv = bench.random(packed),
                           out = bench.random(results), dout = bench.random(results),
                           lse = bench.random(2 * kTokens * kHeads);
        const auto run = [&](auto forward, auto backward) {
          bench.poison_scratch();
          bench.poison(static_cast<std::byte*>(out.data), results * 2);
          bench.poison(static_cast<std::byte*>(dqkv.data), packed * 2);
          forward(bench.context(), out, lse.as<float>(), qkv, s, mask);
          backward(bench.context(), dqkv, dout, qkv, out, lse.as<float>(), s, mask);
          return std::pair(bench.values(out, results), bench.values(dqkv, packed));
        };
        const auto expected = run(cuda::attention_flash_forward, cuda::attention_flash_backward);
        const auto first = run(cuda::attention_hopper_forward, cuda::attention_hopper_backward);
        const bool twice = run(cuda::attention_hopper_forward, cuda::attention_hopper_backward) == first;
        const bool agrees =
            cuda::agree(expected.first, first.first) && cuda::agree(expected.second, first.second);
        right = right && twice && agrees;
        std::printf("%41s %4lld %6lld   %19s   %11s\n", causal ? "yes" : "no", static_cast<long long>(D),
                    static_cast<long long>(T), twice ? "yes" : "NO", agrees ? "yes" : "NO");
        bench.release({qkv, dqkv, out, dout, lse});
      }
  return right;
}

void one_row(Bench& bench) {
  std::printf("\none row times (14336, 4096)   GB/s of weights\n");
  constexpr std::int64_t N = 14336, K = 4096, kSets = 8;  // sets of weights in turn: no cache holds them
  const cuda::Tensor inp = bench.random(K), out = bench.random(N), scales = bench.random(2 * N * K / 128);
  struct Named {
    cuda::WeightFormat format;
    const char* name;
  };
  for (const Named& f : {Named{cuda::WeightFormat::bf16, "bf16"}, Named{cuda::WeightFormat::int8, "int8"},
                         Named{cuda::WeightFormat::fp8, "fp8"}, Named{cuda::WeightFormat::int4, "int4"}}) {
    const std::int64_t bytes = N * K * cuda::bits_of_format(f.format) / 8;
    const cuda::Tensor weights = bench.random(kSets * bytes / 2);
    const double seconds = bench.seconds([&] {
      for (std::int64_t set = 0; set < kSets; ++set)
        cuda::gemv(bench.context(), out, inp,
                   {f.format, static_cast<const std::byte*>(weights.data) + set * bytes, scales.as<float>()},
                   {}, {}, 1, N, K);
    });
    std::printf("%-8s                   %15.0f\n", f.name,
                static_cast<double>(kSets * bytes) / seconds * 1e-9);
    bench.release({weights});
  }
  bench.release({inp, out, scales});
}

// A feed-forward network's first half, as one kernel and as three; in one, the norm is apart where that has
// no room for it. Which is faster up to how many rows decides what gemv_tensor_cores_has_gate() should say.
void few_rows(Bench& bench) {
  std::printf(
      "\nnorm, product and SwiGLU, (2 x 14336, 4096): rows   one kernel us   apart us   GB/s of weights in "
      "one\n");
  constexpr std::int64_t F = 14336, K = 4096, kSets = 8;  // sets of weights in turn: no cache holds them
  struct Named {
    cuda::WeightFormat format;
    const char* name;
  };
  const cuda::Tensor inp = bench.random(cuda::kNarrowRows * K), gain = bench.random(K),
                     normed = bench.random(cuda::kNarrowRows * K),
                     gate_up = bench.random(cuda::kNarrowRows * 2 * F),
                     out = bench.random(cuda::kNarrowRows * F), scales = bench.random(2 * 2 * F * K / 128);
  for (const Named& f : {Named{cuda::WeightFormat::bf16, "bf16"}, Named{cuda::WeightFormat::int8, "int8"},
                         Named{cuda::WeightFormat::fp8, "fp8"}, Named{cuda::WeightFormat::int4, "int4"}}) {
    const std::int64_t bytes = 2 * F * K * cuda::bits_of_format(f.format) / 8;
    const cuda::Tensor weights = bench.random(kSets * bytes / 2);
    for (const std::int64_t rows : {2, 8, 16, 32, 64}) {
      if (!cuda::gemv_tensor_cores_takes(f.format, rows, K) ||
          !cuda::gemv_tensor_cores_has_gate(f.format, rows))
        continue;
      const bool norms = cuda::gemv_tensor_cores_has_norm(f.format, rows);
      const auto norm = [&] {
        cuda::rmsnorm_forward(bench.context(), normed, nullptr, inp, gain, 1e-5f, rows, K);
      };
      cuda::InputNorm of_input;
      if (norms) {
        of_input.kind = cuda::InputNorm::Kind::rms;
        of_input.gain = gain;
        of_input.eps = 1e-5f;
        of_input.normed = normed;
      }
      cuda::Ending gate;
      gate.kind = cuda::Ending::Kind::silu_gate;
      gate.activated = out;
      const auto each_set = [&](const auto& with) {
        return bench.seconds([&] {
          for (std::int64_t set = 0; set < kSets; ++set)
            with(cuda::Weights{f.format, static_cast<const std::byte*>(weights.data) + set * bytes,
                               scales.as<float>()});
        }) / kSets;
      };
      const double one = each_set([&](const cuda::Weights& w) {
        if (!norms) norm();
        cuda::gemv_tensor_cores(bench.context(), gate_up, norms ? inp : normed, w, {}, {}, rows, 2 * F, K,
                                of_input, gate);
      });
      const double apart = each_set([&](const cuda::Weights& w) {
        norm();
        if (f.format == cuda::WeightFormat::bf16)
          bench.products().run(bench.context(), {.M = rows,
                                                 .N = 2 * F,
                                                 .K = K,
                                                 .a = normed,
                                                 .b = {w.data, cuda::Type::bf16},
                                                 .out = gate_up,
                                                 .transpose_b = true});
        else
          cuda::gemv_tensor_cores(bench.context(), gate_up, normed, w, {}, {}, rows, 2 * F, K);
        cuda::swiglu_forward(bench.context(), out, gate_up, rows, F);
      });
      std::printf("%-8s %40lld %15.1f %10.1f %24.0f\n", f.name, static_cast<long long>(rows), one * 1e6,
                  apart * 1e6, static_cast<double>(bytes) / one * 1e-9);
    }
    bench.release({weights});
  }
  bench.release({inp, gain, normed, gate_up, out, scales});
}

// The keys and values are read once; the rest of what moves is small.
void decoding(Bench& bench, const Datasheet& peak) {
  std::printf(
      "\none token against a cache, 32 query and 8 key heads of 128: GB/s and share of the datasheet's\n");
  std::printf(
      "    B  length    contiguous bf16   pages of 16, bf16   pages of 64, bf16    pages of 64, fp8\n");
  constexpr std::int64_t kContiguous = 0;
  struct Layout {
    std::int64_t block_size;
    bool fp8;
  };
  for (const std::int64_t B : {1, 16, 64})
    for (const std::int64_t length : {1024, 8192, 32768}) {
      const kernels::AttentionShape s{B, 1, 32, 8, 128};
      const std::int64_t elements = B * s.G * length * s.D;
      const cuda::Tensor k = bench.random(elements), v = bench.random(elements),
                         qkv = bench.random(B * 48 * 128), out = bench.random(B * 32 * 128);
      const auto upload = [&](const auto& values) {
        const auto bytes = std::as_bytes(std::span(values));
        std::byte* const memory = bench.gpu().allocate(static_cast<std::int64_t>(bytes.size()));
        bench.gpu().copy_to_device(memory, bytes);
        return memory;
      };
      std::byte* const positions = upload(
          std::vector<std::int32_t>(static_cast<std::size_t>(B), static_cast<std::int32_t>(length - 1)));
      std::byte* const scales = upload(std::vector<float>(static_cast<std::size_t>(s.G), 1.0f / 448));
      std::printf("%5lld %7lld ", static_cast<long long>(B), static_cast<long long>(length));
      for (const Layout& layout :
           {Layout{kContiguous, false}, Layout{16, false}, Layout{64, false}, Layout{64, true}}) {
        cuda::KvCache cache = cuda::contiguous_cache(k, v, length);
        std::byte* table = nullptr;
        if (layout.block_size != kContiguous) {
          // Blocks in no order, as they are after sequences have come and gone.
          std::vector<std::int32_t> blocks(static_cast<std::size_t>(B * length / layout.block_size));
          std::iota(blocks.begin(), blocks.end(), 0);
          std::shuffle(blocks.begin(), blocks.end(), std::mt19937(1));
          table = upload(blocks);
          cache.block_size = layout.block_size;
          cache.block_table = reinterpret_cast<const std::int32_t*>(table);
          cache.blocks_per_sequence = length / layout.block_size;
        }
        if (layout.fp8) cache.k_scale = cache.v_scale = reinterpret_cast<const float*>(scales);
        const double seconds = bench.seconds([&] {
          cuda::attention_cached(bench.context(), out, qkv, cache,
                                 reinterpret_cast<const std::int32_t*>(positions), s);
        });
        const double bytes = static_cast<double>(elements) * (layout.fp8 ? 2 : 4);
        std::printf("  %11.0f %5.1f%%", bytes / seconds * 1e-9, 100 * bytes / seconds / peak.bytes);
        if (table != nullptr) bench.gpu().release(table);
      }
      std::printf("\n");
      bench.gpu().release(positions);
      bench.gpu().release(scales);
      bench.release({k, v, qkv, out});
    }
}

void copies_and_launches(Bench& bench) {
  constexpr std::int64_t kCount = std::int64_t{1} << 30;
  const cuda::Tensor from = bench.random(kCount), to = bench.random(kCount);
  const double copy = bench.seconds([&] { cuda::convert(bench.context(), to, from, kCount); });
  std::printf("\ncopy, read and written        %15.0f GB/s\n",
              4.0 * static_cast<double>(kCount) / copy * 1e-9);
  constexpr int kLaunches = 1000;
  const auto launches = [&] {
    for (int i = 0; i < kLaunches; ++i) cuda::convert(bench.context(), to, from, 8);
  };
  std::printf("a kernel started in a stream  %15.2f us\n", bench.seconds(launches) / kLaunches * 1e6);
  bench.gpu().begin_capture();
  launches();
  bench.gpu().end_capture(0);
  std::printf("a kernel of a replayed graph  %15.2f us\n",
              bench.seconds([&] { bench.gpu().replay(0); }) / kLaunches * 1e6);
  bench.release({from, to});
}

}  // namespace

int main() {
  try {
    std::printf("%s\n\n", cuda::Gpu::name_of(0).c_str());
    const Datasheet peak = datasheet_of(cuda::Gpu::name_of(0));
    Bench bench;
    if (!attention_is_right(bench)) {
      std::fprintf(stderr, "gpu_bench: attention by warpgroups is wrong\n");
      return 1;
    }
    matrix_products(bench);
    attention(bench, peak);
    one_row(bench);
    few_rows(bench);
    decoding(bench, peak);
    copies_and_launches(bench);
  } catch (const cuda::CudaError& error) {
    std::fprintf(stderr, "gpu_bench: %s\n", error.what());
    return 5;
  }
}
