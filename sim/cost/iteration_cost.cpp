#include "sim/cost/iteration_cost.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "sim/plan/legality.h"
#include "sim/plan/programs.h"

namespace sim {
namespace {

// Lengths at which decode attention is priced; in between it is linear.
constexpr double kStepsPerDoubling = 4;
constexpr std::int64_t kMostContextSteps = 256;  // 64 doublings
// Transfers between stages are priced by formulas.
constexpr double kSendError = 0.5;

// Sizes at which work is priced: 1, 2, 3, 4, 6, 8, 12, 16, ...
constexpr std::int64_t step_of_ladder(int step) {
  if (step == 0) return 1;
  const std::int64_t power = std::int64_t{1} << ((step + 1) / 2);
  return step % 2 == 1 ? power : power / 2 * 3;
}

struct Between {
  int step = 0;
  double share = 0;  // of the way to the next step
};

Between on_ladder(double size) {
  Between at;
  if (size <= 1) return at;
  at.step = std::max(0, 2 * static_cast<int>(std::log2(size)) - 1);
  while (static_cast<double>(step_of_ladder(at.step + 1)) <= size) ++at.step;
  const double below = static_cast<double>(step_of_ladder(at.step));
  at.share = (size - below) / (static_cast<double>(step_of_ladder(at.step + 1)) - below);
  return at;
}

std::int64_t context_of(int step) {
  return std::llround(std::exp2(step / kStepsPerDoubling));
}

Between among_contexts(double context) {
  Between at{static_cast<int>(kStepsPerDoubling * std::log2(std::max(1.0, context)))};
  const double below = static_cast<double>(context_of(at.step)),
               above = static_cast<double>(context_of(at.step + 1));
  if (above > below) at.share = std::clamp((context - below) / (above - below), 0.0, 1.0);
  return at;
}

GenerationPlan blocks_of(Scenario s) {
  if (!s.implementation.serving)
    throw std::invalid_argument("implementation \"" + s.implementation.name +
                                "\" has no serving profile: it says nothing of generation");
  s.strategy.pipeline_parallel = 1;
  if (s.strategy.expert_parallel == 1) s.strategy.data_parallel = 1;
  // A layer's and the head's work does not depend on the lengths, but for windows, which are there where
  // something may lie before them.
  s.workload.prompt_length = std::max<std::int64_t>(1, s.model.reach_of_windows());
  s.workload.batch_size = 1;
  s.workload.max_new_tokens = 2;  // one by prefill, one by decoding
  require_valid(s);
  GenerationPlan generation = make_generation_blocks(s);
  Program program{.role = "target", .actions = {}, .sections = {}};
  for (const std::int64_t token : {0, 1}) append_token(generation, token, program);
  generation.plan.programs.push_back(std::move(program));
  return generation;
}

double sequences_of(const Iteration& iteration) {
  double sequences = iteration.decode_sequences;
  for (const Iteration::Prompt& prompt : iteration.prompts) sequences += prompt.sequences;
  return sequences;
}

// Of two steps of a ladder, the higher never takes less time.
template <class Node>
void take_at_least(Node& node, const CostBreakdown& below) {
  const double ratio = below.total() / node.sum.total();
  if (!(ratio > 1)) return;
  node.sum = node.sum * ratio;
  for (auto& part : node.parts)
    for (Seconds Price::*t : {&Price::seconds, &Price::low, &Price::high})
      part.priced.price.*t = part.priced.price.*t * ratio;
}

}  // namespace

EngineRows::Sum& EngineRows::sum(std::string_view id, OpKind kind, double count, const Price& all) {
  auto at = std::find_if(sums_.begin(), sums_.end(), [&](const Sum& s) { return s.row.id == id; });
  if (at == sums_.end()) {
    at = sums_.emplace(sums_.end());
    at->row.id = id;
    at->row.phase = phase_;
    at->row.kind = kind;
  }
  Row& row = at->row;
  at->count += count;
  row.duration += all.seconds;
  row.low += all.low;
  row.high += all.high;
  row.provenance = std::max(row.provenance, all.provenance);  // the least certain of its parts
  if (all.seconds >= at->longest) {
    at->longest = all.seconds;
    row.bound = all.bound;
  }
  return *at;
}

void EngineRows::add(const Operation& op, const PricedOperation& priced, double times) {
  Price all = priced.price;
  for (Seconds Price::*t : {&Price::seconds, &Price::low, &Price::high}) all.*t = all.*t * times;
  Sum& of = sum(op.id, op.kind, times, all);
  of.row.flops += priced.work.flops * times;
  of.row.model_flops += priced.work.model_flops * times;
  of.memory += static_cast<double>(priced.work.memory().value) * times;
  of.network += static_cast<double>(priced.work.network.value) * times;
}

void EngineRows::add_other(std::string_view id, OpKind kind, double count, const Price& all) {
  if (all.seconds.value > 0) sum(id, kind, count, all);
}

std::vector<Row> EngineRows::take(Seconds start) {
  std::vector<Row> rows;
  for (Sum& of : sums_) {
    of.row.count = std::max<std::int64_t>(1, std::llround(of.count));
    of.row.memory = {std::llround(of.memory)};
    of.row.network = {std::llround(of.network)};
    of.row.start = start;
    start += of.row.duration * (1 / static_cast<double>(of.row.count));
    rows.push_back(std::move(of.row));
  }
  return rows;
}

IterationCost::IterationCost(const Scenario& scenario, const Calibration* calibration)
    : generation_(std::make_shared<const GenerationPlan>(blocks_of(scenario))),
      hardware_(scenario.hardware),
      calibration_(calibration ? std::optional(*calibration) : std::nullopt),
      serving_(*scenario.implementation.serving),
      pricer_(generation_->plan, hardware_, calibration_ ? &*calibration_ : nullptr),
      layers_(static_cast<double>(scenario.model.num_hidden_layers)) {
  for (std::size_t l = 0; l < generation_->prefill.size(); ++l) {
    const BlockId prompt = generation_->prefill[l];
    auto kind =
        std::find_if(kinds_.begin(), kinds_.end(), [&](const LayersOfKind& k) { return k.prompt == prompt; });
    if (kind == kinds_.end()) kind = kinds_.insert(kind, {prompt, generation_->decode[l], 0});
    kind->share += 1 / layers_;
  }
  for (const LayersOfKind& kind : kinds_)
    for (const Operation& op : generation_->plan.blocks[static_cast<std::size_t>(kind.decode)].operations) {
      const CostKind cost = cost_kind(op.kind);
      if (cost == CostKind::collectives) collective_launches_ += kind.share;
      if (cost == CostKind::products || cost == CostKind::attention) other_launches_ += kind.share;
      if (op.kind == OpKind::route) expert_kernels_ += kind.share * serving_.expert_kernels;
    }
}

void IterationCost::add_block(BlockId id, const Variables& v, bool attention, double count,
                              Node& node) const {
  const Block& block = generation_->plan.blocks[static_cast<std::size_t>(id)];
  for (std::size_t i = 0; i < block.operations.size(); ++i) {
    const Operation& op = block.operations[i];
    if (is_attention(op.kind) != attention) continue;
    node.parts.push_back({&op, count, pricer_.operation(static_cast<std::size_t>(id), i, v)});
    node.sum.add(cost_kind(op.kind), node.parts.back().priced.price, count);
  }
}

IterationCost::Node IterationCost::blocks_at(Blocks blocks, std::int64_t tokens) const {
  Node node;
  const Variables decoding{.batch = tokens, .query_length = 1, .kv_length = 1};
  const Variables prompt{.batch = 1, .query_length = tokens, .kv_length = tokens};
  if (blocks == embedding) add_block(generation_->embedding, decoding, false, 1, node);
  if (blocks == head) add_block(generation_->head, decoding, false, 1, node);
  for (const LayersOfKind& kind : kinds_) {
    if (blocks == prompt_layers) add_block(kind.prompt, prompt, false, kind.share, node);
    if (blocks == decode_layers) add_block(kind.decode, decoding, false, kind.share, node);
  }
  return node;
}

IterationCost::Node IterationCost::attention_at(bool decode, const Variables& v) const {
  Node node;
  for (const LayersOfKind& kind : kinds_)
    add_block(decode ? kind.decode : kind.prompt, v, true, kind.share, node);
  return node;
}

const IterationCost::Node& IterationCost::block_node(Blocks blocks, int step) const {
  std::vector<Node>& known = blocks_[blocks];
  while (known.size() <= static_cast<std::size_t>(step)) {
    Node next = blocks_at(blocks, step_of_ladder(static_cast<int>(known.size())));
    if (!known.empty()) take_at_least(next, known.back().sum);
    known.push_back(std::move(next));
  }
  return known[static_cast<std::size_t>(step)];
}

const IterationCost::Node& IterationCost::decode_node(int sequences, int context) const {
  const std::int64_t key = std::int64_t{sequences} * kMostContextSteps + context;
  if (const auto found = decode_attention_.find(key); found != decode_attention_.end()) return found->second;
  Node node = attention_at(
      true, {.batch = step_of_ladder(sequences), .query_length = 1, .kv_length = context_of(context)});
  if (sequences > 0) take_at_least(node, decode_node(sequences - 1, context).sum);
  if (context > 0) take_at_least(node, decode_node(sequences, context - 1).sum);
  return decode_attention_.emplace(key, std::move(node)).first->second;
}

const IterationCost::Node& IterationCost::prompt_node(const Iteration::Prompt& prompt) const {
  const auto whole = [](double n) { return std::max<std::int64_t>(1, std::llround(n)); };
  const Variables v{.batch = whole(prompt.sequences),
                    .query_length = whole(prompt.tokens),
                    .kv_length = whole(std::max(prompt.context, prompt.tokens))};
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 24, kMostSequences = std::int64_t{1} << 15;
  const std::int64_t key =
      (v.batch % kMostSequences * kMostTokens + v.query_length) * kMostTokens + v.kv_length;
  const auto found = prompt_attention_.find(key);
  return found != prompt_attention_.end()
             ? found->second
             : prompt_attention_.emplace(key, attention_at(false, v)).first->second;
}

template <class Use>
void IterationCost::visit_blocks(Blocks blocks, double tokens, double weight, Use use) const {
  const Between at = on_ladder(tokens);
  use(block_node(blocks, at.step), weight * (1 - at.share));
  if (at.share > 0) use(block_node(blocks, at.step + 1), weight * at.share);
}

template <class Use>
void IterationCost::visit_decode_attention(double sequences, double context, double weight, Use use) const {
  const Between n = on_ladder(sequences), length = among_contexts(context);
  for (const int more : {0, 1})
    for (const int longer : {0, 1}) {
      const double share = (more ? n.share : 1 - n.share) * (longer ? length.share : 1 - length.share);
      if (share > 0) use(decode_node(n.step + more, length.step + longer), weight * share);
    }
}

template <class Use>
void IterationCost::visit(const EnginePass& pass, Use use) const {
  const Iteration& it = pass.iteration;
  double tokens = computed_sequences(it) * it.decode_tokens;
  if (pass.layers > 0 && it.decode_sequences > 0)
    visit_decode_attention(it.decode_sequences, it.decode_context, pass.layers, use);
  for (const Iteration::Prompt& prompt : it.prompts) {
    tokens += prompt.sequences * prompt.tokens;
    if (pass.layers > 0) use(prompt_node(prompt), pass.layers);
  }
  if (pass.ends) visit_blocks(embedding, tokens, 1, use);
  if (pass.layers > 0)
    visit_blocks(it.prompts.empty() ? decode_layers : prompt_layers, tokens, pass.layers, use);
  if (pass.ends && pass.sampled > 0) visit_blocks(head, pass.sampled, 1, use);
}

bool IterationCost::in_graph(const Iteration& iteration) const {
  if (!serving_.graph_decode || !iteration.prompts.empty()) return false;
  return serving_.graph_batches.empty() ||
         iteration.decode_sequences <= static_cast<double>(serving_.graph_batches.back());
}

double IterationCost::computed_sequences(const Iteration& iteration) const {
  const double n = iteration.decode_sequences;
  if (serving_.graph_batches.empty() || !in_graph(iteration)) return n;
  const auto size = std::lower_bound(serving_.graph_batches.begin(), serving_.graph_batches.end(),
                                     std::llround(std::ceil(n)));
  return static_cast<double>(*size);
}

// Where no graph is replayed, launches take their time if it is the longer; scheduling runs beside the GPU or
// before it.
void IterationCost::add_host(const EnginePass& pass, CostBreakdown& cost) const {
  const auto at_least = [&](Seconds time) {
    if (time > cost.total()) cost.add(CostKind::host, time - cost.total(), kEstimateError);
  };
  if (!in_graph(pass.iteration)) {
    const double small = pass.iteration.prompts.empty() ? serving_.decode_kernels : serving_.prefill_kernels;
    constexpr double kAroundLayers = 4;  // embedding, last rows, final norm, logits
    at_least(serving_.launch * (pass.layers * (small + expert_kernels_ + other_launches_) +
                                serving_.sampling_kernels + kAroundLayers) +
             serving_.collective_launch * (pass.layers * collective_launches_));
  }
  const Seconds host = serving_.host_step + serving_.host_sequence * sequences_of(pass.iteration);
  if (serving_.host_overlapped) at_least(host);
  cost.add(CostKind::host, serving_.host_overlapped ? serving_.host_exposed : host, kEstimateError);
}

EnginePass IterationCost::whole(const Iteration& iteration) const {
  EnginePass pass{.iteration = iteration, .layers = layers_};
  pass.sampled = iteration.decode_sequences * iteration.decode_tokens;
  for (const Iteration::Prompt& prompt : iteration.prompts)
    if (prompt.last) pass.sampled += prompt.sequences;
  return pass;
}

CostBreakdown IterationCost::cost(const EnginePass& pass) const {
  CostBreakdown cost;
  visit(pass, [&](const Node& node, double weight) { cost += node.sum * weight; });
  if (pass.layers > 0) add_host(pass, cost);
  cost.add(CostKind::collectives, pass.sent, kSendError);
  return cost;
}

void IterationCost::add_rows(const EnginePass& pass, double scale, EngineRows& rows) const {
  const double times = pass.times * scale;
  visit(pass, [&](const Node& node, double weight) {
    for (const Node::Part& part : node.parts)
      rows.add(*part.operation, part.priced, part.count * weight * times);
  });
  const CostBreakdown one = cost(pass);
  const Seconds host = one.parts[static_cast<std::size_t>(CostKind::host)].expected;
  rows.add_other("engine.host", OpKind::host_read, times,
                 with_error(host * times, kEstimateError, Bound::launch));
  rows.add_other("engine.send", OpKind::send, times,
                 with_error(pass.sent * times, kSendError, Bound::network));
  const double waits = pass.waits * scale;
  rows.add_other("engine.wait", OpKind::receive, times,
                 with_error(one.total() * waits, one.band() - 1, Bound::network));
}

}  // namespace sim
