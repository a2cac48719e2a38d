// Operations with operands of their own, as a plan of that operation alone: what calibrating and benchmarks
// time.
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

// What tensors are stored in where products compute in that type: tf32 is a way to multiply fp32, fp8 one to
// multiply bf16.
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
  // In the type that the operation's tensors are stored in, or of one that is always the same.
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
  // With tensors stored in that type, in which matrix products and attention compute too.
  SingleOperation& in(sim::DType stored) {
    for (const std::size_t buffer : stored_) plan_.buffers[buffer].dtype = stored;
    if (sim::info(operation_.kind).arithmetic.tensor_cores) operation_.dtype = stored;
    return *this;
  }
  // As a run computes in that type: tf32 multiplies what is stored in fp32; fp8 is of products alone, whose
  // factors are in fp8 and whose results in bf16.
  SingleOperation& computing_in(sim::DType dtype);
  // Experts have equal shares of the rows, whoever was chosen.
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

  // The mini-plan's work, as work_of prices it in any plan.
  sim::Work work() const { return sim::work_of(plan_, operation_, variables_); }

 private:
  sim::Plan plan_;
  sim::Operation operation_{.id = "calibration", .dtype = sim::DType::fp32, .scalar = 1e-5f};
  sim::Variables variables_;
  std::vector<std::size_t> stored_;
};

// The indices of the samples in which the very operation was timed alone.
std::vector<std::size_t> samples_of(const SingleOperation& single,
                                    const std::vector<sim::KernelSample>& samples);

// For all operands, each in whole units of the arena.
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
SingleOperation norm(sim::OpKind kind, std::int64_t R, std::int64_t C);
SingleOperation elementwise(sim::OpKind kind, std::int64_t R, std::int64_t F);
// out (R, C) = inp (R, C).
SingleOperation copy(std::int64_t R, std::int64_t C);
SingleOperation attention(sim::OpKind kind, std::int64_t B, std::int64_t T, Heads heads);
// As a rank of several that divide sequences has it, with T of their tokens: against another rank's keys and
// values, or its own. The kinds attention_partial, its backward, attention_merge.
SingleOperation attention_of_segments(sim::OpKind kind, std::int64_t B, std::int64_t T, Heads heads,
                                      bool others);
// T new tokens against a cache of `length` tokens, them included.
SingleOperation cached(sim::OpKind kind, std::int64_t B, std::int64_t T, std::int64_t length, Heads heads);
SingleOperation embedding(sim::OpKind kind, std::int64_t R, std::int64_t C, std::int64_t V);
SingleOperation head(sim::OpKind kind, std::int64_t R, std::int64_t V);
// On one tensor of `count` elements.
SingleOperation optimizer(sim::OpKind kind, std::int64_t count);
// AdamW where parameters are stored in fewer bits: the fp32 copy is updated.
SingleOperation adamw_with_master(std::int64_t count);

}  // namespace runtime
