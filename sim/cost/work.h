// FLOPs and bytes of an operation, from its kind's row (plan/kinds.cpp), its dimensions and variables.
#pragma once
#include "sim/plan/plan.h"
#include "sim/units.h"

namespace sim {

struct Work {
  Flops flops;  // executed by our or the named implementation's kernel (flash backward recomputes the scores)
  Flops model_flops;  // what the mathematics needs: counts in MFU; causal attention counts visible pairs only
  Bytes read, written;  // least traffic with memory: the touched part of every operand once; the matrices of
                        // standard attention once for each of its passes over them
  Bytes network;        // sent by one rank
  Bytes copied;         // between the device and its host
  Bytes host;           // traffic with the host's memory
  Bytes memory() const { return read + written; }
};

Work work_of(const Plan& plan, const Operation& op, const Variables& v);

}  // namespace sim
