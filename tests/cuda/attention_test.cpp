// Flash and cached attention as the GPU's kernels compute them, thread by thread.
#include "kernels/cuda/attention.h"

#include <algorithm>
#include <random>

#include "kernels/cuda/embedding.h"
#include "kernels/cuda/optimizer.h"
#include "kernels/rope.h"
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
    {{1, 20, 2, 1, 12}, Type::bf16}, {{1, 37, 2, 1, 24}, Type::f32},   {{2, 65, 2, 1, 64}, Type::f16},
    {{1, 130, 2, 2, 80}, Type::f16}, {{1, 33, 3, 1, 96}, Type::f16},   {{1, 97, 2, 1, 128}, Type::f16},
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
  for (const bool causal : {true, false})
    for (const Case& c : kCases) {
      const kernels::AttentionShape s = c.shape;
      CAPTURE(causal, s.B, s.T, s.H, s.G, s.D);
      const auto qkv = tests::normal_tensor(packed_size(s), 1, c.type);
      std::vector<double> exact_lse;
      const auto exact =
          reference::attention_forward<double>(test::to_double(qkv), s, nullptr, &exact_lse, causal);
      std::vector<float> plain_lse;
      reference::attention_forward<float>(qkv, s, nullptr, &plain_lse, causal);
      const auto plain = tests::plain_attention(qkv, std::vector<float>(exact.size()), s, c.type, causal);

      std::vector<float> lse_values;
      const auto out_values = tests::in_every_order([&] {
        DeviceArray qkv_array(qkv, c.type), out(s.B * s.T * s.H * s.D, c.type),
            lse(s.B * s.H * s.T, Type::f32);
        cuda::attention_flash_forward(tests::no_scratch(), out, lse.f32(), qkv_array, s, {.causal = causal});
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
  for (const bool causal : {true, false})
    for (const Case& c : kCases) {
      const kernels::AttentionShape s = c.shape;
      CAPTURE(causal, s.B, s.T, s.H, s.G, s.D);
      const auto qkv = tests::normal_tensor(packed_size(s), 1, c.type);
      const auto dout = tests::normal_tensor(s.B * s.T * s.H * s.D, 2, c.type);
      const auto exact =
          reference::attention_backward<double>(test::to_double(dout), test::to_double(qkv), s, causal);
      const auto plain = tests::plain_attention(qkv, dout, s, c.type, causal);

      const auto dqkv = tests::in_every_order([&] {
        Scratch scratch;
        DeviceArray qkv_array(qkv, c.type), dout_array(dout, c.type), gradients(packed_size(s), c.type);
        DeviceArray out(s.B * s.T * s.H * s.D, c.type), lse(s.B * s.H * s.T, Type::f32);
        const cuda::AttentionMask mask{.causal = causal};
        cuda::attention_flash_forward(tests::no_scratch(), out, lse.f32(), qkv_array, s, mask);
        cuda::attention_flash_backward(scratch.context(), gradients, dout_array, qkv_array, out, lse.f32(), s,
                                       mask);
        return gradients.values();
      });
      check_as_accurate_as_plain(dqkv, plain.dqkv, exact, c.type, kBackward);
    }
}

// Under a loss scale that is too large, a score's gradient may be beyond fp16's 65,504 where it is rounded
// for the next product. It must come out as no finite number there, which is what lowers the scale, and never
// as a number that is wrong.
TEST_CASE("where fp16 cannot hold the gradients of scores, the step's overflow is found") {
  const kernels::AttentionShape s{1, 70, 2, 1, 64};
  const std::int64_t heads = s.H + 2 * s.G;
  auto qkv = tests::normal_tensor(packed_size(s), 1, Type::f16);
  for (std::size_t i = 0; i < qkv.size(); ++i)  // values of 16, so that dout and dV stay far below the limit
    if (static_cast<std::int64_t>(i) / s.D % heads >= s.H + s.G) qkv[i] *= 16;
  for (const bool overflows : {false, true}) {
    CAPTURE(overflows);
    const auto dout = tests::normal_tensor(s.B * s.T * s.H * s.D, 2, Type::f16, overflows ? 0x1p11f : 1);
    Scratch scratch;
    DeviceArray qkv_array(qkv, Type::f16), dout_array(dout, Type::f16), gradients(packed_size(s), Type::f16),
        out(s.B * s.T * s.H * s.D, Type::f16), lse(s.B * s.H * s.T, Type::f32);
    cuda::attention_flash_forward(tests::no_scratch(), out, lse.f32(), qkv_array, s);
    cuda::attention_flash_backward(scratch.context(), gradients, dout_array, qkv_array, out, lse.f32(), s);
    tests::OnGpu<float> found(0.0f);
    const cuda::GradientTensor tensors[] = {{gradients, packed_size(s)}};
    cuda::find_overflow(tests::no_scratch(), found.data(), tensors);
    CHECK((found.value() == 1) == overflows);
    const auto values = gradients.values();
    for (std::size_t i = 0; i < values.size(); ++i)
      if (static_cast<std::int64_t>(i) / s.D % heads >= s.H + s.G) REQUIRE(std::isfinite(values[i]));
  }
}

TEST_CASE("packed sequences of different lengths give, bit by bit, what each gives alone") {
  struct Packed {
    std::int64_t H, G, D;
    std::vector<std::int32_t> lengths;
  };
  const std::vector<Packed> cases = {
      {2, 1, 64, {66, 1, 0, 130, 64}}, {1, 1, 128, {3, 65, 0, 20}}, {1, 1, 12, {9, 0, 1, 6}}};
  for (const bool causal : {true, false})
    for (const Packed& c : cases) {
      CAPTURE(causal, c.H, c.G, c.D);
      const std::vector<std::int32_t>& lengths = c.lengths;
      std::vector<std::int32_t> cu_seqlens = {0};
      for (const std::int32_t length : lengths) cu_seqlens.push_back(cu_seqlens.back() + length);
      const std::int64_t rows = cu_seqlens.back(),
                         longest = *std::max_element(lengths.begin(), lengths.end());
      tests::OnGpu<std::int32_t> starts(cu_seqlens);
      const std::int64_t packed = (c.H + 2 * c.G) * c.D, width = c.H * c.D;
      const auto qkv = tests::normal_tensor(rows * packed, 1, Type::bf16);
      const auto dout = tests::normal_tensor(rows * width, 2, Type::bf16);
      std::vector<float> packed_out, packed_dqkv, packed_lse;
      tests::in_every_order([&] {
        Scratch scratch;
        DeviceArray qkv_array(qkv, Type::bf16), dout_array(dout, Type::bf16), out(rows * width, Type::bf16),
            gradients(rows * packed, Type::bf16), lse(c.H * rows, Type::f32);
        const kernels::AttentionShape s{static_cast<std::int64_t>(lengths.size()), longest, c.H, c.G, c.D};
        const cuda::AttentionMask mask{causal, starts.data(), rows};
        cuda::attention_flash_forward(tests::no_scratch(), out, lse.f32(), qkv_array, s, mask);
        cuda::attention_flash_backward(scratch.context(), gradients, dout_array, qkv_array, out, lse.f32(), s,
                                       mask);
        packed_out = out.values();
        packed_dqkv = gradients.values();
        packed_lse = lse.values();
        return joined(packed_out, packed_dqkv);
      });
      for (std::size_t b = 0; b < lengths.size(); ++b) {
        if (lengths[b] == 0) continue;
        const kernels::AttentionShape s{1, lengths[b], c.H, c.G, c.D};
        const std::int64_t first = cu_seqlens[b];
        const auto part = [first](const std::vector<float>& all, std::int64_t row_width, std::int64_t count) {
          return std::vector<float>(all.begin() + first * row_width,
                                    all.begin() + (first + count) * row_width);
        };
        Scratch scratch;
        DeviceArray qkv_array(part(qkv, packed, s.T), Type::bf16),
            dout_array(part(dout, width, s.T), Type::bf16), out(s.T * width, Type::bf16),
            gradients(s.T * packed, Type::bf16), lse(c.H * s.T, Type::f32);
        const cuda::AttentionMask mask{.causal = causal};
        cuda::attention_flash_forward(tests::no_scratch(), out, lse.f32(), qkv_array, s, mask);
        cuda::attention_flash_backward(scratch.context(), gradients, dout_array, qkv_array, out, lse.f32(), s,
                                       mask);
        CHECK(out.values() == part(packed_out, width, s.T));
        CHECK(gradients.values() == part(packed_dqkv, packed, s.T));
        const std::vector<float> alone = lse.values();
        for (std::int64_t head = 0; head < c.H; ++head)
          for (std::int64_t t = 0; t < s.T; ++t)
            CHECK(alone[head * s.T + t] == packed_lse[head * rows + first + t]);
      }
    }
}

namespace {

struct Decode {
  kernels::AttentionShape shape;  // T: new tokens
  std::int64_t earlier, capacity;
  Type type;
};

// One token and several; few keys, several tiles of them split over blocks; a group of sixteen; more rows
// than one tile of queries holds.
const std::vector<Decode> kDecodes = {
    {{2, 1, 4, 2, 64}, 0, 8, Type::bf16},     {{2, 1, 4, 1, 64}, 130, 200, Type::bf16},
    {{1, 3, 4, 2, 80}, 62, 70, Type::bf16},   {{1, 1, 16, 1, 128}, 64, 65, Type::bf16},
    {{1, 40, 2, 1, 96}, 30, 128, Type::bf16}, {{2, 2, 4, 2, 96}, 300, 310, Type::bf16},
    {{1, 1, 2, 1, 24}, 20, 32, Type::bf16},   {{1, 2, 2, 1, 20}, 9, 12, Type::f32},
    {{2, 1, 4, 1, 64}, 130, 200, Type::f16},  {{1, 3, 4, 2, 80}, 62, 70, Type::f16},
    {{1, 40, 2, 1, 96}, 30, 128, Type::f16},  {{1, 1, 16, 1, 128}, 64, 65, Type::f16},
};

// The rows of a decode's sequences, earlier tokens and new ones.
struct DecodeRows {
  std::vector<float> earlier, now;
};
DecodeRows split_rows(const std::vector<float>& qkv, const Decode& c) {
  const std::int64_t all = c.earlier + c.shape.T, width = (c.shape.H + 2 * c.shape.G) * c.shape.D;
  DecodeRows rows;
  for (std::int64_t b = 0; b < c.shape.B; ++b) {
    const auto row = qkv.begin() + b * all * width;
    rows.earlier.insert(rows.earlier.end(), row, row + c.earlier * width);
    rows.now.insert(rows.now.end(), row + c.earlier * width, row + all * width);
  }
  return rows;
}

template <class Value>
std::vector<Value> of_new_tokens(const std::vector<Value>& out, const Decode& c) {
  const std::int64_t all = c.earlier + c.shape.T, width = c.shape.H * c.shape.D;
  std::vector<Value> part;
  for (std::int64_t b = 0; b < c.shape.B; ++b)
    part.insert(part.end(), out.begin() + (b * all + c.earlier) * width, out.begin() + (b + 1) * all * width);
  return part;
}

// A cache in blocks that lie in no order, with some that belong to nobody.
class PagedCache {
 public:
  PagedCache(const Decode& c, std::int64_t block_size)
      : blocks_((c.capacity + block_size - 1) / block_size),
        memory_(2 * (2 * c.shape.B * blocks_ + 1) * c.shape.G * block_size * c.shape.D, c.type),
        table_(shuffled_table(c.shape.B * blocks_)) {
    const std::int64_t elements = (2 * c.shape.B * blocks_ + 1) * c.shape.G * block_size * c.shape.D;
    const cuda::Tensor all = memory_;
    std::byte* const values = static_cast<std::byte*>(all.data) + elements * cuda::size_of(c.type);
    cache_ = {all, {values, c.type}, block_size, table_.data(), blocks_};
  }
  const cuda::KvCache& cache() const { return cache_; }

 private:
  static std::vector<std::int32_t> shuffled_table(std::int64_t count) {
    std::vector<std::int32_t> table(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<std::int32_t>(2 * i + 1);
    std::shuffle(table.begin(), table.end(), std::mt19937(3));
    return table;
  }

  std::int64_t blocks_;
  DeviceArray memory_;
  tests::OnGpu<std::int32_t> table_;
  cuda::KvCache cache_;
};

// Appends the earlier tokens, then the new ones, and attends to them.
std::vector<float> decoded(const Decode& c, const DecodeRows& rows, const cuda::KvCache& cache) {
  const kernels::AttentionShape s = c.shape;
  tests::OnGpu<std::int32_t> start(std::vector<std::int32_t>(static_cast<std::size_t>(s.B), 0));
  tests::OnGpu<std::int32_t> positions(
      std::vector<std::int32_t>(static_cast<std::size_t>(s.B), static_cast<std::int32_t>(c.earlier)));
  Scratch scratch;
  DeviceArray earlier(rows.earlier, c.type), now(rows.now, c.type), out(s.B * s.T * s.H * s.D, c.type);
  if (c.earlier > 0)
    cuda::kv_append(tests::no_scratch(), cache, earlier, start.data(), {s.B, c.earlier, s.H, s.G, s.D});
  cuda::kv_append(tests::no_scratch(), cache, now, positions.data(), s);
  cuda::attention_cached(scratch.context(), out, now, cache, positions.data(), s);
  return out.values();
}

}  // namespace

TEST_CASE("tokens decoded against a cache see what they see in the whole sequence") {
  for (const Decode& c : kDecodes) {
    const kernels::AttentionShape s = c.shape;
    CAPTURE(s.B, s.T, s.H, s.G, s.D, c.earlier);
    const kernels::AttentionShape whole{s.B, c.earlier + s.T, s.H, s.G, s.D};
    const auto qkv = tests::normal_tensor(packed_size(whole), 3, c.type);
    const auto exact = reference::attention_forward<double>(test::to_double(qkv), whole);
    const auto plain = tests::plain_attention(qkv, std::vector<float>(exact.size()), whole, c.type).out;
    const DecodeRows rows = split_rows(qkv, c);
    const auto contiguous = tests::in_every_order([&] {
      // Beyond what has been appended the cache is NaN, which nothing may read.
      DeviceArray k(s.B * s.G * c.capacity * s.D, c.type), v(s.B * s.G * c.capacity * s.D, c.type);
      return decoded(c, rows, cuda::contiguous_cache(k, v, c.capacity));
    });
    check_as_accurate_as_plain(contiguous, of_new_tokens(plain, c), of_new_tokens(exact, c), c.type,
                               kForward);
    for (const std::int64_t block_size : {16, 48}) {
      CAPTURE(block_size);
      const auto paged = tests::in_every_order([&] {
        PagedCache pages(c, block_size);
        return decoded(c, rows, pages.cache());
      });
      check_as_accurate_as_plain(paged, of_new_tokens(plain, c), of_new_tokens(exact, c), c.type, kForward);
    }
  }
}

// What the cache holds is rounded, and that alone: against attention to the rounded keys and values, the
// error is that of 16 bits.
TEST_CASE("attention to an fp8 cache is attention to the keys and values that fp8 leaves") {
  for (const Decode& c : kDecodes) {
    const kernels::AttentionShape s = c.shape;
    CAPTURE(s.B, s.T, s.H, s.G, s.D, c.earlier);
    const kernels::AttentionShape whole{s.B, c.earlier + s.T, s.H, s.G, s.D};
    const std::int64_t width = (s.H + 2 * s.G) * s.D;
    const auto qkv = tests::normal_tensor(packed_size(whole), 3, c.type);
    std::vector<float> k_scale, v_scale;
    for (std::int64_t g = 0; g < s.G; ++g) {
      k_scale.push_back(0.01f + 0.005f * static_cast<float>(g));
      v_scale.push_back(0.003f * static_cast<float>(g + 1));  // some values saturate: 448 * 0.003 < 3
    }
    std::vector<float> stored = qkv;
    for (std::size_t i = 0; i < stored.size(); ++i) {
      const std::int64_t head = static_cast<std::int64_t>(i) % width / s.D - s.H;
      if (head < 0) continue;
      const float scale = head < s.G ? k_scale[static_cast<std::size_t>(head)]
                                     : v_scale[static_cast<std::size_t>(head - s.G)];
      stored[i] = cuda::to_float(cuda::to_e4m3(qkv[i] * (1 / scale))) * scale;
    }
    const auto exact = reference::attention_forward<double>(test::to_double(stored), whole);
    const auto plain = tests::plain_attention(stored, std::vector<float>(exact.size()), whole, c.type).out;
    tests::OnGpu<float> k_scales(k_scale), v_scales(v_scale);
    const auto values = tests::in_every_order([&] {
      const std::int64_t block_size = 32, blocks = (c.capacity + block_size - 1) / block_size;
      std::vector<std::int32_t> table;
      for (std::int64_t i = s.B * blocks - 1; i >= 0; --i) table.push_back(static_cast<std::int32_t>(i));
      tests::OnGpu<std::int32_t> block_table(table);
      const auto bytes = static_cast<std::size_t>(s.B * blocks * s.G * block_size * s.D);
      constexpr std::uint8_t kNan = 0x7f;
      tests::OnGpu<std::uint8_t> k(std::vector<std::uint8_t>(bytes, kNan)), v(k.values());
      cuda::KvCache cache{{k.data(), c.type}, {v.data(), c.type}, block_size, block_table.data(), blocks};
      cache.k_scale = k_scales.data();
      cache.v_scale = v_scales.data();
      return decoded(c, split_rows(qkv, c), cache);
    });
    check_as_accurate_as_plain(values, of_new_tokens(plain, c), of_new_tokens(exact, c), c.type, kForward);
  }
}

TEST_CASE("rotating on the way into the cache gives, bit by bit, what rotating before gives") {
  for (const Decode& c : kDecodes)
    for (const bool fp8 : {false, true}) {
      const kernels::AttentionShape s = c.shape;
      CAPTURE(s.B, s.T, s.H, s.G, s.D, c.earlier, fp8);
      const auto qkv = tests::normal_tensor(packed_size(s), 3, c.type);
      std::vector<float> table(static_cast<std::size_t>(c.capacity * s.D));
      kernels::cpu::rope_table(table.data(), 10000.0, {}, c.capacity, s.D);
      tests::OnGpu<float> table_on_gpu(table);
      tests::OnGpu<std::int32_t> positions(
          std::vector<std::int32_t>(static_cast<std::size_t>(s.B), static_cast<std::int32_t>(c.earlier)));
      tests::OnGpu<float> scales(std::vector<float>(static_cast<std::size_t>(s.G), 0.013f));
      std::vector<float> rotated, unfused;
      for (const bool fused : {true, false}) {
        auto& result = fused ? rotated : unfused;
        result = tests::in_every_order([&] {
          DeviceArray rows(qkv, c.type);
          PagedCache pages(c, 16);
          cuda::KvCache cache = pages.cache();  // e4m3 takes a part of the memory
          if (fp8) cache.k_scale = cache.v_scale = scales.data();
          DeviceArray zeros(
              std::vector<float>(static_cast<std::size_t>(s.B * c.earlier * (s.H + 2 * s.G) * s.D)), c.type);
          tests::OnGpu<std::int32_t> start(std::vector<std::int32_t>(static_cast<std::size_t>(s.B), 0));
          if (c.earlier > 0)
            cuda::kv_append(tests::no_scratch(), cache, zeros, start.data(), {s.B, c.earlier, s.H, s.G, s.D});
          if (fused) {
            cuda::rope_kv_append(tests::no_scratch(), rows, cache, table_on_gpu.data(), positions.data(), s);
          } else {
            cuda::rope(tests::no_scratch(), rows, table_on_gpu.data(), positions.data(), 1.0f,
                       {s.B, s.T, s.H, s.G, s.D});
            cuda::kv_append(tests::no_scratch(), cache, rows, positions.data(), s);
          }
          // What attends to the cache, and behind it queries, keys and values as they were left.
          Scratch scratch;
          DeviceArray out(s.B * s.T * s.H * s.D, c.type);
          cuda::attention_cached(scratch.context(), out, rows, cache, positions.data(), s);
          std::vector<float> all = out.values();
          const std::vector<float> left = rows.values();
          all.insert(all.end(), left.begin(), left.end());
          return all;
        });
      }
      CHECK(rotated == unfused);
    }
}
