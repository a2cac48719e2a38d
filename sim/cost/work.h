// FLOPs and bytes of an operation, from its kind, dimensions and variables: one place per kind.
#pragma once
#include "sim/plan/plan.h"
#include "sim/units.h"

namespace sim {

struct Work {
  Flops flops;  // executed by our or the named implementation's kernel (flash backward recomputes the scores)
  Flops model_flops;  // what the mathematics needs: counts in MFU; causal attention counts visible pairs only
  Bytes read, written;  // least traffic with memory: what is touched of every operand once; the matrices of
                        // standard attention once for each of its passes over them
  Bytes network;        // sent by one rank
  Bytes copied;         // between the device and its host
  Bytes host;           // traffic with the host's memory
  Bytes memory() const { return read + written; }
};

Work work_of(const Plan& plan, const Operation& op, const Variables& v);

// Pairs of a query and a key that causal attention lets see each other, over all sequences and one head; with
// a window a query sees as many of the latest keys, itself included, with a chunk those of its own stretch of
// so many tokens. 0: all.
double visible_pairs(const Variables& v, std::int64_t window = 0, std::int64_t chunk = 0);

// Experts of those that a rank holds that at least one of its rows is for, in expectation of balanced and
// independent choices: groups (1 - (1 - chosen / experts)^tokens).
double experts_hit(const Dims& dims, const Variables& v);

}  // namespace sim
