// Times every CPU kernel at the shapes of real models and prints GB/s, GFLOP/s and the share of the machine's
// own GEMM peak (a 2048^3 product); of decoding with experts in fewer bits, the share of the bandwidth at
// which the machine reads a weight of 512 MiB in fp32. With a file from kernels_torch.py, also how long
// PyTorch takes for the same work.
//   kernels_bench [TORCH.tsv] [--threads N] [--only TEXT] [--cpu-time]
// On a machine that is busy with other work, --threads 1 --cpu-time (to both programs) still compares.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/attention_segments.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/layernorm.h"
#include "kernels/matmul.h"
#include "kernels/optimizer.h"
#include "kernels/quantised.h"
#include "kernels/rmsnorm.h"
#include "kernels/rope.h"
#include "kernels/sampling.h"
#include "kernels/threads.h"

namespace {

using kernels::AttentionShape;
namespace cpu = kernels::cpu;
using Tensor = std::vector<float>;

Tensor tensor(std::int64_t count) {
  static std::mt19937 generator(1);
  std::uniform_real_distribution<float> distribution(-1.0f, 1.0f);
  Tensor values(static_cast<std::size_t>(count));
  for (float& value : values) value = distribution(generator);
  return values;
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double cpu_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

// The least of the times of repeated runs: what the machine does when nothing else disturbs it.
double least_seconds(const std::function<void()>& work, double (*now)()) {
  constexpr double kEnough = 0.4;
  constexpr int kFewestRuns = 4;
  double least = INFINITY, total = 0;
  for (int run = 0; run < kFewestRuns || total < kEnough; ++run) {
    const double start = now();
    work();
    const double seconds = now() - start;
    least = std::min(least, seconds);
    total += seconds;
  }
  return least;
}

class Bench {
 public:
  Bench(std::map<std::string, double> torch_seconds, std::string only, double (*now)())
      : torch_seconds_(std::move(torch_seconds)), only_(std::move(only)), now_(now) {
    std::printf("%-52s %10s %8s %9s %7s %12s\n", "", "us", "GB/s", "GFLOP/s", "share", "torch / ours");
  }

  // floats: read and written once each; flops: multiply and add count two.
  void run(const std::string& name, double floats, double flops, const std::function<void()>& work) {
    if (name.find(only_) == std::string::npos) return;
    const double seconds = least_seconds(work, now_);
    const double gflops = flops / seconds * 1e-9;
    if (peak_gflops_ == 0) peak_gflops_ = gflops;
    std::printf("%-52s %10.1f %8.1f %9.1f", name.c_str(), seconds * 1e6, 4e-9 * floats / seconds, gflops);
    if (flops > 0)
      std::printf(" %6.0f%%", 100 * gflops / peak_gflops_);
    else
      std::printf(" %7s", "");
    const auto torch = torch_seconds_.find(name);
    if (torch != torch_seconds_.end()) std::printf(" %12.2f", torch->second / seconds);
    std::printf("\n");
    std::fflush(stdout);
  }

  // bytes: read once. The first such case is the bandwidth that the others are compared with.
  void read(const std::string& name, double bytes, const std::function<void()>& work) {
    const bool is_first = bandwidth_ == 0;
    if (!is_first && name.find(only_) == std::string::npos) return;
    const double seconds = least_seconds(work, now_), rate = bytes / seconds;
    if (is_first) bandwidth_ = rate;
    std::printf("%-52s %10.1f %8.1f %9s %6.0f%%\n", name.c_str(), seconds * 1e6, rate * 1e-9, "",
                100 * rate / bandwidth_);
    std::fflush(stdout);
  }

  bool wants(const char* name) const { return std::string(name).find(only_) != std::string::npos; }

 private:
  std::map<std::string, double> torch_seconds_;
  std::string only_;
  double (*now_)();
  double peak_gflops_ = 0, bandwidth_ = 0;
};

std::string shape(const char* name, std::initializer_list<std::pair<const char*, std::int64_t>> sizes) {
  std::string text = name;
  for (const auto& [letter, size] : sizes) text += std::string(" ") + letter + "=" + std::to_string(size);
  return text;
}

double number(std::int64_t n) {
  return static_cast<double>(n);
}

void bench_matmul(Bench& bench, std::int64_t M, std::int64_t N, std::int64_t K, bool backward) {
  const kernels::MatmulShape s{M, N, K};
  const double floats = number(M * N + M * K + N * K), flops = 2 * number(M * N) * number(K);
  const Tensor weight = tensor(N * K), bias = tensor(N);
  Tensor inp = tensor(M * K), out = tensor(M * N);
  bench.run(shape("matmul_forward", {{"M", M}, {"N", N}, {"K", K}}), floats, flops,
            [&] { cpu::matmul_forward(out.data(), inp.data(), weight.data(), bias.data(), nullptr, s); });
  if (!backward) return;
  Tensor dweight(weight.size()), dbias(bias.size());
  bench.run(shape("matmul_backward_input", {{"M", M}, {"N", N}, {"K", K}}), floats, flops,
            [&] { cpu::matmul_backward_input(inp.data(), out.data(), weight.data(), false, s); });
  bench.run(shape("matmul_backward_weight", {{"M", M}, {"N", N}, {"K", K}}), floats, flops,
            [&] { cpu::matmul_backward_weight(dweight.data(), dbias.data(), out.data(), inp.data(), s); });
}

void bench_rows(Bench& bench, std::int64_t R, std::int64_t C, std::int64_t F) {
  const Tensor inp = tensor(R * C), weight = tensor(C), bias = tensor(C), dout = tensor(R * C);
  Tensor out(inp.size()), mean(static_cast<std::size_t>(R)), rstd(mean.size()), dinp(inp.size()),
      dweight(weight.size()), dbias(bias.size());
  const double rows = number(R * C);
  bench.run(shape("layernorm_forward", {{"R", R}, {"C", C}}), 2 * rows, 0, [&] {
    cpu::layernorm_forward(out.data(), mean.data(), rstd.data(), inp.data(), weight.data(), bias.data(),
                           1e-5f, R, C);
  });
  bench.run(shape("layernorm_backward", {{"R", R}, {"C", C}}), 4 * rows, 0, [&] {
    cpu::layernorm_backward(dinp.data(), dweight.data(), dbias.data(), dout.data(), inp.data(), weight.data(),
                            mean.data(), rstd.data(), R, C);
  });
  bench.run(shape("rmsnorm_forward", {{"R", R}, {"C", C}}), 2 * rows, 0,
            [&] { cpu::rmsnorm_forward(out.data(), rstd.data(), inp.data(), weight.data(), 1e-5f, R, C); });
  bench.run(shape("rmsnorm_backward", {{"R", R}, {"C", C}}), 4 * rows, 0, [&] {
    cpu::rmsnorm_backward(dinp.data(), dweight.data(), dout.data(), inp.data(), weight.data(), rstd.data(), R,
                          C);
  });
  bench.run(shape("add", {{"R", R}, {"C", C}}), 3 * rows, 0,
            [&] { cpu::add(out.data(), inp.data(), dout.data(), R, C); });

  const Tensor wide = tensor(R * F), dwide = tensor(R * F), gate_up = tensor(2 * R * F);
  Tensor wide_out(wide.size()), dgate_up(gate_up.size());
  const double elements = number(R * F);
  bench.run(shape("gelu_forward", {{"R", R}, {"F", F}}), 2 * elements, 0,
            [&] { cpu::gelu_forward(wide_out.data(), wide.data(), R, F); });
  bench.run(shape("gelu_backward", {{"R", R}, {"F", F}}), 3 * elements, 0,
            [&] { cpu::gelu_backward(wide_out.data(), dwide.data(), wide.data(), R, F); });
  bench.run(shape("swiglu_forward", {{"R", R}, {"F", F}}), 3 * elements, 0,
            [&] { cpu::swiglu_forward(wide_out.data(), gate_up.data(), R, F); });
  bench.run(shape("swiglu_backward", {{"R", R}, {"F", F}}), 5 * elements, 0,
            [&] { cpu::swiglu_backward(dgate_up.data(), dwide.data(), gate_up.data(), R, F); });
}

void bench_embedding_and_loss(Bench& bench, std::int64_t R, std::int64_t C, std::int64_t V) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(R));
  std::mt19937 generator(1);
  for (auto& token : tokens) token = static_cast<std::int32_t>(generator() % static_cast<std::uint32_t>(V));
  {
    const kernels::EmbeddingShape s{1, R, C, V};
    const Tensor weight = tensor(V * C), dout = tensor(R * C), position_weight = tensor(R * C);
    Tensor dweight(weight.size()), dposition_weight(position_weight.size()), out(dout.size());
    bench.run(shape("embedding_forward", {{"R", R}, {"C", C}, {"V", V}}), 3 * number(R * C), 0, [&] {
      cpu::embedding_forward(out.data(), tokens.data(), weight.data(), position_weight.data(), nullptr, s);
    });
    bench.run(shape("embedding_backward", {{"R", R}, {"C", C}, {"V", V}}), 5 * number(R * C), 0, [&] {
      cpu::embedding_backward(dweight.data(), dposition_weight.data(), dout.data(), tokens.data(), s);
    });
  }
  Tensor logits = tensor(R * V), losses(static_cast<std::size_t>(R));
  bench.run(shape("cross_entropy_forward", {{"R", R}, {"V", V}}), number(R * V), 0,
            [&] { cpu::cross_entropy_forward(losses.data(), logits.data(), tokens.data(), R, V); });
  bench.run(shape("cross_entropy_forward_backward", {{"R", R}, {"V", V}}), 2 * number(R * V), 0, [&] {
    cpu::cross_entropy_forward_backward(logits.data(), losses.data(), tokens.data(),
                                        1.0f / static_cast<float>(R), R, V, V);
  });
}

void bench_attention(Bench& bench, AttentionShape s, bool standard) {
  const Tensor qkv = tensor(s.B * s.T * (s.H + 2 * s.G) * s.D), dout = tensor(s.B * s.T * s.H * s.D);
  Tensor out(dout.size()), dqkv(qkv.size()), lse(static_cast<std::size_t>(s.B * s.H * s.T));
  const auto name = [&](const char* kernel) {
    return shape(kernel, {{"B", s.B}, {"T", s.T}, {"H", s.H}, {"G", s.G}, {"D", s.D}});
  };
  // Causal: half of the two (forward) or five (backward) products of 2 T^2 D.
  const double product = number(s.B * s.H) * number(s.T) * number(s.T + 1) * number(s.D);
  const double rows = number(s.B * s.T * s.D), width = number(s.H + s.G) * 2;
  bench.run(name("attention_flash_forward"), rows * width, 2 * product,
            [&] { cpu::attention_flash_forward(out.data(), lse.data(), qkv.data(), s); });
  bench.run(name("attention_flash_backward"), rows * 2 * width, 5 * product, [&] {
    cpu::attention_flash_backward(dqkv.data(), dout.data(), qkv.data(), out.data(), lse.data(), s);
  });
  if (standard) {
    Tensor probabilities(static_cast<std::size_t>(s.B * s.H * s.T * s.T)), scratch(probabilities.size());
    const double matrix = number(s.B * s.H) * number(s.T * s.T);
    bench.run(name("attention_standard_forward"), rows * width + 4 * matrix, 2 * product,
              [&] { cpu::attention_standard_forward(out.data(), probabilities.data(), qkv.data(), s); });
    bench.run(name("attention_standard_backward"), rows * 2 * width + 7 * matrix, 4 * product, [&] {
      cpu::attention_standard_backward(dqkv.data(), scratch.data(), dout.data(), qkv.data(),
                                       probabilities.data(), s);
    });
  }
  Tensor rotated = qkv;
  Tensor table(static_cast<std::size_t>(s.T * s.D));
  cpu::rope_table(table.data(), 10000, {}, s.T, s.D);
  bench.run(name("rope_forward"), rows * 2 * number(s.H + s.G), 0, [&] {
    cpu::rope_forward(rotated.data(), table.data(), nullptr, {s.B, s.T, s.H, s.G, s.D});
  });
}

// A rank of two that divide sequences, its T tokens being the first and the last quarter: against its own
// keys, the other's, which are all seen by half of its queries, and all.
void bench_segments(Bench& bench, AttentionShape s) {
  constexpr kernels::ContextPart kFirst{2, 0}, kSecond{2, 1};
  const std::int64_t kv_width = 2 * s.G * s.D;
  const Tensor qkv = tensor(s.B * s.T * (s.H + 2 * s.G) * s.D), dout = tensor(s.B * s.T * s.H * s.D);
  const Tensor own = tensor(s.B * s.T * kv_width), other = tensor(s.B * s.T * kv_width);
  Tensor out(dout.size()), dqkv(qkv.size()), lse(static_cast<std::size_t>(s.B * s.H * s.T));
  Tensor d_own(own.size()), d_other(other.size());
  const cpu::SegmentKeys keys[] = {{kFirst, own.data(), d_own.data(), kv_width},
                                   {kSecond, other.data(), d_other.data(), kv_width}};
  const std::span<const cpu::SegmentKeys> all(keys);
  // Half of each rank's keys is seen, so half of each product's 2 T^2 D counts.
  const double product = number(s.B * s.H) * number(s.T * s.T) * number(s.D);
  const double rows = number(s.B * s.T * s.D), width = number(s.H + s.G) * 2;
  const auto run = [&](const char* of, std::span<const cpu::SegmentKeys> seen) {
    const double ranks = number(static_cast<std::int64_t>(seen.size()));
    const auto name = [&](const char* pass) {
      return shape((std::string("attention_segments_") + pass + of).c_str(),
                   {{"B", s.B}, {"T", s.T}, {"H", s.H}, {"G", s.G}, {"D", s.D}});
    };
    bench.run(name("forward"), rows * width, 2 * ranks * product,
              [&] { cpu::attention_segments_forward(out.data(), lse.data(), qkv.data(), kFirst, seen, s); });
    bench.run(name("backward"), rows * 2 * width, 5 * ranks * product, [&] {
      cpu::attention_segments_backward(dqkv.data(), false, dout.data(), qkv.data(), out.data(), lse.data(),
                                       kFirst, seen, s);
    });
  };
  run(" own", all.first(1));
  run(" other", all.subspan(1));
  run(" all", all);
}

// One new token after `keys` - 1 others.
void bench_decode_attention(Bench& bench, AttentionShape s, std::int64_t keys) {
  const Tensor qkv = tensor(s.B * s.T * (s.H + 2 * s.G) * s.D);
  Tensor k_cache = tensor(s.B * s.G * keys * s.D), v_cache = tensor(s.B * s.G * keys * s.D);
  const auto cache = cpu::contiguous_cache(k_cache.data(), v_cache.data(), keys);
  const std::vector<std::int32_t> positions(static_cast<std::size_t>(s.B),
                                            static_cast<std::int32_t>(keys - s.T));
  Tensor out(static_cast<std::size_t>(s.B * s.T * s.H * s.D));
  bench.run(
      shape("attention_cached", {{"B", s.B}, {"T", s.T}, {"H", s.H}, {"G", s.G}, {"D", s.D}, {"keys", keys}}),
      2 * number(s.B * s.G * keys * s.D), 4 * number(s.B * s.T * s.H) * number(keys * s.D),
      [&] { cpu::attention_cached(out.data(), qkv.data(), cache, positions.data(), s); });
}

struct NamedFormat {
  const char* name;
  kernels::QuantisedFormat format;
};
constexpr NamedFormat kFormats[] = {{"int8", {8, 32, false}},
                                    {"int4", {4, 32, true}},
                                    {"q4_k", {4, 32, true, true}},
                                    {"q6_k", {6, 16, false, true}},
                                    {"q2_k", {2, 16, true, true}}};

// One token's products with `chosen` of `experts` experts. From token to token it chooses others, so that no
// cache holds them.
void bench_decode_experts(Bench& bench, std::int64_t experts, std::int64_t chosen, std::int64_t N,
                          std::int64_t K) {
  constexpr const char* kName = "decode experts";
  if (!bench.wants(kName)) return;
  const Tensor inp = tensor(chosen * K);
  Tensor out(static_cast<std::size_t>(chosen * N));
  {
    constexpr std::int64_t kRows = 65536, kWidth = 2048;
    const Tensor weight(static_cast<std::size_t>(kRows * kWidth), 0.5f), one = tensor(kWidth);
    Tensor product(static_cast<std::size_t>(kRows));
    bench.read("memory: a weight of fp32, one row", 4 * number(kRows * kWidth), [&] {
      cpu::matmul_forward(product.data(), one.data(), weight.data(), nullptr, nullptr, {1, kRows, kWidth});
    });
  }
  for (const auto& [name, format] : kFormats) {
    // All experts have the weights of one.
    const auto code_bytes = static_cast<std::size_t>(format.code_bytes(N, K)),
               number_bytes = static_cast<std::size_t>(format.number_bytes(N, K));
    const auto times = static_cast<std::size_t>(experts);
    std::vector<std::byte> codes(times * code_bytes), numbers(times * number_bytes);
    const kernels::QuantisedWeight weight{codes.data(), numbers.data(), format};
    cpu::quantise(weight, tensor(N * K).data(), N, K);
    for (std::size_t e = 1; e < times; ++e) {
      std::copy_n(codes.data(), code_bytes, codes.data() + e * code_bytes);
      std::copy_n(numbers.data(), number_bytes, numbers.data() + e * number_bytes);
    }
    std::int64_t token = 0;
    std::vector<std::int64_t> offsets(static_cast<std::size_t>(experts) + 1);
    const double bytes = number(chosen) * static_cast<double>(code_bytes + number_bytes);
    bench.read(shape((std::string(kName) + " " + name).c_str(),
                     {{"E", experts}, {"of", chosen}, {"N", N}, {"K", K}}),
               bytes, [&] {
                 // Every (experts / chosen)-th one from the token's own on.
                 std::int64_t taken = 0;
                 const std::int64_t step = experts / chosen, first = token++ % step;
                 for (std::int64_t e = 0; e < experts; ++e) {
                   offsets[static_cast<std::size_t>(e)] = taken;
                   if (e % step == first && taken < chosen) ++taken;
                 }
                 offsets.back() = taken;
                 cpu::grouped_matmul_quantised(out.data(), inp.data(), weight, nullptr, offsets, {N, K});
               });
  }
}

void bench_optimizer(Bench& bench, std::int64_t count) {
  Tensor parameter = tensor(count), gradient = tensor(count), moment1(parameter.size()),
         moment2(parameter.size());
  const std::vector<kernels::AdamWTensor> tensors = {
      {parameter.data(), gradient.data(), moment1.data(), moment2.data(), count, true}};
  bench.run(shape("adamw", {{"count", count}}), 7 * number(count), 0, [&] {
    cpu::adamw(tensors, nullptr, {1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, 10});
  });
  const std::vector<const float*> gradients = {gradient.data()};
  const std::vector<std::int64_t> counts = {count};
  double sum = 0;
  bench.run(shape("squared_norm", {{"count", count}}), number(count), 0,
            [&] { cpu::squared_norm(&sum, gradients, counts); });
}

void bench_sampling(Bench& bench, std::int64_t V) {
  const Tensor logits = tensor(V);
  std::int32_t token = 0;
  bench.run(shape("sample greedy", {{"V", V}}), number(V), 0,
            [&] { cpu::sample(&token, logits.data(), {}, 0, 1, V); });
  bench.run(shape("sample top-k 50 top-p 0.9", {{"V", V}}), number(V), 0, [&] {
    cpu::sample(&token, logits.data(), {1, 50, 0.9f, 1}, 0, 1, V);
  });
}

std::map<std::string, double> read_seconds(const std::string& path) {
  std::map<std::string, double> seconds;
  std::ifstream file(path);
  if (!file) {
    std::fprintf(stderr, "kernels_bench: cannot read %s\n", path.c_str());
    std::exit(4);
  }
  for (std::string name, value; std::getline(file, name, '\t') && std::getline(file, value);)
    seconds[name] = std::stod(value);
  return seconds;
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, double> torch_seconds;
  std::string only;
  int threads = 0;
  double (*now)() = wall_seconds;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--threads" && i + 1 < argc)
      threads = std::atoi(argv[++i]);
    else if (argument == "--only" && i + 1 < argc)
      only = argv[++i];
    else if (argument == "--cpu-time")
      now = cpu_seconds;
    else
      torch_seconds = read_seconds(argument);
  }
  std::printf("%d threads\n", cpu::set_threads(threads));
  cpu::flush_denormals();
  Bench bench(torch_seconds, only, now);

  bench_matmul(bench, 2048, 2048, 2048, false);  // first: the peak that the others are compared with
  // GPT-2 124M: 4 and 1 sequences of 1024.
  for (const std::int64_t R : {1024, 4096}) {
    bench_matmul(bench, R, 2304, 768, true);
    bench_matmul(bench, R, 768, 768, true);
    bench_matmul(bench, R, 3072, 768, true);
    bench_matmul(bench, R, 768, 3072, true);
    bench_rows(bench, R, 768, 3072);
    bench_attention(bench, {R / 1024, 1024, 12, 12, 64}, R == 1024);
  }
  bench_matmul(bench, 1024, 50257, 768, true);
  bench_embedding_and_loss(bench, 1024, 768, 50257);
  bench_optimizer(bench, 124439808);
  // A 10M model with six layers of 384.
  bench_matmul(bench, 4096, 1536, 384, true);
  bench_rows(bench, 4096, 384, 1536);
  bench_attention(bench, {16, 256, 6, 6, 64}, true);
  bench_segments(bench, {16, 128, 6, 6, 64});
  bench_segments(bench, {1, 1024, 12, 12, 64});
  bench_optimizer(bench, 10000000);
  // Decoding SmolLM2-135M.
  for (const std::int64_t M : {1, 4, 8}) {
    bench_matmul(bench, M, 960, 576, false);
    bench_matmul(bench, M, 576, 576, false);
    bench_matmul(bench, M, 3072, 576, false);
    bench_matmul(bench, M, 576, 1536, false);
    bench_matmul(bench, M, 49152, 576, false);
  }
  bench_rows(bench, 1, 576, 1536);
  bench_decode_attention(bench, {1, 1, 9, 3, 64}, 128);
  bench_decode_attention(bench, {1, 1, 9, 3, 64}, 2048);
  bench_decode_attention(bench, {8, 1, 9, 3, 64}, 2048);
  bench_decode_attention(bench, {1, 1, 32, 8, 128}, 8192);
  bench_attention(bench, {1, 2048, 9, 3, 64}, false);
  bench_sampling(bench, 49152);
  // Decoding Qwen3-30B-A3B, with half of its experts, and Mixtral's, narrower.
  bench_decode_experts(bench, 64, 8, 1536, 2048);
  bench_decode_experts(bench, 64, 8, 2048, 768);
  bench_decode_experts(bench, 8, 2, 7168, 2048);
}
