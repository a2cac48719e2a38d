// Norms of queries and keys, and columns of wider rows, as the GPU's kernels compute them, thread by thread.
#include "kernels/cuda/columns.h"
#include "kernels/cuda/qk_norm.h"
#include "tests/cuda/on_gpu.h"
#include "tests/kernels/qk_norm_reference.h"

namespace cuda = kernels::cuda;
using cuda::Type;
using test::kBackward;
using test::kForward;
using test::to_double;
using tests::check_as_accurate_as_plain;
using tests::DeviceArray;
using tests::in_every_order;
using tests::no_scratch;
using tests::normal_tensor;
using tests::rounded;
using tests::Scratch;

TEST_CASE(
    "Norms of queries and keys on the GPU, by head and over all heads, are as accurate as plain loops") {
  using kernels::QkNormShape;
  for (const QkNormShape s :
       {QkNormShape{1, 1, 1, 8}, {5, 4, 2, 16}, {70, 6, 3, 24}, {33, 4, 4, 64, true}, {40, 6, 2, 10, true}})
    for (const Type type : {Type::f32, Type::bf16, Type::f16}) {
      CAPTURE(s.R, s.H, s.G, s.D, s.all_heads, static_cast<int>(type));
      const std::int64_t width = (s.H + 2 * s.G) * s.D, gains = s.all_heads ? (s.H + s.G) * s.D : 2 * s.D;
      const auto inp = normal_tensor(s.R * width, 1, type, 3), weight = normal_tensor(gains, 2, type),
                 dout = normal_tensor(s.R * width, 3, type);
      constexpr float kEps = 1e-6f;
      const test::QkNormed<float> plain(inp, weight, dout, kEps, s);
      const test::QkNormed<double> exact(to_double(inp), to_double(weight), to_double(dout), kEps, s);
      std::vector<float> dinp, dweight;
      const auto out = in_every_order([&] {
        Scratch scratch;
        DeviceArray x(inp, type), w(weight, type), y(s.R * width, type), g(dout, type);
        DeviceArray rstd(s.R * (s.H + s.G), Type::f32),
            dw(std::vector<float>(static_cast<std::size_t>(gains), 1), Type::f32);
        cuda::qk_norm_forward(no_scratch(), y, rstd.f32(), x, w, kEps, s);
        cuda::qk_norm_backward(scratch.context(), g, dw, x, w, rstd.f32(), s);
        dinp = g.values(), dweight = dw.values();
        return y.values();
      });
      check_as_accurate_as_plain(out, rounded(plain.out, type), exact.out, type, kForward);
      check_as_accurate_as_plain(dinp, rounded(plain.dinp, type), exact.dinp, type, kBackward);
      check_as_accurate_as_plain(dweight, plain.dweight, exact.dweight, Type::f32, kBackward);
    }
}

TEST_CASE("Norms of queries and keys without gains are on the GPU those of gains of 1, to the bit") {
  for (const bool all_heads : {false, true}) {
    const kernels::QkNormShape s{20, 4, 2, 16, all_heads};
    const std::int64_t width = (s.H + 2 * s.G) * s.D, gains = all_heads ? (s.H + s.G) * s.D : 2 * s.D;
    const auto inp = normal_tensor(s.R * width, 1, Type::bf16, 3),
               dout = normal_tensor(s.R * width, 3, Type::bf16);
    const auto run = [&](bool with_gains) {
      DeviceArray x(inp, Type::bf16), w(std::vector<float>(static_cast<std::size_t>(gains), 1), Type::bf16),
          y(s.R * width, Type::bf16), g(dout, Type::bf16), rstd(s.R * (s.H + s.G), Type::f32);
      const cuda::ConstTensor weight = with_gains ? cuda::ConstTensor(w) : cuda::ConstTensor();
      cuda::qk_norm_forward(no_scratch(), y, rstd.f32(), x, weight, 1e-6f, s);
      cuda::qk_norm_backward(no_scratch(), g, {}, x, weight, rstd.f32(), s);
      auto values = y.values();
      for (const float gradient : g.values()) values.push_back(gradient);
      return values;
    };
    CHECK(run(false) == run(true));
  }
}

TEST_CASE("Columns of wider rows are added to, put and taken on the GPU, and the others stay") {
  struct Case {
    std::int64_t R, C, width, first;
  };
  for (const Case c : {Case{5, 8, 24, 8}, {3, 7, 20, 5}, {40, 64, 64, 0}})
    for (const Type type : {Type::f32, Type::bf16, Type::f16}) {
      CAPTURE(c.R, c.C, c.width, c.first, static_cast<int>(type));
      const auto narrow = normal_tensor(c.R * c.C, 1, type), wide = normal_tensor(c.R * c.width, 2, type);
      constexpr float kScale = 0.5f;
      auto added = wide, put = wide, taken = narrow;
      for (std::int64_t r = 0; r < c.R; ++r)
        for (std::int64_t i = 0; i < c.C; ++i) {
          const auto at_wide = static_cast<std::size_t>(r * c.width + c.first + i),
                     at_narrow = static_cast<std::size_t>(r * c.C + i);
          added[at_wide] += kScale * narrow[at_narrow];
          put[at_wide] = narrow[at_narrow];
          taken[at_narrow] = kScale * wide[at_wide];
        }
      DeviceArray small(narrow, type), large(wide, type), replaced(wide, type), source(wide, type),
          out(c.R * c.C, type);
      const cuda::Columns columns{c.C, c.width, c.first};
      cuda::add_columns(no_scratch(), large, small, kScale, c.R, columns);
      cuda::put_columns(no_scratch(), replaced, small, c.R, columns);
      cuda::take_columns(no_scratch(), out, source, kScale, c.R, columns);
      CHECK(large.values() == rounded(added, type));
      CHECK(replaced.values() == put);
      CHECK(out.values() == rounded(taken, type));
    }
}
