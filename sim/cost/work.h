// FLOPs and bytes of an operation, from its kind, dimensions and variables: one place per kind.
#pragma once
#include "sim/plan/plan.h"
#include "sim/units.h"

namespace sim {

struct Work {
  Flops flops;  // executed by our or the named implementation's kernel (flash backward recomputes the scores)
  Flops model_flops;  // what the mathematics needs: counts in MFU; causal attention counts visible pairs only
  Bytes read, written;  // least traffic with memory: every operand once
  Bytes network;        // sent by one rank
  Bytes memory() const { return read + written; }
};

Work work_of(const Plan& plan, const Operation& op, const Variables& v);

}  // namespace sim
