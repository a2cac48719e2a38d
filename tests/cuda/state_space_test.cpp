// The convolution, the scan and the gated norm of state-space layers as the GPU's kernels compute them,
// thread by thread.
#include "kernels/cuda/state_space.h"

#include <cmath>

#include "tests/cuda/on_gpu.h"
#include "tests/kernels/state_space_reference.h"

namespace cuda = kernels::cuda;
using cuda::Type;
using kernels::CausalConvShape;
using kernels::GatedNormShape;
using kernels::SelectiveScanShape;
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

using Floats = std::vector<float>;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// Rows of `stride` elements in which `rows` lie from column `first` on; NaN beside them.
Floats within(const Floats& rows, std::int64_t width, std::int64_t stride, std::int64_t first) {
  Floats wide(rows.size() / at(width) * at(stride), NAN);
  for (std::size_t i = 0; i < rows.size(); ++i)
    wide[i / at(width) * at(stride) + at(first) + i % at(width)] = rows[i];
  return wide;
}
Floats from_within(const Floats& wide, std::int64_t width, std::int64_t stride, std::int64_t first) {
  Floats rows(wide.size() / at(stride) * at(width));
  for (std::size_t i = 0; i < rows.size(); ++i)
    rows[i] = wide[i / at(width) * at(stride) + at(first) + i % at(width)];
  return rows;
}
cuda::Tensor column(DeviceArray& array, Type type, std::int64_t first) {
  cuda::Tensor tensor = array;
  tensor.data = static_cast<std::byte*>(tensor.data) + first * cuda::size_of(type);
  return tensor;
}

}  // namespace

TEST_CASE("The short convolution on the GPU, in one piece and in several, is as accurate as plain loops") {
  for (const CausalConvShape s : {CausalConvShape{2, 9, 5, 4}, {1, 40, 70, 4}, {3, 2, 300, 3}, {1, 1, 8, 2}})
    for (const Type type : {Type::f32, Type::bf16, Type::f16}) {
      CAPTURE(s.B, s.T, s.C, s.K, static_cast<int>(type));
      const std::int64_t stride = s.C + 7, first = 3, count = s.B * s.T * s.C;
      const auto inp = normal_tensor(count, 1, type), weight = normal_tensor(s.C * s.K, 2, type),
                 bias = normal_tensor(s.C, 3, type), dout = normal_tensor(count, 4, type);
      const auto exact =
          reference::causal_conv_forward<double>(to_double(inp), to_double(weight), to_double(bias), s);
      const auto plain = rounded(reference::causal_conv_forward<float>(inp, weight, bias, s), type);
      std::vector<double> exact_dinp(inp.size()), exact_dweight(weight.size(), 1),
          exact_dbias(bias.size(), 1);
      Floats plain_dinp(inp.size()), plain_dweight(weight.size(), 1), plain_dbias(bias.size(), 1);
      reference::causal_conv_backward<double>(exact_dinp, exact_dweight, exact_dbias, to_double(dout),
                                              to_double(inp), to_double(weight), to_double(bias), s);
      reference::causal_conv_backward<float>(plain_dinp, plain_dweight, plain_dbias, dout, inp, weight, bias,
                                             s);
      Floats dinp, dweight, dbias;
      const auto out = in_every_order([&] {
        Scratch scratch;
        DeviceArray x(within(inp, s.C, stride, first), type), w(weight, type), b(bias, type), g(dout, type),
            y(count, type), dx(within(inp, s.C, stride, first), type),
            dw(Floats(weight.size(), 1), Type::f32), db(Floats(bias.size(), 1), Type::f32);
        const cuda::ConstColumns from{column(x, type, first), stride};
        cuda::causal_conv_forward(no_scratch(), y, {}, from, w, b, nullptr, s);
        cuda::causal_conv_backward(scratch.context(), {column(dx, type, first), stride}, dw, db, g, from, w,
                                   b, s);
        dinp = from_within(dx.values(), s.C, stride, first), dweight = dw.values(), dbias = db.values();
        return y.values();
      });
      check_as_accurate_as_plain(out, plain, exact, type, kForward);
      check_as_accurate_as_plain(dinp, rounded(plain_dinp, type), exact_dinp, type, kBackward);
      check_as_accurate_as_plain(dweight, plain_dweight, exact_dweight, Type::f32, kBackward);
      check_as_accurate_as_plain(dbias, plain_dbias, exact_dbias, Type::f32, kBackward);

      // Token by token, and three at a time, with a history of NaN that the first call must not read.
      for (const std::int64_t piece : {1, 3}) {
        if (s.B != 1) continue;
        DeviceArray w(weight, type), b(bias, type), history((s.K - 1) * s.C, type);
        Floats pieces;
        for (std::int64_t t = 0; t < s.T; t += piece) {
          CausalConvShape part = s;
          part.T = std::min(piece, s.T - t);
          OnGpu<std::int32_t> position(static_cast<std::int32_t>(t));
          DeviceArray x(Floats(inp.begin() + t * s.C, inp.begin() + (t + part.T) * s.C), type),
              y(part.T * s.C, type);
          cuda::causal_conv_forward(no_scratch(), y, history, {x, s.C}, w, b, position.data(), part);
          const auto values = y.values();
          pieces.insert(pieces.end(), values.begin(), values.end());
        }
        CHECK(pieces == out);
      }
    }
}

TEST_CASE("The gated norm on the GPU is as accurate as plain loops, with its gradients") {
  for (const GatedNormShape s : {GatedNormShape{3, 16, 2}, {40, 70, 1}, {5, 600, 3}})
    for (const Type type : {Type::f32, Type::bf16, Type::f16}) {
      CAPTURE(s.R, s.C, s.G, static_cast<int>(type));
      constexpr float kEps = 1e-5f;
      const std::int64_t stride = s.C + 9, count = s.R * s.C;
      const auto inp = normal_tensor(count, 1, type), gate = normal_tensor(count, 2, type),
                 weight = normal_tensor(s.C, 3, type), dout = normal_tensor(count, 4, type);
      const auto exact =
          reference::gated_norm_forward<double>(to_double(inp), to_double(gate), to_double(weight), kEps, s);
      const auto plain = rounded(reference::gated_norm_forward<float>(inp, gate, weight, kEps, s), type);
      std::vector<double> exact_dinp(inp.size()), exact_dgate(inp.size()), exact_dweight(weight.size(), 1);
      Floats plain_dinp(inp.size()), plain_dgate(inp.size()), plain_dweight(weight.size(), 1);
      reference::gated_norm_backward<double>(exact_dinp, exact_dgate, exact_dweight, to_double(dout),
                                             to_double(inp), to_double(gate), to_double(weight), kEps, s);
      reference::gated_norm_backward<float>(plain_dinp, plain_dgate, plain_dweight, dout, inp, gate, weight,
                                            kEps, s);
      Floats dinp, dgate, dweight;
      const auto out = in_every_order([&] {
        Scratch scratch;
        DeviceArray x(inp, type), z(within(gate, s.C, stride, 0), type), w(weight, type), g(dout, type),
            y(count, type), rstd(s.R * s.G, Type::f32), dx(count, type), dz(s.R * stride, type),
            dw(Floats(weight.size(), 1), Type::f32);
        cuda::gated_norm_forward(no_scratch(), y, rstd.f32(), x, {z, stride}, w, kEps, s);
        cuda::gated_norm_backward(scratch.context(), dx, {dz, stride}, dw, g, x, {z, stride}, w, rstd.f32(),
                                  s);
        dinp = dx.values(), dgate = from_within(dz.values(), s.C, stride, 0), dweight = dw.values();
        return y.values();
      });
      check_as_accurate_as_plain(out, plain, exact, type, kForward);
      check_as_accurate_as_plain(dinp, rounded(plain_dinp, type), exact_dinp, type, kBackward);
      check_as_accurate_as_plain(dgate, rounded(plain_dgate, type), exact_dgate, type, kBackward);
      check_as_accurate_as_plain(dweight, plain_dweight, exact_dweight, Type::f32, kBackward);
    }
}

TEST_CASE("The scan on the GPU and its gradients are as accurate as the recurrence in plain loops") {
  // One head a group and many, chunks that do not divide the sequence, single tokens, sizes that fill
  // threads' parts and do not.
  for (const SelectiveScanShape s : {SelectiveScanShape{4, 1, 4, 4, 2, 4, 64},
                                     {2, 5, 2, 3, 1, 5, 4},
                                     {1, 64, 4, 16, 2, 16, 16},
                                     {2, 37, 6, 8, 2, 20, 16},
                                     {1, 70, 2, 64, 1, 32, 32}})
    for (const Type type : {Type::f32, Type::bf16})
      for (const float spread : {1.0f, 4.0f}) {
        CAPTURE(s.B, s.T, s.H, s.P, s.G, s.N, s.Q, static_cast<int>(type), spread);
        REQUIRE(cuda::scan_takes(s));
        const std::int64_t rows = s.B * s.T;
        reference::ScanInput<float> inp{
            normal_tensor(rows * s.columns(), 1, type), normal_tensor(rows * s.H, 2, type, spread),
            test::normal_tensor(s.H, 3), test::normal_tensor(s.H, 4), normal_tensor(s.H, 5, type)};
        for (float& x : inp.dt_bias) x -= 4;
        for (float& x : inp.a_log) x = std::log(1 + 15 * std::abs(x) / 3);
        inp.dt_bias = rounded(inp.dt_bias, type), inp.a_log = rounded(inp.a_log, type);
        const auto dout = normal_tensor(rows * s.inner(), 6, type);
        Floats heads = inp.dt_bias;
        heads.insert(heads.end(), inp.a_log.begin(), inp.a_log.end());
        heads.insert(heads.end(), inp.d.begin(), inp.d.end());

        const auto reference_of = [&]<class Real>(Real) {
          const auto in = inp.in<Real>();
          auto state = reference::zeros<Real>(s.B * s.H * s.N * s.P);
          auto gradients = in;
          for (auto* part : {&gradients.xbc, &gradients.dt}) std::fill(part->begin(), part->end(), Real(0));
          for (auto* part : {&gradients.dt_bias, &gradients.a_log, &gradients.d})
            std::fill(part->begin(), part->end(), Real(1));
          auto out = reference::selective_scan_forward<Real>(in, s, state);
          reference::selective_scan_backward<Real>(gradients, {dout.begin(), dout.end()}, in, s);
          auto of_heads = gradients.dt_bias;
          of_heads.insert(of_heads.end(), gradients.a_log.begin(), gradients.a_log.end());
          of_heads.insert(of_heads.end(), gradients.d.begin(), gradients.d.end());
          return std::vector<std::vector<Real>>{out, state, gradients.xbc, gradients.dt, of_heads};
        };
        const auto exact = reference_of(double{});
        const auto plain = reference_of(float{});

        const std::int64_t stride = s.H + 5, first = 2;
        std::vector<Floats> values;
        in_every_order([&] {
          Scratch scratch;
          DeviceArray xbc(inp.xbc, type), dt(within(inp.dt, s.H, stride, first), type), of_heads(heads, type),
              out(rows * s.inner(), type), state(s.B * s.H * s.N * s.P, Type::f32), g(dout, type),
              dxbc(rows * s.columns(), type), ddt(within(inp.dt, s.H, stride, first), type),
              dheads(Floats(heads.size(), 1), Type::f32),
              states(s.B * s.chunks() * s.H * s.N * s.P, Type::f32);
          const cuda::ConstColumns steps{column(dt, type, first), stride};
          cuda::selective_scan_forward(no_scratch(), out, state.f32(), xbc, steps, of_heads, nullptr, s);
          cuda::selective_scan_backward(scratch.context(), dxbc, {column(ddt, type, first), stride}, dheads,
                                        states.f32(), g, xbc, steps, of_heads, s);
          values = {out.values(), state.values(), dxbc.values(),
                    from_within(ddt.values(), s.H, stride, first), dheads.values()};
          Floats all;
          for (const Floats& part : values) all.insert(all.end(), part.begin(), part.end());
          return all;
        });
        check_as_accurate_as_plain(values[0], rounded(plain[0], type), exact[0], type, kForward);
        check_as_accurate_as_plain(values[1], plain[1], exact[1], Type::f32, kForward);
        check_as_accurate_as_plain(values[2], rounded(plain[2], type), exact[2], type, kBackward);
        check_as_accurate_as_plain(values[3], rounded(plain[3], type), exact[3], type, kBackward);
        check_as_accurate_as_plain(values[4], plain[4], exact[4], Type::f32, kBackward);
      }
}

TEST_CASE("A scan that goes on from a state on the GPU gives the bits of one in a piece") {
  const SelectiveScanShape s{1, 9, 2, 8, 1, 16, 4};
  const auto xbc = test::normal_tensor(s.T * s.columns(), 1), dt = test::normal_tensor(s.T * s.H, 2),
             heads = test::normal_tensor(3 * s.H, 3);
  DeviceArray of_heads(heads, Type::f32), all(xbc, Type::f32), steps(dt, Type::f32),
      out(s.T * s.inner(), Type::f32), state(s.H * s.N * s.P, Type::f32);
  cuda::selective_scan_forward(no_scratch(), out, nullptr, all, {steps, s.H}, of_heads, nullptr, s);
  Floats pieces;
  for (std::int64_t t = 0; t < s.T; t += 2) {  // the state is NaN at first, which counts as zero
    SelectiveScanShape part = s;
    part.T = std::min<std::int64_t>(2, s.T - t);
    OnGpu<std::int32_t> position(static_cast<std::int32_t>(t));
    DeviceArray x(Floats(xbc.begin() + t * s.columns(), xbc.begin() + (t + part.T) * s.columns()), Type::f32),
        d(Floats(dt.begin() + t * s.H, dt.begin() + (t + part.T) * s.H), Type::f32),
        y(part.T * s.inner(), Type::f32);
    cuda::selective_scan_forward(no_scratch(), y, state.f32(), x, {d, s.H}, of_heads, position.data(), part);
    const auto values = y.values();
    pieces.insert(pieces.end(), values.begin(), values.end());
  }
  CHECK(pieces == out.values());
}
