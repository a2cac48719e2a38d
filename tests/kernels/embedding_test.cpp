#include "kernels/embedding.h"

#include "kernels/bf16_rows.h"
#include "kernels/bf16_values.h"
#include "kernels/elementwise.h"
#include "kernels/threads.h"
#include "tests/kernels/compare.h"
#include "tests/kernels/reference.h"

using kernels::EmbeddingShape;
using test::kBackward;
using test::normal_tensor;
using test::to_double;

TEST_CASE("embedding_forward looks up tokens and adds positions from where each sequence starts") {
  for (const EmbeddingShape s : {EmbeddingShape{1, 1, 1, 1}, {2, 3, 17, 5}, {3, 65, 100, 50}}) {
    CAPTURE(s.B, s.T, s.C, s.V);
    const auto tokens = test::random_ids(s.B * s.T, static_cast<std::int32_t>(s.V), 1);
    const auto weight = normal_tensor(s.V * s.C, 2), position_weight = normal_tensor((s.T + s.B) * s.C, 3);
    std::vector<std::int32_t> positions;
    for (std::int32_t b = 0; b < s.B; ++b) positions.push_back(b);
    const std::vector<std::int32_t> zeros(positions.size(), 0);
    std::vector<float> out(static_cast<std::size_t>(s.B * s.T * s.C), NAN);
    // One addition is rounded the same way everywhere: equality.
    kernels::cpu::embedding_forward(out.data(), tokens.data(), weight.data(), position_weight.data(),
                                    positions.data(), s);
    CHECK(out == reference::embedding_forward(tokens, weight, position_weight, positions, s));
    kernels::cpu::embedding_forward(out.data(), tokens.data(), weight.data(), position_weight.data(), nullptr,
                                    s);
    CHECK(out == reference::embedding_forward(tokens, weight, position_weight, zeros, s));
    kernels::cpu::embedding_forward(out.data(), tokens.data(), weight.data(), nullptr, nullptr, s);
    CHECK(out == reference::embedding_forward(tokens, weight, {}, zeros, s));
  }
}

TEST_CASE("embedding_forward in bf16 rounds once what it gives in fp32, of each part of a vocabulary") {
  const std::int64_t B = 2, T = 3, C = 65, V = 20;
  const auto tokens = test::random_ids(B * T, static_cast<std::int32_t>(V), 1);
  const std::vector<std::int32_t> starts{2, 0};
  const auto in_bf16 = [](const std::vector<float>& values) {
    std::vector<kernels::cuda::bf16> narrow(values.size());
    kernels::cpu::narrow(narrow.data(), values.data(), static_cast<std::int64_t>(values.size()));
    return narrow;
  };
  const auto in_fp32 = [](const std::vector<kernels::cuda::bf16>& values) {
    std::vector<float> wide(values.size());
    kernels::cpu::widen(wide.data(), values.data(), static_cast<std::int64_t>(values.size()));
    return wide;
  };
  const auto weight = in_bf16(normal_tensor(V * C, 2)), added = in_bf16(normal_tensor((T + 2) * C, 3));
  const auto wide_weight = in_fp32(weight), wide_added = in_fp32(added);
  for (const EmbeddingShape s : {EmbeddingShape{B, T, C, V}, {B, T, C, 12}, {B, T, C, 8, 12}})
    for (const bool positions : {true, false}) {
      CAPTURE(s.V, s.first, positions);
      std::vector<kernels::cuda::bf16> out(static_cast<std::size_t>(B * T * C));
      std::vector<float> wide(out.size());
      kernels::cpu::embedding_forward(out.data(), tokens.data(), weight.data() + s.first * C,
                                      positions ? added.data() : nullptr, starts.data(), s);
      kernels::cpu::embedding_forward(wide.data(), tokens.data(), wide_weight.data() + s.first * C,
                                      positions ? wide_added.data() : nullptr, starts.data(), s);
      CHECK(in_fp32(out) == in_fp32(in_bf16(wide)));
    }
}

TEST_CASE("what parts of a vocabulary embed adds up to the whole, and so do their gradients") {
  const EmbeddingShape whole{2, 33, 8, 50};
  const auto tokens = test::random_ids(whole.B * whole.T, 50, 1);
  const auto weight = normal_tensor(whole.V * whole.C, 2), positions = normal_tensor(whole.T * whole.C, 3);
  const auto dout = normal_tensor(whole.B * whole.T * whole.C, 4);
  std::vector<float> out(dout.size()), sum(dout.size()), gradient(weight.size()), gradients(weight.size());
  kernels::cpu::embedding_forward(out.data(), tokens.data(), weight.data(), positions.data(), nullptr, whole);
  kernels::cpu::embedding_backward(gradient.data(), nullptr, dout.data(), tokens.data(), whole);
  for (std::int64_t first = 0; first < whole.V; first += 20) {
    EmbeddingShape part = whole;
    part.first = first;
    part.V = std::min<std::int64_t>(20, whole.V - first);
    const std::ptrdiff_t at = first * whole.C;
    std::vector<float> of_part(dout.size(), NAN);
    kernels::cpu::embedding_forward(of_part.data(), tokens.data(), weight.data() + at, positions.data(),
                                    nullptr, part);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += of_part[i];
    kernels::cpu::embedding_backward(gradients.data() + at, nullptr, dout.data(), tokens.data(), part);
  }
  CHECK(gradients == gradient);
  // Positions are added before the sum, of rows of zeros too: one rounding apart.
  for (std::size_t i = 0; i < sum.size(); ++i)
    CHECK(std::abs(sum[i] - out[i]) <= 1e-6f * (1 + std::abs(out[i])));
}

TEST_CASE("embedding_backward adds every row to its token, with the same bits on any threads") {
  for (const EmbeddingShape s :
       {EmbeddingShape{1, 1, 1, 1}, {2, 3, 17, 5}, {4, 65, 100, 7}, {1, 100, 768, 3}}) {
    CAPTURE(s.B, s.T, s.C, s.V);
    const auto tokens = test::random_ids(s.B * s.T, static_cast<std::int32_t>(s.V), 1);
    const auto dout = normal_tensor(s.B * s.T * s.C, 2);
    const auto dweight_before = normal_tensor(s.V * s.C, 3), dposition_before = normal_tensor(s.T * s.C, 4);
    auto plain_dweight = dweight_before, plain_dposition = dposition_before;
    reference::embedding_backward(plain_dweight, plain_dposition, dout, tokens, s);
    auto exact_dweight = to_double(dweight_before), exact_dposition = to_double(dposition_before);
    reference::embedding_backward(exact_dweight, exact_dposition, to_double(dout), tokens, s);
    std::vector<float> first_dweight, first_dposition;
    for (const int threads : {1, 2, 5}) {
      kernels::cpu::set_threads(threads);
      auto dweight = dweight_before, dposition = dposition_before;
      kernels::cpu::embedding_backward(dweight.data(), dposition.data(), dout.data(), tokens.data(), s);
      if (threads == 1) {
        test::check_as_accurate_as_plain(dweight, plain_dweight, exact_dweight, kBackward);
        test::check_as_accurate_as_plain(dposition, plain_dposition, exact_dposition, kBackward);
        first_dweight = dweight, first_dposition = dposition;
      }
      CHECK(dweight == first_dweight);
      CHECK(dposition == first_dposition);
      auto without_positions = dweight_before;
      kernels::cpu::embedding_backward(without_positions.data(), nullptr, dout.data(), tokens.data(), s);
      CHECK(without_positions == dweight);
    }
    kernels::cpu::set_threads(0);
  }
}

TEST_CASE("add, gather_last and zero do what their names say") {
  const std::int64_t B = 3, T = 5, C = 7001;
  const auto a = normal_tensor(B * T * C, 1), b = normal_tensor(B * T * C, 2);
  auto sum = a;
  kernels::cpu::add(sum.data(), sum.data(), b.data(), B * T, C);
  bool added = true;
  for (std::size_t i = 0; i < a.size(); ++i) added = added && sum[i] == a[i] + b[i];
  CHECK(added);

  std::vector<float> last(static_cast<std::size_t>(B * C));
  kernels::cpu::gather_last(last.data(), a.data(), B, T, C);
  for (std::int64_t sequence = 0; sequence < B; ++sequence)
    CHECK(std::equal(last.begin() + sequence * C, last.begin() + (sequence + 1) * C,
                     a.begin() + (sequence * T + T - 1) * C));

  kernels::cpu::zero(sum.data(), B * T * C - 1);
  CHECK(std::all_of(sum.begin(), sum.end() - 1, [](float x) { return x == 0; }));
  CHECK(sum.back() == a.back() + b.back());
}
