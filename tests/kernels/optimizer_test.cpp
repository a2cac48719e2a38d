#include "kernels/optimizer.h"

#include <cmath>

#include "kernels/adafactor.h"
#include "kernels/adam_8bit.h"
#include "kernels/threads.h"
#include "tests/kernels/compare.h"
#include "tests/kernels/reference.h"

using kernels::AdamWSettings;
using kernels::AdamWTensor;
using test::normal_tensor;
using test::to_double;

TEST_CASE("AdamW over several tensors and steps is as accurate as plain loops") {
  struct State {
    std::vector<float> parameter, moment1, moment2, plain_parameter, plain_moment1, plain_moment2;
    std::vector<double> exact_parameter, exact_moment1, exact_moment2;
    bool decay;
  };
  std::vector<State> states;
  for (const std::int64_t count : {1, 17, 100, 50001}) {
    State state;
    state.parameter = state.plain_parameter = normal_tensor(count, static_cast<unsigned>(count));
    state.exact_parameter = to_double(state.parameter);
    state.moment1 = state.moment2 = state.plain_moment1 = state.plain_moment2 =
        reference::zeros<float>(count);
    state.exact_moment1 = state.exact_moment2 = reference::zeros<double>(count);
    state.decay = count % 2 == 0;
    states.push_back(state);
  }
  AdamWSettings settings{1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 0};
  for (settings.step = 1; settings.step <= 5; ++settings.step) {
    const float scale = settings.step == 3 ? 0.25f : 1.0f;
    std::vector<std::vector<float>> gradients;
    std::vector<AdamWTensor> tensors;
    for (State& state : states)
      gradients.push_back(normal_tensor(static_cast<std::int64_t>(state.parameter.size()),
                                        static_cast<unsigned>(100 + settings.step)));
    for (std::size_t i = 0; i < states.size(); ++i) {
      State& state = states[i];
      tensors.push_back({state.parameter.data(), gradients[i].data(), state.moment1.data(),
                         state.moment2.data(), static_cast<std::int64_t>(state.parameter.size()),
                         state.decay});
      reference::adamw<float>(state.plain_parameter, gradients[i], state.plain_moment1, state.plain_moment2,
                              state.decay, scale, settings);
      reference::adamw<double>(state.exact_parameter, to_double(gradients[i]), state.exact_moment1,
                               state.exact_moment2, state.decay, scale, settings);
    }
    kernels::cpu::adamw(tensors, settings.step == 3 ? &scale : nullptr, settings);
  }
  for (const State& state : states) {
    CAPTURE(state.parameter.size());
    test::check_as_accurate_as_plain(state.parameter, state.plain_parameter, state.exact_parameter,
                                     test::kForward);
    test::check_as_accurate_as_plain(state.moment1, state.plain_moment1, state.exact_moment1, test::kForward);
    test::check_as_accurate_as_plain(state.moment2, state.plain_moment2, state.exact_moment2, test::kForward);
  }
}

TEST_CASE("AdamW gives the same bits however the elements are cut over threads") {
  const std::int64_t count = 50001;
  const auto before = normal_tensor(count, 1), gradient = normal_tensor(count, 2);
  std::vector<std::vector<float>> first;
  for (const int threads : {1, 2, 3, 7}) {
    CAPTURE(threads);
    kernels::cpu::set_threads(threads);
    std::vector<std::vector<float>> state = {before, reference::zeros<float>(count),
                                             reference::zeros<float>(count)};
    const std::vector<AdamWTensor> tensors = {
        {state[0].data(), gradient.data(), state[1].data(), state[2].data(), count, true}};
    for (std::int64_t step = 1; step <= 3; ++step)
      kernels::cpu::adamw(tensors, nullptr, {1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, step});
    if (first.empty()) first = state;
    CHECK(state == first);
  }
  kernels::cpu::set_threads(0);
}

TEST_CASE(
    "Lion moves each element by the learning rate against its momentum's sign, and stays where that is 0") {
  // beta1 * moment + (1 - beta1) * gradient: positive, negative, zero, zero by cancelling, not a number.
  std::vector<float> parameter = {1, 1, 1, 1, 1}, moment = {0, 1, 0, 1, 0};
  const std::vector<float> gradient = {2, -20, 0, -1, NAN};
  const kernels::LionTensor tensor{parameter.data(), gradient.data(), moment.data(), 5, true};
  kernels::cpu::lion({&tensor, 1}, nullptr, {0.25f, 0.5f, 0.75f, 0, 0.5f, 1});
  const float shrunk = 1 - 0.25f * 0.5f;
  CHECK(parameter[0] == shrunk - 0.25f);
  CHECK(parameter[1] == shrunk + 0.25f);
  CHECK(parameter[2] == shrunk);
  CHECK(parameter[3] == shrunk);
  CHECK(std::isnan(parameter[4]));
  CHECK(moment[0] == 0.5f);
  CHECK(moment[1] == 0.75f - 5);
  CHECK(moment[2] == 0);
  CHECK(moment[3] == 0.5f);
}

TEST_CASE("squared_norm adds up in double, with the same bits on any number of threads") {
  const std::vector<std::int64_t> counts = {1, 1000, 300001};
  std::vector<std::vector<float>> tensors;
  std::vector<const float*> pointers;
  double exact = 0;
  for (const std::int64_t count : counts) {
    tensors.push_back(normal_tensor(count, static_cast<unsigned>(count)));
    for (const float x : tensors.back()) exact += static_cast<double>(x) * x;
  }
  for (const auto& tensor : tensors) pointers.push_back(tensor.data());
  const auto run = [&](int threads) {
    kernels::cpu::set_threads(threads);
    double sum = 0;
    kernels::cpu::squared_norm(&sum, pointers, counts);
    kernels::cpu::set_threads(0);
    return sum;
  };
  const double one = run(1);
  // Each of n additions of positive terms rounds by at most 2^-53 of the sum.
  CHECK(std::abs(one - exact) <= 2 * 301002 * 0x1p-53 * exact);
  CHECK(run(2) == one);
  CHECK(run(5) == one);
}

TEST_CASE("clip_scale follows torch.nn.utils.clip_grad_norm_") {
  const double sum_of_squares = 25;
  float norm = 0, scale = 0;
  kernels::cpu::clip_scale(&norm, &scale, &sum_of_squares, 1.0f);
  CHECK(norm == 5.0f);
  CHECK(scale == static_cast<float>(1 / (5 + 1e-6)));
  kernels::cpu::clip_scale(&norm, &scale, &sum_of_squares, 6.0f);
  CHECK(scale == 1.0f);
  kernels::cpu::clip_scale(&norm, &scale, &sum_of_squares, 0.0f);  // no clipping
  CHECK(scale == 1.0f);
}

TEST_CASE("SGD's momentum keeps what it had and adds the gradient and the decay, as torch.optim.SGD") {
  std::vector<float> parameter = {1, 1}, moment = {4, 4};
  const std::vector<float> gradient = {2, 2};
  const std::vector<kernels::SgdTensor> tensors = {
      {parameter.data(), gradient.data(), moment.data(), 1, true},
      {parameter.data() + 1, gradient.data() + 1, moment.data() + 1, 1, false}};
  const float half = 0.5f;
  kernels::cpu::sgd(tensors, &half, {0.25f, 0.5f, 0, 0, 0.125f, 1});
  CHECK(moment[0] == 0.5f * 4 + 0.5f * 2 + 0.125f);
  CHECK(parameter[0] == 1 - 0.25f * moment[0]);
  CHECK(moment[1] == 0.5f * 4 + 0.5f * 2);
  CHECK(parameter[1] == 1 - 0.25f * moment[1]);
}

TEST_CASE("Adafactor of a gradient of rank one steps by its signs times the parameter's size") {
  // Squares of rank one are their means over rows and columns exactly, so that every update is 1 or -1.
  const std::int64_t matrices = 2, rows = 3, cols = 5, count = matrices * rows * cols;
  std::vector<float> parameter(static_cast<std::size_t>(count), 2.0f), gradient, before = parameter;
  for (std::int64_t i = 0; i < count; ++i)
    gradient.push_back(static_cast<float>((i / cols + 1) * (i % cols % 2 ? -1 : 2)));
  std::vector<float> of_rows(static_cast<std::size_t>(matrices * rows)),
      of_cols(static_cast<std::size_t>(matrices * cols));
  kernels::cpu::adafactor(
      {parameter.data(), gradient.data(), of_rows.data(), of_cols.data(), matrices, rows, cols, false},
      nullptr, {0.125f, 0, 0, 0, 0, 1});
  for (std::size_t i = 0; i < parameter.size(); ++i)
    CHECK(parameter[i] == Approx(2 - 0.125f * 2 * (gradient[i] > 0 ? 1 : -1)).epsilon(1e-6));
}

TEST_CASE("Adafactor gives the same bits on any number of threads") {
  const std::int64_t rows = 130, cols = 300;
  const auto gradient = normal_tensor(rows * cols, 2);
  std::vector<std::vector<float>> first;
  for (const int threads : {1, 2, 5}) {
    kernels::cpu::set_threads(threads);
    std::vector<std::vector<float>> state = {normal_tensor(rows * cols, 1), reference::zeros<float>(rows),
                                             reference::zeros<float>(cols)};
    for (std::int64_t step = 1; step <= 3; ++step)
      kernels::cpu::adafactor(
          {state[0].data(), gradient.data(), state[1].data(), state[2].data(), 1, rows, cols, true}, nullptr,
          {1e-2f, 0, 0, 0, 0.1f, step});
    if (first.empty()) first = state;
    CHECK(state == first);
  }
  kernels::cpu::set_threads(0);
}

TEST_CASE("the 256 values of 8-bit moments rise from -1 or 0 to 1, and a code is that of the nearest") {
  for (const bool is_signed : {true, false}) {
    const auto& map = kernels::moment_map(is_signed);
    CHECK(map.front() == Approx(is_signed ? -0.99297f : 0.0f).epsilon(1e-4));
    CHECK(map.back() == 1.0f);
    for (std::size_t i = 1; i < map.size(); ++i) CHECK(map[i - 1] < map[i]);
    for (const float value : {-1.0f, -0.3f, -1e-4f, 0.0f, 3e-7f, 0.0123f, 0.5f, 1.0f}) {
      const float found = map[kernels::moment_code(value, is_signed)];
      for (const float other : map) CHECK(std::abs(found - value) <= std::abs(other - value));
    }
  }
}

TEST_CASE("AdamW's moments in 8 bits are those of AdamW, rounded, whatever the number of threads") {
  const std::int64_t count = 3 * kernels::kMomentBlock + 17;
  const auto before = normal_tensor(count, 1), gradient = normal_tensor(count, 2);
  const AdamWSettings settings{1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 1};
  std::vector<float> exact = before, moment1 = reference::zeros<float>(count), moment2 = moment1;
  kernels::cpu::adamw(
      {{AdamWTensor{exact.data(), gradient.data(), moment1.data(), moment2.data(), count, true}}}, nullptr,
      settings);
  for (const int threads : {1, 3}) {
    kernels::cpu::set_threads(threads);
    std::vector<float> parameter = before, scale1(4), scale2(4);
    std::vector<std::uint8_t> code1(static_cast<std::size_t>(count)), code2 = code1;
    kernels::cpu::adamw_8bit({parameter.data(), gradient.data(), code1.data(), code2.data(), scale1.data(),
                              scale2.data(), count, true},
                             nullptr, settings);
    for (std::size_t i = 0; i < parameter.size(); ++i) {
      CHECK(parameter[i] == Approx(exact[i]).epsilon(1e-6).margin(1e-7));
      const float scale = scale1[i / kernels::kMomentBlock];
      CHECK(kernels::moment_map(true)[code1[i]] * scale == Approx(moment1[i]).margin(0.008 * scale));
    }
  }
  kernels::cpu::set_threads(0);
}
