#include "sim/economics/scaling_law.h"

#include <cmath>
#include <limits>

namespace sim {

double ScalingLaw::loss(double parameters, double tokens) const {
  return irreducible + a / std::pow(parameters, alpha) + b / std::pow(tokens, beta);
}

ScalingLaw hoffmann_2022() {
  return {.irreducible = 1.69, .a = 406.4, .b = 410.7, .alpha = 0.34, .beta = 0.28};
}

ScalingLaw besiroglu_2024() {
  return {.irreducible = 1.8172, .a = 482.01, .b = 2085.43, .alpha = 0.3478, .beta = 0.3658};
}

double tokens_to_loss(const ScalingLaw& law, double parameters, double loss) {
  const double left = loss - law.irreducible - law.a / std::pow(parameters, law.alpha);
  return left > 0 ? std::pow(law.b / left, 1 / law.beta) : std::numeric_limits<double>::infinity();
}

double smallest_model(const ScalingLaw& law, double loss) {
  return std::pow(law.a / (loss - law.irreducible), 1 / law.alpha);
}

ModelAndData least_lifetime_flops(const ScalingLaw& law, double loss, double inference_tokens) {
  const auto flops = [&](double parameters) {
    const ModelAndData model{parameters, tokens_to_loss(law, parameters, loss)};
    return model.training_flops() + model.inference_flops(inference_tokens);
  };
  // Above the smallest model there is one valley.
  double low = smallest_model(law, loss), high = low * 1e6;
  const double golden = (std::sqrt(5.0) - 1) / 2;
  constexpr double kNarrow = 1e-9;
  while (high / low > 1 + kNarrow) {
    const double ratio = std::pow(high / low, golden);
    if (flops(high / ratio) < flops(low * ratio))
      high = low * ratio;
    else
      low = high / ratio;
  }
  const double parameters = std::sqrt(low * high);
  return {.parameters = parameters, .tokens = tokens_to_loss(law, parameters, loss)};
}

}  // namespace sim
