// Neighbouring operations of a plan that this program's GPU kernels carry out as one, most as the prologue or
// epilogue of a product. The conditions are those of run_fused() in runtime/cuda/operations.cu, except that
// it also times two ways against each other and checks for memory that overlaps.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/plan/plan.h"

namespace sim {

// For each block, whether operation i may be fused with operation i + 1. Empty where nothing may be: another
// implementation's kernels run, or a CPU's, or no two operations are such a pair.
std::vector<std::vector<bool>> fusable_pairs(const Plan& plan, const Hardware& hardware);

// Index of the operation whose kernel carries out operation `index`: mostly `index` itself. `pairs` are the
// block's. A product of one row, bound by its weights, fuses with more operations than one of many.
std::size_t kernel_of(const Plan& plan, const Block& block, const std::vector<bool>& pairs, std::size_t index,
                      const Variables& v);

// Bytes that the kernel of operation `main` moves for fused neighbours beside its own traffic. Data passed
// between fused operations does not go through memory.
Bytes traffic_for_neighbours(const Plan& plan, const Block& block, const std::vector<bool>& pairs,
                             std::size_t main, const Variables& v);

// The most rows for which this program's GPU kernels read weights of `weight_bits` bits as they are stored.
// Products of more rows read them expanded (kernels/cuda/gemv.h). `inner`: columns of a row of weights.
std::int64_t rows_that_read_stored(std::int64_t weight_bits, std::int64_t inner);

}  // namespace sim
