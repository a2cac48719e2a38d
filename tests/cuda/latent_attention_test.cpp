// Latent attention as the GPU's kernels compute it, thread by thread.
#include "kernels/cuda/latent_attention.h"

#include <algorithm>
#include <random>

#include "kernels/rope.h"
#include "tests/cuda/on_gpu.h"
#include "tests/kernels/latent_reference.h"

namespace cuda = kernels::cuda;
using cuda::Type;
using kernels::LatentShape;
using test::kBackward;
using test::kForward;
using test::to_double;
using tests::check_as_accurate_as_plain;
using tests::DeviceArray;
using tests::no_scratch;
using tests::rounded;
using tests::Scratch;

namespace {

struct Case {
  LatentShape shape;  // B, T, H, N, P, V, L
  Type type;
};

// Lengths on both sides of a tile's border, keys wider and narrower than values, both sizes of tiles, and
// what the tensor cores do not take.
const std::vector<Case> kCases = {
    {{1, 65, 2, 16, 8, 40, 24}, Type::bf16},    {{2, 64, 3, 64, 32, 64, 24}, Type::f16},
    {{1, 97, 2, 128, 64, 128, 24}, Type::bf16}, {{1, 130, 1, 96, 24, 56, 24}, Type::f16},
    {{1, 70, 2, 16, 8, 12, 16}, Type::bf16},    {{2, 70, 2, 16, 8, 16, 16, {.window = 9}}, Type::bf16},
    {{2, 33, 3, 12, 6, 20, 10}, Type::f32},     {{1, 20, 2, 8, 4, 8, 16, {.window = 5}}, Type::f32},
};

// Random tensors of values that the type holds.
test::LatentTensors<float> drawn(const Case& c) {
  test::LatentTensors<float> x = test::drawn_latents(c.shape);
  for (std::vector<float>* const values : {&x.q, &x.up, &x.rotary, &x.dout})
    *values = rounded(*values, c.type);
  return x;
}

std::vector<float> joined(std::initializer_list<std::vector<float>> parts) {
  std::vector<float> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace

TEST_CASE(
    "latent attention on the GPU, forward and backward, is as accurate as plain loops in the same type") {
  for (const Case& c : kCases) {
    const LatentShape s = c.shape;
    CAPTURE(s.B, s.T, s.H, s.N, s.P, s.V, s.mask.window, static_cast<int>(c.type));
    const test::LatentTensors<float> x = drawn(c);
    const auto exact = test::latent_attention_of(test::widened(x), s);
    const auto plain =
        test::latent_attention_of(x, s, [&](float value) { return rounded({value}, c.type)[0]; });
    const auto plain_lse = test::latent_attention_of(x, s).lse;
    std::vector<float> out, lse, dq, dkv;
    tests::in_every_order([&] {
      Scratch scratch;
      DeviceArray q(x.q, c.type), kv(joined({x.up, x.rotary}), c.type), dout(x.dout, c.type);
      DeviceArray o(s.B * s.T * s.H * s.V, c.type), l(s.B * s.H * s.T, Type::f32);
      DeviceArray q_gradient(s.B * s.T * s.H * s.query(), c.type),
          kv_gradient(s.B * s.T * s.expanded(), c.type);
      cuda::attention_latent_forward(no_scratch(), o, l.f32(), q, kv, s);
      cuda::attention_latent_backward(scratch.context(), q_gradient, kv_gradient, dout, q, kv, o, l.f32(), s);
      out = o.values(), lse = l.values(), dq = q_gradient.values(), dkv = kv_gradient.values();
      return joined({out, lse, dq, dkv});
    });
    check_as_accurate_as_plain(out, plain.out, exact.out, c.type, kForward);
    // Scores are sums of products that no rounding has touched: the log-sum-exp is that of fp32. Tensor cores
    // truncate where fp32 rounds, once for each 16 of the N + P products: twice the error.
    check_as_accurate_as_plain(lse, plain_lse, exact.lse, Type::f32, 2 * kForward);
    check_as_accurate_as_plain(dq, plain.dq, exact.dq, c.type, kBackward);
    check_as_accurate_as_plain(dkv, plain.dkv, exact.dkv, c.type, kBackward);
  }
}

namespace {

// Rotates a row's pairs (i, i + P/2) by the angles of its position, or back.
template <class Real>
void rotate(Real* row, const float* angles, std::int64_t P, bool back) {
  for (std::int64_t i = 0; i < P / 2; ++i) {
    const Real cosine = angles[i], sine = back ? -angles[P / 2 + i] : angles[P / 2 + i];
    const Real x = row[i], y = row[P / 2 + i];
    row[i] = x * cosine - y * sine;
    row[P / 2 + i] = y * cosine + x * sine;
  }
}

template <class Real>
struct Rotated {
  std::vector<Real> q, down, copies;  // forward; down: (rows, L + P), whose last columns are the key
  std::vector<Real> dq, dkey;         // backward, of copies as their gradients
};

template <class Real>
Rotated<Real> rotated(const std::vector<float>& q, const std::vector<float>& down,
                      const std::vector<float>& dcopies, const std::vector<float>& table,
                      const std::vector<std::int32_t>& positions, const LatentShape& s) {
  Rotated<Real> r{{q.begin(), q.end()}, {down.begin(), down.end()}, {}, {q.begin(), q.end()}, {}};
  for (std::int64_t row = 0; row < s.B * s.T; ++row) {
    const std::int64_t t = row % s.T, b = row / s.T;
    const float* const angles = &table[static_cast<std::size_t>((positions[b] + t) * s.P)];
    Real* const key = &r.down[static_cast<std::size_t>(row * s.cached() + s.L)];
    rotate(key, angles, s.P, false);
    std::vector<Real> sum(static_cast<std::size_t>(s.P), 0);
    for (std::int64_t h = 0; h < s.H; ++h) {
      const std::size_t part = static_cast<std::size_t>((row * s.H + h) * s.query() + s.N);
      rotate(&r.q[part], angles, s.P, false);
      rotate(&r.dq[part], &table[static_cast<std::size_t>(t * s.P)], s.P, true);
      r.copies.insert(r.copies.end(), key, key + s.P);
      for (std::int64_t i = 0; i < s.P; ++i)
        sum[static_cast<std::size_t>(i)] +=
            static_cast<Real>(dcopies[static_cast<std::size_t>((row * s.H + h) * s.P + i)]);
    }
    rotate(sum.data(), &table[static_cast<std::size_t>(t * s.P)], s.P, true);
    r.dkey.insert(r.dkey.end(), sum.begin(), sum.end());
  }
  return r;
}

}  // namespace

TEST_CASE(
    "latents' queries and keys are rotated on the GPU, forth and back, as accurately as by plain loops") {
  for (const LatentShape& s :
       {LatentShape{2, 5, 3, 16, 32, 8, 24}, {1, 3, 40, 8, 64, 16, 16}, {2, 4, 2, 5, 6, 3, 7}})
    for (const Type type : {Type::f32, Type::bf16, Type::f16}) {
      CAPTURE(s.T, s.H, s.N, s.P, s.L, static_cast<int>(type));
      const std::int64_t rows = s.B * s.T, up_size = rows * s.H * (s.N + s.V);
      std::vector<float> table(static_cast<std::size_t>(16 * s.P));
      kernels::cpu::rope_table(table.data(), 100, {}, 16, s.P);
      const std::vector<std::int32_t> positions =
          s.B == 1 ? std::vector<std::int32_t>{7} : std::vector<std::int32_t>{3, 9};
      const auto q = tests::normal_tensor(rows * s.H * s.query(), 1, type),
                 down = tests::normal_tensor(rows * s.cached(), 2, type),
                 up = tests::normal_tensor(up_size, 3, type),
                 dcopies = tests::normal_tensor(rows * s.H * s.P, 4, type);
      const auto exact = rotated<double>(q, down, dcopies, table, positions, s);
      const auto plain = rotated<float>(q, down, dcopies, table, positions, s);
      std::vector<float> q_out, down_out, copies, dq, dkey;
      tests::in_every_order([&] {
        DeviceArray q_array(q, type), down_array(down, type), kv(joined({up, dcopies}), type),
            angles(table, Type::f32);
        DeviceArray kv_gradient(joined({up, dcopies}), type), q_gradient(q, type),
            key_gradient(rows * s.P, type);
        tests::OnGpu<std::int32_t> starts(positions);
        cuda::Tensor key = down_array;
        key.data = static_cast<std::byte*>(key.data) + s.L * cuda::size_of(type);
        cuda::rope_latent_forward(no_scratch(), q_array, key, s.cached(), kv, angles.f32(), starts.data(), s);
        cuda::rope_latent_backward(no_scratch(), q_gradient, key_gradient, kv_gradient, angles.f32(), s);
        q_out = q_array.values(), down_out = down_array.values(), dq = q_gradient.values(),
        dkey = key_gradient.values();
        const auto kv_out = kv.values();
        CHECK(std::equal(up.begin(), up.end(), kv_out.begin()));
        copies.assign(kv_out.begin() + up_size, kv_out.end());
        return joined({q_out, down_out, copies, dq, dkey});
      });
      check_as_accurate_as_plain(q_out, rounded(plain.q, type), exact.q, type, kForward);
      check_as_accurate_as_plain(down_out, rounded(plain.down, type), exact.down, type, kForward);
      check_as_accurate_as_plain(copies, rounded(plain.copies, type), exact.copies, type, kForward);
      check_as_accurate_as_plain(dq, rounded(plain.dq, type), exact.dq, type, kBackward);
      check_as_accurate_as_plain(dkey, rounded(plain.dkey, type), exact.dkey, type, kBackward);
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t h = 0; h < s.H; ++h)
          for (std::int64_t i = 0; i < s.P; ++i)
            REQUIRE(copies[static_cast<std::size_t>((row * s.H + h) * s.P + i)] ==
                    down_out[static_cast<std::size_t>(row * s.cached() + s.L + i)]);
    }
}

namespace {

struct Decode {
  LatentShape shape;  // T: new tokens
  std::int64_t earlier, capacity;
  Type type;
};

// One token and several; fewer keys than a tile, and several tiles of them split over blocks; fewer heads
// than a tile of queries, more of them, enough sequences for taller tiles, tokens that share one; both widths
// of tiles; what the tensor cores do not take.
const std::vector<Decode> kDecodes = {
    {{2, 1, 3, 16, 8, 12, 16}, 0, 8, Type::bf16},      {{1, 1, 16, 16, 64, 12, 512}, 300, 400, Type::bf16},
    {{2, 1, 20, 8, 32, 12, 256}, 130, 260, Type::f16}, {{1, 5, 7, 8, 8, 12, 24}, 290, 300, Type::bf16},
    {{66, 1, 40, 8, 8, 12, 16}, 33, 200, Type::bf16},   {{1, 1, 64, 8, 8, 12, 16}, 70, 80, Type::f16},
    {{132, 1, 40, 8, 8, 12, 16}, 5, 200, Type::f16},     {{1, 3, 2, 6, 4, 12, 10}, 20, 24, Type::f32},
    {{2, 1, 3, 12, 8, 12, 16}, 9, 16, Type::bf16},
};

// out (B, T, H, L) by the definition. rows (B, earlier + T, L + P).
template <class Real, class Round = std::identity>
std::vector<Real> attended(const std::vector<float>& absorbed, const std::vector<float>& q,
                           const std::vector<float>& rows, const Decode& c, const Round& round = {}) {
  const LatentShape& s = c.shape;
  const Real scale = 1 / std::sqrt(static_cast<Real>(s.query()));
  std::vector<Real> out;
  for (std::int64_t b = 0; b < s.B; ++b)
    for (std::int64_t t = 0; t < s.T; ++t)
      for (std::int64_t h = 0; h < s.H; ++h) {
        const std::int64_t row = (b * s.T + t) * s.H + h, seen = c.earlier + t + 1;
        const float* const near = &absorbed[static_cast<std::size_t>(row * s.L)];
        const float* const far = &q[static_cast<std::size_t>(row * s.query() + s.N)];
        const auto key = [&](std::int64_t j) {
          return &rows[static_cast<std::size_t>((b * (c.earlier + s.T) + j) * s.cached())];
        };
        std::vector<Real> p(static_cast<std::size_t>(seen));
        Real sum = 0;
        for (std::int64_t j = 0; j < seen; ++j) {
          Real score = 0;
          for (std::int64_t d = 0; d < s.cached(); ++d)
            score += static_cast<Real>(d < s.L ? near[d] : far[d - s.L]) * static_cast<Real>(key(j)[d]);
          p[static_cast<std::size_t>(j)] = round(score * scale);
        }
        const Real highest = *std::max_element(p.begin(), p.end());
        for (Real& value : p) sum += value = std::exp(value - highest);
        for (Real& value : p) value = round(value / sum);
        for (std::int64_t d = 0; d < s.L; ++d) {
          Real total = 0;
          for (std::int64_t j = 0; j < seen; ++j)
            total += p[static_cast<std::size_t>(j)] * static_cast<Real>(key(j)[d]);
          out.push_back(round(total));
        }
      }
  return out;
}

// The columns [first, first + count) of rows that are `width` wide: those of tokens [begin, end) of each
// sequence of `all` tokens.
std::vector<float> columns_of(const std::vector<float>& rows, std::int64_t width, std::int64_t first,
                              std::int64_t count, std::int64_t all, std::int64_t begin, std::int64_t end) {
  std::vector<float> part;
  for (std::int64_t row = 0; row < static_cast<std::int64_t>(rows.size()) / width; ++row)
    if (row % all >= begin && row % all < end)
      part.insert(part.end(), rows.begin() + row * width + first, rows.begin() + row * width + first + count);
  return part;
}

}  // namespace

TEST_CASE("tokens decoded on the GPU against cached latents see what they see by plain loops") {
  for (const Decode& c : kDecodes) {
    const LatentShape& s = c.shape;
    CAPTURE(s.B, s.T, s.H, s.N, s.P, s.L, c.earlier, static_cast<int>(c.type));
    const std::int64_t all = c.earlier + s.T;
    const auto absorbed = tests::normal_tensor(s.B * s.T * s.H * s.L, 1, c.type, 0.3f),
               q = tests::normal_tensor(s.B * s.T * s.H * s.query(), 2, c.type),
               rows = tests::normal_tensor(s.B * all * s.cached(), 3, c.type);
    const auto exact = attended<double>(absorbed, q, rows, c);
    const auto plain =
        attended<float>(absorbed, q, rows, c, [&](float value) { return rounded({value}, c.type)[0]; });
    const auto appended = [&](const cuda::LatentCache& cache, std::int64_t begin, std::int64_t end) {
      if (begin == end) return;
      LatentShape part = s;
      part.T = end - begin;
      // The key is the last columns of the projection's rows.
      DeviceArray latent(columns_of(rows, s.cached(), 0, s.L, all, begin, end), c.type),
          down(columns_of(rows, s.cached(), 0, s.cached(), all, begin, end), c.type);
      tests::OnGpu<std::int32_t> positions(
          std::vector<std::int32_t>(static_cast<std::size_t>(s.B), static_cast<std::int32_t>(begin)));
      cuda::Tensor key = down;
      key.data = static_cast<std::byte*>(key.data) + s.L * cuda::size_of(c.type);
      cuda::latent_append(no_scratch(), cache, latent, key, s.cached(), positions.data(), part);
    };
    const auto decoded = [&](const cuda::LatentCache& cache) {
      appended(cache, 0, c.earlier);
      appended(cache, c.earlier, all);
      Scratch scratch;
      DeviceArray absorbed_array(absorbed, c.type), q_array(q, c.type), out(s.B * s.T * s.H * s.L, c.type);
      tests::OnGpu<std::int32_t> positions(
          std::vector<std::int32_t>(static_cast<std::size_t>(s.B), static_cast<std::int32_t>(c.earlier)));
      cuda::attention_latent_cached(scratch.context(), out, absorbed_array, q_array, cache, positions.data(),
                                    s);
      return out.values();
    };
    const auto contiguous = tests::in_every_order([&] {
      // Beyond what has been appended the cache is NaN, which nothing may read.
      DeviceArray memory(s.B * c.capacity * s.cached(), c.type);
      return decoded({memory, c.capacity});
    });
    check_as_accurate_as_plain(contiguous, plain, exact, c.type, kForward);

    constexpr std::int64_t kBlock = 16;
    const std::int64_t blocks = (c.capacity + kBlock - 1) / kBlock;
    std::vector<std::int32_t> table;
    for (std::int64_t i = 0; i < s.B * blocks; ++i) table.push_back(static_cast<std::int32_t>(2 * i + 1));
    std::shuffle(table.begin(), table.end(), std::mt19937(3));
    DeviceArray memory((2 * s.B * blocks + 1) * kBlock * s.cached(), c.type);
    tests::OnGpu<std::int32_t> table_array(table);
    const auto paged = decoded({memory, kBlock, table_array.data(), blocks});
    check_as_accurate_as_plain(paged, plain, exact, c.type, kForward);
  }
}
