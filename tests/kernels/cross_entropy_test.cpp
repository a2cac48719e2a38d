#include "kernels/cross_entropy.h"

#include "tests/kernels/compare.h"
#include "tests/kernels/reference.h"

using test::kBackward;
using test::kForward;
using test::normal_tensor;
using test::to_double;

TEST_CASE("cross-entropy's losses and gradients are as accurate as plain loops; ignored rows are zero") {
  struct Shape {
    std::int64_t R, V;
  };
  for (const Shape s : {Shape{1, 1}, {3, 17}, {17, 65}, {6, 50257}})
    for (const float deviation : {1.0f, 20.0f}) {
      CAPTURE(s.R, s.V, deviation);
      const auto logits = normal_tensor(s.R * s.V, 1, deviation);
      auto targets = test::random_ids(s.R, static_cast<std::int32_t>(s.V), 2);
      if (s.R > 1) targets[1] = -1;
      const float scale = 1.0f / static_cast<float>(s.R);
      auto plain = logits;
      auto exact = to_double(logits);
      const auto plain_losses = reference::cross_entropy<float>(plain, targets, scale, s.R, s.V);
      const auto exact_losses = reference::cross_entropy<double>(exact, targets, scale, s.R, s.V);

      auto dlogits = logits;
      std::vector<float> losses(exact_losses.size(), NAN), losses_alone = losses;
      kernels::cpu::cross_entropy_forward_backward(dlogits.data(), losses.data(), targets.data(), scale, s.R,
                                                   s.V);
      test::check_as_accurate_as_plain(losses, plain_losses, exact_losses, kForward);
      test::check_as_accurate_as_plain(dlogits, plain, exact, kBackward);
      kernels::cpu::cross_entropy_forward(losses_alone.data(), logits.data(), targets.data(), s.R, s.V);
      test::check_as_accurate_as_plain(losses_alone, plain_losses, exact_losses, kForward);
      if (s.R > 1) {
        CHECK(losses[1] == 0);
        CHECK(std::all_of(dlogits.begin() + s.V, dlogits.begin() + 2 * s.V, [](float x) { return x == 0; }));
      }
    }
}

TEST_CASE("a NaN logit makes a NaN loss") {
  std::vector<float> logits = {1, NAN, 2};
  const std::vector<std::int32_t> targets = {0};
  float loss = 0;
  kernels::cpu::cross_entropy_forward(&loss, logits.data(), targets.data(), 1, 3);
  CHECK(std::isnan(loss));
}
