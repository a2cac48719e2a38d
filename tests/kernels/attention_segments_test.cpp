// Attention divided over context-parallel ranks, brought together again, against attention of whole
// sequences.
#include "kernels/attention_segments.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/threads.h"
#include "tests/kernels/compare.h"
#include "tests/kernels/reference.h"

using kernels::AttentionShape;
using kernels::ContextPart;
using kernels::cpu::SegmentKeys;
namespace cpu = kernels::cpu;
using test::kBackward;
using test::kForward;
using test::normal_tensor;
using test::to_double;

namespace {

using Floats = std::vector<float>;

struct Case {
  AttentionShape whole;
  std::int64_t ranks;
};

// Segments of one token, shorter than a tile, as long, longer; masks that end within a segment.
const std::vector<Case> kCases = {{{1, 4, 1, 1, 16}, 2},
                                  {{2, 24, 4, 2, 16}, 3},
                                  {{1, 120, 6, 2, 40}, 2},
                                  {{1, 256, 3, 3, 64}, 2},
                                  {{1, 600, 2, 1, 32}, 4},
                                  {{1, 420, 3, 1, 24}, 1},
                                  {{1, 240, 2, 1, 24, {.window = 70}}, 2},
                                  {{2, 96, 2, 2, 16, {.window = 5}}, 3},
                                  {{1, 200, 4, 2, 16, {.chunk = 30}}, 2},
                                  {{1, 280, 6, 3, 16, {.alibi = true}}, 2}};

std::int64_t packed_width(AttentionShape s) {
  return (s.H + 2 * s.G) * s.D;
}
Floats zeros(std::int64_t count) {
  return Floats(static_cast<std::size_t>(count), 0.0f);
}
Floats unset(std::int64_t count) {
  return Floats(static_cast<std::size_t>(count), NAN);
}

struct Ranks {
  AttentionShape whole, s;  // s: of one rank
  std::int64_t n;

  explicit Ranks(const Case& c) : whole(c.whole), s(c.whole), n(c.ranks) { s.T /= n; }
  ContextPart part(std::int64_t r) const { return {n, r}; }

  // Columns first .. first + count of a rank's rows, from rows of `width`.
  Floats rows_of(const Floats& tensor, std::int64_t r, std::int64_t width, std::int64_t first,
                 std::int64_t count) const {
    Floats rows;
    for (std::int64_t b = 0; b < s.B; ++b)
      for (std::int64_t i = 0; i < s.T; ++i) {
        const auto from = tensor.begin() + (b * whole.T + part(r).position(i, s.T)) * width + first;
        rows.insert(rows.end(), from, from + count);
      }
    return rows;
  }
  void add_rows(Floats& tensor, const Floats& rows, std::int64_t r, std::int64_t width, std::int64_t first,
                std::int64_t count, std::int64_t row_width) const {
    for (std::int64_t b = 0; b < s.B; ++b)
      for (std::int64_t i = 0; i < s.T; ++i)
        for (std::int64_t c = 0; c < count; ++c)
          tensor[static_cast<std::size_t>((b * whole.T + part(r).position(i, s.T)) * width + first + c)] +=
              rows[static_cast<std::size_t>((b * s.T + i) * row_width + c)];
  }
};

struct Result {
  Floats out, dqkv;
};

// Each rank sees the keys of all others at once, or of one after the other.
Result run_ranks(const Case& c, const Floats& qkv, const Floats& dout, bool ring) {
  const Ranks ranks(c);
  const AttentionShape& s = ranks.s;
  const std::int64_t width = packed_width(s), queries = s.H * s.D, kv_width = 2 * s.G * s.D;
  Result result{zeros(std::ssize(dout)), zeros(std::ssize(qkv))};
  std::vector<Floats> kv;
  for (std::int64_t r = 0; r < ranks.n; ++r) kv.push_back(ranks.rows_of(qkv, r, width, queries, kv_width));
  for (std::int64_t r = 0; r < ranks.n; ++r) {
    const Floats own = ranks.rows_of(qkv, r, width, 0, width);
    const Floats own_dout = ranks.rows_of(dout, r, queries, 0, queries);
    Floats out = unset(std::ssize(own_dout)), lse = unset(s.B * s.H * s.T), dqkv = unset(std::ssize(own));
    std::vector<Floats> dkv(kv.size(), unset(std::ssize(kv.front())));
    std::vector<SegmentKeys> keys;
    for (std::int64_t k = 0; k < ranks.n; ++k) {
      const auto of = static_cast<std::size_t>((r + k) % ranks.n);
      keys.push_back({ranks.part((r + k) % ranks.n), kv[of].data(), dkv[of].data(), kv_width});
    }
    if (ring) {
      for (std::size_t step = 0; step < keys.size(); ++step) {
        Floats part = unset(std::ssize(out)), part_lse = unset(std::ssize(lse));
        cpu::attention_segments_forward(step == 0 ? out.data() : part.data(),
                                        step == 0 ? lse.data() : part_lse.data(), own.data(), ranks.part(r),
                                        {&keys[step], 1}, s);
        if (step > 0) cpu::attention_merge(out.data(), lse.data(), part.data(), part_lse.data(), s);
      }
      for (std::size_t step = 0; step < keys.size(); ++step)
        cpu::attention_segments_backward(dqkv.data(), step > 0, own_dout.data(), own.data(), out.data(),
                                         lse.data(), ranks.part(r), {&keys[step], 1}, s);
    } else {
      cpu::attention_segments_forward(out.data(), lse.data(), own.data(), ranks.part(r), keys, s);
      cpu::attention_segments_backward(dqkv.data(), false, own_dout.data(), own.data(), out.data(),
                                       lse.data(), ranks.part(r), keys, s);
    }
    ranks.add_rows(result.out, out, r, queries, 0, queries, queries);
    ranks.add_rows(result.dqkv, dqkv, r, width, 0, queries, width);
    for (std::int64_t k = 0; k < ranks.n; ++k)
      ranks.add_rows(result.dqkv, dkv[static_cast<std::size_t>(k)], k, width, queries, kv_width, kv_width);
  }
  return result;
}

}  // namespace

TEST_CASE("attention of segments, brought together over ranks, is as accurate as plain loops over the whole",
          "[long]") {
  for (const bool ring : {false, true})
    for (const Case& c : kCases) {
      const AttentionShape& s = c.whole;
      CAPTURE(ring, c.ranks, s.B, s.T, s.H, s.G, s.D, s.mask.window, s.mask.chunk, s.mask.alibi);
      const Floats qkv = normal_tensor(s.B * s.T * packed_width(s), 1, 2.0f);
      const Floats dout = normal_tensor(s.B * s.T * s.H * s.D, 2);
      const Result ranks = run_ranks(c, qkv, dout, ring);
      test::check_as_accurate_as_plain(ranks.out, reference::attention_forward<float>(qkv, s),
                                       reference::attention_forward<double>(to_double(qkv), s), kForward);
      test::check_as_accurate_as_plain(ranks.dqkv, reference::attention_backward(dout, qkv, s),
                                       reference::attention_backward(to_double(dout), to_double(qkv), s),
                                       kBackward);
    }
}

TEST_CASE("attention of segments that see no key is nothing, and merging it changes nothing") {
  const AttentionShape s{1, 140, 2, 1, 16};
  const Floats qkv = normal_tensor(s.T * packed_width(s), 1), kv = normal_tensor(s.T * 2 * s.D, 2);
  // Queries are tokens 0 to 139; keys are tokens 0 to 69 and 210 to 279. With a window of three the queries
  // from 72 on see none of them.
  const SegmentKeys keys{{2, 0}, kv.data(), nullptr, 2 * s.D};
  Floats part = unset(s.T * s.H * s.D), part_lse = unset(s.H * s.T);
  cpu::attention_segments_forward(part.data(), part_lse.data(), qkv.data(), {1, 0}, {&keys, 1},
                                  {s.B, s.T, s.H, s.G, s.D, {.window = 3}});
  for (std::int64_t h = 0; h < s.H; ++h)
    for (std::int64_t i = 72; i < s.T; ++i) {
      CHECK(part_lse[static_cast<std::size_t>(h * s.T + i)] == -INFINITY);
      for (std::int64_t d = 0; d < s.D; ++d)
        CHECK(part[static_cast<std::size_t>((i * s.H + h) * s.D + d)] == 0.0f);
    }
  const Floats before = normal_tensor(s.T * s.H * s.D, 3), lse_before = normal_tensor(s.H * s.T, 4);
  Floats out = before, lse = lse_before;
  cpu::attention_merge(out.data(), lse.data(), part.data(), part_lse.data(), s);
  for (std::int64_t h = 0; h < s.H; ++h)
    for (std::int64_t i = 72; i < s.T; ++i) {
      const auto first = static_cast<std::size_t>((i * s.H + h) * s.D);
      CHECK(lse[static_cast<std::size_t>(h * s.T + i)] == lse_before[static_cast<std::size_t>(h * s.T + i)]);
      CHECK(std::equal(out.begin() + static_cast<std::ptrdiff_t>(first),
                       out.begin() + static_cast<std::ptrdiff_t>(first) + s.D,
                       before.begin() + static_cast<std::ptrdiff_t>(first)));
    }
}

TEST_CASE("attention of segments gives the same bits on any number of threads", "[long]") {
  const Case c{{2, 300, 6, 2, 48}, 2};
  const Floats qkv = normal_tensor(c.whole.B * c.whole.T * packed_width(c.whole), 1);
  const Floats dout = normal_tensor(c.whole.B * c.whole.T * c.whole.H * c.whole.D, 2);
  kernels::cpu::set_threads(1);
  const Result one = run_ranks(c, qkv, dout, true);
  for (const int threads : {2, 5}) {
    kernels::cpu::set_threads(threads);
    const Result again = run_ranks(c, qkv, dout, true);
    CHECK(again.out == one.out);
    CHECK(again.dqkv == one.dqkv);
  }
  kernels::cpu::set_threads(0);
}
