// A training step: gradients to zero; for each micro-batch forward and backward; the optimizer.
#include "sim/plan/decoder.h"
#include "sim/plan/programs.h"

namespace sim {
namespace {

struct TrainingBuffers {
  BufferId tokens, targets, rope_table = kNoBuffer, losses, gradient_norm;
  BufferId residual;           // an instance before each layer and one after the last
  BufferId residual_gradient;  // one for all layers, updated in place
  BufferId embedding_dropout_mask = kNoBuffer;
  NormResult final_norm;
  BufferId logits;  // and, after the loss, their gradient
};

TrainingBuffers add_buffers(PlanBuilder& b) {
  const Model& m = b.model();
  const ElementTypes& t = b.types();
  TrainingBuffers r;
  r.tokens = b.add_input(buffer_names::tokens, DType::int32, {kBatch, kQueryLength}, true);
  r.targets = b.add_input(buffer_names::targets, DType::int32, {kBatch, kQueryLength}, true);
  if (m.position == Position::rope)
    r.rope_table =
        b.add_input(buffer_names::rope_table, t.statistic, {b.scenario().workload.seq_len, m.head_dim});
  r.losses = b.add({.name = std::string(buffer_names::losses),
                    .buffer_class = BufferClass::activation,
                    .dtype = t.statistic,
                    .shape = {kRows},
                    .lifetime = Lifetime::plan,
                    .per_micro_batch = true});
  r.gradient_norm = b.add({.name = std::string(buffer_names::gradient_norm),
                           .buffer_class = BufferClass::optimizer,
                           .dtype = DType::fp64,
                           .shape = {3},
                           .lifetime = Lifetime::plan});
  const auto add_activation = [&](std::string_view name, DType dtype, std::vector<Extent> shape) {
    return b.add({.name = std::string(name),
                  .buffer_class = BufferClass::activation,
                  .dtype = dtype,
                  .shape = std::move(shape),
                  .per_micro_batch = true});
  };
  r.residual = b.add_kept("residual", t.stored, {kRows, m.hidden_size});
  r.residual_gradient = add_activation("residual.gradient", t.stored, {kRows, m.hidden_size});
  if (uses_dropout(b.scenario()))
    r.embedding_dropout_mask = add_activation("embedding.dropout_mask", DType::int8, {kRows, m.hidden_size});
  r.final_norm.out = add_activation("final_norm.out", t.stored, {kRows, m.hidden_size});
  if (m.norm == Norm::layernorm) r.final_norm.mean = add_activation("final_norm.mean", t.statistic, {kRows});
  r.final_norm.rstd = add_activation("final_norm.rstd", t.statistic, {kRows});
  r.logits = add_activation(buffer_names::logits, t.statistic, {kRows, m.vocab_size});
  return r;
}

Dims head_product(const Model& m) {
  return {.rows = kRows, .cols = m.vocab_size, .inner = m.hidden_size};
}

Block embedding_forward(const PlanBuilder& b, const DecoderParameters& p, const TrainingBuffers& r) {
  const Model& m = b.model();
  Block block{"embedding.forward", {}};
  block.operations.push_back({.id = "embedding.forward",
                              .kind = OpKind::embedding,
                              .dtype = b.types().statistic,
                              .dims = {.rows = kRows, .hidden = m.hidden_size, .vocab = m.vocab_size},
                              .operands = {writes(r.residual),
                                           reads(r.tokens),
                                           reads(p.embedding.parameter),
                                           reads(p.position_embedding.parameter),
                                           {}}});
  if (r.embedding_dropout_mask != kNoBuffer)
    block.operations.push_back(
        {.id = "embedding.dropout.forward",
         .kind = OpKind::dropout,
         .dtype = b.types().statistic,
         .dims = {.rows = kRows, .cols = m.hidden_size},
         .operands = {updates(r.residual), writes(r.embedding_dropout_mask), reads(r.residual)}});
  return block;
}

Block embedding_backward(const PlanBuilder& b, const DecoderParameters& p, const TrainingBuffers& r) {
  const Model& m = b.model();
  Block block{"embedding.backward", {}};
  if (r.embedding_dropout_mask != kNoBuffer)
    block.operations.push_back({.id = "embedding.dropout.backward",
                                .kind = OpKind::dropout_backward,
                                .dtype = b.types().statistic,
                                .dims = {.rows = kRows, .cols = m.hidden_size},
                                .operands = {updates(r.residual_gradient), reads(r.residual_gradient),
                                             reads(r.embedding_dropout_mask)}});
  block.operations.push_back(
      {.id = "embedding.backward",
       .kind = OpKind::embedding_backward,
       .dtype = b.types().statistic,
       .dims = {.rows = kRows, .hidden = m.hidden_size, .vocab = m.vocab_size},
       .operands = {updates(p.embedding.gradient), updates(p.position_embedding.gradient),
                    reads(r.residual_gradient), reads(r.tokens)}});
  return block;
}

Block head_forward(const PlanBuilder& b, const DecoderParameters& p, const TrainingBuffers& r) {
  const Workload& w = b.scenario().workload;
  Block block{"head.forward",
              norm_forward(b, "final_norm", p.final_norm, r.final_norm, reads(r.residual), kRows)};
  block.operations.push_back(matmul(b, "head.logits.forward", writes(r.logits), reads(r.final_norm.out),
                                    {p.head, {}}, {}, head_product(b.model())));
  block.operations.push_back({.id = "head.cross_entropy",
                              .kind = OpKind::cross_entropy,
                              .dtype = b.types().statistic,
                              .dims = {.rows = kRows, .vocab = b.model().vocab_size},
                              .operands = {updates(r.logits), writes(r.losses), reads(r.targets)},
                              .scalar = 1.0f / static_cast<float>(w.global_batch_size * w.seq_len)});
  return block;
}

Block head_backward(PlanBuilder& b, const DecoderParameters& p, const TrainingBuffers& r) {
  const Model& m = b.model();
  Block block{"head.backward", {}};
  const BufferId d_final_norm =
      b.add_scratch(block.name, "final_norm.gradient", b.types().stored, {kRows, m.hidden_size});
  block.operations = matmul_backward(b, "head.logits", d_final_norm, r.logits, r.final_norm.out, {p.head, {}},
                                     head_product(m));
  // Norms add to the residual stream's gradient; this one begins it.
  block.operations.push_back({.id = "residual.zero_gradient",
                              .kind = OpKind::zero,
                              .dtype = b.types().statistic,
                              .operands = {writes(r.residual_gradient)}});
  for (Operation& op : norm_backward(b, "final_norm", p.final_norm, r.final_norm, reads(r.residual),
                                     r.residual_gradient, d_final_norm))
    block.operations.push_back(std::move(op));
  return block;
}

struct LayerBlocks {
  BlockId forward = -1, recompute = -1, backward = -1;  // recompute: -1 where everything is kept
};

LayerBlocks add_layer_blocks(PlanBuilder& b, const DecoderParameters& p, const TrainingBuffers& r) {
  const Recompute recompute = b.scenario().strategy.recompute;
  const auto projection = [&](const std::string& block) {
    return fuses_residual(b.scenario())
               ? kNoBuffer
               : b.add_scratch(block, "layer.projection", b.types().stored, {kRows, b.model().hidden_size});
  };
  // What backward reads, and what the first forward pass leaves of it.
  const LayerResults results = add_layer_results(b, "", kept);
  LayerResults forward_results = results;
  if (recompute == Recompute::full) forward_results = add_layer_results(b, "layer.forward", scratch);
  if (recompute == Recompute::selective)
    forward_results = with_core_of(results, add_attention_core(b, "layer.forward", scratch));

  LayerContext context{.residual_in = reads(r.residual),
                       .residual_out = writes(r.residual, 1),
                       .rope_table = r.rope_table,
                       .projection = projection("layer.forward")};
  LayerBlocks blocks;
  blocks.forward = b.add({"layer.forward", layer_forward(b, p, forward_results, context)});
  if (recompute == Recompute::selective)
    blocks.recompute = b.add({"layer.recompute", attention_core_forward(b, results)});
  if (recompute == Recompute::full) {
    // The layer's output has served already: the second one goes nowhere.
    context.residual_out = writes(
        b.add_scratch("layer.recompute", "residual", b.types().stored, {kRows, b.model().hidden_size}));
    context.projection = projection("layer.recompute");
    blocks.recompute = b.add({"layer.recompute", layer_forward(b, p, results, context)});
  }
  blocks.backward = b.add(
      {"layer.backward", layer_backward(b, "layer.backward", p, results, context, r.residual_gradient)});
  return blocks;
}

// The optimizer's work is divided as the model is, so that a block's operations run once its gradients are
// there.
struct GroupBlocks {
  BlockId embedding = 0, layer = 0, head = 0;
};

using Tensors = std::vector<Tensor>;

Operation zero_gradients(const Tensors& group) {
  Operation op{.id = "optimizer.zero_gradients", .kind = OpKind::zero, .dtype = DType::fp32};
  for (const Tensor& t : group) op.operands.push_back(writes(t.gradient));
  return op;
}

Operation squared_norm(const Tensors& group, BufferId norm) {
  Operation op{.id = "optimizer.squared_norm", .kind = OpKind::squared_norm, .dtype = DType::fp32};
  op.operands.push_back(updates(norm));
  for (const Tensor& t : group) op.operands.push_back(reads(t.gradient));
  return op;
}

// One operation for the tensors that decay and one for those that do not.
std::vector<Operation> adamw(const Tensors& group, BufferId norm) {
  std::vector<Operation> ops;
  for (const bool decay : {true, false}) {
    Operation op{.id = decay ? "optimizer.adamw.decay" : "optimizer.adamw.no_decay",
                 .kind = OpKind::adamw,
                 .dtype = DType::fp32,
                 .operands = {reads(norm)},
                 .decay = decay};
    for (const Tensor& t : group)
      if (t.decay == decay)
        op.operands.insert(op.operands.end(),
                           {t.master == kNoBuffer ? updates(t.parameter) : writes(t.parameter),
                            reads(t.gradient), updates(t.moment1), updates(t.moment2), updates(t.master)});
    if (op.operands.size() > 1) ops.push_back(std::move(op));
  }
  return ops;
}

template <class Operations>
GroupBlocks add_group_blocks(PlanBuilder& b, const DecoderParameters& p, const std::string& name,
                             Operations operations) {
  GroupBlocks blocks;
  blocks.embedding = b.add({"embedding." + name, operations(p.embedding_group())});
  blocks.layer = b.add({"layer." + name, operations(p.layer_group())});
  blocks.head = b.add({"head." + name, operations(p.head_group())});
  return blocks;
}

class ProgramWriter {
 public:
  ProgramWriter(std::int64_t layers, Variables variables)
      : layers_(static_cast<std::int32_t>(layers)), variables_(variables) {}

  void run(BlockId block, Phase phase, std::int32_t layer, std::int32_t micro_batch = 0) {
    program_.actions.push_back({.block = block,
                                .phase = phase,
                                .layer = layer,
                                .micro_batch = micro_batch,
                                .variables = variables_});
  }
  void run(const GroupBlocks& blocks) {
    run(blocks.embedding, Phase::optimizer, 0);
    for (std::int32_t l = 0; l < layers_; ++l) run(blocks.layer, Phase::optimizer, l);
    run(blocks.head, Phase::optimizer, layers_);
  }
  Program take() {
    program_.role = "stage 0";
    program_.sections.push_back({"step", 0, program_.actions.size()});
    return std::move(program_);
  }

 private:
  std::int32_t layers_;
  Variables variables_;
  Program program_;
};

}  // namespace

Plan make_training_plan(const Scenario& scenario) {
  PlanBuilder b(scenario);
  const DecoderParameters parameters = add_parameters(b, true);
  const TrainingBuffers buffers = add_buffers(b);

  const GroupBlocks zero = add_group_blocks(b, parameters, "zero_gradients", [](const Tensors& g) {
    return std::vector<Operation>{zero_gradients(g)};
  });
  const BlockId zero_norm = b.add({"zero_gradient_norm",
                                   {{.id = "optimizer.zero_gradient_norm",
                                     .kind = OpKind::zero,
                                     .dtype = DType::fp32,
                                     .operands = {writes(buffers.gradient_norm)}}}});
  const BlockId embed = b.add(embedding_forward(b, parameters, buffers));
  const LayerBlocks layer = add_layer_blocks(b, parameters, buffers);
  const BlockId head = b.add(head_forward(b, parameters, buffers));
  const BlockId head_back = b.add(head_backward(b, parameters, buffers));
  const BlockId embed_back = b.add(embedding_backward(b, parameters, buffers));
  const GroupBlocks norm = add_group_blocks(b, parameters, "squared_norm", [&](const Tensors& g) {
    return std::vector<Operation>{squared_norm(g, buffers.gradient_norm)};
  });
  const BlockId clip = b.add({"clip",
                              {{.id = "optimizer.clip_scale",
                                .kind = OpKind::clip_scale,
                                .dtype = DType::fp32,
                                .operands = {updates(buffers.gradient_norm)}}}});
  const GroupBlocks update = add_group_blocks(
      b, parameters, "adamw", [&](const Tensors& g) { return adamw(g, buffers.gradient_norm); });

  const Workload& w = scenario.workload;
  const std::int64_t sequences = w.global_batch_size / scenario.strategy.data_parallel;
  const auto micro_batches = static_cast<std::int32_t>(sequences / w.micro_batch_size);
  const auto layers = static_cast<std::int32_t>(scenario.model.num_hidden_layers);
  ProgramWriter program(layers,
                        {.batch = w.micro_batch_size, .query_length = w.seq_len, .kv_length = w.seq_len});

  program.run(zero);
  for (std::int32_t m = 0; m < micro_batches; ++m) {
    program.run(embed, Phase::forward, 0, m);
    for (std::int32_t l = 0; l < layers; ++l) program.run(layer.forward, Phase::forward, l, m);
    program.run(head, Phase::forward, layers, m);
    program.run(head_back, Phase::backward, layers, m);
    for (std::int32_t l = layers; l-- > 0;) {
      if (layer.recompute >= 0) program.run(layer.recompute, Phase::recompute, l, m);
      program.run(layer.backward, Phase::backward, l, m);
    }
    program.run(embed_back, Phase::backward, 0, m);
  }
  program.run(zero_norm, Phase::optimizer, 0);
  program.run(norm);
  program.run(clip, Phase::optimizer, 0);
  program.run(update);

  Plan plan = b.take();
  plan.programs.push_back(program.take());
  return plan;
}

}  // namespace sim
