// Neighbouring operations of a plan that this program's kernels for GPUs carry out as one: what stands beside
// a product is its prologue and epilogue. Conditions are those of its device (run_fused() in
// runtime/cuda/operations.cu), but for its own timing of two ways and for memory that overlaps.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/plan/plan.h"

namespace sim {

// For each block, whether operation i may be fused with operation i + 1. Empty where nothing may be: another
// implementation's kernels run, or a CPU's, or no two operations are such a pair.
std::vector<std::vector<bool>> fusable_pairs(const Plan& plan, const Hardware& hardware);

// The operation of a block whose kernel carries out operation `index`: mostly that itself. `pairs` are the
// block's; a product of one row, which is bound by its weights, has more beside it than one of many.
std::size_t kernel_of(const Plan& plan, const Block& block, const std::vector<bool>& pairs, std::size_t index,
                      const Variables& v);

// What the kernel of operation `main` moves for its neighbours beside its own traffic: what passes between
// operations stays where it was made.
Bytes traffic_for_neighbours(const Plan& plan, const Block& block, const std::vector<bool>& pairs,
                             std::size_t main, const Variables& v);

// Up to how many rows this program's kernels for GPUs multiply weights of so many bits as they are stored;
// more rows read them expanded (kernels/cuda/gemv.h). `inner`: columns of a row of weights.
std::int64_t rows_that_read_stored(std::int64_t weight_bits, std::int64_t inner);

}  // namespace sim
