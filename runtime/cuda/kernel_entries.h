// Rows of the table from operation kinds to the GPU's kernels, a file for each family (operations.cu has the
// rest).
#pragma once
#include <span>

#include "kernels/selective_scan.h"
#include "runtime/cuda/operations.h"

namespace runtime {

struct KernelEntry {
  sim::OpKind kind;
  Kernel kernel;
};

// Routing, permutation and products of experts.
std::span<const KernelEntry> cuda_expert_kernels();
// Gradient norms and optimizers.
std::span<const KernelEntry> cuda_optimizer_kernels();
// State-space layers.
std::span<const KernelEntry> cuda_state_space_kernels();
// A scan as kernels take it, and whether they take its sizes.
kernels::SelectiveScanShape selective_scan_shape(const sim::Dims& dims, std::int64_t batch,
                                                 std::int64_t tokens);
bool takes_scan(const sim::Operation& operation);
// Latent attention.
std::span<const KernelEntry> cuda_latent_kernels();
// Activations that elementwise.h does not have, norms of queries and keys, columns of wider rows.
std::span<const KernelEntry> cuda_layer_kernels();

// A product of each head's own rows, of latent attention that decodes (sim::Place::absorbs_keys, _values).
void absorb(const Call& call);
bool is_absorbed(const sim::Operation& operation);

// The kernels of operations.cu, or, where the operation has a weight for each row, those that multiply by it.
void swiglu(const Call& call);
void swiglu_backward(const Call& call);

}  // namespace runtime
