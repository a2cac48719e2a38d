#include "kernels/layernorm.h"
#include "kernels/rmsnorm.h"
#include "kernels/threads.h"
#include "tests/kernels/compare.h"
#include "tests/kernels/reference.h"

using test::kBackward;
using test::kForward;
using test::normal_tensor;
using test::to_double;

namespace {

constexpr float kEps = 1e-5f;

struct Rows {
  std::int64_t R, C;
};
// From two columns on: a row of one has no variance, and its rstd of 1/sqrt(eps) magnifies a last rounding
// that is zero in one order of operations and not in another.
const std::vector<Rows> kShapes = {{1, 2}, {1, 3}, {3, 17}, {17, 65}, {100, 768}, {333, 48}};

// Rows away from zero, so that forgetting the mean, or computing the variance as a difference of large
// numbers, shows.
std::vector<float> shifted_rows(Rows s) {
  auto inp = normal_tensor(s.R * s.C, 1);
  for (float& x : inp) x = 3 * x + 10;
  return inp;
}

}  // namespace

TEST_CASE("layernorm_forward is as accurate as plain loops and keeps mean and rstd") {
  for (const Rows s : kShapes) {
    CAPTURE(s.R, s.C);
    const auto inp = shifted_rows(s), weight = normal_tensor(s.C, 2), bias = normal_tensor(s.C, 3);
    std::vector<float> plain_mean, plain_rstd;
    std::vector<double> exact_mean, exact_rstd;
    const auto plain =
        reference::layernorm_forward<float>(inp, weight, bias, kEps, s.R, s.C, &plain_mean, &plain_rstd);
    const auto exact = reference::layernorm_forward<double>(
        to_double(inp), to_double(weight), to_double(bias), kEps, s.R, s.C, &exact_mean, &exact_rstd);
    std::vector<float> out(exact.size(), NAN), mean(exact_mean.size(), NAN), rstd(exact_rstd.size(), NAN);
    kernels::cpu::layernorm_forward(out.data(), mean.data(), rstd.data(), inp.data(), weight.data(),
                                    bias.data(), kEps, s.R, s.C);
    test::check_as_accurate_as_plain(out, plain, exact, kForward);
    test::check_as_accurate_as_plain(mean, plain_mean, exact_mean, kForward);
    test::check_as_accurate_as_plain(rstd, plain_rstd, exact_rstd, kForward);

    std::vector<float> without(exact.size(), NAN);
    kernels::cpu::layernorm_forward(without.data(), nullptr, nullptr, inp.data(), weight.data(), bias.data(),
                                    kEps, s.R, s.C);
    CHECK(without == out);
  }
}

TEST_CASE(
    "layernorm_backward adds gradients as accurately as plain loops, with the same bits on any threads") {
  for (const Rows s : kShapes) {
    CAPTURE(s.R, s.C);
    const auto inp = shifted_rows(s), weight = normal_tensor(s.C, 2), dout = normal_tensor(s.R * s.C, 3);
    const auto dinp_before = normal_tensor(s.R * s.C, 4), dweight_before = normal_tensor(s.C, 5),
               dbias_before = normal_tensor(s.C, 6);
    auto plain_dinp = dinp_before, plain_dweight = dweight_before, plain_dbias = dbias_before;
    reference::layernorm_backward(plain_dinp, plain_dweight, plain_dbias, dout, inp, weight, kEps, s.R, s.C);
    auto exact_dinp = to_double(dinp_before), exact_dweight = to_double(dweight_before),
         exact_dbias = to_double(dbias_before);
    reference::layernorm_backward<double>(exact_dinp, exact_dweight, exact_dbias, to_double(dout),
                                          to_double(inp), to_double(weight), kEps, s.R, s.C);

    std::vector<float> out(inp.size()), mean(static_cast<std::size_t>(s.R)), rstd(mean.size());
    kernels::cpu::layernorm_forward(out.data(), mean.data(), rstd.data(), inp.data(), weight.data(),
                                    dbias_before.data(), kEps, s.R, s.C);
    std::vector<float> first_dinp, first_dweight, first_dbias;
    for (const int threads : {1, 2, 5}) {
      kernels::cpu::set_threads(threads);
      auto dinp = dinp_before, dweight = dweight_before, dbias = dbias_before;
      kernels::cpu::layernorm_backward(dinp.data(), dweight.data(), dbias.data(), dout.data(), inp.data(),
                                       weight.data(), mean.data(), rstd.data(), s.R, s.C);
      if (threads == 1) {
        test::check_as_accurate_as_plain(dinp, plain_dinp, exact_dinp, kBackward);
        test::check_as_accurate_as_plain(dweight, plain_dweight, exact_dweight, kBackward);
        test::check_as_accurate_as_plain(dbias, plain_dbias, exact_dbias, kBackward);
        first_dinp = dinp, first_dweight = dweight, first_dbias = dbias;
      }
      CHECK(dinp == first_dinp);
      CHECK(dweight == first_dweight);
      CHECK(dbias == first_dbias);
    }
    kernels::cpu::set_threads(0);
  }
}

TEST_CASE("rmsnorm_forward is as accurate as plain loops and keeps rstd") {
  for (const Rows s : kShapes) {
    CAPTURE(s.R, s.C);
    const auto inp = shifted_rows(s), weight = normal_tensor(s.C, 2);
    std::vector<float> plain_rstd;
    std::vector<double> exact_rstd;
    const auto plain = reference::rmsnorm_forward<float>(inp, weight, kEps, s.R, s.C, &plain_rstd);
    const auto exact =
        reference::rmsnorm_forward<double>(to_double(inp), to_double(weight), kEps, s.R, s.C, &exact_rstd);
    std::vector<float> out(exact.size(), NAN), rstd(exact_rstd.size(), NAN), without(exact.size(), NAN);
    kernels::cpu::rmsnorm_forward(out.data(), rstd.data(), inp.data(), weight.data(), kEps, s.R, s.C);
    test::check_as_accurate_as_plain(out, plain, exact, kForward);
    test::check_as_accurate_as_plain(rstd, plain_rstd, exact_rstd, kForward);
    kernels::cpu::rmsnorm_forward(without.data(), nullptr, inp.data(), weight.data(), kEps, s.R, s.C);
    CHECK(without == out);
  }
}

TEST_CASE("rmsnorm_backward adds gradients as accurately as plain loops, with the same bits on any threads") {
  for (const Rows s : kShapes) {
    CAPTURE(s.R, s.C);
    const auto inp = shifted_rows(s), weight = normal_tensor(s.C, 2), dout = normal_tensor(s.R * s.C, 3);
    const auto dinp_before = normal_tensor(s.R * s.C, 4), dweight_before = normal_tensor(s.C, 5);
    auto plain_dinp = dinp_before, plain_dweight = dweight_before;
    reference::rmsnorm_backward(plain_dinp, plain_dweight, dout, inp, weight, kEps, s.R, s.C);
    auto exact_dinp = to_double(dinp_before), exact_dweight = to_double(dweight_before);
    reference::rmsnorm_backward<double>(exact_dinp, exact_dweight, to_double(dout), to_double(inp),
                                        to_double(weight), kEps, s.R, s.C);

    std::vector<float> out(inp.size()), rstd(static_cast<std::size_t>(s.R));
    kernels::cpu::rmsnorm_forward(out.data(), rstd.data(), inp.data(), weight.data(), kEps, s.R, s.C);
    std::vector<float> first_dinp, first_dweight;
    for (const int threads : {1, 2, 5}) {
      kernels::cpu::set_threads(threads);
      auto dinp = dinp_before, dweight = dweight_before;
      kernels::cpu::rmsnorm_backward(dinp.data(), dweight.data(), dout.data(), inp.data(), weight.data(),
                                     rstd.data(), s.R, s.C);
      if (threads == 1) {
        test::check_as_accurate_as_plain(dinp, plain_dinp, exact_dinp, kBackward);
        test::check_as_accurate_as_plain(dweight, plain_dweight, exact_dweight, kBackward);
        first_dinp = dinp, first_dweight = dweight;
      }
      CHECK(dinp == first_dinp);
      CHECK(dweight == first_dweight);
    }
    kernels::cpu::set_threads(0);
  }
}
