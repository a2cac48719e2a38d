#include "sim/plan/builder.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "sim/plan/ranks.h"
#include "sim/plan/schedule.h"
#include "sim/scenario/layer_list.h"

namespace sim {
namespace {

// Narrower types than 16 bits are types of arithmetic: what is stored between operations stays bf16.
DType stored_type(DType t) {
  if (bits(t) >= 32) return DType::fp32;
  return t == DType::fp16 ? DType::fp16 : DType::bf16;
}

}  // namespace

DType sixteen_bits_as(DType stored, DType wanted) {
  return bits(wanted) == 16 ? stored : wanted;
}

ElementTypes element_types(const Scenario& scenario) {
  const DType stored = stored_type(scenario.workload.dtype);
  const bool mixed = stored != DType::fp32;
  const bool generates = scenario.workload.task == Task::generate;
  const Implementation& i = scenario.implementation;
  const bool shards = !generates && scenario.strategy.zero_stage == 3;
  const DType shard = shards ? i.memory.shard_dtype.value_or(stored) : stored;
  const DType product = scenario.workload.dtype;
  // Generation in fewer than 16 bits also holds its weights so, unless the scenario says otherwise. Training
  // keeps the weights that it adds its updates to.
  const FrozenWeights frozen = stored_frozen(scenario.workload);
  const DType learns_or_frozen = frozen == FrozenWeights::as_dtype ? stored
                                 : frozen == FrozenWeights::int8   ? DType::int8
                                                                   : DType::int4;
  const DType weights = generates
                            ? scenario.workload.weights_dtype.value_or(bits(product) < 16 ? product : stored)
                            : learns_or_frozen;
  const DType embedding = generates ? scenario.workload.embedding_dtype.value_or(stored) : stored;
  return {.product = product,
          .wide_product = product == DType::fp8 ? stored : product,
          .stored = stored,
          .weights = weights,
          .expert_weights = generates ? scenario.workload.expert_weights_dtype.value_or(weights) : stored,
          .embedding = embedding,
          .head = generates ? scenario.workload.head_dtype.value_or(embedding) : stored,
          .cache = generates ? scenario.workload.kv_dtype.value_or(stored) : stored,
          .gradient = mixed ? sixteen_bits_as(stored, i.gradient_dtype) : DType::fp32,
          .shard = shard,
          .statistic = DType::fp32,
          .master = mixed && i.master_weights && shard != DType::fp32};
}

Model shard_of(const Model& model, const Strategy& strategy) {
  const std::int64_t t = strategy.tensor_parallel;
  Model m = model;
  m.num_attention_heads /= t;
  m.num_key_value_heads = std::max<std::int64_t>(1, m.num_key_value_heads / t);
  m.intermediate_size /= t;
  m.vocab_size = (m.vocab_size + t - 1) / t;
  m.moe.moe_intermediate_size /= strategy.devices_of_expert();
  m.moe.shared_expert_intermediate_size /= t;
  m.state_space.mamba_num_heads /= t;
  m.state_space.n_groups = std::max<std::int64_t>(1, m.state_space.n_groups / t);
  return m;
}

std::int64_t held_vocabulary(const Scenario& s) {
  const std::int64_t ranks = has_whole_vocabulary(s) ? 1 : s.strategy.tensor_parallel;
  const std::int64_t rows = (s.model.vocab_size + ranks - 1) / ranks;
  const std::int64_t multiple = s.workload.task == Task::train ? s.implementation.vocabulary_multiple : 1;
  return (rows + multiple - 1) / multiple * multiple;
}

LayerKind kind_of_layer(const Scenario& s, std::int64_t layer) {
  const Model& m = s.model;
  const std::int64_t longest = longest_sequence(s.workload);
  const auto is_listed = [&] {
    const auto layers = layers_listed(s.workload.mixed_layers);
    return layers && std::ranges::binary_search(*layers, layer);
  };
  return {.sort = m.sort_of_layer(layer),
          .experts = m.is_expert_layer(layer),
          .window = (longest > m.sliding_window && m.is_window_layer(layer)) ||
                    (longest > m.attention_chunk_size && m.is_chunk_layer(layer)),
          .unrotated = m.is_unrotated_layer(layer),
          .lowest = trains_adapters(s.workload) && layer == 0,
          .mixed = mixes_types(s.workload) && is_listed()};
}

std::vector<LayerKind> layer_kinds(const Scenario& scenario) {
  std::vector<LayerKind> kinds;
  for (std::int64_t l = 0; l < scenario.model.num_hidden_layers; ++l) {
    const LayerKind kind = kind_of_layer(scenario, l);
    if (std::ranges::find(kinds, kind) == kinds.end()) kinds.push_back(kind);
  }
  return kinds;
}

std::vector<Unit> layer_units(const Scenario& scenario) {
  std::vector<Unit> units;
  for (const LayerKind& kind : layer_kinds(scenario))
    if (std::ranges::find(units, kind.unit()) == units.end()) units.push_back(kind.unit());
  return units;
}

int PlanBuilder::expert_data_ranks() const {
  const Strategy& s = strategy();
  return s.tensor_parallel / s.devices_of_expert() * data_ranks(s) / s.expert_parallel;
}

PlanBuilder::PlanBuilder(const Scenario& scenario)
    : model_(shard_of(scenario.model, scenario.strategy)), types_(element_types(scenario)) {
  model_.vocab_size = held_vocabulary(scenario);
  constexpr std::size_t kBuffers = 128, kBlocks = 64;  // most plans have no more
  plan_.buffers.reserve(kBuffers);
  plan_.blocks.reserve(kBlocks);
  plan_.scenario = scenario;
  plan_.ranks = scenario.strategy.devices();
  const Strategy& s = scenario.strategy;
  if (s.sequence_parallel) stream_rows_ = kRows / s.tensor_parallel;
  const int t = s.tensor_parallel, p = s.pipeline_parallel;
  const RankStrides strides = rank_strides(s);
  groups_.tensor = add_group({Axis::tensor, t, strides.tensor});
  if (const auto heads = scenario.model.num_key_value_heads; t > heads)
    groups_.key_value = add_group({Axis::key_value, t / static_cast<int>(heads), strides.tensor});
  groups_.context = add_group({Axis::context, s.context_parallel, strides.context});
  const Group data = data_group(s);
  const auto add_parts = [&](const Group& whole, int n, Axis part, Axis across) {
    Group parts = part_of(whole, n), others = across_parts_of(whole, n);
    parts.axis = part;
    others.axis = across;
    return std::pair{add_group(parts), add_group(others)};
  };
  groups_.data = add_group(data);
  groups_.shard = groups_.data;
  if (s.zero_stage > 0 && shard_ranks(s) < data.size)
    std::tie(groups_.shard, groups_.replica) = add_parts(data, shard_ranks(s), Axis::shard, Axis::replica);
  if (scenario.model.has_experts())
    std::tie(groups_.expert, groups_.expert_data) =
        add_parts(expert_ranks(s), s.expert_parallel, Axis::expert, Axis::expert_data);
  groups_.pipeline = add_group({Axis::pipeline, p, strides.pipeline});
  // The two groups below are priced by their outermost pair of ranks.
  const Placement placement = placement_of(s.schedule);
  const bool trains = scenario.workload.task == Task::train;
  if (trains && placement == Placement::two_directions)
    groups_.directions = add_group({Axis::directions, 2, strides.pipeline * (p - 1)});
  if (p > 1 && placement == Placement::loop &&
      (scenario.model.tie_word_embeddings || scenario.model.num_nextn_predict_layers > 0))
    groups_.tied_embedding = add_group({Axis::tied_embedding, 2, strides.pipeline * (p - 1)});
}

std::int32_t PlanBuilder::add_group(Group group) {
  if (group.size == 1) return -1;
  plan_.groups.push_back(group);
  return static_cast<std::int32_t>(plan_.groups.size()) - 1;
}

BufferId PlanBuilder::add(Buffer&& buffer) {
  plan_.buffers.push_back(std::move(buffer));
  return static_cast<BufferId>(plan_.buffers.size()) - 1;
}

BufferId PlanBuilder::add_kept(const std::string& name, DType dtype, const Shape& shape) {
  return add({.name = name,
              .buffer_class = BufferClass::activation,
              .dtype = dtype,
              .shape = shape,
              .per_layer = true,
              .per_micro_batch = true});
}

BufferId PlanBuilder::add_scratch(const std::string& block, const std::string& name, DType dtype,
                                  const Shape& shape) {
  return add(
      {.name = block + "." + name, .buffer_class = BufferClass::scratch, .dtype = dtype, .shape = shape});
}

BufferId PlanBuilder::add_input(std::string_view name, DType dtype, const Shape& shape,
                                bool per_micro_batch) {
  return add({.name = std::string(name),
              .buffer_class = BufferClass::input,
              .dtype = dtype,
              .shape = shape,
              .lifetime = Lifetime::plan,
              .per_micro_batch = per_micro_batch});
}

namespace {

bool replace(Operand& o, const std::vector<PlanBuilder::Replacement>& replacements) {
  const auto r = std::ranges::find_if(
      replacements, [&](const auto& x) { return x.buffer == o.buffer && x.layer_offset == o.layer_offset; });
  if (r == replacements.end()) return false;
  o.buffer = r->by;
  o.layer_offset = r->by_layer_offset;
  return true;
}

}  // namespace

void PlanBuilder::replace(BlockId in, const std::vector<Replacement>& replacements) {
  for (Operation& op : plan_.blocks[static_cast<std::size_t>(in)].operations)
    for (Operand& o : op.operands) sim::replace(o, replacements);
}

BlockId PlanBuilder::add_variant(BlockId of, const std::string& name,
                                 const std::vector<Replacement>& replacements) {
  const std::string original = block(of).name;
  Block variant = block(of);
  variant.name = name;
  std::map<BufferId, BufferId> own;  // scratch
  const auto own_scratch = [&](BufferId b, auto& self) -> BufferId {
    if (b == kNoBuffer || buffer(b).buffer_class != BufferClass::scratch) return b;
    if (const auto known = own.find(b); known != own.end()) return known->second;
    Buffer copy = buffer(b);
    copy.name = name + copy.name.substr(original.size());
    copy.view_of = self(copy.view_of, self);
    return own[b] = add(std::move(copy));
  };
  for (Operation& op : variant.operations)
    for (Operand& o : op.operands)
      if (!sim::replace(o, replacements)) o.buffer = own_scratch(o.buffer, own_scratch);
  return add(std::move(variant));
}

std::vector<BufferId> PlanBuilder::scales_of(BufferId weight) const {
  std::vector<BufferId> scales;
  if (bits(buffer(weight).dtype) >= 16) return scales;
  for (std::size_t b = 0; b < plan_.buffers.size(); ++b)
    if (plan_.buffers[b].buffer_class == BufferClass::parameter && plan_.buffers[b].parameter == weight &&
        plan_.buffers[b].view_of == kNoBuffer)
      scales.push_back(static_cast<BufferId>(b));
  return scales;
}

BlockId PlanBuilder::add(Block block) {
  plan_.blocks.push_back(std::move(block));
  return static_cast<BlockId>(plan_.blocks.size()) - 1;
}

}  // namespace sim
