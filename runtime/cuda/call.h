// An operation of a plan as the GPU's kernels take it: tensors with their types and scales.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>

#include "kernels/activation.h"
#include "kernels/cuda/attention_choice.h"
#include "kernels/cuda/dropout.h"
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/optimizer.h"
#include "kernels/cuda/products.h"
#include "kernels/cuda/sampling.h"
#include "kernels/elementwise.h"
#include "kernels/route.h"
#include "runtime/fp8_scales.h"
#include "runtime/operation_view.h"

namespace runtime {

namespace cuda = kernels::cuda;

// Numbers of a run that change from step to step, in device memory.
struct StepNumbers {
  cuda::AdamWStep adamw;
  std::int64_t sampling_step;
  cuda::DropoutStep dropout;
  float loss_scale;
};

// fp32 for types that no tensor of an operation has.
inline cuda::Type type_of(sim::DType dtype) {
  switch (dtype) {
    case sim::DType::bf16:
      return cuda::Type::bf16;
    case sim::DType::fp16:
      return cuda::Type::f16;
    default:
      return cuda::Type::f32;
  }
}

// An operation, and what kernels work with.
class Call : public OperationView {
 public:
  Call(const BoundOperation& bound, const cuda::Context& with, cuda::Products& multiplier,
       cuda::AttentionKernels& attention_kernels, Fp8Scales& fp8_scales, const StepNumbers* step_numbers,
       const RunSettings& run_settings)
      : OperationView(bound),
        context(with),
        products(multiplier),
        flash_attention(attention_kernels),
        fp8(fp8_scales),
        numbers(step_numbers),
        settings(run_settings) {}

  const cuda::Context& context;
  cuda::Products& products;
  cuda::AttentionKernels& flash_attention;
  Fp8Scales& fp8;
  const StepNumbers* numbers;
  const RunSettings& settings;

  cuda::Tensor tensor(std::size_t operand) const {
    if (operand >= operands()) return {};
    const BoundOperand& o = bound().operands[operand];
    return {o.data, o.dtype == sim::DType::fp8 ? fp8.at(o.data).type : type_of(o.dtype)};
  }
  // Absent where the operand is.
  cuda::Tensor tensor(sim::Role role) const {
    const BoundOperand* const o = find(role);
    return o ? tensor(static_cast<std::size_t>(o - bound().operands.data())) : cuda::Tensor{};
  }
  const sim::Operation& operation() const { return *bound().operation; }
  sim::OpKind kind() const { return bound().operation->kind; }
  const sim::Dims& dims() const { return bound().operation->dims; }
  kernels::RouteSettings routing() const {
    return {bound().operation->sigmoid, bound().operation->normalised, scalar()};
  }
  // What multiplies the rows of an activation.
  kernels::cpu::RowWeights row_weights() const {
    return {f32(sim::Role::row_weights), bound().operation->place == sim::Place::shared_expert};
  }
  kernels::cpu::Columns columns() const { return {cols(), inner(), dims().first_column}; }
  // A product's weight in one of decoding's 8-bit or 4-bit formats; without scales it is bf16.
  cuda::Weights weights() const {
    const BoundOperand& o = *find(sim::Role::weight);
    const float* const scales = f32(sim::Role::weight_scales);
    if (!scales) return {cuda::WeightFormat::bf16, o.data, nullptr};
    return {o.dtype == sim::DType::int8   ? cuda::WeightFormat::int8
            : o.dtype == sim::DType::int4 ? cuda::WeightFormat::int4
                                          : cuda::WeightFormat::fp8,
            o.data, scales};
  }
  // The cache in operands k and k + 1; `table` and behind it the scales may be absent.
  cuda::KvCache kv_cache(std::size_t k, std::size_t table) const {
    const CacheBlocks blocks = cache_blocks(k, table);
    const float* const scales = f32(table + 1);
    return {.k = tensor(k),
            .v = tensor(k + 1),
            .block_size = blocks.tokens,
            .block_table = blocks.table,
            .blocks_per_sequence = blocks.of_sequence,
            .k_scale = scales,
            .v_scale = scales == nullptr ? nullptr : scales + attention().G};
  }
  // The scale of an operand in fp8, a scalar on the device; null for other types.
  const float* scale(std::size_t operand) const {
    const BoundOperand& o = bound().operands[operand];
    return o.dtype == sim::DType::fp8 ? fp8.at(o.data).scale : nullptr;
  }
  std::int64_t bytes(std::size_t operand) const { return bound().operands[operand].bytes; }
  // Elements from a row to the next where its rows are columns of wider ones, else 0.
  std::int64_t row_stride(std::size_t operand) const { return bound().operands[operand].row_width; }
  std::int64_t row_stride(sim::Role role) const {
    const BoundOperand* const o = find(role);
    return o ? o->row_width : 0;
  }
  std::int64_t count(std::size_t operand) const {
    return bytes(operand) / cuda::size_of(tensor(operand).type);
  }
  // Whether an operand that this operation writes overlaps the memory of `other`.
  bool writes_over(const BoundOperand& other) const {
    for (std::size_t i = 0; i < operands(); ++i) {
      const BoundOperand& o = bound().operands[i];
      if (bound().operation->operands[i].access != sim::Access::read && o.data < other.data + other.bytes &&
          other.data < o.data + o.bytes)
        return true;
    }
    return false;
  }
  kernels::EmbeddingShape embedding_part() const {
    kernels::EmbeddingShape shape = embedding();
    shape.first = settings.vocabulary.first;
    return shape;
  }
  bool tf32() const { return bound().operation->dtype == sim::DType::tf32; }
};

}  // namespace runtime
