// Which kernels of kernels/cuda a plan's operations run.
#pragma once
#include <span>

#include "runtime/cuda/call.h"

namespace runtime {

using Kernel = void (*)(const Call&);

// The kind's, or null: `zero`, which is of the device's memory, has none either.
Kernel kernel_of(sim::OpKind kind);

// Device::run_fused()'s. Predictions have the same: sim/cost/fused_operations.cpp.
FusedRun run_fused(std::span<const Call> calls);
bool may_begin_fused(sim::OpKind first);

// Whether there is a kernel, or zeroing, for operands of these types (parallel to operation.operands; of
// absent ones anything).
bool has_kernel(const sim::Operation& operation, std::span<const sim::DType> operands);

// Whether rows of its operands may be columns of wider ones.
bool takes_columns(sim::OpKind kind);

}  // namespace runtime
