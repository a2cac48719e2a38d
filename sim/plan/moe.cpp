#include "sim/plan/moe.h"

#include <algorithm>
#include <cmath>

#include "sim/plan/decoder.h"
#include "sim/plan/writing.h"

namespace sim {
namespace {

// Ratios to the mean are rounded up in steps that are small enough for any published figure.
constexpr std::int32_t kRatioSteps = 256;

bool has_capacity(const PlanBuilder& b) {
  return b.scenario().workload.expert_capacity_factor > 0;
}

// Rows of the busiest rank over the mean. With a capacity: places for rows over the mean.
double rows_over_mean(const PlanBuilder& b) {
  const Workload& w = b.scenario().workload;
  if (has_capacity(b)) return w.expert_capacity_factor;
  return b.strategy().expert_parallel > 1 ? w.expert_imbalance : 1;
}

Extent times(Extent rows, double ratio) {
  if (ratio == 1) return rows;
  return rows * Extent{static_cast<std::int64_t>(std::ceil(ratio * kRatioSteps))} / kRatioSteps;
}

// An expert takes a token only once: all ranks' tokens may come to one rank, once for each of its experts.
Extent with_room_for_any_choice(const PlanBuilder& b, Extent received) {
  const MixtureOfExperts& e = b.model().moe;
  const Extent tokens = b.stream_rows() * Extent{b.strategy().expert_parallel};
  const std::int64_t times = std::min<std::int64_t>(e.num_experts_per_tok, b.experts_held());
  const std::int64_t divisor = received.divisor / b.stream_rows().divisor;
  received.most = std::max(received.factor, tokens.factor * times * divisor);
  return received;
}

// Whether tensor-parallel ranks, which each route rows of their own and share experts, gather these rows.
bool gathers_over_tensor_ranks(const PlanBuilder& b) {
  return b.strategy().sequence_parallel && b.strategy().devices_of_expert() > 1;
}
// Whether a rank's experts get rows that other ranks sent, as many as their tokens chose.
bool takes_rows_of_others(const PlanBuilder& b) {
  return b.groups().expert >= 0 || gathers_over_tensor_ranks(b);
}
bool sums_over_tensor_ranks(const PlanBuilder& b) {
  return b.tensor_parallel() && !b.strategy().sequence_parallel;
}

Dims route_dims(const PlanBuilder& b, const ExpertRows& rows) {
  const MixtureOfExperts& e = b.model().moe;
  return {.rows = rows.tokens,
          .groups = e.n_group,
          .experts = e.num_experts,
          .chosen = e.num_experts_per_tok,
          .chosen_groups = e.topk_group};
}

Operation route(const PlanBuilder& b, std::string id, OpKind kind, const ExpertRows& rows,
                std::vector<Operand> operands) {
  const MixtureOfExperts& e = b.model().moe;
  Operation op =
      operation(std::move(id), kind, b.types().statistic, route_dims(b, rows), std::move(operands));
  op.scalar = static_cast<float>(e.routed_scaling_factor);
  op.sigmoid = e.scoring_func == ScoringFunc::sigmoid;
  op.normalised = e.norm_topk_prob;
  return op;
}

Operation permutation(const PlanBuilder& b, std::string id, OpKind kind, const ExpertRows& rows,
                      std::vector<Operand> operands) {
  Operation op = operation(std::move(id), kind, b.types().statistic,
                           {.rows = rows.tokens,
                            .cols = b.model().hidden_size,
                            .inner = rows.routed,
                            .experts = b.model().moe.num_experts,
                            .chosen = b.model().moe.num_experts_per_tok},
                           std::move(operands));
  op.has_capacity = has_capacity(b);
  return op;
}

// The shared expert's gate: one number a token.
Dims gate_product(std::int64_t hidden) {
  return {.rows = kRows, .cols = 1, .inner = hidden};
}

Operation grouped(const PlanBuilder& b, const std::string& id, OpKind kind, std::int64_t cols,
                  std::int64_t inner, std::vector<Operand> operands) {
  const MixtureOfExperts& e = b.model().moe;
  const bool forward = kind == OpKind::grouped_matmul;
  const BufferId weight =
      forward ? operands[static_cast<std::size_t>(index_of(kind, Role::weight))].buffer : kNoBuffer;
  Operation op = operation(id, kind, forward ? product_type(b, weight) : b.types().product,
                           {.rows = expert_rows(b).computed,
                            .cols = cols,
                            .inner = inner,
                            .groups = b.experts_held(),
                            .experts = e.num_experts,
                            .chosen = e.num_experts_per_tok},
                           std::move(operands));
  if (forward) add_scales(b, weight, op);
  op.scalar = static_cast<float>(1 / std::max(1.0, rows_over_mean(b)));
  op.has_capacity = has_capacity(b);
  if (takes_rows_of_others(b)) op.place = Place::at_experts;
  return op;
}

// The rank's own choice of experts, which rows of grouped products follow; absent where others sent the rows.
Operand own_choice(const PlanBuilder& b, const ExpertResults& r) {
  return takes_rows_of_others(b) ? Operand{} : reads(r.indices);
}

// The place of an exchange in the layer. Exchanges of rows that go to experts set their place themselves.
Place place_of(OpKind exchange) {
  if (exchange == OpKind::all_to_all) return Place::from_experts;
  return exchange == OpKind::all_reduce ? Place::anywhere : Place::among_experts;
}

Operation exchange(const PlanBuilder& b, const std::string& id, OpKind kind, std::int32_t group,
                   std::vector<Operand> operands) {
  const MixtureOfExperts& e = b.model().moe;
  const bool each_node =
      kind == OpKind::all_to_all && b.strategy().expert_dispatch == ExpertDispatch::each_node;
  return {.id = "layer.experts." + id,
          .kind = kind,
          .dtype = b.types().stored,
          .dims = each_node ? Dims{.groups = e.n_group,
                                   .experts = e.num_experts,
                                   .chosen = e.num_experts_per_tok,
                                   .chosen_groups = e.topk_group}
                            : Dims{},
          .operands = std::move(operands),
          .group = group,
          .place = place_of(kind)};
}

}  // namespace

ExpertRows expert_rows(const PlanBuilder& b) {
  ExpertRows r;
  const double ratio = rows_over_mean(b);
  const Extent mean = b.stream_rows() * Extent{b.model().moe.num_experts_per_tok};
  r.tokens = b.stream_rows();
  r.received = times(mean, ratio);
  if (b.groups().expert >= 0 && !has_capacity(b) &&
      b.scenario().implementation.expert_parallel.room_for_any_choice)
    r.received = with_room_for_any_choice(b, r.received);
  r.routed = has_capacity(b) ? r.received : mean;
  r.computed =
      gathers_over_tensor_ranks(b) ? r.received * Extent{b.strategy().devices_of_expert()} : r.received;
  return r;
}

ExpertResults add_expert_results(PlanBuilder& b, const std::string& block, AddBuffer add) {
  const Model& m = b.model();
  const MixtureOfExperts& e = m.moe;
  const ElementTypes& t = b.types();
  const ExpertRows rows = expert_rows(b);
  ExpertResults r;
  r.logits = add(b, block, "layer.router.logits", t.statistic, {rows.tokens, e.num_experts});
  r.weights = add(b, block, "layer.router.weights", t.statistic, {rows.tokens, e.num_experts_per_tok});
  r.indices = add(b, block, "layer.router.indices", DType::int32, {rows.tokens, e.num_experts_per_tok});
  r.inp = add(b, block, "layer.experts.inp", t.stored, {rows.computed, m.hidden_size});
  r.row_weights = add(b, block, "layer.experts.row_weights", t.statistic, {rows.computed});
  if (e.weights_on == ExpertWeights::input)
    r.weighed = add(b, block, "layer.experts.weighed", t.stored, {rows.computed, m.hidden_size});
  if (e.weights_on == ExpertWeights::output)
    r.out = add(b, block, "layer.experts.out", t.stored, {rows.computed, m.hidden_size});
  r.up =
      add(b, block, "layer.experts.gate_up", t.stored, {rows.computed, m.up_size(e.moe_intermediate_size)});
  r.activation =
      add(b, block, "layer.experts.activation", t.stored, {rows.computed, e.moe_intermediate_size});
  if (const std::int64_t shared = e.shared_expert_intermediate_size; shared > 0) {
    r.shared_up = add(b, block, "layer.shared_expert.gate_up", t.stored, {kRows, m.up_size(shared)});
    r.shared_activation = add(b, block, "layer.shared_expert.activation", t.stored, {kRows, shared});
    if (e.shared_expert_gate)
      r.shared_gate = add(b, block, "layer.shared_expert.gate", t.statistic, {kRows, 1});
  }
  return r;
}

ExpertScratch add_expert_scratch(PlanBuilder& b, const std::string& block) {
  const std::int64_t hidden = b.model().hidden_size;
  const ElementTypes& t = b.types();
  const ExpertRows rows = expert_rows(b);
  const auto add = [&](const char* name, Extent n) {
    return b.add_scratch(block, std::string("layer.experts.") + name, t.stored, {n, hidden});
  };
  const auto add_weights = [&](const char* name, Extent n) {
    return b.add_scratch(block, std::string("layer.experts.") + name, t.statistic, {n});
  };
  const bool sends = b.groups().expert >= 0, gathers = gathers_over_tensor_ranks(b);
  ExpertScratch s;
  if (sends || gathers) {
    s.routed = add("routed", rows.routed);
    s.routed_weights = add_weights("routed_weights", rows.routed);
    s.out_routed = add("out_routed", rows.routed);
  }
  if (sends && gathers) {
    s.received = add("received", rows.received);
    s.received_weights = add_weights("received_weights", rows.received);
    s.out_received = add("out_received", rows.received);
  }
  s.out = add(b.model().moe.weights_on == ExpertWeights::output ? "weighed_out" : "out", rows.computed);
  if (!b.model().norms_after()) s.sum = add("sum", rows.tokens);  // else the norm's input is kept
  if (b.strategy().sequence_parallel && b.model().moe.shared_expert_intermediate_size > 0) {
    s.gathered = b.add_scratch(block, "layer.shared_expert.inp", t.stored, {kRows, hidden});
    s.shared_out = b.add_scratch(block, "layer.shared_expert.out", t.stored, {kRows, hidden});
  }
  return s;
}

namespace {

// Adds the shared expert's part to `sum`, which already has the routed experts' part.
std::vector<Operation> shared_expert_forward(const PlanBuilder& b, const ExpertParameters& p,
                                             const ExpertResults& r, const ExpertScratch& s, BufferId inp) {
  const Model& m = b.model();
  const std::int64_t hidden = m.hidden_size, width = m.moe.shared_expert_intermediate_size;
  std::vector<Operation> ops;
  const bool gathers = s.gathered != kNoBuffer;
  if (gathers) ops.push_back(gather_rows(b, "layer.shared_expert.gate_up", Phase::forward, s.gathered, inp));
  ops.push_back(matmul(b, "layer.shared_expert.gate_up.forward", writes(r.shared_up),
                       reads(gathers ? s.gathered : inp), p.shared_up, {},
                       {.rows = kRows, .cols = m.up_size(width), .inner = hidden}));
  if (r.shared_gate != kNoBuffer)
    ops.push_back(matmul(b, "layer.shared_expert.gate.forward", writes(r.shared_gate),
                         reads(gathers ? s.gathered : inp), {p.shared_gate, {}}, {}, gate_product(hidden)));
  ops.push_back(operation("layer.shared_expert.activation.forward",
                          activation_kind(m.activation, Phase::forward), b.types().statistic,
                          {.rows = kRows, .cols = width},
                          {writes(r.shared_activation), reads(r.shared_up), reads(r.shared_gate)}));
  ops.back().place = Place::shared_expert;
  const Dims down{.rows = kRows, .cols = hidden, .inner = width};
  if (!gathers) {
    ops.push_back(matmul(b, "layer.shared_expert.down.forward", updates(s.sum), reads(r.shared_activation),
                         p.shared_down, reads(s.sum), down));
    return ops;
  }
  ops.push_back(matmul(b, "layer.shared_expert.down.forward", writes(s.shared_out),
                       reads(r.shared_activation), p.shared_down, {}, down));
  // It adds the rows that this rank keeps to the routed experts' sum.
  ops.push_back(collective("layer.shared_expert.down.reduce_scatter.forward", OpKind::reduce_scatter,
                           b.types().stored, b.groups().tensor, {updates(s.sum), reads(s.shared_out)}));
  return ops;
}

}  // namespace

std::vector<Operation> experts_forward(const PlanBuilder& b, const ExpertParameters& p,
                                       const ExpertResults& r, const ExpertScratch& s, BufferId inp) {
  const Model& m = b.model();
  const MixtureOfExperts& e = m.moe;
  const std::int64_t hidden = m.hidden_size;
  const DType elementwise = b.types().statistic;
  const ExpertRows rows = expert_rows(b);
  std::vector<Operation> ops;
  ops.push_back(matmul(b, "layer.router.logits.forward", writes(r.logits), reads(inp), {p.router, {}}, {},
                       {.rows = rows.tokens, .cols = e.num_experts, .inner = hidden}));
  ops.back().place = Place::router;
  ops.push_back(
      route(b, "layer.router.route.forward", OpKind::route, rows,
            {writes(r.weights), writes(r.indices), reads(r.logits), reads(p.router_bias.parameter)}));

  const bool sends = b.groups().expert >= 0, gathers = gathers_over_tensor_ranks(b);
  BufferId at = sends || gathers ? s.routed : r.inp;
  BufferId weights = sends || gathers ? s.routed_weights : r.row_weights;
  ops.push_back(permutation(b, "layer.experts.permute.forward", OpKind::permute, rows,
                            {writes(at), reads(inp), reads(r.indices), writes(weights), reads(r.weights)}));
  if (sends) {
    const BufferId to = gathers ? s.received : r.inp;
    const BufferId weights_to = gathers ? s.received_weights : r.row_weights;
    ops.push_back(exchange(b, "dispatch.all_to_all.forward", OpKind::all_to_all, b.groups().expert,
                           {writes(to), reads(at), writes(weights_to), reads(weights)}));
    ops.back().place = Place::to_experts;
    at = to;
    weights = weights_to;
  }
  if (gathers)
    ops.push_back(exchange(b, "gate_up.all_gather.forward", OpKind::all_gather, b.groups().tensor,
                           {writes(r.inp), reads(at), writes(r.row_weights), reads(weights)}));

  const Operand chosen = own_choice(b, r);
  const Place place = takes_rows_of_others(b) ? Place::at_experts : Place::anywhere;
  const auto weigh = [&](const char* what, BufferId out, BufferId from) {
    ops.push_back(operation(std::string("layer.experts.weigh_") + what + ".forward", OpKind::weigh_rows,
                            elementwise, {.rows = rows.computed, .cols = hidden},
                            {writes(out), reads(from), reads(r.row_weights)}));
    ops.back().place = place;
  };
  const bool on_input = r.weighed != kNoBuffer, on_output = r.out != kNoBuffer;
  if (on_input) weigh("input", r.weighed, r.inp);
  ops.push_back(grouped(b, "layer.experts.gate_up.forward", OpKind::grouped_matmul,
                        m.up_size(e.moe_intermediate_size), hidden,
                        {writes(r.up), reads(on_input ? r.weighed : r.inp), reads(p.up.weight.parameter),
                         reads(p.up.bias.parameter), chosen}));
  ops.push_back(operation(
      "layer.experts.activation.forward", activation_kind(m.activation, Phase::forward), elementwise,
      {.rows = rows.computed, .cols = e.moe_intermediate_size},
      {writes(r.activation), reads(r.up), on_input || on_output ? Operand{} : reads(r.row_weights)}));
  ops.back().place = place;
  ops.push_back(grouped(b, "layer.experts.down.forward", OpKind::grouped_matmul, hidden,
                        e.moe_intermediate_size,
                        {writes(on_output ? r.out : s.out), reads(r.activation),
                         reads(p.down.weight.parameter), reads(p.down.bias.parameter), chosen}));
  if (on_output) weigh("output", s.out, r.out);
  at = s.out;
  if (gathers) {
    const BufferId to = sends ? s.out_received : s.out_routed;
    ops.push_back(exchange(b, "down.reduce_scatter.forward", OpKind::reduce_scatter, b.groups().tensor,
                           {writes(to), reads(at)}));
    at = to;
  }
  if (sends) {
    ops.push_back(exchange(b, "combine.all_to_all.forward", OpKind::all_to_all, b.groups().expert,
                           {writes(s.out_routed), reads(at)}));
    at = s.out_routed;
  }
  ops.push_back(permutation(b, "layer.experts.unpermute.forward", OpKind::unpermute, rows,
                            {writes(s.sum), reads(at), reads(r.indices)}));
  if (r.shared_up != kNoBuffer) append(ops, shared_expert_forward(b, p, r, s, inp));
  if (sums_over_tensor_ranks(b))
    append(ops, sum_over_tensor_ranks(b, "layer.experts", Phase::forward, s.sum, kNoBuffer));
  return ops;
}

namespace {

// The shared expert's own gradient of the norm's output, for all rows: one part of the sum over ranks.
std::vector<Operation> shared_expert_backward(PlanBuilder& b, const std::string& block,
                                              const ExpertParameters& p, const ExpertResults& r, BufferId inp,
                                              BufferId dout, BufferId dinp) {
  const Model& m = b.model();
  const ElementTypes& t = b.types();
  const std::int64_t hidden = m.hidden_size, width = m.moe.shared_expert_intermediate_size;
  const AddBuffer read_by_weights = b.splits_backward() ? kept : scratch;
  std::vector<Operation> ops;
  if (b.strategy().sequence_parallel) {
    const BufferId whole =
        read_by_weights(b, block, "layer.shared_expert.out.gradient", t.stored, {kRows, hidden});
    ops.push_back(gather_rows(b, "layer.shared_expert.down", Phase::backward, whole, dout));
    dout = whole;
  }
  const BufferId d_activation =
      b.add_scratch(block, "layer.shared_expert.activation.gradient", t.stored, {kRows, width});
  append(ops, matmul_backward(b, "layer.shared_expert.down", d_activation, dout, r.shared_activation,
                              p.shared_down, {.rows = kRows, .cols = hidden, .inner = width}));
  const BufferId d_up =
      read_by_weights(b, block, "layer.shared_expert.gate_up.gradient", t.stored, {kRows, m.up_size(width)});
  const BufferId d_gate =
      r.shared_gate == kNoBuffer
          ? kNoBuffer
          : read_by_weights(b, block, "layer.shared_expert.gate.gradient", t.statistic, {kRows, 1});
  ops.push_back(operation(
      "layer.shared_expert.activation.backward", activation_kind(m.activation, Phase::backward), t.statistic,
      {.rows = kRows, .cols = width},
      {writes(d_up), reads(d_activation), reads(r.shared_up), reads(r.shared_gate), writes(d_gate)}));
  ops.back().place = Place::shared_expert;
  if (b.strategy().sequence_parallel) {
    const BufferId whole = b.add_scratch(b.splits_backward() ? weight_block(block) : block,
                                         "layer.shared_expert.inp", t.stored, {kRows, hidden});
    ops.push_back(gather_rows(b, "layer.shared_expert.gate_up", Phase::backward, whole, inp));
    inp = whole;
  }
  append(ops, matmul_backward(b, "layer.shared_expert.gate_up", dinp, d_up, inp, p.shared_up,
                              {.rows = kRows, .cols = m.up_size(width), .inner = hidden}));
  if (d_gate != kNoBuffer) {
    const BufferId part =
        b.add_scratch(block, "layer.shared_expert.gate.inp.gradient", t.stored, {kRows, hidden});
    append(ops, matmul_backward(b, "layer.shared_expert.gate", part, d_gate, inp, {p.shared_gate, {}},
                                gate_product(hidden)));
    ops.push_back(operation("layer.shared_expert.gate.add.backward", OpKind::add, t.statistic,
                            {.rows = kRows, .cols = hidden}, {updates(dinp), reads(dinp), reads(part)}));
  }
  return ops;
}

}  // namespace

ExpertsBackward experts_backward(PlanBuilder& b, const std::string& block, const ExpertParameters& p,
                                 const ExpertResults& r, BufferId inp, BufferId dout) {
  const Model& m = b.model();
  const MixtureOfExperts& e = m.moe;
  const ElementTypes& t = b.types();
  const std::int64_t hidden = m.hidden_size, width = e.moe_intermediate_size;
  const ExpertRows rows = expert_rows(b);
  const bool sends = b.groups().expert >= 0, gathers = gathers_over_tensor_ranks(b);
  const AddBuffer read_by_weights = b.splits_backward() ? kept : scratch;
  const auto add = [&](const char* name, Extent n, std::int64_t cols) {
    return b.add_scratch(block, std::string("layer.experts.") + name + ".gradient", t.stored, {n, cols});
  };
  const auto add_weights = [&](const char* name, Extent n) {
    return b.add_scratch(block, std::string("layer.experts.") + name + ".gradient", t.statistic, {n});
  };
  std::vector<Operation> ops;

  // Gradients go back to the experts.
  BufferId d_out = read_by_weights(b, block, "layer.experts.out.gradient", t.stored, {rows.computed, hidden});
  BufferId at = sends || gathers ? add("out_routed", rows.routed, hidden) : d_out;
  ops.push_back(permutation(b, "layer.experts.unpermute.backward", OpKind::permute, rows,
                            {writes(at), reads(dout), reads(r.indices)}));
  if (sends) {
    const BufferId to = gathers ? add("out_received", rows.received, hidden) : d_out;
    ops.push_back(exchange(b, "combine.all_to_all.backward", OpKind::all_to_all, b.groups().expert,
                           {writes(to), reads(at)}));
    ops.back().place = Place::to_experts;
    at = to;
  }
  if (gathers)
    ops.push_back(exchange(b, "down.all_gather.backward", OpKind::all_gather, b.groups().tensor,
                           {writes(d_out), reads(at)}));

  const bool on_input = r.weighed != kNoBuffer, on_output = r.out != kNoBuffer;
  BufferId d_row_weights = add_weights("row_weights", rows.computed);
  const Place place = takes_rows_of_others(b) ? Place::at_experts : Place::anywhere;
  const auto weigh_backward = [&](const char* what, BufferId d_inp, BufferId d_weighed, BufferId from) {
    ops.push_back(operation(
        std::string("layer.experts.weigh_") + what + ".backward", OpKind::weigh_rows_backward, t.statistic,
        {.rows = rows.computed, .cols = hidden},
        {writes(d_inp), reads(d_weighed), reads(from), reads(r.row_weights), writes(d_row_weights)}));
    ops.back().place = place;
  };
  if (on_output) {
    const BufferId d_product =
        read_by_weights(b, block, "layer.experts.product.gradient", t.stored, {rows.computed, hidden});
    weigh_backward("output", d_product, d_out, r.out);
    d_out = d_product;
  }
  const Operand chosen = own_choice(b, r);
  const auto product = [&](const std::string& id, BufferId dinp, BufferId dresult, BufferId from,
                           const Affine& a, std::int64_t cols, std::int64_t inner) {
    ops.push_back(
        grouped(b, id + ".backward_weight", OpKind::grouped_matmul_backward_weight, cols, inner,
                {updates(a.weight.gradient), updates(a.bias.gradient), reads(dresult), reads(from), chosen}));
    ops.push_back(grouped(b, id + ".backward_input", OpKind::grouped_matmul_backward_input, cols, inner,
                          {writes(dinp), reads(dresult), reads(a.weight.parameter), chosen}));
  };
  const BufferId d_activation = add("activation", rows.computed, width);
  product("layer.experts.down", d_activation, d_out, r.activation, p.down, hidden, width);
  const BufferId d_up = read_by_weights(b, block, "layer.experts.gate_up.gradient", t.stored,
                                        {rows.computed, m.up_size(width)});
  const bool here = !on_input && !on_output;
  ops.push_back(
      operation("layer.experts.activation.backward", activation_kind(m.activation, Phase::backward),
                t.statistic, {.rows = rows.computed, .cols = width},
                {writes(d_up), reads(d_activation), reads(r.up), here ? reads(r.row_weights) : Operand{},
                 here ? writes(d_row_weights) : Operand{}}));
  ops.back().place = place;
  at = add("inp", rows.computed, hidden);
  const BufferId d_read = on_input ? add("weighed", rows.computed, hidden) : at;
  product("layer.experts.gate_up", d_read, d_up, on_input ? r.weighed : r.inp, p.up, m.up_size(width),
          hidden);
  if (on_input) weigh_backward("input", at, d_read, r.inp);

  // Gradients go back to the tokens.
  if (gathers) {
    const BufferId to = add("received", rows.received, hidden);
    const BufferId weights_to = add_weights("received_weights", rows.received);
    ops.push_back(exchange(b, "gate_up.reduce_scatter.backward", OpKind::reduce_scatter, b.groups().tensor,
                           {writes(to), reads(at), writes(weights_to), reads(d_row_weights)}));
    at = to;
    d_row_weights = weights_to;
  }
  if (sends) {
    const BufferId to = add("routed", rows.routed, hidden);
    const BufferId weights_to = add_weights("routed_weights", rows.routed);
    ops.push_back(exchange(b, "dispatch.all_to_all.backward", OpKind::all_to_all, b.groups().expert,
                           {writes(to), reads(at), writes(weights_to), reads(d_row_weights)}));
    at = to;
    d_row_weights = weights_to;
  }
  const BufferId dinp = add("tokens", rows.tokens, hidden);
  const BufferId d_weights = b.add_scratch(block, "layer.router.weights.gradient", t.statistic,
                                           {rows.tokens, e.num_experts_per_tok});
  ops.push_back(
      permutation(b, "layer.experts.permute.backward", OpKind::unpermute, rows,
                  {writes(dinp), reads(at), reads(r.indices), writes(d_weights), reads(d_row_weights)}));

  const Dims row{.rows = rows.tokens, .cols = hidden};
  const auto add_to_dinp = [&](const std::string& id, BufferId part) {
    ops.push_back(operation(id, OpKind::add, t.statistic, row, {updates(dinp), reads(dinp), reads(part)}));
  };
  if (r.shared_up != kNoBuffer) {
    const BufferId part = b.add_scratch(block, "layer.shared_expert.inp.gradient", t.stored, {kRows, hidden});
    append(ops, shared_expert_backward(b, block, p, r, inp, dout, part));
    if (b.strategy().sequence_parallel)
      ops.push_back(collective("layer.shared_expert.gate_up.reduce_scatter.backward", OpKind::reduce_scatter,
                               t.stored, b.groups().tensor, {updates(dinp), reads(part)}));
    else
      add_to_dinp("layer.shared_expert.add.backward", part);
  }
  if (sums_over_tensor_ranks(b))
    ops.push_back(exchange(b, "all_reduce.backward", OpKind::all_reduce, b.groups().tensor,
                           {updates(dinp), updates(d_weights)}));

  // The router's own part of the gradient is whole on every rank.
  const BufferId d_logits =
      read_by_weights(b, block, "layer.router.logits.gradient", t.statistic, {rows.tokens, e.num_experts});
  ops.push_back(route(b, "layer.router.route.backward", OpKind::route_backward, rows,
                      {writes(d_logits), reads(d_weights), reads(r.weights), reads(r.indices),
                       reads(r.logits), updates(p.router_bias.gradient), reads(p.router_bias.parameter)}));
  const BufferId d_router =
      b.add_scratch(block, "layer.router.inp.gradient", t.stored, {rows.tokens, hidden});
  const std::size_t products = ops.size();
  append(ops, matmul_backward(b, "layer.router.logits", d_router, d_logits, inp, {p.router, {}},
                              {.rows = rows.tokens, .cols = e.num_experts, .inner = hidden}));
  for (std::size_t i = products; i < ops.size(); ++i) ops[i].place = Place::router;
  add_to_dinp("layer.router.add.backward", d_router);
  return {std::move(ops), dinp};
}

}  // namespace sim
