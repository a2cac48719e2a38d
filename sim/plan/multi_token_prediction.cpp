#include "sim/plan/multi_token_prediction.h"

#include "sim/plan/writing.h"

namespace sim {
namespace {

// One half of the columns.
BufferId half(PlanBuilder& b, BufferId whole, bool second, const char* suffix) {
  const std::int64_t hidden = b.model().hidden_size;
  return add_column_view(b, whole, suffix, second ? hidden : 0, hidden);
}

LayerKind kind_of_module(const PlanBuilder& b) {
  return kind_of_layer(b.scenario(), b.scenario().model.num_hidden_layers - 1);
}

LayerContext context_of(const PlanBuilder& b, const PredictionBuffers& r, BufferId rope_table) {
  return {.kind = kind_of_module(b),
          .residual_in = reads(r.residual),
          .residual_out = writes(r.out),
          .rope_table = rope_table};
}

Dims projection_dims(const PlanBuilder& b) {
  return {.rows = b.stream_rows(), .cols = b.model().hidden_size, .inner = 2 * b.model().hidden_size};
}

}  // namespace

PredictionBuffers add_prediction_buffers(PlanBuilder& b, std::size_t module) {
  const std::int64_t hidden = b.model().hidden_size;
  const auto add = [&](const std::string& name, DType dtype, const Shape& shape) {
    return activation(b, "", module_prefix(module) + name, dtype, shape);
  };
  const Extent rows = b.stream_rows();
  const DType stored = b.types().stored, statistic = b.types().statistic;
  PredictionBuffers r;
  const AddBuffer add_result = [&](PlanBuilder&, const std::string&, const std::string& name, DType dtype,
                                   const Shape& shape) { return add(name, dtype, shape); };
  r.layer = add_layer_results(b, "", add_result, {kind_of_module(b)});
  r.embedding = add("embedding", stored, {rows, hidden});
  r.normed = add("normed", stored, {rows, 2 * hidden});
  for (NormResult* norm : {&r.hidden_norm, &r.embedding_norm}) {
    const std::string name = norm == &r.hidden_norm ? "hidden_norm" : "embedding_norm";
    norm->out =
        half(b, r.normed, norm == &r.embedding_norm, norm == &r.hidden_norm ? ".hidden" : ".embedding");
    if (b.model().norm == Norm::layernorm) norm->mean = add(name + ".mean", statistic, {rows});
    norm->rstd = add(name + ".rstd", statistic, {rows});
  }
  r.residual = add("residual", stored, {rows, hidden});
  r.out = add("out", stored, {rows, hidden});
  r.gradient = add("residual.gradient", stored, {rows, hidden});
  return r;
}

std::vector<Operation> prediction_forward(PlanBuilder& b, const std::string& block,
                                          const DecoderParameters& p, const PredictionBuffers& r,
                                          BufferId next_tokens, BufferId residual, BufferId rope_table) {
  const Model& m = b.model();
  const bool scatters = b.strategy().sequence_parallel;
  const BufferId whole =
      scatters ? b.add_scratch(block, "embedding.whole", b.types().stored, {kRows, m.hidden_size})
               : r.embedding;
  std::vector<Operation> ops;
  ops.push_back(operation("embedding.forward", OpKind::embedding, b.types().statistic,
                          {.rows = kRows, .hidden = m.hidden_size, .vocab = m.vocab_size},
                          {writes(whole), reads(next_tokens), reads(p.embedding.parameter), {}, {}}));
  append(ops,
         sum_over_tensor_ranks(b, "embedding", Phase::forward, whole, scatters ? r.embedding : kNoBuffer));
  append(ops, norm_forward(b, "embedding_norm", p.prediction.embedding_norm, r.embedding_norm,
                           reads(r.embedding), b.stream_rows()));
  append(ops, norm_forward(b, "hidden_norm", p.prediction.hidden_norm, r.hidden_norm, reads(residual),
                           b.stream_rows()));
  ops.push_back(matmul(b, "projection.forward", writes(r.residual), reads(r.normed), p.prediction.projection,
                       {}, projection_dims(b)));
  append(ops, layer_forward(b, block, p, r.layer, with_scratch(b, block, context_of(b, r, rope_table))));
  return ops;
}

std::vector<Operation> prediction_backward(PlanBuilder& b, const std::string& block,
                                           const DecoderParameters& p, const PredictionBuffers& r,
                                           BufferId next_tokens, BufferId residual,
                                           BufferId residual_gradient, BufferId rope_table) {
  const Model& m = b.model();
  const DType stored = b.types().stored;
  const Extent rows = b.stream_rows();
  // No weight gradients are put off here, because those of the head are not put off either.
  LayerBackward layer = layer_backward(b, block, p, r.layer, context_of(b, r, rope_table), r.gradient);
  std::vector<Operation> ops = std::move(layer.input);
  append(ops, std::move(layer.weight));
  const BufferId d_normed = b.add_scratch(block, "normed.gradient", stored, {rows, 2 * m.hidden_size});
  append(ops, matmul_backward(b, "projection", d_normed, r.gradient, r.normed, p.prediction.projection,
                              projection_dims(b)));
  append(ops, norm_backward(b, "hidden_norm", p.prediction.hidden_norm, r.hidden_norm, reads(residual),
                            residual_gradient, half(b, d_normed, false, ".hidden")));
  BufferId d_embedding = b.add_scratch(block, "embedding.gradient", stored, {rows, m.hidden_size});
  ops.push_back(
      operation("embedding.zero_gradient", OpKind::zero, b.types().statistic, {}, {writes(d_embedding)}));
  append(ops, norm_backward(b, "embedding_norm", p.prediction.embedding_norm, r.embedding_norm,
                            reads(r.embedding), d_embedding, half(b, d_normed, true, ".embedding")));
  if (b.strategy().sequence_parallel) {
    const BufferId whole = b.add_scratch(block, "embedding.whole.gradient", stored, {kRows, m.hidden_size});
    ops.push_back(gather_rows(b, "embedding", Phase::backward, whole, d_embedding));
    d_embedding = whole;
  }
  ops.push_back(operation("embedding.backward", OpKind::embedding_backward, b.types().statistic,
                          {.rows = kRows, .hidden = m.hidden_size, .vocab = m.vocab_size},
                          {updates(p.embedding.gradient), {}, reads(d_embedding), reads(next_tokens)}));
  return ops;
}

}  // namespace sim
