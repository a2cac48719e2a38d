#include "kernels/matmul.h"

#include <algorithm>
#include <initializer_list>
#include <string>

#include "kernels/blas.h"
#include "kernels/threads.h"
#include "tests/kernels/compare.h"
#include "tests/kernels/reference.h"

using kernels::MatmulShape;
using test::kBackward;
using test::kForward;
using test::normal_tensor;
using test::to_double;

namespace {

// Rows both sides of the switches from streaming to tiles (8) and to GEMM (31 or 47), and sizes that are no
// multiple of a vector or a tile.
const std::vector<MatmulShape> kShapes = {
    {1, 1, 1},      {1, 3, 17},    {1, 65, 100}, {2, 17, 65}, {3, 100, 31}, {4, 9, 64},   {5, 33, 48},
    {6, 7, 130},    {7, 66, 16},   {8, 50, 96},  {9, 5, 40},  {17, 65, 33}, {65, 100, 3}, {100, 1, 7},
    {128, 192, 64}, {1, 301, 576}, {27, 83, 70}, {47, 10, 9}, {48, 30, 31}, {75, 34, 53}};

}  // namespace

TEST_CASE("matmul_forward is as accurate as plain loops, with and without bias and residual", "[long]") {
  for (const MatmulShape s : kShapes)
    for (const bool with_bias : {false, true})
      for (const bool with_residual : {false, true}) {
        CAPTURE(s.M, s.N, s.K, with_bias, with_residual);
        const auto inp = normal_tensor(s.M * s.K, 1), weight = normal_tensor(s.N * s.K, 2);
        const auto bias = normal_tensor(with_bias ? s.N : 0, 3);
        const auto residual = normal_tensor(with_residual ? s.M * s.N : 0, 4);
        const auto plain = reference::matmul_forward(inp, weight, bias, residual, s);
        const auto exact = reference::matmul_forward(to_double(inp), to_double(weight), to_double(bias),
                                                     to_double(residual), s);
        std::vector<float> out(exact.size(), NAN);  // whatever was there is overwritten
        kernels::cpu::matmul_forward(out.data(), inp.data(), weight.data(), with_bias ? bias.data() : nullptr,
                                     with_residual ? residual.data() : nullptr, s);
        test::check_as_accurate_as_plain(out, plain, exact, kForward);
        if (with_residual) {
          std::vector<float> in_place = residual;
          kernels::cpu::matmul_forward(in_place.data(), inp.data(), weight.data(),
                                       with_bias ? bias.data() : nullptr, in_place.data(), s);
          test::check_as_accurate_as_plain(in_place, plain, exact, kForward);
        }
      }
}

TEST_CASE("matmul_backward_input is as accurate as plain loops, written or accumulated") {
  for (const MatmulShape s : kShapes) {
    CAPTURE(s.M, s.N, s.K);
    const auto dout = normal_tensor(s.M * s.N, 1), weight = normal_tensor(s.N * s.K, 2);
    const auto before = normal_tensor(s.M * s.K, 3);
    const auto none = reference::zeros<float>(s.M * s.K);

    std::vector<float> written(before.size(), NAN);
    kernels::cpu::matmul_backward_input(written.data(), dout.data(), weight.data(), false, s);
    test::check_as_accurate_as_plain(
        written, reference::matmul_backward_input(none, dout, weight, s),
        reference::matmul_backward_input(to_double(none), to_double(dout), to_double(weight), s), kBackward);

    std::vector<float> added = before;
    kernels::cpu::matmul_backward_input(added.data(), dout.data(), weight.data(), true, s);
    test::check_as_accurate_as_plain(
        added, reference::matmul_backward_input(before, dout, weight, s),
        reference::matmul_backward_input(to_double(before), to_double(dout), to_double(weight), s),
        kBackward);
  }
}

TEST_CASE(
    "matmul_backward_weight adds the weight's and the bias's gradient as accurately as plain loops, or writes "
    "them") {
  for (const MatmulShape s : kShapes) {
    CAPTURE(s.M, s.N, s.K);
    const auto dout = normal_tensor(s.M * s.N, 1), inp = normal_tensor(s.M * s.K, 2);
    const auto dweight_before = normal_tensor(s.N * s.K, 3), dbias_before = normal_tensor(s.N, 4);

    auto plain_dweight = dweight_before, plain_dbias = dbias_before;
    reference::matmul_backward_weight(plain_dweight, plain_dbias, dout, inp, s);
    auto exact_dweight = to_double(dweight_before), exact_dbias = to_double(dbias_before);
    reference::matmul_backward_weight(exact_dweight, exact_dbias, to_double(dout), to_double(inp), s);

    auto dweight = dweight_before, dbias = dbias_before;
    kernels::cpu::matmul_backward_weight(dweight.data(), dbias.data(), dout.data(), inp.data(), s);
    test::check_as_accurate_as_plain(dweight, plain_dweight, exact_dweight, kBackward);
    test::check_as_accurate_as_plain(dbias, plain_dbias, exact_dbias, kBackward);

    auto without_bias = dweight_before;
    kernels::cpu::matmul_backward_weight(without_bias.data(), nullptr, dout.data(), inp.data(), s);
    CHECK(without_bias == dweight);

    std::vector<float> zeros(dweight.size()), bias_zeros(dbias.size());
    kernels::cpu::matmul_backward_weight(zeros.data(), bias_zeros.data(), dout.data(), inp.data(), s);
    std::vector<float> written(dweight.size(), NAN), bias_written(dbias.size(), NAN);
    kernels::cpu::matmul_backward_weight(written.data(), bias_written.data(), dout.data(), inp.data(), s,
                                         false);
    CHECK(written == zeros);
    CHECK(bias_written == bias_zeros);
  }
}

TEST_CASE("matmul of few rows gives the same bits on any number of threads") {
  const MatmulShape s{GENERATE(3, 27), 1001, 300};
  const auto inp = normal_tensor(s.M * s.K, 1), weight = normal_tensor(s.N * s.K, 2);
  const auto run = [&](int threads) {
    kernels::cpu::set_threads(threads);
    std::vector<float> out(static_cast<std::size_t>(s.M * s.N));
    kernels::cpu::matmul_forward(out.data(), inp.data(), weight.data(), nullptr, nullptr, s);
    kernels::cpu::set_threads(0);
    return out;
  };
  const auto one = run(1);
  CHECK(run(2) == one);
  CHECK(run(3) == one);
}

#if defined(__x86_64__) && defined(__GNUC__)
TEST_CASE("OpenBLAS multiplies by the widest vectors that the processor has, however new it is") {
  const std::string config = kernels::cpu::blas().get_config();
  CAPTURE(config);
  const auto is_any_of = [&](std::initializer_list<const char*> names) {
    return std::any_of(names.begin(), names.end(),
                       [&](const char* name) { return config.find(name) != std::string::npos; });
  };
  if (__builtin_cpu_supports("x86-64-v4"))
    CHECK(is_any_of({"SkylakeX", "Cooperlake", "SapphireRapids"}));
  else if (__builtin_cpu_supports("x86-64-v3"))
    CHECK(is_any_of({"Haswell", "Zen"}));
}
#endif
