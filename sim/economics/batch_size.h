// Steps and tokens to a given loss against the batch size (McCandlish et al. 2018, arXiv 1812.06162). Batches
// are in tokens.
#pragma once
#include <functional>

#include "sim/units.h"

namespace sim {

// (steps / least_steps - 1) (tokens / least_tokens - 1) = 1; equation 2.11 there.
struct BatchTradeOff {
  double least_steps = 0;                                         // with an unlimited batch
  double least_tokens = 0;                                        // with the smallest batch
  double critical() const { return least_tokens / least_steps; }  // takes twice the least of each

  double steps(double batch) const { return least_steps * (1 + critical() / batch); }
  double tokens(double batch) const { return least_tokens * (1 + batch / critical()); }
};

// The run whose `tokens` at batch `batch` reach the loss, where the critical batch is `critical`.
BatchTradeOff trade_off(double tokens, double batch, double critical);

// By the loss in nats a token: 2e8 tokens / loss^(1 / 0.21) (Kaplan et al. 2020, arXiv 2001.08361, section
// 5.1).
double critical_batch_by_loss(double loss);

// The batch at which a run takes least time, of those between `least` and `most`: step_time(batch) is
// predicted by the caller. Candidates are spaced by `ratio`, above 1. `usd_per_second(batch)` turns time into
// money; leave it empty for time.
struct BatchOptimum {
  double batch = 0, steps = 0, tokens = 0;
  Seconds time;
  double usd = 0;
};
BatchOptimum best_batch(const BatchTradeOff& run, double least, double most, double ratio,
                        const std::function<Seconds(double)>& step_time,
                        const std::function<double(double)>& usd_per_second = {});

}  // namespace sim
