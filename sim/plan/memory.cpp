#include "sim/plan/memory.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include "sim/plan/pack.h"

namespace sim {
namespace {

bool is_scratch(const Buffer& b) {
  return b.buffer_class == BufferClass::scratch;
}

// Shared by consecutive micro-batches.
bool is_shared(const Buffer& b) {
  return b.per_micro_batch && (b.lifetime == Lifetime::uses || b.lifetime == Lifetime::pass);
}

// A buffer's uses in one block.
struct BlockUse {
  BufferId buffer;
  std::int32_t layer_offset;
  OpTime first, last;  // indices of operations
};

using BlockUses = std::vector<std::vector<BlockUse>>;  // by block

BlockUses uses_of_blocks(const Plan& plan) {
  BlockUses uses(plan.blocks.size());
  std::vector<std::size_t> first_use(plan.buffers.size());  // index into the block's uses, where it is there
  for (std::size_t block = 0; block < plan.blocks.size(); ++block) {
    std::vector<BlockUse>& of_block = uses[block];
    const std::vector<Operation>& operations = plan.blocks[block].operations;
    for (std::size_t i = 0; i < operations.size(); ++i) {
      const auto use = [&](const Operand& o) {
        if (o.buffer == kNoBuffer) return;
        const BufferId buffer = plan.storage(o.buffer);
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

// The actions [begin, begin + period) repeated `count` times.
struct RepeatedActions {
  std::size_t begin = 0, period = 0;
  std::int64_t count = 1;
};

bool same_work(const Action& a, const Action& b) {
  return a.block == b.block && a.layer == b.layer && a.chunk == b.chunk && a.stream == b.stream &&
         a.variables == b.variables;
}

// Micro-batches 0, 1, 2, ... one after the other, each doing the same on buffers of its own or of the plan.
std::optional<RepeatedActions> repeated_micro_batches(const Plan& plan, const Program& program,
                                                      const BlockUses& uses) {
  std::vector<bool> block_works_on_micro_batch;
  for (const auto& block : uses)
    block_works_on_micro_batch.push_back(std::any_of(
        block.begin(), block.end(), [&](const BlockUse& u) { return is_shared(plan.buffers[u.buffer]); }));
  const auto works_on_micro_batch = [&](const Action& a) {
    return block_works_on_micro_batch[static_cast<std::size_t>(a.block)];
  };
  const auto outlives_micro_batch = [&](const Action& a) {
    const auto& block = uses[static_cast<std::size_t>(a.block)];
    return std::any_of(block.begin(), block.end(), [&](const BlockUse& u) {
      const Buffer& b = plan.buffers[u.buffer];
      return b.lifetime != Lifetime::plan && !is_scratch(b) && !b.per_micro_batch;
    });
  };
  const std::vector<Action>& actions = program.actions;
  const auto begin = std::find_if(actions.begin(), actions.end(), works_on_micro_batch);
  if (begin == actions.end() || begin->micro_batch != 0) return std::nullopt;
  const auto period_end = std::find_if(
      begin, actions.end(), [&](const Action& a) { return a.micro_batch != 0 || !works_on_micro_batch(a); });
  RepeatedActions r{.begin = static_cast<std::size_t>(begin - actions.begin()),
                    .period = static_cast<std::size_t>(period_end - begin)};
  if (std::any_of(begin, period_end, outlives_micro_batch)) return std::nullopt;
  std::size_t same = r.begin + r.period;
  for (; same < actions.size(); ++same) {
    const std::size_t round = (same - r.begin) / r.period;
    if (actions[same].micro_batch != static_cast<std::int32_t>(round)) break;
    if (!same_work(actions[same], actions[r.begin + (same - r.begin) % r.period])) break;
  }
  r.count = static_cast<std::int64_t>((same - r.begin) / r.period);
  // Rounds that differ, as the last one where it also reduces gradients, have instances of their own.
  const auto end =
      actions.begin() + static_cast<std::ptrdiff_t>(r.begin + r.period * static_cast<std::size_t>(r.count));
  if (std::any_of(end, actions.end(), [&](const Action& a) {
        return works_on_micro_batch(a) && a.micro_batch < static_cast<std::int32_t>(r.count);
      }))
    return std::nullopt;
  return r;
}

// Each buffer's size with the largest variables that it is used with. Extents grow with every variable, so
// that per block only those need a look that no others exceed.
std::vector<Bytes> largest_bytes(const Plan& plan, const Program& program, const BlockUses& uses) {
  std::vector<std::vector<Variables>> largest(plan.blocks.size());
  const auto within = [](const Variables& a, const Variables& b) {
    return a.batch <= b.batch && a.query_length <= b.query_length && a.kv_length <= b.kv_length;
  };
  for (const Action& a : program.actions) {
    auto& l = largest[static_cast<std::size_t>(a.block)];
    if (std::any_of(l.begin(), l.end(), [&](const Variables& v) { return within(a.variables, v); })) continue;
    std::erase_if(l, [&](const Variables& v) { return within(v, a.variables); });
    l.push_back(a.variables);
  }
  std::vector<Bytes> bytes(plan.buffers.size());
  for (std::size_t block = 0; block < plan.blocks.size(); ++block)
    for (const BlockUse& u : uses[block])
      for (const Variables& v : largest[block])
        bytes[u.buffer] = std::max(bytes[u.buffer], plan.buffers[u.buffer].bytes(v));
  return bytes;
}

struct Change {
  OpTime time;
  std::size_t buffer_class;
  Bytes bytes;
};

// By counting: there are few times and many changes.
void sort_by_time(std::vector<Change>& changes, OpTime duration) {
  std::vector<std::size_t> place(static_cast<std::size_t>(duration) + 2);
  for (const Change& c : changes) ++place[static_cast<std::size_t>(c.time) + 1];
  for (std::size_t t = 1; t < place.size(); ++t) place[t] += place[t - 1];
  std::vector<Change> sorted(changes.size());
  for (const Change& c : changes) sorted[place[static_cast<std::size_t>(c.time)]++] = c;
  changes = std::move(sorted);
}

// Runs visit(time, live bytes by class) for each operation of the program, micro-batches that repeat once.
// With `largest_only`, of an action in which nothing but scratch changes, for its largest moment alone.
template <class Visit>
void sweep(const Plan& plan, const BlockUses& uses, const MemoryPlan& memory, bool largest_only,
           Visit visit) {
  MemoryByClass live{};
  std::vector<Change> changes;
  std::vector<std::vector<Bytes>> scratch(plan.blocks.size());
  std::vector<const Instance*> scratch_instance(plan.buffers.size());
  for (const Instance& i : memory.instances) {
    const Buffer& b = plan.buffers[i.buffer];
    const auto c = static_cast<std::size_t>(b.buffer_class);
    if (is_scratch(b)) {
      scratch_instance[i.buffer] = &i;
    } else if (b.lifetime == Lifetime::plan) {
      live[c] += aligned(i.bytes);
    } else {
      changes.push_back({i.first, c, aligned(i.bytes)});
      changes.push_back({i.last + 1, c, Bytes{} - aligned(i.bytes)});
    }
  }
  sort_by_time(changes, memory.duration);
  for (std::size_t block = 0; block < plan.blocks.size(); ++block) {
    scratch[block].resize(plan.blocks[block].operations.size());
    for (const BlockUse& u : uses[block])
      if (const Instance* i = scratch_instance[u.buffer])
        for (OpTime t = i->first; t <= i->last; ++t)
          scratch[block][static_cast<std::size_t>(t)] += aligned(i->bytes);
  }

  std::vector<OpTime> largest_scratch;  // index of an operation of each block
  for (const std::vector<Bytes>& of_block : scratch)
    largest_scratch.push_back(std::max_element(of_block.begin(), of_block.end()) - of_block.begin());

  const auto scratch_class = static_cast<std::size_t>(BufferClass::scratch);
  const Repetition& r = memory.micro_batches;
  auto change = changes.begin();
  OpTime begin = 0;
  for (const Action& a : plan.programs[memory.program].actions) {
    const auto& block_scratch = scratch[static_cast<std::size_t>(a.block)];
    const auto size = static_cast<OpTime>(block_scratch.size());
    if (r.fold(begin) == begin) {
      const auto visit_at = [&](OpTime t) {
        live[scratch_class] = block_scratch[static_cast<std::size_t>(t - begin)];
        visit(t, live);
      };
      const bool only_scratch_changes = change == changes.end() || change->time >= begin + size;
      if (largest_only && only_scratch_changes) {
        visit_at(begin + largest_scratch[static_cast<std::size_t>(a.block)]);
      } else {
        for (OpTime t = begin; t < begin + size; ++t) {
          for (; change != changes.end() && change->time <= t; ++change)
            live[change->buffer_class] += change->bytes;
          visit_at(t);
        }
      }
    }
    begin += size;
  }
}

// A place for every instance that a program can have, in the order of MemoryPlan::instances.
class InstanceTable {
 public:
  // Of `rounds` micro-batches that repeat each other only the first has instances.
  InstanceTable(const Plan& plan, const Program& program, const BlockUses& uses, std::int64_t rounds)
      : rounds_(rounds), places_(plan.buffers.size()) {
    std::vector<bool> used_block(plan.blocks.size()), used(plan.buffers.size());
    std::int32_t last_layer = 0, last_micro_batch = 0;
    first_layer_ = std::numeric_limits<std::int32_t>::max();
    for (const Action& a : program.actions) {
      used_block[static_cast<std::size_t>(a.block)] = true;
      first_layer_ = std::min(first_layer_, a.layer);
      last_layer = std::max(last_layer, a.layer);
      last_micro_batch = std::max(last_micro_batch, a.micro_batch);
    }
    std::int32_t before = 0, after = 0;  // furthest that a block looks from its own layer
    for (std::size_t block = 0; block < uses.size(); ++block)
      if (used_block[block])
        for (const BlockUse& u : uses[block]) {
          used[u.buffer] = true;
          before = std::min(before, u.layer_offset);
          after = std::max(after, u.layer_offset);
        }
    first_layer_ += before;
    const auto layers = static_cast<std::size_t>(last_layer + after - first_layer_ + 1);
    const auto micro_batches = static_cast<std::size_t>(round(last_micro_batch) + 1);
    std::size_t size = 0;
    for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
      const Buffer& b = plan.buffers[i];
      Place& place = places_[i];
      place.per_layer = b.per_layer;
      place.folds = is_shared(b);
      // What is kept for each micro-batch to the end is so for those that repeat, too.
      const std::size_t own = !b.per_micro_batch ? 1
                              : place.folds      ? micro_batches
                                                 : static_cast<std::size_t>(last_micro_batch) + 1;
      place.base = size;
      place.micro_batches = own;
      if (used[i]) size += (b.per_layer ? layers : 1) * own;
    }
    instances_.resize(size);
  }

  Instance& at(BufferId buffer, std::int32_t layer, std::int32_t micro_batch) {
    const Place& place = places_[static_cast<std::size_t>(buffer)];
    const std::int32_t m = place.folds ? round(micro_batch) : micro_batch;
    const std::size_t row = place.per_layer ? static_cast<std::size_t>(layer - first_layer_) : 0;
    return instances_[place.base + row * place.micro_batches + static_cast<std::size_t>(m)];
  }

  std::vector<Instance> take() && {
    std::erase_if(instances_, [](const Instance& i) { return i.buffer == kNoBuffer; });
    return std::move(instances_);
  }

 private:
  std::int32_t round(std::int32_t micro_batch) const {
    const auto count = static_cast<std::int32_t>(rounds_);
    return micro_batch < count ? 0 : micro_batch - count + 1;
  }

  struct Place {
    std::size_t base = 0, micro_batches = 1;
    bool per_layer = false, folds = false;
  };
  std::int64_t rounds_;
  std::int32_t first_layer_ = 0;
  std::vector<Place> places_;
  std::vector<Instance> instances_;
};

void assign_addresses(const Plan& plan, const BlockUses& uses,
                      const std::vector<std::vector<OpTime>>& block_times, MemoryPlan& memory) {
  std::vector<std::int32_t> block_of(plan.buffers.size(), -1);
  for (std::size_t block = 0; block < plan.blocks.size(); ++block)
    for (const BlockUse& u : uses[block])
      if (is_scratch(plan.buffers[u.buffer])) block_of[u.buffer] = static_cast<std::int32_t>(block);
  std::vector<PackItem> items;
  items.reserve(memory.instances.size());
  for (const Instance& i : memory.instances)
    items.push_back({.bytes = aligned(i.bytes),
                     .first = i.first,
                     .last = i.last,
                     .recurring = block_of[i.buffer],
                     .always = plan.buffers[i.buffer].lifetime == Lifetime::plan});
  memory.arena = pack(items, block_times);
  for (std::size_t i = 0; i < items.size(); ++i) memory.instances[i].offset = items[i].offset;
}

}  // namespace

Bytes total(const MemoryByClass& m) {
  Bytes sum;
  for (const Bytes b : m) sum += b;
  return sum;
}

std::vector<OpTime> action_times(const Plan& plan, std::size_t program) {
  std::vector<OpTime> times;
  times.reserve(plan.programs[program].actions.size() + 1);
  OpTime t = 0;
  for (const Action& a : plan.programs[program].actions) {
    times.push_back(t);
    t += static_cast<OpTime>(plan.blocks[static_cast<std::size_t>(a.block)].operations.size());
  }
  times.push_back(t);
  return times;
}

const Instance& MemoryPlan::find(const Plan& plan, BufferId buffer, std::int32_t layer,
                                 std::int32_t micro_batch) const {
  buffer = plan.storage(buffer);
  const Buffer& b = plan.buffers.at(static_cast<std::size_t>(buffer));
  const bool first_round = micro_batches.count > 1 && is_shared(b) && micro_batch < micro_batches.count;
  const auto key =
      std::make_tuple(buffer, b.per_layer ? layer : 0, b.per_micro_batch && !first_round ? micro_batch : 0);
  const auto it = std::lower_bound(
      instances.begin(), instances.end(), key,
      [](const Instance& i, const auto& k) { return std::make_tuple(i.buffer, i.layer, i.micro_batch) < k; });
  if (it == instances.end() || std::make_tuple(it->buffer, it->layer, it->micro_batch) != key)
    throw std::out_of_range("no instance of " + b.name + " at layer " + std::to_string(layer) +
                            ", micro-batch " + std::to_string(micro_batch));
  return *it;
}

namespace {

// The time of the last operation of the backward pass that each action is part of; its own elsewhere.
std::vector<OpTime> ends_of_backward_passes(const Program& program, const std::vector<OpTime>& times) {
  std::vector<OpTime> ends(program.actions.size());
  std::map<std::pair<std::int32_t, std::int32_t>, OpTime> last;  // of a micro-batch and chunk
  for (std::size_t i = program.actions.size(); i-- > 0;) {
    const Action& a = program.actions[i];
    ends[i] = times[i + 1] - 1;
    const bool computes = a.phase == Phase::backward || a.phase == Phase::recompute;
    if (!computes || a.stream != kComputeStream) continue;  // reductions may follow much later
    ends[i] = last.try_emplace({a.micro_batch, a.chunk}, ends[i]).first->second;
  }
  return ends;
}

MemoryPlan plan_program(const Plan& plan, const BlockUses& uses, std::size_t program_index,
                        Addresses addresses, Step step) {
  const Program& program = plan.programs.at(program_index);
  const std::vector<Bytes> bytes = largest_bytes(plan, program, uses);
  const std::vector<OpTime> times = action_times(plan, program_index);
  const std::vector<OpTime> pass_ends = ends_of_backward_passes(program, times);

  MemoryPlan memory;
  memory.program = program_index;
  memory.duration = times.back();
  if (const auto r = repeated_micro_batches(plan, program, uses); r && r->count > 1)
    memory.micro_batches = {times[r->begin], times[r->begin + r->period] - times[r->begin], r->count};

  // Lives.
  InstanceTable table(plan, program, uses, memory.micro_batches.count);
  const auto layers = static_cast<std::size_t>(plan.scenario.model.num_hidden_layers) + 1;
  std::vector<bool> seen(plan.blocks.size() * layers);  // blocks at layers
  // What a block's next action at the same layer may still change: lives that are not fixed by the first.
  BlockUses recurring_uses = uses;
  for (auto& block : recurring_uses)
    std::erase_if(block, [&](const BlockUse& u) {
      const Buffer& b = plan.buffers[u.buffer];
      return is_scratch(b) || (b.lifetime == Lifetime::plan && !b.per_micro_batch);
    });
  std::vector<std::vector<OpTime>> block_times(plan.blocks.size());
  for (std::size_t i = 0; i < program.actions.size(); ++i) {
    const Action& a = program.actions[i];
    const bool first_round = memory.micro_batches.fold(times[i]) == times[i];
    const auto block = static_cast<std::size_t>(a.block);
    if (first_round) block_times[block].push_back(times[i]);
    const std::size_t place = block * layers + static_cast<std::size_t>(a.layer);
    const bool again = seen.at(place);
    seen[place] = true;
    for (const BlockUse& u : again ? recurring_uses[block] : uses[block]) {
      const Buffer& b = plan.buffers[u.buffer];
      if (!first_round && !(b.lifetime == Lifetime::plan && b.per_micro_batch)) continue;
      const std::int32_t layer = b.per_layer ? a.layer + u.layer_offset : 0;
      const std::int32_t micro_batch = b.per_micro_batch ? a.micro_batch : 0;
      const OpTime begin = is_scratch(b) ? 0 : times[i];
      Instance& instance = table.at(u.buffer, layer, micro_batch);
      const bool added = instance.buffer == kNoBuffer;
      if (added)
        instance = {.buffer = u.buffer,
                    .layer = layer,
                    .micro_batch = micro_batch,
                    .bytes = bytes[u.buffer],
                    .first = begin + u.first,
                    .last = begin + u.last,
                    .offset = {}};
      if (!added) instance.last = std::max(instance.last, begin + u.last);
      if (b.lifetime == Lifetime::pass) instance.last = std::max(instance.last, pass_ends[i]);
      const bool from_the_beginning =
          b.lifetime == Lifetime::plan || (b.lifetime == Lifetime::first_use && step == Step::later);
      if (from_the_beginning) instance.first = 0;
      if (b.lifetime == Lifetime::plan || b.lifetime == Lifetime::first_use)
        instance.last = memory.duration - 1;
    }
  }
  memory.instances = std::move(table).take();

  if (addresses == Addresses::assigned) assign_addresses(plan, uses, block_times, memory);

  sweep(plan, uses, memory, true, [&](OpTime t, const MemoryByClass& live) {
    const Bytes sum = total(live);
    if (sum <= memory.live_peak) return;
    memory.live_peak = sum;
    memory.peak_time = t;
    memory.at_peak = live;
  });
  if (addresses == Addresses::none) memory.arena = memory.live_peak;
  return memory;
}

}  // namespace

MemoryPlan plan_memory(const Plan& plan, std::size_t program, Addresses addresses, Step step) {
  return plan_program(plan, uses_of_blocks(plan), program, addresses, step);
}

void plan_memory_of_all(const Plan& plan, Addresses addresses, const std::function<void(MemoryPlan)>& visit) {
  const BlockUses uses = uses_of_blocks(plan);
  for (std::size_t p = 0; p < plan.programs.size(); ++p)
    visit(plan_program(plan, uses, p, addresses, Step::later));
}

std::vector<MemoryPoint> memory_timeline(const Plan& plan, const MemoryPlan& memory, std::size_t max_points) {
  const Repetition& r = memory.micro_batches;
  std::vector<MemoryPoint> points;
  std::vector<MemoryPoint> round;  // of the micro-batches, where they repeat
  const auto stretch = [&](OpTime t) {
    return static_cast<std::int64_t>(static_cast<double>(t) * static_cast<double>(max_points) /
                                     static_cast<double>(memory.duration));
  };
  const bool thin = static_cast<std::size_t>(memory.duration) > max_points;
  const auto add = [&](OpTime t, const MemoryByClass& live) {
    if (!points.empty() && points.back().bytes == live) return;
    if (!thin || points.empty() || stretch(points.back().time) != stretch(t))
      points.push_back({t, live});
    else if (total(live) > total(points.back().bytes))
      points.back() = {t, live};
  };
  sweep(plan, uses_of_blocks(plan), memory, thin, [&](OpTime t, const MemoryByClass& live) {
    if (t >= r.end()) {
      for (std::int64_t i = 1; i < r.count; ++i)
        for (const MemoryPoint& p : round) add(p.time + i * r.period, p.bytes);
      round.clear();
    }
    if (r.count > 1 && t >= r.begin && t < r.begin + r.period) round.push_back({t, live});
    add(t, live);
  });
  return points;
}

std::vector<LiveBuffer> live_at(const Plan& plan, const MemoryPlan& memory, OpTime time) {
  const OpTime t = memory.micro_batches.fold(time);
  const std::vector<OpTime> times = action_times(plan, memory.program);
  const auto action =
      static_cast<std::size_t>(std::upper_bound(times.begin(), times.end(), t) - times.begin()) - 1;
  const BlockUses uses = uses_of_blocks(plan);
  std::vector<bool> in_block(plan.buffers.size());
  if (action < plan.programs[memory.program].actions.size()) {
    const Action& a = plan.programs[memory.program].actions[action];
    for (const BlockUse& u : uses[static_cast<std::size_t>(a.block)])
      in_block[static_cast<std::size_t>(u.buffer)] = true;
  }
  std::vector<LiveBuffer> live;
  for (const Instance& i : memory.instances) {
    const bool scratch = is_scratch(plan.buffers[i.buffer]);
    const OpTime now = scratch ? t - times[action] : t;
    if (now < i.first || now > i.last || (scratch && !in_block[static_cast<std::size_t>(i.buffer)])) continue;
    if (live.empty() || live.back().buffer != i.buffer) live.push_back({i.buffer, {}, 0});
    live.back().bytes += aligned(i.bytes);
    ++live.back().instances;
  }
  std::stable_sort(live.begin(), live.end(),
                   [](const LiveBuffer& a, const LiveBuffer& b) { return a.bytes > b.bytes; });
  return live;
}

std::vector<LiveBuffer> kept_for_backward(const Plan& plan, std::int32_t layer) {
  const std::vector<Action>& actions = plan.programs.front().actions;
  const auto action_of = [&](Phase phase) {
    return std::find_if(actions.begin(), actions.end(), [&](const Action& a) {
      // Blocks that gather parameters or begin gradients have the phase, but not its name.
      const std::string& block = plan.blocks[static_cast<std::size_t>(a.block)].name;
      return a.phase == phase && a.layer == layer && a.micro_batch == 0 && block.starts_with("layer.") &&
             block.find("." + std::string(name(phase))) != std::string::npos;
    });
  };
  const auto forward = action_of(Phase::forward), backward = action_of(Phase::backward);
  std::vector<LiveBuffer> kept;
  if (forward == actions.end() || backward == actions.end()) return kept;
  const auto recompute = action_of(Phase::recompute);
  const BlockUses uses = uses_of_blocks(plan);
  const auto uses_at = [&](const Action& a) {
    std::vector<std::pair<BufferId, std::int32_t>> at;
    for (const BlockUse& u : uses[static_cast<std::size_t>(a.block)])
      at.emplace_back(u.buffer, u.layer_offset);
    return at;
  };
  auto later = uses_at(*backward);
  if (recompute != actions.end())
    for (const auto& u : uses_at(*recompute)) later.push_back(u);
  for (const auto& [buffer, offset] : uses_at(*forward)) {
    const Buffer& b = plan.buffers[static_cast<std::size_t>(buffer)];
    const bool is_kept = b.buffer_class == BufferClass::activation && b.per_layer && offset == 0 &&
                         std::find(later.begin(), later.end(), std::make_pair(buffer, offset)) != later.end();
    if (is_kept) kept.push_back({buffer, b.bytes(forward->variables), 1});
  }
  std::stable_sort(kept.begin(), kept.end(),
                   [](const LiveBuffer& a, const LiveBuffer& b) { return a.bytes > b.bytes; });
  return kept;
}

}  // namespace sim
