#include "tests/sim/check_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace sim {
namespace {

bool is_written_beforehand(const Buffer& b) {
  switch (b.buffer_class) {
    case BufferClass::parameter:
    case BufferClass::optimizer:
    case BufferClass::kv_cache:
    case BufferClass::input:
      return true;
    default:
      return false;
  }
}

class PlanChecker {
 public:
  explicit PlanChecker(const Plan& plan) : plan_(plan) {}

  std::vector<std::string> run() {
    check_blocks();
    if (violations_.empty())  // what follows looks buffers and blocks up
      for (const Program& program : plan_.programs) check_program(program);
    return std::move(violations_);
  }

 private:
  void add(std::string sentence) { violations_.push_back(std::move(sentence)); }

  const Buffer& buffer(const Operand& o) const { return plan_.buffers[static_cast<std::size_t>(o.buffer)]; }

  // The same work on one part of some rows after the other has one id, and what such parts exchange.
  bool is_of_next_part(const Operation& before, const Operation& op) const {
    if (before.kind != op.kind || before.dims != op.dims || before.operands.size() != op.operands.size())
      return false;
    if (is_collective(op.kind)) return true;
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      if (before.operands[i].buffer == kNoBuffer || op.operands[i].buffer == kNoBuffer) continue;
      const Buffer &a = buffer(before.operands[i]), &b = buffer(op.operands[i]);
      if (a.view_of != kNoBuffer && a.view_of == b.view_of && b.part == a.part + 1) return true;
    }
    return false;
  }

  void check_blocks() {
    std::map<BufferId, const Block*> owner;
    for (const Block& block : plan_.blocks) {
      std::map<std::string, const Operation*> ids;
      for (const Operation& op : block.operations) {
        const std::string where = block.name + ", " + op.id;
        const auto [before, is_new] = ids.try_emplace(op.id, &op);
        if (!is_new && !is_of_next_part(*before->second, op))
          add(where + ": the id occurs twice in the block");
        before->second = &op;
        if (is_collective(op.kind) && (op.group < 0 || op.group >= static_cast<int>(plan_.groups.size())))
          add(where + ": the group does not exist");
        check_operands(where, op);
        std::vector<Operand> all = op.operands;
        all.insert(all.end(), op.beside.begin(), op.beside.end());
        for (const Operand& o : all) {
          if (o.buffer < kNoBuffer || o.buffer >= static_cast<int>(plan_.buffers.size())) {
            add(where + ": buffer " + std::to_string(o.buffer) + " does not exist");
          } else if (o.buffer != kNoBuffer && buffer(o).buffer_class == BufferClass::scratch) {
            if (owner.try_emplace(o.buffer, &block).first->second != &block)
              add(where + ": scratch " + buffer(o).name + " belongs to another block");
          }
        }
      }
    }
  }

  // As many as the kind takes, read and written as it does.
  void check_operands(const std::string& where, const Operation& op) {
    const Operands& rows = info(op.kind).operands;
    if (rows.repeated > 0 && (op.operands.size() + rows.repeated - rows.count) % rows.repeated != 0)
      return add(where + ": operands are no groups of " + std::to_string(rows.repeated));
    if (rows.repeated == 0 && op.operands.size() > rows.count)
      return add(where + ": takes at most " + std::to_string(rows.count) + " operands");
    for (std::size_t i = 0; i < std::max<std::size_t>(rows.count, op.operands.size()); ++i) {
      const OperandInfo& row = rows.at(i);
      const std::string operand = where + ", operand " + std::string(name(row.role));
      if (i >= op.operands.size() || op.operands[i].buffer == kNoBuffer) {
        if (!row.optional && i < rows.count) add(operand + ": is missing");
      } else if ((row.access == Access::read) != (op.operands[i].access == Access::read)) {
        add(operand + (row.access == Access::read ? ": is only read" : ": is written"));
      }
    }
  }

  void check_sizes(const Block& block, const Operation& op, const Variables& of_action) {
    const Variables v = bound_to(op, of_action);
    const Operands& rows = info(op.kind).operands;
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      if (op.operands[i].buffer == kNoBuffer) continue;
      const OperandInfo& row = rows.at(i);
      const Buffer& view = buffer(op.operands[i]);
      const std::int64_t has = view.elements(of_action), needs = std::llround(value(row.elements, op, v));
      const bool fine = row.size == OperandInfo::Size::any || has == needs ||
                        (row.size == OperandInfo::Size::at_least && has > needs);
      const std::string where = block.name + ", " + op.id + ", operand " + std::string(name(row.role));
      if (!fine)
        add(where + ": " + view.name + " has " + std::to_string(has) + " elements, not " +
            std::to_string(needs));
      if (view.part > 0 &&
          (view.part + 1) * has >
              plan_.buffers[static_cast<std::size_t>(plan_.storage(op.operands[i].buffer))].elements(
                  of_action))
        add(where + ": " + view.name + " ends behind what it is a part of");
    }
  }

  // For each action, by stream, the last that is sure to have ended when it begins.
  static std::vector<std::array<std::int32_t, kStreams>> known_to_have_ended(const Program& program) {
    std::vector<std::array<std::int32_t, kStreams>> ended(program.actions.size());
    std::array<std::array<std::int32_t, kStreams>, kStreams> at_end{};
    for (auto& stream : at_end) stream.fill(-1);
    for (std::size_t i = 0; i < program.actions.size(); ++i) {
      const Action& a = program.actions[i];
      const auto stream = static_cast<std::size_t>(a.stream);
      ended[i] = at_end[stream];
      for (const std::int32_t wait : {a.wait, a.wait_also}) {
        if (wait < 0) continue;
        const auto waited = static_cast<std::size_t>(wait);
        const auto other = static_cast<std::size_t>(program.actions[waited].stream);
        for (std::size_t s = 0; s < kStreams; ++s) ended[i][s] = std::max(ended[i][s], ended[waited][s]);
        ended[i][other] = std::max(ended[i][other], wait);
      }
      at_end[stream] = ended[i];
      at_end[stream][stream] = static_cast<std::int32_t>(i);
    }
    return ended;
  }

  void check_program(const Program& program) {
    std::size_t covered = 0;
    for (const Section& s : program.sections) {
      if (s.begin != covered || s.end < s.begin) add(program.role + ": section " + s.name + " leaves a gap");
      covered = s.end;
    }
    if (covered != program.actions.size()) add(program.role + ": sections end before the program");

    std::vector<std::array<std::int32_t, kStreams>> ended = known_to_have_ended(program);
    std::map<std::tuple<BufferId, std::int32_t, std::int32_t>, std::size_t> writer;  // latest action
    std::set<std::pair<BlockId, Variables>> sized;
    std::set<std::tuple<BufferId, std::int32_t, std::int32_t>> written;
    for (std::size_t i = 0; i < program.actions.size(); ++i) {
      const Action& a = program.actions[i];
      const Block& block = plan_.blocks[static_cast<std::size_t>(a.block)];
      const bool sizes_known = !sized.emplace(a.block, a.variables).second;
      std::set<BufferId> written_scratch;
      for (const Operation& op : block.operations) {
        if (!sizes_known) check_sizes(block, op, a.variables);
        const auto key = [&](const Operand& o) {
          return std::make_tuple(plan_.storage(o.buffer), buffer(o).per_layer ? a.layer + o.layer_offset : 0,
                                 buffer(o).per_micro_batch ? a.micro_batch : 0);
        };
        for (const Operand& o : op.operands) {
          if (o.buffer == kNoBuffer || buffer(o).buffer_class == BufferClass::scratch) continue;
          const auto last = writer.find(key(o));
          if (last == writer.end() || last->second == i) continue;
          const std::int32_t stream = program.actions[last->second].stream;
          if (ended[i][static_cast<std::size_t>(stream)] < static_cast<std::int32_t>(last->second))
            add(program.role + ", " + block.name + " at layer " + std::to_string(a.layer) + ": " + op.id +
                " does not wait for what stream " + std::to_string(stream) + " writes to " + buffer(o).name);
        }
        for (const Operand& o : op.beside)
          if (o.access == Access::write) {
            if (buffer(o).buffer_class == BufferClass::scratch)
              written_scratch.insert(plan_.storage(o.buffer));
            else
              written.insert(key(o));
          }
        for (const Operand& o : op.operands) {
          if (o.buffer == kNoBuffer || access_of(o, a.variables) == Access::write ||
              is_written_beforehand(buffer(o)))
            continue;
          const bool there = buffer(o).buffer_class == BufferClass::scratch
                                 ? written_scratch.contains(plan_.storage(o.buffer))
                                 : written.contains(key(o));
          if (!there)
            add(block.name + " at layer " + std::to_string(a.layer) + ", micro-batch " +
                std::to_string(a.micro_batch) + ": " + op.id + " reads " + buffer(o).name +
                " before it is written");
        }
        for (const Operand& o : op.operands) {
          if (o.buffer == kNoBuffer || o.access == Access::read) continue;
          if (buffer(o).buffer_class == BufferClass::scratch) {
            written_scratch.insert(plan_.storage(o.buffer));
          } else {
            written.insert(key(o));
            writer[key(o)] = i;
          }
        }
      }
    }
  }

  const Plan& plan_;
  std::vector<std::string> violations_;
};

}  // namespace

std::vector<std::string> check(const Plan& plan) {
  return PlanChecker(plan).run();
}

}  // namespace sim
