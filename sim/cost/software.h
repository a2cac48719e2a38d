// What software makes of a plan's operations (scenario/implementation.h): more memory traffic and more
// kernels than the fused operations that the plan lists, collectives that hide behind products, a host that
// launches.
#pragma once
#include <vector>

#include "sim/cost/execution.h"
#include "sim/cost/price.h"

namespace sim {

// An operation as the plan's implementation runs it. `group` is the operation's where it is a collective.
struct PricedOperation {
  Work work;
  Price price;
  Seconds start{};   // in its block
  Seconds hidden{};  // of a collective's time, what its price leaves out: a product runs meanwhile
  // Where the operation stands whose kernel carries this one out, from this one on, and whose price is that
  // of both; 0: it is its own (fused_operations.h).
  std::ptrdiff_t kernel = 0;
};
// `for_neighbours`: what its kernel moves for operations beside it.
PricedOperation price_with_software(const Plan& plan, const Block& block, std::size_t index,
                                    const Variables& v, const Hardware& hardware,
                                    const Calibration* calibration, const Group* group, Bytes working_set,
                                    Bytes for_neighbours = {});

// A GPU's power limit follows what a block's operations draw in the mean, not each of them: where prices are
// of samples that were timed one by one, all that arithmetic bounds is slower by as much as tensor cores are
// busy.
void hold_clocks_back(const Plan& plan, const Block& block, std::vector<PricedOperation>& operations,
                      const Hardware& hardware, const Calibration* calibration);

// Collectives of tensor parallelism hide behind the products beside them as far as the implementation lets
// them: what is left of their prices is what is exposed, mutual slowdown included.
void hide_behind_products(const Plan& plan, const Block& block, Phase phase,
                          std::vector<PricedOperation>& operations, const Hardware& hardware);

// So do exchanges of experts' tokens behind the other pass of a pair, in schedules that pair passes.
void hide_behind_paired_pass(const Plan& plan, const Block& block, std::vector<PricedOperation>& operations,
                             const Hardware& hardware);

// The host's part in a block whose operations take `which` of their prices, with a host `factor` times as
// slow as the implementation says.
HostTime host_time(const Plan& plan, const Block& block, const std::vector<PricedOperation>& operations,
                   Seconds Price::*which, double factor, const Hardware& hardware);

// Whether collectives of tensor parallelism take HostProfile::collective_rank longer: in pipelines over
// several nodes, and without stages on several nodes whose network stalls.
bool collectives_wait_for_ranks(const Scenario& scenario, const Hardware& hardware);

// How much longer compute takes while a scenario's ranks exchange gradients or parameters beside it.
double interference(const Scenario& scenario, const Hardware& hardware);

// What the host does before a pass of a micro-batch and after the last one, at either end of a transfer
// between stages, and before a unit's parameters are gathered for a pass.
HostWork work_before_pass(const Scenario& scenario);
HostWork work_of_transfer(const Scenario& scenario, bool forward, bool sends, const Hardware& hardware);
HostWork work_before_gather(const Scenario& scenario);

// For each action of a program what the host does beside launching its block.
std::vector<HostWork> host_work(const Plan& plan, const Program& program, const Hardware& hardware);

}  // namespace sim
