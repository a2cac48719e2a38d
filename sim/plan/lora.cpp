#include "sim/plan/lora.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "sim/format.h"
#include "sim/plan/writing.h"
#include "sim/scenario/fields.h"

namespace sim {
namespace {

// A layer's weights by the words that name them, with the groups that they belong to.
struct Target {
  std::string_view word, group;
};
constexpr std::string_view kAll = "all";
constexpr std::array<Target, 7> kTargets{{{"query", "attention"},
                                          {"key", "attention"},
                                          {"value", "attention"},
                                          {"output", "attention"},
                                          {"gate", "mlp"},
                                          {"up", "mlp"},
                                          {"down", "mlp"}}};

bool is_target(const Workload& w, std::string_view word) {
  const auto target = std::ranges::find(kTargets, word, &Target::word);
  return std::ranges::any_of(w.lora_targets, [&](const std::string& named) {
    return named == word || named == kAll || named == target->group;
  });
}

Dims columns_of(const Adapter& a) {
  return {.rows = kRows, .cols = a.outputs, .inner = a.columns, .first_column = a.first};
}
Dims down_product(const Adapter& a, std::int64_t rank) {
  return {.rows = kRows, .cols = rank, .inner = a.inputs};
}
Dims up_product(const Adapter& a, std::int64_t rank) {
  return {.rows = kRows, .cols = a.outputs, .inner = rank};
}

class AdapterWriter {
 public:
  AdapterWriter(PlanBuilder& b, std::string block, const DecoderParameters& p, const LayerResults& r)
      : b_(b), block_(std::move(block)), p_(p), r_(r), rank_(b.scenario().workload.lora_rank) {}

  // Whether an operation multiplies by the weight that an adapter stands beside.
  bool is_beside(const Adapter& a, const Operation& op) const {
    return operand(op, Role::weight).buffer == (p_.*a.product).weight.parameter;
  }

  void forward(std::size_t i, Operand inp, Operand out, std::vector<Operation>& ops) const {
    const Adapter& a = p_.adapters[i];
    const std::string id = adapter_name(b_.model(), a);
    const BufferId hidden = r_.adapters[i];
    const BufferId delta = b_.add_scratch(block_, id + ".out", b_.types().stored, {kRows, a.outputs});
    ops.push_back(product(id + "_down.forward", OpKind::matmul, down_product(a, rank_),
                          {writes(hidden), inp, reads(a.down.parameter), {}, {}}));
    ops.push_back(product(id + "_up.forward", OpKind::matmul, up_product(a, rank_),
                          {writes(delta), reads(hidden), reads(a.up.parameter), {}, {}}));
    Operation add = operation(id + ".add.forward", OpKind::add_columns, b_.types().statistic, columns_of(a),
                              {updates(out.buffer, out.layer_offset), reads(delta)});
    add.scalar = scale();
    ops.push_back(std::move(add));
  }

  // What makes the inputs of the weights' gradients, these gradients, and what the input's gradient gets.
  struct Backward {
    std::vector<Operation> of_results, of_weights, of_input;
  };
  void backward(std::size_t i, Operand dout, Operand inp, Operand dinp, Backward& ops) const {
    const Adapter& a = p_.adapters[i];
    const std::string id = adapter_name(b_.model(), a);
    const AddBuffer add = b_.splits_backward() ? kept : scratch;
    const BufferId d_delta = add(b_, block_, id + ".out.gradient", b_.types().stored, {kRows, a.outputs});
    const BufferId d_hidden = add(b_, block_, id + ".gradient", b_.types().stored, {kRows, rank_});
    Operation take = operation(id + ".take.backward", OpKind::take_columns, b_.types().statistic,
                               columns_of(a), {writes(d_delta), reads(dout.buffer, dout.layer_offset)});
    take.scalar = scale();
    ops.of_results.push_back(std::move(take));
    ops.of_results.push_back(product(id + "_up.backward_input", OpKind::matmul_backward_input,
                                     up_product(a, rank_),
                                     {writes(d_hidden), reads(d_delta), reads(a.up.parameter)}));
    ops.of_weights.push_back(product(id + "_down.backward_weight", OpKind::matmul_backward_weight,
                                     down_product(a, rank_),
                                     {updates(a.down.gradient), {}, reads(d_hidden), inp}));
    ops.of_weights.push_back(product(id + "_up.backward_weight", OpKind::matmul_backward_weight,
                                     up_product(a, rank_),
                                     {updates(a.up.gradient), {}, reads(d_delta), reads(r_.adapters[i])}));
    ops.of_input.push_back(
        product(id + "_down.backward_input", OpKind::matmul_backward_input, down_product(a, rank_),
                {updates(dinp.buffer, dinp.layer_offset), reads(d_hidden), reads(a.down.parameter)}));
  }

  // Expands the weight of a frozen product to full width for as long as the product takes.
  void expand(Operation& op, std::vector<Operation>& ops) const {
    Operand& weight = op.operands[static_cast<std::size_t>(index_of(op.kind, Role::weight))];
    if (weight.buffer == kNoBuffer) return;
    const std::vector<BufferId> scales = b_.scales_of(weight.buffer);
    if (scales.empty()) return;
    const BufferId expanded =
        b_.add_scratch(block_, op.id + ".expanded", b_.types().stored, Shape(b_.buffer(weight.buffer).shape));
    Operation& expands = ops.emplace_back(operation(op.id + ".dequantise", OpKind::dequantise,
                                                    b_.types().statistic, {}, {writes(expanded), weight}));
    for (const BufferId s : scales) expands.operands.push_back(reads(s));
    weight = reads(expanded);
    // Then the product itself reads no scales.
    if (const int first = index_of(op.kind, Role::weight_scales); first >= 0) {
      op.operands.resize(std::min(op.operands.size(), static_cast<std::size_t>(first)));
      op.dims.scale_groups = 0;
    }
  }

 private:
  // A product in 16 bits or more, whatever type the frozen products use.
  Operation product(std::string id, OpKind kind, Dims dims, std::vector<Operand> operands) const {
    return operation(std::move(id), kind, b_.types().wide_product, dims, std::move(operands));
  }
  float scale() const {
    return static_cast<float>(b_.scenario().workload.lora_alpha / static_cast<double>(rank_));
  }

  PlanBuilder& b_;
  std::string block_;
  const DecoderParameters& p_;
  const LayerResults& r_;
  std::int64_t rank_;
};

// Keeps only the operations that lead to the gradient of a parameter or, where it is `wanted`, to the
// gradient of the residual stream.
std::vector<Operation> that_lead_to_gradients(const PlanBuilder& b, std::vector<Operation> ops,
                                              BufferId wanted) {
  std::set<BufferId> read{wanted};
  std::vector<Operation> kept_ops;
  for (auto op = ops.rbegin(); op != ops.rend(); ++op) {
    const bool leads = std::ranges::any_of(op->operands, [&](const Operand& o) {
      return o.buffer != kNoBuffer && o.access != Access::read &&
             (b.buffer(o.buffer).buffer_class == BufferClass::gradient ||
              read.contains(storage(b, o.buffer)));
    });
    if (!leads) continue;
    for (const Operand& o : op->operands)
      if (o.buffer != kNoBuffer && o.access != Access::write) read.insert(storage(b, o.buffer));
    kept_ops.push_back(std::move(*op));
  }
  std::ranges::reverse(kept_ops);
  return kept_ops;
}

}  // namespace

std::vector<AdapterSite> adapter_sites(const Model& m, const Workload& w) {
  if (!trains_adapters(w)) return {};
  std::vector<AdapterSite> sites;
  const auto add = [&](std::string_view target, Affine DecoderParameters::*product, std::int64_t inputs,
                       std::int64_t outputs, std::int64_t first, std::int64_t columns, bool divides_inputs) {
    if (is_target(w, target))
      sites.push_back({target, product, inputs, outputs, first, columns, divides_inputs});
  };
  const std::int64_t h = m.hidden_size, q = m.query_size(), kv = m.key_value_size(), f = m.intermediate_size;
  add("query", &DecoderParameters::qkv, h, q, 0, m.qkv_size(), false);
  add("key", &DecoderParameters::qkv, h, kv, q, m.qkv_size(), false);
  add("value", &DecoderParameters::qkv, h, kv, q + kv, m.qkv_size(), false);
  add("output", &DecoderParameters::attention_output, m.value_size(), h, 0, h, true);
  const bool gated = is_gated(m.activation);
  if (gated) add("gate", &DecoderParameters::mlp_up, h, f, 0, m.mlp_up_size(), false);
  add("up", &DecoderParameters::mlp_up, h, f, gated ? f : 0, m.mlp_up_size(), false);
  add("down", &DecoderParameters::mlp_down, f, h, 0, h, true);
  return sites;
}

std::string adapter_name(const Model& m, const AdapterSite& site) {
  const char* const product = site.product == &DecoderParameters::qkv ? "layer.attention.qkv."
                              : site.product == &DecoderParameters::attention_output
                                  ? "layer.attention.output."
                              : site.product == &DecoderParameters::mlp_down ? "layer.mlp.down."
                              : is_gated(m.activation)                       ? "layer.mlp.gate_up."
                                                                             : "layer.mlp.up.";
  return std::string(product).append(site.target).append("_adapter");
}

std::vector<BufferId> add_adapter_results(PlanBuilder& b, const std::string& block, const AddBuffer& add) {
  std::vector<BufferId> results;
  const Model& m = b.model();
  for (const AdapterSite& site : adapter_sites(m, b.scenario().workload))
    results.push_back(
        add(b, block, adapter_name(m, site), b.types().stored, {kRows, b.scenario().workload.lora_rank}));
  return results;
}

std::vector<Operation> with_adapters(PlanBuilder& b, const std::string& block, const DecoderParameters& p,
                                     const LayerResults& r, std::vector<Operation> forward) {
  if (p.adapters.empty()) return forward;
  const AdapterWriter writer(b, block, p, r);
  std::vector<Operation> ops;
  for (Operation& op : forward) {
    if (op.kind != OpKind::matmul) {
      ops.push_back(std::move(op));
      continue;
    }
    std::vector<Operation> beside;
    for (std::size_t i = 0; i < p.adapters.size(); ++i)
      if (writer.is_beside(p.adapters[i], op))
        writer.forward(i, operand(op, Role::inp), operand(op, Role::out), beside);
    writer.expand(op, ops);
    ops.push_back(std::move(op));
    append(ops, std::move(beside));
  }
  return ops;
}

std::vector<Operation> with_adapters_backward(PlanBuilder& b, const std::string& block,
                                              const DecoderParameters& p, const LayerResults& r,
                                              LayerKind kind, BufferId gradient,
                                              std::vector<Operation> backward) {
  if (p.adapters.empty()) return backward;
  const AdapterWriter writer(b, block, p, r);
  std::vector<Operation> ops;
  for (std::size_t i = 0; i < backward.size(); ++i) {
    if (backward[i].kind != OpKind::matmul_backward_weight) {
      ops.push_back(std::move(backward[i]));
      continue;
    }
    // The weight's product comes first, but nothing needs it. The input's product follows.
    const Operation weight = std::move(backward[i]);
    Operation input = std::move(backward[++i]);
    AdapterWriter::Backward adapters;
    for (std::size_t a = 0; a < p.adapters.size(); ++a)
      if (writer.is_beside(p.adapters[a], input))
        writer.backward(a, operand(weight, Role::dout), operand(weight, Role::inp),
                        operand(input, Role::dinp), adapters);
    // Rows that are gathered for the weights' products stay next to these products.
    const bool gathered = !ops.empty() && ops.back().kind == OpKind::all_gather &&
                          operand(ops.back(), Role::buffer).buffer == operand(weight, Role::inp).buffer;
    ops.insert(ops.end() - (gathered ? 1 : 0), std::make_move_iterator(adapters.of_results.begin()),
               std::make_move_iterator(adapters.of_results.end()));
    append(ops, std::move(adapters.of_weights));
    writer.expand(input, ops);
    ops.push_back(std::move(input));
    append(ops, std::move(adapters.of_input));
  }
  return that_lead_to_gradients(b, std::move(ops), kind.lowest ? kNoBuffer : gradient);
}

std::vector<Problem> lora_problems(const Scenario& s) {
  const Workload& w = s.workload;
  const Model& m = s.model;
  std::vector<Problem> problems;
  const auto add = [&](const char* field, const auto&... message) {
    add_problem(problems, std::string("workload.") + field, message...);
  };
  if (w.task != Task::train) return problems;
  if (!trains_adapters(w)) {
    if (w.frozen_weights != FrozenWeights::as_dtype)
      add("frozen_weights", "is ", name(w.frozen_weights),
          ", but all weights learn: it needs lora_rank above 0");
    return problems;
  }
  const auto refuse = [&](const char* what) {
    add("lora_rank", "is ", w.lora_rank, ", but the model has ", what,
        ": adapters are for dense layers of attention and feed-forward");
  };
  if (m.has_experts()) refuse("experts");
  if (m.has_latent_attention()) refuse("latent attention");
  if (m.is_hybrid()) refuse("state-space layers");
  if (m.num_nextn_predict_layers > 0) refuse("modules of multi-token prediction");
  if (w.lora_rank > m.hidden_size)
    add("lora_rank", "is ", w.lora_rank, ", but must be at most the model's hidden_size, ", m.hidden_size);
  const auto& words = kLoraTargets;
  for (const std::string& word : w.lora_targets)
    if (std::ranges::find(words, word) == words.end())
      add("lora_targets", "must be of ", listed(words, "and"), ", but has \"", word, "\"");
  if (adapter_sites(m, w).empty())
    add("lora_targets", "must name at least one weight that the model has, of ", listed(words, "and"));
  if (w.frozen_weights != FrozenWeights::as_dtype && s.strategy.zero_stage == 3)
    add_problem(problems, "strategy.zero_stage", "is 3, which cuts weights, but workload.frozen_weights is ",
                name(w.frozen_weights), ": it must be at most 2");
  return problems;
}

}  // namespace sim
