// The loss as a function of parameters and tokens, and what follows: compute-optimal and over-trained models.
#pragma once

namespace sim {

// loss = irreducible + a / parameters^alpha + b / tokens^beta (Hoffmann et al. 2022, arXiv 2203.15556).
struct ScalingLaw {
  double irreducible = 0, a = 0, b = 0, alpha = 0, beta = 0;

  double loss(double parameters, double tokens) const;
};

// The fit of the paper's third approach, equation 10.
ScalingLaw hoffmann_2022();
// The same data fitted again (Besiroglu et al. 2024, arXiv 2404.10102). This fit agrees with the paper's
// other two approaches; the first fit does not.
ScalingLaw besiroglu_2024();

struct ModelAndData {
  double parameters = 0, tokens = 0;

  // 6 N D. Scaling laws leave out attention (Kaplan et al. 2020, section 2.1).
  double training_flops() const { return 6 * parameters * tokens; }
  // 2 N FLOPs a token: the forward pass alone (the same section).
  double inference_flops(double served_tokens) const { return 2 * parameters * served_tokens; }
};

// The compute-optimal number of training tokens for a model of `parameters`: about 20 for each parameter
// (Hoffmann et al. 2022, table 3).
inline double compute_optimal_tokens(double parameters) {
  return 20 * parameters;
}

// Tokens with which a model of `parameters` reaches `loss`; infinite where it never does.
double tokens_to_loss(const ScalingLaw& law, double parameters, double loss);
// The number of parameters up to which no model reaches the loss, however many tokens it is trained on.
double smallest_model(const ScalingLaw& law, double loss);

// The model that reaches `loss` with the fewest FLOPs of training and of `inference_tokens` served: the more
// it serves, the smaller and the longer trained it is (Sardana and Frankle 2023, arXiv 2401.00448).
ModelAndData least_lifetime_flops(const ScalingLaw& law, double loss, double inference_tokens);

}  // namespace sim
