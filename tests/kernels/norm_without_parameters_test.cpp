// LayerNorm without a gain, or without a bias, is that with a gain of 1 and a bias of 0; norms whose
// parameters do not learn.
#include <vector>

#include "kernels/bf16_rows.h"
#include "kernels/bf16_values.h"
#include "kernels/layernorm.h"
#include "kernels/rmsnorm.h"
#include "tests/kernels/reference.h"
#include "tests/support/catch.h"

namespace {

constexpr std::int64_t R = 37, C = 96;
constexpr float kEps = 1e-5f;

std::vector<float> numbers(std::int64_t count, float scale) {
  std::vector<float> v(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = scale * static_cast<float>((i * 37) % 101) / 50 - scale;
  return v;
}
std::vector<kernels::cuda::bf16> narrow(const std::vector<float>& v) {
  std::vector<kernels::cuda::bf16> to(v.size());
  kernels::cpu::narrow(to.data(), v.data(), static_cast<std::int64_t>(v.size()));
  return to;
}

// Runs both passes with a gain and a bias or without them; everything that comes out.
template <class T>
std::vector<T> run(const T* weight, const T* bias, bool learns, const std::vector<T>& inp,
                   const std::vector<T>& dout) {
  std::vector<T> all(static_cast<std::size_t>(2 * R * C));
  std::vector<float> mean(R), rstd(R);
  std::vector<T> dweight(C), dbias(C);
  kernels::cpu::layernorm_forward(all.data(), mean.data(), rstd.data(), inp.data(), weight, bias, kEps, R, C);
  kernels::cpu::layernorm_backward(all.data() + R * C, learns ? dweight.data() : nullptr,
                                   learns ? dbias.data() : nullptr, dout.data(), inp.data(), weight,
                                   mean.data(), rstd.data(), R, C);
  return all;
}

TEST_CASE("a LayerNorm without parameters is one whose gain is 1 and whose bias is 0, bit for bit") {
  const std::vector<float> inp = numbers(R * C, 2), dout = numbers(R * C, 0.5f);
  const std::vector<float> ones(C, 1), zeros(C, 0);
  const auto with = run(ones.data(), zeros.data(), true, inp, dout);
  CHECK(run<float>(nullptr, nullptr, false, inp, dout) == with);
  CHECK(run<float>(ones.data(), nullptr, false, inp, dout) == with);

  const auto bits_of = [](const std::vector<kernels::cuda::bf16>& v) {
    std::vector<std::uint16_t> bits;
    for (const auto x : v) bits.push_back(x.bits);
    return bits;
  };
  const auto n_inp = narrow(inp), n_dout = narrow(dout), n_ones = narrow(ones), n_zeros = narrow(zeros);
  CHECK(bits_of(run<kernels::cuda::bf16>(nullptr, nullptr, false, n_inp, n_dout)) ==
        bits_of(run(n_ones.data(), n_zeros.data(), true, n_inp, n_dout)));
}

// As beside adapters, where the gain is frozen.
TEST_CASE("an RMSNorm whose gain does not learn has the input's gradient of one that does, bit for bit") {
  const std::vector<float> inp = numbers(R * C, 2), dout = numbers(R * C, 0.5f), weight = numbers(C, 1);
  const auto check = [&](const auto& x, const auto& of_out, const auto& gain, const auto& bits) {
    std::vector<float> rstd(R);
    auto out = x, learns = x, frozen = x, dweight = gain;
    kernels::cpu::rmsnorm_forward(out.data(), rstd.data(), x.data(), gain.data(), kEps, R, C);
    kernels::cpu::rmsnorm_backward(learns.data(), dweight.data(), of_out.data(), x.data(), gain.data(),
                                   rstd.data(), R, C);
    kernels::cpu::rmsnorm_backward(frozen.data(), nullptr, of_out.data(), x.data(), gain.data(), rstd.data(),
                                   R, C);
    for (std::size_t i = 0; i < x.size(); ++i) CHECK(bits(frozen[i]) == bits(learns[i]));
  };
  check(inp, dout, weight, [](float value) { return value; });
  check(narrow(inp), narrow(dout), narrow(weight), [](kernels::cuda::bf16 value) { return value.bits; });
}

}  // namespace
