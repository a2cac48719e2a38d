// The exposed time of exchanges between ranks, by the clock that the programs were run with.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/cost/priced_plan.h"

namespace sim {

// Whether a send counts as exposed while its receiver waits for it. Its sender goes on computing meanwhile.
enum class SendsCount { with_their_receiver, not_at_all };

// Keeps references to `plan` and `priced`, which must outlive it.
class Exposure {
 public:
  Exposure(const Plan& plan, const PricedPlan& priced, SendsCount sends);

  // The part of an exchange's time in which the stage computes nothing and waits for no other stage: for one
  // execution, the mean over those of the program. `index`: of the operation in its block.
  Seconds of(std::size_t program, std::size_t block, std::size_t index) const;

 private:
  struct Use {
    std::int64_t count = 0;
    std::int32_t stream = 0;
    Seconds exposed;  // of all executions of a block that is not of the compute stream
  };
  const std::vector<Action>& actions(std::size_t program) const { return plan_.programs[program].actions; }
  Use& use(std::size_t program, std::size_t action) {
    return uses_[program][priced_.block_of[program][action]];
  }
  void beside_compute(std::size_t program);
  void awaited_sends();

  const Plan& plan_;
  const PricedPlan& priced_;
  std::vector<std::vector<Use>> uses_;  // by program and priced block
};

}  // namespace sim
