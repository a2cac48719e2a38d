// Kernels on bf16 tensors beside the double reference on the same numbers. The plain implementation that they
// are held to sums in fp32 and rounds its result to bf16.
#include "kernels/activation.h"
#include "kernels/attention_packed.h"
#include "kernels/bf16_rows.h"
#include "kernels/matmul_bf16.h"
#include "kernels/threads.h"
#include "tests/kernels/compare.h"
#include "tests/kernels/reference.h"

using kernels::AttentionShape;
using kernels::MatmulShape;
using kernels::cpu::Bf16Products;
using kernels::cuda::bf16;
using test::kBackward;
using test::kForward;
using test::to_double;

namespace {

using Narrow = std::vector<bf16>;

Narrow narrow(const std::vector<float>& values) {
  Narrow all(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) all[i] = kernels::cuda::to_bf16(values[i]);
  return all;
}
std::vector<float> wide(const Narrow& values) {
  std::vector<float> all;
  for (const bf16 x : values) all.push_back(kernels::cuda::to_float(x));
  return all;
}
std::vector<float> rounded(const std::vector<float>& values) {
  return wide(narrow(values));
}
std::vector<float> normal(std::int64_t count, unsigned seed) {
  return rounded(test::normal_tensor(count, seed));
}

void check(const Narrow& out, const std::vector<float>& plain, const std::vector<double>& exact,
           double factor) {
  test::check_as_accurate_as_plain(wide(out), rounded(plain), exact, factor);
}

// Few rows, whole and partial tiles of 8 x 48 and 32 x 32, blocks of 256 that are summed, odd lengths
// of sums.
const std::vector<MatmulShape> kShapes = {{1, 5, 33},     {3, 50, 64},     {8, 49, 100},
                                          {9, 48, 31},    {17, 65, 33},    {64, 96, 257},
                                          {100, 131, 64}, {257, 241, 300}, {40, 270, 530}};

// Attention's operands, and what fp32 and bf16 make of the same numbers.
struct AttentionCase {
  explicit AttentionCase(AttentionShape shape)
      : s(shape),
        qkv(normal(s.B * s.T * (s.H + 2 * s.G) * s.D, 1)),
        dout(normal(s.B * s.T * s.H * s.D, 2)),
        n_qkv(narrow(qkv)),
        n_sinks(s.sinks ? narrow({s.sinks, s.sinks + s.H}) : Narrow()),
        out(dout.size()),
        dqkv(qkv.size()),
        lse(static_cast<std::size_t>(s.B * s.H * s.T)),
        wide_lse(lse.size()),
        wide_out(dout.size()),
        wide_dqkv(qkv.size()) {}
  void forward() {
    kernels::cpu::attention_flash_forward(out.data(), lse.data(), n_qkv.data(), s,
                                          s.sinks ? n_sinks.data() : nullptr);
    kernels::cpu::attention_flash_forward(wide_out.data(), wide_lse.data(), qkv.data(), s);
  }
  void backward() {
    kernels::cpu::attention_flash_backward(dqkv.data(), narrow(dout).data(), n_qkv.data(), out.data(),
                                           lse.data(), s);
    kernels::cpu::attention_flash_backward(wide_dqkv.data(), dout.data(), qkv.data(), wide(out).data(),
                                           lse.data(), s);
  }

  AttentionShape s;
  std::vector<float> qkv, dout;
  Narrow n_qkv, n_sinks, out, dqkv;
  std::vector<float> lse, wide_lse, wide_out, wide_dqkv;
};

struct PathsThenFastest {
  ~PathsThenFastest() { kernels::cpu::use_bf16_products(kernels::cpu::fastest_bf16_products()); }
};

}  // namespace

TEST_CASE("bf16 products, forward and backward, are as accurate as plain loops that round once", "[long]") {
  const PathsThenFastest restore;
  for (const Bf16Products path : kernels::cpu::bf16_products()) {
    kernels::cpu::use_bf16_products(path);
    for (const MatmulShape s : kShapes) {
      CAPTURE(name(path), s.M, s.N, s.K);
      const auto inp = normal(s.M * s.K, 1), weight = normal(s.N * s.K, 2), bias = normal(s.N, 3);
      const auto residual = normal(s.M * s.N, 4), dout = normal(s.M * s.N, 5);
      const Narrow n_inp = narrow(inp), n_weight = narrow(weight), n_bias = narrow(bias),
                   n_dout = narrow(dout);

      const auto plain = reference::matmul_forward(inp, weight, bias, residual, s);
      const auto exact = reference::matmul_forward(to_double(inp), to_double(weight), to_double(bias),
                                                   to_double(residual), s);
      Narrow out = narrow(residual);
      kernels::cpu::matmul_forward({.narrow = out.data()}, n_inp.data(), n_weight.data(), n_bias.data(),
                                   out.data(), s);
      check(out, plain, exact, kForward);
      std::vector<float> logits(out.size());
      kernels::cpu::matmul_forward({.wide = logits.data()}, n_inp.data(), n_weight.data(), n_bias.data(),
                                   narrow(residual).data(), s);
      test::check_as_accurate_as_plain(logits, plain, exact, kForward);

      const auto before = normal(s.M * s.K, 6);
      for (const bool accumulate : {false, true}) {
        const auto start = accumulate ? before : reference::zeros<float>(s.M * s.K);
        Narrow dinp = narrow(before);
        kernels::cpu::matmul_backward_input(dinp.data(), n_dout.data(), n_weight.data(), accumulate, s);
        check(dinp, reference::matmul_backward_input(start, dout, weight, s),
              reference::matmul_backward_input(to_double(start), to_double(dout), to_double(weight), s),
              kBackward);
      }

      auto plain_dweight = normal(s.N * s.K, 7), plain_dbias = normal(s.N, 8);
      auto exact_dweight = to_double(plain_dweight), exact_dbias = to_double(plain_dbias);
      Narrow dweight = narrow(plain_dweight), dbias = narrow(plain_dbias);
      reference::matmul_backward_weight(plain_dweight, plain_dbias, dout, inp, s);
      reference::matmul_backward_weight(exact_dweight, exact_dbias, to_double(dout), to_double(inp), s);
      kernels::cpu::matmul_backward_weight(dweight.data(), dbias.data(), n_dout.data(), n_inp.data(), s);
      check(dweight, plain_dweight, exact_dweight, kBackward);
      check(dbias, plain_dbias, exact_dbias, kBackward);
    }
  }
}

TEST_CASE("bf16 products are the same bits on any number of threads") {
  const MatmulShape s{300, 500, 320};
  const Narrow inp = narrow(normal(s.M * s.K, 1)), weight = narrow(normal(s.N * s.K, 2));
  const auto products = [&] {
    std::vector<float> out(static_cast<std::size_t>(s.M * s.N));
    kernels::cpu::matmul_forward({.wide = out.data()}, inp.data(), weight.data(), nullptr, nullptr, s);
    return out;
  };
  kernels::cpu::set_threads(1);
  const auto alone = products();
  kernels::cpu::set_threads(3);
  CHECK(products() == alone);
  kernels::cpu::set_threads(0);
}

TEST_CASE("norms on bf16 rows are as accurate as plain loops that round once") {
  constexpr float kEps = 1e-5f;
  for (const auto& [R, C] : {std::pair<std::int64_t, std::int64_t>{3, 17}, {100, 768}, {333, 48}}) {
    CAPTURE(R, C);
    const auto inp = normal(R * C, 1), weight = normal(C, 2), bias = normal(C, 3), dout = normal(R * C, 4);
    const Narrow n_inp = narrow(inp), n_weight = narrow(weight), n_bias = narrow(bias), n_dout = narrow(dout);
    Narrow out(inp.size());
    std::vector<float> mean(static_cast<std::size_t>(R)), rstd(mean.size());
    kernels::cpu::layernorm_forward(out.data(), mean.data(), rstd.data(), n_inp.data(), n_weight.data(),
                                    n_bias.data(), kEps, R, C);
    std::vector<float> plain_mean, plain_rstd;
    std::vector<double> exact_mean, exact_rstd;
    check(out, reference::layernorm_forward<float>(inp, weight, bias, kEps, R, C, &plain_mean, &plain_rstd),
          reference::layernorm_forward<double>(to_double(inp), to_double(weight), to_double(bias), kEps, R, C,
                                               &exact_mean, &exact_rstd),
          kForward);
    test::check_as_accurate_as_plain(rstd, plain_rstd, exact_rstd, kForward);

    auto dinp = normal(R * C, 5), dweight = normal(C, 6), dbias = normal(C, 7);
    Narrow n_dinp = narrow(dinp), n_dweight = narrow(dweight), n_dbias = narrow(dbias);
    auto x_dinp = to_double(dinp), x_dweight = to_double(dweight), x_dbias = to_double(dbias);
    reference::layernorm_backward(dinp, dweight, dbias, dout, inp, weight, kEps, R, C);
    reference::layernorm_backward(x_dinp, x_dweight, x_dbias, to_double(dout), to_double(inp),
                                  to_double(weight), double{kEps}, R, C);
    kernels::cpu::layernorm_backward(n_dinp.data(), n_dweight.data(), n_dbias.data(), n_dout.data(),
                                     n_inp.data(), n_weight.data(), mean.data(), rstd.data(), R, C);
    check(n_dinp, dinp, x_dinp, kBackward);
    check(n_dweight, dweight, x_dweight, kBackward);
    check(n_dbias, dbias, x_dbias, kBackward);
  }
}

TEST_CASE("activations on bf16 are as accurate as plain loops that round once") {
  const std::int64_t R = 37, F = 129;
  const auto inp = normal(R * F, 1), gate_up = normal(2 * R * F, 2), dout = normal(R * F, 3);
  const Narrow n_inp = narrow(inp), n_gate_up = narrow(gate_up), n_dout = narrow(dout);
  Narrow out(inp.size()), of_both(gate_up.size());
  kernels::cpu::gelu_forward(out.data(), n_inp.data(), R, F);
  check(out, reference::gelu_forward(inp), reference::gelu_forward(to_double(inp)), kForward);
  kernels::cpu::gelu_backward(out.data(), n_dout.data(), n_inp.data(), R, F);
  check(out, reference::gelu_backward(dout, inp), reference::gelu_backward(to_double(dout), to_double(inp)),
        kBackward);
  kernels::cpu::swiglu_forward(out.data(), n_gate_up.data(), R, F);
  check(out, reference::swiglu_forward(gate_up, R, F), reference::swiglu_forward(to_double(gate_up), R, F),
        kForward);
  kernels::cpu::swiglu_backward(of_both.data(), n_dout.data(), n_gate_up.data(), R, F);
  check(of_both, reference::swiglu_backward(dout, gate_up, R, F),
        reference::swiglu_backward(to_double(dout), to_double(gate_up), R, F), kBackward);
}

TEST_CASE(
    "activations, norms of queries and keys, and columns on bf16 are fp32's on the same numbers, rounded "
    "once") {
  const std::int64_t R = 37, F = 90;
  const auto inp = normal(R * F, 1), gate_up = normal(2 * R * F, 2), dout = normal(R * F, 3);
  const Narrow n_inp = narrow(inp), n_gate_up = narrow(gate_up), n_dout = narrow(dout);
  Narrow out(inp.size()), of_both(gate_up.size());
  std::vector<float> wide_out(inp.size()), wide_of_both(gate_up.size());
  namespace cpu = kernels::cpu;
  cpu::activation_forward(cpu::relu_forward, out.data(), n_inp.data(), R, F);
  cpu::relu_forward(wide_out.data(), inp.data(), R, F);
  CHECK(wide(out) == rounded(wide_out));
  cpu::activation_backward(cpu::gelu_exact_backward, out.data(), n_dout.data(), n_inp.data(), R, F);
  cpu::gelu_exact_backward(wide_out.data(), dout.data(), inp.data(), R, F);
  CHECK(wide(out) == rounded(wide_out));
  cpu::geglu_forward(out.data(), n_gate_up.data(), R, F);
  cpu::geglu_forward(wide_out.data(), gate_up.data(), R, F);
  CHECK(wide(out) == rounded(wide_out));
  cpu::geglu_backward(of_both.data(), n_dout.data(), n_gate_up.data(), R, F);
  cpu::geglu_backward(wide_of_both.data(), dout.data(), gate_up.data(), R, F);
  CHECK(wide(of_both) == rounded(wide_of_both));

  cpu::take_columns(out.data(), n_gate_up.data(), 1.7f, R, {F, 2 * F, F});
  cpu::take_columns(wide_out.data(), gate_up.data(), 1.7f, R, {F, 2 * F, F});
  CHECK(wide(out) == rounded(wide_out));

  for (const bool all_heads : {false, true}) {
    const kernels::QkNormShape s{70, 4, 2, 16, all_heads};
    const std::int64_t size = s.R * (s.H + 2 * s.G) * s.D, gains = all_heads ? (s.H + s.G) * s.D : 2 * s.D;
    const auto qkv = normal(size, 4), weight = normal(gains, 5), dqkv = normal(size, 6);
    Narrow normed(qkv.size()), gradient = narrow(dqkv), dweight = narrow(std::vector<float>(weight.size()));
    std::vector<float> rstd(static_cast<std::size_t>(s.R * (s.H + s.G))), wide_rstd(rstd),
        wide_normed(qkv.size()), wide_gradient = dqkv, wide_dweight(weight.size());
    cpu::qk_norm_forward(normed.data(), rstd.data(), narrow(qkv).data(), narrow(weight).data(), 1e-5f, s);
    cpu::qk_norm_forward(wide_normed.data(), wide_rstd.data(), qkv.data(), weight.data(), 1e-5f, s);
    CHECK(wide(normed) == rounded(wide_normed));
    cpu::qk_norm_backward(gradient.data(), dweight.data(), narrow(qkv).data(), narrow(weight).data(),
                          rstd.data(), s);
    cpu::qk_norm_backward(wide_gradient.data(), wide_dweight.data(), qkv.data(), weight.data(), rstd.data(),
                          s);
    CHECK(wide(gradient) == rounded(wide_gradient));
    for (std::size_t i = 0; i < weight.size(); ++i)
      CHECK(wide(dweight)[i] == Approx(wide_dweight[i]).epsilon(0x1p-7).margin(1e-3));
  }
}

TEST_CASE(
    "attention on bf16 is fp32's on the same numbers, rounded once, where no tile of bf16 products takes "
    "it") {
  const PathsThenFastest restore;
  kernels::cpu::use_bf16_products(Bf16Products::plain);
  const std::vector<float> sinks = normal(4, 5);
  const std::vector<AttentionShape> shapes = {{2, 70, 4, 2, 16},
                                              {1, 130, 3, 3, 64},
                                              {2, 70, 4, 2, 16, {.window = 9}, sinks.data()},
                                              {1, 90, 2, 1, 16, {.chunk = 24}}};
  for (AttentionShape s : shapes) {
    CAPTURE(s.T, s.H, s.G, s.D, s.mask.window, s.mask.chunk);
    AttentionCase c(s);
    c.forward();
    CHECK(wide(c.out) == rounded(c.wide_out));
    CHECK(c.lse == c.wide_lse);
    c.backward();
    CHECK(wide(c.dqkv) == rounded(c.wide_dqkv));
    if (!s.sinks) continue;
    std::vector<float> wide_dsinks(sinks.size());
    Narrow dsinks = narrow(wide_dsinks);
    kernels::cpu::attention_sinks_backward(dsinks.data(), narrow(c.dout).data(), c.out.data(), c.lse.data(),
                                           c.n_sinks.data(), s);
    kernels::cpu::attention_sinks_backward(wide_dsinks.data(), c.dout.data(), wide(c.out).data(),
                                           c.lse.data(), s);
    CHECK(wide(dsinks) == rounded(wide_dsinks));
  }
}

TEST_CASE(
    "attention by tiles of bf16 products is off by what rounding probabilities and their gradients costs",
    "[long]") {
  const std::vector<float> sinks = normal(4, 5);
  const std::vector<AttentionShape> shapes = {{2, 70, 4, 2, 16},
                                              {1, 200, 3, 3, 64},
                                              {1, 130, 2, 1, 40},
                                              {2, 150, 4, 2, 16, {.window = 9}, sinks.data()},
                                              {1, 160, 2, 1, 16, {.chunk = 24}},
                                              {1, 70, 2, 1, 128, {.cap = 3}}};
  const PathsThenFastest restore;
  for (const Bf16Products path : kernels::cpu::bf16_products()) {
    kernels::cpu::use_bf16_products(path);
    for (AttentionShape s : shapes) {
      if (!kernels::cpu::packs_attention<bf16>(s.T)) continue;
      CAPTURE(name(path), s.T, s.H, s.G, s.D, s.mask.window, s.mask.chunk);
      AttentionCase c(s);
      c.forward();
      for (std::size_t i = 0; i < c.lse.size(); ++i) CHECK(c.lse[i] == Approx(c.wide_lse[i]).margin(1e-4));
      // A probability is off by 2^-8 of it at most, and so is the result once more: together at most 2^-7 of
      // the sum of probabilities times absolute values.
      auto absolute = c.qkv;
      const std::int64_t width = (s.H + 2 * s.G) * s.D;
      for (std::int64_t i = 0; i < s.B * s.T * width; ++i)
        if (i % width >= (s.H + s.G) * s.D)
          absolute[static_cast<std::size_t>(i)] = std::abs(c.qkv[static_cast<std::size_t>(i)]);
      std::vector<float> most(c.dout.size());
      kernels::cpu::attention_flash_forward(most.data(), nullptr, absolute.data(), s);
      const auto own = wide(c.out);
      for (std::size_t i = 0; i < own.size(); ++i)
        CHECK(std::abs(own[i] - c.wide_out[i]) <= 0x1p-7f * most[i] + 1e-6f);
      c.backward();
      // Roundings of a sum's terms are independent: what they leave of the whole gradient is less than one.
      double error = 0, size = 0;
      const auto own_gradient = wide(c.dqkv);
      for (std::size_t i = 0; i < own_gradient.size(); ++i) {
        error += std::pow(own_gradient[i] - c.wide_dqkv[i], 2);
        size += std::pow(c.wide_dqkv[i], 2);
      }
      CHECK(std::sqrt(error / size) < 0x1p-8);
      CHECK(error > 0);
    }
  }
}

TEST_CASE("an embedding's gradient in bf16 is rounded once however often a token occurs") {
  const kernels::EmbeddingShape s{2, 40, 24, 11};
  const auto tokens = test::random_ids(s.B * s.T, static_cast<std::int32_t>(s.V), 3);
  const auto dout = normal(s.B * s.T * s.C, 1);
  auto dweight = normal(s.V * s.C, 2), dpositions = normal(s.T * s.C, 4);
  auto exact = to_double(dweight), exact_positions = to_double(dpositions);
  Narrow n_dweight = narrow(dweight), n_dpositions = narrow(dpositions);
  reference::embedding_backward(dweight, dpositions, dout, tokens, s);
  reference::embedding_backward(exact, exact_positions, to_double(dout), tokens, s);
  kernels::cpu::embedding_backward(n_dweight.data(), n_dpositions.data(), narrow(dout).data(), tokens.data(),
                                   s);
  check(n_dweight, dweight, exact, kBackward);
  check(n_dpositions, dpositions, exact_positions, kBackward);
}

TEST_CASE("AdamW with a master copy updates it as fp32's does, and the parameter is its rounding") {
  const std::int64_t count = 5000;
  const kernels::AdamWSettings settings{1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 3};
  auto master = test::normal_tensor(count, 1), moment1 = test::normal_tensor(count, 2);
  auto moment2 = test::normal_tensor(count, 3);
  for (float& v : moment2) v *= v;
  const auto gradient = normal(count, 4);
  auto wanted = master, wanted1 = moment1, wanted2 = moment2;
  const kernels::AdamWTensor all{wanted.data(), gradient.data(), wanted1.data(), wanted2.data(), count, true};
  kernels::cpu::adamw({{all}}, nullptr, settings);
  Narrow parameter(static_cast<std::size_t>(count));
  kernels::cpu::adamw(
      {parameter.data(), narrow(gradient).data(), moment1.data(), moment2.data(), master.data(), count, true},
      nullptr, settings);
  CHECK(master == wanted);
  CHECK(moment2 == wanted2);
  CHECK(wide(parameter) == rounded(wanted));

  double norm = 0, wanted_norm = 0;
  kernels::cpu::squared_norm(&norm, narrow(gradient).data(), count);
  for (const float g : gradient) wanted_norm += static_cast<double>(g) * g;
  CHECK(norm == Approx(wanted_norm).epsilon(1e-12));
}

TEST_CASE("rotation of bf16 rows is the rounding of fp32's, at any position") {
  const kernels::RopeShape s{2, 33, 3, 1, 16};
  std::vector<float> table(static_cast<std::size_t>(80 * s.D));
  kernels::cpu::rope_table(table.data(), 10000, {}, 80, s.D);
  const std::vector<std::int32_t> positions{5, 40};
  auto qkv = normal(s.B * s.T * (s.H + 2 * s.G) * s.D, 1);
  Narrow narrowed = narrow(qkv);
  kernels::cpu::rope_forward(qkv.data(), table.data(), positions.data(), s);
  kernels::cpu::rope_forward(narrowed.data(), table.data(), positions.data(), s);
  CHECK(wide(narrowed) == rounded(qkv));
}
