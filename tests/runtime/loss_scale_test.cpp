// Dynamic loss scaling, as torch.amp.GradScaler documents it: init_scale 65536, growth_factor 2,
// backoff_factor 0.5, growth_interval 2000.
#include "runtime/loss_scale.h"

#include "tests/support/catch.h"

TEST_CASE("the loss's scale halves with each overflow and doubles after 2000 steps without one") {
  runtime::LossScale loss;
  CHECK(loss.scale == 65536);
  loss.update(true);
  loss.update(true);
  CHECK(loss.scale == 16384);
  CHECK(loss.skipped == 2);
  for (int step = 1; step < 2000; ++step) loss.update(false);
  CHECK(loss.scale == 16384);
  loss.update(false);
  CHECK(loss.scale == 32768);
  // An overflow begins the count anew.
  for (int step = 1; step < 2000; ++step) loss.update(false);
  loss.update(true);
  CHECK(loss.scale == 16384);
  for (int step = 1; step < 2000; ++step) loss.update(false);
  CHECK(loss.scale == 16384);
  loss.update(false);
  CHECK(loss.scale == 32768);
  CHECK(loss.skipped == 3);
}
