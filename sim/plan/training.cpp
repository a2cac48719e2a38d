// A training step sets gradients to zero, runs forward and backward for each micro-batch, then the optimizer.
// Exchanges of ranks stand where they must happen. Whoever runs the plan says how far compute hides them.
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/plan/decoder.h"
#include "sim/plan/extra_tensors.h"
#include "sim/plan/fp8.h"
#include "sim/plan/layer_division.h"
#include "sim/plan/multi_token_prediction.h"
#include "sim/plan/offload.h"
#include "sim/plan/optimizer.h"
#include "sim/plan/programs.h"
#include "sim/plan/recompute.h"
#include "sim/plan/schedule.h"
#include "sim/plan/step_blocks.h"
#include "sim/plan/writing.h"

namespace sim {

// What the names of a unit's blocks begin with.
template <>
inline constexpr std::array<std::string_view, kCount<Unit>> kOtherWords<Unit>{
    "embedding",       "layer",     "layer.experts", "layer.state_space",
    "layer.attention", "layer.mlp", "layer.experts", "head"};

namespace {

struct TrainingBuffers {
  BufferId tokens, targets, rope_table = kNoBuffer, local_rope_table = kNoBuffer, losses, gradient_norm;
  BufferId rope_table_of(const LayerKind& kind) const {
    return kind.window && local_rope_table != kNoBuffer ? local_rope_table : rope_table;
  }
  BufferId residual;  // an instance before each layer and one after the last
  // Where several layers are recomputed from one kept input: the stream between them, and once more.
  BufferId residual_passed = kNoBuffer, residual_again = kNoBuffer;
  BufferId residual_gradient;  // one for all layers, updated in place
  BufferId embedding_dropout_mask = kNoBuffer;
  BufferId embedding = kNoBuffer;  // before its norm
  NormResult embedding_norm;       // into the residual stream
  NormResult final_norm;
  DType logits_type = DType::fp32;
  BufferId logits = kNoBuffer;  // later also their gradient; scratch where the head runs in chunks
};

int head_chunks(const PlanBuilder& b) {
  return b.scenario().implementation.head_chunks;
}

BufferId add_gradient_norm(PlanBuilder& b) {
  return b.add({.name = std::string(buffer_names::gradient_norm),
                .buffer_class = BufferClass::optimizer,
                .dtype = DType::fp64,
                .shape = {3},
                .lifetime = Lifetime::plan});
}

BufferId add_residual(PlanBuilder& b) {
  return b.add_kept("residual", b.types().stored, {b.stream_rows(), b.model().hidden_size});
}
BufferId add_residual_gradient(PlanBuilder& b) {
  return activation(b, "", "residual.gradient", b.types().stored, {b.stream_rows(), b.model().hidden_size});
}

TrainingBuffers add_buffers(PlanBuilder& b) {
  const Model& m = b.model();
  const ElementTypes& t = b.types();
  TrainingBuffers r;
  r.tokens = b.add_input(buffer_names::tokens, DType::int32, {kBatch, kQueryLength}, true);
  r.targets = b.add_input(buffer_names::targets, DType::int32, {kBatch, kQueryLength}, true);
  if (m.position == Position::rope)
    r.rope_table =
        b.add_input(buffer_names::rope_table, t.statistic, {b.scenario().workload.seq_len, m.rope_size()});
  r.local_rope_table = add_local_rope_table(b, b.scenario().workload.seq_len);
  r.losses = b.add({.name = std::string(buffer_names::losses),
                    .buffer_class = BufferClass::activation,
                    .dtype = t.statistic,
                    .shape = {kRows},
                    .lifetime = Lifetime::plan,
                    .per_micro_batch = true});
  r.gradient_norm = add_gradient_norm(b);
  const auto add_activation = [&](std::string_view name, DType dtype, const Shape& shape) {
    return activation(b, "", std::string(name), dtype, shape);
  };
  const Extent rows = b.stream_rows();
  r.residual = add_residual(b);
  const std::vector<RecomputePlace> places = recompute_places(b.scenario());
  if (places.size() > 1) {
    r.residual_passed = b.add_kept("residual.passed", t.stored, {rows, m.hidden_size});
    r.residual_again = b.add_kept("residual.again", t.stored, {rows, m.hidden_size});
  }
  r.residual_gradient = add_residual_gradient(b);
  if (uses_dropout(b.scenario()))
    r.embedding_dropout_mask = add_activation("embedding.dropout_mask", DType::int8, {rows, m.hidden_size});
  if (m.embedding_norm) {
    r.embedding = add_activation("embedding.out", t.stored, {rows, m.hidden_size});
    r.embedding_norm.out = r.residual;
    if (m.norm == Norm::layernorm)
      r.embedding_norm.mean = add_activation("embedding_norm.mean", t.statistic, {rows});
    r.embedding_norm.rstd = add_activation("embedding_norm.rstd", t.statistic, {rows});
  }
  r.final_norm = add_norm_result(b, "", "final_norm", activation, true);
  // Fewer bits than fp32 mean mixed precision.
  if (t.stored != DType::fp32)
    r.logits_type =
        sixteen_bits_as(t.stored, b.scenario().implementation.memory.logits_dtype.value_or(t.statistic));
  if (head_chunks(b) == 1)
    r.logits = add_activation(buffer_names::logits, r.logits_type, {kRows, m.vocab_size});
  return r;
}

void append(Block& block, std::vector<Operation> operations) {
  append(block.operations, std::move(operations));
}

Block embedding_forward(PlanBuilder& b, const DecoderParameters& p, const TrainingBuffers& r) {
  const Model& m = b.model();
  Block block{"embedding.forward", {}, BlockRole::embedding, BlockPass::forward};
  const bool scatters = b.strategy().sequence_parallel;
  const BufferId out = m.embedding_norm ? r.embedding : r.residual;
  const bool scales = m.embedding_multiplier != 1;
  const BufferId rows = scales ? b.add_scratch(block.name, "embedding.unscaled", b.types().stored,
                                               {b.stream_rows(), m.hidden_size})
                               : out;
  const BufferId whole =
      scatters ? b.add_scratch(block.name, "embedding.whole", b.types().stored, {kRows, m.hidden_size})
               : rows;
  block.operations.push_back(operation("embedding.forward", OpKind::embedding, b.types().statistic,
                                       {.rows = kRows, .hidden = m.hidden_size, .vocab = m.vocab_size},
                                       {writes(whole),
                                        reads(r.tokens),
                                        reads(p.embedding.parameter),
                                        reads(p.position_embedding.parameter),
                                        {}}));
  append(block, sum_over_tensor_ranks(b, "embedding", Phase::forward, whole, scatters ? rows : kNoBuffer));
  if (scales) block.operations.push_back(scale_embedding(b, "forward", writes(out), rows));
  if (m.embedding_norm)
    append(block, norm_forward(b, "embedding_norm", p.embedding_norm, r.embedding_norm, reads(r.embedding),
                               b.stream_rows()));
  if (r.embedding_dropout_mask != kNoBuffer)
    block.operations.push_back(
        operation("embedding.dropout.forward", OpKind::dropout, b.types().statistic,
                  {.rows = b.stream_rows(), .cols = m.hidden_size},
                  {updates(r.residual), writes(r.embedding_dropout_mask), reads(r.residual)}));
  return block;
}

Block embedding_backward(PlanBuilder& b, const DecoderParameters& p, const TrainingBuffers& r) {
  const Model& m = b.model();
  Block block{"embedding.backward", {}, BlockRole::embedding, BlockPass::backward};
  if (r.embedding_dropout_mask != kNoBuffer)
    block.operations.push_back(operation(
        "embedding.dropout.backward", OpKind::dropout_backward, b.types().statistic,
        {.rows = b.stream_rows(), .cols = m.hidden_size},
        {updates(r.residual_gradient), reads(r.residual_gradient), reads(r.embedding_dropout_mask)}));
  BufferId dout = r.residual_gradient;
  if (m.embedding_norm) {
    dout =
        b.add_scratch(block.name, "embedding.gradient", b.types().stored, {b.stream_rows(), m.hidden_size});
    block.operations.push_back(
        operation("embedding.zero_gradient", OpKind::zero, b.types().statistic, {}, {writes(dout)}));
    append(block, norm_backward(b, "embedding_norm", p.embedding_norm, r.embedding_norm, reads(r.embedding),
                                dout, r.residual_gradient));
  }
  if (m.embedding_multiplier != 1) {
    const BufferId scaled = b.add_scratch(block.name, "embedding.unscaled.gradient", b.types().stored,
                                          {b.stream_rows(), m.hidden_size});
    block.operations.push_back(scale_embedding(b, "backward", writes(scaled), dout));
    dout = scaled;
  }
  if (b.strategy().sequence_parallel) {
    const BufferId whole =
        b.add_scratch(block.name, "embedding.whole.gradient", b.types().stored, {kRows, m.hidden_size});
    block.operations.push_back(gather_rows(b, "embedding", Phase::backward, whole, dout));
    dout = whole;
  }
  block.operations.push_back(operation(
      "embedding.backward", OpKind::embedding_backward, b.types().statistic,
      {.rows = kRows, .hidden = m.hidden_size, .vocab = m.vocab_size},
      {updates(p.embedding.gradient), updates(p.position_embedding.gradient), reads(dout), reads(r.tokens)}));
  return block;
}

// The buffers of the head's product, the loss and their backward pass, for all rows or for one chunk of them.
struct HeadRows {
  Extent rows;
  BufferId hidden, logits, targets, losses, d_hidden;
};

// The rows of one head chunk, as a view of a buffer of all rows.
BufferId chunk_of(PlanBuilder& b, BufferId whole, int chunk) {
  Buffer part = b.buffer(whole);
  part.name += ".chunk_" + std::to_string(chunk);
  const Extent rows = kRows / head_chunks(b);
  const bool by_sequence = part.shape.front() == kBatch;  // (batch, query_length), not (rows, ...)
  part.shape = by_sequence || part.shape.size() == 1 ? Shape{rows} : Shape{rows, part.shape[1]};
  part.view_of = whole;
  part.part = chunk;
  return b.add(std::move(part));
}

Dims head_product(const Model& m, Extent rows) {
  return {.rows = rows, .cols = m.vocab_size, .inner = m.hidden_size};
}

// Three numbers for each row: those of this rank, and those of all ranks.
struct LossStatistics {
  BufferId own = kNoBuffer, all = kNoBuffer;
};
LossStatistics add_loss_statistics(PlanBuilder& b, const std::string& block, Extent rows) {
  if (!b.tensor_parallel()) return {};
  const DType type = b.types().statistic;
  return {
      b.add_scratch(block, "head.statistics", type, {rows, 3}),
      b.add_scratch(block, "head.statistics_of_all_ranks", type, {b.strategy().tensor_parallel, rows, 3})};
}

// Appends the logits, the loss, and the logits' gradient, which takes their place. The loss needs every row's
// sum over the vocabulary. Where ranks divide the vocabulary, they exchange three numbers for each row and
// rank. (Megatron-LM exchanges them in three all-reduces.)
void append_loss(Block& block, const PlanBuilder& b, const DecoderParameters& p, const HeadRows& r,
                 const LossStatistics& statistics) {
  const Workload& w = b.scenario().workload;
  const DType type = b.types().statistic;
  const auto cap = static_cast<float>(b.model().final_logit_softcapping);
  // Where ranks divide the vocabulary, they know how many words are theirs.
  const std::int64_t vocab = b.model().vocab_size, words = b.scenario().model.vocab_size;
  const Dims dims{.rows = r.rows, .vocab = vocab, .words = b.tensor_parallel() || vocab == words ? 0 : words};
  block.operations.push_back(matmul(b, "head.logits.forward", writes(r.logits), reads(r.hidden), {p.head, {}},
                                    {}, head_product(b.model(), r.rows)));
  block.operations.back().dtype = b.types().wide_product;
  if (statistics.own != kNoBuffer) {
    block.operations.push_back(operation("head.cross_entropy_statistics", OpKind::cross_entropy_statistics,
                                         type, dims,
                                         {writes(statistics.own), reads(r.logits), reads(r.targets)}));
    block.operations.back().cap = cap;
    block.operations.push_back(collective("head.cross_entropy.all_gather", OpKind::all_gather, type,
                                          b.groups().tensor,
                                          {writes(statistics.all), reads(statistics.own)}));
  }
  block.operations.push_back(
      {.id = "head.cross_entropy",
       .kind = OpKind::cross_entropy,
       .dtype = type,
       .dims = dims,
       .operands = {updates(r.logits), writes(r.losses), reads(r.targets), reads(statistics.all)},
       .scalar = 1.0f / static_cast<float>(w.global_batch_size * w.seq_len),
       .cap = cap});
}

void append_head_products_backward(Block& block, const PlanBuilder& b, const DecoderParameters& p,
                                   const HeadRows& r) {
  for (Operation& op : matmul_backward(b, "head.logits", r.d_hidden, r.logits, r.hidden, {p.head, {}},
                                       head_product(b.model(), r.rows))) {
    if (info(op.kind).direction == Direction::weight_gradient && !p.head.learns()) continue;
    op.dtype = b.types().wide_product;
    block.operations.push_back(std::move(op));
  }
}

// The final norm's output for the rows of all ranks.
BufferId append_gathered_hidden(Block& block, PlanBuilder& b, const TrainingBuffers& r, Phase pass) {
  if (!b.strategy().sequence_parallel) return r.final_norm.out;
  const BufferId whole =
      b.add_scratch(block.name, "final_norm.gathered", b.types().stored, {kRows, b.model().hidden_size});
  block.operations.push_back(gather_rows(b, "head.logits", pass, whole, r.final_norm.out));
  return whole;
}

// With chunks, a chunk's logits are used up before the next ones come, so all but the norm runs in backward.
Block head_forward(PlanBuilder& b, const DecoderParameters& p, const TrainingBuffers& r,
                   const std::string& name) {
  Block block{name,
              norm_forward(b, "final_norm", p.final_norm, r.final_norm, reads(r.residual), b.stream_rows()),
              BlockRole::head, BlockPass::forward};
  if (head_chunks(b) > 1) return block;
  const BufferId hidden = append_gathered_hidden(block, b, r, Phase::forward);
  append_loss(block, b, p, {kRows, hidden, r.logits, r.targets, r.losses, kNoBuffer},
              add_loss_statistics(b, block.name, kRows));
  return block;
}

Block head_backward(PlanBuilder& b, const DecoderParameters& p, const TrainingBuffers& r,
                    const std::string& name) {
  const Model& m = b.model();
  Block block{name, {}, BlockRole::head, BlockPass::backward};
  const int chunks = head_chunks(b);
  const BufferId hidden = append_gathered_hidden(block, b, r, Phase::backward);
  const BufferId d_rows = b.strategy().sequence_parallel
                              ? b.add_scratch(block.name, "final_norm.rows.gradient", b.types().stored,
                                              {b.stream_rows(), m.hidden_size})
                              : kNoBuffer;
  // After a chunk's last product nothing needs its rows of the final norm's output, so their gradient takes
  // their place.
  const BufferId d_final_norm =
      chunks > 1 ? hidden
                 : b.add_scratch(block.name, "final_norm.gradient", b.types().stored, {kRows, m.hidden_size});
  if (chunks == 1) {
    append_head_products_backward(block, b, p, {kRows, hidden, r.logits, r.targets, r.losses, d_final_norm});
  } else {
    const Extent rows = kRows / chunks;
    const BufferId logits =
        b.add_scratch(block.name, std::string(buffer_names::logits), r.logits_type, {rows, m.vocab_size});
    const LossStatistics statistics = add_loss_statistics(b, block.name, rows);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const BufferId of_hidden = chunk_of(b, hidden, chunk);
      const HeadRows of_chunk{
          rows, of_hidden, logits, chunk_of(b, r.targets, chunk), chunk_of(b, r.losses, chunk), of_hidden};
      append_loss(block, b, p, of_chunk, statistics);
      append_head_products_backward(block, b, p, of_chunk);
    }
  }
  append(block, sum_over_tensor_ranks(b, "head.logits", Phase::backward, d_final_norm, d_rows));
  // Norms add to the residual stream's gradient. This norm is the first, so the gradient starts at zero.
  block.operations.push_back(operation("residual.zero_gradient", OpKind::zero, b.types().statistic, {},
                                       {writes(r.residual_gradient)}));
  append(block, norm_backward(b, "final_norm", p.final_norm, r.final_norm, reads(r.residual),
                              r.residual_gradient, d_rows != kNoBuffer ? d_rows : d_final_norm));
  return block;
}

// A module of multi-token prediction and its loss, in the head's blocks under ids of its own.
class Prediction {
 public:
  // `before`: the buffers of the model's own head, or those of the module before this one.
  Prediction(PlanBuilder& b, const TrainingBuffers& before, std::size_t module)
      : b_(b),
        before_(before),
        prefix_(module_prefix(module)),
        buffers_(add_prediction_buffers(b, module)),
        own_(before) {
    const auto add = [&](const char* name, const Shape& shape) {
      return activation(b, "", prefix_ + name, b.types().statistic, shape);
    };
    own_.residual = buffers_.out;
    own_.residual_gradient = buffers_.gradient;
    own_.targets = b.add_input(prefix_ + "targets", DType::int32, {kBatch, kQueryLength}, true);
    own_.losses = add("losses", {kRows});
    own_.logits_type = b.types().statistic;
    if (head_chunks(b) == 1) own_.logits = add("logits", {kRows, b.model().vocab_size});
    own_.final_norm = add_norm_result(b, "", prefix_ + "final_norm", activation, true);
  }

  const TrainingBuffers& buffers() const { return own_; }

  // A module's layer is of the same kind as the model's last layer.
  LayerKind last_kind() const {
    return kind_of_layer(b_.scenario(), b_.scenario().model.num_hidden_layers - 1);
  }

  void append_forward(Block& head, const DecoderParameters& p) const {
    append_named(head, prediction_forward(b_, prefix_ + "forward", p, buffers_, before_.targets,
                                          before_.residual, before_.rope_table_of(last_kind())));
    append_named(head, head_forward(b_, with_own_norm(p), own_, prefix_ + "head.forward").operations);
  }
  // Begins the gradient of the module's hidden state. Further modules add to it.
  void append_head_backward(Block& head, const DecoderParameters& p) const {
    append_named(head, head_backward(b_, with_own_norm(p), own_, prefix_ + "head.backward").operations);
  }
  void append_backward(Block& head, const DecoderParameters& p) const {
    append_named(head,
                 prediction_backward(b_, prefix_ + "backward", p, buffers_, before_.targets, before_.residual,
                                     before_.residual_gradient, before_.rope_table_of(last_kind())));
  }

 private:
  static DecoderParameters with_own_norm(DecoderParameters p) {
    p.final_norm = p.prediction.final_norm;
    return p;
  }
  void append_named(Block& head, std::vector<Operation> operations) const {
    for (Operation& op : operations) {
      op.id = prefix_ + op.id;
      head.operations.push_back(std::move(op));
    }
  }

  PlanBuilder& b_;
  TrainingBuffers before_;
  std::string prefix_;
  PredictionBuffers buffers_;
  TrainingBuffers own_;
};

void append_predictions(PlanBuilder& b, const TrainingBuffers& r, const DecoderParameters& p,
                        const DecoderParameters& again, Block& head, Block& head_back) {
  std::vector<Prediction> modules;
  modules.reserve(p.modules.size());
  for (std::size_t m = 0; m < p.modules.size(); ++m)
    modules.emplace_back(b, m == 0 ? r : modules.back().buffers(), m);
  for (std::size_t m = 0; m < modules.size(); ++m) modules[m].append_forward(head, p.modules[m]);
  b.split_backward(false);  // the head's backward pass is never split, whatever the schedule
  for (std::size_t m = modules.size(); m-- > 0;) modules[m].append_head_backward(head_back, again.modules[m]);
  for (std::size_t m = modules.size(); m-- > 0;) modules[m].append_backward(head_back, again.modules[m]);
}

// With chunks or modules, several products of a head make one gradient. The first product begins it.
Block with_gradients_begun_once(const PlanBuilder& b, Block block) {
  std::set<BufferId> begun;
  for (Operation& op : block.operations)
    for (Operand& o : op.operands) {
      const bool makes_gradient = o.buffer != kNoBuffer && o.access != Access::read &&
                                  b.buffer(o.buffer).buffer_class == BufferClass::gradient;
      if (makes_gradient && !begun.insert(o.buffer).second) o.access = Access::update;
    }
  return block;
}

// Adds a layer's blocks where several layers lie between two kept inputs. `base` is written for a layer
// whose input and output are both kept. Between them the residual stream passes from layer to layer.
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

// The `operations` of a recomputed layer, without those at its end that leave nothing for later actions: the
// last projection and what follows it. PyTorch's checkpoint without re-entrance also leaves them out, from
// 2.1 on (torch.utils.checkpoint.set_checkpoint_early_stop).
std::vector<Operation> without_unread_end(const PlanBuilder& b, std::vector<Operation> operations) {
  const auto leaves_something = [&](const Operation& op) {
    return std::ranges::any_of(op.operands, [&](const Operand& o) {
      return o.buffer != kNoBuffer && o.access != Access::read &&
             b.buffer(o.buffer).buffer_class != BufferClass::scratch;
    });
  };
  while (!operations.empty() && !leaves_something(operations.back())) operations.pop_back();
  return operations;
}

// The result buffers that backward reads, by name, for layers of every kind.
using KeptResults = std::map<std::string, BufferId>;

// The results of the first forward pass. Results that are recomputed are scratch of its block.
LayerResults forward_results(PlanBuilder& b, const std::string& block, const KeptResults& kept_results,
                             LayerKind kind) {
  const AddBuffer add = [&](PlanBuilder& builder, const std::string& of_block, const std::string& name,
                            DType dtype, const Shape& shape) {
    const bool dropped = recomputes(builder.strategy(), recompute_word_of(name));
    return dropped ? scratch(builder, of_block, name, dtype, shape) : kept_results.at(name);
  };
  return add_layer_results(b, block, add, {kind});
}

LayerBlocks add_layer_blocks(PlanBuilder& b, const DecoderParameters& p, const TrainingBuffers& r,
                             const LayerResults& results, const KeptResults& kept_results, LayerKind kind,
                             BackwardParts parts, OffloadedBuffers& offloaded) {
  const Strategy& s = b.strategy();
  const DecoderParameters again = for_backward(p);
  const std::string first = kind.prefix() + ".forward", second = kind.prefix() + ".recompute",
                    whole = kind.prefix() + ".backward", input = kind.prefix() + ".backward_input";
  const std::vector<RecomputePlace> places = recompute_places(b.scenario());
  const PlanBuilder::Replacement again_in{r.residual, 0, r.residual_again};
  LayerContext context{.kind = kind,
                       .residual_in = reads(r.residual),
                       .residual_out = writes(r.residual, 1),
                       .rope_table = r.rope_table_of(kind)};
  LayerBlocks blocks;
  const LayerResults left =
      s.recompute == Recompute::none ? results : forward_results(b, first, kept_results, kind);
  std::vector<Operation> forward = layer_forward(b, first, p, left, with_scratch(b, first, context));
  blocks.forward = add_placed(
      b, b.add({first, with_conversions(b, first, std::move(forward)), BlockRole::layer, BlockPass::forward}),
      places, {r.residual, 0, r.residual_passed}, {r.residual, 1, r.residual_passed});

  if (s.recompute == Recompute::full || s.recompute == Recompute::sqrt) {
    // The first forward pass has already made the last layer's output, so the second copy is not used.
    const BufferId nowhere =
        b.add_scratch(second, "residual", b.types().stored, {b.stream_rows(), b.model().hidden_size});
    context.residual_out = writes(nowhere);
    const auto again_forward = [&](const std::string& block) {
      return with_conversions(b, block,
                              layer_forward(b, block, again, results, with_scratch(b, block, context)));
    };
    std::vector<Operation> ops = again_forward(second);
    // Final operations whose results nobody reads may be left out, but not where the next layer reads them.
    const bool stops_early = b.scenario().implementation.recompute_stops_early;
    if (stops_early) ops = without_unread_end(b, std::move(ops));
    std::vector<RecomputePlace> ends = places, others;
    if (stops_early) {
      const auto inner = std::stable_partition(ends.begin(), ends.end(),
                                               [](const RecomputePlace& place) { return place.last; });
      others.assign(inner, ends.end());
      ends.erase(inner, ends.end());
    }
    const PlanBuilder::Replacement on{nowhere, 0, r.residual_again, 1};
    blocks.recompute = add_placed(b, b.add({second, std::move(ops), BlockRole::layer, BlockPass::recompute}),
                                  ends, again_in, on);
    if (!others.empty()) {
      const std::string whole_layer = second + "_whole";
      const PlacedBlocks inner = add_placed(
          b, b.add({whole_layer, again_forward(whole_layer), BlockRole::layer, BlockPass::recompute}), others,
          again_in, on);
      for (const RecomputePlace& place : others) blocks.recompute.at(place) = inner.at(place);
    }
  } else if (s.recompute != Recompute::none) {
    std::vector<Operation> ops = layer_forward(b, second, again, results, with_scratch(b, second, context));
    std::erase_if(ops, [&](const Operation& op) { return !recomputes(s, recompute_word_of(op.id)); });
    if (!ops.empty())
      blocks.recompute.at({}) = b.add(
          {second, with_conversions(b, second, std::move(ops)), BlockRole::layer, BlockPass::recompute});
  }

  if (parts != BackwardParts::all_split) {
    LayerBackward ops = layer_backward(b, whole, again, results, context, r.residual_gradient);
    blocks.backward = add_placed(b,
                                 b.add({whole, with_conversions(b, whole, std::move(ops.input)),
                                        BlockRole::layer, BlockPass::backward}),
                                 places, again_in, {});
  }
  if (parts != BackwardParts::whole) {
    b.split_backward(true);
    LayerBackward ops = layer_backward(b, input, again, results, context, r.residual_gradient);
    b.split_backward(false);
    blocks.backward_input = add_placed(b,
                                       b.add({input, with_conversions(b, input, std::move(ops.input)),
                                              BlockRole::layer, BlockPass::backward_input}),
                                       places, again_in, {});
    const std::string weight = weight_block(input);
    blocks.weight = b.add({weight, with_conversions(b, weight, std::move(ops.weight)), BlockRole::layer,
                           BlockPass::backward_weight});
  }
  if (s.offload_activations) offload_activations(b, kind.prefix(), r.residual, blocks, offloaded);
  return blocks;
}

using Tensors = std::vector<Tensor>;

// The tensors of each unit, grouped once for all later uses.
struct UnitTensors : PerUnit<Tensors> {  // tensors that learn; empty for layers that the model does not have
  PerUnit<Tensors> held;                 // these tensors and those that do not learn
  std::vector<Unit> layers;
};
UnitTensors unit_tensors(const PlanBuilder& b, const DecoderParameters& p) {
  UnitTensors units;
  units.layers = layer_units(b.scenario());
  units.held[Unit::embedding] = p.embedding_group();
  units.held[Unit::head] = p.head_group();
  for (const Unit layer : units.layers) units.held[layer] = p.layer_group(layer);
  for (const Unit unit : kAll<Unit>) units[unit] = learning(units.held[unit]);
  return units;
}

// Experts' gradients differ between the ranks of an expert-parallel group, whatever is sharded.
bool sums_norm_over_data(const PlanBuilder& b) {
  return b.strategy().zero_stage > 0 || b.groups().expert >= 0;
}

Operation zero(const std::string& id, const Tensors& unit, BufferId Tensor::*buffer) {
  Operation op{.id = id, .kind = OpKind::zero, .dtype = DType::fp32};
  op.operands.reserve(unit.size());
  for (const Tensor& t : unit) op.operands.push_back(writes(t.*buffer));
  return op;
}

// Whether that sum goes over all data- and context-parallel ranks: experts are divided over all of them.
// Without experts, the ranks of a shard group together have the whole.
bool sums_norm_over_all_data(const PlanBuilder& b) {
  return b.scenario().model.has_experts();
}

// Where several of the ranks that sum the norm hold the same gradient, each adds its part of the square.
std::vector<Operation> squared_norm(const PlanBuilder& b, const Tensors& unit, const std::string& id,
                                    BufferId norm) {
  const Strategy& s = b.strategy();
  const bool over_data = sums_norm_over_data(b);
  const auto copies = [&](const Tensor& t) {
    const int ranks = t.of_experts                 ? b.expert_data_ranks()
                      : sums_norm_over_all_data(b) ? data_ranks(s)
                                                   : shard_ranks(s);
    const int shards = t.zero_stage == 0 ? 1 : t.of_experts ? ranks : shard_ranks(s);
    const int directions = b.groups().directions >= 0 ? 2 : 1;
    // Whole experts stand on each tensor-parallel rank, and the sum without data ranks goes over these ranks.
    const int places = t.of_experts ? s.tensor_parallel / s.devices_of_expert() : 1;
    return (t.replicated ? s.tensor_parallel : 1) * directions * (over_data ? ranks / shards : places);
  };
  struct Part {
    const char* suffix;
    bool replicated, of_experts;
  };
  const auto is_of = [&](const Tensor& t, const Part& part) {
    return t.of_experts == part.of_experts && part.replicated == (t.replicated && s.tensor_parallel > 1);
  };
  std::vector<Operation> ops;
  for (const Part& part :
       {Part{"", false, false}, Part{".replicated", true, false}, Part{".experts", false, true}}) {
    if (std::ranges::none_of(unit, [&](const Tensor& t) { return is_of(t, part); })) continue;
    Operation& op = ops.emplace_back(operation(id + part.suffix, OpKind::squared_norm, DType::fp32, {}, {}));
    op.operands.reserve(1 + unit.size());
    op.operands.push_back(updates(norm));
    for (const Tensor& t : unit) {
      if (!is_of(t, part)) continue;
      op.operands.push_back(reads(t.gradient_shard));
      op.scalar = copies(t) > 1 ? 1.0f / static_cast<float>(copies(t)) : 0.0f;
    }
  }
  return ops;
}

template <class Operations>
UnitBlocks add_unit_blocks(PlanBuilder& b, const UnitTensors& units, BlockRole role, std::string_view name,
                           Operations operations) {
  UnitBlocks blocks;
  const auto add = [&](Unit unit) {
    std::string block = std::string(sim::name(unit)).append(".").append(name);
    std::vector<Operation> ops = operations(block, units[unit]);
    if (!ops.empty()) blocks[unit] = b.add({std::move(block), std::move(ops), role});
  };
  add(Unit::embedding);
  for (const Unit layer : units.layers) add(layer);
  add(Unit::head);
  return blocks;
}

// Sets gradients to zero, unit by unit: all at once, or each `before_backward` of its unit. A tied head's
// weight is in the embedding's unit, but its gradient begins with the head. Gradients that products write are
// left out. Where gradients live for one backward pass, their memory is taken here.
UnitBlocks add_zero_blocks(PlanBuilder& b, const DecoderParameters& p, const UnitTensors& units,
                           const std::string& name, const std::string& id, BufferId Tensor::*gradient,
                           bool before_backward) {
  Tensors head = units[Unit::head], embedding = units[Unit::embedding];
  if (before_backward && p.head_uses_embedding && !p.embedding_is_copied && p.embedding.learns()) {
    head.push_back(p.embedding);
    embedding.erase(embedding.begin());
  }
  if (p.tied) {
    const auto set_written = [&](Tensors& group) {
      for (Tensor& t : group)
        if (t.parameter == p.embedding.parameter) t.is_written = p.head.is_written;
    };
    set_written(head);
    if (!p.embedding_is_copied) set_written(embedding);
  }
  const bool whole = gradient == &Tensor::gradient && adds_up_shards(b.strategy());
  const auto add = [&](const std::string& unit, Tensors tensors) {
    if (whole) std::erase_if(tensors, [](const Tensor& t) { return t.zero_stage == 0; });
    const auto stays = [&](const Tensor& t) { return !t.is_written || (!whole && t.zero_stage >= 2); };
    const auto written = std::stable_partition(tensors.begin(), tensors.end(), stays);
    Tensors besides(written, tensors.end());
    tensors.erase(written, tensors.end());
    if (!whole) besides.clear();
    // An operation needs at least one operand.
    if (tensors.empty() && !besides.empty()) {
      tensors.push_back(besides.back());
      besides.pop_back();
    }
    if (tensors.empty()) return BlockId{-1};
    Operation op = zero(id, tensors, gradient);
    for (const Tensor& t : besides) op.beside.push_back(writes(t.*gradient));
    return b.add({unit + "." + name, list_of(std::move(op)), BlockRole::zero});
  };
  UnitBlocks blocks;
  blocks[Unit::embedding] = add("embedding", std::move(embedding));
  for (const Unit layer : units.layers) blocks[layer] = add(std::string(sim::name(layer)), units[layer]);
  blocks[Unit::head] = add("head", std::move(head));
  return blocks;
}

// Experts' tensors are exchanged among the ranks that hold the same experts, all others among the ranks that
// divide the batch.
struct DataGroup {
  bool of_experts;
  std::int32_t group;
  std::string_view name;  // in ids
};
std::array<DataGroup, 2> data_groups(const PlanBuilder& b) {
  return {{{false, b.strategy().zero_stage > 0 ? b.groups().shard : b.groups().data, ""},
           {true, b.groups().expert_data, ".experts"}}};
}

// Sums gradients. `parts` are tensors that all tensor-parallel ranks hold alike, but whose gradient each rank
// has from only a part of the work: they are summed over these ranks first. Then all tensors are summed over
// the ranks that divide the batch. Each unit is one message of the unit's size.
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
  for (const DataGroup& g : data_groups(b)) {
    if (g.group < 0) continue;
    Operation op =
        collective(std::string("gradients").append(g.name) + (whole ? ".all_reduce" : ".reduce_scatter"),
                   whole ? OpKind::all_reduce : OpKind::reduce_scatter, type, g.group);
    op.operands.reserve((whole ? 1 : 2) * unit.size());
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

// The operations, with their operands repeated for `n` layers, from the action's own layer upwards.
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

bool attends(Unit unit) {
  return unit == Unit::layer || unit == Unit::expert_layer || unit == Unit::attention;
}

// Tensors whose gradient each rank has only from its own rows (sequence parallelism) or from its own heads.
Tensors summed_over_tensor_ranks(const PlanBuilder& b, const DecoderParameters& p, Unit unit) {
  Tensors parts;
  if (b.strategy().sequence_parallel) parts = learning(p.of_own_rows(unit));
  if (attends(unit) && p.qk_norm.weight.learns() && p.qk_norm.weight.replicated)
    parts.push_back(p.qk_norm.weight);
  // The shared expert's width is divided, so each rank has only a part of this gradient.
  if (has_experts(unit) && p.experts.shared_gate) parts.push_back(p.experts.shared_gate);
  // One of an adapter's two factors is divided, and the other's gradient follows from each rank's part of it.
  for (const Adapter& a : p.adapters) parts.push_back(a.down.replicated ? a.down : a.up);
  return parts;
}

std::vector<Operation> gather_parameters(const PlanBuilder& b, const Tensors& unit, BufferId Tensor::*whole) {
  std::vector<Operation> ops;
  for (const DataGroup& g : data_groups(b)) {
    if (g.group < 0) continue;  // no other rank holds the same
    Operation op = collective(std::string("parameters").append(g.name) + ".all_gather", OpKind::all_gather,
                              b.types().stored, g.group);
    op.operands.reserve(2 * unit.size());
    for (const Tensor& t : unit) {
      if (t.of_experts != g.of_experts || t.zero_stage == 0) continue;
      op.operands.push_back(writes(t.*whole));
      op.operands.push_back(reads(t.parameter_shard));
    }
    if (!op.operands.empty()) ops.push_back(std::move(op));
  }
  return ops;
}

void add_pipeline_blocks(PlanBuilder& b, BufferId residual, BufferId residual_gradient, StepBlocks& blocks) {
  if (b.groups().pipeline < 0) return;
  const auto add = [&](const std::string& what, OpKind kind, Operand operand) {
    return b.add(
        {"pipeline." + what,
         list_of(collective("pipeline." + what, kind, b.types().stored, b.groups().pipeline, {operand})),
         BlockRole::transfer});
  };
  blocks.send_activation = add("activation.send", OpKind::send, reads(residual));
  blocks.receive_activation = add("activation.receive", OpKind::receive, writes(residual));
  blocks.send_gradient = add("gradient.send", OpKind::send, reads(residual_gradient));
  blocks.receive_gradient = add("gradient.receive", OpKind::receive, writes(residual_gradient));
}

// Sums gradients over the ranks that hold the same shards.
std::vector<Operation> sum_of_shards(const PlanBuilder& b, const Tensors& unit, const char* id,
                                     std::int32_t group) {
  Operation op = collective(id, OpKind::all_reduce, b.types().gradient, group);
  // Experts' states are divided over all ranks that hold the same experts.
  const bool of_shards = group == b.groups().replica;
  op.operands.reserve(unit.size());
  for (const Tensor& t : unit)
    if (!(t.of_experts && of_shards)) op.operands.push_back(updates(t.gradient_shard));
  if (op.operands.empty()) return {};
  return list_of(std::move(op));
}

Bytes gradients_of(const PlanBuilder& b, const Tensors& unit) {
  Bytes bytes;
  for (const Tensor& t : unit) bytes += b.buffer(t.gradient).bytes({});
  return bytes;
}

void add_reduction_blocks(PlanBuilder& b, const DecoderParameters& p, const UnitTensors& units,
                          StepBlocks& blocks) {
  const int zero_stage = b.strategy().zero_stage;
  const auto add = [&](const std::string& name, std::vector<Operation> ops,
                       BlockRole role = BlockRole::reduce) {
    return ops.empty() ? BlockId{-1} : b.add({name, std::move(ops), role});
  };
  const auto of_own_rows = [&](const Affine& norm) {
    Tensors parts;
    if (!b.strategy().sequence_parallel) return parts;
    if (norm.weight.learns()) parts.push_back(norm.weight);
    if (norm.bias.learns()) parts.push_back(norm.bias);
    return parts;
  };
  const auto layer = [&](Unit unit) {
    return add(std::string(name(unit)) + ".reduce_gradients",
               reduce_gradients(b, units[unit], summed_over_tensor_ranks(b, p, unit),
                                attends(unit) ? p.key_value_gradients : std::vector<BufferId>{}));
  };
  Tensors head_parts = of_own_rows(p.final_norm);
  std::vector<BufferId> head_key_values;
  for (const DecoderParameters& module : p.modules) {
    if (b.strategy().sequence_parallel) append(head_parts, module.prediction);
    for (const Tensor& t : summed_over_tensor_ranks(b, module, prediction_unit(b.scenario().model)))
      head_parts.push_back(t);
    for (const BufferId gradient : module.key_value_gradients) head_key_values.push_back(gradient);
  }
  blocks.reduce[Unit::embedding] =
      add("embedding.reduce_gradients",
          reduce_gradients(b, units[Unit::embedding], of_own_rows(p.embedding_norm), {}));
  for (const Unit unit : units.layers) {
    blocks.reduce[unit] = layer(unit);
    blocks.buckets[unit].layer_bytes = gradients_of(b, units[unit]);
  }
  blocks.reduce[Unit::head] =
      add("head.reduce_gradients", reduce_gradients(b, units[Unit::head], head_parts, head_key_values));
  const auto add_sums = [&](std::string_view name, const char* id, std::int32_t group) {
    if (group < 0) return UnitBlocks{};
    return add_unit_blocks(b, units, BlockRole::reduce, name, [&](const std::string&, const Tensors& unit) {
      return sum_of_shards(b, unit, id, group);
    });
  };
  blocks.reduce_replicas = add_sums("reduce_replicas", "gradients.replicas.all_reduce", b.groups().replica);
  blocks.reduce_directions =
      add_sums("reduce_directions", "gradients.directions.all_reduce", b.groups().directions);
  if (zero_stage == 1 || zero_stage == 2)
    blocks.gather_updated = add_unit_blocks(b, units, BlockRole::gather, "gather_updated",
                                            [&](const std::string&, const Tensors& unit) {
                                              return gather_parameters(b, unit, &Tensor::parameter);
                                            });
  if (zero_stage < 2) return;

  blocks.zero_whole =
      add_zero_blocks(b, p, units, "zero_whole_gradients", "gradients.zero", &Tensor::gradient, true);
  if (zero_stage < 3) return;
  Tensors head = units.held[Unit::head];
  // For backward a tied head's weight is gathered again: forward's copy lives only until the head.
  if (p.tied && !p.embedding_is_copied) head.push_back(p.embedding);
  // Modules of multi-token prediction look words up in the embedding, but no backward pass reads it.
  if (!p.tied) std::erase_if(head, [&](const Tensor& t) { return t.parameter == p.embedding.parameter; });
  UnitTensors held = units;
  static_cast<PerUnit<Tensors>&>(held) = units.held;
  blocks.gather_for_forward = add_unit_blocks(b, held, BlockRole::gather, "gather_for_forward",
                                              [&](const std::string&, const Tensors& unit) {
                                                return gather_parameters(b, unit, &Tensor::parameter);
                                              });
  // An embedding's backward pass reads no parameter.
  const auto gather_of = [&](const std::string& unit, const Tensors& tensors) {
    return add(unit + ".gather_for_backward", gather_parameters(b, tensors, &Tensor::parameter_for_backward),
               BlockRole::gather);
  };
  for (const Unit unit : units.layers)
    blocks.gather_for_backward[unit] = gather_of(std::string(name(unit)), units.held[unit]);
  blocks.gather_for_backward[Unit::head] = gather_of("head", head);
}

void add_optimizer_blocks(PlanBuilder& b, const DecoderParameters& p, const UnitTensors& units, BufferId norm,
                          StepBlocks& blocks) {
  const auto operation = [&](const char* id, OpKind kind, Operand operand) {
    return sim::operation(id, kind, DType::fp32, {}, {operand});
  };
  Block zeros{"zero_gradient_norm",
              list_of(operation("optimizer.zero_gradient_norm", OpKind::zero, writes(norm)))};
  // fp16 reaches 65,504: the loss is multiplied by a scale, and a step whose gradients overflow is skipped
  // (Micikevicius et al. 2018, arXiv 1710.03740).
  const BufferId overflow = b.types().stored != DType::fp16
                                ? kNoBuffer
                                : b.add({.name = std::string(buffer_names::gradient_overflow),
                                         .buffer_class = BufferClass::optimizer,
                                         .dtype = DType::fp32,
                                         .shape = {1},
                                         .lifetime = Lifetime::plan});
  if (overflow != kNoBuffer)
    zeros.operations.push_back(operation("optimizer.zero_overflow", OpKind::zero, writes(overflow)));
  blocks.zero_norm = b.add(std::move(zeros));
  if (b.groups().tied_embedding >= 0 && p.embedding.learns()) {
    Operation op = collective("gradients.tied_embedding.all_reduce", OpKind::all_reduce, b.types().gradient,
                              b.groups().tied_embedding, {updates(p.embedding.gradient_shard)});
    blocks.sum_tied_embedding =
        b.add({"tied_embedding.reduce_gradients", list_of(std::move(op)), BlockRole::reduce});
  }
  const auto add_norms = [&](const UnitTensors& of) {
    return add_unit_blocks(b, of, BlockRole::optimizer, "squared_norm",
                           [&](const std::string&, const Tensors& unit) {
                             return squared_norm(b, unit, "optimizer.squared_norm", norm);
                           });
  };
  if (p.embedding_is_copied) {  // its copy in the last stage is not counted twice
    DecoderParameters counted = p;
    counted.embedding_is_copied = false;
    blocks.norm = add_norms(unit_tensors(b, counted));
  } else {
    blocks.norm = add_norms(units);
  }
  // Sums a number over the ranks, each of which has a part of it.
  const auto sum_over_ranks = [&](const std::string& id, BufferId number, std::vector<Operation>& ops) {
    const auto add_sum = [&](const char* name, std::int32_t group) {
      if (group < 0) return;
      ops.push_back(collective(id + ".all_reduce." + name, OpKind::all_reduce, b.buffer(number).dtype, group,
                               {updates(number)}));
    };
    add_sum("tensor", b.groups().tensor);
    if (sums_norm_over_data(b))
      add_sum("data", sums_norm_over_all_data(b) ? b.groups().data : b.groups().shard);
    add_sum("pipeline", b.groups().pipeline);
  };
  if (overflow != kNoBuffer) {
    blocks.unscale = add_unit_blocks(
        b, units, BlockRole::optimizer, "unscale", [&](const std::string&, const Tensors& unit) {
          Operation op = operation("optimizer.unscale", OpKind::unscale, updates(overflow));
          for (const Tensor& t : unit) op.operands.push_back(updates(t.gradient_shard));
          return unit.empty() ? std::vector<Operation>{} : list_of(std::move(op));
        });
    Block read{"read_overflow", {}};
    sum_over_ranks("optimizer.overflow", overflow, read.operations);
    read.operations.push_back(operation("optimizer.read_overflow", OpKind::host_read, reads(overflow)));
    blocks.read_overflow = b.add(std::move(read));
  }
  Block sum{"sum_gradient_norm", {}};
  sum_over_ranks("optimizer.gradient_norm", norm, sum.operations);
  if (!sum.operations.empty()) blocks.sum_norm = b.add(std::move(sum));
  blocks.clip =
      b.add({"clip", list_of(operation("optimizer.clip_scale", OpKind::clip_scale, updates(norm)))});
  const std::string_view update = name(b.scenario().workload.optimizer);
  blocks.update = add_unit_blocks(b, units, BlockRole::optimizer, update,
                                  [&](const std::string& block, const Tensors& unit) {
                                    return optimizer_operations(b, block, unit, norm);
                                  });
  if (!b.strategy().offload_optimizer) return;
  blocks.gradients_to_host =
      add_unit_blocks(b, units, BlockRole::copy, "gradients_to_host",
                      [&](const std::string&, const Tensors& unit) { return gradients_to_host(b, unit); });
  blocks.parameters_from_host =
      add_unit_blocks(b, units, BlockRole::copy, "parameters_from_host",
                      [&](const std::string&, const Tensors& unit) { return parameters_from_host(b, unit); });
}

UnitParameters unit_parameters(const PlanBuilder& b, const DecoderParameters& p, const UnitTensors& units) {
  const auto of = [](const Tensors& tensors) {
    std::vector<BufferId> buffers;
    buffers.reserve(3 * tensors.size());
    for (const Tensor& t : tensors)
      buffers.insert(buffers.end(), {t.parameter, t.parameter_for_backward, t.gradient});
    return buffers;
  };
  UnitParameters parameters;
  for (const Unit unit : kAll<Unit>) parameters[unit] = of(units.held[unit]);
  Tensors head = units.held[Unit::head];
  if (p.head_uses_embedding) {
    Tensor embedding = p.embedding;
    // With chunks, all products with the head's weight run in backward passes.
    if (head_chunks(b) > 1 && p.modules.empty()) embedding.parameter = kNoBuffer;
    head.push_back(embedding);
  }
  parameters[Unit::head] = of(head);
  return parameters;
}

// Adds the squares of the gradients as the first micro-batch leaves them.
void add_noise_blocks(PlanBuilder& b, const UnitTensors& units, StepBlocks& blocks) {
  const BufferId squares = b.add({.name = std::string(buffer_names::first_gradient_squares),
                                  .buffer_class = BufferClass::optimizer,
                                  .dtype = DType::fp64,
                                  .shape = {1},
                                  .lifetime = Lifetime::plan});
  blocks.zero_first_squares =
      b.add({"zero_first_squares",
             list_of(operation("noise.zero", OpKind::zero, DType::fp32, {}, {writes(squares)}))});
  blocks.first_squares = add_unit_blocks(b, units, BlockRole::optimizer, "first_squares",
                                         [&](const std::string&, const Tensors& unit) {
                                           return squared_norm(b, unit, "noise.squared_norm", squares);
                                         });
}

void add_state_blocks(PlanBuilder& b, const DecoderParameters& p, const UnitTensors& units, BufferId norm,
                      StepBlocks& blocks) {
  blocks.parameters = unit_parameters(b, p, units);
  add_reduction_blocks(b, p, units, blocks);
  add_optimizer_blocks(b, p, units, norm, blocks);
  if (b.scenario().workload.measure_noise) add_noise_blocks(b, units, blocks);
}

StepBlocks begin_step_blocks(PlanBuilder& b, const DecoderParameters& p, const UnitTensors& units) {
  StepBlocks blocks;
  const auto accumulated = b.strategy().zero_stage >= 2 ? &Tensor::gradient_shard : &Tensor::gradient;
  const bool fresh = b.scenario().implementation.memory.weight_gradient == WeightGradient::fresh;
  blocks.zero = add_zero_blocks(b, p, units, fresh ? "begin_gradients" : "zero_gradients",
                                "optimizer.zero_gradients", accumulated, fresh);
  blocks.kinds = layer_kinds(b.scenario());
  return blocks;
}

StepBlocks add_step_blocks(PlanBuilder& b, BackwardParts parts) {
  const DecoderParameters p = add_parameters(b, true);
  const TrainingBuffers r = add_buffers(b);
  const DecoderParameters again = for_backward(p);
  const UnitTensors units = unit_tensors(b, p);
  StepBlocks blocks = begin_step_blocks(b, p, units);
  blocks.embedding = b.add(embedding_forward(b, p, r));
  KeptResults kept_results;
  OffloadedBuffers offloaded;
  const AddBuffer add_kept_result = [&](PlanBuilder& builder, const std::string& block,
                                        const std::string& name, DType dtype, const Shape& shape) {
    return kept_results[name] = kept(builder, block, name, dtype, shape);
  };
  const LayerResults results = add_layer_results(b, "", add_kept_result, blocks.kinds);
  for (const LayerKind kind : blocks.kinds)
    blocks.layers.push_back(add_layer_blocks(b, p, r, results, kept_results, kind, parts, offloaded));
  Block head = head_forward(b, p, r, "head.forward"), head_back = head_backward(b, again, r, "head.backward");
  append_predictions(b, r, p, again, head, head_back);
  blocks.head = b.add(std::move(head));
  blocks.head_backward = b.add(with_gradients_begun_once(b, std::move(head_back)));
  if (p.embedding.learns()) blocks.embedding_backward = b.add(embedding_backward(b, p, r));
  add_pipeline_blocks(b, r.residual, r.residual_gradient, blocks);
  add_state_blocks(b, p, units, r.gradient_norm, blocks);
  return blocks;
}

// A message has the gradients of as many layers as a bucket holds. The last layers of a kind may be fewer.
void add_buckets(const Scenario& scenario, StepPlan& step) {
  if (scenario.strategy.gradient_bucket == 0) return;
  for (const Unit unit : kLayerUnits) {
    BucketBlocks& bucket = step.blocks.buckets[unit];
    if (step.blocks.reduce[unit] < 0) continue;
    bucket.layers = bucket.layers_in(scenario.strategy.gradient_bucket, scenario.model.num_hidden_layers);
    for (std::int32_t piece = 0; piece < pieces_of(scenario.strategy); ++piece) {
      const LayerRange range = layers_of(scenario, piece);
      for (std::int32_t l = range.first, run = 0; l <= range.last; ++l) {
        const bool of_run = l < range.last && kind_of_layer(scenario, l).unit() == unit;
        if (of_run) {
          ++run;
          continue;
        }
        if (run >= bucket.layers) bucket_block(step, unit, bucket.layers);
        if (run % bucket.layers > 0) bucket_block(step, unit, run % bucket.layers);
        run = 0;
      }
    }
  }
}

}  // namespace

StepPlan make_step_plan(const Scenario& scenario) {
  return make_step_plan(scenario, backward_parts(scenario.strategy.schedule));
}

StepPlan make_step_plan(const Scenario& scenario, BackwardParts parts) {
  PlanBuilder b(scenario);
  StepBlocks blocks = add_step_blocks(b, parts);
  StepPlan step{b.take(), std::move(blocks)};
  add_buckets(scenario, step);
  add_extra_tensors(step.plan);
  return step;
}

StepPlan make_state_plan(const Scenario& scenario) {
  PlanBuilder b(scenario);
  const DecoderParameters p = add_parameters(b, true);
  const UnitTensors units = unit_tensors(b, p);
  StepBlocks blocks = begin_step_blocks(b, p, units);
  add_state_blocks(b, p, units, add_gradient_norm(b), blocks);
  StepPlan step{b.take(), std::move(blocks)};
  add_extra_tensors(step.plan);
  return step;
}

StepPlan make_transfer_plan(const Scenario& scenario) {
  PlanBuilder b(scenario);
  StepBlocks blocks;
  const BufferId residual = add_residual(b);
  add_pipeline_blocks(b, residual, add_residual_gradient(b), blocks);
  return {b.take(), std::move(blocks)};
}

BlockId bucket_block(StepPlan& step, Unit unit, std::int32_t layers) {
  const BlockId of_one = step.blocks.reduce[unit];
  if (of_one < 0 || layers == 1) return of_one;
  std::vector<Block>& blocks = step.plan.blocks;
  const auto [known, added] =
      step.blocks.buckets[unit].reduce.try_emplace(layers, static_cast<BlockId>(blocks.size()));
  if (added)
    blocks.push_back({std::string(name(unit)) + ".reduce_gradients_of_" + std::to_string(layers),
                      of_layers(blocks[static_cast<std::size_t>(of_one)].operations, layers),
                      BlockRole::reduce});
  return known->second;
}

Plan make_training_plan(const Scenario& scenario) {
  auto [plan, blocks] = make_step_plan(scenario);
  const Strategy& s = scenario.strategy;
  const Workload& w = scenario.workload;
  const auto micro_batches =
      static_cast<std::int32_t>(w.global_batch_size / s.data_parallel / w.micro_batch_size);
  const Schedule schedule = make_schedule(s.schedule, s.pipeline_parallel, s.virtual_pipeline, micro_batches);
  for (std::int32_t stage = 0; stage < schedule.stages; ++stage)
    plan.programs.push_back(stage_program(scenario, blocks, schedule, stage));
  return plan;
}

}  // namespace sim
