// Passes over memory that a stack makes beside the products and attention cores that a plan lists: copies,
// sums of bias gradients, quantisation to fp8.
#pragma once
#include "sim/plan/plan.h"

namespace sim {

// Bytes that kernels beside `op` move, by the plan's implementation (KernelProfile::side_passes,
// QuantisationProfile).
double side_bytes(const Plan& plan, const Operation& op, const Variables& v);

// The share of an operation that recompute repeats: the stack may recompute only some layers, or only some of
// the products that it runs one by one and the plan lists as one.
double recomputed_share(const Plan& plan, const Operation& op);

}  // namespace sim
