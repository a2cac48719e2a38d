// Flash and cached attention as the GPU's kernels compute them, thread by thread.
#include "kernels/cuda/attention.h"

#include "tests/cuda/on_gpu.h"
#include "tests/cuda/plain_attention.h"
#include "tests/kernels/reference.h"

namespace cuda = kernels::cuda;
using cuda::Type;
using test::kBackward;
using test::kForward;
using tests::check_as_accurate_as_plain;
using tests::DeviceArray;
using tests::Scratch;

namespace {

struct Case {
  kernels::AttentionShape shape;  // B, T, H, G, D
  Type type;
};

// Lengths on both sides of a tile's border, groups of several query heads, head sizes of every tile width,
// and what the tensor cores do not take.
const std::vector<Case> kCases = {
    {{1, 64, 1, 1, 64}, Type::bf16}, {{2, 65, 2, 1, 64}, Type::bf16},  {{1, 130, 2, 2, 80}, Type::bf16},
    {{1, 33, 3, 1, 96}, Type::bf16}, {{1, 97, 2, 1, 128}, Type::bf16}, {{1, 40, 2, 1, 16}, Type::bf16},
    {{1, 20, 2, 1, 12}, Type::bf16}, {{1, 37, 2, 1, 24}, Type::f32},
};

std::int64_t packed_size(kernels::AttentionShape s) {
  return s.B * s.T * (s.H + 2 * s.G) * s.D;
}

std::vector<float> joined(std::vector<float> first, const std::vector<float>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

}  // namespace

TEST_CASE("flash attention is as accurate as plain attention, whatever the order of threads") {
  for (const Case& c : kCases) {
    const kernels::AttentionShape s = c.shape;
    CAPTURE(s.B, s.T, s.H, s.G, s.D);
    const auto qkv = tests::normal_tensor(packed_size(s), 1, c.type);
    std::vector<double> exact_lse;
    const auto exact = reference::attention_forward<double>(test::to_double(qkv), s, nullptr, &exact_lse);
    std::vector<float> plain_lse;
    reference::attention_forward<float>(qkv, s, nullptr, &plain_lse);
    const auto plain = tests::plain_attention(qkv, std::vector<float>(exact.size()), s, c.type);

    std::vector<float> lse_values;
    const auto out_values = tests::in_every_order([&] {
      DeviceArray qkv_array(qkv, c.type), out(s.B * s.T * s.H * s.D, c.type), lse(s.B * s.H * s.T, Type::f32);
      cuda::attention_flash_forward(tests::no_scratch(), out, lse.f32(), qkv_array, s);
      lse_values = lse.values();
      return joined(out.values(), lse_values);
    });
    check_as_accurate_as_plain(
        {out_values.begin(), out_values.begin() + static_cast<std::ptrdiff_t>(exact.size())}, plain.out,
        exact, c.type, kForward);
    // Scores are sums of products that no rounding has touched: the log-sum-exp is that of fp32.
    check_as_accurate_as_plain(lse_values, plain_lse, exact_lse, Type::f32, kForward);
  }
}

TEST_CASE("flash attention's gradients are as accurate as plain attention's, whatever the order of threads") {
  for (const Case& c : kCases) {
    const kernels::AttentionShape s = c.shape;
    CAPTURE(s.B, s.T, s.H, s.G, s.D);
    const auto qkv = tests::normal_tensor(packed_size(s), 1, c.type);
    const auto dout = tests::normal_tensor(s.B * s.T * s.H * s.D, 2, c.type);
    const auto exact = reference::attention_backward<double>(test::to_double(dout), test::to_double(qkv), s);
    const auto plain = tests::plain_attention(qkv, dout, s, c.type);

    const auto dqkv = tests::in_every_order([&] {
      Scratch scratch;
      DeviceArray qkv_array(qkv, c.type), dout_array(dout, c.type), gradients(packed_size(s), c.type);
      DeviceArray out(s.B * s.T * s.H * s.D, c.type), lse(s.B * s.H * s.T, Type::f32);
      cuda::attention_flash_forward(tests::no_scratch(), out, lse.f32(), qkv_array, s);
      cuda::attention_flash_backward(scratch.context(), gradients, dout_array, qkv_array, out, lse.f32(), s);
      return gradients.values();
    });
    check_as_accurate_as_plain(dqkv, plain.dqkv, exact, c.type, kBackward);
  }
}

TEST_CASE("tokens decoded against a cache see what they see in the whole sequence") {
  struct Decode {
    kernels::AttentionShape shape;  // T: new tokens
    std::int64_t earlier, capacity;
    Type type;
  };
  // One token and several; few keys, several tiles of them split over blocks; a group of sixteen; more rows
  // than one tile of queries holds.
  const std::vector<Decode> cases = {
      {{2, 1, 4, 2, 64}, 0, 8, Type::bf16},     {{2, 1, 4, 1, 64}, 130, 200, Type::bf16},
      {{1, 3, 4, 2, 80}, 62, 70, Type::bf16},   {{1, 1, 16, 1, 128}, 64, 65, Type::bf16},
      {{1, 40, 2, 1, 96}, 30, 128, Type::bf16}, {{1, 2, 2, 1, 20}, 9, 12, Type::f32},
  };
  for (const Decode& c : cases) {
    const kernels::AttentionShape s = c.shape;
    CAPTURE(s.B, s.T, s.H, s.G, s.D, c.earlier);
    const std::int64_t all = c.earlier + s.T, width = (s.H + 2 * s.G) * s.D;
    const kernels::AttentionShape whole{s.B, all, s.H, s.G, s.D};
    const auto qkv = tests::normal_tensor(packed_size(whole), 3, c.type);
    const auto exact_all = reference::attention_forward<double>(test::to_double(qkv), whole);
    const auto plain_all =
        tests::plain_attention(qkv, std::vector<float>(exact_all.size()), whole, c.type).out;
    std::vector<float> earlier_rows, new_rows, plain;
    std::vector<double> exact;
    for (std::int64_t b = 0; b < s.B; ++b) {
      const auto row = qkv.begin() + b * all * width;
      earlier_rows.insert(earlier_rows.end(), row, row + c.earlier * width);
      new_rows.insert(new_rows.end(), row + c.earlier * width, row + all * width);
      const std::int64_t begin = (b * all + c.earlier) * s.H * s.D, end = (b + 1) * all * s.H * s.D;
      exact.insert(exact.end(), exact_all.begin() + begin, exact_all.begin() + end);
      plain.insert(plain.end(), plain_all.begin() + begin, plain_all.begin() + end);
    }
    tests::OnGpu<std::int32_t> start(std::vector<std::int32_t>(static_cast<std::size_t>(s.B), 0));
    tests::OnGpu<std::int32_t> positions(
        std::vector<std::int32_t>(static_cast<std::size_t>(s.B), static_cast<std::int32_t>(c.earlier)));
    const auto values = tests::in_every_order([&] {
      Scratch scratch;
      DeviceArray earlier(earlier_rows, c.type), now(new_rows, c.type), out(s.B * s.T * s.H * s.D, c.type);
      // Beyond what has been appended the cache is NaN, which nothing may read.
      DeviceArray k(s.B * s.G * c.capacity * s.D, c.type), v(s.B * s.G * c.capacity * s.D, c.type);
      if (c.earlier > 0)
        cuda::kv_append(tests::no_scratch(), k, v, earlier, start.data(), {s.B, c.earlier, s.H, s.G, s.D},
                        c.capacity);
      cuda::kv_append(tests::no_scratch(), k, v, now, positions.data(), s, c.capacity);
      cuda::attention_cached(scratch.context(), out, now, k, v, positions.data(), s, c.capacity);
      return out.values();
    });
    check_as_accurate_as_plain(values, plain, exact, c.type, kForward);
  }
}
