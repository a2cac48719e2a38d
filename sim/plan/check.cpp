#include "sim/plan/check.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace sim {
namespace {

// How many elements an operand must have.
struct Need {
  enum class Kind { exactly, at_least, any } kind = Kind::any;
  std::int64_t elements = 0;
  bool optional = false;
};

Need exactly(std::int64_t n) {
  return {Need::Kind::exactly, n, false};
}
Need at_least(std::int64_t n) {
  return {Need::Kind::at_least, n, false};
}
Need any() {
  return {};
}
Need maybe(Need n) {
  n.optional = true;
  return n;
}

// Operands in the order of OpKind's list; empty for kinds that take any number.
std::vector<Need> needs(const Operation& op, const Variables& of_action) {
  const Variables v = bound_to(op, of_action);
  const Dims& n = op.dims;
  const std::int64_t rows = n.rows.value(v), cols = n.cols.value(v), inner = n.inner.value(v);
  const std::int64_t hidden = rows * n.hidden, size = rows * cols;
  const std::int64_t tokens = v.batch * v.query_length;
  const std::int64_t queries = tokens * n.heads * n.head_dim;
  const std::int64_t values = tokens * n.heads * n.value_dim;
  const std::int64_t latent_kv = tokens * n.heads * (n.head_dim + n.value_dim);
  const std::int64_t qkv = tokens * (n.heads + 2 * n.kv_heads) * n.head_dim;
  const std::int64_t scores = tokens * n.heads * v.kv_length;
  const std::int64_t reach = n.window > 0 ? n.window : n.chunk > 0 ? n.chunk : v.kv_length;
  const std::int64_t seen = std::min(reach, v.kv_length);
  const std::int64_t cache = v.batch * n.kv_heads * seen * n.head_dim;
  const std::int64_t kv = 2 * v.batch * n.kv_heads * v.kv_length * n.head_dim;
  const std::int64_t own_kv = 2 * tokens * n.kv_heads * n.head_dim;
  const Need gain = exactly(n.hidden), statistic = exactly(rows), positions = exactly(v.batch);
  switch (op.kind) {
    case OpKind::embedding:
      return {exactly(hidden), exactly(rows), exactly(n.vocab * n.hidden),
              maybe(at_least(v.kv_length * n.hidden)), maybe(positions)};
    case OpKind::embedding_backward:
      return {exactly(n.vocab * n.hidden), maybe(at_least(v.kv_length * n.hidden)), exactly(hidden),
              exactly(rows)};
    case OpKind::layernorm:
      return {exactly(hidden), maybe(statistic), maybe(statistic), exactly(hidden), gain, gain};
    case OpKind::layernorm_backward:
      return {exactly(hidden), gain, gain, exactly(hidden), exactly(hidden), gain, statistic, statistic};
    case OpKind::rmsnorm:
      return {exactly(hidden), maybe(statistic), exactly(hidden), gain};
    case OpKind::rmsnorm_backward:
      return {exactly(hidden), gain, exactly(hidden), exactly(hidden), gain, statistic};
    case OpKind::matmul:
      return {exactly(size), exactly(rows * inner), exactly(cols * inner), maybe(exactly(cols)),
              maybe(exactly(size))};
    case OpKind::matmul_backward_input:
      return {exactly(rows * inner), exactly(size), exactly(cols * inner)};
    case OpKind::matmul_backward_weight:
      return {exactly(cols * inner), maybe(exactly(cols)), exactly(size), exactly(rows * inner)};
    case OpKind::grouped_matmul:
      return {exactly(size), exactly(rows * inner), exactly(n.groups * cols * inner),
              maybe(exactly(n.groups * cols))};
    case OpKind::grouped_matmul_backward_input:
      return {exactly(rows * inner), exactly(size), exactly(n.groups * cols * inner)};
    case OpKind::grouped_matmul_backward_weight:
      return {exactly(n.groups * cols * inner), maybe(exactly(n.groups * cols)), exactly(size),
              exactly(rows * inner)};
    case OpKind::route:
      return {exactly(rows * n.chosen), exactly(rows * n.chosen), exactly(rows * n.experts),
              maybe(exactly(n.experts))};
    case OpKind::route_backward:
      return {exactly(rows * n.experts), exactly(rows * n.chosen),  exactly(rows * n.chosen),
              exactly(rows * n.chosen),  exactly(rows * n.experts), maybe(exactly(n.experts))};
    case OpKind::permute:
      return {exactly(inner * cols), exactly(size), exactly(rows * n.chosen), maybe(exactly(inner)),
              maybe(exactly(rows * n.chosen))};
    case OpKind::unpermute:
      return {exactly(size), exactly(inner * cols), exactly(rows * n.chosen), maybe(exactly(rows * n.chosen)),
              maybe(exactly(inner))};
    case OpKind::qk_norm:
      return {exactly(qkv), maybe(exactly(tokens * (n.heads + n.kv_heads))), exactly(qkv), any()};
    case OpKind::qk_norm_backward:
      return {exactly(qkv), any(), exactly(qkv), any(), exactly(tokens * (n.heads + n.kv_heads))};
    case OpKind::rope:
      return {exactly(qkv), at_least(v.kv_length * n.head_dim), maybe(positions)};
    case OpKind::rope_backward:
      return {exactly(qkv), at_least(v.kv_length * n.head_dim)};
    case OpKind::attention_flash:
      return {exactly(queries), maybe(exactly(tokens * n.heads)), exactly(qkv), maybe(exactly(kv))};
    case OpKind::attention_flash_backward:
      return {exactly(qkv),      exactly(queries),          exactly(qkv),
              exactly(queries),  exactly(tokens * n.heads), maybe(exactly(kv)),
              maybe(exactly(kv))};
    case OpKind::rope_latent:
      return {exactly(queries), exactly(tokens * n.rope_dim), maybe(exactly(latent_kv)),
              at_least(v.kv_length * n.rope_dim), maybe(positions)};
    case OpKind::rope_latent_backward:
      return {exactly(queries), exactly(tokens * n.rope_dim), exactly(latent_kv),
              at_least(v.kv_length * n.rope_dim)};
    case OpKind::attention_latent:
      return {exactly(values), maybe(exactly(tokens * n.heads)), exactly(queries), exactly(latent_kv)};
    case OpKind::attention_latent_backward:
      return {exactly(queries),   exactly(latent_kv), exactly(values),          exactly(queries),
              exactly(latent_kv), exactly(values),    exactly(tokens * n.heads)};
    case OpKind::latent_append:
      return {at_least(cache), exactly(tokens * (n.head_dim - n.rope_dim)), exactly(tokens * n.rope_dim),
              positions, maybe(at_least(v.batch))};
    case OpKind::attention_latent_cached:
      return {exactly(values), exactly(queries), at_least(cache), positions, maybe(at_least(v.batch))};
    case OpKind::attention_partial:
      return {exactly(queries), exactly(tokens * n.heads), exactly(qkv), maybe(exactly(own_kv))};
    case OpKind::attention_partial_backward:
      return {exactly(qkv),     maybe(exactly(own_kv)),    exactly(queries),      exactly(qkv),
              exactly(queries), exactly(tokens * n.heads), maybe(exactly(own_kv))};
    case OpKind::attention_merge:
      return {exactly(queries), exactly(tokens * n.heads), exactly(queries), exactly(tokens * n.heads)};
    case OpKind::attention_standard:
      return {exactly(queries), exactly(scores), exactly(qkv), maybe(exactly(scores)),
              maybe(exactly(scores))};
    case OpKind::attention_standard_backward:
      return {exactly(qkv),    exactly(scores),        exactly(queries),      exactly(qkv),
              exactly(scores), maybe(exactly(scores)), maybe(exactly(scores))};
    case OpKind::kv_append:
      return {at_least(cache), at_least(cache),          exactly(qkv),
              positions,       maybe(at_least(v.batch)), maybe(exactly(2 * n.kv_heads))};
    case OpKind::attention_cached:
      return {exactly(queries),
              exactly(qkv),
              at_least(cache),
              at_least(cache),
              positions,
              maybe(at_least(v.batch)),
              maybe(exactly(2 * n.kv_heads))};
    case OpKind::gelu:
    case OpKind::relu:
    case OpKind::squared_relu:
      return {exactly(size), exactly(size)};
    case OpKind::gelu_backward:
    case OpKind::relu_backward:
    case OpKind::squared_relu_backward:
    case OpKind::dropout_backward:
      return {exactly(size), exactly(size), exactly(size)};
    case OpKind::add:
      return {exactly(size), exactly(size), maybe(exactly(size)), maybe(exactly(cols))};
    case OpKind::dropout:
      return {exactly(size), exactly(size), exactly(size), maybe(exactly(cols))};
    case OpKind::swiglu:
    case OpKind::geglu:
      return {exactly(size), exactly(2 * size), maybe(exactly(rows))};
    case OpKind::swiglu_backward:
    case OpKind::geglu_backward:
      return {exactly(2 * size), exactly(size), exactly(2 * size), maybe(exactly(rows)),
              maybe(exactly(rows))};
    case OpKind::gather_last:
      return {exactly(v.batch * cols), exactly(size)};
    case OpKind::cross_entropy_statistics:
      return {exactly(3 * rows), exactly(rows * n.vocab), exactly(rows)};
    case OpKind::cross_entropy:
      return {exactly(rows * n.vocab), exactly(rows), exactly(rows), maybe(at_least(3 * rows))};
    case OpKind::sample:
      return {exactly(rows), exactly(rows * n.vocab)};
    case OpKind::clip_scale:
      return {exactly(3)};
    case OpKind::send:
    case OpKind::receive:
      return {at_least(1)};
    case OpKind::all_to_all:
    case OpKind::all_reduce:
    case OpKind::reduce_scatter:
    case OpKind::all_gather:
    case OpKind::exchange:
    case OpKind::zero:
    case OpKind::squared_norm:
    case OpKind::unscale:
    case OpKind::adamw:
    case OpKind::adamw_8bit:
    case OpKind::adafactor:
    case OpKind::sgd:
    case OpKind::muon_momentum:
    case OpKind::apply_update:
    case OpKind::copy_to_host:
    case OpKind::copy_from_host:
      return {};
    case OpKind::host_read:
      return {at_least(1)};
    case OpKind::quantise:
      return {at_least(1), at_least(1)};
    case OpKind::orthogonalise:
      return {exactly(size * n.groups)};
  }
  return {};
}

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
        const std::size_t group = operands_in_group(op.kind), norm = op.kind == OpKind::apply_update ? 0 : 1;
        if (group > 0 && op.operands.size() % group != norm)
          add(where + ": operands are no groups of " + std::to_string(group));
        const bool has_pairs = op.kind == OpKind::reduce_scatter || op.kind == OpKind::all_gather ||
                               op.kind == OpKind::all_to_all || op.kind == OpKind::exchange ||
                               op.kind == OpKind::copy_to_host || op.kind == OpKind::copy_from_host;
        if (has_pairs && op.operands.size() % 2 != 0) add(where + ": operands are no pairs");
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

  void check_sizes(const Block& block, const Operation& op, const Variables& v) {
    const std::vector<Need> need = needs(op, v);
    if (need.empty()) return;
    if (op.operands.size() > need.size())
      return add(block.name + ", " + op.id + ": takes at most " + std::to_string(need.size()) + " operands");
    for (std::size_t i = 0; i < need.size(); ++i) {
      const std::string where = block.name + ", " + op.id + ", operand " + std::to_string(i);
      if (i >= op.operands.size() || op.operands[i].buffer == kNoBuffer) {
        if (!need[i].optional) add(where + ": is missing");
        continue;
      }
      const std::int64_t has = buffer(op.operands[i]).elements(v);
      const bool fine =
          need[i].kind == Need::Kind::any ||
          (need[i].kind == Need::Kind::exactly ? has == need[i].elements : has >= need[i].elements);
      if (!fine)
        add(where + ": " + buffer(op.operands[i]).name + " has " + std::to_string(has) + " elements, not " +
            std::to_string(need[i].elements));
      const Buffer& view = buffer(op.operands[i]);
      if (view.part > 0 &&
          (view.part + 1) * has >
              plan_.buffers[static_cast<std::size_t>(plan_.storage(op.operands[i].buffer))].elements(v))
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
          if (o.buffer == kNoBuffer || o.access == Access::write || is_written_beforehand(buffer(o)))
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
