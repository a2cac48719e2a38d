// Passes over memory that a stack makes beside the products and attention cores that a plan lists: copies,
// sums of bias gradients, quantisation to fp8.
#pragma once
#include "sim/plan/plan.h"

namespace sim {

// Bytes that kernels beside `op` move, by the plan's implementation (KernelProfile::side_passes,
// QuantisationProfile).
double side_bytes(const Plan& plan, const Operation& op, const Variables& v);

// Share of an operation that recompute repeats, over the layers and over the products that the plan lists as
// one and the stack runs one by one.
double recomputed_share(const Plan& plan, const Operation& op);

}  // namespace sim
