// A training step: gradients to zero; for each micro-batch forward and backward; the optimizer. What ranks
// exchange stands where it must happen; how far it hides behind compute is for whoever runs the plan.
#include <algorithm>
#include <map>

#include "sim/plan/decoder.h"
#include "sim/plan/programs.h"
#include "sim/plan/recompute.h"
#include "sim/plan/schedule.h"
#include "sim/plan/stage_program.h"
#include "sim/plan/step_blocks.h"

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
  const Extent rows = b.stream_rows();
  r.residual = b.add_kept("residual", t.stored, {rows, m.hidden_size});
  r.residual_gradient = add_activation("residual.gradient", t.stored, {rows, m.hidden_size});
  if (uses_dropout(b.scenario()))
    r.embedding_dropout_mask = add_activation("embedding.dropout_mask", DType::int8, {rows, m.hidden_size});
  r.final_norm.out = add_activation("final_norm.out", t.stored, {rows, m.hidden_size});
  if (m.norm == Norm::layernorm) r.final_norm.mean = add_activation("final_norm.mean", t.statistic, {rows});
  r.final_norm.rstd = add_activation("final_norm.rstd", t.statistic, {rows});
  r.logits = add_activation(buffer_names::logits, t.statistic, {kRows, m.vocab_size});
  return r;
}

Dims head_product(const Model& m) {
  return {.rows = kRows, .cols = m.vocab_size, .inner = m.hidden_size};
}

void append(Block& block, std::vector<Operation> operations) {
  for (Operation& op : operations) block.operations.push_back(std::move(op));
}

Block embedding_forward(PlanBuilder& b, const DecoderParameters& p, const TrainingBuffers& r) {
  const Model& m = b.model();
  Block block{"embedding.forward", {}};
  const bool scatters = b.strategy().sequence_parallel;
  const BufferId whole =
      scatters ? b.add_scratch(block.name, "embedding.out", b.types().stored, {kRows, m.hidden_size})
               : r.residual;
  block.operations.push_back({.id = "embedding.forward",
                              .kind = OpKind::embedding,
                              .dtype = b.types().statistic,
                              .dims = {.rows = kRows, .hidden = m.hidden_size, .vocab = m.vocab_size},
                              .operands = {writes(whole),
                                           reads(r.tokens),
                                           reads(p.embedding.parameter),
                                           reads(p.position_embedding.parameter),
                                           {}}});
  append(block,
         sum_over_tensor_ranks(b, "embedding", Phase::forward, whole, scatters ? r.residual : kNoBuffer));
  if (r.embedding_dropout_mask != kNoBuffer)
    block.operations.push_back(
        {.id = "embedding.dropout.forward",
         .kind = OpKind::dropout,
         .dtype = b.types().statistic,
         .dims = {.rows = b.stream_rows(), .cols = m.hidden_size},
         .operands = {updates(r.residual), writes(r.embedding_dropout_mask), reads(r.residual)}});
  return block;
}

Block embedding_backward(PlanBuilder& b, const DecoderParameters& p, const TrainingBuffers& r) {
  const Model& m = b.model();
  Block block{"embedding.backward", {}};
  if (r.embedding_dropout_mask != kNoBuffer)
    block.operations.push_back({.id = "embedding.dropout.backward",
                                .kind = OpKind::dropout_backward,
                                .dtype = b.types().statistic,
                                .dims = {.rows = b.stream_rows(), .cols = m.hidden_size},
                                .operands = {updates(r.residual_gradient), reads(r.residual_gradient),
                                             reads(r.embedding_dropout_mask)}});
  BufferId dout = r.residual_gradient;
  if (b.strategy().sequence_parallel) {
    dout = b.add_scratch(block.name, "embedding.gradient", b.types().stored, {kRows, m.hidden_size});
    block.operations.push_back(gather_rows(b, "embedding", Phase::backward, dout, r.residual_gradient));
  }
  block.operations.push_back(
      {.id = "embedding.backward",
       .kind = OpKind::embedding_backward,
       .dtype = b.types().statistic,
       .dims = {.rows = kRows, .hidden = m.hidden_size, .vocab = m.vocab_size},
       .operands = {updates(p.embedding.gradient), updates(p.position_embedding.gradient), reads(dout),
                    reads(r.tokens)}});
  return block;
}

// The loss needs every row's sum over the vocabulary: three numbers a row and rank are exchanged where ranks
// divide it. (Megatron-LM exchanges them in three all-reduces.)
Block head_forward(PlanBuilder& b, const DecoderParameters& p, const TrainingBuffers& r) {
  const Workload& w = b.scenario().workload;
  Block block{"head.forward",
              norm_forward(b, "final_norm", p.final_norm, r.final_norm, reads(r.residual), b.stream_rows())};
  BufferId inp = r.final_norm.out;
  if (b.strategy().sequence_parallel) {
    inp = b.add_scratch(block.name, "final_norm.gathered", b.types().stored, {kRows, b.model().hidden_size});
    block.operations.push_back(gather_rows(b, "head.logits", Phase::forward, inp, r.final_norm.out));
  }
  block.operations.push_back(matmul(b, "head.logits.forward", writes(r.logits), reads(inp), {p.head, {}}, {},
                                    head_product(b.model())));
  Operand statistics{};
  if (b.tensor_parallel()) {
    const DType type = b.types().statistic;
    const BufferId own = b.add_scratch(block.name, "head.statistics", type, {kRows, 3});
    const BufferId all = b.add_scratch(block.name, "head.statistics_of_all_ranks", type,
                                       {b.strategy().tensor_parallel, kRows, 3});
    block.operations.push_back({.id = "head.cross_entropy_statistics",
                                .kind = OpKind::cross_entropy_statistics,
                                .dtype = type,
                                .dims = {.rows = kRows, .vocab = b.model().vocab_size},
                                .operands = {writes(own), reads(r.logits), reads(r.targets)}});
    block.operations.push_back({.id = "head.cross_entropy.all_gather",
                                .kind = OpKind::all_gather,
                                .dtype = type,
                                .operands = {writes(all), reads(own)},
                                .group = b.groups().tensor});
    statistics = reads(all);
  }
  block.operations.push_back({.id = "head.cross_entropy",
                              .kind = OpKind::cross_entropy,
                              .dtype = b.types().statistic,
                              .dims = {.rows = kRows, .vocab = b.model().vocab_size},
                              .operands = {updates(r.logits), writes(r.losses), reads(r.targets), statistics},
                              .scalar = 1.0f / static_cast<float>(w.global_batch_size * w.seq_len)});
  return block;
}

Block head_backward(PlanBuilder& b, const DecoderParameters& p, const TrainingBuffers& r) {
  const Model& m = b.model();
  Block block{"head.backward", {}};
  const BufferId d_final_norm =
      b.add_scratch(block.name, "final_norm.gradient", b.types().stored, {kRows, m.hidden_size});
  BufferId inp = r.final_norm.out, d_rows = kNoBuffer;
  if (b.strategy().sequence_parallel) {
    inp = b.add_scratch(block.name, "final_norm.gathered", b.types().stored, {kRows, m.hidden_size});
    d_rows = b.add_scratch(block.name, "final_norm.rows.gradient", b.types().stored,
                           {b.stream_rows(), m.hidden_size});
    block.operations.push_back(gather_rows(b, "head.logits", Phase::backward, inp, r.final_norm.out));
  }
  append(block,
         matmul_backward(b, "head.logits", d_final_norm, r.logits, inp, {p.head, {}}, head_product(m)));
  append(block, sum_over_tensor_ranks(b, "head.logits", Phase::backward, d_final_norm, d_rows));
  // Norms add to the residual stream's gradient; this one begins it.
  block.operations.push_back({.id = "residual.zero_gradient",
                              .kind = OpKind::zero,
                              .dtype = b.types().statistic,
                              .operands = {writes(r.residual_gradient)}});
  for (Operation& op : norm_backward(b, "final_norm", p.final_norm, r.final_norm, reads(r.residual),
                                     r.residual_gradient, d_rows != kNoBuffer ? d_rows : d_final_norm))
    block.operations.push_back(std::move(op));
  return block;
}

// What the first forward pass leaves: results that are recomputed are scratch of its block.
LayerResults forward_results(PlanBuilder& b, const std::map<std::string, BufferId>& kept_results) {
  return add_layer_results(b, "layer.forward",
                           [&](PlanBuilder& builder, const std::string& block, const std::string& name,
                               DType dtype, std::vector<Extent> shape) {
                             const bool dropped = recomputes(builder.strategy(), recompute_word_of(name));
                             return dropped ? scratch(builder, block, name, dtype, std::move(shape))
                                            : kept_results.at(name);
                           });
}

// A layer's blocks where the layers between two kept inputs are more than one: `base` is written for a layer
// whose input and output are both kept. Between, the residual stream passes from layer to layer.
PlacedBlocks add_placed(PlanBuilder& b, BlockId base, const std::vector<RecomputePlace>& places,
                        const PlanBuilder::Replacement& input, const PlanBuilder::Replacement& output) {
  PlacedBlocks blocks;
  for (const RecomputePlace place : places) {
    std::vector<PlanBuilder::Replacement> replacements;
    if (!place.first) replacements.push_back(input);
    if (!place.last && output.by != kNoBuffer) replacements.push_back(output);
    const std::string suffix =
        std::string(place.first ? "" : "_passed_in") + (place.last ? "" : "_passed_on");
    blocks.at(place) =
        replacements.empty() ? base : b.add_variant(base, b.block(base).name + suffix, replacements);
  }
  return blocks;
}

LayerBlocks add_layer_blocks(PlanBuilder& b, const DecoderParameters& p, const TrainingBuffers& r) {
  const Strategy& s = b.strategy();
  const bool whole_layers = s.recompute == Recompute::full || s.recompute == Recompute::sqrt;
  const DecoderParameters again = for_backward(p);
  // What backward reads.
  std::map<std::string, BufferId> kept_results;
  const LayerResults results =
      add_layer_results(b, "",
                        [&](PlanBuilder& builder, const std::string& block, const std::string& name,
                            DType dtype, std::vector<Extent> shape) {
                          return kept_results[name] = kept(builder, block, name, dtype, std::move(shape));
                        });
  LayerContext context{
      .residual_in = reads(r.residual), .residual_out = writes(r.residual, 1), .rope_table = r.rope_table};
  const BlockId forward =
      b.add({"layer.forward",
             layer_forward(b, p, s.recompute == Recompute::none ? results : forward_results(b, kept_results),
                           with_scratch(b, "layer.forward", context))});

  const std::vector<RecomputePlace> places = recompute_places(s, b.model().num_hidden_layers);
  const bool stretches = places.size() > 1 || !places.front().last;
  const auto add_stream = [&](const char* name) {
    return stretches ? b.add_kept(name, b.types().stored, {b.stream_rows(), b.model().hidden_size})
                     : kNoBuffer;
  };
  const BufferId passed = add_stream("residual.passed"), again_passed = add_stream("residual.again");
  LayerBlocks blocks;
  blocks.forward = add_placed(b, forward, places, {r.residual, 0, passed}, {r.residual, 1, passed});

  if (whole_layers) {
    // The output of the last of them has served already: the second one goes nowhere.
    const BufferId nowhere = b.add_scratch("layer.recompute", "residual", b.types().stored,
                                           {b.stream_rows(), b.model().hidden_size});
    context.residual_out = writes(nowhere);
    const BlockId recompute = b.add(
        {"layer.recompute", layer_forward(b, again, results, with_scratch(b, "layer.recompute", context))});
    blocks.recompute =
        add_placed(b, recompute, places, {r.residual, 0, again_passed}, {nowhere, 0, again_passed, 1});
  } else if (s.recompute != Recompute::none) {
    std::vector<Operation> ops =
        layer_forward(b, again, results, with_scratch(b, "layer.recompute", context));
    std::erase_if(ops, [&](const Operation& op) { return !recomputes(s, recompute_word_of(op.id)); });
    blocks.recompute = add_placed(b, b.add({"layer.recompute", std::move(ops)}), places, {}, {});
  }

  const PlanBuilder::Replacement input{r.residual, 0, again_passed};
  const BackwardParts parts = backward_parts(s.schedule);
  if (parts != BackwardParts::all_split) {
    LayerBackward whole = layer_backward(b, "layer.backward", again, results, context, r.residual_gradient);
    blocks.backward = add_placed(b, b.add({"layer.backward", std::move(whole.input)}), places, input, {});
  }
  if (parts != BackwardParts::whole) {
    b.split_backward(true);
    const std::string name = "layer.backward_input";
    LayerBackward split = layer_backward(b, name, again, results, context, r.residual_gradient);
    b.split_backward(false);
    blocks.backward_input = add_placed(b, b.add({name, std::move(split.input)}), places, input, {});
    blocks.weight = b.add({weight_block(name), std::move(split.weight)});
  }
  return blocks;
}

using Tensors = std::vector<Tensor>;

Operation zero(const std::string& id, const Tensors& unit, BufferId Tensor::*buffer) {
  Operation op{.id = id, .kind = OpKind::zero, .dtype = DType::fp32};
  for (const Tensor& t : unit) op.operands.push_back(writes(t.*buffer));
  return op;
}

// Of tensors that several ranks of a pipeline's and tensor-parallel group hold alike, each adds its part of
// the square.
std::vector<Operation> squared_norm(const PlanBuilder& b, const Tensors& unit, BufferId norm) {
  const int tensor_parallel = b.strategy().tensor_parallel, copies = b.groups().directions >= 0 ? 2 : 1;
  std::vector<Operation> ops;
  for (const bool replicated : {false, true}) {
    Operation op{.id = replicated ? "optimizer.squared_norm.replicated" : "optimizer.squared_norm",
                 .kind = OpKind::squared_norm,
                 .dtype = DType::fp32,
                 .operands = {updates(norm)},
                 .scalar = 1.0f / static_cast<float>(copies * (replicated ? tensor_parallel : 1))};
    for (const Tensor& t : unit)
      if (replicated == (t.replicated && tensor_parallel > 1)) op.operands.push_back(reads(t.gradient_shard));
    if (op.operands.size() > 1) ops.push_back(std::move(op));
  }
  return ops;
}

// One operation for the tensors that decay and one for those that do not.
std::vector<Operation> adamw(const Tensors& unit, BufferId norm) {
  std::vector<Operation> ops;
  for (const bool decay : {true, false}) {
    Operation op{.id = decay ? "optimizer.adamw.decay" : "optimizer.adamw.no_decay",
                 .kind = OpKind::adamw,
                 .dtype = DType::fp32,
                 .operands = {reads(norm)},
                 .decay = decay};
    for (const Tensor& t : unit)
      if (t.decay == decay)
        op.operands.insert(
            op.operands.end(),
            {t.master == kNoBuffer ? updates(t.parameter_shard) : writes(t.parameter_shard),
             reads(t.gradient_shard), updates(t.moment1), updates(t.moment2), updates(t.master)});
    if (op.operands.size() > 1) ops.push_back(std::move(op));
  }
  return ops;
}

template <class Operations>
UnitBlocks add_unit_blocks(PlanBuilder& b, const DecoderParameters& p, const std::string& name,
                           Operations operations) {
  const auto add = [&](const std::string& unit, std::vector<Operation> ops) {
    return ops.empty() ? BlockId{-1} : b.add({unit + "." + name, std::move(ops)});
  };
  UnitBlocks blocks;
  blocks.embedding = add("embedding", operations(p.embedding_group()));
  blocks.layer = add("layer", operations(p.layer_group()));
  blocks.head = add("head", operations(p.head_group()));
  return blocks;
}

Operation collective(const std::string& id, OpKind kind, DType dtype, std::int32_t group) {
  return {.id = id, .kind = kind, .dtype = dtype, .group = group};
}

// Sums of gradients: first of what tensor-parallel ranks hold alike but have each from a part of the work,
// then over the ranks that divide the batch. Of each unit one message, whose size is that of the unit.
std::vector<Operation> reduce_gradients(const PlanBuilder& b, const Tensors& unit,
                                        const std::vector<Affine>& norms,
                                        const std::vector<BufferId>& key_values) {
  const DType type = b.types().gradient;
  std::vector<Operation> ops;
  if (b.strategy().sequence_parallel && !norms.empty()) {
    Operation op = collective("gradients.norms.all_reduce", OpKind::all_reduce, type, b.groups().tensor);
    for (const Affine& norm : norms) {
      op.operands.push_back(updates(norm.weight.gradient));
      if (norm.bias) op.operands.push_back(updates(norm.bias.gradient));
    }
    ops.push_back(std::move(op));
  }
  if (!key_values.empty()) {
    Operation op =
        collective("gradients.key_values.all_reduce", OpKind::all_reduce, type, b.groups().key_value);
    for (const BufferId rows : key_values) op.operands.push_back(updates(rows));
    ops.push_back(std::move(op));
  }
  if (b.groups().shard < 0 || unit.empty()) return ops;
  const int zero_stage = b.strategy().zero_stage;
  Operation op = zero_stage == 0
                     ? collective("gradients.all_reduce", OpKind::all_reduce, type, b.groups().data)
                     : collective("gradients.reduce_scatter", OpKind::reduce_scatter, type, b.groups().shard);
  for (const Tensor& t : unit) {
    if (zero_stage == 0) {
      op.operands.push_back(updates(t.gradient));
      continue;
    }
    // From stage 2 on each micro-batch's gradients are reduced, and added up in shards.
    op.operands.push_back(zero_stage == 1 ? writes(t.gradient_shard) : updates(t.gradient_shard));
    op.operands.push_back(reads(t.gradient));
  }
  ops.push_back(std::move(op));
  return ops;
}

// The operations with the operands of `n` layers, from the action's own upwards.
std::vector<Operation> of_layers(std::vector<Operation> operations, std::int32_t n) {
  for (Operation& op : operations) {
    const std::vector<Operand> one = op.operands;
    for (std::int32_t l = 1; l < n; ++l)
      for (Operand o : one) {
        o.layer_offset = l;
        op.operands.push_back(o);
      }
  }
  return operations;
}

std::vector<Operation> gather_parameters(const PlanBuilder& b, const Tensors& unit, BufferId Tensor::*whole) {
  if (unit.empty() || b.groups().shard < 0) return {};
  Operation op = collective("parameters.all_gather", OpKind::all_gather, b.types().stored, b.groups().shard);
  for (const Tensor& t : unit) {
    op.operands.push_back(writes(t.*whole));
    op.operands.push_back(reads(t.parameter_shard));
  }
  return {std::move(op)};
}

void add_pipeline_blocks(PlanBuilder& b, const TrainingBuffers& r, StepBlocks& blocks) {
  if (b.groups().pipeline < 0) return;
  const auto add = [&](const std::string& what, OpKind kind, Operand operand) {
    Operation op = collective("pipeline." + what, kind, b.types().stored, b.groups().pipeline);
    op.operands = {operand};
    return b.add({"pipeline." + what, {std::move(op)}});
  };
  blocks.send_activation = add("activation.send", OpKind::send, reads(r.residual));
  blocks.receive_activation = add("activation.receive", OpKind::receive, writes(r.residual));
  blocks.send_gradient = add("gradient.send", OpKind::send, reads(r.residual_gradient));
  blocks.receive_gradient = add("gradient.receive", OpKind::receive, writes(r.residual_gradient));
}

// Sums over ranks that hold the same shards.
std::vector<Operation> sum_of_shards(const PlanBuilder& b, const Tensors& unit, const std::string& id,
                                     std::int32_t group) {
  if (unit.empty()) return {};
  Operation op = collective(id, OpKind::all_reduce, b.types().gradient, group);
  for (const Tensor& t : unit) op.operands.push_back(updates(t.gradient_shard));
  return {std::move(op)};
}

// Several layers' gradients as one message, as many as a bucket holds; at a chunk's end there may be fewer.
void add_bucket_blocks(PlanBuilder& b, const DecoderParameters& p, StepBlocks& blocks) {
  const Strategy& s = b.strategy();
  if (blocks.reduce.layer < 0 || s.gradient_bucket == 0) return;
  Bytes layer;
  for (const Tensor& t : p.layer_group()) layer += b.buffer(t.gradient).bytes({});
  const std::int32_t pieces = pieces_of(s), layers = static_cast<std::int32_t>(b.model().num_hidden_layers);
  const std::int64_t fit = std::max<std::int64_t>(1, s.gradient_bucket / layer.value);
  blocks.layers_in_bucket = static_cast<std::int32_t>(std::min<std::int64_t>(fit, layers));
  blocks.reduce_layers.assign(static_cast<std::size_t>(blocks.layers_in_bucket) + 1, -1);
  const auto add = [&](std::int32_t n) {
    BlockId& block = blocks.reduce_layers[static_cast<std::size_t>(n)];
    if (n == 0 || block >= 0) return;
    block = n == 1 ? blocks.reduce.layer
                   : b.add({"layer.reduce_gradients_of_" + std::to_string(n),
                            of_layers(b.block(blocks.reduce.layer).operations, n)});
  };
  for (std::int32_t piece = 0; piece < pieces; ++piece) {
    const LayerRange range = layers_of(piece, pieces, layers);
    const std::int32_t n = range.last - range.first;
    if (n >= blocks.layers_in_bucket) add(blocks.layers_in_bucket);
    add(n % blocks.layers_in_bucket);
  }
}

void add_reduction_blocks(PlanBuilder& b, const DecoderParameters& p, StepBlocks& blocks) {
  const int zero_stage = b.strategy().zero_stage;
  const auto add = [&](const std::string& name, std::vector<Operation> ops) {
    return ops.empty() ? BlockId{-1} : b.add({name, std::move(ops)});
  };
  blocks.reduce = {
      add("embedding.reduce_gradients", reduce_gradients(b, p.embedding_group(), {}, {})),
      add("layer.reduce_gradients",
          reduce_gradients(b, p.layer_group(), {p.attention_norm, p.mlp_norm}, p.key_value_gradients)),
      add("head.reduce_gradients", reduce_gradients(b, p.head_group(), {p.final_norm}, {}))};
  add_bucket_blocks(b, p, blocks);
  const auto add_sums = [&](const std::string& name, const std::string& id, std::int32_t group) {
    if (group < 0) return UnitBlocks{};
    return add_unit_blocks(b, p, name,
                           [&](const Tensors& unit) { return sum_of_shards(b, unit, id, group); });
  };
  blocks.reduce_replicas = add_sums("reduce_replicas", "gradients.replicas.all_reduce", b.groups().replica);
  blocks.reduce_directions =
      add_sums("reduce_directions", "gradients.directions.all_reduce", b.groups().directions);
  if (zero_stage == 1 || zero_stage == 2)
    blocks.gather_updated = add_unit_blocks(b, p, "gather_updated", [&](const Tensors& unit) {
      return gather_parameters(b, unit, &Tensor::parameter);
    });
  if (zero_stage < 2) return;

  // A tied head's weight is of the embedding's unit: its gradient begins with the head, its copy for forward
  // lives until the head.
  const bool shared = p.tied && !p.head_is_a_copy;
  Tensors head = p.head_group(), embedding = p.embedding_group();
  if (shared) {
    head.push_back(p.embedding);
    embedding.erase(embedding.begin());
  }
  const auto zero_of = [&](const std::string& unit, const Tensors& tensors) {
    return tensors.empty() ? BlockId{-1}
                           : b.add({unit + ".zero_whole_gradients",
                                    {zero("gradients.zero", tensors, &Tensor::gradient)}});
  };
  blocks.zero_whole = {zero_of("embedding", embedding), zero_of("layer", p.layer_group()),
                       zero_of("head", head)};
  if (zero_stage < 3) return;
  blocks.gather_for_forward = add_unit_blocks(b, p, "gather_for_forward", [&](const Tensors& unit) {
    return gather_parameters(b, unit, &Tensor::parameter);
  });
  blocks.gather_for_backward = {
      // an embedding's backward pass reads no parameter
      -1,
      b.add({"layer.gather_for_backward",
             gather_parameters(b, p.layer_group(), &Tensor::parameter_for_backward)}),
      b.add({"head.gather_for_backward", gather_parameters(b, head, &Tensor::parameter_for_backward)})};
}

void add_optimizer_blocks(PlanBuilder& b, const DecoderParameters& p, BufferId norm, StepBlocks& blocks) {
  const auto operation = [&](const std::string& id, OpKind kind, Operand operand) {
    return Operation{.id = id, .kind = kind, .dtype = DType::fp32, .operands = {operand}};
  };
  blocks.zero_norm =
      b.add({"zero_gradient_norm", {operation("optimizer.zero_gradient_norm", OpKind::zero, writes(norm))}});
  if (b.groups().tied_embedding >= 0) {
    Operation op = collective("gradients.tied_embedding.all_reduce", OpKind::all_reduce, b.types().gradient,
                              b.groups().tied_embedding);
    op.operands = {updates(p.embedding.gradient_shard)};
    blocks.sum_tied_embedding = b.add({"tied_embedding.reduce_gradients", {std::move(op)}});
  }
  // The embedding's copy in the last stage is not counted twice.
  DecoderParameters counted = p;
  counted.head_is_a_copy = false;
  blocks.norm = add_unit_blocks(b, counted, "squared_norm",
                                [&](const Tensors& unit) { return squared_norm(b, unit, norm); });
  Block sum{"sum_gradient_norm", {}};
  const auto add_sum = [&](const char* name, std::int32_t group) {
    if (group < 0) return;
    Operation op = collective(std::string("optimizer.gradient_norm.all_reduce.") + name, OpKind::all_reduce,
                              DType::fp64, group);
    op.operands = {updates(norm)};
    sum.operations.push_back(std::move(op));
  };
  add_sum("tensor", b.groups().tensor);
  if (b.strategy().zero_stage > 0) add_sum("data", b.groups().shard);
  add_sum("pipeline", b.groups().pipeline);
  if (!sum.operations.empty()) blocks.sum_norm = b.add(std::move(sum));
  blocks.clip = b.add({"clip", {operation("optimizer.clip_scale", OpKind::clip_scale, updates(norm))}});
  blocks.update = add_unit_blocks(b, p, "adamw", [&](const Tensors& unit) { return adamw(unit, norm); });
}

StepBlocks add_step_blocks(PlanBuilder& b) {
  const DecoderParameters p = add_parameters(b, true);
  const TrainingBuffers r = add_buffers(b);
  const DecoderParameters again = for_backward(p);
  StepBlocks blocks;
  const auto accumulated = b.strategy().zero_stage >= 2 ? &Tensor::gradient_shard : &Tensor::gradient;
  blocks.zero = add_unit_blocks(b, p, "zero_gradients", [&](const Tensors& unit) {
    return std::vector<Operation>{zero("optimizer.zero_gradients", unit, accumulated)};
  });
  blocks.embedding = b.add(embedding_forward(b, p, r));
  blocks.layer = add_layer_blocks(b, p, r);
  blocks.head = b.add(head_forward(b, p, r));
  blocks.head_backward = b.add(head_backward(b, again, r));
  blocks.embedding_backward = b.add(embedding_backward(b, p, r));
  add_pipeline_blocks(b, r, blocks);
  add_reduction_blocks(b, p, blocks);
  add_optimizer_blocks(b, p, r.gradient_norm, blocks);
  return blocks;
}

}  // namespace

Plan make_training_plan(const Scenario& scenario) {
  PlanBuilder b(scenario);
  const StepBlocks blocks = add_step_blocks(b);
  const Strategy& s = scenario.strategy;
  const Workload& w = scenario.workload;
  const auto micro_batches =
      static_cast<std::int32_t>(w.global_batch_size / s.data_parallel / w.micro_batch_size);
  const Schedule schedule = make_schedule(s.schedule, s.pipeline_parallel, s.virtual_pipeline, micro_batches);
  Plan plan = b.take();
  for (std::int32_t stage = 0; stage < schedule.stages; ++stage)
    plan.programs.push_back(stage_program(scenario, blocks, schedule, stage));
  return plan;
}

}  // namespace sim
