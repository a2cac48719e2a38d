// Products of few rows, as decoding has them: the operations before and behind one run within its kernel.
#pragma once
#include "runtime/cuda/call.h"

namespace runtime {

// Runs the calls' first operations by one kernel: a norm, the product of its result, and what follows the
// product, which is GELU or a gate, or for one row rotation and append to the KV cache. All but the product
// may be absent. The result's count says how many operations were run; 0: none was.
FusedRun product_of_few_rows(std::span<const Call> calls);

}  // namespace runtime
