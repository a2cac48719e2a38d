// Parameters and their states, apart from the passes that use them.
#include "sim/planner/state_memory.h"
#include "tests/sim/random_strategies.h"
#include "tests/support/catch.h"

using namespace sim;

namespace {

void require_same(const UnitBytes& a, const UnitBytes& b) {
  CHECK(a.embedding == b.embedding);
  CHECK(a.head == b.head);
  CHECK(a.layers == b.layers);
}

void require_same(const StateMemory& a, const StateMemory& b) {
  for (const auto bytes : {&StateMemory::always, &StateMemory::accumulators, &StateMemory::whole_gradients,
                           &StateMemory::gathered_forward, &StateMemory::gathered_backward,
                           &StateMemory::optimizer, &StateMemory::parameters})
    require_same(a.*bytes, b.*bytes);
  for (const auto number :
       {&StateMemory::shared, &StateMemory::shared_accumulators, &StateMemory::shared_gathered,
        &StateMemory::shared_gradient, &StateMemory::shared_parameters})
    CHECK(a.*number == b.*number);
  CHECK(a.once == b.once);
}

void require_same(const UnitTimes& a, const UnitTimes& b) {
  for (const auto unit :
       {&UnitTimes::embedding, &UnitTimes::layer, &UnitTimes::expert_layer, &UnitTimes::head}) {
    CHECK((a.*unit).duration == (b.*unit).duration);
    CHECK((a.*unit).host.launches == (b.*unit).host.launches);
  }
}

void require_same(const StateTimes& a, const StateTimes& b) {
  for (const auto units :
       {&StateTimes::zero, &StateTimes::zero_whole, &StateTimes::gather_for_forward,
        &StateTimes::gather_for_backward, &StateTimes::gather_updated, &StateTimes::unscale,
        &StateTimes::norm, &StateTimes::update, &StateTimes::gradients_to_host,
        &StateTimes::parameters_from_host, &StateTimes::reduce, &StateTimes::only_last})
    require_same(a.*units, b.*units);
  for (const auto once : {&StateTimes::zero_norm, &StateTimes::sum_tied_embedding, &StateTimes::read_overflow,
                          &StateTimes::sum_norm, &StateTimes::clip})
    CHECK((a.*once).duration == (b.*once).duration);
  CHECK(a.bucket == b.bucket);
  for (const auto messages : {&StateTimes::reduce_layers, &StateTimes::reduce_expert_layers}) {
    REQUIRE((a.*messages).size() == (b.*messages).size());
    for (const auto& [layers, time] : a.*messages) {
      REQUIRE((b.*messages).contains(layers));
      CHECK((b.*messages).at(layers).duration == time.duration);
    }
  }
}

}  // namespace

TEST_CASE("a plan of states alone has the states of a step's plan, at the same prices") {
  RandomStrategies random(5);
  for (int i = 0; i < 300; ++i) {
    const Scenario s = random.next();
    const Calibration* calibration = random.calibration(s.hardware.name);
    BlockTimes step(make_step_plan(s), s.hardware, calibration),
        states(make_state_plan(s), s.hardware, calibration);
    CAPTURE(i, s.model.name, s.implementation.name, s.strategy.zero_stage, s.strategy.schedule);
    require_same(state_memory(states, step), state_memory(step, step));
    require_same(state_times(states), state_times(step));
  }
}

TEST_CASE("messages of buckets are the same whatever buckets a plan had before") {
  RandomStrategies random(6);
  for (int i = 0; i < 100; ++i) {
    Scenario s = random.next();
    s.strategy.gradient_bucket = 0;
    const Calibration* calibration = random.calibration(s.hardware.name);
    BlockTimes reused(make_state_plan(s), s.hardware, calibration);
    for (const std::int64_t bucket : {200 << 20, 1 << 30, 50 << 20}) {
      s.strategy.gradient_bucket = bucket;
      BlockTimes own(make_state_plan(s), s.hardware, calibration);
      reused.set({bucket, s.strategy.schedule, s.strategy.virtual_pipeline});
      StateTimes of_reused = state_times(reused), of_own = state_times(own);
      set_bucket_times(reused, of_reused);
      set_bucket_times(own, of_own);
      CAPTURE(i, s.model.name, bucket);
      require_same(of_reused, of_own);
    }
  }
}
