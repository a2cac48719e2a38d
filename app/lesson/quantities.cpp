#include "app/lesson/quantities.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>

#include "sim/economics/run_cost.h"
#include "sim/report/metrics.h"
#include "sim/report/step_parts.h"

namespace app::lesson {
namespace {

using sim::FlopsConvention;

const sim::Workload& workload(const Situation& s) {
  return s.scenario.workload;
}
const sim::Strategy& strategy(const Situation& s) {
  return s.scenario.strategy;
}
const sim::Hardware& hardware(const Situation& s) {
  return s.scenario.hardware;
}
const sim::Model& model(const Situation& s) {
  return s.scenario.model;
}
double devices(const Situation& s) {
  return strategy(s).devices();
}
sim::ParameterCount parameters(const Situation& s) {
  return sim::count_parameters(model(s));
}

// Tokens of a step when training. When generating: of all sequences, prompt and new tokens.
double tokens(const Situation& s) {
  const sim::Workload& w = workload(s);
  if (w.task == sim::Task::train) return static_cast<double>(w.global_batch_size * w.seq_len);
  return static_cast<double>(w.batch_size * (w.prompt_length + w.max_new_tokens));
}

// The bytes of a class on the fullest rank, at its peak.
template <sim::BufferClass kClass>
double ledger(const Situation& s) {
  double sum = 0;
  for (const sim::MemoryLine& line : sim::peak_ledger(s.report()))
    if (line.category == sim::name(kClass)) sum += static_cast<double>(line.bytes.value);
  return sum;
}

template <sim::StepPart kPart>
double share(const Situation& s) {
  return sim::step_parts(s.report()).share(kPart);
}

// Sums over the rows of the first rank, in one phase.
template <sim::Phase kPhase, class Of>
double sum_of_phase(const Situation& s, Of of) {
  double sum = 0;
  for (const sim::Row& row : s.report().rows)
    if (row.rank == 0 && row.phase == kPhase) sum += of(row);
  return sum;
}
template <sim::Phase kPhase>
double seconds_of(const Situation& s) {
  return sum_of_phase<kPhase>(s, [](const sim::Row& row) { return row.duration.value; });
}
template <sim::Phase kPhase>
double flops_of(const Situation& s) {
  return sum_of_phase<kPhase>(s, [](const sim::Row& row) { return static_cast<double>(row.flops.value); });
}

template <FlopsConvention kConvention>
double flops_a_token(const Situation& s) {
  return static_cast<double>(sim::flops_per_token(model(s), workload(s).seq_len, kConvention).value);
}

double traffic(const Situation& s) {
  double sum = 0;
  for (const sim::Row& row : s.report().rows)
    if (row.rank == 0) sum += static_cast<double>(row.memory.value);
  return sum;
}
double sent(const Situation& s) {
  double sum = 0;
  for (const sim::Row& row : s.report().rows)
    if (row.rank == 0) sum += static_cast<double>(row.network.value);
  return sum;
}
double device_flops(const Situation& s) {
  return static_cast<double>(sim::executed_flops(s.report()).value) / devices(s);
}

double of_a_run(const char* name, const std::optional<double>& value) {
  if (!value)
    throw std::invalid_argument(std::string(name) + " is measured, never predicted: it stands in :measure");
  return *value;
}
double perplexity(const Situation& s) {
  return of_a_run("perplexity", s.measured ? sim::perplexity(*s.measured) : std::nullopt);
}
double loss(const Situation& s) {
  const bool trained = s.measured && !s.measured->steps.empty();
  return of_a_run("loss", trained ? std::optional(s.measured->steps.back().loss) : std::nullopt);
}

double usd_per_hour(const Situation& s) {
  static const sim::EconomicRates rates = sim::load_economic_rates();
  const sim::HourlyPrice* price = rates.price_of(hardware(s).name);
  return price ? price->usd() : 0;
}

const Dimension kNumber;
const Dimension kBytes = Dimension::of(Dimension::bytes), kSeconds = Dimension::of(Dimension::seconds),
                kFlops = Dimension::of(Dimension::flops), kTokens = Dimension::of(Dimension::tokens),
                kDollars = Dimension::of(Dimension::dollars), kJoules = Dimension::of(Dimension::joules);

// clang-format off
const Quantity kQuantities[] = {
    {"parameters", "parameters", "of the model, as it is named", kNumber, Style::plain,
     [](const Situation& s) { return static_cast<double>(parameters(s).total); }},
    {"active_parameters", "active parameters", "those that a token passes: of routed experts the chosen ones", kNumber, Style::plain,
     [](const Situation& s) { return static_cast<double>(parameters(s).active); }},
    {"embedding_parameters", "embedding parameters", "tables of tokens and of positions", kNumber, Style::plain,
     [](const Situation& s) { return static_cast<double>(parameters(s).embedding); }},
    {"head_parameters", "head parameters", "of the last product, where it is not tied to the embedding", kNumber, Style::plain,
     [](const Situation& s) { return static_cast<double>(parameters(s).head); }},
    {"layers", "layers", "of the model", kNumber, Style::count, [](const Situation& s) { return static_cast<double>(model(s).num_hidden_layers); }},
    {"hidden", "hidden size", "width of the residual stream", kNumber, Style::count, [](const Situation& s) { return static_cast<double>(model(s).hidden_size); }},
    {"heads", "heads", "of queries", kNumber, Style::count, [](const Situation& s) { return static_cast<double>(model(s).num_attention_heads); }},
    {"kv_heads", "KV heads", "of keys and values", kNumber, Style::count, [](const Situation& s) { return static_cast<double>(model(s).num_key_value_heads); }},
    {"head_dim", "head size", "", kNumber, Style::count, [](const Situation& s) { return static_cast<double>(model(s).head_dim); }},
    {"mlp_size", "MLP size", "", kNumber, Style::count, [](const Situation& s) { return static_cast<double>(model(s).intermediate_size); }},
    {"vocabulary", "vocabulary", "tokens that the model knows", kNumber, Style::count, [](const Situation& s) { return static_cast<double>(model(s).vocab_size); }},
    {"experts", "experts", "routed ones of a layer", kNumber, Style::count, [](const Situation& s) { return static_cast<double>(model(s).moe.num_experts); }},
    {"chosen_experts", "chosen experts", "of a token", kNumber, Style::count, [](const Situation& s) { return static_cast<double>(model(s).moe.num_experts_per_tok); }},

    {"devices", "devices", "of the job", kNumber, Style::count, devices},
    {"data_parallel", "data parallel", "replicas", kNumber, Style::count, [](const Situation& s) { return static_cast<double>(strategy(s).data_parallel); }},
    {"tensor_parallel", "tensor parallel", "degree", kNumber, Style::count, [](const Situation& s) { return static_cast<double>(strategy(s).tensor_parallel); }},
    {"pipeline_parallel", "pipeline stages", "", kNumber, Style::count, [](const Situation& s) { return static_cast<double>(strategy(s).pipeline_parallel); }},
    {"context_parallel", "context parallel", "degree", kNumber, Style::count, [](const Situation& s) { return static_cast<double>(strategy(s).context_parallel); }},
    {"expert_parallel", "expert parallel", "degree", kNumber, Style::count, [](const Situation& s) { return static_cast<double>(strategy(s).expert_parallel); }},
    {"micro_batches", "micro-batches", "of a step, one after the other on a device", kNumber, Style::count,
     [](const Situation& s) { return static_cast<double>(workload(s).global_batch_size / (workload(s).micro_batch_size * strategy(s).data_parallel)); }},

    {"seq_len", "sequence", "tokens of a sequence of training", kTokens, Style::plain, [](const Situation& s) { return static_cast<double>(workload(s).seq_len); }},
    {"micro_batch", "micro-batch", "sequences at a time on a device", kNumber, Style::count, [](const Situation& s) { return static_cast<double>(workload(s).micro_batch_size); }},
    {"global_batch", "global batch", "sequences of a step", kNumber, Style::count, [](const Situation& s) { return static_cast<double>(workload(s).global_batch_size); }},
    {"tokens", "tokens", "of a step; of a generation, prompt and new tokens of all sequences", kTokens, Style::plain, tokens},
    {"prompt", "prompt", "tokens of a prompt", kTokens, Style::plain, [](const Situation& s) { return static_cast<double>(workload(s).prompt_length); }},
    {"new_tokens", "new tokens", "of a sequence", kTokens, Style::plain, [](const Situation& s) { return static_cast<double>(workload(s).max_new_tokens); }},
    {"batch", "batch", "sequences generated at a time", kNumber, Style::count, [](const Situation& s) { return static_cast<double>(workload(s).batch_size); }},

    {"peak_flops", "peak", "dense peak of one device in the workload's type", kFlops / kSeconds, Style::plain,
     [](const Situation& s) { return hardware(s).peak_for(workload(s).dtype).value; }},
    {"bandwidth", "bandwidth", "of one device's memory", kBytes / kSeconds, Style::plain, [](const Situation& s) { return hardware(s).memory_bandwidth.value; }},
    {"capacity", "capacity", "of one device's memory", kBytes, Style::plain, [](const Situation& s) { return static_cast<double>(hardware(s).memory.value); }},
    {"power", "power", "of one device, as rated", kJoules / kSeconds, Style::plain, [](const Situation& s) { return hardware(s).power_w; }},
    {"price_per_hour", "price an hour", "of one device, rented (presets/economics.json)", kDollars / kSeconds, Style::plain,
     [](const Situation& s) { return usd_per_hour(s) / 3600; }},

    {"step_time", "step", "a training step", kSeconds, Style::plain, [](const Situation& s) { return sim::step_time(s.report()).value; }},
    {"generation_time", "generation", "prompt and all new tokens", kSeconds, Style::plain, [](const Situation& s) { return sim::step_time(s.report()).value; }},
    {"forward_time", "forward", "of the first stage's first rank", kSeconds, Style::plain, seconds_of<sim::Phase::forward>},
    {"recompute_time", "recompute", "the same", kSeconds, Style::plain, seconds_of<sim::Phase::recompute>},
    {"backward_time", "backward", "the same", kSeconds, Style::plain, seconds_of<sim::Phase::backward>},
    {"optimizer_time", "optimizer", "the same", kSeconds, Style::plain, seconds_of<sim::Phase::optimizer>},
    {"forward_flops", "forward FLOPs", "of the first stage's first rank", kFlops, Style::plain, flops_of<sim::Phase::forward>},
    {"recompute_flops", "recompute FLOPs", "the same", kFlops, Style::plain, flops_of<sim::Phase::recompute>},
    {"backward_flops", "backward FLOPs", "the same", kFlops, Style::plain, flops_of<sim::Phase::backward>},
    {"tokens_per_second", "tokens/s", "of all devices", kTokens / kSeconds, Style::plain, [](const Situation& s) { return sim::tokens_per_second(s.report()); }},
    {"step_flops", "FLOPs of the step", "executed, on all devices", kFlops, Style::plain,
     [](const Situation& s) { return static_cast<double>(sim::executed_flops(s.report()).value); }},
    {"device_flops", "FLOPs of a device", "executed in a step, the mean of all", kFlops, Style::plain, device_flops},
    {"traffic", "memory traffic", "bytes that the first rank reads and writes", kBytes, Style::plain, traffic},
    {"network_bytes", "sent", "bytes that the first rank sends", kBytes, Style::plain, sent},
    {"six_n", "6 N", "FLOPs of a token of training by 6 N", kFlops / kTokens, Style::plain, flops_a_token<FlopsConvention::six_n>},
    {"six_n_causal", "6 N and causal attention", "the same with 6 L a d s", kFlops / kTokens, Style::plain, flops_a_token<FlopsConvention::six_n_causal>},
    {"six_n_full", "6 N and full attention", "the same with 12 L a d s", kFlops / kTokens, Style::plain, flops_a_token<FlopsConvention::six_n_full>},
    {"mfu", "MFU", "by 6 N and causal attention, of the dense peak", kNumber, Style::percent,
     [](const Situation& s) { return sim::mfu(s.report(), FlopsConvention::six_n_causal); }},
    {"mfu_six_n", "MFU by 6 N", "attention left out", kNumber, Style::percent, [](const Situation& s) { return sim::mfu(s.report(), FlopsConvention::six_n); }},
    {"mfu_full", "MFU with full attention", "counted as if it were not causal", kNumber, Style::percent,
     [](const Situation& s) { return sim::mfu(s.report(), FlopsConvention::six_n_full); }},
    {"hfu", "HFU", "executed FLOPs, recompute included, over the dense peak", kNumber, Style::percent, [](const Situation& s) { return sim::hfu(s.report()); }},
    {"mbu", "MBU", "bytes that decoding must read, over the bandwidth", kNumber, Style::percent, [](const Situation& s) { return sim::mbu(s.report()); }},
    {"ttft", "time to first token", "", kSeconds, Style::plain, [](const Situation& s) { return sim::ttft(s.report()).value_or(sim::Seconds{}).value; }},
    {"tpot", "time a later token", "", kSeconds, Style::plain, [](const Situation& s) { return sim::tpot(s.report()).value_or(sim::Seconds{}).value; }},
    {"perplexity", "perplexity", "of the text presets/texts/factory.txt, as a run read it: in :measure alone", kNumber, Style::plain, perplexity, true},
    {"loss", "loss", "of the last step of a short training, nats a token: in :measure alone", kNumber, Style::plain, loss, true},
    {"compute_share", "bound by compute", "share of the time", kNumber, Style::percent, share<sim::StepPart::compute>},
    {"memory_share", "bound by memory", "share of the time", kNumber, Style::percent, share<sim::StepPart::memory>},
    {"launch_share", "bound by launches", "share of the time", kNumber, Style::percent, share<sim::StepPart::launch>},
    {"network_share", "bound by the network", "share of the time", kNumber, Style::percent, share<sim::StepPart::network>},

    {"peak_memory", "peak memory", "of the fullest device", kBytes, Style::plain, [](const Situation& s) { return static_cast<double>(sim::peak_memory(s.report()).value); }},
    {"parameter_memory", "parameters' memory", "of the fullest device, as the next", kBytes, Style::plain, ledger<sim::BufferClass::parameter>},
    {"gradient_memory", "gradients' memory", "", kBytes, Style::plain, ledger<sim::BufferClass::gradient>},
    {"optimizer_memory", "optimizer's memory", "its states and master copies", kBytes, Style::plain, ledger<sim::BufferClass::optimizer>},
    {"activation_memory", "activations' memory", "kept for the backward pass", kBytes, Style::plain, ledger<sim::BufferClass::activation>},
    {"kv_memory", "KV cache", "of all sequences", kBytes, Style::plain, ledger<sim::BufferClass::kv_cache>},
    {"communication_memory", "communication's memory", "buffers that collectives fill", kBytes, Style::plain, ledger<sim::BufferClass::communication>},
};
// clang-format on

}  // namespace

std::span<const Quantity> quantities() {
  return kQuantities;
}

const Quantity* find_quantity(std::string_view name) {
  const auto found = std::ranges::find(kQuantities, name, &Quantity::name);
  return found == std::end(kQuantities) ? nullptr : &*found;
}

}  // namespace app::lesson
