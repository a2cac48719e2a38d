#include "sim/economics/batch_size.h"

#include <cmath>

namespace sim {

BatchTradeOff trade_off(double tokens, double batch, double critical) {
  const double least_tokens = tokens / (1 + batch / critical);
  return {.least_steps = least_tokens / critical, .least_tokens = least_tokens};
}

double critical_batch_by_loss(double loss) {
  constexpr double kScale = 2e8, kExponent = 0.21;
  return kScale / std::pow(loss, 1 / kExponent);
}

BatchOptimum best_batch(const BatchTradeOff& run, double least, double most, double ratio,
                        const std::function<Seconds(double)>& step_time,
                        const std::function<double(double)>& usd_per_second) {
  BatchOptimum best;
  double least_cost = 0;
  for (double batch = least; batch <= most; batch *= ratio) {
    const double steps = run.steps(batch);
    const Seconds time = step_time(batch) * steps;
    const double usd = usd_per_second ? time.value * usd_per_second(batch) : 0;
    const double cost = usd_per_second ? usd : time.value;
    if (best.batch > 0 && cost >= least_cost) continue;
    least_cost = cost;
    best = {.batch = batch, .steps = steps, .tokens = run.tokens(batch), .time = time, .usd = usd};
  }
  return best;
}

}  // namespace sim
