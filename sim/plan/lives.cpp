#include "sim/plan/lives.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

namespace sim {
namespace {

// For each action, the time of its backward pass's last operation; its own time outside backward passes.
std::vector<OpTime> ends_of_backward_passes(const std::vector<Action>& actions,
                                            std::span<const OpTime> times) {
  std::int32_t chunks = 1, micro_batches = 1;
  for (const Action& a : actions) {
    chunks = std::max(chunks, a.chunk + 1);
    micro_batches = std::max(micro_batches, a.micro_batch + 1);
  }
  std::vector<OpTime> last(static_cast<std::size_t>(chunks) * static_cast<std::size_t>(micro_batches), -1);
  std::vector<OpTime> ends(actions.size());
  for (std::size_t i = actions.size(); i-- > 0;) {
    const Action& a = actions[i];
    ends[i] = times[i + 1] - 1;
    const bool computes = a.phase == Phase::backward || a.phase == Phase::recompute;
    if (!computes || a.stream != kComputeStream) continue;  // reductions may follow much later
    OpTime& of_pass = last[static_cast<std::size_t>(a.micro_batch * chunks + a.chunk)];
    if (of_pass < 0) of_pass = ends[i];
    ends[i] = of_pass;
  }
  return ends;
}

}  // namespace

bool is_shared(const Buffer& b) {
  return b.per_micro_batch && (b.lifetime == Lifetime::uses || b.lifetime == Lifetime::pass);
}

BlockUses uses_of_blocks(const Plan& plan, bool on_host) {
  BlockUses uses(plan.blocks.size());
  std::vector<std::size_t> first_use(plan.buffers.size());  // index into the block's uses, where it is there
  for (std::size_t block = 0; block < plan.blocks.size(); ++block) {
    std::vector<BlockUse>& of_block = uses[block];
    const std::vector<Operation>& operations = plan.blocks[block].operations;
    for (std::size_t i = 0; i < operations.size(); ++i) {
      const auto use = [&](const Operand& o) {
        if (o.buffer == kNoBuffer) return;
        const BufferId buffer = plan.storage(o.buffer);
        if (plan.buffers[buffer].on_host != on_host) return;
        const std::int32_t offset = plan.buffers[buffer].per_layer ? o.layer_offset : 0;
        std::size_t& first = first_use[buffer];
        const bool known = first < of_block.size() && of_block[first].buffer == buffer;
        if (!known) first = of_block.size();
        const auto it =
            std::find_if(of_block.begin() + static_cast<std::ptrdiff_t>(first), of_block.end(),
                         [&](const BlockUse& u) { return u.buffer == buffer && u.layer_offset == offset; });
        const auto time = static_cast<OpTime>(i);
        if (it == of_block.end())
          of_block.push_back({buffer, offset, time, time});
        else
          it->last = time;
      };
      for (const Operand& o : operations[i].operands) use(o);
      for (const Operand& o : operations[i].beside) use(o);
    }
  }
  return uses;
}

LifeGroups::LifeGroups(const Plan& plan, const BlockUses& uses)
    : uses_(plan.blocks.size()),
      recurring_(plan.blocks.size()),
      members_(plan.buffers.size()),
      scratch_(plan.blocks.size()) {
  // Where each buffer is used: by block, then in the order of layer offsets.
  std::vector<std::vector<std::pair<std::size_t, BlockUse>>> used(plan.buffers.size());
  for (std::size_t block = 0; block < uses.size(); ++block)
    for (const BlockUse& u : uses[block]) {
      const auto buffer = static_cast<std::size_t>(u.buffer);
      if (is_scratch(plan.buffers[buffer]))
        scratch_[block].push_back(u);
      else
        used[buffer].emplace_back(block, u);
    }
  using Places = std::vector<std::pair<std::size_t, std::int32_t>>;
  std::map<std::tuple<Places, Lifetime, bool, bool>, std::int32_t> known;
  for (std::size_t buffer = 0; buffer < used.size(); ++buffer) {
    if (used[buffer].empty()) continue;
    std::ranges::sort(used[buffer], [](const auto& a, const auto& b) {
      return std::tie(a.first, a.second.layer_offset) < std::tie(b.first, b.second.layer_offset);
    });
    Places places;
    places.reserve(used[buffer].size());
    for (const auto& [block, u] : used[buffer]) places.emplace_back(block, u.layer_offset);
    const Buffer& b = plan.buffers[buffer];
    const auto [it, added] =
        known.try_emplace({std::move(places), b.lifetime, b.per_layer, b.per_micro_batch},
                          static_cast<std::int32_t>(groups_.size()));
    if (added) groups_.push_back({{}, b.lifetime, b.per_layer, b.per_micro_batch, is_shared(b)});
    Group& group = groups_[static_cast<std::size_t>(it->second)];
    members_[buffer] = {it->second, group.buffers.size()};
    group.buffers.push_back(static_cast<BufferId>(buffer));
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    const auto places = used[static_cast<std::size_t>(group.buffers.front())].size();
    for (std::size_t place = 0; place < places; ++place) {
      const auto& [block, u] = used[static_cast<std::size_t>(group.buffers.front())][place];
      const GroupUse use{static_cast<std::int32_t>(g), u.layer_offset, operations_.size()};
      uses_[block].push_back(use);
      if (group.lifetime != Lifetime::plan || group.per_micro_batch) recurring_[block].push_back(use);
      for (const BufferId b : group.buffers) {
        const BlockUse& of_member = used[static_cast<std::size_t>(b)][place].second;
        operations_.push_back({of_member.first, of_member.last});
      }
    }
  }
}

void Lives::place_groups(const Plan& plan, const std::vector<Action>& actions, Step step) {
  struct Layers {
    std::int32_t first = std::numeric_limits<std::int32_t>::max(), last = -1;
  };
  std::vector<Layers> of_block(plan.blocks.size()), of_group(places_.size());
  std::int32_t last_micro_batch = 0;
  for (const Action& a : actions) {
    Layers& layers = of_block[static_cast<std::size_t>(a.block)];
    layers.first = std::min(layers.first, a.layer);
    layers.last = std::max(layers.last, a.layer);
    last_micro_batch = std::max(last_micro_batch, a.micro_batch);
  }
  for (std::size_t block = 0; block < plan.blocks.size(); ++block) {
    runs_[block] = of_block[block].last >= 0;
    if (!runs_[block]) continue;
    for (const LifeGroups::GroupUse& u : groups_.uses_[block]) {
      Layers& layers = of_group[static_cast<std::size_t>(u.group)];
      layers.first = std::min(layers.first, of_block[block].first + u.layer_offset);
      layers.last = std::max(layers.last, of_block[block].last + u.layer_offset);
    }
  }
  std::size_t size = 0;
  for (std::size_t g = 0; g < places_.size(); ++g) {
    const LifeGroups::Group& group = groups_.groups_[g];
    if (of_group[g].first > of_group[g].last) continue;
    Place& place = places_[g];
    place.base = size;
    place.layers = 1;
    if (group.per_layer) {
      place.first_layer = of_group[g].first;
      place.layers = of_group[g].last - of_group[g].first + 1;
    }
    // What is kept for each micro-batch to the end is also kept for micro-batches that repeat.
    if (group.per_micro_batch)
      place.micro_batches = (group.folds ? round(last_micro_batch) : last_micro_batch) + 1;
    const bool made_once = group.lifetime == Lifetime::first_use;
    place.from_the_beginning = group.lifetime == Lifetime::plan || (made_once && step == Step::later);
    place.to_the_end = group.lifetime == Lifetime::plan || made_once;
    size += static_cast<std::size_t>(place.layers) * static_cast<std::size_t>(place.micro_batches);
  }
  lives_.resize(size);
}

Lives::Lives(const Plan& plan, const LifeGroups& groups, std::size_t program, const Repetition& micro_batches,
             std::span<const OpTime> times, Step step)
    : groups_(groups),
      duration_(times.back()),
      rounds_(static_cast<std::int32_t>(micro_batches.count)),
      runs_(plan.blocks.size()),
      places_(groups.groups_.size()) {
  const std::vector<Action>& actions = plan.programs[program].actions;
  place_groups(plan, actions, step);
  const std::vector<OpTime> pass_ends = ends_of_backward_passes(actions, times);
  const auto layers = static_cast<std::size_t>(plan.scenario.model.num_hidden_layers) + 1;
  std::vector<bool> seen(plan.blocks.size() * layers);  // blocks at layers
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const Action& a = actions[i];
    const bool first_round = micro_batches.fold(times[i]) == times[i];
    const auto block = static_cast<std::size_t>(a.block);
    const std::size_t place_of_block = block * layers + static_cast<std::size_t>(a.layer);
    const bool again = seen.at(place_of_block);
    seen[place_of_block] = true;
    for (const LifeGroups::GroupUse& u : again ? groups.recurring_[block] : groups.uses_[block]) {
      const LifeGroups::Group& group = groups.groups_[static_cast<std::size_t>(u.group)];
      if (!first_round && group.folds) continue;
      const Place& place = places_[static_cast<std::size_t>(u.group)];
      const std::int32_t row = group.per_layer ? a.layer + u.layer_offset - place.first_layer : 0;
      const std::int32_t column = !group.per_micro_batch ? 0
                                  : group.folds          ? round(a.micro_batch)
                                                         : a.micro_batch;
      Life& life = lives_[place.base + static_cast<std::size_t>(row * place.micro_batches + column)];
      if (life.first_use == kNone) {
        life.begin = times[i];
        life.first_use = u.operations;
      }
      life.end = times[i];
      life.last_use = u.operations;
      if (group.lifetime == Lifetime::pass) life.pass_end = std::max(life.pass_end, pass_ends[i]);
    }
  }
}

}  // namespace sim
