#include "runtime/executor.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>

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

// What is sent between stages: forward or backward, of a micro-batch, to a chunk of the receiver.
MessageTag tag_of(const sim::Action& action) {
  return (static_cast<MessageTag>(action.micro_batch) << 32) | (static_cast<MessageTag>(action.chunk) << 8) |
         static_cast<MessageTag>(action.phase);
}

}  // namespace

Executor::Executor(const sim::Plan& plan, const sim::MemoryPlan& memory, Device& device,
                   Communicator& communicator, std::size_t program)
    : plan_(plan),
      memory_(memory),
      program_(plan.programs.at(program)),
      device_(device),
      communicator_(communicator),
      arena_(device, memory.arena) {
  std::vector<sim::DType> types;
  for (const sim::Block& block : plan.blocks)
    for (const sim::Operation& operation : block.operations) {
      types.clear();
      for (const sim::Operand& operand : operation.operands) types.push_back(dtype_of(plan, operand));
      if (!sim::is_collective(operation.kind) && !device.supports(operation, types))
        throw NoDevice(device.name() + " has no kernel for " + operation.id + " (" +
                       std::string(sim::name(operation.kind)) + " in " +
                       std::string(sim::name(operation.dtype)) +
                       "); the CPU runs implementation ridgepoint in fp32");
    }
  for (const sim::Group& group : plan.groups) {
    Members members{sim::members_of(plan.scenario.strategy, group, communicator.rank()), 0};
    const auto self = std::find(members.ranks.begin(), members.ranks.end(), communicator.rank());
    members.self = static_cast<std::size_t>(self - members.ranks.begin());
    groups_.push_back(std::move(members));
  }
  index_rows();
  pairs_ = sim::always_followed(plan_);
  arena_.make_resident();
}

std::span<std::byte> Executor::instance(sim::BufferId buffer, std::int32_t layer,
                                        std::int32_t micro_batch) const {
  const sim::Instance& found = memory_.find(plan_, buffer, layer, micro_batch);
  return {arena_.at(found.offset), static_cast<std::size_t>(found.bytes.value)};
}

const Executor::Instances& Executor::instances_of(const sim::Action& action) {
  const auto [place, is_new] = instances_.try_emplace({action.block, action.layer, action.micro_batch});
  if (!is_new) return place->second;
  for (const sim::Operation& operation : plan_.blocks[static_cast<std::size_t>(action.block)].operations)
    for (const sim::Operand& operand : operation.operands)
      place->second.push_back(operand.buffer == sim::kNoBuffer
                                  ? nullptr
                                  : &memory_.find(plan_, operand.buffer, action.layer + operand.layer_offset,
                                                  action.micro_batch));
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
      bound_.push_back({{&operation, action.variables, std::span(operands_).subspan(first), action.layer,
                         action.micro_batch},
                        rows[o],
                        pairs_[static_cast<std::size_t>(action.block)][o], &action});
    }
  }
  part_what_overlaps();
  bound_section_ = section;
}

BoundOperand Executor::bind(const sim::Operand& operand, const sim::Instance& instance,
                            const sim::Variables& variables) {
  const sim::Buffer& buffer = plan_.buffers[static_cast<std::size_t>(operand.buffer)];
  sim::Bytes bytes = buffer.bytes(variables), before = bytes * buffer.part;
  if (buffer.view_of != sim::kNoBuffer && buffer.shard_group >= 0) {
    // Shards are padded; what they are a part of is not.
    const sim::Bytes whole = plan_.buffers[static_cast<std::size_t>(buffer.view_of)].bytes(variables);
    const Members& ranks = groups_[static_cast<std::size_t>(buffer.shard_group)];
    before = std::min(whole, bytes * static_cast<std::int64_t>(ranks.self));
    bytes = std::min(bytes, whole - before);
  }
  // Memory is handed out in whole units.
  arena_.touch(instance.offset, sim::aligned(before + bytes));
  return {arena_.at(instance.offset + before), bytes.value, buffer.dtype};
}

// Memory is planned for one operation after the other: what the second of a pair writes may lie where the
// first reads. Then that pair is fused nowhere, for the reason that always_followed() has.
void Executor::part_what_overlaps() {
  const auto overlap = [](const BoundOperand& a, const BoundOperand& b) {
    return a.data < b.data + b.bytes && b.data < a.data + a.bytes;
  };
  std::set<std::string_view> apart;
  for (std::size_t i = 0; i + 1 < bound_.size(); ++i) {
    if (!bound_[i].may_fuse) continue;
    const BoundOperation &first = bound_[i].operation, &second = bound_[i + 1].operation;
    for (std::size_t w = 0; w < second.operands.size(); ++w) {
      if (second.operation->operands[w].access == sim::Access::read) continue;
      for (std::size_t r = 0; r < first.operands.size(); ++r)
        if (first.operation->operands[r].access != sim::Access::write &&
            overlap(second.operands[w], first.operands[r]))
          apart.insert(second.operation->id);
    }
  }
  for (std::size_t i = 0; i + 1 < bound_.size(); ++i)
    if (apart.count(bound_[i + 1].operation.operation->id) > 0) bound_[i].may_fuse = false;
}

SectionTiming Executor::run(std::size_t section, const RunSettings& settings) {
  bind(section);
  device_.begin(settings);
  device_.record(0);
  std::vector<bool> was_fused(bound_.size(), false);  // into the one before
  for (std::size_t i = 0; i < bound_.size();) {
    const std::size_t done = execute_from(i, settings);
    if (done > 1) was_fused[i + 1] = true;
    for (const std::size_t end = i + done; i < end; ++i) device_.record(i + 1);
  }
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
    const std::size_t spent_by = was_fused[i] ? bound_[i - 1].row : row;
    timing.duration[spent_by] += stamps_[i + 1] - stamps_[i];
    if (was_fused[i]) timing.fused_into[row] = spent_by;
  }
  return timing;
}

double Executor::run_whole(std::size_t section, const RunSettings& settings) {
  bind(section);
  device_.begin(settings);
  const auto run_all = [&] {
    for (std::size_t i = 0; i < bound_.size();) i += execute_from(i, settings);
  };
  std::size_t number = 0;
  while (number < captured_.size() && !is_bound_alike(captured_[number])) ++number;
  if (device_.can_replay() && number == captured_.size()) {
    device_.begin_capture();
    run_all();
    device_.end_capture(number);
    captured_.push_back({bound_, operands_});
  }
  device_.record(0);
  if (device_.can_replay())
    device_.replay(number);
  else
    run_all();
  device_.record(1);
  device_.synchronise();
  std::array<double, 2> stamps{};
  device_.stamps(stamps);
  return stamps[1];
}

bool Executor::is_bound_alike(const Captured& captured) const {
  const auto same_operation = [](const Bound& a, const Bound& b) {
    return a.operation.operation == b.operation.operation &&
           a.operation.variables.batch == b.operation.variables.batch &&
           a.operation.variables.query_length == b.operation.variables.query_length;
  };
  const auto same_operand = [](const BoundOperand& a, const BoundOperand& b) {
    return a.data == b.data && a.bytes == b.bytes && a.dtype == b.dtype;
  };
  return std::equal(bound_.begin(), bound_.end(), captured.bound.begin(), captured.bound.end(),
                    same_operation) &&
         std::equal(operands_.begin(), operands_.end(), captured.operands.begin(), captured.operands.end(),
                    same_operand);
}

std::size_t Executor::execute_from(std::size_t i, const RunSettings& settings) {
  if (bound_[i].may_fuse && device_.run_fused(bound_[i].operation, bound_[i + 1].operation, settings))
    return 2;
  if (sim::is_collective(bound_[i].operation.operation->kind))
    communicate(bound_[i]);
  else
    device_.run(bound_[i].operation, settings);
  return 1;
}

void Executor::communicate(const Bound& bound) {
  const BoundOperation& operation = bound.operation;
  const sim::OpKind kind = operation.operation->kind;
  if (kind == sim::OpKind::send || kind == sim::OpKind::receive) return send_or_receive(bound);
  const Members& members = groups_.at(static_cast<std::size_t>(operation.operation->group));
  const std::span<const BoundOperand> operands = operation.operands;
  const sim::DType dtype = operands.front().dtype;
  switch (kind) {
    case sim::OpKind::all_reduce:
      return communicator_.all_reduce(members, every<MutableBytes>(operands, 0, 1), dtype);
    case sim::OpKind::reduce_scatter:
      return communicator_.reduce_scatter(
          members, every<MutableBytes>(operands, 0, 2), every<ConstBytes>(operands, 1, 2), dtype,
          operation.operation->operands.front().access == sim::Access::update);
    case sim::OpKind::all_gather:
      return communicator_.all_gather(members, every<MutableBytes>(operands, 0, 2),
                                      every<ConstBytes>(operands, 1, 2), dtype);
    case sim::OpKind::all_to_all:
      return communicator_.all_to_all(members, bytes_of(operands[0]), bytes_of(operands[1]));
    case sim::OpKind::exchange:
      return communicator_.exchange(members, every<MutableBytes>(operands, 0, 2),
                                    every<ConstBytes>(operands, 1, 2));
    default:
      throw std::logic_error("not a collective: " + operation.operation->id);
  }
}

void Executor::send_or_receive(const Bound& bound) {
  const sim::Strategy& strategy = plan_.scenario.strategy;
  const std::int32_t rank = communicator_.rank();
  const std::int32_t peer =
      rank + (bound.action->peer - sim::place_of_rank(strategy, rank).pipeline) *
                 sim::rank_strides(strategy).pipeline;
  const std::span<std::byte> bytes = bytes_of(bound.operation.operands.front());
  if (bound.operation.operation->kind == sim::OpKind::send)
    communicator_.send(peer, tag_of(*bound.action), bytes);
  else
    communicator_.receive(peer, tag_of(*bound.action), bytes);
}

}  // namespace runtime
