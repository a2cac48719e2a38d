// Attention by sm_90a's warpgroups, as the GPU's kernels compute it, thread by thread.
#include <limits>

#include "kernels/cuda/attention_choice.h"
#include "kernels/cuda/hopper/attention_hopper.h"
#include "tests/cuda/on_gpu.h"
#include "tests/cuda/plain_attention.h"
#include "tests/kernels/reference.h"

namespace cuda = kernels::cuda;
using cuda::Type;
using tests::check_as_accurate_as_plain;
using tests::DeviceArray;
using tests::Scratch;

namespace {

// One tile and several, lengths that fill none, groups of several query heads, several sequences.
struct Case {
  kernels::AttentionShape shape;
  Type type;
};
const std::vector<Case> kCases = {
    {{1, 64, 1, 1, 64}, Type::bf16},   {{1, 135, 2, 1, 64}, Type::bf16}, {{2, 40, 2, 2, 128}, Type::bf16},
    {{1, 300, 2, 1, 128}, Type::bf16}, {{1, 520, 1, 1, 64}, Type::bf16}, {{1, 135, 2, 1, 64}, Type::f16},
    {{1, 300, 2, 1, 128}, Type::f16},
};

constexpr const char* kMissing = "GPU with products of warpgroups (Hopper)";
bool has_warpgroup_products() {
  return cuda::Gpu::compute_capability(0) == 90;
}

std::int64_t packed_size(kernels::AttentionShape s) {
  return s.B * s.T * (s.H + 2 * s.G) * s.D;
}

}  // namespace

TEST_CASE("attention by warpgroups is as accurate as plain attention, whatever the order of threads") {
  if (!has_warpgroup_products()) SKIP_WITHOUT(kMissing);
  for (const bool causal : {true, false})
    for (const Case& c : kCases) {
      const kernels::AttentionShape s = c.shape;
      const Type type = c.type;
      CAPTURE(causal, static_cast<int>(type), s.B, s.T, s.H, s.G, s.D);
      const auto qkv = tests::normal_tensor(packed_size(s), 1, type);
      std::vector<double> exact_lse;
      const auto exact =
          reference::attention_forward<double>(test::to_double(qkv), s, nullptr, &exact_lse, causal);
      std::vector<float> plain_lse;
      reference::attention_forward<float>(qkv, s, nullptr, &plain_lse, causal);
      const auto plain = tests::plain_attention(qkv, std::vector<float>(exact.size()), s, type, causal);
      std::vector<float> lse_values;
      const auto values = tests::in_every_order([&] {
        DeviceArray qkv_array(qkv, type), out(s.B * s.T * s.H * s.D, type), lse(s.B * s.H * s.T, Type::f32);
        cuda::attention_hopper_forward(tests::no_scratch(), out, lse.f32(), qkv_array, s, {.causal = causal});
        lse_values = lse.values();
        return out.values();
      });
      check_as_accurate_as_plain(values, plain.out, exact, type, test::kForward);
      check_as_accurate_as_plain(lse_values, plain_lse, exact_lse, Type::f32, test::kForward);
    }
}

TEST_CASE("attention by warpgroups with sinks is as accurate as attention to one more key without a value") {
  if (!has_warpgroup_products()) SKIP_WITHOUT(kMissing);
  for (const Case& c : kCases)
    for (const float size : {1.0f, 30.0f}) {  // sinks among the scores, and far beyond them
      const kernels::AttentionShape s = c.shape;
      CAPTURE(static_cast<int>(c.type), s.B, s.T, s.H, s.G, s.D, size);
      const auto qkv = tests::normal_tensor(packed_size(s), 1, c.type),
                 sinks = tests::normal_tensor(s.H, 2, c.type, size);
      const auto with_sinks = [&](auto out, const auto& lse, auto& lse_with) {
        using Real = typename decltype(out)::value_type;
        lse_with = lse;
        for (std::int64_t b = 0; b < s.B; ++b)
          for (std::int64_t h = 0; h < s.H; ++h)
            for (std::int64_t t = 0; t < s.T; ++t) {
              const auto row = static_cast<std::size_t>((b * s.H + h) * s.T + t);
              const Real sink = sinks[static_cast<std::size_t>(h)], top = std::max(lse[row], sink);
              lse_with[row] = top + std::log(std::exp(lse[row] - top) + std::exp(sink - top));
              for (std::int64_t d = 0; d < s.D; ++d)
                out[static_cast<std::size_t>(((b * s.T + t) * s.H + h) * s.D + d)] *=
                    std::exp(lse[row] - lse_with[row]);
            }
        return out;
      };
      std::vector<double> exact_lse, exact_with;
      const auto exact =
          with_sinks(reference::attention_forward<double>(test::to_double(qkv), s, nullptr, &exact_lse),
                     exact_lse, exact_with);
      std::vector<float> plain_lse, plain_with;
      reference::attention_forward<float>(qkv, s, nullptr, &plain_lse);
      const auto plain =
          with_sinks(tests::plain_attention(qkv, std::vector<float>(exact.size()), s, c.type, true).out,
                     plain_lse, plain_with);
      std::vector<float> lse_values;
      const auto values = tests::in_every_order([&] {
        DeviceArray qkv_array(qkv, c.type), of_heads(sinks, c.type), out(s.B * s.T * s.H * s.D, c.type),
            lse(s.B * s.H * s.T, Type::f32);
        cuda::attention_hopper_forward(tests::no_scratch(), out, lse.f32(), qkv_array, s,
                                       {.sinks = of_heads});
        lse_values = lse.values();
        return out.values();
      });
      check_as_accurate_as_plain(values, tests::rounded(plain, c.type), exact, c.type, test::kForward);
      check_as_accurate_as_plain(lse_values, plain_with, exact_with, Type::f32, test::kForward);
    }
}

TEST_CASE("its gradients are as accurate as plain attention's, whatever the order of threads") {
  if (!has_warpgroup_products()) SKIP_WITHOUT(kMissing);
  for (const bool causal : {true, false})
    for (const Case& c : kCases) {
      const kernels::AttentionShape s = c.shape;
      const Type type = c.type;
      CAPTURE(causal, static_cast<int>(type), s.B, s.T, s.H, s.G, s.D);
      const auto qkv = tests::normal_tensor(packed_size(s), 1, type);
      const auto dout = tests::normal_tensor(s.B * s.T * s.H * s.D, 2, type);
      const auto exact =
          reference::attention_backward<double>(test::to_double(dout), test::to_double(qkv), s, causal);
      const auto plain = tests::plain_attention(qkv, dout, s, type, causal);
      const auto dqkv = tests::in_every_order([&] {
        Scratch scratch(cuda::attention_hopper_backward_scratch(s));
        DeviceArray qkv_array(qkv, type), dout_array(dout, type), gradients(packed_size(s), type),
            out(s.B * s.T * s.H * s.D, type), lse(s.B * s.H * s.T, Type::f32);
        const cuda::AttentionMask mask{.causal = causal};
        cuda::attention_hopper_forward(tests::no_scratch(), out, lse.f32(), qkv_array, s, mask);
        cuda::attention_hopper_backward(scratch.context(), gradients, dout_array, qkv_array, out, lse.f32(),
                                        s, mask);
        return gradients.values();
      });
      check_as_accurate_as_plain(dqkv, plain.dqkv, exact, type, test::kBackward);
    }
}

// Keys beyond the end are zeros: beside scores far below zero they would weigh beyond all bounds.
TEST_CASE("gradients by warpgroups are finite where all scores are far below zero") {
  if (!has_warpgroup_products()) SKIP_WITHOUT(kMissing);
  for (const std::int64_t D : {64, 128}) {
    const kernels::AttentionShape s{1, 70, 1, 1, D};
    auto qkv = tests::normal_tensor(packed_size(s), 1, Type::bf16);
    for (std::int64_t i = 0; i < packed_size(s); ++i) {
      const std::int64_t head = i / D % 3;
      if (head < 2) qkv[static_cast<std::size_t>(i)] = head == 0 ? 6.0f : -6.0f;  // scores of -288 and less
    }
    Scratch scratch(cuda::attention_hopper_backward_scratch(s));
    DeviceArray qkv_array(qkv, Type::bf16), dout(tests::normal_tensor(s.T * D, 2, Type::bf16), Type::bf16),
        gradients(packed_size(s), Type::bf16), out(s.T * D, Type::bf16), lse(s.T, Type::f32);
    const cuda::AttentionMask full{.causal = false};
    cuda::attention_hopper_forward(tests::no_scratch(), out, lse.f32(), qkv_array, s, full);
    cuda::attention_hopper_backward(scratch.context(), gradients, dout, qkv_array, out, lse.f32(), s, full);
    for (const float x : gradients.values()) REQUIRE(std::isfinite(x));
  }
}

TEST_CASE("attention by warpgroups refuses what it has no kernel for") {
  const cuda::Context context{};
  for (const std::int64_t D : {80, 96})
    CHECK_THROWS_AS(
        cuda::attention_hopper_forward(context, {}, nullptr, {nullptr, Type::bf16}, {1, 64, 1, 1, D}),
        cuda::CudaError);
  CHECK(cuda::hopper_takes(Type::bf16, {1, 64, 1, 1, 128}, {}));
  CHECK(cuda::hopper_takes(Type::f16, {1, 64, 1, 1, 128}, {}));
  CHECK_FALSE(cuda::hopper_takes(Type::f32, {1, 64, 1, 1, 128}, {}));
  const std::int32_t cu_seqlens[] = {0, 64};
  CHECK_FALSE(cuda::hopper_takes(Type::bf16, {1, 64, 1, 1, 128}, {true, cu_seqlens, 64}));
}

TEST_CASE("results of the same attention agree unless they are far apart, or no numbers") {
  const std::vector<float> a = {1, -2, 3, 4}, near = {1.005f, -2, 2.99f, 4}, far = {1, -2, 3, 3.5f},
                           none = {1, -2, 3, std::numeric_limits<float>::quiet_NaN()};
  CHECK(cuda::agree(a, near));
  CHECK_FALSE(cuda::agree(a, far));
  CHECK_FALSE(cuda::agree(a, none));
  CHECK_FALSE(cuda::agree(none, none));
}

TEST_CASE("whichever kernels are chosen, what they do not take is done all the same") {
  if (!has_warpgroup_products()) SKIP_WITHOUT(kMissing);
  struct Choice {
    kernels::AttentionShape shape;
    Type type;
    std::int64_t scratch;  // too little for the sums of dQ in fp32, where it is little
    int taken;             // of the two passes, by Hopper's kernels
  };
  for (const Choice& c :
       {Choice{{1, 40, 1, 1, 64}, Type::bf16, 1 << 20, 2}, Choice{{1, 40, 1, 1, 64}, Type::bf16, 1 << 10, 1},
        Choice{{1, 40, 1, 1, 80}, Type::bf16, 1 << 20, 0}, Choice{{1, 40, 1, 1, 64}, Type::f16, 1 << 20, 2},
        Choice{{1, 40, 1, 1, 64}, Type::f32, 1 << 20, 0}}) {
    const kernels::AttentionShape s = c.shape;
    CAPTURE(s.D, c.scratch);
    const auto qkv = tests::normal_tensor(packed_size(s), 1, c.type);
    const auto dout = tests::normal_tensor(s.B * s.T * s.H * s.D, 2, c.type);
    const auto exact = reference::attention_backward<double>(test::to_double(dout), test::to_double(qkv), s);
    const auto plain = tests::plain_attention(qkv, dout, s, c.type);
    Scratch scratch(c.scratch);
    DeviceArray qkv_array(qkv, c.type), dout_array(dout, c.type), gradients(packed_size(s), c.type),
        out(s.B * s.T * s.H * s.D, c.type), lse(s.B * s.H * s.T, Type::f32);
    cuda::AttentionKernels kernels(90, true);
    for (int run = 0; run < 2; ++run) {  // the first time, both are tried
      kernels.forward(scratch.context(), out, lse.f32(), qkv_array, s);
      kernels.backward(scratch.context(), gradients, dout_array, qkv_array, out, lse.f32(), s);
    }
    CHECK(kernels.counts().hopper == c.taken);
    CHECK(kernels.counts().disagreeing == 0);
    check_as_accurate_as_plain(gradients.values(), plain.dqkv, exact, c.type, test::kBackward);
  }
}

TEST_CASE("a GPU without products of warpgroups never takes Hopper's kernels") {
  const kernels::AttentionShape s{1, 40, 1, 1, 64};
  const auto qkv = tests::normal_tensor(packed_size(s), 1, Type::bf16);
  Scratch scratch(1 << 20);
  DeviceArray qkv_array(qkv, Type::bf16), out(s.B * s.T * s.H * s.D, Type::bf16),
      lse(s.B * s.H * s.T, Type::f32);
  cuda::AttentionKernels kernels(89, true);
  kernels.forward(scratch.context(), out, lse.f32(), qkv_array, s);
  CHECK(kernels.counts().shapes == 0);
}
