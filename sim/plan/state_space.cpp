#include "sim/plan/state_space.h"

#include "sim/plan/decoder.h"
#include "sim/plan/writing.h"

namespace sim {
namespace {

// Dimensions that convolution, scan and norm share.
Dims mixer_dims(const Model& m) {
  const StateSpace& s = m.state_space;
  return {.rows = kRows,
          .heads = s.mamba_num_heads,
          .head_dim = s.mamba_head_dim,
          .groups = s.n_groups,
          .states = s.ssm_state_size,
          .taps = s.conv_kernel,
          .scan_chunk = s.chunk_size};
}

Operation mixer_operation(const PlanBuilder& b, const char* id, OpKind kind, std::vector<Operand> operands) {
  Operation op = operation(id, kind, b.types().statistic, mixer_dims(b.model()), std::move(operands));
  if (kind == OpKind::gated_norm || kind == OpKind::gated_norm_backward)
    op.scalar = static_cast<float>(b.model().norm_eps);
  return op;
}

// The scan's products, like attention's, are in 16 bits where the layer's products are in fewer.
Operation scan_operation(const PlanBuilder& b, const char* id, OpKind kind, std::vector<Operand> operands) {
  Operation op = mixer_operation(b, id, kind, std::move(operands));
  op.dtype = b.types().wide_product;
  return op;
}

}  // namespace

Dims state_space_projection(const Model& m) {
  return {.rows = kRows, .cols = m.state_space.projection_size(), .inner = m.hidden_size};
}

StateSpaceResults add_state_space_results(PlanBuilder& b, const std::string& block, AddBuffer add,
                                          bool statistics) {
  const StateSpace& s = b.model().state_space;
  const DType stored = b.types().stored;
  StateSpaceResults r;
  r.projected = add(b, block, "layer.state_space.projected", stored, {kRows, s.projection_size()});
  r.convolved = add(b, block, "layer.state_space.convolved", stored, {kRows, s.conv_size()});
  r.scanned = add(b, block, "layer.state_space.scanned", stored, {kRows, s.inner_size()});
  r.normed = add(b, block, "layer.state_space.normed", stored, {kRows, s.inner_size()});
  if (statistics) r.rstd = add(b, block, "layer.state_space.rstd", b.types().statistic, {kRows, s.n_groups});
  return r;
}

StateSpaceCache add_state_space_cache(PlanBuilder& b) {
  const StateSpace& s = b.model().state_space;
  const auto cache = [&](const char* name, DType dtype, const Shape& shape) {
    return b.add({.name = name,
                  .buffer_class = BufferClass::kv_cache,
                  .dtype = dtype,
                  .shape = shape,
                  .lifetime = Lifetime::plan,
                  .per_layer = true});
  };
  // States are added up over all tokens: fp32, as engines keep them (mamba_ssm_cache_dtype of Nemotron's
  // config.json).
  return {cache("layer.state_space.history", b.types().stored, {kBatch, s.conv_kernel - 1, s.conv_size()}),
          cache("layer.state_space.states", b.types().statistic,
                {kBatch, s.mamba_num_heads, s.ssm_state_size, s.mamba_head_dim})};
}

std::vector<Operation> state_space_forward(const PlanBuilder& b, const StateSpaceParameters& p,
                                           const StateSpaceResults& r, const StateSpaceCache& cache,
                                           BufferId inp, BufferId positions) {
  if (cache.states == kNoBuffer) positions = kNoBuffer;
  std::vector<Operation> ops;
  ops.push_back(matmul(b, "layer.state_space.in.forward", writes(r.projected), reads(inp), p.in, {},
                       state_space_projection(b.model())));
  ops.push_back(mixer_operation(b, "layer.state_space.conv.forward", OpKind::causal_conv,
                                {writes(r.convolved), reads(r.projected), reads(p.conv.weight.parameter),
                                 reads(p.conv.bias.parameter), updates(cache.history), reads(positions)}));
  ops.push_back(scan_operation(b, "layer.state_space.scan.forward", OpKind::selective_scan,
                               {writes(r.scanned), reads(r.convolved), reads(r.projected),
                                reads(p.heads.parameter), updates(cache.states), reads(positions)}));
  ops.push_back(mixer_operation(
      b, "layer.state_space.norm.forward", OpKind::gated_norm,
      {writes(r.normed), writes(r.rstd), reads(r.scanned), reads(r.projected), reads(p.norm.parameter)}));
  return ops;
}

std::vector<Operation> state_space_backward(PlanBuilder& b, const std::string& block,
                                            const StateSpaceParameters& p, const StateSpaceResults& r,
                                            BufferId d_normed, BufferId d_projected) {
  const Model& m = b.model();
  const StateSpace& s = m.state_space;
  const auto add = [&](const char* name, DType dtype, const Shape& shape) {
    return b.add_scratch(block, name, dtype, shape);
  };
  const BufferId d_scanned =
      add("layer.state_space.scanned.gradient", b.types().stored, {kRows, s.inner_size()});
  const BufferId d_convolved =
      add("layer.state_space.convolved.gradient", b.types().stored, {kRows, s.conv_size()});
  // The states before each chunk are computed again, and each head's own gradients summed by sequence.
  const std::int64_t tokens = b.scenario().workload.seq_len;
  const std::int64_t chunks = (tokens + s.chunk_size - 1) / s.chunk_size;
  const BufferId states = add("layer.state_space.chunk_states", b.types().statistic,
                              {kBatch, chunks * s.state_size() + 3 * s.mamba_num_heads});
  std::vector<Operation> ops;
  ops.push_back(
      mixer_operation(b, "layer.state_space.norm.backward", OpKind::gated_norm_backward,
                      {writes(d_scanned), writes(d_projected), updates(p.norm.gradient), reads(d_normed),
                       reads(r.scanned), reads(r.projected), reads(p.norm.parameter), reads(r.rstd)}));
  ops.push_back(
      scan_operation(b, "layer.state_space.scan.backward", OpKind::selective_scan_backward,
                     {writes(d_convolved), updates(d_projected), updates(p.heads.gradient), reads(d_scanned),
                      reads(r.convolved), reads(r.projected), reads(p.heads.parameter), writes(states)}));
  ops.push_back(mixer_operation(b, "layer.state_space.conv.backward", OpKind::causal_conv_backward,
                                {updates(d_projected), updates(p.conv.weight.gradient),
                                 updates(p.conv.bias.gradient), reads(d_convolved), reads(r.projected),
                                 reads(p.conv.weight.parameter), reads(p.conv.bias.parameter)}));
  return ops;
}

}  // namespace sim
