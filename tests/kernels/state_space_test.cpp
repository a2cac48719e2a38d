#include <functional>

#include "kernels/activation.h"
#include "kernels/threads.h"
#include "tests/kernels/compare.h"
#include "tests/kernels/state_space_reference.h"

using kernels::CausalConvShape;
using kernels::GatedNormShape;
using kernels::SelectiveScanShape;
using test::kBackward;
using test::kForward;
using test::normal_tensor;
using test::to_double;
using Floats = std::vector<float>;
using Doubles = std::vector<double>;

namespace {

std::int64_t rows(SelectiveScanShape s) {
  return s.B * s.T;
}

// As a model has them (Dao & Gu's initial values): time steps about 0.001 to 0.1 after softplus, A from -1 to
// -16; `spread` widens the steps, so that states decay within a token or hardly at all.
reference::ScanInput<float> scan_input(SelectiveScanShape s, float spread) {
  reference::ScanInput<float> inp{normal_tensor(rows(s) * s.columns(), 1),
                                  normal_tensor(rows(s) * s.H, 2, spread), normal_tensor(s.H, 3),
                                  normal_tensor(s.H, 4), normal_tensor(s.H, 5)};
  for (float& x : inp.dt_bias) x = x - 4;
  for (float& x : inp.a_log) x = std::log(1 + 15 * std::abs(x) / 3);
  return inp;
}

Floats not_written(std::size_t count) {
  return Floats(count, NAN);
}

kernels::ScanTimeSteps steps(const reference::ScanInput<float>& inp, SelectiveScanShape s) {
  return {inp.dt.data(), s.H, inp.dt_bias.data(), inp.a_log.data()};
}

Floats scan(const reference::ScanInput<float>& inp, SelectiveScanShape s, Floats* state = nullptr,
            const std::int32_t* first_positions = nullptr) {
  auto out = not_written(static_cast<std::size_t>(rows(s) * s.inner()));
  kernels::cpu::selective_scan_forward(out.data(), state ? state->data() : nullptr, inp.xbc.data(),
                                       steps(inp, s), inp.d.data(), first_positions, s);
  return out;
}

// What a kernel returned, in the reference's form.
reference::ScanInput<float> scan_gradients(const reference::ScanInput<float>& inp, const Floats& dout,
                                           SelectiveScanShape s, float before) {
  reference::ScanInput<float> d{not_written(inp.xbc.size()), not_written(inp.dt.size()),
                                Floats(inp.dt_bias.size(), before), Floats(inp.a_log.size(), before),
                                Floats(inp.d.size(), before)};
  auto scratch = not_written(static_cast<std::size_t>(kernels::cpu::selective_scan_scratch(s)));
  kernels::cpu::selective_scan_backward(
      {d.xbc.data(), d.dt.data(), s.H, d.dt_bias.data(), d.a_log.data(), d.d.data()}, scratch.data(),
      dout.data(), inp.xbc.data(), steps(inp, s), inp.d.data(), s);
  return d;
}

template <class Real>
reference::ScanInput<Real> zero_gradients(const reference::ScanInput<float>& inp) {
  const auto none = [](const Floats& v) {
    return reference::zeros<Real>(static_cast<std::int64_t>(v.size()));
  };
  return {none(inp.xbc), none(inp.dt), none(inp.dt_bias), none(inp.a_log), none(inp.d)};
}

// Groups of one head and of many, chunks that do not divide the sequence, single tokens, a state smaller than
// a vector.
const std::vector<SelectiveScanShape> kScans = {{1, 1, 1, 4, 1, 4, 64},      {2, 5, 2, 3, 1, 5, 4},
                                                {1, 64, 4, 16, 2, 16, 16},   {2, 37, 6, 8, 2, 16, 16},
                                                {1, 130, 8, 64, 1, 128, 64}, {2, 65, 4, 32, 4, 24, 32}};

Doubles numerical(Doubles x, const Doubles& weights, const std::function<Doubles(const Doubles&)>& forward) {
  constexpr double h = 1e-5;
  Doubles gradient;
  for (double& element : x) {
    const double before = element;
    const auto at = [&](double value) {
      element = value;
      const Doubles out = forward(x);
      double sum = 0;
      for (std::size_t i = 0; i < out.size(); ++i) sum += weights[i] * out[i];
      return sum;
    };
    const double above = at(before + h);
    gradient.push_back((above - at(before - h)) / (2 * h));
    element = before;
  }
  return gradient;
}

void check_close(const Doubles& analytic, const Doubles& numeric) {
  REQUIRE(analytic.size() == numeric.size());
  for (std::size_t i = 0; i < numeric.size(); ++i)
    CHECK(analytic[i] == Approx(numeric[i]).epsilon(1e-7).margin(1e-7));
}

}  // namespace

TEST_CASE("the reference's gradients of the scan match finite differences") {
  const SelectiveScanShape s{2, 4, 2, 3, 1, 2, 4};
  const auto inp = scan_input(s, 2).in<double>();
  const auto dout = to_double(normal_tensor(rows(s) * s.inner(), 9));
  auto d = zero_gradients<double>(scan_input(s, 2));
  reference::selective_scan_backward(d, dout, inp, s);
  const auto check = [&](Doubles reference::ScanInput<double>::*member) {
    check_close(d.*member, numerical(inp.*member, dout, [&](const Doubles& x) {
                  auto changed = inp;
                  changed.*member = x;
                  auto state = reference::zeros<double>(s.B * s.H * s.N * s.P);
                  return reference::selective_scan_forward(changed, s, state);
                }));
  };
  using Input = reference::ScanInput<double>;
  for (const auto member : {&Input::xbc, &Input::dt, &Input::dt_bias, &Input::a_log, &Input::d})
    check(member);
}

TEST_CASE("the reference's gradients of the convolution and of the gated norm match finite differences") {
  const CausalConvShape conv{2, 5, 3, 4};
  const auto inp = to_double(normal_tensor(30, 1)), weight = to_double(normal_tensor(12, 2)),
             bias = to_double(normal_tensor(3, 3)), dout = to_double(normal_tensor(30, 4));
  auto dinp = reference::zeros<double>(30), dweight = reference::zeros<double>(12),
       dbias = reference::zeros<double>(3);
  reference::causal_conv_backward(dinp, dweight, dbias, dout, inp, weight, bias, conv);
  check_close(dinp, numerical(inp, dout, [&](const Doubles& x) {
                return reference::causal_conv_forward(x, weight, bias, conv);
              }));
  check_close(dweight, numerical(weight, dout, [&](const Doubles& x) {
                return reference::causal_conv_forward(inp, x, bias, conv);
              }));
  check_close(dbias, numerical(bias, dout, [&](const Doubles& x) {
                return reference::causal_conv_forward(inp, weight, x, conv);
              }));

  const GatedNormShape norm{5, 6, 2};
  const auto gate = to_double(normal_tensor(30, 5)), gain = to_double(normal_tensor(6, 6));
  auto dnormed = reference::zeros<double>(30), dgate = reference::zeros<double>(30),
       dgain = reference::zeros<double>(6);
  reference::gated_norm_backward(dnormed, dgate, dgain, dout, inp, gate, gain, 1e-5, norm);
  check_close(dnormed, numerical(inp, dout, [&](const Doubles& x) {
                return reference::gated_norm_forward(x, gate, gain, 1e-5, norm);
              }));
  check_close(dgate, numerical(gate, dout, [&](const Doubles& x) {
                return reference::gated_norm_forward(inp, x, gain, 1e-5, norm);
              }));
  check_close(dgain, numerical(gain, dout, [&](const Doubles& x) {
                return reference::gated_norm_forward(inp, gate, x, 1e-5, norm);
              }));
}

TEST_CASE(
    "the causal convolution and its gradient are as accurate as plain loops, with the same bits on any "
    "threads") {
  for (const CausalConvShape s :
       {CausalConvShape{1, 1, 1, 4}, {2, 3, 5, 4}, {3, 17, 100, 4}, {1, 200, 65, 2}, {2, 40, 64, 8}}) {
    CAPTURE(s.B, s.T, s.C, s.K);
    const std::int64_t n = s.B * s.T * s.C;
    const auto inp = normal_tensor(n, 1), weight = normal_tensor(s.C * s.K, 2), bias = normal_tensor(s.C, 3),
               dout = normal_tensor(n, 4), dweight_before = normal_tensor(s.C * s.K, 5);
    const auto exact_inp = to_double(inp), exact_weight = to_double(weight), exact_bias = to_double(bias);
    auto out = not_written(inp.size());
    kernels::cpu::causal_conv_forward(out.data(), nullptr, inp.data(), s.C, weight.data(), bias.data(),
                                      nullptr, s);
    test::check_as_accurate_as_plain(out, reference::causal_conv_forward(inp, weight, bias, s),
                                     reference::causal_conv_forward(exact_inp, exact_weight, exact_bias, s),
                                     kForward);

    auto plain_dinp = reference::zeros<float>(n), plain_dweight = dweight_before, plain_dbias = bias;
    reference::causal_conv_backward(plain_dinp, plain_dweight, plain_dbias, dout, inp, weight, bias, s);
    auto exact_dinp = reference::zeros<double>(n), exact_dweight = to_double(dweight_before),
         exact_dbias = exact_bias;
    reference::causal_conv_backward(exact_dinp, exact_dweight, exact_dbias, to_double(dout), exact_inp,
                                    exact_weight, exact_bias, s);
    Floats first_dweight;
    for (const int threads : {1, 2, 5}) {
      kernels::cpu::set_threads(threads);
      auto dinp = not_written(inp.size()), dweight = dweight_before, dbias = bias;
      kernels::cpu::causal_conv_backward(dinp.data(), s.C, dweight.data(), dbias.data(), dout.data(),
                                         inp.data(), s.C, weight.data(), bias.data(), s);
      test::check_as_accurate_as_plain(dinp, plain_dinp, exact_dinp, kBackward);
      test::check_as_accurate_as_plain(dweight, plain_dweight, exact_dweight, kBackward);
      test::check_as_accurate_as_plain(dbias, plain_dbias, exact_dbias, kBackward);
      if (threads == 1) first_dweight = dweight;
      CHECK(dweight == first_dweight);
    }
    kernels::cpu::set_threads(0);
  }
}

TEST_CASE("the causal convolution reads and writes rows that lie within wider ones") {
  const CausalConvShape s{2, 9, 10, 4};
  const std::int64_t stride = 17, offset = 3;
  const auto wide = normal_tensor(s.B * s.T * stride, 1), weight = normal_tensor(s.C * s.K, 2),
             bias = normal_tensor(s.C, 3), dout = normal_tensor(s.B * s.T * s.C, 4);
  Floats narrow;
  for (std::int64_t r = 0; r < s.B * s.T; ++r)
    narrow.insert(narrow.end(), wide.begin() + r * stride + offset, wide.begin() + r * stride + offset + s.C);
  auto from_wide = not_written(narrow.size()), from_narrow = from_wide;
  kernels::cpu::causal_conv_forward(from_wide.data(), nullptr, wide.data() + offset, stride, weight.data(),
                                    bias.data(), nullptr, s);
  kernels::cpu::causal_conv_forward(from_narrow.data(), nullptr, narrow.data(), s.C, weight.data(),
                                    bias.data(), nullptr, s);
  CHECK(from_wide == from_narrow);
  auto dwide = wide, dnarrow = narrow;
  Floats dweight(weight.size()), dbias(bias.size());
  kernels::cpu::causal_conv_backward(dwide.data() + offset, stride, dweight.data(), dbias.data(), dout.data(),
                                     wide.data() + offset, stride, weight.data(), bias.data(), s);
  kernels::cpu::causal_conv_backward(dnarrow.data(), s.C, dweight.data(), dbias.data(), dout.data(),
                                     narrow.data(), s.C, weight.data(), bias.data(), s);
  for (std::int64_t r = 0; r < s.B * s.T; ++r)
    for (std::int64_t c = 0; c < stride; ++c) {
      const bool inside = c >= offset && c < offset + s.C;
      CHECK(dwide[r * stride + c] == (inside ? dnarrow[r * s.C + c - offset] : wide[r * stride + c]));
    }
}

TEST_CASE("a convolution in parts, with its history carried on, is the convolution at once") {
  const CausalConvShape s{2, 23, 70, 4};
  const auto inp = normal_tensor(s.B * s.T * s.C, 1), weight = normal_tensor(s.C * s.K, 2),
             bias = normal_tensor(s.C, 3);
  auto whole = not_written(inp.size()), parts = whole,
       history = not_written(static_cast<std::size_t>(s.B * (s.K - 1) * s.C));
  kernels::cpu::causal_conv_forward(whole.data(), nullptr, inp.data(), s.C, weight.data(), bias.data(),
                                    nullptr, s);
  std::int64_t t = 0;
  for (const std::int64_t tokens : {1, 1, 2, 1, 9, 1, 1, 7}) {  // shorter than the history, and longer
    const CausalConvShape part{1, tokens, s.C, s.K};
    for (std::int64_t b = 0; b < s.B; ++b) {
      const auto position = static_cast<std::int32_t>(t);
      const std::int64_t at = (b * s.T + t) * s.C;
      kernels::cpu::causal_conv_forward(parts.data() + at, history.data() + b * (s.K - 1) * s.C,
                                        inp.data() + at, s.C, weight.data(), bias.data(), &position, part);
    }
    t += tokens;
  }
  REQUIRE(t == s.T);
  CHECK(parts == whole);
}

TEST_CASE("the gated norm and its gradient are as accurate as plain loops, with the same bits on any threads",
          "[long]") {
  constexpr float kEps = 1e-5f;
  for (const GatedNormShape s :
       {GatedNormShape{1, 2, 1}, {3, 34, 2}, {17, 64, 8}, {100, 1024, 8}, {300, 48, 1}}) {
    CAPTURE(s.R, s.C, s.G);
    const auto inp = normal_tensor(s.R * s.C, 1, 3), gate = normal_tensor(s.R * s.C, 2, 2),
               weight = normal_tensor(s.C, 3), dout = normal_tensor(s.R * s.C, 4),
               dweight_before = normal_tensor(s.C, 5);
    const auto exact_inp = to_double(inp), exact_gate = to_double(gate), exact_weight = to_double(weight);
    Floats plain_rstd;
    Doubles exact_rstd;
    const auto plain = reference::gated_norm_forward(inp, gate, weight, kEps, s, &plain_rstd);
    const auto exact =
        reference::gated_norm_forward<double>(exact_inp, exact_gate, exact_weight, kEps, s, &exact_rstd);
    auto out = not_written(inp.size()), rstd = not_written(plain_rstd.size());
    kernels::cpu::gated_norm_forward(out.data(), rstd.data(), inp.data(), gate.data(), s.C, weight.data(),
                                     kEps, s);
    test::check_as_accurate_as_plain(out, plain, exact, kForward);
    test::check_as_accurate_as_plain(rstd, plain_rstd, exact_rstd, kForward);

    auto plain_dinp = reference::zeros<float>(s.R * s.C), plain_dgate = plain_dinp,
         plain_dweight = dweight_before;
    reference::gated_norm_backward(plain_dinp, plain_dgate, plain_dweight, dout, inp, gate, weight, kEps, s);
    auto exact_dinp = reference::zeros<double>(s.R * s.C), exact_dgate = exact_dinp,
         exact_dweight = to_double(dweight_before);
    reference::gated_norm_backward<double>(exact_dinp, exact_dgate, exact_dweight, to_double(dout), exact_inp,
                                           exact_gate, exact_weight, kEps, s);
    Floats first_dweight;
    for (const int threads : {1, 2, 5}) {
      kernels::cpu::set_threads(threads);
      auto dinp = not_written(inp.size()), dgate = dinp, dweight = dweight_before;
      kernels::cpu::gated_norm_backward(dinp.data(), dgate.data(), s.C, dweight.data(), dout.data(),
                                        inp.data(), gate.data(), s.C, weight.data(), rstd.data(), s);
      test::check_as_accurate_as_plain(dinp, plain_dinp, exact_dinp, kBackward);
      test::check_as_accurate_as_plain(dgate, plain_dgate, exact_dgate, kBackward);
      test::check_as_accurate_as_plain(dweight, plain_dweight, exact_dweight, kBackward);
      if (threads == 1) first_dweight = dweight;
      CHECK(dweight == first_dweight);
    }
    kernels::cpu::set_threads(0);
  }
}

TEST_CASE("the chunked scan is as accurate as the recurrence in plain loops, and leaves its last state",
          "[long]") {
  for (const SelectiveScanShape s : kScans)
    for (const float spread : {0.5f, 3.0f}) {
      CAPTURE(s.B, s.T, s.H, s.P, s.G, s.N, s.Q, spread);
      const auto inp = scan_input(s, spread);
      auto plain_state = reference::zeros<float>(s.B * s.H * s.N * s.P),
           state = not_written(plain_state.size());
      auto exact_state = reference::zeros<double>(s.B * s.H * s.N * s.P);
      const auto plain = reference::selective_scan_forward(inp, s, plain_state);
      const auto exact = reference::selective_scan_forward(inp.in<double>(), s, exact_state);
      const std::vector<std::int32_t> start(static_cast<std::size_t>(s.B), 0);
      test::check_as_accurate_as_plain(scan(inp, s, &state, start.data()), plain, exact, kForward);
      test::check_as_accurate_as_plain(state, plain_state, exact_state, kForward);
      CHECK(scan(inp, s) == scan(inp, s, &state));
    }
}

TEST_CASE(
    "the scan's gradients are as accurate as plain loops back through time, with the same bits on any "
    "threads",
    "[long]") {
  for (const SelectiveScanShape s : kScans)
    for (const float spread : {0.5f, 3.0f}) {
      CAPTURE(s.B, s.T, s.H, s.P, s.G, s.N, s.Q, spread);
      const auto inp = scan_input(s, spread);
      const auto dout = normal_tensor(rows(s) * s.inner(), 9);
      auto plain = zero_gradients<float>(inp);
      reference::selective_scan_backward(plain, dout, inp, s);
      auto exact = zero_gradients<double>(inp);
      reference::selective_scan_backward(exact, to_double(dout), inp.in<double>(), s);
      reference::ScanInput<float> first;
      for (const int threads : {1, 2, 5}) {
        kernels::cpu::set_threads(threads);
        const auto d = scan_gradients(inp, dout, s, 0);
        test::check_as_accurate_as_plain(d.xbc, plain.xbc, exact.xbc, kBackward);
        test::check_as_accurate_as_plain(d.dt, plain.dt, exact.dt, kBackward);
        test::check_as_accurate_as_plain(d.dt_bias, plain.dt_bias, exact.dt_bias, kBackward);
        test::check_as_accurate_as_plain(d.a_log, plain.a_log, exact.a_log, kBackward);
        test::check_as_accurate_as_plain(d.d, plain.d, exact.d, kBackward);
        if (threads == 1) first = d;
        CHECK(d.xbc == first.xbc);
        CHECK(d.dt == first.dt);
        CHECK(d.a_log == first.a_log);
      }
      kernels::cpu::set_threads(0);
      const auto added = scan_gradients(inp, dout, s, 8);
      for (std::size_t h = 0; h < added.d.size(); ++h)
        CHECK(added.d[h] == Approx(8 + first.d[h]).margin(1e-5));
    }
}

TEST_CASE("decoding token by token after a prompt is the scan of all tokens, from any state") {
  const SelectiveScanShape s{2, 21, 6, 16, 2, 24, 8};
  const auto inp = scan_input(s, 1);
  auto exact_state = reference::zeros<double>(s.B * s.H * s.N * s.P);
  auto plain_state = reference::zeros<float>(s.B * s.H * s.N * s.P);
  const auto exact = reference::selective_scan_forward(inp.in<double>(), s, exact_state);
  const auto plain = reference::selective_scan_forward(inp, s, plain_state);
  auto out = not_written(plain.size()), state = not_written(plain_state.size());
  std::int64_t t = 0;
  for (const std::int64_t tokens : {11, 1, 1, 3, 1, 1, 1, 1, 1}) {
    for (std::int64_t b = 0; b < s.B; ++b) {
      auto part = s;
      part.B = 1, part.T = tokens;
      const std::int64_t r = b * s.T + t;
      const auto position = static_cast<std::int32_t>(t);
      kernels::cpu::selective_scan_forward(
          out.data() + r * s.inner(), state.data() + b * s.H * s.N * s.P, inp.xbc.data() + r * s.columns(),
          {inp.dt.data() + r * s.H, s.H, inp.dt_bias.data(), inp.a_log.data()}, inp.d.data(), &position,
          part);
    }
    t += tokens;
  }
  REQUIRE(t == s.T);
  test::check_as_accurate_as_plain(out, plain, exact, kForward);
  test::check_as_accurate_as_plain(state, plain_state, exact_state, kForward);
}

TEST_CASE("squared ReLU and its gradient are as accurate as plain loops, and keep NaN") {
  const std::int64_t R = 40, F = 1001;
  const auto inp = normal_tensor(R * F, 1), dout = normal_tensor(R * F, 2);
  auto out = not_written(inp.size()), dinp = out;
  kernels::cpu::squared_relu_forward(out.data(), inp.data(), R, F);
  kernels::cpu::squared_relu_backward(dinp.data(), dout.data(), inp.data(), R, F);
  CHECK(out == reference::squared_relu_forward(inp));
  test::check_as_accurate_as_plain(dinp, reference::squared_relu_backward(dout, inp),
                                   reference::squared_relu_backward(to_double(dout), to_double(inp)),
                                   kBackward);
  const float nan = NAN;
  kernels::cpu::squared_relu_forward(out.data(), &nan, 1, 1);
  CHECK(std::isnan(out[0]));
}
