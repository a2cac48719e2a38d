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
  Seconds hidden{};  // the part of a collective's time that its price leaves out: a product runs meanwhile
  // Offset from this operation to the one whose kernel carries this one out too and whose price covers both;
  // 0: this operation has its own kernel (fused_operations.h).
  std::ptrdiff_t kernel = 0;
};
// `for_neighbours`: bytes that the operation's kernel moves for operations fused with it.
PricedOperation price_with_software(const Plan& plan, const Block& block, std::size_t index,
                                    const Variables& v, const Hardware& hardware,
                                    const Calibration* calibration, const Group* group, Bytes working_set,
                                    Bytes for_neighbours = {});

// A GPU's power limit follows the mean draw of a block's operations, not that of each one. So in training,
// where prices come from samples timed one by one, all operations bound by arithmetic are slowed, the more
// the busier tensor cores are.
void hold_clocks_back(const Plan& plan, const Block& block, std::vector<PricedOperation>& operations,
                      const Hardware& hardware, const Calibration* calibration);

// Collectives of tensor parallelism hide behind the products beside them as far as the implementation lets
// them. Their prices become the exposed time, mutual slowdown included.
void hide_behind_products(const Plan& plan, const Block& block, Phase phase,
                          std::vector<PricedOperation>& operations, const Hardware& hardware);

// Exchanges of experts' tokens likewise hide behind the other pass of a pair, in schedules that pair passes.
void hide_behind_paired_pass(const Plan& plan, const Block& block, std::vector<PricedOperation>& operations,
                             const Hardware& hardware);

// The host's time for a block. Operations take the member `which` of their prices (seconds, low, high); the
// host is `factor` times as slow as the implementation says.
HostTime host_time(const Plan& plan, const Block& block, const std::vector<PricedOperation>& operations,
                   Seconds Price::*which, double factor, const Hardware& hardware);

// Whether collectives of tensor parallelism take HostProfile::collective_rank longer per other rank. They
// do on several nodes, where there are pipeline stages or the network stalls.
bool collectives_wait_for_ranks(const Scenario& scenario, const Hardware& hardware);

// How many times as long compute takes while a scenario's ranks exchange gradients or parameters beside it.
double interference(const Scenario& scenario, const Hardware& hardware);

// What the host does: before a pass of a micro-batch and after the last pass; at either end of a transfer
// between stages; and before a unit's parameters are gathered for a pass.
HostWork work_before_pass(const Scenario& scenario);
HostWork work_of_transfer(const Scenario& scenario, bool forward, bool sends, const Hardware& hardware);
HostWork work_before_gather(const Scenario& scenario);

// For each action of a program: what the host does apart from launching the action's block.
std::vector<HostWork> host_work(const Plan& plan, const Program& program, const Hardware& hardware);

}  // namespace sim
