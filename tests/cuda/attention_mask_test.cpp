// Attention whose queries see a window or a chunk of keys, whose scores fall with distance (ALiBi), or that
// has sinks, as the GPU's kernels compute it, thread by thread.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_flash.h"
#include "kernels/cuda/attention_schedule.h"
#include "kernels/cuda/hopper/attention_hopper.h"
#include "tests/cuda/on_gpu.h"
#include "tests/cuda/plain_attention.h"
#include "tests/kernels/reference.h"

namespace cuda = kernels::cuda;
using cuda::Type;
using kernels::AttentionShape;
using test::kBackward;
using test::kForward;
using tests::check_as_accurate_as_plain;
using tests::DeviceArray;
using tests::OnGpu;
using tests::Scratch;

namespace {

// Windows and chunks shorter and longer than a tile, at its borders, longer than the sequence; ALiBi with
// heads that are a power of two and not, alone and with a window; tensor cores and plain kernels.
const std::vector<AttentionShape> kShapes = {
    {1, 150, 2, 1, 64, {.window = 5}},   {1, 150, 2, 2, 128, {.window = 70}},
    {2, 130, 2, 1, 64, {.window = 64}},  {1, 150, 2, 1, 80, {.chunk = 40}},
    {1, 140, 1, 1, 64, {.chunk = 64}},   {1, 70, 2, 1, 64, {.window = 200}},
    {1, 100, 3, 3, 64, {.alibi = true}}, {1, 90, 4, 2, 24, {.window = 9, .alibi = true}},
    {1, 40, 2, 1, 12, {.chunk = 7}},
};

std::int64_t packed_size(AttentionShape s) {
  return s.B * s.T * (s.H + 2 * s.G) * s.D;
}

}  // namespace

TEST_CASE(
    "Windows, chunks and ALiBi in flash attention are as accurate as in plain attention, with gradients") {
  for (const AttentionShape& s : kShapes)
    for (const Type type : {Type::bf16, Type::f16, Type::f32}) {
      CAPTURE(s.T, s.H, s.D, s.mask.window, s.mask.chunk, s.mask.alibi, static_cast<int>(type));
      const auto qkv = tests::normal_tensor(packed_size(s), 1, type);
      const auto dout = tests::normal_tensor(s.B * s.T * s.H * s.D, 2, type);
      const auto exact = reference::attention_forward<double>(test::to_double(qkv), s);
      const auto exact_dqkv =
          reference::attention_backward<double>(test::to_double(dout), test::to_double(qkv), s);
      const auto plain = tests::plain_attention(qkv, dout, s, type);
      std::vector<float> dqkv;
      const auto out = tests::in_every_order([&] {
        Scratch scratch;
        DeviceArray x(qkv, type), g(dout, type), gradients(packed_size(s), type),
            y(s.B * s.T * s.H * s.D, type), lse(s.B * s.H * s.T, Type::f32);
        cuda::attention_flash_forward(tests::no_scratch(), y, lse.f32(), x, s);
        cuda::attention_flash_backward(scratch.context(), gradients, g, x, y, lse.f32(), s);
        dqkv = gradients.values();
        return y.values();
      });
      check_as_accurate_as_plain(out, plain.out, exact, type, kForward);
      check_as_accurate_as_plain(dqkv, plain.dqkv, exact_dqkv, type, kBackward);
      CHECK(!cuda::hopper_takes(type, s, {}));
    }
}

TEST_CASE("A KV cache read under windows, chunks, ALiBi and sinks gives what the CPU's gives") {
  for (const bool sinks : {false, true})
    for (AttentionShape s : kShapes)
      for (const std::int64_t new_tokens : {std::int64_t{1}, std::int64_t{3}, s.T})
        for (const Type type : {Type::bf16, Type::f32}) {
          CAPTURE(sinks, s.T, s.H, s.D, s.mask.window, s.mask.chunk, s.mask.alibi, new_tokens);
          const std::vector<float> of_heads = test::normal_tensor(s.H, 4, 2);
          s.sinks = sinks ? of_heads.data() : nullptr;
          // All tokens' keys and values, then the last ones' queries.
          const auto qkv = tests::normal_tensor(packed_size(s), 1, type);
          const std::int64_t cached = s.B * s.G * s.T * s.D, width = (s.H + 2 * s.G) * s.D;
          std::vector<float> keys(static_cast<std::size_t>(cached), NAN), values(keys), last;
          for (std::int64_t b = 0; b < s.B; ++b)
            last.insert(last.end(), qkv.begin() + ((b + 1) * s.T - new_tokens) * width,
                        qkv.begin() + (b + 1) * s.T * width);
          AttentionShape part = s;
          part.T = new_tokens;
          const std::vector<std::int32_t> from_0(static_cast<std::size_t>(s.B), 0),
              positions(from_0.size(), static_cast<std::int32_t>(s.T - new_tokens));
          const kernels::cpu::KvCache on_cpu{keys.data(), values.data(), s.T, nullptr, 1, nullptr, false};
          std::vector<float> expected(static_cast<std::size_t>(s.B * new_tokens * s.H * s.D));
          kernels::cpu::kv_append(on_cpu, qkv.data(), from_0.data(), s);
          kernels::cpu::attention_cached(expected.data(), last.data(), on_cpu, positions.data(), part);

          Scratch scratch(1 << 24);
          DeviceArray all(qkv, type), queries(last, type), k(cached, type), v(cached, type),
              out(s.B * new_tokens * s.H * s.D, type);
          OnGpu<std::int32_t> starts(from_0), places(positions);
          OnGpu<float> sinks_there(of_heads);
          const cuda::KvCache cache{.k = k, .v = v, .block_size = s.T};
          cuda::kv_append(scratch.context(), cache, all, starts.data(), s);
          cuda::attention_cached(
              scratch.context(), out, queries, cache, places.data(), part,
              sinks ? cuda::ConstTensor(sinks_there.data(), Type::f32) : cuda::ConstTensor());
          const double rounding = type == Type::bf16 ? 0x1p-7 : 1e-5;
          CHECK(test::worst_error(out.values(), test::to_double(expected)) <= rounding * 2);
        }
}

TEST_CASE("Sinks of any type take part in flash attention on the GPU as on the CPU, and gradients follow") {
  for (AttentionShape s :
       {AttentionShape{1, 70, 4, 2, 64}, {2, 66, 2, 1, 64, {.window = 9}}, {1, 20, 2, 1, 12}}) {
    CAPTURE(s.T, s.D, s.mask.window);
    for (const Type type : {Type::bf16, Type::f16, Type::f32}) {
      const std::vector<float> of_heads = tests::normal_tensor(s.H, 4, type, 2);
      const auto qkv = tests::normal_tensor(packed_size(s), 1, type);
      const auto dout = tests::normal_tensor(s.B * s.T * s.H * s.D, 2, type);
      std::vector<float> out(dout.size()), lse(static_cast<std::size_t>(s.B * s.H * s.T)), dqkv(qkv.size());
      s.sinks = of_heads.data();
      kernels::cpu::attention_flash_forward(out.data(), lse.data(), qkv.data(), s);
      kernels::cpu::attention_flash_backward(dqkv.data(), dout.data(), qkv.data(), out.data(), lse.data(), s);
      Scratch scratch;
      DeviceArray x(qkv, type), g(dout, type), gradients(packed_size(s), type),
          y(s.B * s.T * s.H * s.D, type), lse_there(s.B * s.H * s.T, Type::f32), sinks(of_heads, type);
      cuda::attention_flash_forward(tests::no_scratch(), y, lse_there.f32(), x, s, {.sinks = sinks});
      cuda::attention_flash_backward(scratch.context(), gradients, g, x, y, lse_there.f32(), s);
      const double rounding = type == Type::f32 ? 1e-5 : 0x1p-7;
      CHECK(test::worst_error(lse_there.values(), test::to_double(lse)) <= 1e-4);
      CHECK(test::worst_error(y.values(), test::to_double(out)) <= 2 * rounding);
      CHECK(test::worst_error(gradients.values(), test::to_double(dqkv)) <= 8 * rounding);
    }
  }
}

TEST_CASE("Gradients of sinks on the GPU are as accurate as plain loops, written or added to what is there") {
  for (const AttentionShape& s : {AttentionShape{2, 70, 4, 2, 64}, {1, 300, 2, 1, 12}})
    for (const Type type : {Type::bf16, Type::f16, Type::f32})
      for (const bool add : {false, true}) {
        CAPTURE(s.T, s.D, static_cast<int>(type), add);
        const std::int64_t rows = s.B * s.H * s.T;
        const auto sinks = tests::normal_tensor(s.H, 1, type), before = tests::normal_tensor(s.H, 2, type),
                   lse = tests::normal_tensor(rows, 3, Type::f32),
                   out = tests::normal_tensor(rows * s.D, 4, type),
                   dout = tests::normal_tensor(rows * s.D, 5, type);
        const auto gradients = [&]<class Real>(Real) {
          std::vector<Real> sums(before.begin(), before.end());
          for (std::int64_t h = 0; h < s.H; ++h) {
            const auto head = static_cast<std::size_t>(h);
            Real sum = 0;
            for (std::int64_t b = 0; b < s.B; ++b)
              for (std::int64_t t = 0; t < s.T; ++t) {
                Real delta = 0;
                for (std::int64_t d = 0; d < s.D; ++d) {
                  const auto i = static_cast<std::size_t>(((b * s.T + t) * s.H + h) * s.D + d);
                  delta += Real(out[i]) * Real(dout[i]);
                }
                sum -= std::exp(Real(sinks[head]) -
                                Real(lse[static_cast<std::size_t>((b * s.H + h) * s.T + t)])) *
                       delta;
              }
            sums[head] = (add ? sums[head] : 0) + sum;
          }
          return sums;
        };
        const auto values = tests::in_every_order([&] {
          Scratch scratch;
          DeviceArray dsinks(before, type), of_heads(sinks, type), y(out, type), g(dout, type),
              statistics(lse, Type::f32);
          const cuda::Context context = scratch.context();
          cuda::attention_deltas(context, context.scratch_for<float>(rows), g, y, s, {});
          cuda::attention_sinks_backward(context, dsinks, add, of_heads, statistics.f32(), s);
          return dsinks.values();
        });
        check_as_accurate_as_plain(values, tests::rounded(gradients(float{}), type), gradients(double{}),
                                   type, kBackward);
      }
}

TEST_CASE(
    "Tiles of keys and queries under windows and chunks hold every pair that sees the other, by masks or "
    "whole") {
  for (const kernels::AttentionMask& mask : {kernels::AttentionMask{},
                                             {.window = 1},
                                             {.window = 30},
                                             {.window = 64},
                                             {.window = 100},
                                             {.chunk = 1},
                                             {.chunk = 50},
                                             {.chunk = 128}})
    for (const int length : {1, 64, 65, 200}) {
      CAPTURE(mask.window, mask.chunk, length);
      const int window = static_cast<int>(mask.window), chunk = static_cast<int>(mask.chunk);
      for (int first = 0; first < length; first += 64) {
        const cuda::QueryTile tile{
            first, std::min(64, length - first), 0, length, true, cuda::kKeyTile, window, chunk};
        for (int i = 0; i < tile.count; ++i)
          for (int j = 0; j < length; ++j) {
            const bool sees = j <= first + i && reference::sees(mask, first + i, j);
            const int of_key = j / cuda::kKeyTile;
            if (tile.sees(first + i, j) != sees) FAIL("sees() is another at " << first + i << ", " << j);
            if (sees && (of_key < tile.first_key_tile() || of_key >= tile.key_tiles()))
              FAIL("no tile holds " << first + i << ", " << j);
            if (!sees && of_key >= tile.first_key_tile() && of_key < tile.key_tiles() &&
                !tile.needs_mask(of_key))
              FAIL("no mask hides " << first + i << ", " << j);
          }
      }
      for (int key = 0; key < length; ++key) {
        const int end = cuda::end_of_queries(key, length, window, chunk);
        for (int i = key; i < length; ++i)
          if (reference::sees(mask, i, key) && i >= end)
            FAIL("query " << i << " is left out for key " << key);
      }
    }
}
