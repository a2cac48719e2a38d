#include "sim/cost/iteration_cost.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "sim/plan/programs.h"

namespace sim {
namespace {

// Decode attention is priced at this many lengths per doubling. Between them its time is linear.
constexpr double kStepsPerDoubling = 4;
constexpr std::int64_t kMostSteps = 256;  // of both ladders
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
  if (s.strategy.expert_parallel == 1) s.strategy.data_parallel = 1;
  // The work of a layer and of the head does not depend on the lengths. Windows are the exception: a layer
  // has them only where something may lie before them.
  s.workload.prompt_length = std::max<std::int64_t>(1, s.model.reach_of_windows());
  s.workload.batch_size = 1;
  s.workload.max_new_tokens = 2;  // one by prefill, one by decoding
  require_valid(s);
  GenerationPlan generation = make_generation_blocks(s);
  generation.plan.programs = generation_programs(s);
  for (const std::int64_t token : {0, 1}) append_token(generation, token, generation.plan.programs);
  return generation;
}

double sequences_of(const Iteration& iteration) {
  double sequences = iteration.decode_sequences;
  for (const Iteration::Prompt& prompt : iteration.prompts) sequences += prompt.sequences;
  return sequences;
}

// A higher step of a ladder never takes less time than the one below it.
template <class Node>
void take_at_least(Node& node, const CostBreakdown& below) {
  const double ratio = below.total() / node.sum.total();
  if (!(ratio > 1)) return;
  node.sum = node.sum * ratio;
  for (auto& entry : node.entries) entry.priced.price = entry.priced.price * ratio;
}

}  // namespace

EngineRows::Sum& EngineRows::sum(std::string_view id, OpKind kind, double count, const Price& all) {
  auto at = std::ranges::find_if(sums_, [&](const Sum& s) { return s.row.id == id; });
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
  row.provenance = std::max(row.provenance, all.provenance);  // a row is as certain as its least certain part
  if (all.seconds >= at->longest) {
    at->longest = all.seconds;
    row.bound = all.bound;
  }
  return *at;
}

void EngineRows::add(const Operation& op, const PricedOperation& priced, double times) {
  Sum& of = sum(op.id, op.kind, times, priced.price * times);
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
    // An engine's kernels run one after another, so nothing runs beside an exchange.
    if (of.row.bound == Bound::network) of.row.exposed = of.row.duration;
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
    auto kind = std::ranges::find_if(kinds_, [&](const LayersOfKind& k) { return k.prompt == prompt; });
    if (kind == kinds_.end()) kind = kinds_.insert(kind, {prompt, generation_->decode[l], 0});
    kind->share += 1 / layers_;
  }
  for (const LayersOfKind& kind : kinds_)
    for (const Operation& op : generation_->plan.block(kind.decode).operations) {
      const CostKind cost = cost_kind(op.kind);
      if (cost == CostKind::collectives) collective_launches_ += kind.share;
      if (cost == CostKind::products || cost == CostKind::attention) other_launches_ += kind.share;
      if (op.kind == OpKind::route) expert_kernels_ += kind.share * serving_.expert_kernels;
    }
}

void IterationCost::add_block(BlockId id, const Variables& v, bool attention, double count,
                              Node& node) const {
  const Block& block = generation_->plan.block(id);
  for (std::size_t i = 0; i < block.operations.size(); ++i) {
    const Operation& op = block.operations[i];
    if (is_attention(op.kind) != attention) continue;
    node.entries.push_back({&op, count, pricer_.operation(static_cast<std::size_t>(id), i, v)});
    node.sum.add(cost_kind(op.kind), node.entries.back().priced.price, count);
  }
}

IterationCost::Node IterationCost::priced(Part part, std::int64_t size, std::int64_t context) const {
  Node node;
  const Variables decoding{.batch = size, .query_length = 1, .kv_length = context};
  const Variables prompt{.batch = 1, .query_length = size, .kv_length = size};
  if (part == embedding) add_block(generation_->embedding, decoding, false, 1, node);
  if (part == head) add_block(generation_->head, decoding, false, 1, node);
  for (const LayersOfKind& kind : kinds_) {
    if (part == prompt_layers) add_block(kind.prompt, prompt, false, kind.share, node);
    if (part == decode_layers) add_block(kind.decode, decoding, false, kind.share, node);
    if (part == decode_attention) add_block(kind.decode, decoding, true, kind.share, node);
  }
  return node;
}

const IterationCost::Node& IterationCost::node(Part part, int size, int context) const {
  const std::int64_t key = (part * kMostSteps + size) * kMostSteps + context;
  if (const auto found = nodes_.find(key); found != nodes_.end()) return found->second;
  Node found = priced(part, step_of_ladder(size), context_of(context));
  if (size > 0) take_at_least(found, node(part, size - 1, context).sum);
  if (context > 0) take_at_least(found, node(part, size, context - 1).sum);
  return nodes_.emplace(key, std::move(found)).first->second;
}

const IterationCost::Node& IterationCost::prompt_node(const Iteration::Prompt& prompt) const {
  const auto whole = [](double n) { return std::max<std::int64_t>(1, std::llround(n)); };
  const Variables v{.batch = whole(prompt.sequences),
                    .query_length = whole(prompt.tokens),
                    .kv_length = whole(std::max(prompt.context, prompt.tokens))};
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 24, kMostAtATime = std::int64_t{1} << 15;
  const std::int64_t key =
      (v.batch % kMostAtATime * kMostTokens + v.query_length) * kMostTokens + v.kv_length;
  const auto [found, added] = prompt_attention_.try_emplace(key);
  if (added)
    for (const LayersOfKind& kind : kinds_) add_block(kind.prompt, v, true, kind.share, found->second);
  return found->second;
}

template <class Use>
void IterationCost::visit_part(Part part, double size, double context, double weight, Use use) const {
  const Between n = on_ladder(size), length = among_contexts(context);
  for (const int more : {0, 1})
    for (const int longer : {0, 1}) {
      const double share = (more ? n.share : 1 - n.share) * (longer ? length.share : 1 - length.share);
      if (share > 0) use(node(part, n.step + more, length.step + longer), weight * share);
    }
}

template <class Use>
void IterationCost::visit(const EnginePass& pass, Use use) const {
  const Iteration& it = pass.iteration;
  double tokens = computed_sequences(it) * it.decode_tokens;
  if (pass.layers > 0 && it.decode_sequences > 0)
    visit_part(decode_attention, it.decode_sequences, it.decode_context, pass.layers, use);
  for (const Iteration::Prompt& prompt : it.prompts) {
    tokens += prompt.sequences * prompt.tokens;
    if (pass.layers > 0) use(prompt_node(prompt), pass.layers);
  }
  if (pass.ends) visit_part(embedding, tokens, 1, 1, use);
  if (pass.layers > 0)
    visit_part(it.prompts.empty() ? decode_layers : prompt_layers, tokens, 1, pass.layers, use);
  if (pass.ends && pass.sampled > 0) visit_part(head, pass.sampled, 1, 1, use);
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

// Where no graph is replayed, launches decide if they take longer than the kernels. Scheduling runs beside
// the GPU or before it.
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

// The time to pass an iteration on through all stages: from each stage to the next, and the new tokens back.
Seconds IterationCost::passed_on(const Iteration& iteration, double sampled) const {
  if (generation_->send_activation < 0) return {};
  double tokens = computed_sequences(iteration) * iteration.decode_tokens;
  for (const Iteration::Prompt& prompt : iteration.prompts) tokens += prompt.sequences * prompt.tokens;
  const auto sent = [&](BlockId block, double rows) {
    const Variables v{.batch = std::llround(std::ceil(rows)), .query_length = 1, .kv_length = 1};
    return pricer_.operation(static_cast<std::size_t>(block), 0, v).price.seconds;
  };
  const int stages = generation_->plan.scenario.strategy.pipeline_parallel;
  return sent(generation_->send_activation, tokens) * (stages - 1) +
         (sampled > 0 ? sent(generation_->send_tokens, sampled) : Seconds{}) +
         serving_.stage_overhead * (stages - 1);
}

EnginePass IterationCost::whole(const Iteration& iteration) const {
  EnginePass pass{.iteration = iteration, .layers = layers_};
  pass.sampled = iteration.decode_sequences * iteration.decode_tokens;
  for (const Iteration::Prompt& prompt : iteration.prompts)
    if (prompt.last) pass.sampled += prompt.sequences;
  pass.sent = passed_on(iteration, pass.sampled);
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
    for (const Node::Entry& entry : node.entries)
      rows.add(*entry.operation, entry.priced, entry.count * weight * times);
  });
  const CostBreakdown one = cost(pass);
  const Seconds host = one.parts[CostKind::host].expected;
  rows.add_other("engine.host", OpKind::host_read, times,
                 with_error(host * times, kEstimateError, Bound::launch));
  rows.add_other("engine.send", OpKind::send, times,
                 with_error(pass.sent * times, kSendError, Bound::network));
  const double waits = pass.waits * scale;
  rows.add_other("engine.wait", OpKind::receive, times,
                 with_error(one.total() * waits, one.band() - 1, Bound::bubble));
}

}  // namespace sim
