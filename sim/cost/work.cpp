#include "sim/cost/work.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <cstddef>

namespace sim {
namespace {

// ---- FLOPs.

void add_flops(const Plan& plan, const Operation& op, const Variables& v, Work& work) {
  const Arithmetic& a = info(op.kind).arithmetic;
  if (!a.flops) return;
  const double each = a.each == Role::none ? 1 : plan.elements_of(op, a.each, v);
  work.flops = {value(a.flops, op, v) * each};
  if (a.model_flops) work.model_flops = {value(a.model_flops, op, v) * each};
}

// ---- Memory.

// The part of an operand that is touched.
Bytes touched(const Operation& op, const Variables& v, const OperandInfo& o, const Buffer& buffer) {
  const bool part = o.touched && (o.touched_beside == Role::none || has(op, o.touched_beside));
  if (!part) return buffer.bytes(v);
  return {static_cast<std::int64_t>(value(o.touched, op, v)) * bits(buffer.dtype) / 8};
}

Passes passes(const Operation& op, const OperandInfo& o, Access access) {
  if (o.more_beside != Role::none && has(op, o.more_beside)) return o.more;
  return o.passes.value_or(Passes{access != Access::write ? 1 : 0, access != Access::read ? 1 : 0});
}

void add_memory(const Plan& plan, const Operation& op, const Variables& v, Work& work) {
  const Operands& rows = info(op.kind).operands;
  std::bitset<1024> met;  // by buffer and layer: an unmarked one is new
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    const Operand& o = op.operands[i];
    if (o.buffer == kNoBuffer) continue;
    // A result that overwrites an operand is read and written once.
    const auto same = [&](const Operand& other) {
      return other.buffer == o.buffer && other.layer_offset == o.layer_offset;
    };
    const auto mark = static_cast<std::size_t>(o.buffer + 127 * o.layer_offset) % met.size();
    if (met[mark] &&
        std::any_of(op.operands.begin(), op.operands.begin() + static_cast<std::ptrdiff_t>(i), same))
      continue;
    met[mark] = true;
    const Buffer& buffer = plan.buffer(o.buffer);
    const Bytes bytes = touched(op, v, rows.at(i), buffer);
    const Passes n = passes(op, rows.at(i), access_of(o, v));
    if (buffer.on_host) {
      work.host += bytes * (n.reads + n.writes);
      if (info(op.kind).family == Family::copies) work.copied += bytes;
      continue;
    }
    work.read += bytes * n.reads;
    work.written += bytes * n.writes;
  }
}

// ---- Network. What one rank sends by the ring algorithms (nccl-tests, PERFORMANCE.md).

// A message is the larger of an operand pair: what is gathered, before it is scattered, the busier direction.
Bytes network_of(const Plan& plan, const Operation& op, const Variables& v) {
  const KindInfo& kind = info(op.kind);
  if (!kind.collective || op.group < 0 || op.kind == OpKind::receive) return {};
  std::array<std::int64_t, 2> bytes{};
  for (std::size_t i = 0; i < op.operands.size(); ++i)
    bytes[i % kind.operands.count] += plan.buffer(op.operands[i].buffer).bytes(v).value;
  const BusShare share = bus_share(*kind.collective, plan.group(op.group).size);
  return {share.parts * std::max(bytes[0], bytes[1]) / share.of};
}

}  // namespace

Work work_of(const Plan& plan, const Operation& op, const Variables& of_action) {
  const Variables v = bound_to(op, of_action);
  Work work;
  add_flops(plan, op, v, work);
  add_memory(plan, op, v, work);
  work.network = network_of(plan, op, v);
  return work;
}

}  // namespace sim
