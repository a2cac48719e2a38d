#include "sim/plan/memory.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "sim/plan/lives.h"
#include "sim/plan/pack.h"

namespace sim {
namespace {

// The actions [begin, begin + period) repeated `count` times.
struct RepeatedActions {
  std::size_t begin = 0, period = 0;
  std::int64_t count = 1;
};

bool same_work(const Action& a, const Action& b) {
  Variables v = a.variables;
  v.begins_gradients = b.variables.begins_gradients;  // which takes no more memory
  return a.block == b.block && a.layer == b.layer && a.chunk == b.chunk && a.stream == b.stream &&
         v == b.variables;
}

// Micro-batches 0, 1, 2, ... one after the other, each doing the same on buffers of its own or of the plan.
std::optional<RepeatedActions> repeated_micro_batches(const Plan& plan, const Program& program,
                                                      const BlockUses& uses) {
  std::vector<bool> block_works_on_micro_batch;
  for (const auto& block : uses)
    block_works_on_micro_batch.push_back(
        std::ranges::any_of(block, [&](const BlockUse& u) { return is_shared(plan.buffers[u.buffer]); }));
  const auto works_on_micro_batch = [&](const Action& a) {
    return block_works_on_micro_batch[static_cast<std::size_t>(a.block)];
  };
  const auto outlives_micro_batch = [&](const Action& a) {
    const auto& block = uses[static_cast<std::size_t>(a.block)];
    return std::ranges::any_of(block, [&](const BlockUse& u) {
      const Buffer& b = plan.buffers[u.buffer];
      return b.lifetime != Lifetime::plan && !is_scratch(b) && !b.per_micro_batch;
    });
  };
  const std::vector<Action>& actions = program.actions;
  const auto begin = std::ranges::find_if(actions, works_on_micro_batch);
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
  // Rounds that differ have instances of their own, as the last round where it also reduces gradients.
  const auto end =
      actions.begin() + static_cast<std::ptrdiff_t>(r.begin + r.period * static_cast<std::size_t>(r.count));
  if (std::any_of(end, actions.end(), [&](const Action& a) {
        return works_on_micro_batch(a) && a.micro_batch < static_cast<std::int32_t>(r.count);
      }))
    return std::nullopt;
  return r;
}

// Sizes of buffers with the largest variables that a program uses them with. Extents grow with every
// variable, so for each block only variables that no others exceed need a look. Programs of one plan resemble
// each other, so the sizes of a block's buffers are found again only where its variables differ.
class LargestSizes {
 public:
  LargestSizes(const Plan& plan, const BlockUses& uses)
      : plan_(plan), uses_(uses), variables_(plan.blocks.size()), sizes_(plan.blocks.size()) {}

  std::vector<Bytes> of(const Program& program) {
    std::vector<std::vector<Variables>> largest(plan_.blocks.size());
    const auto within = [](const Variables& a, const Variables& b) {
      return a.batch <= b.batch && a.query_length <= b.query_length && a.kv_length <= b.kv_length;
    };
    for (const Action& a : program.actions) {
      auto& l = largest[static_cast<std::size_t>(a.block)];
      if (std::ranges::any_of(l, [&](const Variables& v) { return within(a.variables, v); })) continue;
      std::erase_if(l, [&](const Variables& v) { return within(v, a.variables); });
      l.push_back(a.variables);
    }
    std::vector<Bytes> bytes(plan_.buffers.size());
    for (std::size_t block = 0; block < plan_.blocks.size(); ++block) {
      if (largest[block].empty()) continue;
      if (variables_[block] != largest[block]) {
        variables_[block] = largest[block];
        sizes_[block].clear();
        for (const BlockUse& u : uses_[block]) sizes_[block].push_back(largest_of(u.buffer, block));
      }
      for (std::size_t u = 0; u < uses_[block].size(); ++u) {
        Bytes& of_buffer = bytes[static_cast<std::size_t>(uses_[block][u].buffer)];
        of_buffer = std::max(of_buffer, sizes_[block][u]);
      }
    }
    return bytes;
  }

 private:
  Bytes largest_of(BufferId buffer, std::size_t block) const {
    Bytes largest;
    for (const Variables& v : variables_[block]) largest = std::max(largest, plan_.buffer(buffer).memory(v));
    return largest;
  }

  const Plan& plan_;
  const BlockUses& uses_;
  std::vector<std::vector<Variables>> variables_;  // by block
  std::vector<std::vector<Bytes>> sizes_;          // by block, of each use
};

struct Change {
  OpTime time;
  std::size_t buffer_class;
  Bytes bytes;
};

// Sorts by counting, because there are few times and many changes.
void sort_by_time(std::vector<Change>& changes, OpTime duration) {
  std::vector<std::size_t> place(static_cast<std::size_t>(duration) + 2);
  for (const Change& c : changes) ++place[static_cast<std::size_t>(c.time) + 1];
  for (std::size_t t = 1; t < place.size(); ++t) place[t] += place[t - 1];
  std::vector<Change> sorted(changes.size());
  for (const Change& c : changes) sorted[place[static_cast<std::size_t>(c.time)]++] = c;
  changes = std::move(sorted);
}

// Runs visit(time, live bytes by class) for each operation of the program, once where micro-batches repeat.
// With `largest_only`, an action in which only scratch changes is visited at its largest moment alone.
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
    largest_scratch.push_back(std::ranges::max_element(of_block) - of_block.begin());

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

// `times`: when the program's actions begin.
void assign_addresses(const Plan& plan, const BlockUses& uses, const std::vector<OpTime>& times,
                      MemoryPlan& memory) {
  std::vector<std::vector<OpTime>> block_times(plan.blocks.size());
  const std::vector<Action>& actions = plan.programs[memory.program].actions;
  for (std::size_t i = 0; i < actions.size(); ++i)
    if (memory.micro_batches.fold(times[i]) == times[i])
      block_times[static_cast<std::size_t>(actions[i].block)].push_back(times[i]);
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
    t += static_cast<OpTime>(plan.block(a.block).operations.size());
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

// The instances of a program, by buffer, layer and micro-batch.
std::vector<Instance> instances_of(const Plan& plan, const Lives& lives, const std::vector<Bytes>& bytes) {
  std::vector<Instance> instances;
  instances.reserve(lives.most_instances() + plan.buffers.size());
  std::vector<const BlockUse*> scratch(plan.buffers.size());
  for (std::size_t block = 0; block < plan.blocks.size(); ++block)
    if (lives.runs(block))
      for (const BlockUse& u : lives.scratch_of(block)) scratch[static_cast<std::size_t>(u.buffer)] = &u;
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
    const auto buffer = static_cast<BufferId>(b);
    const auto add = [&](std::int32_t layer, std::int32_t micro_batch, OpTime first, OpTime last) {
      instances.push_back({buffer, layer, micro_batch, bytes[b], first, last, {}});
    };
    if (const BlockUse* u = scratch[b]) add(0, 0, u->first, u->last);
    lives.instances_of(buffer, add);
  }
  return instances;
}

// Finds the fullest moment. Micro-batches that repeat are looked at only once.
void find_peak(const Plan& plan, const Lives& lives, const std::vector<Bytes>& bytes, MemoryPlan& memory) {
  Bytes live;
  std::vector<Bytes> change(static_cast<std::size_t>(memory.duration) + 1);
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
    const Bytes size = aligned(bytes[b]);
    const bool always = plan.buffers[b].lifetime == Lifetime::plan;
    lives.instances_of(static_cast<BufferId>(b), [&](std::int32_t, std::int32_t, OpTime first, OpTime last) {
      if (always) {
        live += size;
      } else {
        change[static_cast<std::size_t>(first)] += size;
        change[static_cast<std::size_t>(last) + 1] -= size;
      }
    });
  }
  std::vector<std::vector<Bytes>> scratch(plan.blocks.size());
  for (std::size_t block = 0; block < plan.blocks.size(); ++block) {
    scratch[block].resize(plan.blocks[block].operations.size());
    for (const BlockUse& u : lives.scratch_of(block))
      for (OpTime t = u.first; t <= u.last; ++t)
        scratch[block][static_cast<std::size_t>(t)] += aligned(bytes[static_cast<std::size_t>(u.buffer)]);
  }
  std::size_t block_at_peak = 0;
  OpTime t = 0, begin_at_peak = 0;
  for (const Action& a : plan.programs[memory.program].actions) {
    const auto block = static_cast<std::size_t>(a.block);
    const OpTime begin = t;
    const bool repeats = memory.micro_batches.fold(begin) != begin;
    for (const Bytes beside : scratch[block]) {
      live += change[static_cast<std::size_t>(t)];
      if (!repeats && live + beside > memory.live_peak) {
        memory.live_peak = live + beside;
        memory.peak_time = t;
        begin_at_peak = begin;
        block_at_peak = block;
      }
      ++t;
    }
  }
  const OpTime within = memory.peak_time - begin_at_peak;
  for (const BlockUse& u : lives.scratch_of(block_at_peak))
    if (u.first <= within && within <= u.last)
      memory.at_peak[BufferClass::scratch] += aligned(bytes[static_cast<std::size_t>(u.buffer)]);
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
    Bytes& of_class = memory.at_peak[plan.buffers[b].buffer_class];
    lives.instances_of(static_cast<BufferId>(b), [&](std::int32_t, std::int32_t, OpTime first, OpTime last) {
      if (first <= memory.peak_time && memory.peak_time <= last) of_class += aligned(bytes[b]);
    });
  }
}

// Plans the programs of a plan, one after the other.
class Planner {
 public:
  Planner(const Plan& plan, bool on_host)
      : plan_(plan), uses_(uses_of_blocks(plan, on_host)), groups_(plan, uses_), sizes_(plan, uses_) {}

  MemoryPlan program(std::size_t index, Addresses addresses, Step step) {
    const Program& program = plan_.programs.at(index);
    const std::vector<OpTime> times = action_times(plan_, index);
    MemoryPlan memory;
    memory.program = index;
    memory.duration = times.back();
    if (const auto r = repeated_micro_batches(plan_, program, uses_); r && r->count > 1)
      memory.micro_batches = {times[r->begin], times[r->begin + r->period] - times[r->begin], r->count};
    const Lives lives(plan_, groups_, index, memory.micro_batches, times, step);
    const std::vector<Bytes> bytes = sizes_.of(program);
    if (addresses != Addresses::unlisted) memory.instances = instances_of(plan_, lives, bytes);
    find_peak(plan_, lives, bytes, memory);
    if (addresses == Addresses::assigned)
      assign_addresses(plan_, uses_, times, memory);
    else
      memory.arena = memory.live_peak;
    return memory;
  }

 private:
  const Plan& plan_;
  BlockUses uses_;
  LifeGroups groups_;
  LargestSizes sizes_;
};

}  // namespace

MemoryPlan plan_memory(const Plan& plan, std::size_t program, Addresses addresses, Step step) {
  return Planner(plan, false).program(program, addresses, step);
}

MemoryPlan plan_host_memory(const Plan& plan, std::size_t program) {
  return Planner(plan, true).program(program, Addresses::assigned, Step::later);
}

void plan_memory_of_all(const Plan& plan, Addresses addresses, const std::function<void(MemoryPlan)>& visit) {
  Planner planner(plan, false);
  for (std::size_t p = 0; p < plan.programs.size(); ++p) visit(planner.program(p, addresses, Step::later));
}

std::vector<MemoryPoint> memory_timeline(const Plan& plan, const MemoryPlan& memory, std::size_t max_points) {
  const Repetition& r = memory.micro_batches;
  std::vector<MemoryPoint> points;
  std::vector<MemoryPoint> round;  // points of one round of micro-batches, where rounds repeat
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
  std::ranges::stable_sort(live, std::greater<>{}, &LiveBuffer::bytes);
  return live;
}

}  // namespace sim
