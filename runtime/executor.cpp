#include "runtime/executor.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>

#include "kernels/attention_segments.h"
#include "runtime/device_collectives.h"
#include "runtime/error.h"
#include "sim/plan/neighbours.h"
#include "sim/plan/ranks.h"

namespace runtime {
namespace {

constexpr std::size_t kPhases = static_cast<std::size_t>(sim::Phase::decode) + 1;

std::size_t rows_index(const sim::Plan& plan, sim::Phase phase, sim::BlockId block) {
  return static_cast<std::size_t>(phase) * plan.blocks.size() + static_cast<std::size_t>(block);
}

sim::DType dtype_of(const sim::Plan& plan, const sim::Operand& operand) {
  return operand.buffer == sim::kNoBuffer ? sim::DType::fp32
                                          : plan.buffers[static_cast<std::size_t>(operand.buffer)].dtype;
}

// Whether an operand's rows are columns of wider rows.
bool has_columns(const sim::Plan& plan, const sim::Operation& operation) {
  return std::any_of(operation.operands.begin(), operation.operands.end(), [&](const sim::Operand& operand) {
    return operand.buffer != sim::kNoBuffer &&
           plan.buffers[static_cast<std::size_t>(operand.buffer)].row_width > 0;
  });
}

std::span<std::byte> bytes_of(const BoundOperand& operand) {
  return {operand.data, static_cast<std::size_t>(operand.bytes)};
}

// Every `step`-th operand from `first` on.
template <class Bytes>
std::vector<Bytes> every(std::span<const BoundOperand> operands, std::size_t first, std::size_t step) {
  std::vector<Bytes> bytes;
  for (std::size_t i = first; i < operands.size(); i += step) bytes.push_back(bytes_of(operands[i]));
  return bytes;
}

// The tag of a message between stages: forward or backward, of a micro-batch, to a chunk of the receiver.
MessageTag tag_of(const sim::Action& action) {
  return (static_cast<MessageTag>(action.micro_batch) << 32) | (static_cast<MessageTag>(action.chunk) << 8) |
         static_cast<MessageTag>(action.phase);
}

// Whether experts take rows that this rank's own choice does not tell.
bool takes_rows_of_others(const sim::Operation& op) {
  return op.place == sim::Place::at_experts;
}

// Embeddings with a weight for each position. Others read what depends on it as rows (the rotary table).
bool follows_positions(const sim::Operation& op) {
  return sim::has(op, sim::Role::position_weight) || sim::has(op, sim::Role::dposition_weight);
}

bool moves_expert_rows(const sim::Operation& op) {
  return op.place == sim::Place::to_experts || op.place == sim::Place::from_experts ||
         op.place == sim::Place::among_experts;
}

// The tag of a sum of a block's gradients, for a layer.
MessageTag tag_of_sum(const sim::Action& action) {
  return (MessageTag{1} << 61) | (static_cast<MessageTag>(action.block) << 32) |
         static_cast<MessageTag>(action.layer);
}

std::vector<Members> groups_of(const sim::Plan& plan, std::int32_t rank) {
  std::vector<Members> groups;
  for (const sim::Group& group : plan.groups) {
    Members members{sim::members_of(plan.scenario.strategy, group, rank), 0};
    const auto self = std::find(members.ranks.begin(), members.ranks.end(), rank);
    members.self = static_cast<std::size_t>(self - members.ranks.begin());
    groups.push_back(std::move(members));
  }
  return groups;
}

// The rank of another stage that an action sends to or receives from.
std::int32_t peer_of(const sim::Plan& plan, const sim::Action& action, std::int32_t rank) {
  const sim::Strategy& strategy = plan.scenario.strategy;
  return rank +
         (action.peer - sim::place_of_rank(strategy, rank).pipeline) * sim::rank_strides(strategy).pipeline;
}

bool is_message(const sim::Operation& operation) {
  return operation.kind == sim::OpKind::send || operation.kind == sim::OpKind::receive;
}

// The pairs of ranks between which a program's messages go: from, to.
std::vector<std::pair<std::int32_t, std::int32_t>> message_pairs(const sim::Plan& plan,
                                                                 const sim::Program& program,
                                                                 std::int32_t rank) {
  std::set<std::pair<std::int32_t, std::int32_t>> pairs;
  for (const sim::Action& action : program.actions)
    for (const sim::Operation& operation : plan.blocks[static_cast<std::size_t>(action.block)].operations) {
      if (!is_message(operation)) continue;
      const std::int32_t peer = peer_of(plan, action, rank);
      pairs.insert(operation.kind == sim::OpKind::send ? std::pair(rank, peer) : std::pair(peer, rank));
    }
  return {pairs.begin(), pairs.end()};
}

}  // namespace

Executor::Executor(const sim::Plan& plan, const sim::MemoryPlan& memory, Device& device,
                   Communicator& communicator, std::size_t program)
    : plan_(plan),
      memory_(memory),
      host_memory_(sim::plan_host_memory(plan, program)),
      program_(plan.programs.at(program)),
      device_(device),
      communicator_(communicator),
      groups_(groups_of(plan, communicator.rank())),
      of_device_(device.shares_host_memory() || communicator.size() == 1
                     ? nullptr
                     : make_device_collectives(device, communicator, groups_,
                                               message_pairs(plan, program_, communicator.rank()))),
      collectives_(of_device_ ? *of_device_ : communicator),
      arena_(device, memory.arena) {
  std::vector<sim::DType> types;
  for (const sim::Block& block : plan.blocks)
    for (const sim::Operation& operation : block.operations) {
      types.clear();
      for (const sim::Operand& operand : operation.operands) types.push_back(dtype_of(plan, operand));
      if (!sim::is_collective(operation.kind) &&
          (!device.supports(operation, types) ||
           (has_columns(plan, operation) && !device.takes_columns(operation, types))))
        throw NoDevice(device.name() + " has no kernel for " + operation.id + " (" +
                       std::string(sim::name(operation.kind)) + " in " +
                       std::string(sim::name(operation.dtype)) +
                       "); `ridgepoint doctor` lists what each device here computes in");
    }
  index_rows();
  pairs_ = sim::always_followed(plan_);
  arena_.make_resident();
  if (host_memory_.arena.value > 0) host_arena_.emplace(device, host_memory_.arena).make_resident();
}

Executor::~Executor() {
  device_.drop_captures();  // which hold calls of the collectives
}

std::span<std::byte> Executor::instance(sim::BufferId buffer, std::int32_t layer,
                                        std::int32_t micro_batch) const {
  const sim::Instance& found = find(buffer, layer, micro_batch);
  return {arena_of(buffer).at(found.offset), static_cast<std::size_t>(found.bytes.value)};
}

const sim::Instance& Executor::find(sim::BufferId buffer, std::int32_t layer,
                                    std::int32_t micro_batch) const {
  const bool on_host = plan_.buffers[static_cast<std::size_t>(plan_.storage(buffer))].on_host;
  return (on_host ? host_memory_ : memory_).find(plan_, buffer, layer, micro_batch);
}

Arena& Executor::arena_of(sim::BufferId buffer) {
  return plan_.buffers[static_cast<std::size_t>(plan_.storage(buffer))].on_host ? *host_arena_ : arena_;
}
const Arena& Executor::arena_of(sim::BufferId buffer) const {
  return plan_.buffers[static_cast<std::size_t>(plan_.storage(buffer))].on_host ? *host_arena_ : arena_;
}

const Executor::Instances& Executor::instances_of(const sim::Action& action) {
  const auto [place, is_new] = instances_.try_emplace({action.block, action.layer, action.micro_batch});
  if (!is_new) return place->second;
  for (const sim::Operation& operation : plan_.blocks[static_cast<std::size_t>(action.block)].operations)
    for (const sim::Operand& operand : operation.operands)
      place->second.push_back(
          operand.buffer == sim::kNoBuffer
              ? nullptr
              : &find(operand.buffer, action.layer + operand.layer_offset, action.micro_batch));
  return place->second;
}

void Executor::index_rows() {
  std::map<std::pair<sim::Phase, std::string>, std::size_t> known;
  rows_of_.resize(kPhases * plan_.blocks.size());
  for (const sim::Action& action : program_.actions) {
    std::vector<std::size_t>& rows = rows_of_[rows_index(plan_, action.phase, action.block)];
    if (!rows.empty()) continue;
    for (const sim::Operation& operation : plan_.blocks[static_cast<std::size_t>(action.block)].operations) {
      const auto [place, is_new] = known.try_emplace({action.phase, operation.id}, rows_.size());
      if (is_new) rows_.push_back({action.phase, operation.id, operation.kind});
      rows.push_back(place->second);
    }
  }
}

void Executor::bind(std::size_t section) {
  if (section == bound_section_) return;
  bound_section_ = static_cast<std::size_t>(-1);  // in case of an exception half-way
  bound_.clear();
  operands_.clear();
  const sim::Section& bounds = program_.sections.at(section);
  const auto actions = std::span(program_.actions).subspan(bounds.begin, bounds.end - bounds.begin);

  std::size_t operands = 0;
  for (const sim::Action& action : actions)
    for (const sim::Operation& operation : plan_.blocks[static_cast<std::size_t>(action.block)].operations)
      operands += operation.operands.size();
  operands_.reserve(operands);  // spans into it are handed out below

  for (const sim::Action& action : actions) {
    const sim::Block& block = plan_.blocks[static_cast<std::size_t>(action.block)];
    const std::vector<std::size_t>& rows = rows_of_[rows_index(plan_, action.phase, action.block)];
    const Instances& instances = instances_of(action);
    std::size_t next = 0;
    for (std::size_t o = 0; o < block.operations.size(); ++o) {
      const sim::Operation& operation = block.operations[o];
      const std::size_t first = operands_.size();
      for (const sim::Operand& operand : operation.operands) {
        const sim::Instance* const instance = instances[next++];
        if (!instance) {
          operands_.push_back({});
          continue;
        }
        operands_.push_back(bind(operand, *instance, action.variables));
      }
      bound_.push_back({{&operation, sim::bound_to(operation, action.variables),
                         std::span(operands_).subspan(first), action.layer, action.micro_batch},
                        rows[o],
                        pairs_[static_cast<std::size_t>(action.block)][o],
                        1,
                        &action});
    }
  }
  find_what_may_fuse();
  bound_section_ = section;
}

BoundOperand Executor::bind(const sim::Operand& operand, const sim::Instance& instance,
                            const sim::Variables& variables) {
  const sim::Buffer& buffer = plan_.buffers[static_cast<std::size_t>(operand.buffer)];
  Arena& arena = arena_of(operand.buffer);
  sim::Bytes bytes = buffer.memory(variables), before = bytes * buffer.part;
  if (buffer.view_of != sim::kNoBuffer && buffer.shard_group >= 0) {
    // Shards are padded; the whole that they are parts of is not.
    const sim::Bytes whole = plan_.buffers[static_cast<std::size_t>(buffer.view_of)].bytes(variables);
    const Members& ranks = groups_[static_cast<std::size_t>(buffer.shard_group)];
    before = std::min(whole, bytes * static_cast<std::int64_t>(ranks.self));
    bytes = std::min(bytes, whole - before);
  }
  if (buffer.row_width > 0) {
    before = {buffer.first_column * sim::bits(buffer.dtype) / 8};
    const sim::Bytes whole = plan_.buffers[static_cast<std::size_t>(buffer.view_of)].bytes(variables);
    arena.touch(instance.offset, sim::aligned(whole));
  } else {
    // Memory is handed out in whole units.
    arena.touch(instance.offset, sim::aligned(before + bytes));
  }
  return {arena.at(instance.offset + before), bytes.value, buffer.dtype, buffer.row_width};
}

// Memory is planned for one operation after the other: a later one may write where an earlier one reads. One
// kernel may then not do both, unless this memory is what the first of them hand on inside the kernel. A pair
// whose memory overlaps anywhere is fused nowhere, for the reason in always_followed().
void Executor::find_what_may_fuse() {
  const auto overlap = [](const BoundOperand& a, const BoundOperand& b) {
    return a.data < b.data + b.bytes && b.data < a.data + a.bytes;
  };
  const auto writes = [&](std::size_t i, const BoundOperand& to, std::size_t operand) {
    return bound_[i].operation.operation->operands[operand].access != sim::Access::read &&
           bound_[i].operation.operands[operand].data == to.data;
  };
  const auto is_handed_on = [&](std::size_t first, std::size_t reader, const BoundOperand& operand) {
    for (std::size_t i = first; i < reader; ++i)
      for (std::size_t o = 0; o < bound_[i].operation.operands.size(); ++o)
        if (writes(i, operand, o)) return true;
    return false;
  };
  // Whether operation `last` writes where the operations from `first` on read.
  const auto in_the_way = [&](std::size_t first, std::size_t last) {
    const BoundOperation& writer = bound_[last].operation;
    for (std::size_t w = 0; w < writer.operands.size(); ++w) {
      if (writer.operation->operands[w].access == sim::Access::read) continue;
      for (std::size_t i = first; i < last; ++i) {
        const BoundOperation& reader = bound_[i].operation;
        for (std::size_t r = 0; r < reader.operands.size(); ++r)
          if (reader.operation->operands[r].access != sim::Access::write &&
              overlap(writer.operands[w], reader.operands[r]) && !is_handed_on(first, i, reader.operands[r]))
            return true;
      }
    }
    return false;
  };
  std::set<std::string_view> apart;
  for (std::size_t i = 0; i + 1 < bound_.size(); ++i)
    if (bound_[i].is_followed && in_the_way(i, i + 1)) apart.insert(bound_[i + 1].operation.operation->id);
  for (std::size_t i = 0; i + 1 < bound_.size(); ++i) {
    std::size_t& count = bound_[i].may_fuse;
    if (apart.count(bound_[i + 1].operation.operation->id) > 0) continue;
    while (count < Device::kMostFused && bound_[i + count - 1].is_followed && !in_the_way(i, i + count))
      ++count;
  }
}

SectionTiming Executor::run(std::size_t section, const RunSettings& settings) {
  bind(section);
  device_.begin(settings);
  began_ = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  device_.record(0);
  std::vector<std::size_t> spent_by(bound_.size());  // the operation whose kernel did the work
  for (std::size_t i = 0; i < bound_.size();) {
    if (ends_sums(i)) {
      end_sums();
      device_.record(i);  // the wait is of the last sum
    }
    const FusedRun done = execute_from(i, settings);
    const std::size_t main = i + done.main;
    for (const std::size_t end = i + done.count; i < end; ++i) {
      spent_by[i] = main;
      device_.record(i + 1);
    }
  }
  collectives_.finish();
  device_.synchronise();
  stamps_.resize(bound_.size() + 1);
  device_.stamps(stamps_);

  SectionTiming timing;
  timing.seconds = stamps_.back();
  timing.start.resize(rows_.size());
  timing.duration.resize(rows_.size());
  timing.count.resize(rows_.size());
  timing.fused_into.resize(rows_.size(), SectionTiming::kAlone);
  for (std::size_t i = 0; i < bound_.size(); ++i) {
    const std::size_t row = bound_[i].row;
    if (timing.count[row]++ == 0) timing.start[row] = stamps_[i];
    const std::size_t into = bound_[spent_by[i]].row;
    timing.duration[into] += stamps_[i + 1] - stamps_[i];
    if (spent_by[i] != i) timing.fused_into[row] = into;
  }
  return timing;
}

std::vector<ActionSpan> Executor::action_spans() const {
  std::vector<ActionSpan> spans;
  const sim::Action* current = nullptr;
  for (std::size_t i = 0; i + 1 < stamps_.size() && i < bound_.size(); ++i) {
    if (bound_[i].action != current) {
      current = bound_[i].action;
      spans.push_back({static_cast<std::size_t>(current - program_.actions.data()), stamps_[i], 0});
    }
    spans.back().end = stamps_[i + 1];
  }
  return spans;
}

double Executor::run_whole(std::size_t section, const RunSettings& settings) {
  bind(section);
  device_.begin(settings);
  const bool replays = device_.can_replay() && can_capture();
  std::size_t number = 0;
  while (number < captured_.size() && !is_bound_alike(captured_[number], settings)) ++number;
  if (replays && number == captured_.size()) {
    device_.begin_capture();
    run_bound(settings);
    device_.end_capture(number);
    captured_.push_back({bound_, operands_, settings.sampling, section, false});
  }
  device_.record(0);
  if (replays)
    device_.replay(number);
  else
    run_bound(settings);
  device_.record(1);
  collectives_.finish();
  device_.synchronise();
  std::array<double, 2> stamps{};
  device_.stamps(stamps);
  return stamps[1];
}

void Executor::run_bound(const RunSettings& settings) {
  for (std::size_t i = 0; i < bound_.size();) {
    if (ends_sums(i)) end_sums();
    i += execute_from(i, settings).count;
  }
}

bool Executor::can_queue(std::size_t section) const {
  if (!device_.can_replay() || communicator_.size() > 1) return false;
  for (const Captured& captured : captured_)
    if (captured.passes_tokens_on && has_alike_actions(captured.section, section)) return true;
  const sim::Section& bounds = program_.sections.at(section);
  return std::all_of(
      program_.actions.begin() + static_cast<std::ptrdiff_t>(bounds.begin),
      program_.actions.begin() + static_cast<std::ptrdiff_t>(bounds.end), [&](const sim::Action& action) {
        sim::Variables longer = action.variables;
        ++longer.kv_length;
        const std::vector<sim::Operation>& operations =
            plan_.blocks[static_cast<std::size_t>(action.block)].operations;
        const auto keeps_size = [&](const sim::Operand& operand) {
          if (operand.buffer == sim::kNoBuffer) return true;
          const sim::Buffer& buffer = plan_.buffers[static_cast<std::size_t>(operand.buffer)];
          return buffer.bytes(longer) == buffer.bytes(action.variables);
        };
        return action.variables.query_length == 1 &&
               std::all_of(operations.begin(), operations.end(), [&](const sim::Operation& operation) {
                 return std::all_of(operation.operands.begin(), operation.operands.end(), keeps_size);
               });
      });
}

void Executor::begin_queue(const RunSettings& settings, const TokenLoop& loop) {
  queue_settings_ = settings;
  token_loop_ = loop;
  queued_ = read_ = settings.sampling_step;
  device_.expect_tokens(loop.batch);
  device_.begin(settings);
}

void Executor::queue(std::size_t section) {
  if (queued_ - read_ >= kAhead) throw std::logic_error("a section is queued before tokens are read");
  std::size_t number = 0;
  while (number < captured_.size() &&
         !(captured_[number].passes_tokens_on && captured_[number].sampling == queue_settings_.sampling &&
           has_alike_actions(captured_[number].section, section)))
    ++number;
  if (number == captured_.size()) {
    bind(section);
    device_.begin_capture();
    run_bound(queue_settings_);
    device_.pass_tokens_on(token_loop_);
    device_.end_capture(number);
    captured_.push_back({bound_, operands_, queue_settings_.sampling, section, true});
  }
  device_.replay(number);
  device_.mark_tokens(queued_++);
}

void Executor::read_queued(std::span<std::int32_t> tokens) {
  if (read_ == queued_) throw std::logic_error("no section is queued");
  device_.read_tokens(read_++, tokens);
}

bool Executor::has_alike_actions(std::size_t a, std::size_t b) const {
  const sim::Section &first = program_.sections.at(a), &second = program_.sections.at(b);
  const auto begin = program_.actions.begin();
  return std::equal(
      begin + static_cast<std::ptrdiff_t>(first.begin), begin + static_cast<std::ptrdiff_t>(first.end),
      begin + static_cast<std::ptrdiff_t>(second.begin), begin + static_cast<std::ptrdiff_t>(second.end),
      [](const sim::Action& x, const sim::Action& y) {
        return x.block == y.block && x.layer == y.layer && x.micro_batch == y.micro_batch &&
               x.variables.batch == y.variables.batch && x.variables.query_length == y.variables.query_length;
      });
}

// Hosts announce messages to each other, and experts' rows depend on what the host reads.
bool Executor::can_capture() const {
  return !of_device_ || (collectives_.can_be_captured() &&
                         std::none_of(bound_.begin(), bound_.end(), [](const Bound& bound) {
                           return is_message(*bound.operation.operation) ||
                                  moves_expert_rows(*bound.operation.operation);
                         }));
}

bool Executor::is_bound_alike(const Captured& captured, const RunSettings& settings) const {
  if (captured.passes_tokens_on || captured.sampling != settings.sampling) return false;
  const auto same_operation = [](const Bound& a, const Bound& b) {
    return a.operation.operation == b.operation.operation &&
           a.operation.variables.batch == b.operation.variables.batch &&
           a.operation.variables.query_length == b.operation.variables.query_length &&
           a.operation.variables.begins_gradients == b.operation.variables.begins_gradients;
  };
  const auto same_operand = [](const BoundOperand& a, const BoundOperand& b) {
    return a.data == b.data && a.bytes == b.bytes && a.dtype == b.dtype;
  };
  return std::equal(bound_.begin(), bound_.end(), captured.bound.begin(), captured.bound.end(),
                    same_operation) &&
         std::equal(operands_.begin(), operands_.end(), captured.operands.begin(), captured.operands.end(),
                    same_operand);
}

FusedRun Executor::execute_from(std::size_t i, const RunSettings& settings) {
  if (bound_[i].may_fuse > 1) {
    std::vector<BoundOperation> operations;
    for (std::size_t o = i; o < i + bound_[i].may_fuse; ++o) operations.push_back(bound_[o].operation);
    if (const FusedRun done = device_.run_fused(operations, settings); done.count > 0) return done;
  }
  constexpr FusedRun kAlone{1, 0};
  Bound& bound = bound_[i];
  if (sim::is_collective(bound.operation.operation->kind)) {
    communicate(bound);
    return kAlone;
  }
  if (settings.context.ranks > 1 && follows_positions(*bound.operation.operation)) {
    run_by_segments(bound, settings);
    return kAlone;
  }
  if (takes_rows_of_others(*bound.operation.operation))
    bound.operation.group_offsets = expert_rows_of(bound).offsets();
  device_.run(bound.operation, settings);
  return kAlone;
}

void Executor::communicate(const Bound& bound) {
  const BoundOperation& operation = bound.operation;
  const sim::OpKind kind = operation.operation->kind;
  if (kind == sim::OpKind::send || kind == sim::OpKind::receive) return send_or_receive(bound);
  if (moves_expert_rows(*operation.operation)) return move_expert_rows(bound);
  const Members& members = groups_.at(static_cast<std::size_t>(operation.operation->group));
  const std::span<const BoundOperand> operands = operation.operands;
  const std::vector<sim::Operand>& planned = operation.operation->operands;
  if (std::any_of(planned.begin(), planned.end(), [&](const sim::Operand& o) { return in_columns(o); }))
    return with_columns_together(
        bound, [&](std::span<const BoundOperand> together) { carry_out(bound, members, together); });
  if (kind == sim::OpKind::all_to_all && operation.operation->dims.heads > 0) return exchange_heads(bound);
  carry_out(bound, members, operands);
}

void Executor::carry_out(const Bound& bound, const Members& members, std::span<const BoundOperand> operands) {
  const BoundOperation& operation = bound.operation;
  const sim::DType dtype = operands.front().dtype;
  switch (operation.operation->kind) {
    case sim::OpKind::all_reduce:
      if (is_of_directions(bound)) {
        begun_sums_.push_back(&bound);
        return collectives_.begin_all_reduce(members, tag_of_sum(*bound.action),
                                             every<MutableBytes>(operands, 0, 1));
      }
      return collectives_.all_reduce(members, every<MutableBytes>(operands, 0, 1), dtype);
    case sim::OpKind::reduce_scatter:
      return collectives_.reduce_scatter(members, every<MutableBytes>(operands, 0, 2),
                                         every<ConstBytes>(operands, 1, 2), dtype,
                                         operation.operation->operands.front().access == sim::Access::update);
    case sim::OpKind::all_gather:
      if (gathers_columns(operation)) return gather_columns(operation, members);
      return collectives_.all_gather(members, every<MutableBytes>(operands, 0, 2),
                                     every<ConstBytes>(operands, 1, 2), dtype);
    case sim::OpKind::all_to_all:
      return collectives_.all_to_all(members, bytes_of(operands[0]), bytes_of(operands[1]));
    case sim::OpKind::exchange:
      return collectives_.exchange(members, every<MutableBytes>(operands, 0, 2),
                                   every<ConstBytes>(operands, 1, 2));
    default:
      throw std::logic_error("not a collective: " + operation.operation->id);
  }
}

// Whether each rank has some columns of the rows, as of logits; otherwise ranks have rows, or flat shards.
bool Executor::gathers_columns(const BoundOperation& operation) const {
  const auto shape = [&](std::size_t i) {
    return plan_.buffers[static_cast<std::size_t>(operation.operation->operands[i].buffer)].shape;
  };
  return operation.operands.size() == 2 && shape(0).size() == 2 && shape(1).size() == 2 &&
         shape(0).front() == shape(1).front();
}

void Executor::gather_columns(const BoundOperation& operation, const Members& members) {
  const BoundOperand &whole = operation.operands[0], &own = operation.operands[1];
  const sim::Buffer& buffer =
      plan_.buffers[static_cast<std::size_t>(operation.operation->operands[1].buffer)];
  const std::int64_t rows = buffer.shape.front().value(operation.variables), width = own.bytes / rows;
  const auto ranks = static_cast<std::int64_t>(members.size());
  Collectives::MutableParts out(members.size());
  for (std::int64_t r = 0; r < ranks; ++r)
    for (std::int64_t row = 0; row < rows; ++row)
      out[static_cast<std::size_t>(r)].emplace_back(whole.data + (row * ranks + r) * width,
                                                    static_cast<std::size_t>(width));
  collectives_.exchange_parts(members, out,
                              Collectives::ConstParts(members.size(), {ConstBytes(bytes_of(own))}));
}

bool Executor::in_columns(const sim::Operand& operand) const {
  if (operand.buffer == sim::kNoBuffer) return false;
  const sim::Buffer& view = plan_.buffers[static_cast<std::size_t>(operand.buffer)];
  if (view.view_of == sim::kNoBuffer || view.shard_group >= 0 || view.shape.size() != 2) return false;
  return !(view.shape.back() == plan_.buffers[static_cast<std::size_t>(view.view_of)].shape.back());
}

void Executor::with_columns_together(const Bound& bound,
                                     const std::function<void(std::span<const BoundOperand>)>& act) {
  const sim::Variables& v = bound.operation.variables;
  std::vector<BoundOperand> together(bound.operation.operands.begin(), bound.operation.operands.end());
  std::vector<std::vector<MutableBytes>> apart(together.size());  // each row's columns, where they lie
  for (std::size_t i = 0; i < together.size(); ++i) {
    const sim::Operand& operand = bound.operation.operation->operands[i];
    if (!in_columns(operand)) continue;
    const sim::Buffer& view = plan_.buffers[static_cast<std::size_t>(operand.buffer)];
    const sim::Buffer& wide = plan_.buffers[static_cast<std::size_t>(view.view_of)];
    const std::int64_t rows = view.shape.front().value(v), columns = view.bytes(v).value / rows;
    const std::int64_t width = wide.bytes(v).value / rows;  // the columns are the last ones
    for (std::int64_t r = 0; r < rows; ++r)
      apart[i].emplace_back(together[i].data + r * width + (width - columns),
                            static_cast<std::size_t>(columns));
    const MutableBytes memory = collectives_.memory(i, static_cast<std::size_t>(together[i].bytes));
    if (operand.access != sim::Access::write)
      collectives_.copy(std::span(&memory, 1), std::vector<ConstBytes>(apart[i].begin(), apart[i].end()));
    together[i].data = memory.data();
  }
  act(together);
  for (std::size_t i = 0; i < together.size(); ++i) {
    if (apart[i].empty() || bound.operation.operation->operands[i].access == sim::Access::read) continue;
    const ConstBytes memory = bytes_of(together[i]);
    collectives_.copy(apart[i], std::span(&memory, 1));
  }
}

// Exchanges rows (batch, tokens of this rank) of all heads for rows (batch, all tokens) of this rank's share
// of the heads, or back. Heads of queries come first, then those of keys and of values.
void Executor::exchange_heads(const Bound& bound) {
  const sim::Operation& op = *bound.operation.operation;
  const Members& members = groups_[static_cast<std::size_t>(op.group)];
  const BoundOperand &out = bound.operation.operands[0], &inp = bound.operation.operands[1];
  const sim::Buffer& to = plan_.buffers[static_cast<std::size_t>(op.operands[0].buffer)];
  const bool gathers_rows = to.shape.size() == 3;
  const sim::Variables& v = bound.operation.variables;
  const auto ranks = static_cast<std::int64_t>(members.size());
  const std::int64_t head = op.dims.head_dim * sim::bits(out.dtype) / 8;
  const std::int64_t sections[] = {op.dims.heads, op.dims.kv_heads, op.dims.kv_heads};
  const std::int64_t width = (op.dims.heads + 2 * op.dims.kv_heads) * head, share = width / ranks;
  // For rank r: its heads of my rows, and my heads of its rows, as segments in the same order.
  const auto heads_of = [&](std::byte* rows, std::int64_t r, auto& segments) {
    for (std::int64_t b = 0; b < v.batch; ++b)
      for (std::int64_t t = 0; t < v.query_length; ++t) {
        std::byte* at = rows + (b * v.query_length + t) * width;
        for (const std::int64_t heads : sections) {
          const std::int64_t bytes = heads / ranks * head;
          if (bytes > 0) segments.emplace_back(at + r * bytes, static_cast<std::size_t>(bytes));
          at += heads * head;
        }
      }
  };
  const auto rows_of = [&](std::byte* heads, std::int64_t r, auto& segments) {
    for (std::int64_t b = 0; b < v.batch; ++b)
      for (std::int64_t t = 0; t < v.query_length; ++t) {
        const std::int64_t position = kernels::ContextPart{ranks, r}.position(t, v.query_length);
        segments.emplace_back(heads + (b * v.kv_length + position) * share, static_cast<std::size_t>(share));
      }
  };
  Collectives::MutableParts parts_out(members.size());
  Collectives::ConstParts parts_inp(members.size());
  for (std::int64_t r = 0; r < ranks; ++r) {
    auto& o = parts_out[static_cast<std::size_t>(r)];
    auto& i = parts_inp[static_cast<std::size_t>(r)];
    if (gathers_rows) {
      rows_of(out.data, r, o);
      heads_of(inp.data, r, i);
    } else {
      heads_of(out.data, r, o);
      rows_of(inp.data, r, i);
    }
  }
  collectives_.exchange_parts(members, parts_out, parts_inp);
}

// Runs on rows (batch, tokens of this rank) and the weights of positions, which are those of all positions.
void Executor::run_by_segments(const Bound& bound, const RunSettings& settings) {
  const sim::OpKind kind = bound.operation.operation->kind;
  const sim::Variables& v = bound.operation.variables;
  const std::int64_t half = v.query_length / 2;
  for (std::int64_t b = 0; b < v.batch; ++b)
    for (std::int64_t first = 0; first < v.query_length; first += half) {
      std::vector<BoundOperand> operands(bound.operation.operands.begin(), bound.operation.operands.end());
      for (std::size_t i = 0; i < operands.size(); ++i) {
        const sim::Role role = sim::info(kind).operands.at(i).role;
        BoundOperand& operand = operands[i];
        if (!operand.data) continue;
        const std::int64_t row = bound.operation.operation->dims.hidden * sim::bits(operand.dtype) / 8;
        if (role == sim::Role::position_weight || role == sim::Role::dposition_weight)
          operand.data += settings.context.position(first, v.query_length) * row;
        else if (role == sim::Role::tokens)
          operand.data += (b * v.query_length + first) * static_cast<std::int64_t>(sizeof(std::int32_t));
        else if (role == sim::Role::out || role == sim::Role::dout)
          operand.data += (b * v.query_length + first) * row;
      }
      BoundOperation segment = bound.operation;
      segment.variables.batch = 1;
      segment.variables.query_length = half;
      segment.operands = operands;
      device_.run(segment, settings);
    }
}

ExpertRows& Executor::expert_rows_of(const Bound& bound) {
  return expert_rows_[{bound.action->layer, bound.action->micro_batch}];
}

void Executor::learn_expert_rows(const Bound& bound) {
  const Bound* choice = &bound;
  while (choice != bound_.data() && choice->action == bound.action &&
         choice->operation.operation->kind != sim::OpKind::permute)
    --choice;
  if (choice->action != bound.action || choice->operation.operation->kind != sim::OpKind::permute) return;
  const BoundOperation& permute = choice->operation;
  const int indices = sim::index_of(sim::OpKind::permute, sim::Role::indices);
  const BoundOperand& chosen = permute.operands[static_cast<std::size_t>(indices)];
  std::vector<std::int32_t> experts(static_cast<std::size_t>(chosen.bytes) / sizeof(std::int32_t));
  device_.copy_from_device(std::as_writable_bytes(std::span(experts)), chosen.data);
  const sim::Dims& dims = permute.operation->dims;
  std::vector<std::int64_t> rows(static_cast<std::size_t>(dims.experts));
  if (permute.operation->has_capacity)
    std::fill(rows.begin(), rows.end(), dims.inner.value(permute.variables) / dims.experts);
  else
    for (const std::int32_t expert : experts) ++rows[static_cast<std::size_t>(expert)];
  const Members *divided = nullptr, *sharing = nullptr;
  for (const sim::Operation& op : plan_.blocks[static_cast<std::size_t>(bound.action->block)].operations) {
    if (!moves_expert_rows(op)) continue;
    const Members& members = groups_[static_cast<std::size_t>(op.group)];
    (op.place == sim::Place::among_experts ? sharing : divided) = &members;
  }
  expert_rows_of(bound) = ExpertRows(std::move(rows), communicator_, divided, sharing);
  if (divided) {
    expert_imbalance_ += expert_rows_of(bound).busiest_over_mean();
    ++expert_choices_;
  }
}

double Executor::expert_imbalance() const {
  return expert_choices_ > 0 ? expert_imbalance_ / static_cast<double>(expert_choices_) : 0;
}

void Executor::move_expert_rows(const Bound& bound) {
  const sim::Operation& op = *bound.operation.operation;
  // After the choice: what goes to the experts or, where experts are not divided, is gathered.
  const bool first =
      op.place == sim::Place::to_experts || (op.kind == sim::OpKind::all_gather && &bound != bound_.data() &&
                                             !moves_expert_rows(*(&bound - 1)->operation.operation));
  if (first && bound.action->phase != sim::Phase::backward) learn_expert_rows(bound);
  for (std::size_t i = 0; i + 1 < op.operands.size(); i += 2) {
    const BoundOperand &out = bound.operation.operands[i], &inp = bound.operation.operands[i + 1];
    const sim::Buffer& buffer = plan_.buffers[static_cast<std::size_t>(op.operands[i].buffer)];
    const std::int64_t rows = buffer.shape.front().most_value(bound.operation.variables);
    expert_rows_of(bound).move(op, {out.data, inp.data, out.bytes / rows, rows, out.dtype},
                               groups_[static_cast<std::size_t>(op.group)], collectives_);
  }
}

bool Executor::is_of_directions(const Bound& bound) const {
  const std::int32_t group = bound.operation.operation->group;
  return group >= 0 && plan_.groups[static_cast<std::size_t>(group)].axis == sim::Axis::directions;
}

bool Executor::ends_sums(std::size_t i) const {
  return !begun_sums_.empty() && bound_[i].action->phase == sim::Phase::optimizer;
}

// Sums end in the order of their tags, which is the same for all members.
void Executor::end_sums() {
  std::sort(begun_sums_.begin(), begun_sums_.end(),
            [](const Bound* a, const Bound* b) { return tag_of_sum(*a->action) < tag_of_sum(*b->action); });
  for (const Bound* bound : begun_sums_) {
    const std::span<const BoundOperand> operands = bound->operation.operands;
    collectives_.end_all_reduce(groups_[static_cast<std::size_t>(bound->operation.operation->group)],
                                tag_of_sum(*bound->action), every<MutableBytes>(operands, 0, 1),
                                operands.front().dtype);
  }
  begun_sums_.clear();
}

void Executor::send_or_receive(const Bound& bound) {
  const std::int32_t peer = peer_of(plan_, *bound.action, communicator_.rank());
  const std::span<std::byte> bytes = bytes_of(bound.operation.operands.front());
  if (bound.operation.operation->kind == sim::OpKind::send)
    collectives_.send(peer, tag_of(*bound.action), bytes);
  else
    collectives_.receive(peer, tag_of(*bound.action), bytes);
}

}  // namespace runtime
