// Norms, activations, embedding, loss, optimizer and sampling as the GPU's kernels compute them, thread by
// thread.
#include <random>

#include "kernels/activation.h"
#include "kernels/cuda/cross_entropy.h"
#include "kernels/cuda/dropout.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/optimizer.h"
#include "kernels/cuda/sampling.h"
#include "kernels/sampling.h"
#include "tests/cuda/on_gpu.h"
#include "tests/kernels/reference.h"

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
using tests::OnGpu;
using tests::rounded;
using tests::Scratch;

namespace {

constexpr float kEps = 1e-5f;

struct Rows {
  std::int64_t R, C;
};
// Rows that vectors fill and that they do not; one warp and several; more rows than blocks that sum over
// them; one, two and four vectors a thread, and more than registers hold.
const std::vector<Rows> kShapes = {{7, 8},    {3, 17},   {5, 64},   {2, 600},
                                   {1060, 8}, {2, 2056}, {1, 4104}, {1, 8200}};

std::vector<float> joined(std::initializer_list<std::vector<float>> parts) {
  std::vector<float> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::vector<float> shifted(std::vector<float> values, Type type) {
  for (float& x : values) x = 3 * x + 10;
  return rounded(values, type);
}

}  // namespace

TEST_CASE("norms on the GPU are as accurate as plain loops in the same type, whatever the order of threads") {
  for (const Type type : {Type::f32, Type::bf16, Type::f16})
    for (const Rows s : kShapes) {
      CAPTURE(s.R, s.C, static_cast<int>(type));
      const auto inp = shifted(test::normal_tensor(s.R * s.C, 1), type);
      const auto weight = normal_tensor(s.C, 2, type), bias = normal_tensor(s.C, 3, type);
      const auto exact = reference::layernorm_forward<double>(to_double(inp), to_double(weight),
                                                              to_double(bias), kEps, s.R, s.C);
      const auto plain =
          rounded(reference::layernorm_forward<float>(inp, weight, bias, kEps, s.R, s.C), type);
      const auto exact_rms =
          reference::rmsnorm_forward<double>(to_double(inp), to_double(weight), kEps, s.R, s.C);
      const auto plain_rms = rounded(reference::rmsnorm_forward<float>(inp, weight, kEps, s.R, s.C), type);
      std::vector<float> rms;
      const auto values = in_every_order([&] {
        DeviceArray x(inp, type), w(weight, type), b(bias, type), out(s.R * s.C, type),
            rms_out(s.R * s.C, type);
        cuda::layernorm_forward(no_scratch(), out, nullptr, nullptr, x, w, b, kEps, s.R, s.C);
        cuda::rmsnorm_forward(no_scratch(), rms_out, nullptr, x, w, kEps, s.R, s.C);
        rms = rms_out.values();
        return out.values();
      });
      check_as_accurate_as_plain(values, plain, exact, type, kForward);
      check_as_accurate_as_plain(rms, plain_rms, exact_rms, type, kForward);
    }
}

TEST_CASE("a sum and its norm in one kernel have the bits that two kernels leave") {
  for (const Type type : {Type::f32, Type::bf16, Type::f16})
    for (const Rows s : kShapes)
      for (const bool biased : {false, true}) {
        CAPTURE(s.R, s.C, static_cast<int>(type), biased);
        const auto a = shifted(test::normal_tensor(s.R * s.C, 1), type),
                   b = normal_tensor(s.R * s.C, 2, type), bias = normal_tensor(s.C, 3, type),
                   gain = normal_tensor(s.C, 4, type), shift = normal_tensor(s.C, 5, type);
        const auto outputs = [&](bool one) {
          DeviceArray to(a, type), x(b, type), row(bias, type), w(gain, type), c(shift, type),
              out(s.R * s.C, type), rms_out(s.R * s.C, type), rms_sum(s.R * s.C, type);
          DeviceArray mean(s.R, Type::f32), rstd(s.R, Type::f32), rms_rstd(s.R, Type::f32);
          const cuda::ConstTensor added = biased ? cuda::ConstTensor(row) : cuda::ConstTensor();
          if (one) {
            cuda::rmsnorm_forward(no_scratch(), rms_out, rms_rstd.f32(), to, w, kEps, s.R, s.C, {},
                                  {x, added, rms_sum});
            cuda::layernorm_forward(no_scratch(), out, mean.f32(), rstd.f32(), to, w, c, kEps, s.R, s.C,
                                    {x, added, to});
          } else {
            cuda::add(no_scratch(), rms_sum, to, x, added, s.R, s.C);
            cuda::rmsnorm_forward(no_scratch(), rms_out, rms_rstd.f32(), rms_sum, w, kEps, s.R, s.C);
            cuda::add(no_scratch(), to, to, x, added, s.R, s.C);
            cuda::layernorm_forward(no_scratch(), out, mean.f32(), rstd.f32(), to, w, c, kEps, s.R, s.C);
          }
          return joined({to.values(), out.values(), mean.values(), rstd.values(), rms_sum.values(),
                         rms_out.values(), rms_rstd.values()});
        };
        const std::vector<float> two = outputs(false);
        CHECK(in_every_order([&] { return outputs(true); }) == two);
      }
}

TEST_CASE(
    "norms' gradients on the GPU are added as accurately as plain loops do, whatever the order of threads") {
  for (const Type type : {Type::f32, Type::bf16, Type::f16})
    for (const Rows s : kShapes) {
      CAPTURE(s.R, s.C, static_cast<int>(type));
      const auto inp = shifted(test::normal_tensor(s.R * s.C, 1), type);
      const auto weight = normal_tensor(s.C, 2, type), dout = normal_tensor(s.R * s.C, 3, type);
      const auto dinp_before = normal_tensor(s.R * s.C, 4, type);
      const auto before = normal_tensor(s.C, 5, Type::f32);  // gradients in fp32, whatever the activations

      auto exact_dinp = to_double(dinp_before), exact_dweight = to_double(before),
           exact_dbias = to_double(before);
      reference::layernorm_backward<double>(exact_dinp, exact_dweight, exact_dbias, to_double(dout),
                                            to_double(inp), to_double(weight), kEps, s.R, s.C);
      auto plain_dinp = dinp_before, plain_dweight = before, plain_dbias = before;
      reference::layernorm_backward<float>(plain_dinp, plain_dweight, plain_dbias, dout, inp, weight, kEps,
                                           s.R, s.C);
      auto exact_rms_dinp = to_double(dinp_before), exact_rms_dweight = to_double(before);
      reference::rmsnorm_backward<double>(exact_rms_dinp, exact_rms_dweight, to_double(dout), to_double(inp),
                                          to_double(weight), kEps, s.R, s.C);
      auto plain_rms_dinp = dinp_before, plain_rms_dweight = before;
      reference::rmsnorm_backward<float>(plain_rms_dinp, plain_rms_dweight, dout, inp, weight, kEps, s.R,
                                         s.C);

      std::vector<float> dinp, dweight, dbias, rms_dinp, rms_dweight;
      in_every_order([&] {
        Scratch scratch;
        DeviceArray x(inp, type), w(weight, type), b(weight, type), g(dout, type), out(s.R * s.C, type);
        DeviceArray mean(s.R, Type::f32), rstd(s.R, Type::f32), dx(dinp_before, type), dw(before, Type::f32),
            db(before, Type::f32);
        cuda::layernorm_forward(no_scratch(), out, mean.f32(), rstd.f32(), x, w, b, kEps, s.R, s.C);
        cuda::layernorm_backward(scratch.context(), dx, dw, db, g, x, w, mean.f32(), rstd.f32(), s.R, s.C);
        dinp = dx.values(), dweight = dw.values(), dbias = db.values();
        DeviceArray rms_dx(dinp_before, type), rms_dw(before, Type::f32), rms_rstd(s.R, Type::f32);
        cuda::rmsnorm_forward(no_scratch(), out, rms_rstd.f32(), x, w, kEps, s.R, s.C);
        cuda::rmsnorm_backward(scratch.context(), rms_dx, rms_dw, g, x, w, rms_rstd.f32(), s.R, s.C);
        rms_dinp = rms_dx.values(), rms_dweight = rms_dw.values();
        return joined({dinp, dweight, dbias, rms_dinp, rms_dweight});
      });
      check_as_accurate_as_plain(dinp, rounded(plain_dinp, type), exact_dinp, type, kBackward);
      check_as_accurate_as_plain(dweight, plain_dweight, exact_dweight, Type::f32, kBackward);
      check_as_accurate_as_plain(dbias, plain_dbias, exact_dbias, Type::f32, kBackward);
      check_as_accurate_as_plain(rms_dinp, rounded(plain_rms_dinp, type), exact_rms_dinp, type, kBackward);
      check_as_accurate_as_plain(rms_dweight, plain_rms_dweight, exact_rms_dweight, Type::f32, kBackward);
    }
}

// As latent attention has them: what is normed is a part of a projection's rows, and so is its gradient.
TEST_CASE("a norm of columns of wider rows on the GPU is as accurate as one of rows by themselves") {
  struct Columns {
    std::int64_t R, C, width, first;
  };
  for (const Type type : {Type::f32, Type::bf16})
    for (const Columns s : {Columns{5, 64, 96, 0}, {9, 16, 24, 8}, {3, 64, 75, 3}, {2, 17, 40, 16}}) {
      CAPTURE(s.R, s.C, s.width, s.first, static_cast<int>(type));
      const auto inp = shifted(test::normal_tensor(s.R * s.C, 1), type);
      const auto weight = normal_tensor(s.C, 2, type), dout = normal_tensor(s.R * s.C, 3, type);
      const auto dinp_before = normal_tensor(s.R * s.C, 4, type), before = normal_tensor(s.C, 5, Type::f32);
      const auto exact =
          reference::rmsnorm_forward<double>(to_double(inp), to_double(weight), kEps, s.R, s.C);
      const auto plain = rounded(reference::rmsnorm_forward<float>(inp, weight, kEps, s.R, s.C), type);
      auto exact_dinp = to_double(dinp_before), exact_dweight = to_double(before);
      reference::rmsnorm_backward<double>(exact_dinp, exact_dweight, to_double(dout), to_double(inp),
                                          to_double(weight), kEps, s.R, s.C);
      auto plain_dinp = dinp_before, plain_dweight = before;
      reference::rmsnorm_backward<float>(plain_dinp, plain_dweight, dout, inp, weight, kEps, s.R, s.C);

      // Rows of 7, in whose columns the values stand.
      const auto widened = [&](const std::vector<float>& values) {
        std::vector<float> rows(static_cast<std::size_t>(s.R * s.width), 7);
        for (std::int64_t r = 0; r < s.R; ++r)
          std::copy_n(values.begin() + r * s.C, s.C, rows.begin() + r * s.width + s.first);
        return rows;
      };
      const auto columns_of = [&](const std::vector<float>& rows) {
        std::vector<float> values;
        for (std::int64_t r = 0; r < s.R; ++r)
          values.insert(values.end(), rows.begin() + r * s.width + s.first,
                        rows.begin() + r * s.width + s.first + s.C);
        CHECK(widened(values) == rows);
        return values;
      };
      const auto from_first = [&](cuda::Tensor rows) {
        rows.data = static_cast<std::byte*>(rows.data) + s.first * cuda::size_of(type);
        return rows;
      };
      std::vector<float> out, dinp, dweight;
      in_every_order([&] {
        Scratch scratch;
        DeviceArray x(widened(inp), type), w(weight, type), y(widened(inp), type), g(widened(dout), type),
            dx(widened(dinp_before), type), dw(before, Type::f32), rstd(s.R, Type::f32);
        const cuda::RowStrides strides{s.width, s.width, s.width};
        cuda::rmsnorm_forward(no_scratch(), from_first(y), rstd.f32(), from_first(x), w, kEps, s.R, s.C,
                              strides);
        cuda::rmsnorm_backward(scratch.context(), from_first(dx), dw, from_first(g), from_first(x), w,
                               rstd.f32(), s.R, s.C, strides);
        out = columns_of(y.values()), dinp = columns_of(dx.values()), dweight = dw.values();
        return joined({out, dinp, dweight});
      });
      check_as_accurate_as_plain(out, plain, exact, type, kForward);
      check_as_accurate_as_plain(dinp, rounded(plain_dinp, type), exact_dinp, type, kBackward);
      check_as_accurate_as_plain(dweight, plain_dweight, exact_dweight, Type::f32, kBackward);
    }
}

TEST_CASE("activations on the GPU are as accurate as plain loops in the same type") {
  for (const Type type : {Type::f32, Type::bf16, Type::f16})
    for (const Rows s : kShapes) {
      CAPTURE(s.R, s.C, static_cast<int>(type));
      const std::int64_t count = s.R * s.C;
      const auto inp = normal_tensor(count, 1, type, 4), dout = normal_tensor(count, 2, type);
      const auto gate_up = normal_tensor(2 * count, 3, type, 4);
      DeviceArray x(inp, type), g(dout, type), gu(gate_up, type), out(count, type), dx(dout, type),
          swiglu(count, type), dgate_up(2 * count, type);
      cuda::gelu_forward(no_scratch(), out, x, count);
      cuda::gelu_backward(no_scratch(), dx, dx, x, count);  // in place
      cuda::swiglu_forward(no_scratch(), swiglu, gu, s.R, s.C);
      cuda::swiglu_backward(no_scratch(), dgate_up, g, gu, s.R, s.C);
      check_as_accurate_as_plain(out.values(), rounded(reference::gelu_forward<float>(inp), type),
                                 reference::gelu_forward<double>(to_double(inp)), type, kForward);
      check_as_accurate_as_plain(dx.values(), rounded(reference::gelu_backward<float>(dout, inp), type),
                                 reference::gelu_backward<double>(to_double(dout), to_double(inp)), type,
                                 kBackward);
      check_as_accurate_as_plain(
          swiglu.values(), rounded(reference::swiglu_forward<float>(gate_up, s.R, s.C), type),
          reference::swiglu_forward<double>(to_double(gate_up), s.R, s.C), type, kForward);
      check_as_accurate_as_plain(
          dgate_up.values(), rounded(reference::swiglu_backward<float>(dout, gate_up, s.R, s.C), type),
          reference::swiglu_backward<double>(to_double(dout), to_double(gate_up), s.R, s.C), type, kBackward);
    }
}

TEST_CASE("add, convert and gather_last on the GPU move what they should") {
  const std::int64_t B = 2, T = 3, C = 24, R = B * T;
  for (const Type type : {Type::f32, Type::bf16, Type::f16}) {
    const auto a = normal_tensor(R * C, 1, type), b = normal_tensor(R * C, 2, type),
               bias = normal_tensor(C, 3, type);
    DeviceArray a_array(a, type), b_array(b, type), bias_array(bias, type), sum(R * C, type),
        last(B * C, type), wide(R * C, Type::f32);
    cuda::add(no_scratch(), sum, a_array, b_array, bias_array, R, C);
    cuda::gather_last(no_scratch(), last, a_array, B, T, C);
    cuda::convert(no_scratch(), wide, a_array, R * C);
    CHECK(wide.values() == a);
    std::vector<float> expected(a.size()), expected_last;
    for (std::size_t i = 0; i < a.size(); ++i)
      expected[i] = a[i] + b[i] + bias[i % static_cast<std::size_t>(C)];
    CHECK(sum.values() == rounded(expected, type));
    for (std::int64_t sequence = 0; sequence < B; ++sequence)
      expected_last.insert(expected_last.end(), a.begin() + ((sequence + 1) * T - 1) * C,
                           a.begin() + (sequence + 1) * T * C);
    CHECK(last.values() == expected_last);
  }
}

TEST_CASE("embedding on the GPU looks rows up, and adds a token's gradients by pieces of 64 of its rows") {
  // 2,100 rows, more than are looked through at a time: one token has most of them, and some have few.
  const kernels::EmbeddingShape s{3, 700, 16, 40};
  for (const Type type : {Type::f32, Type::bf16, Type::f16}) {
    auto tokens = test::random_ids(s.B * s.T, static_cast<std::int32_t>(s.V), 1);
    for (std::int32_t& token : tokens)
      if (token % 2 == 0) token = token < 8 ? 2 : 4;
    const auto weight = normal_tensor(s.V * s.C, 2, type), position = normal_tensor(s.T * s.C, 3, type);
    OnGpu<std::int32_t> tokens_on_gpu(tokens);
    DeviceArray w(weight, type), p(position, type), out(s.B * s.T * s.C, type);
    cuda::embedding_forward(no_scratch(), out, tokens_on_gpu.data(), w, p, nullptr, s);
    std::vector<float> expected;
    for (std::int64_t row = 0; row < s.B * s.T; ++row)
      for (std::int64_t c = 0; c < s.C; ++c)
        expected.push_back(weight[static_cast<std::size_t>(tokens[static_cast<std::size_t>(row)] * s.C + c)] +
                           position[static_cast<std::size_t>(row % s.T * s.C + c)]);
    CHECK(out.values() == rounded(expected, type));

    const auto dout = normal_tensor(s.B * s.T * s.C, 4, type),
               before = normal_tensor(s.V * s.C, 5, Type::f32),
               position_before = normal_tensor(s.T * s.C, 6, Type::f32);
    auto sums = std::vector<float>(before.size()), position_sums = std::vector<float>(position_before.size());
    std::vector<std::vector<std::int64_t>> rows_of(static_cast<std::size_t>(s.V));
    for (std::int64_t row = 0; row < s.B * s.T; ++row) {
      rows_of[static_cast<std::size_t>(tokens[static_cast<std::size_t>(row)])].push_back(row);
      for (std::int64_t c = 0; c < s.C; ++c)
        position_sums[static_cast<std::size_t>(row % s.T * s.C + c)] +=
            dout[static_cast<std::size_t>(row * s.C + c)];
    }
    for (std::int64_t token = 0; token < s.V; ++token) {
      const auto& rows = rows_of[static_cast<std::size_t>(token)];
      const std::size_t pieces = std::max<std::size_t>(1, rows.size() / 64);
      for (std::int64_t c = 0; c < s.C; ++c)
        for (std::size_t piece = 0; piece < pieces; ++piece) {
          float sum = 0;
          for (std::size_t i = piece * 64; i < (piece + 1 == pieces ? rows.size() : (piece + 1) * 64); ++i)
            sum += dout[static_cast<std::size_t>(rows[i] * s.C + c)];
          sums[static_cast<std::size_t>(token * s.C + c)] += sum;
        }
    }
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += before[i];
    for (std::size_t i = 0; i < position_sums.size(); ++i) position_sums[i] += position_before[i];
    const auto values = in_every_order([&] {
      Scratch scratch;
      DeviceArray g(dout, type), dw(before, Type::f32), dp(position_before, Type::f32);
      cuda::embedding_backward(scratch.context(), dw, dp, g, tokens_on_gpu.data(), s);
      return joined({dw.values(), dp.values()});
    });
    CHECK(values == joined({sums, position_sums}));
  }
}

TEST_CASE("rope on the GPU turns queries and keys as the plain loops do, and back") {
  const kernels::RopeShape s{2, 5, 3, 1, 16};
  std::vector<float> table(static_cast<std::size_t>(20 * s.D));
  kernels::cpu::rope_table(table.data(), 10000, {}, 20, s.D);
  const std::vector<std::int32_t> positions = {3, 9};
  const std::int64_t count = s.B * s.T * (s.H + 2 * s.G) * s.D;
  const auto qkv = normal_tensor(count, 1, Type::f32);
  auto expected = qkv;
  kernels::cpu::rope_forward(expected.data(), table.data(), positions.data(), s);
  OnGpu<float> table_on_gpu(table);
  OnGpu<std::int32_t> positions_on_gpu(positions);
  DeviceArray turned(qkv, Type::f32), back(expected, Type::f32);
  cuda::rope(no_scratch(), turned, table_on_gpu.data(), positions_on_gpu.data(), 1, s);
  const auto turned_values = turned.values();
  for (std::size_t i = 0; i < qkv.size(); ++i) CHECK(turned_values[i] == Approx(expected[i]).margin(1e-6));
  cuda::rope(no_scratch(), back, table_on_gpu.data(), positions_on_gpu.data(), -1, s);
  const auto back_values = back.values();
  for (std::size_t i = 0; i < qkv.size(); ++i) CHECK(back_values[i] == Approx(qkv[i]).margin(1e-6));
}

TEST_CASE(
    "cross-entropy on the GPU is as accurate as plain loops, and leaves ignored rows without gradient") {
  for (const Type type : {Type::f32, Type::bf16, Type::f16})
    // Rows of whole vectors, of others, with padding behind the words, and longer than shared memory.
    for (const auto& [V, width] : std::initializer_list<std::pair<std::int64_t, std::int64_t>>{
             {5, 5}, {64, 64}, {1003, 1003}, {1003, 1024}, {27, 64}, {59999, 60032}}) {
      const std::int64_t R = 3;
      const float scale = 0.25f;
      CAPTURE(V, width, static_cast<int>(type));
      const auto logits = normal_tensor(R * V, 1, type, 3);
      std::vector<std::int32_t> targets = test::random_ids(R, static_cast<std::int32_t>(V), 2);
      targets[1] = -1;
      std::vector<double> exact, exact_losses;
      std::vector<float> plain;
      for (std::int64_t r = 0; r < R; ++r) {
        double sum = 0;
        float sum_f32 = 0;
        for (std::int64_t v = 0; v < V; ++v) {
          const float x = logits[static_cast<std::size_t>(r * V + v)];
          sum += std::exp(static_cast<double>(x));
          sum_f32 += std::exp(x);
        }
        const std::int32_t target = targets[static_cast<std::size_t>(r)];
        for (std::int64_t v = 0; v < V; ++v) {
          const float x = logits[static_cast<std::size_t>(r * V + v)];
          exact.push_back(target < 0 ? 0 : (std::exp(static_cast<double>(x)) / sum - (v == target)) * scale);
          plain.push_back(target < 0 ? 0 : (std::exp(x) / sum_f32 - (v == target ? 1.0f : 0.0f)) * scale);
        }
        exact_losses.push_back(
            target < 0
                ? 0
                : std::log(sum) - static_cast<double>(logits[static_cast<std::size_t>(r * V + target)]));
      }
      // Columns of padding hold what would outweigh all others.
      std::vector<float> padded(static_cast<std::size_t>(R * width), 1000.0f);
      for (std::int64_t r = 0; r < R; ++r) std::copy_n(logits.begin() + r * V, V, padded.begin() + r * width);
      std::vector<float> losses;
      const auto results = in_every_order([&, V = V, width = width] {
        DeviceArray in_place(padded, type), loss(R, Type::f32);
        OnGpu<std::int32_t> targets_on_gpu(targets);
        cuda::cross_entropy_forward_backward(no_scratch(), in_place, loss.f32(), targets_on_gpu.data(), scale,
                                             nullptr, R, width, V);
        losses = loss.values();
        return joined({in_place.values(), losses});
      });
      std::vector<float> gradients;
      for (std::int64_t r = 0; r < R; ++r) {
        const auto row = results.begin() + r * width;
        gradients.insert(gradients.end(), row, row + V);
        CHECK(std::all_of(row + V, row + width, [](float x) { return x == 0; }));
      }
      check_as_accurate_as_plain(gradients, rounded(plain, type), exact, type, kBackward);
      for (std::size_t r = 0; r < exact_losses.size(); ++r)
        CHECK(losses[r] == Approx(exact_losses[r]).epsilon(1e-6).margin(1e-6));
    }
}

TEST_CASE("parts of a vocabulary on the GPU have together the loss and the gradients of the whole") {
  const std::int64_t R = 5, V = 301, width = 160;  // two parts, the second with 19 columns of padding
  constexpr float kScale = 0.125f;
  for (const Type type : {Type::f32, Type::bf16}) {
    CAPTURE(static_cast<int>(type));
    const auto logits = normal_tensor(R * V, 1, type, 3);
    std::vector<std::int32_t> targets = test::random_ids(R, static_cast<std::int32_t>(V), 2);
    targets[1] = -1, targets[2] = 7, targets[3] = 159 + 100;
    OnGpu<std::int32_t> targets_on_gpu(targets);
    DeviceArray whole(logits, type), whole_losses(R, Type::f32);
    cuda::cross_entropy_forward_backward(no_scratch(), whole, whole_losses.f32(), targets_on_gpu.data(),
                                         kScale, nullptr, R, V, V);
    std::vector<float> of_parts(static_cast<std::size_t>(R * V)), losses;
    std::vector<std::vector<float>> columns;
    std::vector<float> statistics;
    std::vector<kernels::VocabularyPart> parts{{0, width}, {width, V - width}};
    for (const kernels::VocabularyPart& part : parts) {
      std::vector<float> own(static_cast<std::size_t>(R * width),
                             1000.0f);  // padding holds what would outweigh
      for (std::int64_t r = 0; r < R; ++r)
        std::copy_n(logits.begin() + r * V + part.first, part.count, own.begin() + r * width);
      DeviceArray x(own, type), of_part(R * cuda::kLossStatistics, Type::f32);
      cuda::cross_entropy_statistics(no_scratch(), of_part.f32(), x, targets_on_gpu.data(), R, width, part);
      const std::vector<float> values = of_part.values();
      statistics.insert(statistics.end(), values.begin(), values.end());
      columns.push_back(own);
    }
    DeviceArray all(statistics, Type::f32);
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const auto results = in_every_order([&] {
        DeviceArray x(columns[p], type), loss(R, Type::f32);
        cuda::cross_entropy_of_part(no_scratch(), x, loss.f32(), targets_on_gpu.data(), all.f32(), 2, kScale,
                                    nullptr, R, width, parts[p]);
        losses = loss.values();
        return joined({x.values(), losses});
      });
      for (std::size_t r = 0; r < losses.size(); ++r)
        CHECK(losses[r] == Approx(whole_losses.values()[r]).epsilon(1e-6).margin(1e-6));
      for (std::int64_t r = 0; r < R; ++r) {
        const auto row = results.begin() + r * width;
        std::copy_n(row, parts[p].count, of_parts.begin() + r * V + parts[p].first);
        CHECK(std::all_of(row + parts[p].count, row + width, [](float x) { return x == 0; }));
      }
    }
    const std::vector<float> expected = whole.values();
    for (std::size_t i = 0; i < expected.size(); ++i)
      CHECK(of_parts[i] == Approx(expected[i]).epsilon(type == Type::f32 ? 1e-5 : 1e-2).margin(1e-7));
  }
}

TEST_CASE(
    "parts of an embedding on the GPU sum to the whole, and each gets the gradients of its own tokens") {
  const kernels::EmbeddingShape s{2, 30, 24, 11};
  const auto tokens = test::random_ids(s.B * s.T, static_cast<std::int32_t>(s.V), 1);
  OnGpu<std::int32_t> tokens_on_gpu(tokens);
  const auto weight = normal_tensor(s.V * s.C, 2, Type::f32),
             position = normal_tensor(s.T * s.C, 3, Type::f32),
             dout = normal_tensor(s.B * s.T * s.C, 4, Type::f32);
  DeviceArray w(weight, Type::f32), p(position, Type::f32), whole(s.B * s.T * s.C, Type::f32);
  cuda::embedding_forward(no_scratch(), whole, tokens_on_gpu.data(), w, p, nullptr, s);
  Scratch scratch;
  DeviceArray g(dout, Type::f32), dwhole(std::vector<float>(weight.size()), Type::f32);
  cuda::embedding_backward(scratch.context(), dwhole, {}, g, tokens_on_gpu.data(), s);
  std::vector<float> sum(static_cast<std::size_t>(s.B * s.T * s.C)), gradients;
  for (const kernels::EmbeddingShape& part :
       {kernels::EmbeddingShape{s.B, s.T, s.C, 6, 0}, kernels::EmbeddingShape{s.B, s.T, s.C, 5, 6}}) {
    const auto begin = weight.begin() + part.first * s.C;
    DeviceArray own(std::vector<float>(begin, begin + part.V * s.C), Type::f32),
        out(s.B * s.T * s.C, Type::f32);
    cuda::embedding_forward(no_scratch(), out, tokens_on_gpu.data(), own, p, nullptr, part);
    const std::vector<float> rows = out.values();
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += rows[i];
    const auto dweight = in_every_order([&] {
      Scratch scratch_of_part;
      DeviceArray dw(std::vector<float>(static_cast<std::size_t>(part.V * s.C)), Type::f32);
      cuda::embedding_backward(scratch_of_part.context(), dw, {}, g, tokens_on_gpu.data(), part);
      return dw.values();
    });
    gradients.insert(gradients.end(), dweight.begin(), dweight.end());
  }
  CHECK(sum == whole.values());
  CHECK(gradients == dwhole.values());
}

TEST_CASE("column sums on the GPU are those of plain loops, whatever the order of threads") {
  for (const Rows s : {Rows{1, 5}, Rows{70, 24}, Rows{200, 300}}) {
    const auto dout = normal_tensor(s.R * s.C, 1, Type::bf16), before = normal_tensor(s.C, 2, Type::f32);
    std::vector<double> exact = to_double(before);
    std::vector<float> plain = before;
    for (std::int64_t i = 0; i < s.R * s.C; ++i) {
      exact[static_cast<std::size_t>(i % s.C)] += dout[static_cast<std::size_t>(i)];
      plain[static_cast<std::size_t>(i % s.C)] += dout[static_cast<std::size_t>(i)];
    }
    const auto values = in_every_order([&] {
      Scratch scratch;
      DeviceArray sums(before, Type::f32), g(dout, Type::bf16);
      cuda::add_column_sums(scratch.context(), sums, g, nullptr, s.R, s.C);
      return sums.values();
    });
    check_as_accurate_as_plain(values, plain, exact, Type::f32, kBackward);
  }
}

TEST_CASE("AdamW on the GPU does what the CPU's does, on the master copy in mixed precision") {
  const std::int64_t count = 1001;
  const kernels::AdamWSettings settings{
      .learning_rate = 1e-2f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f, .step = 3};
  const auto parameter = normal_tensor(count, 1, Type::f32), gradient = normal_tensor(count, 2, Type::bf16),
             moment1 = normal_tensor(count, 3, Type::f32);
  auto moment2 = normal_tensor(count, 4, Type::f32);
  for (float& x : moment2) x *= x;
  OnGpu<cuda::AdamWStep> step(cuda::adamw_step(settings, 0));
  OnGpu<double> scale(0.5);
  const float scale_f32 = 0.5f;
  auto expected = parameter, expected1 = moment1, expected2 = moment2;
  const kernels::AdamWTensor tensor{expected.data(),  gradient.data(), expected1.data(),
                                    expected2.data(), count,           true};
  kernels::cpu::adamw({&tensor, 1}, &scale_f32, settings);

  DeviceArray p(parameter, Type::bf16), g(gradient, Type::bf16), m(moment1, Type::f32), v(moment2, Type::f32),
      master(parameter, Type::f32);
  const cuda::AdamWTensor on_gpu{p, g, m.f32(), v.f32(), master.f32(), count, 0};
  cuda::adamw(no_scratch(), {&on_gpu, 1}, scale.data(), step.data(), true);
  const auto master_values = master.values(), first = m.values(), second = v.values();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(master_values[i] == Approx(expected[i]).epsilon(1e-6).margin(1e-7));
    CHECK(first[i] == Approx(expected1[i]).epsilon(1e-6).margin(1e-6));
    CHECK(second[i] == Approx(expected2[i]).epsilon(1e-6));
  }
  CHECK(p.values() == rounded(master_values, Type::bf16));
}

TEST_CASE("Lion on the GPU does what the CPU's does, on the master copy in mixed precision") {
  const std::int64_t count = 1001;
  const kernels::AdamWSettings settings{
      .learning_rate = 1e-2f, .beta1 = 0.9f, .beta2 = 0.99f, .eps = 0, .weight_decay = 0.1f, .step = 3};
  const auto parameter = normal_tensor(count, 1, Type::f32), gradient = normal_tensor(count, 2, Type::bf16),
             moment = normal_tensor(count, 3, Type::f32);
  OnGpu<cuda::AdamWStep> step(cuda::adamw_step(settings, 0));
  OnGpu<double> scale(0.5);
  const float scale_f32 = 0.5f;
  auto expected = parameter, expected_moment = moment;
  const kernels::LionTensor tensor{expected.data(), gradient.data(), expected_moment.data(), count, true};
  kernels::cpu::lion({&tensor, 1}, &scale_f32, settings);

  DeviceArray p(parameter, Type::bf16), g(gradient, Type::bf16), m(moment, Type::f32),
      master(parameter, Type::f32);
  const cuda::LionTensor on_gpu{p, g, m.f32(), master.f32(), count, 0};
  cuda::lion(no_scratch(), {&on_gpu, 1}, scale.data(), step.data(), true);
  const auto master_values = master.values(), moments = m.values();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(master_values[i] == Approx(expected[i]).epsilon(1e-6).margin(1e-7));
    CHECK(moments[i] == Approx(expected_moment[i]).epsilon(1e-6).margin(1e-6));
  }
  CHECK(p.values() == rounded(master_values, Type::bf16));
}

TEST_CASE("without a master copy AdamW rounds to a neighbour, right on average, and the same in every run") {
  const std::int64_t count = 4000;
  const kernels::AdamWSettings settings{
      .learning_rate = 1e-3f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0, .step = 1};
  OnGpu<cuda::AdamWStep> step(cuda::adamw_step(settings, 0));
  OnGpu<double> scale(1);
  const std::vector<float> ones(static_cast<std::size_t>(count), 1.0f),
      zeros(static_cast<std::size_t>(count), 0.0f);
  const auto run = [&] {
    DeviceArray p(ones, Type::bf16), g(ones, Type::bf16), m(zeros, Type::f32), v(zeros, Type::f32);
    const cuda::AdamWTensor tensor{p, g, m.f32(), v.f32(), nullptr, count, 0};
    cuda::adamw(no_scratch(), {&tensor, 1}, scale.data(), step.data(), false);
    return p.values();
  };
  const auto values = run();
  CHECK(run() == values);
  // The first step of Adam is the learning rate, here about a quarter of bf16's spacing below 1.
  const double below = 1 - 0x1p-8;
  double mean = 0;
  for (const float x : values) {
    CHECK((x == 1.0f || static_cast<double>(x) == below));
    mean += static_cast<double>(x) / static_cast<double>(count);
  }
  const double probability = 1e-3 / 0x1p-8;
  const double deviation = 0x1p-8 * std::sqrt(probability * (1 - probability) / static_cast<double>(count));
  CHECK(std::abs(mean - (1 - 1e-3)) < 5 * deviation);
}

TEST_CASE("the gradient norm on the GPU is the CPU's, and clips as it does") {
  const auto a = normal_tensor(70000, 1, Type::f32), b = normal_tensor(33, 2, Type::f32);
  const float* const tensors[] = {a.data(), b.data()};
  const std::int64_t counts[] = {70000, 33};
  double squares = 0;
  kernels::cpu::squared_norm(&squares, tensors, counts);
  float norm = 0, scale = 0;
  kernels::cpu::clip_scale(&norm, &scale, &squares, 2.0f);
  OnGpu<cuda::AdamWStep> step(cuda::adamw_step({1e-3f, 0.9f, 0.95f, 1e-8f, 0, 1}, 2.0f));
  OnGpu<cuda::GradientNorm> norm_on_gpu(cuda::GradientNorm{});
  Scratch scratch;
  DeviceArray a_array(a, Type::f32), b_array(b, Type::f32);
  const cuda::GradientTensor gradients[] = {{a_array, 70000}, {b_array, 33}};
  cuda::add_squares(scratch.context(), norm_on_gpu.data(), gradients, 1.0);
  cuda::clip_scale(no_scratch(), norm_on_gpu.data(), step.data());
  const cuda::GradientNorm result = norm_on_gpu.value();
  CHECK(result.sum_of_squares == Approx(squares).epsilon(1e-12));
  CHECK(static_cast<float>(result.norm) == norm);
  CHECK(static_cast<float>(result.clip_scale) == scale);
}

TEST_CASE(
    "fp16 on the host: every value survives fp32, and what lies between two goes to the nearer, ties to "
    "even") {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const cuda::f16 half{static_cast<std::uint16_t>(bits)};
    const float value = cuda::to_float(half);
    if (std::isnan(value)) {
      CHECK(std::isnan(cuda::to_float(cuda::to_f16(value))));
      continue;
    }
    if (cuda::to_f16(value).bits != bits) FAIL("fp16 " << bits << " does not survive fp32");
  }
  CHECK(cuda::to_float(cuda::f16{0x0001}) == 0x1p-24f);
  CHECK(cuda::to_float(cuda::f16{0x7bff}) == 65504.0f);
  for (std::uint16_t bits = 0; bits < 0x7bff; ++bits) {  // all neighbours of either size
    const double below = cuda::to_float(cuda::f16{bits}),
                 above = cuda::to_float(cuda::f16{static_cast<std::uint16_t>(bits + 1)}),
                 middle = (below + above) / 2;  // a float: one bit more than fp16 keeps
    const std::uint16_t even = static_cast<std::uint16_t>(bits + (bits & 1));
    const auto middle_f32 = static_cast<float>(middle);
    if (cuda::to_f16(middle_f32).bits != even ||
        cuda::to_f16(std::nextafter(middle_f32, 0.0f)).bits != bits ||
        cuda::to_f16(std::nextafter(middle_f32, 1e30f)).bits != bits + 1)
      FAIL("between " << below << " and " << above);
  }
  CHECK(cuda::to_f16(65519.99f).bits == 0x7bff);
  CHECK(cuda::to_f16(65520.0f).bits == 0x7c00);
  CHECK(cuda::to_f16(-INFINITY).bits == 0xfc00);
}

TEST_CASE(
    "a loss scale is taken out of the norm and the update, and an overflow leaves everything as it was") {
  const std::int64_t count = 3000;
  const float loss_scale = 1024;
  const kernels::AdamWSettings settings{
      .learning_rate = 1e-2f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f, .step = 1};
  const auto parameter = normal_tensor(count, 1, Type::f32),
             gradient = normal_tensor(count, 2, Type::f16, 1e-2f);
  const std::vector<float> zeros(static_cast<std::size_t>(count), 0.0f);
  struct Result {
    std::vector<float> master, moment1, moment2;
    float found;
    cuda::GradientNorm norm;
  };
  const auto step_with = [&](float scale, float spoilt_by) {
    auto scaled = gradient;
    for (float& g : scaled) g *= scale > 0 ? scale : 1;
    if (spoilt_by != 0) scaled[1234] = spoilt_by;
    OnGpu<cuda::AdamWStep> step(cuda::adamw_step(settings, 0.1f, scale));
    OnGpu<cuda::GradientNorm> norm(cuda::GradientNorm{});
    OnGpu<float> found(0.0f);
    Scratch scratch;
    DeviceArray p(parameter, Type::f16), g(scaled, Type::f16), m(zeros, Type::f32), v(zeros, Type::f32),
        master(parameter, Type::f32);
    const cuda::GradientTensor gradients[] = {{g, count}};
    cuda::find_overflow(no_scratch(), found.data(), gradients);
    cuda::add_squares(scratch.context(), norm.data(), gradients, 1.0);
    cuda::clip_scale(no_scratch(), norm.data(), step.data());
    const cuda::AdamWTensor tensor{p, g, m.f32(), v.f32(), master.f32(), count, 0};
    cuda::adamw(no_scratch(), {&tensor, 1}, &norm.data()->clip_scale, step.data(), true);
    CHECK(p.values() == rounded(master.values(), Type::f16));
    return Result{master.values(), m.values(), v.values(), found.value(), norm.value()};
  };
  const Result plain = step_with(0, 0), scaled = step_with(loss_scale, 0);
  CHECK(scaled.found == 0);
  CHECK(scaled.norm.norm == Approx(plain.norm.norm).epsilon(1e-12));
  // The scale is a power of two: not a bit is lost by it.
  CHECK(scaled.master == plain.master);
  CHECK(scaled.moment1 == plain.moment1);
  CHECK(plain.master != parameter);
  for (const float spoilt_by : {INFINITY, -INFINITY, NAN}) {
    const Result skipped = step_with(loss_scale, spoilt_by);
    CHECK(skipped.found == 1);
    CHECK(skipped.norm.clip_scale == 0);
    CHECK(skipped.master == parameter);
    CHECK(skipped.moment1 == zeros);
    CHECK(skipped.moment2 == zeros);
  }
}

TEST_CASE("dropout keeps as many elements as it says, scaled, and drops the same ones again in backward") {
  const std::int64_t R = 40, C = 250;
  const float probability = 0.3f;
  for (const Type type : {Type::f32, Type::bf16, Type::f16}) {
    CAPTURE(static_cast<int>(type));
    const auto inp = normal_tensor(R * C, 1, type), bias = normal_tensor(C, 2, type),
               dout = normal_tensor(R * C, 3, type);
    struct Dropped {
      std::vector<float> out, drawn, masked;
      std::vector<std::int8_t> mask;
    };
    const auto drop = [&](std::uint32_t number, std::uint64_t seed, std::uint64_t stream) {
      OnGpu<cuda::DropoutStep> step(cuda::DropoutStep{probability, number, seed});
      OnGpu<std::int8_t> mask(std::vector<std::int8_t>(static_cast<std::size_t>(R * C), 9));
      DeviceArray x(inp, type), b(bias, type), out(R * C, type), g(dout, type), drawn(R * C, type);
      cuda::dropout_forward(no_scratch(), out, mask.data(), x, b, step.data(), stream, R, C);
      cuda::dropout_backward(no_scratch(), drawn, g, nullptr, step.data(), stream, R * C);
      cuda::dropout_backward(no_scratch(), g, g, mask.data(), step.data(), 0,
                             R * C);  // in place, by the mask
      return Dropped{out.values(), drawn.values(), g.values(), mask.values()};
    };
    const Dropped one = drop(1, 7, 5);
    std::int64_t kept = 0;
    std::vector<float> expected, gradient;
    for (std::size_t i = 0; i < inp.size(); ++i) {
      REQUIRE((one.mask[i] == 0 || one.mask[i] == 1));
      kept += one.mask[i];
      const float factor = 1 / (1 - probability);
      expected.push_back(one.mask[i] ? (inp[i] + bias[i % static_cast<std::size_t>(C)]) * factor : 0.0f);
      gradient.push_back(one.mask[i] ? dout[i] * factor : 0.0f);
    }
    CHECK(one.out == rounded(expected, type));
    CHECK(one.masked == rounded(gradient, type));
    CHECK(one.drawn == one.masked);
    const double count = static_cast<double>(R * C), p = probability;
    CHECK(std::abs(static_cast<double>(kept) - count * (1 - p)) < 5 * std::sqrt(count * p * (1 - p)));
    CHECK(drop(1, 7, 5).mask == one.mask);
    for (const Dropped& other : {drop(2, 7, 5), drop(1, 8, 5), drop(1, 7, 6)}) {
      std::int64_t alike = 0;  // of independent masks: p^2 + (1 - p)^2 of the elements
      for (std::size_t i = 0; i < one.mask.size(); ++i) alike += other.mask[i] == one.mask[i];
      const double q = p * p + (1 - p) * (1 - p);
      CHECK(std::abs(static_cast<double>(alike) - count * q) < 5 * std::sqrt(count * q * (1 - q)));
    }
  }
}

TEST_CASE(
    "the GPU draws the token that the CPU draws by the same random number, whatever the order of threads") {
  struct Settings {
    float temperature;
    std::int32_t top_k;
    float top_p;
  };
  struct Logits {
    std::int64_t V;
    Type type;  // of few values: equals are common
    float deviation;
  };
  for (const Logits l : {Logits{40, Type::f32, 1.5f}, Logits{1500, Type::bf16, 1},
                         Logits{30011, Type::f32, 3}, Logits{30011, Type::bf16, 0.1f}})
    for (const Settings s : {Settings{0, 0, 1}, Settings{0.8f, 0, 1}, Settings{0.8f, 5, 1},
                             Settings{1.3f, 0, 0.6f}, Settings{0.8f, 9, 0.7f}, Settings{1, 1000, 0.99f},
                             Settings{1, 0, 1e-6f}, Settings{0.01f, 3, 0.9f}}) {
      CAPTURE(l.V, l.deviation, s.temperature, s.top_k, s.top_p);
      const std::int64_t B = 3;
      const auto logits = normal_tensor(B * l.V, 1, l.type, l.deviation);
      const kernels::SamplingSettings settings{s.temperature, s.top_k, s.top_p, 11};
      // Behind each row what would outweigh all others, and is no word.
      constexpr std::int64_t kPadding = 4;
      std::vector<float> padded;
      for (std::int64_t b = 0; b < B; ++b) {
        padded.insert(padded.end(), logits.begin() + b * l.V, logits.begin() + (b + 1) * l.V);
        padded.insert(padded.end(), kPadding, 1000.0f);
      }
      OnGpu<float> padded_on_gpu(padded);
      for (const std::int64_t step : {0, 1, 2, 3}) {
        std::vector<std::int32_t> expected(static_cast<std::size_t>(B));
        kernels::cpu::sample(expected.data(), logits.data(), settings, step, B, l.V);
        OnGpu<std::int64_t> step_on_gpu(step);
        const auto drawn = in_every_order([&] {
          // Room for two rows at a time.
          Scratch scratch(2 * 8 * l.V + 80'000);
          OnGpu<std::int32_t> sampled(std::vector<std::int32_t>(expected.size(), -1));
          cuda::sample(scratch.context(), sampled.data(), padded_on_gpu.data(), settings, step_on_gpu.data(),
                       B, l.V + kPadding, l.V);
          const std::vector<std::int32_t> tokens = sampled.values();
          return std::vector<float>(tokens.begin(), tokens.end());
        });
        CHECK(drawn == std::vector<float>(expected.begin(), expected.end()));
      }
    }
}
