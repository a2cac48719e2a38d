// A training step: gradients to zero; for each micro-batch forward and backward; the optimizer. What ranks
// exchange stands where it must happen; how far it hides behind compute is for whoever runs the plan.
#include <algorithm>
#include <utility>

#include "sim/plan/decoder.h"
#include "sim/plan/early_stop.h"
#include "sim/plan/extra_tensors.h"
#include "sim/plan/programs.h"
#include "sim/plan/schedule.h"

namespace sim {
namespace {

struct TrainingBuffers {
  BufferId tokens, targets, rope_table = kNoBuffer, losses, gradient_norm;
  BufferId residual;           // an instance before each layer and one after the last
  BufferId residual_gradient;  // one for all layers, updated in place
  BufferId embedding_dropout_mask = kNoBuffer;
  BufferId embedding = kNoBuffer;  // before its norm
  NormResult embedding_norm;       // into the residual stream
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
  if (m.embedding_norm) {
    r.embedding = add_activation("embedding.out", t.stored, {rows, m.hidden_size});
    r.embedding_norm.out = r.residual;
    if (m.norm == Norm::layernorm)
      r.embedding_norm.mean = add_activation("embedding_norm.mean", t.statistic, {rows});
    r.embedding_norm.rstd = add_activation("embedding_norm.rstd", t.statistic, {rows});
  }
  r.final_norm.out = add_activation("final_norm.out", t.stored, {rows, m.hidden_size});
  if (m.norm == Norm::layernorm) r.final_norm.mean = add_activation("final_norm.mean", t.statistic, {rows});
  r.final_norm.rstd = add_activation("final_norm.rstd", t.statistic, {rows});
  const DType logits = b.scenario().implementation.memory.logits_dtype.value_or(t.statistic);
  r.logits = add_activation(buffer_names::logits, logits, {kRows, m.vocab_size});
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
  const BufferId out = m.embedding_norm ? r.embedding : r.residual;
  const BufferId whole =
      scatters ? b.add_scratch(block.name, "embedding.whole", b.types().stored, {kRows, m.hidden_size}) : out;
  block.operations.push_back({.id = "embedding.forward",
                              .kind = OpKind::embedding,
                              .dtype = b.types().statistic,
                              .dims = {.rows = kRows, .hidden = m.hidden_size, .vocab = m.vocab_size},
                              .operands = {writes(whole),
                                           reads(r.tokens),
                                           reads(p.embedding.parameter),
                                           reads(p.position_embedding.parameter),
                                           {}}});
  append(block, sum_over_tensor_ranks(b, "embedding", Phase::forward, whole, scatters ? out : kNoBuffer));
  if (m.embedding_norm)
    append(block, norm_forward(b, "embedding_norm", p.embedding_norm, r.embedding_norm, reads(r.embedding),
                               b.stream_rows()));
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
  if (m.embedding_norm) {
    dout =
        b.add_scratch(block.name, "embedding.gradient", b.types().stored, {b.stream_rows(), m.hidden_size});
    block.operations.push_back({.id = "embedding.zero_gradient",
                                .kind = OpKind::zero,
                                .dtype = b.types().statistic,
                                .operands = {writes(dout)}});
    append(block, norm_backward(b, "embedding_norm", p.embedding_norm, r.embedding_norm, reads(r.embedding),
                                dout, r.residual_gradient));
  }
  if (b.strategy().sequence_parallel) {
    const BufferId whole =
        b.add_scratch(block.name, "embedding.whole.gradient", b.types().stored, {kRows, m.hidden_size});
    block.operations.push_back(gather_rows(b, "embedding", Phase::backward, whole, dout));
    dout = whole;
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
  block.operations.back().dtype = b.types().wide_product;
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
  for (Operation& op :
       matmul_backward(b, "head.logits", d_final_norm, r.logits, inp, {p.head, {}}, head_product(m))) {
    op.dtype = b.types().wide_product;
    block.operations.push_back(std::move(op));
  }
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

struct LayerBlocks {
  // recompute: -1 where everything is kept; weight: -1 where backward is one action
  BlockId forward = -1, recompute = -1, backward = -1, weight = -1;
};

LayerBlocks add_layer_blocks(PlanBuilder& b, const DecoderParameters& p, const TrainingBuffers& r,
                             const LayerResults& results, LayerKind kind) {
  const Recompute recompute = b.strategy().recompute;
  const DecoderParameters again = for_backward(p);
  const std::string forward = kind.prefix() + ".forward", second = kind.prefix() + ".recompute",
                    backward_name = kind.prefix() + ".backward";
  // What backward reads, and what the first forward pass leaves of it.
  LayerResults forward_results = results;
  if (recompute == Recompute::full) forward_results = add_layer_results(b, forward, scratch, {kind});
  if (recompute == Recompute::selective)
    forward_results = with_core_of(results, add_attention_core(b, forward, scratch));

  LayerContext context{.kind = kind,
                       .residual_in = reads(r.residual),
                       .residual_out = writes(r.residual, 1),
                       .rope_table = r.rope_table};
  LayerBlocks blocks;
  blocks.forward = b.add({forward, layer_forward(b, p, forward_results, with_scratch(b, forward, context))});
  if (recompute == Recompute::selective)
    blocks.recompute = b.add(
        {second, attention_core_forward(b, kind, results,
                                        add_kv_of_all_ranks(b, second, "layer.attention.kv_of_all_ranks"))});
  if (recompute == Recompute::full) {
    // The layer's output has served already: the second one goes nowhere.
    context.residual_out =
        writes(b.add_scratch(second, "residual", b.types().stored, {b.stream_rows(), b.model().hidden_size}));
    std::vector<Operation> ops = layer_forward(b, again, results, with_scratch(b, second, context));
    if (b.scenario().implementation.recompute_stops_early) ops = without_unread_end(b, std::move(ops));
    blocks.recompute = b.add({second, std::move(ops)});
  }
  LayerBackward backward = layer_backward(b, backward_name, again, results, context, r.residual_gradient);
  blocks.backward = b.add({backward_name, std::move(backward.input)});
  if (b.splits_backward()) blocks.weight = b.add({weight_block(backward_name), std::move(backward.weight)});
  return blocks;
}

// Parameters and their states are worked on in units: a layer's, the embedding's, the head's. A block of each
// kind of work for each; -1 where there is nothing to do.
struct UnitBlocks {
  BlockId embedding = -1, layer = -1, expert_layer = -1, head = -1;
};

// Of the layers of a model: whether there are dense ones and ones with experts.
bool has_layers(const PlanBuilder& b, bool experts) {
  const Model& m = b.scenario().model;
  return experts ? m.expert_layers() > 0 : m.expert_layers() < m.num_hidden_layers;
}
std::string layer_unit(bool experts) {
  return LayerKind{.experts = experts}.prefix();
}

using Tensors = std::vector<Tensor>;

// Gradients of experts differ from rank to rank of an expert-parallel group, whatever is sharded.
bool sums_norm_over_data(const PlanBuilder& b) {
  return b.strategy().zero_stage > 0 || b.groups().expert >= 0;
}

Operation zero(const std::string& id, const Tensors& unit, BufferId Tensor::*buffer) {
  Operation op{.id = id, .kind = OpKind::zero, .dtype = DType::fp32};
  for (const Tensor& t : unit) op.operands.push_back(writes(t.*buffer));
  return op;
}

// Of what several of the ranks hold alike over which the norm is summed, each adds its part of the square.
std::vector<Operation> squared_norm(const PlanBuilder& b, const Tensors& unit, BufferId norm) {
  const Strategy& s = b.strategy();
  const bool over_data = sums_norm_over_data(b);
  const auto copies = [&](const Tensor& t) {
    const int ranks = t.of_experts ? b.expert_data_ranks() : data_ranks(s);
    return (t.replicated ? s.tensor_parallel : 1) * (over_data && t.zero_stage == 0 ? ranks : 1);
  };
  struct Part {
    const char* id;
    bool replicated, of_experts;
  };
  std::vector<Operation> ops;
  for (const Part& part :
       {Part{"optimizer.squared_norm", false, false}, Part{"optimizer.squared_norm.replicated", true, false},
        Part{"optimizer.squared_norm.experts", false, true}}) {
    Operation op{
        .id = part.id, .kind = OpKind::squared_norm, .dtype = DType::fp32, .operands = {updates(norm)}};
    for (const Tensor& t : unit) {
      if (t.of_experts != part.of_experts) continue;
      if (part.replicated != (t.replicated && s.tensor_parallel > 1)) continue;
      op.operands.push_back(reads(t.gradient_shard));
      op.scalar = copies(t) > 1 ? 1.0f / static_cast<float>(copies(t)) : 0.0f;
    }
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
  if (has_layers(b, false)) blocks.layer = add(layer_unit(false), operations(p.layer_group(false)));
  if (has_layers(b, true)) blocks.expert_layer = add(layer_unit(true), operations(p.layer_group(true)));
  blocks.head = add("head", operations(p.head_group()));
  return blocks;
}

// Gradients to zero, unit by unit: at once, or each `before_backward` of the unit. A tied head's weight is of
// the embedding's unit, but its gradient begins with the head.
UnitBlocks add_zero_blocks(PlanBuilder& b, const DecoderParameters& p, const std::string& name,
                           const std::string& id, BufferId Tensor::*gradient, bool before_backward) {
  Tensors head = p.head_group(), embedding = p.embedding_group();
  if (before_backward && p.tied && !p.head_is_a_copy) {
    head.push_back(p.embedding);
    embedding.erase(embedding.begin());
  }
  const bool whole = gradient == &Tensor::gradient && b.strategy().zero_stage >= 2;
  const auto add = [&](const std::string& unit, Tensors tensors) {
    if (whole) std::erase_if(tensors, [](const Tensor& t) { return t.zero_stage == 0; });
    return tensors.empty() ? BlockId{-1} : b.add({unit + "." + name, {zero(id, tensors, gradient)}});
  };
  UnitBlocks blocks;
  blocks.embedding = add("embedding", embedding);
  for (const bool experts : {false, true})
    if (has_layers(b, experts))
      (experts ? blocks.expert_layer : blocks.layer) = add(layer_unit(experts), p.layer_group(experts));
  blocks.head = add("head", head);
  return blocks;
}

Operation collective(const std::string& id, OpKind kind, DType dtype, std::int32_t group) {
  return {.id = id, .kind = kind, .dtype = dtype, .group = group};
}

// Tensors of experts are exchanged among those that hold the same experts, all others among all that divide
// the batch.
struct DataGroup {
  bool of_experts;
  std::int32_t group;
  std::string prefix;  // of ids
};
std::vector<DataGroup> data_groups(const PlanBuilder& b, const char* what) {
  return {{false, b.groups().data, what}, {true, b.groups().expert_data, std::string(what) + ".experts"}};
}

// Sums of gradients: first of what tensor-parallel ranks hold alike but have each from a part of the work
// (`parts`), then over the ranks that divide the batch. Of each unit one message, whose size is that of the
// unit.
std::vector<Operation> reduce_gradients(const PlanBuilder& b, const Tensors& unit, const Tensors& parts,
                                        const std::vector<BufferId>& key_values) {
  const DType type = b.types().gradient;
  std::vector<Operation> ops;
  if (b.tensor_parallel() && !parts.empty()) {
    Operation op = collective("gradients.norms.all_reduce", OpKind::all_reduce, type, b.groups().tensor);
    for (const Tensor& t : parts) op.operands.push_back(updates(t.gradient));
    ops.push_back(std::move(op));
  }
  if (!key_values.empty()) {
    Operation op =
        collective("gradients.key_values.all_reduce", OpKind::all_reduce, type, b.groups().key_value);
    for (const BufferId rows : key_values) op.operands.push_back(updates(rows));
    ops.push_back(std::move(op));
  }
  const int zero_stage = b.strategy().zero_stage;
  const bool whole =
      zero_stage == 0 || (zero_stage == 1 && b.scenario().implementation.data_parallel.reduces_whole);
  for (const DataGroup& g : data_groups(b, "gradients")) {
    if (g.group < 0) continue;
    Operation op = collective(g.prefix + (whole ? ".all_reduce" : ".reduce_scatter"),
                              whole ? OpKind::all_reduce : OpKind::reduce_scatter, type, g.group);
    for (const Tensor& t : unit) {
      if (t.of_experts != g.of_experts) continue;
      if (whole) {
        op.operands.push_back(updates(t.gradient));
        continue;
      }
      // From stage 2 on each micro-batch's gradients are reduced, and added up in shards.
      op.operands.push_back(t.zero_stage == 1 ? writes(t.gradient_shard) : updates(t.gradient_shard));
      op.operands.push_back(reads(t.gradient));
    }
    if (!op.operands.empty()) ops.push_back(std::move(op));
  }
  return ops;
}

// What sequence-parallel ranks have from their own rows, and all from their own heads.
Tensors summed_over_tensor_ranks(const PlanBuilder& b, const DecoderParameters& p, bool experts) {
  Tensors parts;
  if (b.strategy().sequence_parallel) parts = p.of_own_rows(experts);
  if (p.qk_norm.weight && p.qk_norm.weight.replicated) parts.push_back(p.qk_norm.weight);
  return parts;
}

std::vector<Operation> gather_parameters(const PlanBuilder& b, const Tensors& unit, BufferId Tensor::*whole) {
  std::vector<Operation> ops;
  for (const DataGroup& g : data_groups(b, "parameters")) {
    Operation op = collective(g.prefix + ".all_gather", OpKind::all_gather, b.types().stored, g.group);
    for (const Tensor& t : unit) {
      if (t.of_experts != g.of_experts || t.zero_stage == 0) continue;
      op.operands.push_back(writes(t.*whole));
      op.operands.push_back(reads(t.parameter_shard));
    }
    if (!op.operands.empty()) ops.push_back(std::move(op));
  }
  return ops;
}

// All blocks that a step is made of.
struct StepBlocks {
  BlockId embedding = 0, head = 0, head_backward = 0, embedding_backward = 0;
  std::vector<LayerKind> kinds;
  std::vector<LayerBlocks> layers;  // of each kind
  BlockId send_activation = -1, receive_activation = -1, send_gradient = -1, receive_gradient = -1;
  UnitBlocks zero;        // of what is accumulated over the step
  UnitBlocks zero_whole;  // ZeRO 2, 3: of one micro-batch's gradients
  UnitBlocks reduce;
  UnitBlocks gather_for_forward, gather_for_backward;  // ZeRO 3
  UnitBlocks gather_updated;                           // ZeRO 1, 2
  BlockId zero_norm = 0, sum_norm = -1, clip = 0, sum_tied_embedding = -1;
  UnitBlocks norm, update;
};

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

void add_reduction_blocks(PlanBuilder& b, const DecoderParameters& p, StepBlocks& blocks) {
  const int zero_stage = b.strategy().zero_stage;
  const auto add = [&](const std::string& name, std::vector<Operation> ops) {
    return ops.empty() ? BlockId{-1} : b.add({name, std::move(ops)});
  };
  const auto of_own_rows = [&](const Affine& norm) {
    Tensors parts;
    if (!b.strategy().sequence_parallel) return parts;
    if (norm.weight) parts.push_back(norm.weight);
    if (norm.bias) parts.push_back(norm.bias);
    return parts;
  };
  const auto layer = [&](bool experts) {
    if (!has_layers(b, experts)) return BlockId{-1};
    return add(layer_unit(experts) + ".reduce_gradients",
               reduce_gradients(b, p.layer_group(experts), summed_over_tensor_ranks(b, p, experts),
                                p.key_value_gradients));
  };
  blocks.reduce = {
      .embedding = add("embedding.reduce_gradients",
                       reduce_gradients(b, p.embedding_group(), of_own_rows(p.embedding_norm), {})),
      .layer = layer(false),
      .expert_layer = layer(true),
      .head =
          add("head.reduce_gradients", reduce_gradients(b, p.head_group(), of_own_rows(p.final_norm), {}))};
  if (zero_stage == 1 || zero_stage == 2)
    blocks.gather_updated = add_unit_blocks(b, p, "gather_updated", [&](const Tensors& unit) {
      return gather_parameters(b, unit, &Tensor::parameter);
    });
  if (zero_stage < 2) return;

  blocks.zero_whole =
      add_zero_blocks(b, p, "zero_whole_gradients", "gradients.zero", &Tensor::gradient, true);
  if (zero_stage < 3) return;
  const auto for_layers = [&](auto block_of) {
    UnitBlocks u;
    for (const bool experts : {false, true})
      if (has_layers(b, experts))
        (experts ? u.expert_layer : u.layer) = block_of(layer_unit(experts), p.layer_group(experts));
    return u;
  };
  Tensors head = p.head_group();
  // The copy of a tied head's weight for backward: forward's lives until the head.
  if (p.tied && !p.head_is_a_copy) head.push_back(p.embedding);
  blocks.gather_for_forward = add_unit_blocks(b, p, "gather_for_forward", [&](const Tensors& unit) {
    return gather_parameters(b, unit, &Tensor::parameter);
  });
  // An embedding's backward pass reads no parameter.
  const auto gather_of = [&](const std::string& unit, const Tensors& tensors) {
    return add(unit + ".gather_for_backward", gather_parameters(b, tensors, &Tensor::parameter_for_backward));
  };
  blocks.gather_for_backward = for_layers(gather_of);
  blocks.gather_for_backward.head = gather_of("head", head);
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
  if (sums_norm_over_data(b)) add_sum("data", b.groups().data);
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
  const bool fresh = b.scenario().implementation.memory.weight_gradient == WeightGradient::fresh;
  blocks.zero = add_zero_blocks(b, p, fresh ? "begin_gradients" : "zero_gradients",
                                "optimizer.zero_gradients", accumulated, fresh);
  blocks.embedding = b.add(embedding_forward(b, p, r));
  blocks.kinds = layer_kinds(b.scenario().model);
  const LayerResults results = add_layer_results(b, "", kept, blocks.kinds);
  for (const LayerKind kind : blocks.kinds) blocks.layers.push_back(add_layer_blocks(b, p, r, results, kind));
  blocks.head = b.add(head_forward(b, p, r));
  blocks.head_backward = b.add(head_backward(b, again, r));
  blocks.embedding_backward = b.add(embedding_backward(b, p, r));
  add_pipeline_blocks(b, r, blocks);
  add_reduction_blocks(b, p, blocks);
  add_optimizer_blocks(b, p, r.gradient_norm, blocks);
  return blocks;
}

// The head's FLOPs as a number of layers: V h against the products of one.
double head_in_layers(const Model& m) {
  const ParameterCount count = count_parameters(m);
  return static_cast<double>(m.vocab_size) * static_cast<double>(m.hidden_size) /
         static_cast<double>(count.attention_per_layer + count.mlp_per_layer);
}

// The program of one pipeline stage.
class StageWriter {
 public:
  StageWriter(const Scenario& scenario, const StepBlocks& blocks, const Schedule& schedule,
              std::int32_t stage)
      : blocks_(blocks),
        schedule_(schedule),
        stage_(stage),
        model_(scenario.model),
        layers_(static_cast<std::int32_t>(scenario.model.num_hidden_layers)),
        zero_stage_(scenario.strategy.zero_stage),
        data_parallel_(scenario.implementation.data_parallel),
        head_layers_(scenario.implementation.pipeline.balances_head ? head_in_layers(scenario.model) : 0),
        fresh_gradients_(scenario.implementation.memory.weight_gradient == WeightGradient::fresh),
        variables_{.batch = scenario.workload.micro_batch_size,
                   .query_length = scenario.workload.seq_len / scenario.strategy.context_parallel,
                   .kv_length = scenario.workload.seq_len} {}

  Program write() {
    program_.role = "stage " + std::to_string(stage_);
    if (gathers_ahead())
      for_each_unit([&](const Unit& u) {
        updated_.push_back({u, collective(u.of(blocks_.gather_updated), Phase::optimizer, u.layer)});
      });
    if (!fresh_gradients_)
      for_each_unit([&](const Unit& u) { compute(u.of(blocks_.zero), Phase::optimizer, u.layer); });
    for (const Slot& slot : schedule_.slots[static_cast<std::size_t>(stage_)]) {
      micro_batch_ = slot.micro_batch;
      chunk_ = slot.chunk;
      const LayerRange range = layers_of(piece(), schedule_.pieces(), layers_, head_layers_);
      switch (slot.pass) {
        case Pass::forward:
          forward(range);
          break;
        case Pass::backward:
        case Pass::backward_input:
          backward(range);
          break;
        case Pass::backward_weight:
          for (std::int32_t l = range.last; l-- > range.first;) {
            compute(layer_blocks(l).weight, Phase::backward, l);
            reduce(layer_unit_of(l).of(blocks_.reduce), l);
          }
          break;
      }
    }
    micro_batch_ = chunk_ = 0;
    optimizer();
    program_.sections.push_back({"step", 0, program_.actions.size()});
    return std::move(program_);
  }

 private:
  struct Unit {
    BlockId UnitBlocks::*member;
    std::int32_t layer;
    BlockId of(const UnitBlocks& blocks) const { return blocks.*member; }
  };

  Unit layer_unit_of(std::int32_t layer) const {
    return {model_.is_expert_layer(layer) ? &UnitBlocks::expert_layer : &UnitBlocks::layer, layer};
  }
  const LayerBlocks& layer_blocks(std::int32_t layer) const {
    const LayerKind kind = kind_of_layer(model_, layer);
    const auto at = std::find(blocks_.kinds.begin(), blocks_.kinds.end(), kind) - blocks_.kinds.begin();
    return blocks_.layers[static_cast<std::size_t>(at)];
  }

  std::int32_t piece() const { return schedule_.piece(stage_, chunk_); }
  std::int32_t stage_of(std::int32_t p) const { return p % schedule_.stages; }
  std::int32_t chunk_of(std::int32_t p) const { return p / schedule_.stages; }
  bool is_first() const { return piece() == 0; }
  bool is_last() const { return piece() == schedule_.pieces() - 1; }

  template <class Visit>
  void for_each_unit(Visit visit) const {
    for (std::int32_t chunk = 0; chunk < schedule_.chunks; ++chunk) {
      const std::int32_t p = schedule_.piece(stage_, chunk);
      const LayerRange range = layers_of(p, schedule_.pieces(), layers_, head_layers_);
      if (p == 0) visit(Unit{&UnitBlocks::embedding, 0});
      for (std::int32_t l = range.first; l < range.last; ++l) visit(layer_unit_of(l));
      if (p == schedule_.pieces() - 1) visit(Unit{&UnitBlocks::head, layers_});
    }
  }

  std::int32_t add(BlockId block, Phase phase, std::int32_t layer, std::int32_t stream, std::int32_t wait) {
    program_.actions.push_back({.block = block,
                                .phase = phase,
                                .layer = layer,
                                .micro_batch = micro_batch_,
                                .chunk = chunk_,
                                .stream = stream,
                                .wait = wait,
                                .variables = variables_});
    return static_cast<std::int32_t>(program_.actions.size()) - 1;
  }
  void compute(BlockId block, Phase phase, std::int32_t layer, std::int32_t wait = -1) {
    if (block >= 0) last_compute_ = add(block, phase, layer, kComputeStream, wait);
  }
  // A collective that begins when what has been computed so far is there.
  std::int32_t collective(BlockId block, Phase phase, std::int32_t layer) {
    if (block < 0) return -1;
    return last_collective_ = add(block, phase, layer, kCollectiveStream, last_compute_);
  }

  void send(BlockId block, Phase phase, std::int32_t layer, std::int32_t to_piece) {
    Action& a =
        program_.actions[static_cast<std::size_t>(add(block, phase, layer, kSendStream, last_compute_))];
    a.peer = stage_of(to_piece);
    a.chunk = chunk_of(to_piece);
  }
  void receive(BlockId block, Phase phase, std::int32_t layer, std::int32_t from_piece) {
    compute(block, phase, layer);
    program_.actions.back().peer = stage_of(from_piece);
  }

  // Gradients of a unit are complete with the last micro-batch; from ZeRO 2 on none waits for it.
  void reduce(BlockId block, std::int32_t layer) {
    if (zero_stage_ < 2 && micro_batch_ < schedule_.micro_batches - 1) return;
    const bool beside =
        zero_stage_ == 1 ? data_parallel_.overlaps_sharded_reduction : data_parallel_.overlaps_reduction;
    if (zero_stage_ < 2 && !beside)
      reduced_last_.push_back({block, layer});
    else
      collective(block, Phase::backward, layer);
  }

  // Parameters that the optimizer of the step before updated are gathered beside the first forward pass.
  bool gathers_ahead() const {
    return data_parallel_.overlaps_gather && (zero_stage_ == 1 || zero_stage_ == 2);
  }
  std::int32_t gathered_ahead(const Unit& unit) {
    const auto found = std::find_if(updated_.begin(), updated_.end(), [&](const Updated& u) {
      return u.unit.member == unit.member && u.unit.layer == unit.layer;
    });
    return found == updated_.end() ? -1 : std::exchange(found->action, -1);
  }

  // Runs work(unit, gathered) for each; under ZeRO 3 each unit's parameters are gathered while the one before
  // it computes.
  template <class Work>
  void with_parameters(const std::vector<Unit>& units, const UnitBlocks& gather, Phase phase, Work work) {
    std::vector<std::int32_t> gathered(units.size() + 1, -1);
    const auto begin = [&](std::size_t i) {
      if (i < units.size()) gathered[i] = collective(units[i].of(gather), phase, units[i].layer);
    };
    begin(0);
    for (std::size_t i = 0; i < units.size(); ++i) {
      begin(i + 1);
      work(units[i], gathered[i]);
    }
  }

  void forward(LayerRange range) {
    if (!is_first()) receive(blocks_.receive_activation, Phase::forward, range.first, piece() - 1);
    std::vector<Unit> units;
    if (is_first()) units.push_back({&UnitBlocks::embedding, 0});
    for (std::int32_t l = range.first; l < range.last; ++l) units.push_back(layer_unit_of(l));
    if (is_last()) units.push_back({&UnitBlocks::head, layers_});
    const auto work = [&](const Unit& u) {
      if (u.member == &UnitBlocks::embedding) return blocks_.embedding;
      return u.member == &UnitBlocks::head ? blocks_.head : layer_blocks(u.layer).forward;
    };
    with_parameters(
        units, blocks_.gather_for_forward, Phase::forward,
        [&](const Unit& u, std::int32_t gathered) {
          if (gathered < 0) gathered = gathered_ahead(u);
          compute(work(u), Phase::forward, u.layer, gathered);
        });
    if (!is_last()) send(blocks_.send_activation, Phase::forward, range.last, piece() + 1);
  }

  void backward(LayerRange range) {
    if (!is_last()) receive(blocks_.receive_gradient, Phase::backward, range.last, piece() + 1);
    std::vector<Unit> units;
    if (is_last()) units.push_back({&UnitBlocks::head, layers_});
    for (std::int32_t l = range.last; l-- > range.first;) units.push_back(layer_unit_of(l));
    if (is_first()) units.push_back({&UnitBlocks::embedding, 0});
    const auto work = [&](const Unit& u) {
      if (u.member == &UnitBlocks::embedding) return blocks_.embedding_backward;
      return u.member == &UnitBlocks::head ? blocks_.head_backward : layer_blocks(u.layer).backward;
    };
    with_parameters(
        units, blocks_.gather_for_backward, Phase::backward, [&](const Unit& u, std::int32_t gathered) {
          const bool is_layer = u.member != &UnitBlocks::embedding && u.member != &UnitBlocks::head;
          compute(u.of(blocks_.zero_whole), Phase::backward, u.layer);
          if (is_layer && layer_blocks(u.layer).recompute >= 0) {
            compute(layer_blocks(u.layer).recompute, Phase::recompute, u.layer, gathered);
            gathered = -1;
          }
          compute(work(u), Phase::backward, u.layer, gathered);
          if (!is_layer || layer_blocks(u.layer).weight < 0) reduce(u.of(blocks_.reduce), u.layer);
        });
    if (!is_first()) send(blocks_.send_gradient, Phase::backward, range.first, piece() - 1);
  }

  void optimizer() {
    for (const auto& [block, layer] : reduced_last_) collective(block, Phase::backward, layer);
    compute(blocks_.zero_norm, Phase::optimizer, 0, last_collective_);
    if (stage_ == 0 || stage_ == schedule_.stages - 1)
      compute(blocks_.sum_tied_embedding, Phase::optimizer, 0);
    for_each_unit([&](const Unit& u) { compute(u.of(blocks_.norm), Phase::optimizer, u.layer); });
    compute(blocks_.sum_norm, Phase::optimizer, 0);
    compute(blocks_.clip, Phase::optimizer, 0);
    for_each_unit([&](const Unit& u) {
      compute(u.of(blocks_.update), Phase::optimizer, u.layer);
      if (!gathers_ahead()) collective(u.of(blocks_.gather_updated), Phase::optimizer, u.layer);
    });
  }

  const StepBlocks& blocks_;
  const Schedule& schedule_;
  std::int32_t stage_;
  const Model& model_;
  std::int32_t layers_;
  int zero_stage_;
  const DataParallelProfile& data_parallel_;
  double head_layers_;
  bool fresh_gradients_;  // begun by the first micro-batch
  Variables variables_;
  Program program_;
  std::int32_t micro_batch_ = 0, chunk_ = 0;
  std::int32_t last_compute_ = -1, last_collective_ = -1;  // indices of actions
  struct Updated {
    Unit unit;
    std::int32_t action;  // that gathers it; -1 once it has been waited for
  };
  std::vector<Updated> updated_;
  std::vector<std::pair<BlockId, std::int32_t>> reduced_last_;  // blocks and layers
};

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
  add_extra_tensors(plan);
  for (std::int32_t stage = 0; stage < schedule.stages; ++stage)
    plan.programs.push_back(StageWriter(scenario, blocks, schedule, stage).write());
  return plan;
}

}  // namespace sim
