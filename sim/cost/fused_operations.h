// Neighbouring operations of a plan that this program's kernels for GPUs carry out as one: the first one's
// kernel does the second on its way out. Pairs and conditions are those of its device (fused_kernel_of() in
// runtime/cuda/operations.cu), but for its own timing of the two ways and for memory that overlaps.
#pragma once
#include <vector>

#include "sim/plan/plan.h"

namespace sim {

// For each block, whether operation i may be fused with operation i + 1, whatever the variables. Empty where
// nothing may be: another implementation's kernels run, or a CPU's, or no two operations are such a pair.
std::vector<std::vector<bool>> fusable_pairs(const Plan& plan, const Hardware& hardware);

// Whether a pair of these is one kernel with these variables: a product of one row is bound by its weights,
// and has a kernel without epilogues.
bool is_one_kernel(const Operation& first, const Variables& v);

// What one kernel moves for the second operation beside the first one's traffic: what passes between the two
// stays where it was made.
Bytes epilogue_traffic(const Plan& plan, const Operation& second, const Variables& v);

}  // namespace sim
