#include "sim/report/metrics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <map>
#include <set>

#include "sim/plan/measure.h"

namespace sim {
namespace {

double ratio_or_zero(double a, double b) {
  return b > 0 ? a / b : 0;
}

// The dense peak of one device for the workload's type; 0 where the hardware does not say.
double peak_rate(const Scenario& s) {
  return s.hardware.has_peak_for(s.workload.dtype) ? s.hardware.peak_for(s.workload.dtype).value : 0;
}

std::int64_t ranks_in(const Report& report) {
  std::set<std::int32_t> ranks;
  for (const Row& row : report.rows) ranks.insert(row.rank);
  return static_cast<std::int64_t>(ranks.size());
}

// Parameters that a token is multiplied with: no norms, biases or embeddings, but the head, tied or not.
double product_parameters(const Model& m) {
  const auto mlp = [&](std::int64_t width) { return m.hidden_size * (m.up_size(width) + width); };
  const std::int64_t sparse = m.expert_layers(), h = m.hidden_size;
  const std::int64_t mixers = m.layers_of(LayerSort::state_space);
  std::int64_t attention = h * (m.qkv_size() + m.value_size());
  if (m.has_latent_attention()) {
    const LatentAttention& a = m.latent;
    attention = a.q_lora_rank > 0 ? a.q_lora_rank * (h + m.query_size()) : h * m.query_size();
    attention += h * (a.kv_lora_rank + a.qk_rope_head_dim) + h * m.value_size();
    attention += a.kv_lora_rank * m.num_attention_heads * (a.qk_nope_head_dim + a.v_head_dim);
  }
  std::int64_t products = m.attention_layers() * attention + h * m.vocab_size;
  products += mixers * h * (m.state_space.projection_size() + m.state_space.inner_size());
  products += m.dense_layers() * mlp(m.intermediate_size);
  if (sparse > 0)
    products +=
        sparse * (h * m.moe.num_experts + m.moe.num_experts_per_tok * mlp(m.moe.moe_intermediate_size) +
                  mlp(m.moe.shared_expert_intermediate_size));
  return static_cast<double>(products);
}

// The mean number of query-key pairs for a token in a sequence of `s` tokens, summed over layers.
double pairs_a_token(const Model& m, std::int64_t s) {
  const Variables sequence{1, s, s};
  const std::int64_t windows = m.window_layers(), chunks = m.chunk_layers();
  const double pairs =
      static_cast<double>(m.attention_layers() - windows - chunks) * visible_pairs(sequence) +
      static_cast<double>(windows) * visible_pairs(sequence, m.sliding_window) +
      static_cast<double>(chunks) * visible_pairs(sequence, 0, m.attention_chunk_size);
  return pairs / static_cast<double>(s);
}

}  // namespace

Flops flops_per_token(const Model& model, std::int64_t seq_len, FlopsConvention c) {
  const ParameterCount count = count_parameters(model);
  const double all = static_cast<double>(count.active);  // counts only the experts that a token passes
  const double n = product_parameters(model);
  // For each pair, scores and values take 4 x the heads' width forward, and 12 x with the backward pass.
  const double heads = static_cast<double>(model.query_size() + model.value_size()) / 2;
  const double full = 12 * heads * static_cast<double>(model.attention_layers() * seq_len);
  switch (c) {
    case FlopsConvention::six_n:
      return {6 * n};
    case FlopsConvention::six_n_full:
      return {6 * n + full};
    case FlopsConvention::six_n_causal:
      return {6 * n + 12 * heads * pairs_a_token(model, seq_len)};
    case FlopsConvention::torchtitan:
      return {6 * (all - static_cast<double>(count.embedding)) + full};
    case FlopsConvention::all_parameters:
      return {6 * all + full};
  }
  return {};
}

Seconds step_time(const Report& report) {
  if (report.step_time.value > 0) return report.step_time;
  // A run that is still going on has only these steps so far.
  if (!report.steps.empty()) {
    std::vector<double> durations;
    for (const StepResult& step : report.steps) durations.push_back(step.duration.value);
    const auto middle = durations.begin() + static_cast<std::ptrdiff_t>(durations.size() / 2);
    std::nth_element(durations.begin(), middle, durations.end());
    return {*middle};
  }
  Seconds sum;
  for (const TokenResult& token : report.tokens) sum += token.duration;
  return sum;
}

std::optional<double> perplexity(const Report& report) {
  double sum = 0;
  std::int64_t read = 0;
  for (const TokenResult& token : report.tokens)
    if (token.surprise) {
      sum += *token.surprise;
      ++read;
    }
  if (read == 0) return std::nullopt;
  return std::exp(sum / static_cast<double>(read));
}

double waiting_share(const Report& report) {
  return ratio_or_zero(report.waiting_for_slowest.value, report.step_time.value);
}

double tokens_per_second(const Report& report) {
  const Workload& w = report.source.scenario.workload;
  double tokens = 0;
  if (w.task == Task::train) {
    tokens = static_cast<double>(w.global_batch_size) * static_cast<double>(w.seq_len);
  } else {
    const auto length =
        report.tokens.empty() ? w.max_new_tokens : static_cast<std::int64_t>(report.tokens.size());
    tokens = static_cast<double>(w.batch_size) * static_cast<double>(length);
  }
  return ratio_or_zero(tokens, step_time(report).value);
}

namespace {

// FLOPs for a token. With LoRA the frozen weights have no gradients, and neither has the input of the lowest
// layer, so that layer counts forward alone.
double flops_that_learning_needs(const Scenario& s, FlopsConvention c) {
  const double all = flops_per_token(s.model, s.workload.seq_len, c).value;
  if (!trains_adapters(s.workload)) return all;
  const ParameterCount count = count_parameters(s.model);
  const double counted = c == FlopsConvention::torchtitan
                             ? static_cast<double>(count.active - count.embedding)
                         : c == FlopsConvention::all_parameters ? static_cast<double>(count.active)
                                                                : product_parameters(s.model);
  const double layers = static_cast<double>(s.model.num_hidden_layers);
  const double attention = all - 6 * counted;
  return all - 2 * counted - (2 * counted + attention * 2 / 3) / layers;
}

}  // namespace

double mfu(const Report& report, FlopsConvention c) {
  return mfu(report.source.scenario, tokens_per_second(report), c);
}

double mfu(const Scenario& s, double tokens_per_second, FlopsConvention c) {
  if (s.workload.task != Task::train) return 0;
  const double rate = tokens_per_second * flops_that_learning_needs(s, c);
  return ratio_or_zero(rate, peak_rate(s) * s.strategy.devices());
}

Flops executed_flops(const Report& report) {
  Flops of_rows;
  for (const Row& row : report.rows) of_rows += row.flops;
  const double devices = report.source.scenario.strategy.devices();
  return {ratio_or_zero(of_rows.value * devices, static_cast<double>(ranks_in(report)))};
}

double hfu(const Report& report) {
  const double devices = report.source.scenario.strategy.devices();
  return ratio_or_zero(executed_flops(report).value,
                       peak_rate(report.source.scenario) * step_time(report).value * devices);
}

double mbu(const Report& report) {
  const std::optional<Seconds> time = tpot(report);
  if (!time) return 0;
  std::map<std::int32_t, double> traffic;  // for each rank
  for (const Row& row : report.rows)
    if (row.phase == Phase::decode) traffic[row.rank] += static_cast<double>(row.memory.value);
  double most = 0;
  for (const auto& [rank, bytes] : traffic) most = std::max(most, bytes);
  const double seconds = time->value * static_cast<double>(report.tokens.size() - 1);
  return ratio_or_zero(most, seconds * report.source.scenario.hardware.memory_bandwidth.value);
}

std::optional<Seconds> ttft(const Report& report) {
  if (report.tokens.empty()) return std::nullopt;
  return report.tokens.front().duration;
}

std::optional<Seconds> tpot(const Report& report) {
  if (report.tokens.size() < 2) return std::nullopt;
  Seconds sum;
  for (std::size_t i = 1; i < report.tokens.size(); ++i) sum += report.tokens[i].duration;
  return Seconds{sum.value / static_cast<double>(report.tokens.size() - 1)};
}

Bytes peak_memory(const Report& report, std::int32_t rank) {
  Bytes sum;
  for (const MemoryLine& line : report.memory)
    if (line.rank == rank && line.category != kHostMemory) sum += line.bytes;
  return sum;
}

Bytes host_memory(const Report& report) {
  Bytes most;
  for (const MemoryLine& line : report.memory)
    if (line.category == kHostMemory) most = std::max(most, line.bytes);
  return most;
}

std::int32_t fullest_rank(const Report& report) {
  std::map<std::int32_t, Bytes> peak;
  for (const MemoryLine& line : report.memory)
    if (line.category != kHostMemory) peak[line.rank] += line.bytes;
  const auto fullest = std::ranges::max_element(peak, {}, [](const auto& of_rank) { return of_rank.second; });
  return fullest == peak.end() ? 0 : fullest->first;
}

Bytes peak_memory(const Report& report) {
  return peak_memory(report, fullest_rank(report));
}

std::vector<MemoryLine> peak_ledger(const Report& report) {
  std::vector<MemoryLine> lines;
  const std::int32_t rank = fullest_rank(report);
  std::ranges::copy_if(report.memory, std::back_inserter(lines), [rank](const MemoryLine& line) {
    return line.rank == rank && line.category != kHostMemory;
  });
  return lines;
}

Bytes planned_memory(const Report& report) {
  Bytes sum;
  for (const MemoryLine& line : report.memory)
    if (line.rank == 0 && line.category != kHostMemory && line.category != "context" &&
        !line.category.starts_with("platform"))
      sum += line.bytes;
  return sum;
}

Bytes working_memory(const Report& report) {
  Bytes sum = planned_memory(report);
  for (const MemoryLine& line : report.memory)
    for (const BufferClass held : {BufferClass::parameter, BufferClass::gradient, BufferClass::optimizer})
      if (line.rank == 0 && line.category == name(held)) sum = sum - line.bytes;
  return sum;
}

bool fits(const Report& report) {
  return peak_memory(report) <= report.source.scenario.hardware.memory;
}

}  // namespace sim
