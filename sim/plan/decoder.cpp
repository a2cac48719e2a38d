#include "sim/plan/decoder.h"

namespace sim {
namespace {

constexpr Operand kAbsent{};

Operation operation(std::string id, OpKind kind, DType dtype, Dims dims, std::vector<Operand> operands) {
  return {.id = std::move(id), .kind = kind, .dtype = dtype, .dims = dims, .operands = std::move(operands)};
}

void append(std::vector<Operation>& to, std::vector<Operation> more) {
  for (Operation& op : more) to.push_back(std::move(op));
}

Dims head_dims(const Model& m) {
  return {.heads = m.num_attention_heads, .kv_heads = m.num_key_value_heads, .head_dim = m.head_dim};
}

Dims row_dims(std::int64_t cols) {
  return {.rows = kRows, .cols = cols};
}

Dims product_dims(std::int64_t cols, std::int64_t inner) {
  return {.rows = kRows, .cols = cols, .inner = inner};
}

std::string mlp_up_id(const Model& m) {
  return m.activation == Activation::swiglu ? "layer.mlp.gate_up" : "layer.mlp.up";
}

std::string activation_id(const Model& m) {
  return m.activation == Activation::swiglu ? "layer.mlp.swiglu" : "layer.mlp.gelu";
}

bool uses_flash(const PlanBuilder& b) {
  return b.scenario().implementation.attention == AttentionKind::flash;
}

// Projection back into the residual stream: out = residual + [dropout](inp W^T + bias).
std::vector<Operation> project_and_add(const PlanBuilder& b, const std::string& id, Operand out, BufferId inp,
                                       const Affine& p, Operand residual, BufferId projection, BufferId mask,
                                       Dims dims) {
  if (projection == kNoBuffer) return {matmul(b, id + ".forward", out, reads(inp), p, residual, dims)};
  const DType elementwise = b.types().statistic;
  std::vector<Operation> ops;
  ops.push_back(matmul(b, id + ".forward", writes(projection), reads(inp), p, kAbsent, dims));
  const Dims row = row_dims(b.model().hidden_size);
  if (mask != kNoBuffer)
    ops.push_back(operation(id + "_dropout.forward", OpKind::dropout, elementwise, row,
                            {updates(projection), writes(mask), reads(projection)}));
  ops.push_back(
      operation(id + "_residual.forward", OpKind::add, elementwise, row, {out, residual, reads(projection)}));
  return ops;
}

// Backward of the above; the residual's own gradient passes through unchanged, in `gradient`.
std::vector<Operation> project_and_add_backward(PlanBuilder& b, const std::string& block,
                                                const std::string& id, BufferId dinp, BufferId gradient,
                                                BufferId inp, BufferId mask, const Affine& p, Dims dims) {
  std::vector<Operation> ops;
  BufferId dout = gradient;
  if (mask != kNoBuffer) {
    dout = b.add_scratch(block, id + "_dropout.gradient", b.types().stored, {kRows, b.model().hidden_size});
    ops.push_back(operation(id + "_dropout.backward", OpKind::dropout_backward, b.types().statistic,
                            row_dims(b.model().hidden_size), {writes(dout), reads(gradient), reads(mask)}));
  }
  append(ops, matmul_backward(b, id, dinp, dout, inp, p, dims));
  return ops;
}

void add_results_of_products(PlanBuilder& b, const std::string& block, AddBuffer add, bool statistics,
                             LayerResults& r) {
  const Model& m = b.model();
  const DType stored = b.types().stored;
  r.attention_norm = add_norm_result(b, block, "layer.attention_norm", add, statistics);
  r.qkv = add(b, block, "layer.attention.qkv", stored, {kRows, m.qkv_size()});
  r.attention = add(b, block, "layer.attention.out", stored, {kRows, m.query_size()});
  r.mlp_norm = add_norm_result(b, block, "layer.mlp_norm", add, statistics);
  r.mlp_up = add(b, block, mlp_up_id(m), stored, {kRows, m.mlp_up_size()});
  r.mlp_activation = add(b, block, "layer.mlp.activation", stored, {kRows, m.intermediate_size});
}

}  // namespace

BufferId kept(PlanBuilder& builder, const std::string&, const std::string& name, DType dtype,
              std::vector<Extent> shape) {
  return builder.add_kept(name, dtype, std::move(shape));
}

BufferId scratch(PlanBuilder& builder, const std::string& block, const std::string& name, DType dtype,
                 std::vector<Extent> shape) {
  return builder.add_scratch(block, name, dtype, std::move(shape));
}

Operation matmul(const PlanBuilder& builder, const std::string& id, Operand out, Operand inp, const Affine& p,
                 Operand residual, Dims dims) {
  return operation(id, OpKind::matmul, builder.types().product, dims,
                   {out, inp, reads(p.weight.parameter), reads(p.bias.parameter), residual});
}

std::vector<Operation> matmul_backward(const PlanBuilder& builder, const std::string& id, BufferId dinp,
                                       BufferId dout, BufferId inp, const Affine& p, Dims dims) {
  const DType product = builder.types().product;
  return {operation(id + ".backward_weight", OpKind::matmul_backward_weight, product, dims,
                    {updates(p.weight.gradient), updates(p.bias.gradient), reads(dout), reads(inp)}),
          operation(id + ".backward_input", OpKind::matmul_backward_input, product, dims,
                    {writes(dinp), reads(dout), reads(p.weight.parameter)})};
}

NormResult add_norm_result(PlanBuilder& builder, const std::string& block, const std::string& name,
                           AddBuffer add, bool statistics) {
  const ElementTypes& t = builder.types();
  NormResult r;
  r.out = add(builder, block, name + ".out", t.stored, {kRows, builder.model().hidden_size});
  if (!statistics) return r;
  if (builder.model().norm == Norm::layernorm)
    r.mean = add(builder, block, name + ".mean", t.statistic, {kRows});
  r.rstd = add(builder, block, name + ".rstd", t.statistic, {kRows});
  return r;
}

std::vector<Operation> norm_forward(const PlanBuilder& builder, const std::string& id, const Affine& p,
                                    const NormResult& r, Operand inp, Extent rows) {
  const Dims dims{.rows = rows, .hidden = builder.model().hidden_size};
  const bool layernorm = builder.model().norm == Norm::layernorm;
  std::vector<Operand> operands{writes(r.out)};
  if (layernorm) operands.push_back(writes(r.mean));
  operands.insert(operands.end(), {writes(r.rstd), inp, reads(p.weight.parameter)});
  if (layernorm) operands.push_back(reads(p.bias.parameter));
  Operation op = operation(id + ".forward", layernorm ? OpKind::layernorm : OpKind::rmsnorm,
                           builder.types().statistic, dims, std::move(operands));
  op.scalar = static_cast<float>(builder.model().norm_eps);
  return {std::move(op)};
}

std::vector<Operation> norm_backward(const PlanBuilder& builder, const std::string& id, const Affine& p,
                                     const NormResult& r, Operand inp, BufferId dinp, BufferId dout) {
  const Dims dims{.rows = kRows, .hidden = builder.model().hidden_size};
  const bool layernorm = builder.model().norm == Norm::layernorm;
  std::vector<Operand> operands{updates(dinp), updates(p.weight.gradient)};
  if (layernorm) operands.push_back(updates(p.bias.gradient));
  operands.insert(operands.end(), {reads(dout), inp, reads(p.weight.parameter)});
  if (layernorm) operands.push_back(reads(r.mean));
  operands.push_back(reads(r.rstd));
  Operation op =
      operation(id + ".backward", layernorm ? OpKind::layernorm_backward : OpKind::rmsnorm_backward,
                builder.types().statistic, dims, std::move(operands));
  op.scalar = static_cast<float>(builder.model().norm_eps);
  return {std::move(op)};
}

LayerResults add_attention_core(PlanBuilder& b, const std::string& block, AddBuffer add) {
  const Model& m = b.model();
  const ElementTypes& t = b.types();
  LayerResults r;
  if (uses_flash(b)) {
    r.lse = add(b, block, "layer.attention.log_sum_exp", t.statistic,
                {kBatch, m.num_attention_heads, kQueryLength});
    return r;
  }
  const std::vector<Extent> scores{kBatch, m.num_attention_heads, kQueryLength, kKvLength};
  r.probabilities = add(b, block, "layer.attention.probabilities", t.stored, scores);
  if (uses_dropout(b.scenario())) {
    r.mask = add(b, block, "layer.attention.dropout_mask", DType::int8, scores);
    r.dropped = add(b, block, "layer.attention.dropped_probabilities", t.stored, scores);
  }
  return r;
}

LayerResults add_layer_results(PlanBuilder& b, const std::string& block, AddBuffer add) {
  LayerResults r = add_attention_core(b, block, add);
  add_results_of_products(b, block, add, true, r);
  const std::vector<Extent> shape{kRows, b.model().hidden_size};
  r.middle = add(b, block, "residual_mid", b.types().stored, shape);
  if (uses_dropout(b.scenario())) {
    r.attention_dropout_mask = add(b, block, "layer.attention.output_dropout_mask", DType::int8, shape);
    r.mlp_dropout_mask = add(b, block, "layer.mlp.down_dropout_mask", DType::int8, shape);
  }
  return r;
}

LayerResults add_inference_results(PlanBuilder& b, const std::string& block, BufferId residual,
                                   bool kv_cache) {
  LayerResults r;
  if (!kv_cache && !uses_flash(b)) r = add_attention_core(b, block, scratch);
  add_results_of_products(b, block, scratch, false, r);
  r.middle = residual;
  return r;
}

LayerResults with_core_of(LayerResults results, const LayerResults& core) {
  results.lse = core.lse;
  results.probabilities = core.probabilities;
  results.mask = core.mask;
  results.dropped = core.dropped;
  return results;
}

std::vector<Operation> attention_core_forward(const PlanBuilder& b, const LayerResults& r) {
  const Dims dims = head_dims(b.model());
  if (uses_flash(b))
    return {operation("layer.attention.flash.forward", OpKind::attention_flash, b.types().product, dims,
                      {writes(r.attention), writes(r.lse), reads(r.qkv)})};
  return {operation(
      "layer.attention.standard.forward", OpKind::attention_standard, b.types().product, dims,
      {writes(r.attention), writes(r.probabilities), reads(r.qkv), writes(r.mask), writes(r.dropped)})};
}

std::vector<Operation> layer_forward(const PlanBuilder& b, const DecoderParameters& p, const LayerResults& r,
                                     const LayerContext& c) {
  const Model& m = b.model();
  const DType elementwise = b.types().statistic;
  // In generation the residual stream is one buffer, updated in place.
  const bool in_place = r.middle == c.residual_in.buffer;
  const Operand middle_out = in_place ? updates(r.middle) : writes(r.middle);

  std::vector<Operation> ops =
      norm_forward(b, "layer.attention_norm", p.attention_norm, r.attention_norm, c.residual_in, kRows);
  ops.push_back(matmul(b, "layer.attention.qkv.forward", writes(r.qkv), reads(r.attention_norm.out), p.qkv,
                       kAbsent, product_dims(m.qkv_size(), m.hidden_size)));
  if (m.position == Position::rope)
    ops.push_back(operation("layer.attention.rope.forward", OpKind::rope, elementwise, head_dims(m),
                            {updates(r.qkv), reads(c.rope_table), reads(c.positions)}));
  if (c.cache.k != kNoBuffer) {
    ops.push_back(operation("layer.attention.kv_append.forward", OpKind::kv_append, elementwise, head_dims(m),
                            {updates(c.cache.k), updates(c.cache.v), reads(r.qkv), reads(c.positions)}));
    ops.push_back(operation(
        "layer.attention.cached.forward", OpKind::attention_cached, b.types().product, head_dims(m),
        {writes(r.attention), reads(r.qkv), reads(c.cache.k), reads(c.cache.v), reads(c.positions)}));
  } else {
    append(ops, attention_core_forward(b, r));
  }
  append(ops, project_and_add(b, "layer.attention.output", middle_out, r.attention, p.attention_output,
                              c.residual_in, c.projection, r.attention_dropout_mask,
                              product_dims(m.hidden_size, m.query_size())));

  append(ops, norm_forward(b, "layer.mlp_norm", p.mlp_norm, r.mlp_norm, reads(r.middle), kRows));
  ops.push_back(matmul(b, mlp_up_id(m) + ".forward", writes(r.mlp_up), reads(r.mlp_norm.out), p.mlp_up,
                       kAbsent, product_dims(m.mlp_up_size(), m.hidden_size)));
  ops.push_back(operation(activation_id(m) + ".forward",
                          m.activation == Activation::swiglu ? OpKind::swiglu : OpKind::gelu, elementwise,
                          row_dims(m.intermediate_size), {writes(r.mlp_activation), reads(r.mlp_up)}));
  append(ops,
         project_and_add(b, "layer.mlp.down", c.residual_out, r.mlp_activation, p.mlp_down, reads(r.middle),
                         c.projection, r.mlp_dropout_mask, product_dims(m.hidden_size, m.intermediate_size)));
  return ops;
}

std::vector<Operation> layer_backward(PlanBuilder& b, const std::string& block, const DecoderParameters& p,
                                      const LayerResults& r, const LayerContext& c, BufferId gradient) {
  const Model& m = b.model();
  const ElementTypes& t = b.types();
  const auto add = [&](const std::string& name, std::vector<Extent> shape) {
    return b.add_scratch(block, name + ".gradient", t.stored, std::move(shape));
  };
  std::vector<Operation> ops;

  // feed-forward
  const BufferId d_activation = add("layer.mlp.activation", {kRows, m.intermediate_size});
  append(ops, project_and_add_backward(b, block, "layer.mlp.down", d_activation, gradient, r.mlp_activation,
                                       r.mlp_dropout_mask, p.mlp_down,
                                       product_dims(m.hidden_size, m.intermediate_size)));
  BufferId d_up = d_activation;
  if (m.activation == Activation::swiglu) {
    d_up = add(mlp_up_id(m), {kRows, m.mlp_up_size()});
    ops.push_back(operation(activation_id(m) + ".backward", OpKind::swiglu_backward, t.statistic,
                            row_dims(m.intermediate_size),
                            {writes(d_up), reads(d_activation), reads(r.mlp_up)}));
  } else {
    ops.push_back(operation(activation_id(m) + ".backward", OpKind::gelu_backward, t.statistic,
                            row_dims(m.intermediate_size),
                            {updates(d_up), reads(d_activation), reads(r.mlp_up)}));
  }
  const BufferId d_mlp_norm = add("layer.mlp_norm", {kRows, m.hidden_size});
  append(ops, matmul_backward(b, mlp_up_id(m), d_mlp_norm, d_up, r.mlp_norm.out, p.mlp_up,
                              product_dims(m.mlp_up_size(), m.hidden_size)));
  append(ops,
         norm_backward(b, "layer.mlp_norm", p.mlp_norm, r.mlp_norm, reads(r.middle), gradient, d_mlp_norm));

  // attention
  const BufferId d_attention = add("layer.attention.out", {kRows, m.query_size()});
  append(ops, project_and_add_backward(b, block, "layer.attention.output", d_attention, gradient, r.attention,
                                       r.attention_dropout_mask, p.attention_output,
                                       product_dims(m.hidden_size, m.query_size())));
  const BufferId d_qkv = add("layer.attention.qkv", {kRows, m.qkv_size()});
  if (uses_flash(b)) {
    ops.push_back(
        operation("layer.attention.flash.backward", OpKind::attention_flash_backward, t.product, head_dims(m),
                  {writes(d_qkv), reads(d_attention), reads(r.qkv), reads(r.attention), reads(r.lse)}));
  } else {
    const BufferId d_probabilities =
        add("layer.attention.probabilities", {kBatch, m.num_attention_heads, kQueryLength, kKvLength});
    ops.push_back(operation("layer.attention.standard.backward", OpKind::attention_standard_backward,
                            t.product, head_dims(m),
                            {writes(d_qkv), writes(d_probabilities), reads(d_attention), reads(r.qkv),
                             reads(r.probabilities), reads(r.mask), reads(r.dropped)}));
  }
  if (m.position == Position::rope)
    ops.push_back(operation("layer.attention.rope.backward", OpKind::rope_backward, t.statistic, head_dims(m),
                            {updates(d_qkv), reads(c.rope_table)}));
  const BufferId d_attention_norm = add("layer.attention_norm", {kRows, m.hidden_size});
  append(ops, matmul_backward(b, "layer.attention.qkv", d_attention_norm, d_qkv, r.attention_norm.out, p.qkv,
                              product_dims(m.qkv_size(), m.hidden_size)));
  append(ops, norm_backward(b, "layer.attention_norm", p.attention_norm, r.attention_norm, c.residual_in,
                            gradient, d_attention_norm));
  return ops;
}

}  // namespace sim
