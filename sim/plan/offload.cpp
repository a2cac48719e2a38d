#include "sim/plan/offload.h"

#include <algorithm>
#include <set>
#include <utility>

#include "sim/plan/writing.h"

namespace sim {
namespace {

void add_blocks(const PlacedBlocks& placed, std::vector<BlockId>& to) {
  for (const bool first : {false, true})
    for (const bool last : {false, true})
      if (const BlockId b = placed.at({first, last}); b >= 0) to.push_back(b);
}

// Kept buffers of the action's own layer that any of the blocks accesses in one of these ways.
std::set<BufferId> kept_buffers(const PlanBuilder& b, const std::vector<BlockId>& blocks,
                                std::initializer_list<Access> ways) {
  std::set<BufferId> found;
  for (const BlockId block : blocks)
    for (const Operation& op : b.block(block).operations)
      for (const Operand& o : op.operands) {
        if (o.buffer == kNoBuffer || o.layer_offset != 0) continue;
        const Buffer& buffer = b.buffer(storage(b, o.buffer));
        const bool kept = buffer.buffer_class == BufferClass::activation && buffer.per_layer;
        if (kept && std::ranges::find(ways, o.access) != ways.end()) found.insert(storage(b, o.buffer));
      }
  return found;
}

OffloadedBuffer add_offloaded(PlanBuilder& b, BufferId kept) {
  Buffer copy = b.buffer(kept);
  const std::string name = copy.name;
  copy.name = "host." + name;
  copy.on_host = true;
  OffloadedBuffer o;
  o.on_host = b.add(Buffer(copy));
  copy.name = "fetched." + name;
  copy.on_host = false;
  o.fetched = b.add(std::move(copy));
  return o;
}

}  // namespace

void offload_activations(PlanBuilder& b, const std::string& name, BufferId residual, LayerBlocks& layer,
                         OffloadedBuffers& known) {
  std::vector<BlockId> forward, recompute, later;
  add_blocks(layer.forward, forward);
  add_blocks(layer.recompute, recompute);
  add_blocks(layer.backward, later);
  add_blocks(layer.backward_input, later);
  if (layer.weight >= 0) later.push_back(layer.weight);
  later.insert(later.end(), recompute.begin(), recompute.end());

  std::set<BufferId> left = kept_buffers(b, forward, {Access::write, Access::update});
  left.insert(residual);
  for (const BufferId again : kept_buffers(b, recompute, {Access::write, Access::update})) left.erase(again);
  const std::set<BufferId> read = kept_buffers(b, later, {Access::read, Access::update});

  std::vector<Operand> out, back;
  std::vector<PlanBuilder::Replacement> replacements;
  for (const BufferId kept : left) {
    if (!read.contains(kept)) continue;
    if (!known.contains(kept)) known[kept] = add_offloaded(b, kept);
    const OffloadedBuffer& o = known[kept];
    out.insert(out.end(), {writes(o.on_host), reads(kept)});
    back.insert(back.end(), {writes(o.fetched), reads(o.on_host)});
    replacements.push_back({kept, 0, o.fetched});
  }
  // Where blocks read a view of rows of a kept buffer, they read the same rows of the fetched one.
  std::set<BufferId> views;
  for (const BlockId block : later)
    for (const Operation& op : b.block(block).operations)
      for (const Operand& o : op.operands)
        if (o.buffer != kNoBuffer && b.buffer(o.buffer).view_of != kNoBuffer) views.insert(o.buffer);
  for (const BufferId view : views) {
    const auto of_kept =
        std::ranges::find_if(replacements, [&](const auto& r) { return r.buffer == b.buffer(view).view_of; });
    if (of_kept == replacements.end()) continue;
    Buffer rows = b.buffer(view);
    rows.name = "fetched." + rows.name;
    rows.view_of = of_kept->by;
    const PlanBuilder::Replacement replacement{view, 0, b.add(std::move(rows))};
    replacements.push_back(replacement);
  }
  for (const BlockId block : later) b.replace(block, replacements);
  if (out.empty()) return;
  const DType type = b.types().stored;
  layer.to_host = b.add({name + ".to_host",
                         {operation("layer.copy_to_host", OpKind::copy_to_host, type, {}, std::move(out))},
                         BlockRole::copy});
  layer.from_host =
      b.add({name + ".from_host",
             {operation("layer.copy_from_host", OpKind::copy_from_host, type, {}, std::move(back))},
             BlockRole::copy});
}

std::vector<Operation> gradients_to_host(const PlanBuilder& b, const std::vector<Tensor>& unit) {
  std::vector<Operand> pairs;
  pairs.reserve(2 * unit.size());
  for (const Tensor& t : unit) pairs.insert(pairs.end(), {writes(t.host_gradient), reads(t.gradient_shard)});
  if (pairs.empty()) return {};
  return list_of(
      operation("gradients.copy_to_host", OpKind::copy_to_host, b.types().gradient, {}, std::move(pairs)));
}

std::vector<Operation> parameters_from_host(const PlanBuilder& b, const std::vector<Tensor>& unit) {
  std::vector<Operand> pairs;
  pairs.reserve(2 * unit.size());
  for (const Tensor& t : unit)
    pairs.insert(pairs.end(), {writes(t.parameter_shard), reads(t.host_parameter)});
  if (pairs.empty()) return {};
  return list_of(
      operation("parameters.copy_from_host", OpKind::copy_from_host, b.types().stored, {}, std::move(pairs)));
}

}  // namespace sim
