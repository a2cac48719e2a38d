// What stands beside a product of few rows, as decoding has it, as prologue and epilogue of the product.
#pragma once
#include "runtime/cuda/call.h"

namespace runtime {

// A norm, the product of its result, and what follows on that: GELU or a gate, and of one row rotation and
// append to the KV cache; each but the product may be absent. Count 0: nothing has been done.
FusedRun product_of_few_rows(std::span<const Call> calls);

}  // namespace runtime
