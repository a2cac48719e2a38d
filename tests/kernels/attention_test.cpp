#include "kernels/attention.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>

#include "kernels/cuda/types.h"
#include "kernels/matmul_packed.h"
#include "kernels/threads.h"
#include "tests/kernels/compare.h"
#include "tests/kernels/fp32_paths.h"
#include "tests/kernels/reference.h"

using kernels::AttentionShape;
using test::kBackward;
using test::kForward;
using test::normal_tensor;
using test::to_double;

namespace {

// Multi-head, grouped and multi-query; lengths around the tile of 64; the head sizes of real models.
const std::vector<AttentionShape> kShapes = {
    {1, 1, 1, 1, 16},   {2, 3, 2, 1, 16},   {1, 17, 4, 2, 32},  {1, 64, 3, 3, 64}, {2, 65, 6, 2, 40},
    {1, 100, 4, 1, 80}, {1, 129, 2, 2, 96}, {1, 70, 2, 1, 128}, {3, 33, 4, 4, 24}, {1, 200, 3, 1, 64}};

// Windows and chunks shorter than a tile, as long, longer and longer than the sequence; ALiBi of heads that
// are no power of two; all at once.
const std::vector<AttentionShape> kMaskedShapes = {{1, 17, 2, 1, 16, {.window = 2}},
                                                   {2, 65, 2, 2, 16, {.window = 5}},
                                                   {1, 200, 3, 1, 24, {.window = 64}},
                                                   {1, 200, 2, 1, 32, {.window = 100}},
                                                   {1, 40, 2, 1, 16, {.window = 500}},
                                                   {1, 100, 4, 2, 16, {.chunk = 7}},
                                                   {1, 200, 2, 1, 16, {.chunk = 64}},
                                                   {1, 150, 2, 2, 16, {.chunk = 90}},
                                                   {2, 70, 6, 3, 16, {.alibi = true}},
                                                   {1, 130, 8, 8, 16, {.alibi = true}},
                                                   {1, 140, 3, 1, 16, {.window = 30, .alibi = true}}};

// Caps that bend scores of deviation 1 and 9.
const std::vector<AttentionShape> kCappedShapes = {{1, 17, 2, 1, 16, {.cap = 2}},
                                                   {2, 130, 4, 2, 24, {.cap = 5}},
                                                   {1, 90, 2, 1, 16, {.window = 30, .cap = 1}}};

std::vector<AttentionShape> all_shapes() {
  std::vector<AttentionShape> all = kShapes;
  all.insert(all.end(), kMaskedShapes.begin(), kMaskedShapes.end());
  return all;
}

std::int64_t packed_width(AttentionShape s) {
  return (s.H + 2 * s.G) * s.D;
}

struct Gradients {
  std::vector<float> out, lse, dqkv;
};

Gradients run_flash(const std::vector<float>& qkv, const std::vector<float>& dout, AttentionShape s) {
  Gradients g;
  g.out.assign(static_cast<std::size_t>(s.B * s.T * s.H * s.D), NAN);
  g.lse.assign(static_cast<std::size_t>(s.B * s.H * s.T), NAN);
  g.dqkv.assign(qkv.size(), NAN);
  kernels::cpu::attention_flash_forward(g.out.data(), g.lse.data(), qkv.data(), s);
  kernels::cpu::attention_flash_backward(g.dqkv.data(), dout.data(), qkv.data(), g.out.data(), g.lse.data(),
                                         s);
  return g;
}

// By vectors, and by packed tiles (kernels/attention_packed.h) emulated and, where they are, by the
// processor's.
template <class Body>
void each_path(const Body& body) {
  const test::FastestAgain restore;
  for (const auto path : kernels::cpu::fp32_products()) {
    kernels::cpu::use_fp32_products(path);
    CAPTURE(kernels::cpu::name(path));
    body();
  }
}

}  // namespace

TEST_CASE("flash attention, forward and backward, is as accurate as plain loops", "[long]") {
  // Scores of deviation 1 spread the softmax; of deviation 9 they make it nearly one-hot, and rows change
  // their maximum from tile to tile.
  for (const float deviation : {1.0f, 3.0f})
    for (const AttentionShape& s : all_shapes()) {
      CAPTURE(s.B, s.T, s.H, s.G, s.D, s.mask.window, s.mask.chunk, s.mask.alibi, deviation);
      const auto qkv = normal_tensor(s.B * s.T * packed_width(s), 1, deviation);
      const auto dout = normal_tensor(s.B * s.T * s.H * s.D, 2);
      std::vector<float> plain_lse;
      std::vector<double> exact_lse;
      const auto plain_out = reference::attention_forward<float>(qkv, s, nullptr, &plain_lse);
      const auto exact_out = reference::attention_forward<double>(to_double(qkv), s, nullptr, &exact_lse);
      const auto plain_dqkv = reference::attention_backward(dout, qkv, s);
      const auto exact_dqkv = reference::attention_backward(to_double(dout), to_double(qkv), s);
      each_path([&] {
        const Gradients flash = run_flash(qkv, dout, s);
        test::check_as_accurate_as_plain(flash.out, plain_out, exact_out, kForward);
        test::check_as_accurate_as_plain(flash.lse, plain_lse, exact_lse, kForward);
        test::check_as_accurate_as_plain(flash.dqkv, plain_dqkv, exact_dqkv, kBackward);
      });
    }
}

TEST_CASE("flash attention with capped scores, forward and backward, is as accurate as plain loops",
          "[long]") {
  for (const float deviation : {1.0f, 3.0f})
    for (const AttentionShape& s : kCappedShapes) {
      CAPTURE(s.T, s.H, s.G, s.D, s.mask.window, s.mask.cap, deviation);
      const auto qkv = normal_tensor(s.B * s.T * packed_width(s), 1, deviation);
      const auto dout = normal_tensor(s.B * s.T * s.H * s.D, 2);
      AttentionShape uncapped = s;
      uncapped.mask.cap = 0;
      each_path([&] {
        const Gradients flash = run_flash(qkv, dout, s);
        CHECK(flash.out != run_flash(qkv, dout, uncapped).out);
        test::check_as_accurate_as_plain(flash.out, reference::attention_forward<float>(qkv, s),
                                         reference::attention_forward<double>(to_double(qkv), s), kForward);
        test::check_as_accurate_as_plain(flash.dqkv, reference::attention_backward(dout, qkv, s),
                                         reference::attention_backward(to_double(dout), to_double(qkv), s),
                                         kBackward);
      });
    }
}

TEST_CASE("standard attention, forward and backward, is as accurate as plain loops", "[long]") {
  for (const AttentionShape& s : all_shapes()) {
    CAPTURE(s.B, s.T, s.H, s.G, s.D, s.mask.window, s.mask.chunk, s.mask.alibi);
    const auto qkv = normal_tensor(s.B * s.T * packed_width(s), 1);
    const auto dout = normal_tensor(s.B * s.T * s.H * s.D, 2);
    std::vector<float> plain_probabilities;
    std::vector<double> exact_probabilities;
    const auto plain_out = reference::attention_forward<float>(qkv, s, &plain_probabilities);
    const auto exact_out = reference::attention_forward<double>(to_double(qkv), s, &exact_probabilities);

    std::vector<float> out(exact_out.size(), NAN), probabilities(exact_probabilities.size(), NAN);
    std::vector<float> scratch(probabilities.size(), NAN), dqkv(qkv.size(), NAN);
    kernels::cpu::attention_standard_forward(out.data(), probabilities.data(), qkv.data(), s);
    kernels::cpu::attention_standard_backward(dqkv.data(), scratch.data(), dout.data(), qkv.data(),
                                              probabilities.data(), s);
    test::check_as_accurate_as_plain(out, plain_out, exact_out, kForward);
    test::check_as_accurate_as_plain(probabilities, plain_probabilities, exact_probabilities, kForward);
    test::check_as_accurate_as_plain(dqkv, reference::attention_backward(dout, qkv, s),
                                     reference::attention_backward(to_double(dout), to_double(qkv), s),
                                     kBackward);
  }
}

TEST_CASE("flash attention gives the same bits again, and on any number of threads") {
  // A head's queries are one task or several, by the number of threads.
  const AttentionShape s{2, 150, 6, 2, 48};
  const auto qkv = normal_tensor(s.B * s.T * packed_width(s), 1);
  const auto dout = normal_tensor(s.B * s.T * s.H * s.D, 2);
  each_path([&] {
    kernels::cpu::set_threads(1);
    const Gradients one = run_flash(qkv, dout, s);
    for (const int threads : {1, 2, 3, 7}) {
      CAPTURE(threads);
      kernels::cpu::set_threads(threads);
      const Gradients again = run_flash(qkv, dout, s);
      CHECK(again.out == one.out);
      CHECK(again.lse == one.lse);
      CHECK(again.dqkv == one.dqkv);
    }
    kernels::cpu::set_threads(0);
  });
}

TEST_CASE("a NaN in the input is seen in the output, not hidden by the softmax") {
  const AttentionShape s{1, 40, 1, 1, 16};
  auto qkv = normal_tensor(s.B * s.T * packed_width(s), 1);
  qkv[0] = NAN;  // a query element of token 0
  each_path([&] {
    std::vector<float> out(static_cast<std::size_t>(s.T * s.D));
    kernels::cpu::attention_flash_forward(out.data(), nullptr, qkv.data(), s);
    CHECK(std::isnan(out[0]));
    CHECK(std::isfinite(out[static_cast<std::size_t>(s.D)]));
  });
}

TEST_CASE("attention over a KV cache that is filled piece by piece equals attention over the whole",
          "[long]") {
  struct Case {
    AttentionShape whole;
    std::vector<std::int64_t> pieces;  // prompt, then decode steps or further chunks
  };
  const std::vector<Case> cases = {
      {{2, 20, 4, 2, 16}, {20}},
      {{1, 1, 1, 1, 16}, {1}},
      {{2, 75, 6, 2, 40}, {70, 1, 1, 2, 1}},
      {{1, 150, 9, 3, 64}, {3, 100, 1, 17, 29}},
      {{3, 68, 4, 1, 80}, {1, 1, 65, 1}},
      {{1, 700, 3, 1, 64}, {695, 1, 3, 1}},  // several key splits
      {{1, 130, 2, 2, 128}, {64, 64, 2}},
      {{2, 75, 6, 2, 16, {.window = 9}}, {70, 1, 1, 2, 1}},
      {{1, 700, 3, 1, 16, {.window = 600}},
       {650, 45, 1, 3, 1}},  // several key splits, none of them from key 0
      {{1, 150, 9, 3, 16, {.chunk = 40}}, {3, 100, 1, 17, 29}},
      {{1, 90, 6, 2, 16, {.alibi = true}}, {3, 60, 1, 1, 25}},
  };
  for (const Case& c : cases) {
    const AttentionShape w = c.whole;
    CAPTURE(w.B, w.T, w.H, w.G, w.D);
    const auto qkv = normal_tensor(w.B * w.T * packed_width(w), 1, 1.5f);
    const auto plain = reference::attention_forward<float>(qkv, w);
    const auto exact = reference::attention_forward<double>(to_double(qkv), w);

    const std::int64_t capacity = w.T + 3;
    // Whatever lies beyond what has been written must not be read.
    std::vector<float> keys(static_cast<std::size_t>(w.B * w.G * capacity * w.D), NAN), values = keys;
    std::vector<float> joined(exact.size(), NAN);
    std::int64_t done = 0;
    for (const std::int64_t length : c.pieces) {
      const AttentionShape s{w.B, length, w.H, w.G, w.D, w.mask};
      std::vector<float> piece, out(static_cast<std::size_t>(s.B * s.T * s.H * s.D), NAN);
      for (std::int64_t b = 0; b < w.B; ++b) {
        const auto from = qkv.begin() + (b * w.T + done) * packed_width(w);
        piece.insert(piece.end(), from, from + length * packed_width(w));
      }
      const std::vector<std::int32_t> positions(static_cast<std::size_t>(w.B),
                                                static_cast<std::int32_t>(done));
      const auto cache = kernels::cpu::contiguous_cache(keys.data(), values.data(), capacity);
      kernels::cpu::kv_append(cache, piece.data(), positions.data(), s);
      kernels::cpu::attention_cached(out.data(), piece.data(), cache, positions.data(), s);
      for (std::int64_t b = 0; b < w.B; ++b)
        std::copy_n(out.begin() + b * length * w.H * w.D, length * w.H * w.D,
                    joined.begin() + (b * w.T + done) * w.H * w.D);
      done += length;
    }
    REQUIRE(done == w.T);
    test::check_as_accurate_as_plain(joined, plain, exact, kForward);
  }
}

TEST_CASE("a cache as long as the window or the chunk gives what the whole sequence's would") {
  for (const AttentionShape& w : {AttentionShape{2, 60, 4, 2, 16, {.window = 9}},
                                  {1, 60, 3, 1, 16, {.chunk = 8}},
                                  {1, 60, 4, 2, 16, {.window = 9, .cap = 2}},
                                  {1, 90, 2, 2, 16, {.window = 80}}})
    for (const std::int64_t prompt : {1, 5, 40}) {
      CAPTURE(w.mask.window, w.mask.chunk, prompt);
      const auto qkv = normal_tensor(w.B * w.T * packed_width(w), 1, 1.5f);
      const std::int64_t capacity = std::max(w.mask.window, w.mask.chunk);
      std::vector<float> keys(static_cast<std::size_t>(w.B * w.G * capacity * w.D), NAN), values = keys;
      std::vector<float> joined(static_cast<std::size_t>(w.B * w.T * w.H * w.D), NAN);
      const auto cache = kernels::cpu::contiguous_cache(keys.data(), values.data(), capacity);
      for (std::int64_t done = 0; done < w.T;) {
        const AttentionShape s{w.B, done == 0 ? prompt : 1, w.H, w.G, w.D, w.mask};
        std::vector<float> section, out(static_cast<std::size_t>(s.B * s.T * s.H * s.D), NAN);
        for (std::int64_t b = 0; b < w.B; ++b) {
          const auto from = qkv.begin() + (b * w.T + done) * packed_width(w);
          section.insert(section.end(), from, from + s.T * packed_width(w));
        }
        const std::vector<std::int32_t> positions(static_cast<std::size_t>(w.B),
                                                  static_cast<std::int32_t>(done));
        kernels::cpu::kv_append(cache, section.data(), positions.data(), s);
        kernels::cpu::attention_cached(out.data(), section.data(), cache, positions.data(), s);
        for (std::int64_t b = 0; b < w.B; ++b)
          std::copy_n(out.begin() + b * s.T * w.H * w.D, s.T * w.H * w.D,
                      joined.begin() + (b * w.T + done) * w.H * w.D);
        done += s.T;
      }
      test::check_as_accurate_as_plain(joined, reference::attention_forward<float>(qkv, w),
                                       reference::attention_forward<double>(to_double(qkv), w), kForward);
    }
}

TEST_CASE("sequences of one batch may stand at different positions of their caches", "[long]") {
  const AttentionShape whole{2, 600, 4, 2, 32};
  const auto qkv = normal_tensor(whole.B * whole.T * packed_width(whole), 1);
  const auto exact = reference::attention_forward<double>(to_double(qkv), whole);
  const auto plain = reference::attention_forward<float>(qkv, whole);
  const std::int64_t capacity = 640;
  std::vector<float> keys(static_cast<std::size_t>(whole.B * whole.G * capacity * whole.D), NAN),
      values = keys;
  const std::vector<std::int32_t> start = {0, 0};
  const auto cache = kernels::cpu::contiguous_cache(keys.data(), values.data(), capacity);
  kernels::cpu::kv_append(cache, qkv.data(), start.data(), whole);

  const std::vector<std::int32_t> positions = {599, 41};
  const AttentionShape step{2, 1, whole.H, whole.G, whole.D};
  std::vector<float> queries, out(static_cast<std::size_t>(step.B * step.H * step.D), NAN), plain_rows;
  std::vector<double> exact_rows;
  for (std::int64_t b = 0; b < 2; ++b) {
    const std::int64_t token = b * whole.T + positions[static_cast<std::size_t>(b)], row = whole.H * whole.D;
    queries.insert(queries.end(), qkv.begin() + token * packed_width(whole),
                   qkv.begin() + (token + 1) * packed_width(whole));
    exact_rows.insert(exact_rows.end(), exact.begin() + token * row, exact.begin() + (token + 1) * row);
    plain_rows.insert(plain_rows.end(), plain.begin() + token * row, plain.begin() + (token + 1) * row);
  }
  const auto run = [&](int threads) {
    kernels::cpu::set_threads(threads);
    kernels::cpu::attention_cached(out.data(), queries.data(), cache, positions.data(), step);
    kernels::cpu::set_threads(0);
    return out;
  };
  test::check_as_accurate_as_plain(run(0), plain_rows, exact_rows, kForward);
  const auto one = run(1);
  CHECK(run(3) == one);
}

namespace {

// A cache of blocks that lie in any order, with one scale for each head where it is in fp8.
struct PagedCache {
  std::int64_t block_size = 0, blocks_per_sequence = 0;
  std::vector<std::int32_t> table;
  std::vector<float> k, v, scales;
  std::vector<std::uint8_t> k_fp8, v_fp8;

  PagedCache(AttentionShape s, std::int64_t capacity, std::int64_t block, std::vector<float> of_heads = {})
      : block_size(block), blocks_per_sequence((capacity + block - 1) / block), scales(std::move(of_heads)) {
    table.resize(static_cast<std::size_t>(s.B * blocks_per_sequence));
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), std::mt19937(1));
    const auto elements = table.size() * static_cast<std::size_t>(s.G * block * s.D);
    // What was never written is no number, and must not be read.
    if (scales.empty()) k.assign(elements, NAN), v = k;
    if (!scales.empty()) k_fp8.assign(elements, 0x7f), v_fp8 = k_fp8;
  }
  kernels::cpu::KvCache cache() {
    if (!scales.empty())
      return {k_fp8.data(), v_fp8.data(), block_size, table.data(), blocks_per_sequence, scales.data()};
    return {k.data(), v.data(), block_size, table.data(), blocks_per_sequence, nullptr};
  }
};

// The outputs of all sections: a prompt, and tokens one at a time.
std::vector<float> prompt_and_tokens(const kernels::cpu::KvCache& cache, const std::vector<float>& qkv,
                                     AttentionShape whole, std::int64_t prompt) {
  std::vector<float> all;
  for (std::int64_t done = 0; done < whole.T;) {
    const AttentionShape s{whole.B, done == 0 ? prompt : 1, whole.H, whole.G, whole.D, whole.mask};
    std::vector<float> section, out(static_cast<std::size_t>(s.B * s.T * s.H * s.D));
    for (std::int64_t b = 0; b < s.B; ++b) {
      const auto from = qkv.begin() + (b * whole.T + done) * packed_width(s);
      section.insert(section.end(), from, from + s.T * packed_width(s));
    }
    const std::vector<std::int32_t> positions(static_cast<std::size_t>(s.B), static_cast<std::int32_t>(done));
    kernels::cpu::kv_append(cache, section.data(), positions.data(), s);
    kernels::cpu::attention_cached(out.data(), section.data(), cache, positions.data(), s);
    all.insert(all.end(), out.begin(), out.end());
    done += s.T;
  }
  return all;
}

struct PagedCase {
  AttentionShape whole;
  std::int64_t prompt;
};
const std::vector<PagedCase> kPagedCases = {
    {{2, 75, 6, 2, 40}, 70}, {{3, 40, 4, 1, 16}, 3}, {{1, 530, 3, 3, 64}, 526}, {{2, 20, 40, 2, 16}, 1}};

}  // namespace

TEST_CASE("a cache of blocks in any order gives the bits of one in a piece", "[long]") {
  for (const auto& [whole, prompt] : kPagedCases) {
    const auto qkv = normal_tensor(whole.B * whole.T * packed_width(whole), 1, 1.5f);
    std::vector<float> k(static_cast<std::size_t>(whole.B * whole.G * whole.T * whole.D), NAN), v = k;
    const auto expected =
        prompt_and_tokens(kernels::cpu::contiguous_cache(k.data(), v.data(), whole.T), qkv, whole, prompt);
    for (const std::int64_t block : {1, 7, 16, 64, 100, 1024}) {
      CAPTURE(whole.T, whole.H, whole.G, block);
      PagedCache paged(whole, whole.T, block);
      CHECK(prompt_and_tokens(paged.cache(), qkv, whole, prompt) == expected);
    }
  }
}

TEST_CASE("a cache of blocks as long as the window or the chunk gives the bits of the whole sequence's") {
  for (const AttentionShape& whole : {AttentionShape{2, 60, 4, 2, 16, {.window = 9}},
                                      {1, 60, 3, 1, 16, {.chunk = 8}},
                                      {2, 90, 2, 2, 16, {.window = 80}}})
    for (const std::int64_t prompt : {1, 5, 40}) {
      const auto qkv = normal_tensor(whole.B * whole.T * packed_width(whole), 1, 1.5f);
      std::vector<float> k(static_cast<std::size_t>(whole.B * whole.G * whole.T * whole.D), NAN), v = k;
      const auto expected =
          prompt_and_tokens(kernels::cpu::contiguous_cache(k.data(), v.data(), whole.T), qkv, whole, prompt);
      for (const std::int64_t block : {1, 4, 16, 64}) {
        CAPTURE(whole.mask.window, whole.mask.chunk, prompt, block);
        PagedCache paged(whole, std::max(whole.mask.window, whole.mask.chunk), block);
        CHECK(prompt_and_tokens(paged.cache(), qkv, whole, prompt) == expected);
      }
    }
}

TEST_CASE("a cache in int8 gives the bits of keys and values that were rounded to steps of a row's largest",
          "[long]") {
  for (const auto& [whole, prompt] : kPagedCases) {
    CAPTURE(whole.T, whole.H, whole.G);
    auto qkv = normal_tensor(whole.B * whole.T * packed_width(whole), 1, 1.5f);
    std::fill_n(qkv.begin() + whole.H * whole.D, whole.D, 0.0f);  // a key of zeros
    auto rounded = qkv;
    for (std::int64_t row = 0; row < whole.B * whole.T; ++row)
      for (std::int64_t head = whole.H; head < whole.H + 2 * whole.G; ++head) {
        float* const x = &rounded[static_cast<std::size_t>(row * packed_width(whole) + head * whole.D)];
        float largest = 0;
        for (std::int64_t d = 0; d < whole.D; ++d) largest = std::max(largest, std::abs(x[d]));
        const float step = largest / 127;
        for (std::int64_t d = 0; d < whole.D && step > 0; ++d)
          x[d] = step * std::nearbyint(x[d] * (1 / step));
      }
    std::vector<float> k(static_cast<std::size_t>(whole.B * whole.G * whole.T * whole.D), NAN), v = k;
    const auto expected = prompt_and_tokens(kernels::cpu::contiguous_cache(k.data(), v.data(), whole.T),
                                            rounded, whole, prompt);
    for (const std::int64_t block : {5, 16, 1024}) {
      CAPTURE(block);
      PagedCache paged(whole, whole.T, block);
      std::vector<std::byte> keys(paged.table.size() *
                                  static_cast<std::size_t>(whole.G * block * (whole.D + 4)));
      std::vector<std::byte> values = keys;
      kernels::cpu::KvCache cache = paged.cache();
      cache.k = keys.data(), cache.v = values.data(), cache.is_int8 = true;
      CHECK(prompt_and_tokens(cache, qkv, whole, prompt) == expected);
    }
  }
}

TEST_CASE("a cache in fp8 gives the bits of keys and values that were rounded to it before", "[long]") {
  for (const auto& [whole, prompt] : kPagedCases) {
    const auto qkv = normal_tensor(whole.B * whole.T * packed_width(whole), 1, 1.5f);
    for (const float scale : {1.0f, 0.01f}) {  // the larger half of the values is beyond 448 of the latter
      std::vector<float> scales(static_cast<std::size_t>(2 * whole.G));
      for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = scale * static_cast<float>(i + 1);
      auto rounded = qkv;
      for (std::int64_t row = 0; row < whole.B * whole.T; ++row)
        for (std::int64_t head = 0; head < 2 * whole.G; ++head)
          for (std::int64_t d = 0; d < whole.D; ++d) {
            float& x =
                rounded[static_cast<std::size_t>(row * packed_width(whole) + (whole.H + head) * whole.D + d)];
            const float of_head = scales[static_cast<std::size_t>(head)];
            x = of_head * kernels::cuda::to_float(kernels::cuda::to_e4m3(x / of_head));
          }
      std::vector<float> k(static_cast<std::size_t>(whole.B * whole.G * whole.T * whole.D), NAN), v = k;
      const auto expected = prompt_and_tokens(kernels::cpu::contiguous_cache(k.data(), v.data(), whole.T),
                                              rounded, whole, prompt);
      for (const std::int64_t block : {5, 16, 1024}) {
        CAPTURE(whole.T, whole.H, whole.G, scale, block);
        PagedCache paged(whole, whole.T, block, scales);
        CHECK(prompt_and_tokens(paged.cache(), qkv, whole, prompt) == expected);
      }
    }
  }
}
