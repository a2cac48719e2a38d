#include "sim/plan/context_parallel.h"

#include <utility>

#include "sim/plan/writing.h"

namespace sim {
namespace {

Shape kv_shape(const PlanBuilder& b) {
  return {kRows, 2 * b.model().key_value_size()};
}

std::string step_id(int step, const char* what, const char* pass) {
  return "layer.attention.ring_" + std::to_string(step) + what + pass;
}

Operation exchange(const PlanBuilder& b, std::string id, std::vector<Operand> operands) {
  return {.id = std::move(id),
          .kind = OpKind::exchange,
          .dtype = b.types().stored,
          .operands = std::move(operands),
          .group = b.groups().context,
          .beside_next = true};
}

Dims of_own_heads(const PlanBuilder& b, Dims dims) {
  dims.heads /= b.strategy().context_parallel;
  dims.kv_heads /= b.strategy().context_parallel;
  return dims;
}

float cap_of_scores(const PlanBuilder& b) {
  return static_cast<float>(b.model().attn_logit_softcapping);
}

// An exchange of query heads alone, or of packed queries, keys and values.
Operation all_to_all(const PlanBuilder& b, std::string id, const Dims& dims, bool packed, BufferId out,
                     BufferId inp) {
  return {.id = std::move(id),
          .kind = OpKind::all_to_all,
          .dtype = b.types().stored,
          .dims = {.heads = dims.heads, .kv_heads = packed ? dims.kv_heads : 0, .head_dim = dims.head_dim},
          .operands = {writes(out), reads(inp)},
          .group = b.groups().context};
}

}  // namespace

bool exchanges_by(const PlanBuilder& b, ContextParallelComm comm) {
  return b.groups().context >= 0 && b.strategy().context_parallel_comm == comm;
}

RingScratch add_ring_scratch(PlanBuilder& b, const std::string& block) {
  const Model& m = b.model();
  RingScratch s;
  s.kv[0] = b.add_scratch(block, "layer.attention.ring.kv_0", b.types().stored, kv_shape(b));
  if (b.strategy().context_parallel > 2)
    s.kv[1] = b.add_scratch(block, "layer.attention.ring.kv_1", b.types().stored, kv_shape(b));
  s.attention = b.add_scratch(block, "layer.attention.ring.out", b.types().stored, {kRows, m.query_size()});
  s.lse = b.add_scratch(block, "layer.attention.ring.log_sum_exp", b.types().statistic,
                        {kBatch, m.num_attention_heads, kQueryLength});
  return s;
}

std::vector<Operation> ring_attention_forward(const PlanBuilder& b, const Dims& dims,
                                              const AttentionBuffers& a, const RingScratch& s) {
  const int ranks = b.strategy().context_parallel;
  const auto partial = [&](int step, BufferId out, BufferId lse, BufferId kv) {
    return Operation{.id = step_id(step, "", ".forward"),
                     .kind = OpKind::attention_partial,
                     .dtype = b.types().wide_product,
                     .dims = dims,
                     // A query has one sink, which counts with the rank's own keys.
                     .operands = {writes(out), writes(lse), reads(a.qkv), reads(kv),
                                  reads(step == 0 ? a.sinks.parameter : kNoBuffer)},
                     .scalar = static_cast<float>(step),
                     .cap = cap_of_scores(b)};
  };
  const auto buffer_of = [&](int step) { return s.kv[static_cast<std::size_t>(step + 1) % 2]; };
  std::vector<Operation> ops;
  for (int step = 0; step < ranks; ++step) {
    const BufferId kv = step == 0 ? a.kv : buffer_of(step);
    if (step + 1 < ranks)
      ops.push_back(
          exchange(b, step_id(step + 1, ".exchange", ".forward"), {writes(buffer_of(step + 1)), reads(kv)}));
    if (step == 0) {
      ops.push_back(partial(0, a.attention, a.lse, kNoBuffer));
      continue;
    }
    ops.push_back(partial(step, s.attention, s.lse, kv));
    ops.push_back(operation(step_id(step, ".merge", ".forward"), OpKind::attention_merge, b.types().statistic,
                            dims, {updates(a.attention), updates(a.lse), reads(s.attention), reads(s.lse)}));
  }
  return ops;
}

std::vector<Operation> ring_attention_backward(PlanBuilder& b, const std::string& block, const Dims& dims,
                                               const AttentionBuffers& a, BufferId d_qkv,
                                               BufferId d_attention) {
  const int ranks = b.strategy().context_parallel;
  const auto add = [&](const std::string& name) {
    return b.add_scratch(block, "layer.attention.ring." + name, b.types().stored, kv_shape(b));
  };
  // Buffers used in turn: keys and values, and the gradients that travel with them; then one step's own part.
  std::array<BufferId, 2> kv{add("kv_0"), kNoBuffer}, travelling{add("kv_0.gradient"), add("kv_1.gradient")};
  if (ranks > 2) kv[1] = add("kv_1");
  const BufferId part = ranks > 2 ? add("kv.gradient") : kNoBuffer;
  const auto turn = [](int step) { return static_cast<std::size_t>(step + 1) % 2; };
  const Dims kv_dims{.rows = kRows, .cols = 2 * b.model().key_value_size()};
  const auto sum = [&](int step, BufferId into, BufferId more) {
    return operation(step_id(step, ".add", ".backward"), OpKind::add, b.types().statistic, kv_dims,
                     {updates(into), reads(into), reads(more)});
  };
  std::vector<Operation> ops;
  for (int step = 0; step < ranks; ++step) {
    const BufferId own_kv = step == 0 ? a.kv : kv[turn(step)];
    std::vector<Operand> passed;
    if (step + 1 < ranks) passed = {writes(kv[turn(step + 1)]), reads(own_kv)};
    // What the rank before has added to the gradients of the keys and values that are here now.
    const bool arrives = step >= 2;
    if (arrives) {
      passed.push_back(writes(travelling[turn(step)]));
      passed.push_back(reads(travelling[turn(step - 1)]));
    }
    if (!passed.empty())
      ops.push_back(exchange(b, step_id(step + 1, ".exchange", ".backward"), std::move(passed)));
    const BufferId d_step = step == 0 ? kNoBuffer : arrives ? part : travelling[turn(step)];
    ops.push_back(
        {.id = step_id(step, "", ".backward"),
         .kind = OpKind::attention_partial_backward,
         .dtype = b.types().wide_product,
         .dims = dims,
         .operands = {step == 0 ? writes(d_qkv) : updates(d_qkv), writes(d_step), reads(d_attention),
                      reads(a.qkv), reads(a.attention), reads(a.lse), reads(step == 0 ? kNoBuffer : own_kv),
                      reads(step == 0 ? a.sinks.parameter : kNoBuffer),
                      updates(step == 0 ? a.sinks.gradient : kNoBuffer)},
         .scalar = static_cast<float>(step),
         .cap = cap_of_scores(b)});
    if (arrives) ops.push_back(sum(step, travelling[turn(step)], part));
  }
  const BufferId home = travelling[turn(ranks)];
  Operation last = exchange(b, step_id(ranks, ".exchange_home", ".backward"),
                            {writes(home), reads(travelling[turn(ranks - 1)])});
  last.beside_next = false;
  ops.push_back(std::move(last));
  const Model& m = b.model();
  ops.push_back(
      {.id = step_id(ranks, ".add", ".backward"),
       .kind = OpKind::add_columns,
       .dtype = b.types().statistic,
       .dims = {.rows = kRows, .cols = kv_dims.cols, .inner = m.qkv_size(), .first_column = m.query_size()},
       .operands = {updates(d_qkv), reads(home)},
       .scalar = 1});
  return ops;
}

Shape shape_of_heads(const PlanBuilder& b, std::int64_t size) {
  return {kBatch, kKvLength, size / b.strategy().context_parallel};
}

std::vector<Operation> exchanged_attention_forward(const PlanBuilder& b, const Dims& dims,
                                                   const AttentionBuffers& h, BufferId qkv,
                                                   BufferId attention) {
  return {all_to_all(b, "layer.attention.qkv.all_to_all.forward", dims, true, h.qkv, qkv),
          {.id = "layer.attention.flash.forward",
           .kind = OpKind::attention_flash,
           .dtype = b.types().wide_product,
           .dims = of_own_heads(b, dims),
           .operands = {writes(h.attention), writes(h.lse), reads(h.qkv), {}, reads(h.sinks.parameter)},
           .cap = cap_of_scores(b),
           .whole_sequence = true},
          all_to_all(b, "layer.attention.out.all_to_all.forward", dims, false, attention, h.attention)};
}

std::vector<Operation> exchanged_attention_backward(PlanBuilder& b, const std::string& block,
                                                    const Dims& dims, const AttentionBuffers& h,
                                                    BufferId d_qkv, BufferId d_attention) {
  const auto add = [&](const char* name, std::int64_t size) {
    return b.add_scratch(block, name, b.types().stored, shape_of_heads(b, size));
  };
  const BufferId d_out = add("layer.attention.out_of_heads.gradient", b.model().query_size());
  const BufferId d_heads = add("layer.attention.qkv_of_heads.gradient", b.model().qkv_size());
  return {all_to_all(b, "layer.attention.out.all_to_all.backward", dims, false, d_out, d_attention),
          {.id = "layer.attention.flash.backward",
           .kind = OpKind::attention_flash_backward,
           .dtype = b.types().wide_product,
           .dims = of_own_heads(b, dims),
           .operands = {writes(d_heads),
                        reads(d_out),
                        reads(h.qkv),
                        reads(h.attention),
                        reads(h.lse),
                        {},
                        {},
                        reads(h.sinks.parameter),
                        updates(h.sinks.gradient)},
           .cap = cap_of_scores(b),
           .whole_sequence = true},
          all_to_all(b, "layer.attention.qkv.all_to_all.backward", dims, true, d_qkv, d_heads)};
}

}  // namespace sim
