#include "sim/plan/extra_tensors.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "sim/plan/builder.h"

namespace sim {
namespace {

struct Place {
  std::size_t block = 0, operation = 0;
};

Operation& at(Plan& plan, Place place) {
  return plan.blocks[place.block].operations[place.operation];
}

// The places of an operation, in each block that has it.
std::vector<Place> places_of(const Plan& plan, const std::string& id) {
  std::vector<Place> places;
  for (std::size_t b = 0; b < plan.blocks.size(); ++b)
    for (std::size_t i = 0; i < plan.blocks[b].operations.size(); ++i)
      if (plan.blocks[b].operations[i].id == id) places.push_back({b, i});
  return places;
}

BufferId add(Plan& plan, Buffer buffer) {
  plan.buffers.push_back(std::move(buffer));
  return static_cast<BufferId>(plan.buffers.size()) - 1;
}

bool exists(const ExtraTensor& t, const Scenario& s) {
  const bool grouped = s.model.num_key_value_heads != s.model.num_attention_heads;
  return !(t.multi_head_only && grouped) && !(t.grouped_only && !grouped) &&
         !(t.several_sequences_only && s.workload.micro_batch_size == 1) &&
         !(t.whole_only && s.strategy.tensor_parallel > 1);
}

// The tensor's shape in bytes for each token, of all rows or of this rank's rows of the stream.
Shape shape_of(const ExtraTensor& t, const Scenario& s) {
  const Model m = shard_of(s.model, s.strategy);
  const auto width = [](double bytes, std::int64_t of) { return bytes * static_cast<double>(of); };
  const double of_rows = width(t.hidden_of_rows, m.hidden_size);
  const double whole = width(t.hidden, m.hidden_size) + width(t.query, m.query_size()) +
                       width(t.key_value, m.key_value_size()) + width(t.feed_forward, m.intermediate_size) +
                       width(t.vocabulary, held_vocabulary(s));
  if (of_rows > 0 && s.strategy.sequence_parallel)
    return {kRows / s.strategy.tensor_parallel,
            std::llround(of_rows + whole * static_cast<double>(s.strategy.tensor_parallel))};
  return {kRows, std::llround(of_rows + whole)};
}

void add_tensor(Plan& plan, const ExtraTensor& t) {
  const Shape shape = shape_of(t, plan.scenario);
  const std::vector<Place> made = places_of(plan, t.from), needed = places_of(plan, t.to);
  if (made.empty() || shape.back().factor == 0) return;
  const auto in_block = [](const std::vector<Place>& places, std::size_t block) -> std::optional<Place> {
    const auto found = std::ranges::find_if(places, [&](const Place& p) { return p.block == block; });
    if (found == places.end()) return std::nullopt;
    return *found;
  };
  const bool temporary = needed.empty() || std::ranges::any_of(needed, [&](const Place& p) {
                           return in_block(made, p.block).has_value();
                         });
  // A recomputed tensor is kept from its last forward pass on. The blocks of that pass keep it, for each kind
  // of layers and at each place among layers that are recomputed together.
  const std::size_t keeper = made.back().block;
  const auto keeps = [&, last = plan.blocks[keeper].pass](const Place& place) {
    return !temporary && plan.blocks[place.block].pass == last;
  };
  for (const Place& place : made) {
    const std::string block = plan.blocks[place.block].name;
    if (keeps(place)) continue;
    const BufferId buffer = add(plan, {.name = block + "." + t.name,
                                       .buffer_class = BufferClass::scratch,
                                       .dtype = DType::int8,
                                       .shape = shape});
    at(plan, place).beside.push_back(writes(buffer));
    if (const auto last = in_block(needed, place.block)) at(plan, *last).beside.push_back(reads(buffer));
  }
  if (temporary) return;
  const BufferId buffer = add(plan, {.name = t.name,
                                     .buffer_class = BufferClass::activation,
                                     .dtype = DType::int8,
                                     .shape = shape,
                                     .per_layer = plan.blocks[keeper].role == BlockRole::layer,
                                     .per_micro_batch = true});
  for (const Place& place : made)
    if (keeps(place)) at(plan, place).beside.push_back(writes(buffer));
  for (const Place& place : needed) at(plan, place).beside.push_back(reads(buffer));
}

// Turns the gradients that operations add into accumulators into tensors of their own.
void add_weight_gradients(Plan& plan, WeightGradient kind) {
  const DType stored = element_types(plan.scenario).stored;
  const std::size_t buffers = plan.buffers.size();
  std::vector<BufferId> kept(buffers, kNoBuffer);  // by accumulator
  for (Block& block : plan.blocks)
    for (Operation& op : block.operations) {
      const bool makes_gradients =
          op.kind == OpKind::matmul_backward_weight || op.kind == OpKind::rmsnorm_backward ||
          op.kind == OpKind::layernorm_backward || op.kind == OpKind::embedding_backward;
      if (!makes_gradients) continue;
      for (const Operand& o : op.operands) {
        if (o.buffer == kNoBuffer || o.access != Access::update) continue;
        const Buffer accumulator = plan.buffer(o.buffer);
        if (accumulator.buffer_class != BufferClass::gradient) continue;
        Buffer made{.name = "made." + accumulator.name,
                    .buffer_class = BufferClass::gradient,
                    .dtype = stored,
                    .shape = accumulator.shape,
                    .lifetime = Lifetime::pass,
                    .per_layer = accumulator.per_layer,
                    .per_micro_batch = true};
        if (kind == WeightGradient::kept) {
          BufferId& known = kept[static_cast<std::size_t>(o.buffer)];
          if (known == kNoBuffer) known = add(plan, std::move(made));
          op.beside.push_back(writes(known));
          continue;
        }
        made.name = block.name + "." + made.name;
        made.buffer_class = BufferClass::scratch;
        made.lifetime = Lifetime::uses;
        made.per_layer = made.per_micro_batch = false;
        op.beside.push_back(writes(add(plan, std::move(made))));
      }
    }
}

// Bytes for each token by a closed form, on one rank.
double bytes_of(const SavedActivations& saved, const Scenario& s) {
  const Model& m = s.model;
  const double ranks = s.strategy.tensor_parallel;
  const bool divides_rows = s.strategy.sequence_parallel;
  const bool keeps_scores =
      s.strategy.recompute != Recompute::selective && s.implementation.attention == AttentionKind::standard;
  const auto of = [](double bytes, std::int64_t width) { return bytes * static_cast<double>(width); };
  const double everywhere = of(saved.hidden_of_every_rank, m.hidden_size);
  const double divided = of(saved.hidden - saved.hidden_of_every_rank, m.hidden_size) +
                         of(saved.query, m.query_size()) + of(saved.key_value, m.key_value_size()) +
                         of(saved.feed_forward, m.intermediate_size) +
                         of(saved.heads, m.num_attention_heads) +
                         (keeps_scores ? of(saved.scores, m.num_attention_heads * s.workload.seq_len) : 0);
  // Closed forms assume 16-bit types.
  const double scale = static_cast<double>(bits(element_types(s).stored)) / 16;
  return scale * (divided / ranks + (divides_rows ? everywhere / ranks : everywhere));
}

bool repeats_layers(const Strategy& s) {
  return s.recompute == Recompute::full || s.recompute == Recompute::sqrt;
}

bool is_layer(const Block& block, BlockPass pass) {
  return block.role == BlockRole::layer && block.pass == pass;
}

// Bytes for each token that the plan keeps of a layer between its passes. Norms' statistics are not counted,
// because closed forms leave them out.
double kept_bytes(const Plan& plan) {
  const BlockPass makes = repeats_layers(plan.scenario.strategy) ? BlockPass::recompute : BlockPass::forward;
  const auto forward = std::ranges::find_if(plan.blocks, [&](const Block& b) { return is_layer(b, makes); });
  if (forward == plan.blocks.end()) return 0;
  std::vector<bool> made(plan.buffers.size()), needed(plan.buffers.size()), statistic(plan.buffers.size());
  const auto mark = [&](const Operand& o, std::vector<bool>& in) {
    if (o.buffer != kNoBuffer && o.layer_offset == 0)
      in[static_cast<std::size_t>(plan.storage(o.buffer))] = true;
  };
  const auto mark_used = [&](const Block& b, std::vector<bool>& in) {
    for (const Operation& op : b.operations)
      for (const std::vector<Operand>* operands : {&op.operands, &op.beside})
        for (const Operand& o : *operands) mark(o, in);
  };
  mark_used(*forward, made);
  for (const Operation& op : forward->operations)
    for (const Role role : {Role::mean, Role::rstd})
      if (has(op, role)) mark(operand(op, role), statistic);
  for (const Block& block : plan.blocks)
    if (block.role == BlockRole::layer && is_backward(block.pass)) mark_used(block, needed);
  const Workload& w = plan.scenario.workload;
  const Variables v{.batch = w.micro_batch_size,
                    .query_length = w.seq_len / plan.scenario.strategy.context_parallel,
                    .kv_length = w.seq_len};
  std::int64_t bytes = 0;
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
    const Buffer& buffer = plan.buffers[b];
    if (made[b] && needed[b] && !statistic[b] && buffer.buffer_class == BufferClass::activation &&
        buffer.per_layer)
      bytes += buffer.memory(v).value;
  }
  return static_cast<double>(bytes) / static_cast<double>(v.batch * v.query_length);
}

// The norm that a layer's forward pass begins with, and its backward pass ends with.
std::string norm_of_input(const Plan& plan, bool backward) {
  std::string id;
  for (const Block& block : plan.blocks)
    if (block.role == BlockRole::layer && block.pass != BlockPass::recompute &&
        is_backward(block.pass) == backward)
      for (const Operation& op : block.operations)
        if (info(op.kind).family == Family::norms && (backward || id.empty())) id = op.id;
  return id;
}

// The first operation of a layer that is not repeated: its result stays from the first forward pass on. Where
// the whole layer is repeated, except what backward does not read, it is the layer's first norm.
std::string kept_from(const Plan& plan) {
  for (const Block& block : plan.blocks)
    if (is_layer(block, BlockPass::forward) && !repeats_layers(plan.scenario.strategy))
      for (const Operation& op : block.operations)
        if (places_of(plan, op.id).size() == 1) return op.id;
  return norm_of_input(plan, false);
}

// Closed forms describe dense layers only.
void add_rest_of(Plan& plan, const SavedActivations& saved) {
  if (plan.scenario.model.expert_layers() > 0) return;
  const double rest = bytes_of(saved, plan.scenario) - kept_bytes(plan);
  if (rest < 1) return;
  const double hidden = static_cast<double>(plan.scenario.model.hidden_size);
  add_tensor(plan, {.name = "layer.kept_beside",
                    .from = kept_from(plan),
                    .to = norm_of_input(plan, true),
                    .hidden = rest / hidden});
}

// Turns what forward keeps for backward into scratch of each block, which makes it again where needed. The
// layers' inputs stay.
void make_again(Plan& plan) {
  const auto is_kept = [](const Buffer& b) {
    return b.buffer_class == BufferClass::activation && b.per_layer && b.per_micro_batch &&
           b.lifetime == Lifetime::uses && b.name != "residual";
  };
  const std::size_t buffers = plan.buffers.size();
  std::vector<bool> made_in_forward(buffers);
  for (const Block& block : plan.blocks)
    if (block.pass == BlockPass::forward)
      for (const Operation& op : block.operations)
        for (const Operand& o : op.operands)
          if (o.buffer != kNoBuffer && o.access != Access::read)
            made_in_forward[static_cast<std::size_t>(plan.storage(o.buffer))] = true;
  for (Block& block : plan.blocks) {
    std::vector<BufferId> own(buffers, kNoBuffer);
    std::vector<Operand> made;
    for (Operation& op : block.operations)
      for (Operand& o : op.operands) {
        if (o.buffer == kNoBuffer || static_cast<std::size_t>(o.buffer) >= buffers) continue;
        const auto kept = static_cast<std::size_t>(plan.storage(o.buffer));
        if (!is_kept(plan.buffers[kept]) || !made_in_forward[kept] ||
            plan.buffer(o.buffer).view_of != kNoBuffer)
          continue;
        if (own[kept] == kNoBuffer) {
          Buffer b = plan.buffers[kept];
          b.name = block.name + "." + b.name;
          b.buffer_class = BufferClass::scratch;
          b.per_layer = b.per_micro_batch = false;
          own[kept] = add(plan, std::move(b));
          if (block.pass != BlockPass::forward) made.push_back(writes(own[kept]));
        }
        o.buffer = own[kept];
      }
    if (block.operations.empty()) continue;
    std::vector<Operand>& beside = block.operations.front().beside;
    beside.insert(beside.end(), made.begin(), made.end());
  }
}

}  // namespace

void add_extra_tensors(Plan& plan) {
  const MemoryProfile profile = plan.scenario.implementation.memory;
  for (const ExtraTensor& t : profile.tensors)
    if (exists(t, plan.scenario)) add_tensor(plan, t);
  const Recompute recompute = plan.scenario.strategy.recompute;
  // Some stacks' selective policy is a list of operations.
  const bool selective = recompute == Recompute::selective || recompute == Recompute::operations;
  if (profile.saved_selective && selective) {
    make_again(plan);
    add_rest_of(plan, *profile.saved_selective);
  } else if (profile.saved) {
    constexpr double kMuch = 0.95;  // closed forms leave statistics out
    const bool keeps_less = bytes_of(*profile.saved, plan.scenario) < kMuch * kept_bytes(plan);
    if (keeps_less && recompute == Recompute::none) make_again(plan);
    add_rest_of(plan, *profile.saved);
  }
  if (profile.weight_gradient == WeightGradient::kept || profile.weight_gradient == WeightGradient::hooked)
    add_weight_gradients(plan, profile.weight_gradient);
}

}  // namespace sim
