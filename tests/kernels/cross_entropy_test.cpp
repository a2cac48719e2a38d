#include "kernels/cross_entropy.h"

#include "tests/kernels/compare.h"
#include "tests/kernels/reference.h"

using test::kBackward;
using test::kForward;
using test::normal_tensor;
using test::to_double;

TEST_CASE("cross-entropy's losses and gradients are as accurate as plain loops, ignored rows are zero",
          "[long]") {
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
                                                   s.V, s.V);
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

TEST_CASE("cross-entropy of capped logits is that of cap tanh(x / cap), and its gradient that of x") {
  constexpr std::int64_t kRows = 40, kVocabulary = 257;
  for (const float cap : {0.5f, 30.0f})
    for (const float deviation : {1.0f, 20.0f}) {
      CAPTURE(cap, deviation);
      const auto logits = normal_tensor(kRows * kVocabulary, 1, deviation);
      const auto targets = test::random_ids(kRows, kVocabulary, 2);
      const auto of = [&]<class Real>(std::vector<Real> x, std::vector<Real>& losses) {
        std::vector<Real> tangents;
        for (Real& logit : x) {
          tangents.push_back(std::tanh(logit / static_cast<Real>(cap)));
          logit = static_cast<Real>(cap) * tangents.back();
        }
        losses = reference::cross_entropy<Real>(x, targets, 0.2f, kRows, kVocabulary);
        for (std::size_t i = 0; i < x.size(); ++i) x[i] *= 1 - tangents[i] * tangents[i];
        return x;
      };
      std::vector<float> plain_losses, losses(kRows, NAN);
      std::vector<double> exact_losses;
      const auto plain = of(logits, plain_losses);
      const auto exact = of(to_double(logits), exact_losses);
      auto dlogits = logits;
      kernels::cpu::cross_entropy_forward_backward(dlogits.data(), losses.data(), targets.data(), 0.2f, kRows,
                                                   kVocabulary, kVocabulary, cap);
      test::check_as_accurate_as_plain(losses, plain_losses, exact_losses, kForward);
      test::check_as_accurate_as_plain(dlogits, plain, exact, kBackward);
    }
}

TEST_CASE("cross-entropy of padded rows is that of the words alone, and padding has no gradient") {
  constexpr std::int64_t kRows = 3, kWords = 37, kWidth = 48;
  auto alone = normal_tensor(kRows * kWords, 1, 5.0f);
  auto targets = test::random_ids(kRows, kWords, 2);
  targets[1] = -1;
  // Columns of padding hold what would outweigh all others.
  std::vector<float> padded(kRows * kWidth, 1000.0f);
  for (std::int64_t r = 0; r < kRows; ++r)
    std::copy_n(alone.begin() + r * kWords, kWords, padded.begin() + r * kWidth);
  std::vector<float> losses(kRows), losses_alone(kRows);
  kernels::cpu::cross_entropy_forward_backward(alone.data(), losses_alone.data(), targets.data(), 0.5f, kRows,
                                               kWords, kWords);
  kernels::cpu::cross_entropy_forward_backward(padded.data(), losses.data(), targets.data(), 0.5f, kRows,
                                               kWidth, kWords);
  CHECK(losses == losses_alone);
  for (std::int64_t r = 0; r < kRows; ++r)
    for (std::int64_t v = 0; v < kWidth; ++v)
      CHECK(padded[static_cast<std::size_t>(r * kWidth + v)] ==
            (v < kWords ? alone[static_cast<std::size_t>(r * kWords + v)] : 0.0f));
}

TEST_CASE("cross-entropy of a divided vocabulary is as accurate as of a whole one, padding has no gradient") {
  struct Shape {
    std::int64_t R, V, ranks;
  };
  for (const Shape s : {Shape{3, 17, 2}, {17, 66, 4}, {5, 9, 8}}) {
    CAPTURE(s.R, s.V, s.ranks);
    const auto logits = normal_tensor(s.R * s.V, 1, 5.0f);
    auto targets = test::random_ids(s.R, static_cast<std::int32_t>(s.V), 2);
    targets[1] = -1;
    auto plain = logits;
    auto exact = to_double(logits);
    const auto plain_losses = reference::cross_entropy<float>(plain, targets, 0.5f, s.R, s.V);
    const auto exact_losses = reference::cross_entropy<double>(exact, targets, 0.5, s.R, s.V);

    // Columns of padding hold what would outweigh all others.
    const std::int64_t width = (s.V + s.ranks - 1) / s.ranks;
    std::vector<std::vector<float>> parts;
    std::vector<kernels::VocabularyPart> vocabularies;
    std::vector<float> statistics(static_cast<std::size_t>(3 * s.ranks * s.R));
    for (std::int64_t rank = 0; rank < s.ranks; ++rank) {
      const std::int64_t first = std::min(s.V, rank * width);
      vocabularies.push_back({first, std::min(width, s.V - first)});
      std::vector<float>& part = parts.emplace_back(static_cast<std::size_t>(s.R * width), 1000.0f);
      for (std::int64_t r = 0; r < s.R; ++r)
        std::copy_n(logits.begin() + r * s.V + first, vocabularies.back().count, part.begin() + r * width);
      kernels::cpu::cross_entropy_statistics(statistics.data() + 3 * rank * s.R, part.data(), targets.data(),
                                             s.R, width, vocabularies.back());
    }
    std::vector<float> gradient(static_cast<std::size_t>(s.R * s.V)), losses(targets.size());
    for (std::int64_t rank = 0; rank < s.ranks; ++rank) {
      std::vector<float>& part = parts[static_cast<std::size_t>(rank)];
      const kernels::VocabularyPart vocabulary = vocabularies[static_cast<std::size_t>(rank)];
      kernels::cpu::cross_entropy_of_part(part.data(), losses.data(), targets.data(), statistics.data(),
                                          s.ranks, 0.5f, s.R, width, vocabulary);
      test::check_as_accurate_as_plain(losses, plain_losses, exact_losses, kForward);
      for (std::int64_t r = 0; r < s.R; ++r) {
        std::copy_n(part.begin() + r * width, vocabulary.count,
                    gradient.begin() + r * s.V + vocabulary.first);
        for (std::int64_t v = vocabulary.count; v < width; ++v)
          CHECK(part[static_cast<std::size_t>(r * width + v)] == 0);
      }
    }
    test::check_as_accurate_as_plain(gradient, plain, exact, kBackward);
  }
}

TEST_CASE("a NaN logit makes a NaN loss") {
  std::vector<float> logits = {1, NAN, 2};
  const std::vector<std::int32_t> targets = {0};
  float loss = 0;
  kernels::cpu::cross_entropy_forward(&loss, logits.data(), targets.data(), 1, 3);
  CHECK(std::isnan(loss));
}
