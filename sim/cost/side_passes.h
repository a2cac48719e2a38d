// Passes over memory that a stack makes beside the products and attention cores that a plan lists: copies,
// sums of bias gradients, quantisation to fp8.
#pragma once
#include "sim/plan/plan.h"

namespace sim {

// Bytes that kernels beside `op` move, by the plan's implementation (KernelProfile::side_passes,
// repeats_key_values, QuantisationProfile).
double side_bytes(const Plan& plan, const Operation& op, const Variables& v);

}  // namespace sim
