#include "sim/plan/decoder.h"

#include <algorithm>

#include "sim/plan/lora.h"
#include "sim/plan/writing.h"

namespace sim {
namespace {

constexpr Operand kAbsent{};

Dims head_dims(const PlanBuilder& b, LayerKind kind = {}) {
  const Model& m = b.model();
  return {.heads = m.num_attention_heads,
          .kv_heads = m.num_key_value_heads,
          .head_dim = m.head_dim,
          .window = kind.window ? m.sliding_window : 0,
          .chunk = kind.window ? m.attention_chunk_size : 0,
          .alibi_heads =
              m.position == Position::alibi ? b.scenario().model.num_attention_heads : std::int64_t{0}};
}

// An attention operation, with the value that its scores are capped at.
Operation attention(const PlanBuilder& b, std::string id, OpKind kind, DType dtype, LayerKind layer,
                    std::vector<Operand> operands) {
  Operation op = operation(std::move(id), kind, dtype, head_dims(b, layer), std::move(operands));
  op.cap = static_cast<float>(b.model().attn_logit_softcapping);
  return op;
}

Dims row_dims(std::int64_t cols) {
  return {.rows = kRows, .cols = cols};
}

// The residual stream's dimensions: its own rows, as wide as the model.
Dims stream_dims(const PlanBuilder& b) {
  return {.rows = b.stream_rows(), .cols = b.model().hidden_size};
}

Dims product_dims(std::int64_t cols, std::int64_t inner) {
  return {.rows = kRows, .cols = cols, .inner = inner};
}

std::string mlp_up_id(const Model& m) {
  return is_gated(m.activation) ? "layer.mlp.gate_up" : "layer.mlp.up";
}

std::string activation_id(const Model& m) {
  return "layer.mlp." + std::string(name(m.activation));
}

// For gradients that the weights' products read: zero-bubble schedules run these products later.
AddBuffer add_read_by_weight_part(const PlanBuilder& b) {
  return b.splits_backward() ? kept : scratch;
}

bool uses_flash(const PlanBuilder& b) {
  return b.scenario().implementation.attention == AttentionKind::flash;
}

std::string pass_name(Phase pass) {
  return pass == Phase::backward ? ".backward" : ".forward";
}

// Adds to the residual stream: out = residual + [dropout](sum + bias). The bias may be absent.
std::vector<Operation> add_to_residual(const PlanBuilder& b, const std::string& id, Operand out, BufferId sum,
                                       Operand bias, Operand residual, BufferId mask) {
  const DType elementwise = b.types().statistic;
  const Dims row = stream_dims(b);
  std::vector<Operation> ops;
  if (mask != kNoBuffer) {
    ops.push_back(operation(id + "_dropout.forward", OpKind::dropout, elementwise, row,
                            {updates(sum), writes(mask), reads(sum), bias}));
    bias = kAbsent;
  }
  ops.push_back(
      operation(id + "_residual.forward", OpKind::add, elementwise, row, {out, residual, reads(sum), bias}));
  return ops;
}

// A norm between a projection's result, `product`, and the residual stream.
struct OutputNorm {
  Affine p{};
  NormResult result{};
  BufferId product = kNoBuffer;
};

// Adds a projection's result to the residual stream through its output norm.
std::vector<Operation> norm_and_add(const PlanBuilder& b, const std::string& id, Operand out,
                                    const OutputNorm& n, Operand residual, const LayerContext& c,
                                    BufferId mask) {
  NormResult result = n.result;
  result.out = c.output_norm;
  std::vector<Operation> ops = norm_forward(b, id + "_norm", n.p, result, reads(n.product), b.stream_rows());
  append(ops, add_to_residual(b, id, out, c.output_norm, kAbsent, residual, mask));
  return ops;
}

// Computes the gradient of such a norm's input from the gradient of its output.
std::vector<Operation> norm_and_add_backward(const PlanBuilder& b, const std::string& id, const OutputNorm& n,
                                             BufferId dproduct, BufferId dout) {
  std::vector<Operation> ops{operation(id + "_norm.zero_gradient.backward", OpKind::zero, b.types().statistic,
                                       {}, {writes(dproduct)})};
  append(ops, norm_backward(b, id + "_norm", n.p, n.result, reads(n.product), dproduct, dout));
  return ops;
}

// Projection back into the residual stream: out = residual + [dropout]([norm](inp W^T + bias)). Over
// tensor-parallel ranks the products are summed first.
std::vector<Operation> project_and_add(const PlanBuilder& b, const std::string& id, Operand out, BufferId inp,
                                       const Affine& p, Operand residual, const LayerContext& c,
                                       BufferId mask, Dims dims, const OutputNorm& norm = {}) {
  const bool normed = norm.product != kNoBuffer, scatters = c.projection_rows != kNoBuffer;
  if (!normed && c.projection == kNoBuffer)
    return {matmul(b, id + ".forward", out, reads(inp), p, residual, dims)};
  const BufferId sum = normed ? norm.product : scatters ? c.projection_rows : c.projection;
  const BufferId whole = scatters ? c.projection : sum;
  const Affine product{p.weight, b.tensor_parallel() ? Tensor{} : p.bias};
  const Operand late_bias = b.tensor_parallel() ? reads(p.bias.parameter) : kAbsent;
  std::vector<Operation> ops{matmul(b, id + ".forward", writes(whole), reads(inp), product, kAbsent, dims)};
  append(ops, sum_over_tensor_ranks(b, id, Phase::forward, whole, scatters ? sum : kNoBuffer));
  if (!normed) {
    append(ops, add_to_residual(b, id, out, sum, late_bias, residual, mask));
    return ops;
  }
  if (b.tensor_parallel() && p.bias)
    ops.push_back(operation(id + ".bias.forward", OpKind::add, b.types().statistic, stream_dims(b),
                            {updates(sum), reads(sum), kAbsent, late_bias}));
  append(ops, norm_and_add(b, id, out, norm, residual, c, mask));
  return ops;
}

// Backward of project_and_add(). The residual's own gradient passes through unchanged, in `gradient`.
std::vector<Operation> project_and_add_backward(PlanBuilder& b, const std::string& block,
                                                const std::string& id, BufferId dinp, BufferId gradient,
                                                BufferId inp, BufferId mask, const Affine& p, Dims dims,
                                                const OutputNorm& norm = {}) {
  const std::int64_t hidden = b.model().hidden_size;
  const Dims row = stream_dims(b);
  const bool gathers = b.strategy().sequence_parallel;
  // What the products read must not change until the weights' products have read it.
  const bool normed = norm.product != kNoBuffer;
  const bool copies = b.splits_backward() && !gathers && mask == kNoBuffer && !normed;
  const AddBuffer add_read_by_products = gathers ? scratch : add_read_by_weight_part(b);
  std::vector<Operation> ops;
  BufferId dout = gradient;
  if (mask != kNoBuffer) {
    dout =
        add_read_by_products(b, block, id + "_dropout.gradient", b.types().stored, {b.stream_rows(), hidden});
    ops.push_back(operation(id + "_dropout.backward", OpKind::dropout_backward, b.types().statistic, row,
                            {writes(dout), reads(gradient), reads(mask)}));
  } else if (copies) {
    dout = add_read_by_products(b, block, id + ".out.gradient", b.types().stored, {kRows, hidden});
    ops.push_back(operation(id + ".keep_gradient.backward", OpKind::add, b.types().statistic, row,
                            {writes(dout), reads(gradient)}));
  }
  if (normed) {
    const BufferId dproduct =
        add_read_by_products(b, block, id + ".product.gradient", b.types().stored, {b.stream_rows(), hidden});
    append(ops, norm_and_add_backward(b, id, norm, dproduct, dout));
    dout = dproduct;
  }
  if (gathers) {
    const BufferId whole =
        add_read_by_weight_part(b)(b, block, id + ".gathered.gradient", b.types().stored, {kRows, hidden});
    ops.push_back(gather_rows(b, id, Phase::backward, whole, dout));
    dout = whole;
  }
  append(ops, matmul_backward(b, id, dinp, dout, inp, p, dims));
  return ops;
}

// The keys and values of a packed QKV or of its gradient.
BufferId key_value_part(PlanBuilder& b, BufferId qkv) {
  if (b.groups().context < 0) return kNoBuffer;
  return add_view(b, qkv, ".kv", {kRows, 2 * b.model().key_value_size()});
}

Operation gather_kv(const PlanBuilder& b, Phase pass, BufferId all, BufferId own) {
  return collective("layer.attention.kv.all_gather" + pass_name(pass), OpKind::all_gather, b.types().stored,
                    b.groups().context, {writes(all), reads(own)});
}

bool any_of(const std::vector<LayerKind>& kinds, bool (LayerKind::*is)() const) {
  return std::ranges::any_of(kinds, [&](const LayerKind& k) { return (k.*is)(); });
}

void add_results_of_attention(PlanBuilder& b, const std::string& block, AddBuffer add, bool statistics,
                              LayerResults& r) {
  const Model& m = b.model();
  const DType stored = b.types().stored;
  if (m.norms_before()) r.attention_norm = add_norm_result(b, block, "layer.attention_norm", add, statistics);
  if (m.has_latent_attention()) {
    r.latent = add_latent_results(b, block, add, statistics);
  } else {
    r.qkv = add(b, block, "layer.attention.qkv", stored, {kRows, m.qkv_size()});
    if (m.qk_norm == QkNorm::none) r.kv = key_value_part(b, r.qkv);
  }
  r.attention = add(b, block, "layer.attention.out", stored, {kRows, m.value_size()});
  if (m.qk_norm != QkNorm::none) {
    r.qkv_product = r.qkv;
    r.qkv = add(b, block, "layer.attention.qkv_normed", stored, {kRows, m.qkv_size()});
    r.kv = key_value_part(b, r.qkv);
    if (statistics)
      r.qk_rstd = add(b, block, "layer.attention.qk_norm.rstd", b.types().statistic,
                      {kRows, m.num_attention_heads + m.num_key_value_heads});
  }
}

void add_results_of_products(PlanBuilder& b, const std::string& block, AddBuffer add, bool statistics,
                             const std::vector<LayerKind>& kinds, LayerResults& r) {
  const Model& m = b.model();
  const DType stored = b.types().stored;
  if (any_of(kinds, &LayerKind::attends)) add_results_of_attention(b, block, add, statistics, r);
  if (any_of(kinds, &LayerKind::has_states)) {
    r.state_space_norm = add_norm_result(b, block, "layer.state_space_norm", add, statistics);
    r.state_space = add_state_space_results(b, block, add, statistics);
  }
  if (any_of(kinds, &LayerKind::feeds_forward) && m.norms_before())
    r.mlp_norm =
        m.shared_norm ? r.attention_norm : add_norm_result(b, block, "layer.mlp_norm", add, statistics);
  const auto any = [&](bool experts) {
    return std::ranges::any_of(kinds, [&](LayerKind k) { return k.feeds_forward() && k.experts == experts; });
  };
  if (any(false)) {
    r.mlp_up = add(b, block, mlp_up_id(m), stored, {kRows, m.mlp_up_size()});
    r.mlp_activation = add(b, block, "layer.mlp.activation", stored, {kRows, m.intermediate_size});
  }
  if (any(true)) r.experts = add_expert_results(b, block, add);
  if (!m.norms_after()) return;
  const auto add_output = [&](const std::string& name, BufferId& product, NormResult& norm) {
    product = add(b, block, name + ".product", stored, {b.stream_rows(), m.hidden_size});
    if (!statistics) return;
    if (m.norm == Norm::layernorm)
      norm.mean = add(b, block, name + "_norm.mean", b.types().statistic, {b.stream_rows()});
    norm.rstd = add(b, block, name + "_norm.rstd", b.types().statistic, {b.stream_rows()});
  };
  add_output("layer.attention.output", r.attention_product, r.attention_output_norm);
  add_output("layer.mlp.down", r.mlp_product, r.mlp_output_norm);
}

}  // namespace

BufferId add_local_rope_table(PlanBuilder& b, std::int64_t rows) {
  const Model& m = b.model();
  if (m.position != Position::rope || m.rope_local_base_freq == 0) return kNoBuffer;
  return b.add_input(buffer_names::local_rope_table, b.types().statistic, {rows, m.rope_size()});
}

Operation scale_embedding(const PlanBuilder& b, const std::string& suffix, Operand out, BufferId inp) {
  const std::int64_t hidden = b.model().hidden_size;
  Operation op = operation("embedding.scale." + suffix, OpKind::take_columns, b.types().statistic,
                           {.rows = b.stream_rows(), .cols = hidden, .inner = hidden}, {out, reads(inp)});
  op.scalar = static_cast<float>(b.model().embedding_multiplier);
  return op;
}

LayerContext with_scratch(PlanBuilder& b, const std::string& block, LayerContext c) {
  const std::int64_t hidden = b.model().hidden_size;
  const auto add = [&](const std::string& name, Extent rows) {
    return b.add_scratch(block, name, b.types().stored, {rows, hidden});
  };
  // A projection that is a norm's input is kept elsewhere.
  const bool whole_is_kept = b.model().norms_after() && !b.strategy().sequence_parallel;
  c.projection = fuses_residual(b.scenario()) || whole_is_kept ? kNoBuffer : add("layer.projection", kRows);
  if (b.model().norms_after()) c.output_norm = add("layer.output_norm", b.stream_rows());
  c.kv_of_all_ranks = add_kv_of_all_ranks(b, block, "layer.attention.kv_of_all_ranks");
  if (exchanges_by(b, ContextParallelComm::ring)) c.ring = add_ring_scratch(b, block);
  if (c.kind.experts) c.experts = add_expert_scratch(b, block);
  if (b.model().has_latent_attention()) c.latent = add_latent_scratch(b, block);
  if (!b.strategy().sequence_parallel) return c;
  c.projection_rows = add("layer.projection_rows", b.stream_rows());
  if (c.kind.attends()) c.attention_norm_gathered = add("layer.attention_norm.gathered", kRows);
  if (c.kind.has_states()) c.state_space_norm_gathered = add("layer.state_space_norm.gathered", kRows);
  if (c.kind.feeds_forward() && !c.kind.experts) c.mlp_norm_gathered = add("layer.mlp_norm.gathered", kRows);
  return c;
}

Operation gather_rows(const PlanBuilder& b, const std::string& id, Phase pass, BufferId whole,
                      BufferId rows) {
  return collective(id + ".all_gather" + pass_name(pass), OpKind::all_gather, b.types().stored,
                    b.groups().tensor, {writes(whole), reads(rows)});
}

std::vector<Operation> sum_over_tensor_ranks(const PlanBuilder& b, const std::string& id, Phase pass,
                                             BufferId whole, BufferId rows) {
  if (!b.tensor_parallel()) return {};
  const bool scatters = rows != kNoBuffer;
  return {collective(
      id + (scatters ? ".reduce_scatter" : ".all_reduce") + pass_name(pass),
      scatters ? OpKind::reduce_scatter : OpKind::all_reduce, b.types().stored, b.groups().tensor,
      scatters ? std::vector<Operand>{writes(rows), reads(whole)} : std::vector<Operand>{updates(whole)})};
}

BufferId kept(PlanBuilder& builder, const std::string&, const std::string& name, DType dtype,
              const Shape& shape) {
  return builder.add_kept(name, dtype, shape);
}

BufferId scratch(PlanBuilder& builder, const std::string& block, const std::string& name, DType dtype,
                 const Shape& shape) {
  return builder.add_scratch(block, name, dtype, shape);
}

DType product_type(const PlanBuilder& builder, BufferId weight) {
  const bool fp8 = builder.buffer(weight).dtype == DType::fp8 && !builder.scenario().implementation.runs_here;
  return fp8 ? DType::fp8 : builder.types().product;
}

void add_scales(const PlanBuilder& builder, BufferId weight, Operation& product) {
  const std::vector<BufferId> scales = builder.scales_of(weight);
  if (scales.empty()) return;
  product.dims.scale_groups = builder.buffer(scales.front()).shape.back().factor;
  product.operands.resize(static_cast<std::size_t>(index_of(product.kind, Role::weight_scales)));
  for (const BufferId b : scales) product.operands.push_back(reads(b));
}

Operation matmul(const PlanBuilder& builder, const std::string& id, Operand out, Operand inp, const Affine& p,
                 Operand residual, Dims dims) {
  Operation op = operation(id, OpKind::matmul, product_type(builder, p.weight.parameter), dims,
                           {out, inp, reads(p.weight.parameter), reads(p.bias.parameter), residual});
  add_scales(builder, p.weight.parameter, op);
  return op;
}

std::vector<Operation> matmul_backward(const PlanBuilder& builder, const std::string& id, BufferId dinp,
                                       BufferId dout, BufferId inp, const Affine& p, Dims dims) {
  const DType product = builder.types().product;
  const auto gradient = [](const Tensor& t) {
    const bool each_time = t.zero_stage >= 2;
    return Operand{t.gradient, !t.is_written ? Access::update
                               : each_time   ? Access::write
                                             : Access::accumulate};
  };
  return {operation(id + ".backward_weight", OpKind::matmul_backward_weight, product, dims,
                    {gradient(p.weight), gradient(p.bias), reads(dout), reads(inp)}),
          operation(id + ".backward_input", OpKind::matmul_backward_input, product, dims,
                    {writes(dinp), reads(dout), reads(p.weight.parameter)})};
}

NormResult add_norm_result(PlanBuilder& builder, const std::string& block, const std::string& name,
                           AddBuffer add, bool statistics) {
  const ElementTypes& t = builder.types();
  NormResult r;
  const Extent rows = builder.stream_rows();
  r.out = add(builder, block, name + ".out", t.stored, {rows, builder.model().hidden_size});
  if (!statistics) return r;
  if (builder.model().norm == Norm::layernorm)
    r.mean = add(builder, block, name + ".mean", t.statistic, {rows});
  r.rstd = add(builder, block, name + ".rstd", t.statistic, {rows});
  return r;
}

std::vector<Operation> norm_forward(const PlanBuilder& builder, const std::string& id, const Affine& p,
                                    const NormResult& r, Operand inp, Extent rows) {
  const Dims dims{.rows = rows, .hidden = builder.model().hidden_size};
  const bool layernorm = builder.model().norm == Norm::layernorm;
  std::vector<Operand> operands =
      layernorm ? std::vector{writes(r.out),
                              writes(r.mean),
                              writes(r.rstd),
                              inp,
                              reads(p.weight.parameter),
                              reads(p.bias.parameter)}
                : std::vector{writes(r.out), writes(r.rstd), inp, reads(p.weight.parameter)};
  Operation op = operation(id + ".forward", layernorm ? OpKind::layernorm : OpKind::rmsnorm,
                           builder.types().statistic, dims, std::move(operands));
  op.scalar = static_cast<float>(builder.model().norm_eps);
  return list_of(std::move(op));
}

std::vector<Operation> norm_backward(const PlanBuilder& builder, const std::string& id, const Affine& p,
                                     const NormResult& r, Operand inp, BufferId dinp, BufferId dout) {
  const Dims dims{.rows = builder.stream_rows(), .hidden = builder.model().hidden_size};
  const bool layernorm = builder.model().norm == Norm::layernorm;
  std::vector<Operand> operands = layernorm
                                      ? std::vector{updates(dinp),
                                                    updates(p.weight.gradient),
                                                    updates(p.bias.gradient),
                                                    reads(dout),
                                                    inp,
                                                    reads(p.weight.parameter),
                                                    reads(r.mean),
                                                    reads(r.rstd)}
                                      : std::vector{updates(dinp), updates(p.weight.gradient), reads(dout),
                                                    inp,           reads(p.weight.parameter),  reads(r.rstd)};
  Operation op =
      operation(id + ".backward", layernorm ? OpKind::layernorm_backward : OpKind::rmsnorm_backward,
                builder.types().statistic, dims, std::move(operands));
  op.scalar = static_cast<float>(builder.model().norm_eps);
  return list_of(std::move(op));
}

namespace {

// What only the attention core's own backward reads: log-sum-exp, or probabilities, mask and dropped
// probabilities.
LayerResults add_attention_core(PlanBuilder& b, const std::string& block, AddBuffer add) {
  const Model& m = b.model();
  const ElementTypes& t = b.types();
  LayerResults r;
  if (exchanges_by(b, ContextParallelComm::all_to_all)) {
    r.qkv_of_heads = add(b, block, "layer.attention.qkv_of_heads", t.stored, shape_of_heads(b, m.qkv_size()));
    r.attention_of_heads =
        add(b, block, "layer.attention.out_of_heads", t.stored, shape_of_heads(b, m.query_size()));
    r.lse =
        add(b, block, "layer.attention.log_sum_exp", t.statistic, shape_of_heads(b, m.num_attention_heads));
    return r;
  }
  if (uses_flash(b)) {
    r.lse = add(b, block, "layer.attention.log_sum_exp", t.statistic,
                {kBatch, m.num_attention_heads, kQueryLength});
    return r;
  }
  const Shape scores{kBatch, m.num_attention_heads, kQueryLength, kKvLength};
  r.probabilities = add(b, block, "layer.attention.probabilities", t.stored, scores);
  if (uses_dropout(b.scenario())) {
    r.mask = add(b, block, "layer.attention.dropout_mask", DType::int8, scores);
    r.dropped = add(b, block, "layer.attention.dropped_probabilities", t.stored, scores);
  }
  return r;
}

}  // namespace

LayerResults add_layer_results(PlanBuilder& b, const std::string& block, AddBuffer add,
                               const std::vector<LayerKind>& kinds) {
  LayerResults r;
  if (any_of(kinds, &LayerKind::attends)) r = add_attention_core(b, block, add);
  add_results_of_products(b, block, add, true, kinds, r);
  const Shape shape{b.stream_rows(), b.model().hidden_size};
  const bool any_whole = std::ranges::any_of(kinds, [](LayerKind k) { return k.sort == LayerSort::whole; });
  if (any_whole) r.middle = add(b, block, "residual_mid", b.types().stored, shape);
  if (uses_dropout(b.scenario())) {
    r.attention_dropout_mask = add(b, block, "layer.attention.output_dropout_mask", DType::int8, shape);
    r.mlp_dropout_mask = add(b, block, "layer.mlp.down_dropout_mask", DType::int8, shape);
  }
  r.adapters = add_adapter_results(b, block, add);
  return r;
}

LayerResults add_inference_results(PlanBuilder& b, const std::string& block, BufferId residual, bool kv_cache,
                                   LayerKind kind) {
  LayerResults r;
  if (!kv_cache && !uses_flash(b) && kind.attends()) r = add_attention_core(b, block, scratch);
  add_results_of_products(b, block, scratch, false, {kind}, r);
  r.middle = residual;
  return r;
}

BufferId add_kv_of_all_ranks(PlanBuilder& b, const std::string& block, const std::string& name) {
  if (!exchanges_by(b, ContextParallelComm::all_gather)) return kNoBuffer;
  return b.add_scratch(block, name, b.types().stored, {kBatch, kKvLength, 2 * b.model().key_value_size()});
}

namespace {

std::vector<Operation> attention_core_forward(const PlanBuilder& b, const DecoderParameters& p,
                                              const LayerResults& r, const LayerContext& c) {
  const Dims dims = head_dims(b, c.kind);
  if (exchanges_by(b, ContextParallelComm::ring))
    return ring_attention_forward(b, dims, {r.qkv, r.kv, r.attention, r.lse, p.sinks}, c.ring);
  if (exchanges_by(b, ContextParallelComm::all_to_all))
    return exchanged_attention_forward(
        b, dims, {r.qkv_of_heads, kNoBuffer, r.attention_of_heads, r.lse, p.sinks}, r.qkv, r.attention);
  if (uses_flash(b)) {
    std::vector<Operation> ops;
    if (c.kv_of_all_ranks != kNoBuffer) ops.push_back(gather_kv(b, Phase::forward, c.kv_of_all_ranks, r.kv));
    ops.push_back(attention(b, "layer.attention.flash.forward", OpKind::attention_flash,
                            b.types().wide_product, c.kind,
                            {writes(r.attention), writes(r.lse), reads(r.qkv), reads(c.kv_of_all_ranks),
                             reads(p.sinks.parameter)}));
    return ops;
  }
  return {attention(b, "layer.attention.standard.forward", OpKind::attention_standard, b.types().wide_product,
                    c.kind,
                    {writes(r.attention), writes(r.probabilities), reads(r.qkv), writes(r.mask),
                     writes(r.dropped), reads(p.sinks.parameter)})};
}

// Norms without a learned gain apply only where positions rotate queries and keys (Llama 4).
bool norms_queries(const Model& m, LayerKind kind) {
  return m.qk_norm != QkNorm::none && !(m.qk_norm == QkNorm::without_gain && kind.unrotated);
}

// Attention from the norm's output, for all rows, to r.attention.
std::vector<Operation> attention_forward(const PlanBuilder& b, const DecoderParameters& p,
                                         const LayerResults& r, const LayerContext& c, BufferId inp) {
  const Model& m = b.model();
  const DType elementwise = b.types().statistic;
  const bool norms = norms_queries(m, c.kind);
  std::vector<Operation> ops;
  ops.push_back(matmul(b, "layer.attention.qkv.forward", writes(norms ? r.qkv_product : r.qkv), reads(inp),
                       p.qkv, kAbsent, product_dims(m.qkv_size(), m.hidden_size)));
  ops.back().place = Place::query_key_value;
  if (norms) {
    ops.push_back(operation(
        "layer.attention.qk_norm.forward", OpKind::qk_norm, elementwise, head_dims(b),
        {writes(r.qkv), writes(r.qk_rstd), reads(r.qkv_product), reads(p.qk_norm.weight.parameter)}));
    ops.back().scalar = static_cast<float>(m.norm_eps);
  }
  if (m.position == Position::rope && !c.kind.unrotated)
    ops.push_back(operation("layer.attention.rope.forward", OpKind::rope, elementwise, head_dims(b),
                            {updates(r.qkv), reads(c.rope_table), reads(c.positions)}));
  if (c.cache.k != kNoBuffer) {
    ops.push_back(operation("layer.attention.kv_append.forward", OpKind::kv_append, elementwise,
                            head_dims(b, c.kind),
                            {updates(c.cache.k), updates(c.cache.v), reads(r.qkv), reads(c.positions),
                             reads(c.cache.table), reads(c.cache.scales)}));
    ops.push_back(attention(
        b, "layer.attention.cached.forward", OpKind::attention_cached, b.types().wide_product, c.kind,
        {writes(r.attention), reads(r.qkv), reads(c.cache.k), reads(c.cache.v), reads(c.positions),
         reads(c.cache.table), reads(c.cache.scales), reads(p.sinks.parameter)}));
  } else {
    append(ops, attention_core_forward(b, p, r, c));
  }
  return ops;
}

OutputNorm attention_norm_of(const DecoderParameters& p, const LayerResults& r) {
  return {p.attention_output_norm, r.attention_output_norm, r.attention_product};
}
OutputNorm mlp_norm_of(const DecoderParameters& p, const LayerResults& r) {
  return {p.mlp_output_norm, r.mlp_output_norm, r.mlp_product};
}

std::vector<Operation> plain_forward(PlanBuilder& b, const std::string& block, const DecoderParameters& p,
                                     const LayerResults& r, const LayerContext& c) {
  const Model& m = b.model();
  const DType elementwise = b.types().statistic;
  // In generation the residual stream is one buffer, updated in place.
  const bool in_place = r.middle == c.residual_in.buffer;
  // The stream between mixer and feed-forward. A layer that has only one of them has nothing between.
  const Operand middle_out = !c.kind.feeds_forward() ? c.residual_out
                             : in_place              ? updates(r.middle)
                                                     : writes(r.middle);
  const Operand middle = c.kind.mixes() ? reads(r.middle) : c.residual_in;

  std::vector<Operation> ops;
  // With sequence parallelism, rows are gathered because the products need all of them.
  const auto gathered = [&](const std::string& id, BufferId rows, BufferId whole) {
    if (whole == kNoBuffer) return rows;
    ops.push_back(gather_rows(b, id, Phase::forward, whole, rows));
    return whole;
  };
  const auto mlp_norm = [&](Operand inp) {
    if (m.norms_before())
      append(ops, norm_forward(b, "layer.mlp_norm", p.mlp_norm, r.mlp_norm, inp, b.stream_rows()));
  };
  if (c.kind.attends()) {
    if (m.norms_before())
      append(ops, norm_forward(b, "layer.attention_norm", p.attention_norm, r.attention_norm, c.residual_in,
                               b.stream_rows()));
    if (m.parallel_residual && !m.shared_norm) mlp_norm(c.residual_in);
    const BufferId rows = m.norms_before() ? r.attention_norm.out : c.residual_in.buffer;
    const bool has_q_latent = m.latent.q_lora_rank > 0;  // then nothing reads all rows
    const BufferId whole =
        has_q_latent ? rows : gathered("layer.attention.qkv", rows, c.attention_norm_gathered);
    append(ops, m.has_latent_attention()
                    ? latent_attention_forward(b, block, p.latent, r.latent, c.latent, c.cache.latent, c.kind,
                                               rows, whole, r.attention, r.lse, c.rope_table, c.positions)
                    : attention_forward(b, p, r, c, whole));
    append(ops, project_and_add(b, "layer.attention.output", middle_out, r.attention, p.attention_output,
                                c.residual_in, c, r.attention_dropout_mask,
                                product_dims(m.hidden_size, m.value_size()), attention_norm_of(p, r)));
  }
  if (c.kind.has_states()) {
    append(ops, norm_forward(b, "layer.state_space_norm", p.state_space_norm, r.state_space_norm,
                             c.residual_in, b.stream_rows()));
    const BufferId whole =
        gathered("layer.state_space.in", r.state_space_norm.out, c.state_space_norm_gathered);
    append(ops, state_space_forward(b, p.state_space, r.state_space, c.cache.states, whole, c.positions));
    append(ops, project_and_add(b, "layer.state_space.out", middle_out, r.state_space.normed,
                                p.state_space.out, c.residual_in, c, r.attention_dropout_mask,
                                product_dims(m.hidden_size, m.state_space.inner_size())));
  }
  if (!c.kind.feeds_forward()) return ops;

  if (!m.parallel_residual) mlp_norm(middle);
  const BufferId mlp_rows = m.norms_before() ? r.mlp_norm.out : middle.buffer;
  if (c.kind.experts) {
    ExpertScratch experts = c.experts;
    if (m.norms_after()) experts.sum = r.mlp_product;
    append(ops, experts_forward(b, p.experts, r.experts, experts, mlp_rows));
    append(ops, m.norms_after() ? norm_and_add(b, "layer.experts", c.residual_out, mlp_norm_of(p, r), middle,
                                               c, r.mlp_dropout_mask)
                                : add_to_residual(b, "layer.experts", c.residual_out, experts.sum, kAbsent,
                                                  middle, r.mlp_dropout_mask));
    return ops;
  }
  const BufferId mlp_inp = gathered(mlp_up_id(m), mlp_rows, c.mlp_norm_gathered);
  ops.push_back(matmul(b, mlp_up_id(m) + ".forward", writes(r.mlp_up), reads(mlp_inp), p.mlp_up, kAbsent,
                       product_dims(m.mlp_up_size(), m.hidden_size)));
  if (is_gated(m.activation)) ops.back().place = Place::gate_up;
  ops.push_back(operation(activation_id(m) + ".forward", activation_kind(m.activation, Phase::forward),
                          elementwise, row_dims(m.intermediate_size),
                          {writes(r.mlp_activation), reads(r.mlp_up)}));
  // One kernel may do the product and the activation. Some of its blocks then write while others still read
  // the product's input.
  const Scenario& s = b.scenario();
  if (s.implementation.runs_here && s.workload.task == Task::generate)
    ops.back().beside.push_back(reads(mlp_inp));
  append(ops, project_and_add(b, "layer.mlp.down", c.residual_out, r.mlp_activation, p.mlp_down, middle, c,
                              r.mlp_dropout_mask, product_dims(m.hidden_size, m.intermediate_size),
                              mlp_norm_of(p, r)));
  return ops;
}

std::vector<Operation> plain_backward(PlanBuilder& b, const std::string& block, const DecoderParameters& p,
                                      const LayerResults& r, const LayerContext& c, BufferId gradient) {
  const Model& m = b.model();
  const ElementTypes& t = b.types();
  const auto add = [&](const std::string& name, const Shape& shape) {
    return b.add_scratch(block, name + ".gradient", t.stored, shape);
  };
  const auto add_read_by_weights = [&](const std::string& name, const Shape& shape) {
    return add_read_by_weight_part(b)(b, block, name + ".gradient", t.stored, shape);
  };
  const bool gated = is_gated(m.activation);
  const Shape stream{b.stream_rows(), m.hidden_size};
  // Computes the gradient of a norm's output from the gradient of the product that reads all its rows.
  const auto column_parallel_backward = [&](const std::string& id, const std::string& norm, BufferId dout,
                                            BufferId norm_out, const Affine& affine, Dims dims) {
    std::vector<Operation> done;
    BufferId inp = norm_out;
    BufferId dinp = add(norm, {kRows, m.hidden_size}), rows = kNoBuffer;
    if (b.strategy().sequence_parallel) {
      inp = b.add_scratch(b.splits_backward() ? weight_block(block) : block, norm + ".gathered", t.stored,
                          {kRows, m.hidden_size});
      rows = add(norm + ".rows", stream);
      done.push_back(gather_rows(b, id, Phase::backward, inp, norm_out));
    }
    append(done, matmul_backward(b, id, dinp, dout, inp, affine, dims));
    append(done, sum_over_tensor_ranks(b, id, Phase::backward, dinp, rows));
    return std::pair{std::move(done), rows != kNoBuffer ? rows : dinp};
  };
  std::vector<Operation> ops;
  // Where no norm comes before them, attention and feed-forward read the residual stream itself.
  BufferId attention_rows = m.norms_before() ? r.attention_norm.out : c.residual_in.buffer;
  const BufferId mlp_rows = m.norms_before() ? r.mlp_norm.out : r.middle;
  const auto add_to_stream = [&](const std::string& id, BufferId d_rows) {
    return operation(id + ".to_stream.backward", OpKind::add, t.statistic, stream_dims(b),
                     {updates(gradient), reads(gradient), reads(d_rows)});
  };

  if (!m.norms_before() && c.kind.attends() && b.splits_backward()) {
    // The stream before the layer is freed before the weights' products run, so they read a copy.
    const BufferId copy = kept(b, block, "layer.attention.inp", t.stored, stream);
    ops.push_back(operation("layer.attention.keep_input.backward", OpKind::add, t.statistic, stream_dims(b),
                            {writes(copy), reads(c.residual_in.buffer)}));
    attention_rows = copy;
  }

  // feed-forward
  BufferId d_mlp_norm = kNoBuffer;
  if (c.kind.feeds_forward() && c.kind.experts) {
    BufferId dout = gradient;
    if (r.mlp_dropout_mask != kNoBuffer) {
      dout = add_read_by_weights("layer.experts_dropout", stream);
      ops.push_back(operation("layer.experts_dropout.backward", OpKind::dropout_backward, t.statistic,
                              stream_dims(b), {writes(dout), reads(gradient), reads(r.mlp_dropout_mask)}));
    } else if (!m.norms_after() && b.splits_backward() && r.experts.shared_up != kNoBuffer &&
               !b.strategy().sequence_parallel) {
      // The shared expert's weight product reads the gradient later, so it reads a copy.
      dout = add_read_by_weights("layer.experts.sum", stream);
      ops.push_back(operation("layer.experts.keep_gradient.backward", OpKind::add, t.statistic,
                              stream_dims(b), {writes(dout), reads(gradient)}));
    }
    if (m.norms_after()) {
      const BufferId d_sum = add_read_by_weights("layer.experts.product", stream);
      append(ops, norm_and_add_backward(b, "layer.experts", mlp_norm_of(p, r), d_sum, dout));
      dout = d_sum;
    }
    ExpertsBackward experts = experts_backward(b, block, p.experts, r.experts, mlp_rows, dout);
    append(ops, std::move(experts.operations));
    d_mlp_norm = experts.dinp;
  } else if (c.kind.feeds_forward()) {
    const BufferId d_activation =
        gated ? add("layer.mlp.activation", {kRows, m.intermediate_size})
              : add_read_by_weights("layer.mlp.activation", {kRows, m.intermediate_size});
    append(ops, project_and_add_backward(
                    b, block, "layer.mlp.down", d_activation, gradient, r.mlp_activation, r.mlp_dropout_mask,
                    p.mlp_down, product_dims(m.hidden_size, m.intermediate_size), mlp_norm_of(p, r)));
    const BufferId d_up = gated ? add_read_by_weights(mlp_up_id(m), {kRows, m.mlp_up_size()}) : d_activation;
    ops.push_back(operation(activation_id(m) + ".backward", activation_kind(m.activation, Phase::backward),
                            t.statistic, row_dims(m.intermediate_size),
                            {gated ? writes(d_up) : updates(d_up), reads(d_activation), reads(r.mlp_up)}));
    auto [mlp_up, d_norm] = column_parallel_backward(mlp_up_id(m), "layer.mlp_norm", d_up, mlp_rows, p.mlp_up,
                                                     product_dims(m.mlp_up_size(), m.hidden_size));
    append(ops, std::move(mlp_up));
    d_mlp_norm = d_norm;
  }
  // Where feed-forward runs beside attention, the stream's gradient must not change until attention reads it.
  std::vector<Operation> mlp_norm;
  if (c.kind.feeds_forward() && !m.norms_before())
    mlp_norm.push_back(add_to_stream("layer.mlp", d_mlp_norm));
  else if (c.kind.feeds_forward() && !m.shared_norm)
    mlp_norm = norm_backward(b, "layer.mlp_norm", p.mlp_norm, r.mlp_norm,
                             m.parallel_residual || !c.kind.mixes() ? c.residual_in : reads(r.middle),
                             gradient, d_mlp_norm);
  if (!m.parallel_residual) append(ops, std::move(mlp_norm));

  if (c.kind.attends()) {
    const BufferId d_attention = add("layer.attention.out", {kRows, m.value_size()});
    append(ops,
           project_and_add_backward(b, block, "layer.attention.output", d_attention, gradient, r.attention,
                                    r.attention_dropout_mask, p.attention_output,
                                    product_dims(m.hidden_size, m.value_size()), attention_norm_of(p, r)));
    const auto attention_backward = [&] {
      const BufferId d_qkv = add_read_by_weights("layer.attention.qkv", {kRows, m.qkv_size()});
      if (exchanges_by(b, ContextParallelComm::ring)) {
        append(ops, ring_attention_backward(b, block, head_dims(b, c.kind),
                                            {r.qkv, r.kv, r.attention, r.lse, p.sinks}, d_qkv, d_attention));
      } else if (exchanges_by(b, ContextParallelComm::all_to_all)) {
        append(ops,
               exchanged_attention_backward(b, block, head_dims(b, c.kind),
                                            {r.qkv_of_heads, kNoBuffer, r.attention_of_heads, r.lse, p.sinks},
                                            d_qkv, d_attention));
      } else if (uses_flash(b)) {
        const BufferId kv = add_kv_of_all_ranks(b, block, "layer.attention.kv_of_all_ranks");
        const BufferId d_kv = add_kv_of_all_ranks(b, block, "layer.attention.kv_of_all_ranks.gradient");
        if (kv != kNoBuffer) ops.push_back(gather_kv(b, Phase::backward, kv, r.kv));
        ops.push_back(attention(
            b, "layer.attention.flash.backward", OpKind::attention_flash_backward, t.wide_product, c.kind,
            {writes(d_qkv), reads(d_attention), reads(r.qkv), reads(r.attention), reads(r.lse), reads(kv),
             writes(d_kv), reads(p.sinks.parameter), updates(p.sinks.gradient)}));
        if (kv != kNoBuffer)
          ops.push_back(collective("layer.attention.kv.reduce_scatter.backward", OpKind::reduce_scatter,
                                   t.stored, b.groups().context,
                                   {writes(key_value_part(b, d_qkv)), reads(d_kv)}));
      } else {
        const BufferId d_probabilities =
            add("layer.attention.probabilities", {kBatch, m.num_attention_heads, kQueryLength, kKvLength});
        ops.push_back(
            attention(b, "layer.attention.standard.backward", OpKind::attention_standard_backward,
                      t.wide_product, c.kind,
                      {writes(d_qkv), writes(d_probabilities), reads(d_attention), reads(r.qkv),
                       reads(r.probabilities), reads(r.mask), reads(r.dropped), updates(p.sinks.gradient)}));
      }
      if (m.position == Position::rope && !c.kind.unrotated)
        ops.push_back(operation("layer.attention.rope.backward", OpKind::rope_backward, t.statistic,
                                head_dims(b), {updates(d_qkv), reads(c.rope_table)}));
      if (norms_queries(m, c.kind))
        ops.push_back(operation("layer.attention.qk_norm.backward", OpKind::qk_norm_backward, t.statistic,
                                head_dims(b),
                                {updates(d_qkv), updates(p.qk_norm.weight.gradient), reads(r.qkv_product),
                                 reads(p.qk_norm.weight.parameter), reads(r.qk_rstd)}));
      auto [qkv, d_norm] =
          column_parallel_backward("layer.attention.qkv", "layer.attention_norm", d_qkv, attention_rows,
                                   p.qkv, product_dims(m.qkv_size(), m.hidden_size));
      append(ops, std::move(qkv));
      return d_norm;
    };
    BufferId d_attention_norm = kNoBuffer;
    if (m.has_latent_attention()) {
      LatentBackward latent = latent_attention_backward(b, block, p.latent, r.latent, c.kind, attention_rows,
                                                        r.attention, r.lse, d_attention, c.rope_table);
      append(ops, std::move(latent.operations));
      d_attention_norm = latent.dinp;
    } else {
      d_attention_norm = attention_backward();
    }
    if (m.shared_norm)
      ops.push_back(operation("layer.mlp_norm.add.backward", OpKind::add, t.statistic, stream_dims(b),
                              {updates(d_attention_norm), reads(d_attention_norm), reads(d_mlp_norm)}));
    else if (m.parallel_residual)
      append(ops, std::move(mlp_norm));
    if (m.norms_before())
      append(ops, norm_backward(b, "layer.attention_norm", p.attention_norm, r.attention_norm, c.residual_in,
                                gradient, d_attention_norm));
    else
      ops.push_back(add_to_stream("layer.attention", d_attention_norm));
  }
  if (c.kind.has_states()) {
    const StateSpace& s = m.state_space;
    const BufferId d_normed = add("layer.state_space.normed", {kRows, s.inner_size()});
    append(ops, project_and_add_backward(b, block, "layer.state_space.out", d_normed, gradient,
                                         r.state_space.normed, r.attention_dropout_mask, p.state_space.out,
                                         product_dims(m.hidden_size, s.inner_size())));
    const BufferId d_projected =
        add_read_by_weights("layer.state_space.projected", {kRows, s.projection_size()});
    append(ops, state_space_backward(b, block, p.state_space, r.state_space, d_normed, d_projected));
    auto [products, d_norm] =
        column_parallel_backward("layer.state_space.in", "layer.state_space_norm", d_projected,
                                 r.state_space_norm.out, p.state_space.in, state_space_projection(m));
    append(ops, std::move(products));
    append(ops, norm_backward(b, "layer.state_space_norm", p.state_space_norm, r.state_space_norm,
                              c.residual_in, gradient, d_norm));
  }

  return ops;
}

}  // namespace

std::vector<Operation> layer_forward(PlanBuilder& b, const std::string& block, const DecoderParameters& p,
                                     const LayerResults& r, const LayerContext& c) {
  return with_adapters(b, block, p, r, plain_forward(b, block, p, r, c));
}

LayerBackward layer_backward(PlanBuilder& b, const std::string& block, const DecoderParameters& p,
                             const LayerResults& r, const LayerContext& c, BufferId gradient) {
  std::vector<Operation> ops =
      with_adapters_backward(b, block, p, r, c.kind, gradient, plain_backward(b, block, p, r, c, gradient));
  LayerBackward backward;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const auto is_weight_part = [](const Operation& op) {
      return info(op.kind).direction == Direction::weight_gradient;
    };
    const bool gathers_for_weight =
        ops[i].kind == OpKind::all_gather && is_weight_part(ops[i + 1]) &&
        operand(ops[i], Role::buffer).buffer == operand(ops[i + 1], Role::inp).buffer;
    const bool later = b.splits_backward() && (is_weight_part(ops[i]) || gathers_for_weight);
    (later ? backward.weight : backward.input).push_back(std::move(ops[i]));
  }
  return backward;
}

}  // namespace sim
