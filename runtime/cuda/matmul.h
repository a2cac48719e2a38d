// The kinds of matrix products of a plan, in every type that weights and tensors have.
#pragma once
#include "runtime/cuda/call.h"

namespace runtime {

void matmul(const Call& call);
// Whether it is a product of one row that cuda::gemv() takes.
bool is_one_row(const Call& call);
void matmul_backward_input(const Call& call);
void matmul_backward_weight(const Call& call);

// A product and the GELU that follows it as one product with an epilogue (products.h), where there is one and
// it is faster. False: nothing has been done.
bool matmul_and_gelu(const Call& product, const Call& gelu);
bool matmul_backward_input_and_gelu(const Call& product, const Call& gelu_backward);

}  // namespace runtime
