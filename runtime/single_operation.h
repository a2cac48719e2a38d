// One operation as a plan of its own, with its own operands. Calibration and benchmarks time these
// plans.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/cost/calibration.h"
#include "sim/cost/work.h"
#include "sim/plan/plan.h"

namespace runtime {

// The type of stored tensors where products compute in `computing`: fp32 for tf32 and bf16 for fp8, which are
// only ways to multiply.
sim::DType stored_type(sim::DType computing);

class SingleOperation {
 public:
  explicit SingleOperation(sim::OpKind kind) { operation_.kind = kind; }

  SingleOperation& variables(std::int64_t batch, std::int64_t query_length, std::int64_t kv_length) {
    variables_ = {.batch = batch, .query_length = query_length, .kv_length = kv_length};
    return *this;
  }
  SingleOperation& dims(sim::Dims dims) {
    operation_.dims = dims;
    return *this;
  }
  // Adds an operand. Its type is always `dtype`, or, without one, the type given to in() (fp32 by default).
  SingleOperation& add(sim::Access access, const sim::Shape& shape, std::optional<sim::DType> dtype = {}) {
    if (!dtype) stored_.push_back(plan_.buffers.size());
    operation_.operands.push_back({static_cast<sim::BufferId>(plan_.buffers.size()), access, 0});
    plan_.buffers.push_back({.name = "operand " + std::to_string(plan_.buffers.size()),
                             .dtype = dtype.value_or(sim::DType::fp32),
                             .shape = shape});
    return *this;
  }
  SingleOperation& add_f32(sim::Access access, const sim::Shape& shape) {
    return add(access, shape, sim::DType::fp32);
  }
  // Stores tensors in that type. Matrix products and attention compute in it, too.
  SingleOperation& in(sim::DType stored) {
    for (const std::size_t buffer : stored_) plan_.buffers[buffer].dtype = stored;
    if (sim::info(operation_.kind).arithmetic.tensor_cores) operation_.dtype = stored;
    return *this;
  }
  // Sets types as a run that computes in `dtype` has them. tf32 multiplies tensors stored in fp32. fp8 is for
  // products only: their factors are fp8 and their results bf16.
  SingleOperation& computing_in(sim::DType dtype);
  // Gives each expert an equal share of the rows, however tokens chose.
  SingleOperation& has_capacity() {
    operation_.has_capacity = true;
    return *this;
  }
  SingleOperation& absent() {
    operation_.operands.push_back({});
    return *this;
  }

  const sim::Operation& operation() const { return operation_; }
  const sim::Variables& bound_variables() const { return variables_; }
  const sim::Plan& plan() const { return plan_; }
  const sim::Buffer& buffer(sim::BufferId id) const { return plan_.buffers[static_cast<std::size_t>(id)]; }

  // The FLOPs and traffic of this plan's operation, counted by sim::work_of as in any plan.
  sim::Work work() const { return sim::work_of(plan_, operation_, variables_); }

 private:
  sim::Plan plan_;
  sim::Operation operation_{.id = "calibration", .dtype = sim::DType::fp32, .scalar = 1e-5f};
  sim::Variables variables_;
  std::vector<std::size_t> stored_;
};

// The indices of the samples that time exactly this operation alone.
std::vector<std::size_t> samples_of(const SingleOperation& single,
                                    const std::vector<sim::KernelSample>& samples);

// The bytes of all operands, each rounded up to the arena's alignment.
sim::Bytes operands_size(const SingleOperation& single);

// A row of heads as models have them: queries' and keys' heads, and their size.
struct Heads {
  std::int64_t heads, kv_heads, head_dim;
  std::int64_t query() const { return heads * head_dim; }
  std::int64_t packed() const { return (heads + 2 * kv_heads) * head_dim; }
};

// The kinds by their shapes, as sim/plan/operation.h names dimensions: out (M, N), weight (N, K).
SingleOperation product(sim::OpKind kind, std::int64_t M, std::int64_t N, std::int64_t K);
// A product of M rows with weights as decoding stores them, in 8 or 4 bits: one scale for each `group`
// columns of a row, or, with 0, for each row.
SingleOperation product_of_stored(std::int64_t M, std::int64_t N, std::int64_t K, sim::DType weights,
                                  std::int64_t group);
// A product of M rows that `experts` experts share evenly, each with a weight of its own.
SingleOperation grouped_product(sim::OpKind kind, std::int64_t M, std::int64_t experts, std::int64_t N,
                                std::int64_t K);
// The same with weights as product_of_stored() has them.
SingleOperation grouped_product_of_stored(std::int64_t M, std::int64_t experts, std::int64_t N,
                                          std::int64_t K, sim::DType weights, std::int64_t group);
SingleOperation norm(sim::OpKind kind, std::int64_t R, std::int64_t C);
SingleOperation elementwise(sim::OpKind kind, std::int64_t R, std::int64_t F);
// out (R, C) = inp (R, C).
SingleOperation copy(std::int64_t R, std::int64_t C);
SingleOperation attention(sim::OpKind kind, std::int64_t B, std::int64_t T, Heads heads);
// Attention of one of several ranks that divide sequences, with T tokens of each: against another rank's keys
// and values (`others`) or its own. The kinds are attention_partial, its backward and attention_merge.
SingleOperation attention_of_segments(sim::OpKind kind, std::int64_t B, std::int64_t T, Heads heads,
                                      bool others);
// T new tokens against a cache of `length` tokens, including the new ones.
SingleOperation cached(sim::OpKind kind, std::int64_t B, std::int64_t T, std::int64_t length, Heads heads);
SingleOperation embedding(sim::OpKind kind, std::int64_t R, std::int64_t C, std::int64_t V);
SingleOperation head(sim::OpKind kind, std::int64_t R, std::int64_t V);
// On one tensor of `count` elements.
SingleOperation optimizer(sim::OpKind kind, std::int64_t count);
// AdamW where parameters are stored in fewer bits: the fp32 copy is updated.
SingleOperation adamw_with_master(std::int64_t count);

}  // namespace runtime
