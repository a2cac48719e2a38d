// Parameters and their states, apart from the passes that use them.
#include "sim/planner/state_memory.h"
#include "tests/sim/random_strategies.h"
#include "tests/support/catch.h"

using namespace sim;

namespace {

void require_same(const StateMemory& a, const StateMemory& b) {
  for (const auto bytes : {&StateMemory::always, &StateMemory::accumulators, &StateMemory::whole_gradients,
                           &StateMemory::gathered_forward, &StateMemory::gathered_backward,
                           &StateMemory::optimizer, &StateMemory::parameters})
    CHECK(a.*bytes == b.*bytes);
  for (const auto number :
       {&StateMemory::shared, &StateMemory::shared_accumulators, &StateMemory::shared_gathered,
        &StateMemory::shared_gradient, &StateMemory::shared_parameters})
    CHECK(a.*number == b.*number);
  CHECK(a.once == b.once);
}

void require_same(BlockTimes& a, BlockTimes& b) {
  for (const auto units : {&StepBlocks::zero, &StepBlocks::zero_whole, &StepBlocks::gather_for_forward,
                           &StepBlocks::gather_for_backward, &StepBlocks::gather_updated,
                           &StepBlocks::unscale, &StepBlocks::norm, &StepBlocks::update,
                           &StepBlocks::gradients_to_host, &StepBlocks::parameters_from_host,
                           &StepBlocks::reduce, &StepBlocks::reduce_replicas, &StepBlocks::reduce_directions})
    for (const Unit unit : kAll<Unit>) {
      const ActionTime of_a = a.of((a.blocks().*units)[unit], Phase::optimizer),
                       of_b = b.of((b.blocks().*units)[unit], Phase::optimizer);
      CHECK(of_a.duration == of_b.duration);
      CHECK(of_a.host.launches == of_b.host.launches);
    }
  for (const auto once : {&StepBlocks::zero_norm, &StepBlocks::sum_tied_embedding, &StepBlocks::read_overflow,
                          &StepBlocks::sum_norm, &StepBlocks::clip})
    CHECK(a.of(a.blocks().*once, Phase::optimizer).duration ==
          b.of(b.blocks().*once, Phase::optimizer).duration);
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
    require_same(states, step);
  }
}

TEST_CASE("messages of several layers are a step's, whatever messages a plan of states had before") {
  RandomStrategies random(6);
  for (int i = 0; i < 100; ++i) {
    Scenario s = random.next();
    s.strategy.gradient_bucket = 0;
    const Calibration* calibration = random.calibration(s.hardware.name);
    BlockTimes reused(make_state_plan(s), s.hardware, calibration);
    for (const std::int64_t bucket : {200 << 20, 1 << 30, 50 << 20}) {
      s.strategy.gradient_bucket = bucket;
      BlockTimes step(make_step_plan(s), s.hardware, calibration);
      CAPTURE(i, s.model.name, bucket);
      CHECK(reused.layers_in(bucket) == step.blocks().bucket());
      for (const Unit unit : kLayerUnits)
        for (const auto& [layers, block] : step.blocks().buckets[unit].reduce)
          CHECK(reused.message(unit, layers).duration == step.of(block, Phase::backward).duration);
    }
  }
}
