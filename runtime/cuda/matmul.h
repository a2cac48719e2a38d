// The kinds of matrix products of a plan, in every type that weights and tensors have.
#pragma once
#include "runtime/cuda/call.h"

namespace runtime {

void matmul(const Call& call);
void matmul_backward_input(const Call& call);
void matmul_backward_weight(const Call& call);

}  // namespace runtime
