// Steps and tokens that reach a given loss, as functions of the batch size (McCandlish et al. 2018, arXiv
// 1812.06162). Batches are in tokens.
#pragma once
#include <functional>

#include "sim/units.h"

namespace sim {

// Equation 2.11 there: (steps / least_steps - 1) (tokens / least_tokens - 1) = 1.
struct BatchTradeOff {
  double least_steps = 0;                                         // with an unlimited batch
  double least_tokens = 0;                                        // with the smallest batch
  double critical() const { return least_tokens / least_steps; }  // twice the least of both

  double steps(double batch) const { return least_steps * (1 + critical() / batch); }
  double tokens(double batch) const { return least_tokens * (1 + batch / critical()); }
};

// The trade-off in which `tokens` at batch `batch` reach the loss; `critical` is the critical batch.
BatchTradeOff trade_off(double tokens, double batch, double critical);

// The critical batch at a loss in nats per token: 2e8 tokens / loss^(1 / 0.21) (Kaplan et al. 2020, arXiv
// 2001.08361, section 5.1).
double critical_batch_by_loss(double loss);

// The batch between `least` and `most` at which a run takes the least time, or costs the least money if
// `usd_per_second(batch)` is given. The caller predicts step_time(batch). Each candidate is `ratio` times the
// one before it; `ratio` is above 1.
struct BatchOptimum {
  double batch = 0, steps = 0, tokens = 0;
  Seconds time;
  double usd = 0;
};
BatchOptimum best_batch(const BatchTradeOff& run, double least, double most, double ratio,
                        const std::function<Seconds(double)>& step_time,
                        const std::function<double(double)>& usd_per_second = {});

}  // namespace sim
