// Training with fp8 products: what a layer's products read is converted from 16 bits, each tensor by a scale
// of its own that follows its largest value (Micikevicius et al. 2022, arXiv 2209.05433; torchao's dynamic
// scaling by tensor): e4m3 forward, e5m2 for gradients. Parameters, what is kept for backward, attention,
// router and head stay in 16 bits.
#pragma once
#include <string>
#include <vector>

#include "sim/plan/builder.h"

namespace sim {

// A block's operations with conversions before its fp8 products; each tensor is converted once. Unchanged
// where there are none, or where the software's profile has its own kernels' traffic (QuantisationProfile).
std::vector<Operation> with_conversions(PlanBuilder& builder, const std::string& block,
                                        std::vector<Operation> operations);

}  // namespace sim
