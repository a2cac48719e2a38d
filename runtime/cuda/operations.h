// Which kernels of kernels/cuda a plan's operations run.
#pragma once
#include <span>

#include "runtime/cuda/call.h"

namespace runtime {

using Kernel = void (*)(const Call&);

// The kind's, or null: `zero`, which is of the device's memory, has none either.
Kernel kernel_of(sim::OpKind kind);

// For two kinds that follow each other, or null: carries out both by one kernel and returns true, or does
// nothing.
using FusedKernel = bool (*)(const Call& first, const Call& second);
FusedKernel fused_kernel_of(sim::OpKind first, sim::OpKind second);

// Whether there is a kernel, or zeroing, for operands of these types (parallel to operation.operands; of
// absent ones anything).
bool has_kernel(const sim::Operation& operation, std::span<const sim::DType> operands);

}  // namespace runtime
