// A table from operation kinds to the kernels of kernels/cuda, as runtime/cpu/kernel_table.h is for the CPU.
#include <algorithm>
#include <iterator>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/columns.h"
#include "kernels/cuda/cross_entropy.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/quantise.h"
#include "runtime/cuda/few_rows.h"
#include "runtime/cuda/kernel_entries.h"
#include "runtime/cuda/matmul.h"
#include "runtime/cuda/operations.h"
#include "runtime/cuda/standard_attention.h"

namespace runtime {
namespace {

using sim::OpKind;

void quantise(const Call& c) {
  const Fp8Scales::Tensor& to = c.fp8.write(c.as<std::byte>(0), fp8_format(c.scalar()));
  cuda::quantise(c.context, {c.as<std::byte>(0), to.type}, to.scale, c.tensor(1), c.count(1));
}

void norm(const Call& c, cuda::ConstTensor inp, const cuda::AddedToInput& added) {
  const cuda::Tensor out = c.tensor(sim::Role::out);
  const cuda::ConstTensor gain = c.tensor(sim::Role::weight);
  float* const rstd = c.f32(sim::Role::rstd);
  if (c.kind() == OpKind::rmsnorm)
    return cuda::rmsnorm_forward(c.context, out, rstd, inp, gain, c.scalar(), c.rows(), c.hidden(),
                                 {.inp = c.row_stride(sim::Role::inp), .out = c.row_stride(sim::Role::out)},
                                 added);
  cuda::layernorm_forward(c.context, out, c.f32(sim::Role::mean), rstd, inp, gain, c.tensor(sim::Role::bias),
                          c.scalar(), c.rows(), c.hidden(), added);
}

// A sum and its norm, in training: without statistics for a backward pass, the norm goes with its product.
bool add_and_norm(const Call& add, const Call& of_sum) {
  const cuda::Tensor sum = add.tensor(sim::Role::out);
  const cuda::ConstTensor other = add.tensor(sim::Role::b);
  const bool whole = of_sum.row_stride(sim::Role::inp) == 0 && add.row_stride(sim::Role::a) == 0 &&
                     add.row_stride(sim::Role::b) == 0;
  if (!whole || of_sum.f32(sim::Role::rstd) == nullptr || !other ||
      of_sum.tensor(sim::Role::inp).data != sum.data || of_sum.tensor(sim::Role::out).type != sum.type ||
      add.cols() != of_sum.hidden())
    return false;
  norm(of_sum, add.tensor(sim::Role::a), {other, add.tensor(sim::Role::bias), sum});
  return true;
}

// Whether what is rotated is also what goes into the cache.
bool rope_and_kv_append(const Call& rope, const Call& append) {
  if (append.i32(3) != rope.i32(2) || append.as<std::byte>(2) != rope.as<std::byte>(0)) return false;
  cuda::rope_kv_append(append.context, append.tensor(2), append.kv_cache(0, 4), rope.f32(1), append.i32(3),
                       append.attention());
  return true;
}

void cross_entropy(const Call& c) {
  const cuda::Tensor logits = c.tensor(sim::Role::logits);
  float* const losses = c.f32(sim::Role::losses);
  const std::int32_t* const targets = c.i32(sim::Role::targets);
  const float* const of_parts = c.f32(sim::Role::statistics);  // where ranks divide the vocabulary
  if (of_parts == nullptr)
    return cuda::cross_entropy_forward_backward(c.context, logits, losses, targets, c.scalar(),
                                                &c.numbers->loss_scale, c.rows(), c.vocab(), c.words());
  const std::int64_t ranks = c.find(sim::Role::statistics)->bytes /
                             (cuda::kLossStatistics * static_cast<std::int64_t>(sizeof(float))) / c.rows();
  cuda::cross_entropy_of_part(c.context, logits, losses, targets, of_parts, ranks, c.scalar(),
                              &c.numbers->loss_scale, c.rows(), c.vocab(), c.settings.vocabulary);
}

// Operands by index, in the order that sim/plan/operation.h lists for the kind.
constexpr KernelEntry kKernels[] = {
    {OpKind::embedding,
     [](const Call& c) {
       cuda::embedding_forward(c.context, c.tensor(0), c.i32(1), c.tensor(2), c.tensor(3), c.i32(4),
                               c.embedding_part());
     }},
    {OpKind::embedding_backward,
     [](const Call& c) {
       cuda::embedding_backward(c.context, c.tensor(0), c.tensor(1), c.tensor(2), c.i32(3),
                                c.embedding_part());
     }},
    {OpKind::layernorm, [](const Call& c) { norm(c, c.tensor(sim::Role::inp), {}); }},
    {OpKind::layernorm_backward,
     [](const Call& c) {
       cuda::layernorm_backward(c.context, c.tensor(0), c.tensor(1), c.tensor(2), c.tensor(3), c.tensor(4),
                                c.tensor(5), c.f32(6), c.f32(7), c.rows(), c.hidden());
     }},
    {OpKind::rmsnorm, [](const Call& c) { norm(c, c.tensor(sim::Role::inp), {}); }},
    {OpKind::rmsnorm_backward,
     [](const Call& c) {
       cuda::rmsnorm_backward(c.context, c.tensor(0), c.tensor(1), c.tensor(2), c.tensor(3), c.tensor(4),
                              c.f32(5), c.rows(), c.hidden(),
                              {.inp = c.row_stride(3), .out = c.row_stride(2), .dinp = c.row_stride(0)});
     }},
    {OpKind::matmul, matmul},
    {OpKind::matmul_backward_input, matmul_backward_input},
    {OpKind::matmul_backward_weight, matmul_backward_weight},
    {OpKind::rope,
     [](const Call& c) { cuda::rope(c.context, c.tensor(0), c.f32(1), c.i32(2), 1.0f, c.rope()); }},
    {OpKind::rope_backward,
     [](const Call& c) { cuda::rope(c.context, c.tensor(0), c.f32(1), nullptr, -1.0f, c.rope()); }},
    {OpKind::attention_flash,
     [](const Call& c) {
       c.flash_attention.forward(c.context, c.tensor(0), c.f32(1), c.tensor(2), c.attention(),
                                 {.sinks = c.tensor(sim::Role::sinks)});
     }},
    {OpKind::attention_flash_backward,
     [](const Call& c) {
       c.flash_attention.backward(c.context, c.tensor(0), c.tensor(1), c.tensor(2), c.tensor(3), c.f32(4),
                                  c.attention());
       if (const cuda::Tensor dsinks = c.tensor(sim::Role::dsinks))
         cuda::attention_sinks_backward(c.context, dsinks, c.updates(sim::Role::dsinks),
                                        c.tensor(sim::Role::sinks), c.f32(4), c.attention());
     }},
    {OpKind::attention_standard, standard_attention},
    {OpKind::attention_standard_backward, standard_attention_backward},
    {OpKind::kv_append,
     [](const Call& c) {
       cuda::kv_append(c.context, c.kv_cache(0, 4), c.tensor(2), c.i32(3), c.attention());
     }},
    {OpKind::attention_cached,
     [](const Call& c) {
       cuda::attention_cached(c.context, c.tensor(0), c.tensor(1), c.kv_cache(2, 5), c.i32(4), c.attention(),
                              c.tensor(sim::Role::sinks));
     }},
    {OpKind::gelu,
     [](const Call& c) { cuda::gelu_forward(c.context, c.tensor(0), c.tensor(1), c.rows() * c.cols()); }},
    {OpKind::gelu_backward,
     [](const Call& c) {
       cuda::gelu_backward(c.context, c.tensor(0), c.tensor(1), c.tensor(2), c.rows() * c.cols());
     }},
    {OpKind::swiglu, swiglu},
    {OpKind::swiglu_backward, swiglu_backward},
    {OpKind::add,
     [](const Call& c) {
       if (const std::int64_t width = c.row_stride(0); width > 0)  // a copy
         return cuda::put_columns(c.context, c.tensor(0), c.tensor(1), c.rows(), {c.cols(), width, 0});
       cuda::add(c.context, c.tensor(0), c.tensor(1), c.tensor(2), c.tensor(3), c.rows(), c.cols());
     }},
    {OpKind::dropout,
     [](const Call& c) {
       cuda::dropout_forward(c.context, c.tensor(0), c.as<std::int8_t>(1), c.tensor(2), c.tensor(3),
                             &c.numbers->dropout, c.random_stream(), c.rows(), c.cols());
     }},
    {OpKind::dropout_backward,
     [](const Call& c) {
       cuda::dropout_backward(c.context, c.tensor(0), c.tensor(1), c.as<std::int8_t>(2), &c.numbers->dropout,
                              0, c.rows() * c.cols());
     }},
    {OpKind::gather_last,
     [](const Call& c) {
       cuda::gather_last(c.context, c.tensor(0), c.tensor(1), c.batch(), c.query_length(), c.cols());
     }},
    {OpKind::cross_entropy_statistics,
     [](const Call& c) {
       cuda::cross_entropy_statistics(c.context, c.f32(sim::Role::statistics), c.tensor(sim::Role::logits),
                                      c.i32(sim::Role::targets), c.rows(), c.vocab(), c.settings.vocabulary);
     }},
    {OpKind::cross_entropy, cross_entropy},
    {OpKind::sample,
     [](const Call& c) {
       const std::int64_t words = c.settings.sampled_vocabulary;
       cuda::sample(c.context, c.i32(0), c.f32(1), c.settings.sampling, &c.numbers->sampling_step, c.rows(),
                    c.vocab(), words > 0 ? std::min(words, c.vocab()) : c.vocab());
     }},
    {OpKind::quantise, quantise},
};

// Operands that exist only where several devices divide sequences: there are no kernels for them.
bool is_of_several_devices(OpKind kind, sim::Role role) {
  return role == sim::Role::all_kv || (kind == OpKind::attention_flash_backward && role == sim::Role::dkv);
}

// Operands that are fp32 beside elements of any type, in the kernels of kernel_entries.h.
bool is_fp32(sim::Role role) {
  using R = sim::Role;
  return role == R::weights || role == R::dweights || role == R::row_weights || role == R::drow_weights ||
         role == R::rstd || role == R::states || role == R::chunk_states;
}

// Grouped products take only the ranks' own choice, and only weights of experts.
bool takes_group(const sim::Operation& operation) {
  const bool grouped = operation.kind == OpKind::grouped_matmul ||
                       operation.kind == OpKind::grouped_matmul_backward_input ||
                       operation.kind == OpKind::grouped_matmul_backward_weight;
  return !grouped || sim::has(operation, sim::Role::indices) || is_absorbed(operation);
}

// Dropout's mask: a byte for each element.
bool is_mask(OpKind kind, std::size_t operand) {
  return (kind == OpKind::dropout && operand == 1) || (kind == OpKind::dropout_backward && operand == 2) ||
         (kind == OpKind::attention_standard && operand == 3) ||
         (kind == OpKind::attention_standard_backward && operand == 5);
}

// A code is a moment that AdamW keeps in 8 bits.
bool is_code(OpKind kind, std::size_t operand) {
  const sim::Role role = sim::info(kind).operands.at(operand).role;
  return kind == OpKind::adamw_8bit && (role == sim::Role::moment1 || role == sim::Role::moment2);
}

bool is_kv_cache(OpKind kind, std::size_t operand) {
  return (kind == OpKind::kv_append && operand < 2) ||
         (kind == OpKind::attention_cached && (operand == 2 || operand == 3));
}

// cuBLASLt's products in fp8 need sizes that are multiples of 16; rows are padded where necessary.
bool takes_fp8(const sim::Operation& operation) {
  const bool is_product = operation.kind == OpKind::matmul ||
                          operation.kind == OpKind::matmul_backward_input ||
                          operation.kind == OpKind::matmul_backward_weight;
  return is_product && operation.dims.cols.factor % cuda::kFp8Multiple == 0 &&
         operation.dims.inner.factor % cuda::kFp8Multiple == 0;
}

// A product whose weight has fewer bits than its other operands; its rows must be whole vectors and groups.
bool takes_quantised_weight(const sim::Operation& operation, sim::DType weight) {
  const std::int64_t multiple = weight == sim::DType::int4 ? cuda::kInt4Group : 16;
  return operation.kind == OpKind::matmul && operation.dtype == sim::DType::bf16 && sim::bits(weight) < 16 &&
         operation.dims.inner.factor % multiple == 0;
}

}  // namespace

Kernel kernel_of(OpKind kind) {
  for (const std::span<const KernelEntry> family :
       {std::span<const KernelEntry>(kKernels), cuda_expert_kernels(), cuda_layer_kernels(),
        cuda_latent_kernels(), cuda_state_space_kernels(), cuda_optimizer_kernels()})
    for (const KernelEntry& entry : family)
      if (entry.kind == kind) return entry.kernel;
  return nullptr;
}

bool may_begin_fused(OpKind first) {
  return first == OpKind::layernorm || first == OpKind::rmsnorm || first == OpKind::matmul ||
         first == OpKind::matmul_backward_input || first == OpKind::rope || first == OpKind::add;
}

FusedRun run_fused(std::span<const Call> calls) {
  if (const FusedRun done = product_of_few_rows(calls); done.count > 1) return done;
  const Call &first = calls[0], &second = calls[1];
  bool done = false;
  if (first.kind() == OpKind::matmul && second.kind() == OpKind::gelu)
    done = matmul_and_gelu(first, second);
  else if (first.kind() == OpKind::matmul_backward_input && second.kind() == OpKind::gelu_backward)
    done = matmul_backward_input_and_gelu(first, second);
  else if (first.kind() == OpKind::rope && second.kind() == OpKind::kv_append)
    done = rope_and_kv_append(first, second);
  else if (first.kind() == OpKind::add &&
           (second.kind() == OpKind::layernorm || second.kind() == OpKind::rmsnorm))
    return add_and_norm(first, second) ? FusedRun{2, 1} : FusedRun{};
  return done ? FusedRun{2, 0} : FusedRun{};
}

bool takes_columns(OpKind kind) {
  return kind == OpKind::rmsnorm || kind == OpKind::rmsnorm_backward || kind == OpKind::add ||
         kind == OpKind::zero || kind == OpKind::rope_latent || kind == OpKind::latent_append;
}

bool has_kernel(const sim::Operation& operation, std::span<const sim::DType> operands) {
  if (operation.kind != OpKind::zero && kernel_of(operation.kind) == nullptr) return false;
  const auto runs_in = [](sim::DType type) {
    return type == sim::DType::fp32 || type == sim::DType::tf32 || type == sim::DType::bf16 ||
           type == sim::DType::fp16;
  };
  // ALiBi's slopes cover all heads.
  if (operation.dims.alibi_heads != 0 && operation.dims.alibi_heads != operation.dims.heads) return false;
  if (operation.dtype == sim::DType::fp8) return takes_fp8(operation);
  if (!runs_in(operation.dtype) || !takes_group(operation) || !takes_scan(operation)) return false;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (operation.operands[i].buffer == sim::kNoBuffer) continue;
    const sim::Role role = sim::info(operation.kind).operands.at(i).role;
    if (is_of_several_devices(operation.kind, role)) return false;
    if (is_fp32(role) && operands[i] != sim::DType::fp32) return false;
    const bool holds = runs_in(operands[i]) || operands[i] == sim::DType::int32 ||
                       operands[i] == sim::DType::fp64 ||
                       (i == 2 && takes_quantised_weight(operation, operands[i])) ||
                       (is_mask(operation.kind, i) && operands[i] == sim::DType::int8) ||
                       (is_code(operation.kind, i) && operands[i] == sim::DType::int8) ||
                       (operation.kind == OpKind::quantise && i == 0 && operands[i] == sim::DType::fp8) ||
                       (is_kv_cache(operation.kind, i) && operands[i] == sim::DType::fp8);
    if (!holds && operation.kind != OpKind::zero) return false;
    if (operation.kind == OpKind::sample && sim::bits(operands[i]) == 16) return false;  // logits are fp32
  }
  return true;
}

}  // namespace runtime
