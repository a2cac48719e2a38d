// Standard attention: scores in memory, made by matrix products.
#pragma once
#include "runtime/cuda/call.h"

namespace runtime {

void standard_attention(const Call& call);
void standard_attention_backward(const Call& call);

}  // namespace runtime
