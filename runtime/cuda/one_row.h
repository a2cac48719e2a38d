// What stands beside a product of one row, as decoding has it, as prologue and epilogue of the product.
#pragma once
#include "runtime/cuda/call.h"

namespace runtime {

// A norm, the product of its result, and what follows on that: GELU, a gate, or rotation and append to the KV
// cache; each but the product may be absent. Count 0: nothing has been done.
FusedRun product_of_one_row(std::span<const Call> calls);

}  // namespace runtime
