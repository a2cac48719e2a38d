#include "runtime/bench.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "runtime/error.h"
#include "runtime/generate.h"
#include "runtime/model_source.h"
#include "runtime/stopwatch.h"
#include "runtime/weight_quantisation.h"
#include "sim/cost/predict.h"
#include "sim/cost/price.h"
#include "sim/format.h"
#include "sim/quantile.h"
#include "sim/report/metrics.h"
#include "sim/scenario/preset.h"

namespace runtime {
namespace {

using sim::OpKind;

constexpr std::pair<BenchKind, std::string_view> kNames[] = {
    {BenchKind::gemm, "gemm"},     {BenchKind::attention, "attention"},
    {BenchKind::norm, "norm"},     {BenchKind::copy, "copy"},
    {BenchKind::launch, "launch"}, {BenchKind::graph_launch, "graph-launch"},
    {BenchKind::decode, "decode"},
};

// Products of fewer rows belong to decoding, which has no backward pass.
constexpr std::int64_t kFewestTrainingRows = 64;

// A row that is yet to be measured.
struct Item {
  BenchKind kind{};
  std::string size;
  std::function<BenchRow()> measure;
};

class Bench {
 public:
  Bench(const BenchSettings& settings, const sim::Hardware& hardware, const sim::Calibration* calibration,
        const EventSink& sink, const std::stop_token& stop)
      : settings_(settings), hardware_(hardware), calibration_(calibration), sink_(sink), stop_(stop) {
    device_ = open_device(settings.device);
    const auto types = device_->dtypes();
    if (std::find(types.begin(), types.end(), settings.dtype) == types.end())
      throw NoDevice(device_->name() + " forms no matrix products in " +
                     std::string(sim::name(settings.dtype)));
    collect();
    if (!operations_.empty()) make_stopwatch();
  }

  std::vector<BenchRow> run() {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point begin = Clock::now();
    std::vector<BenchRow> rows;
    for (const Item& item : items_) {
      if (stop_.stop_requested()) break;
      BenchRow row = item.measure();
      row.kind = item.kind;
      row.size = item.size;
      rows.push_back(std::move(row));
      const auto done = static_cast<double>(rows.size()), all = static_cast<double>(items_.size());
      const double elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
      if (sink_)
        sink_(sim::ProgressEvent{"measuring " + device_->name(),
                                 static_cast<std::int64_t>(rows.size()),
                                 static_cast<std::int64_t>(items_.size()),
                                 {elapsed / done * (all - done)}});
    }
    return rows;
  }

 private:
  bool wants(BenchKind kind) const {
    const std::vector<BenchKind>& kinds = settings_.kinds;
    return kinds.empty() || std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
  }

  void collect() {
    if (wants(BenchKind::gemm))
      for (const auto& [M, N, K] : settings_.gemms)
        for (const auto& [kind, pass] :
             {std::pair{OpKind::matmul, "forward"}, std::pair{OpKind::matmul_backward_input, "to inputs"},
              std::pair{OpKind::matmul_backward_weight, "to weights"}})
          if (kind == OpKind::matmul || M >= kFewestTrainingRows)
            add(BenchKind::gemm, dimensions({M, N, K}) + ", " + pass, product(kind, M, N, K));
    if (wants(BenchKind::attention))
      for (const AttentionSize& a : settings_.attentions) {
        const Heads heads{a.heads, a.kv_heads, a.head_dim};
        const std::string size = dimensions({a.batch, a.length}) + ", " + std::to_string(a.heads) + "/" +
                                 std::to_string(a.kv_heads) + " heads of " + std::to_string(a.head_dim);
        add(BenchKind::attention, size + ", forward",
            attention(OpKind::attention_flash, a.batch, a.length, heads));
        add(BenchKind::attention, size + ", backward",
            attention(OpKind::attention_flash_backward, a.batch, a.length, heads));
      }
    if (wants(BenchKind::norm))
      for (const NormSize& n : settings_.norms) {
        add(BenchKind::norm, dimensions({n.rows, n.columns}) + ", forward",
            norm(OpKind::rmsnorm, n.rows, n.columns));
        add(BenchKind::norm, dimensions({n.rows, n.columns}) + ", backward",
            norm(OpKind::rmsnorm_backward, n.rows, n.columns));
      }
    if (wants(BenchKind::copy))
      for (const sim::Bytes bytes : settings_.copies) {
        constexpr std::int64_t kColumns = 1024;
        const std::int64_t row = kColumns * sim::bits(stored_type(settings_.dtype)) / 8;
        add(BenchKind::copy, sim::format(bytes) + " to another place",
            copy(std::max<std::int64_t>(bytes.value / row, 1), kColumns));
      }
    if (wants(BenchKind::launch)) add_launches(BenchKind::launch, false);
    if (wants(BenchKind::graph_launch)) {
      if (device_->can_replay())
        add_launches(BenchKind::graph_launch, true);
      else if (!settings_.kinds.empty())
        throw NoDevice(device_->name() + " captures no work to replay: graph-launch is for GPUs");
    }
    if (wants(BenchKind::decode))
      items_.push_back(
          {BenchKind::decode,
           settings_.decode_model +
               (settings_.decode_weights ? " in " + std::string(sim::name(*settings_.decode_weights)) : "") +
               ", batch " + std::to_string(settings_.decode_batch) + ", after " +
               std::to_string(settings_.decode_prompt) + " tokens",
           [this] { return decode(); }});
  }

  static std::string dimensions(std::initializer_list<std::int64_t> sizes) {
    std::string text;
    for (const std::int64_t size : sizes) text += (text.empty() ? "" : " x ") + std::to_string(size);
    return text;
  }

  void add(BenchKind kind, std::string size, SingleOperation single) {
    single.computing_in(settings_.dtype);
    const std::size_t index = operations_.size();
    operations_.push_back(std::move(single));
    items_.push_back({kind, std::move(size), [this, index] {
                        const SingleOperation& operation = operations_[index];
                        return row_of(operation, stopwatch_->time_cached(operation));
                      }});
  }

  void add_launches(BenchKind kind, bool replayed) {
    // The work is so small that the time is the cost of starting it.
    SingleOperation single = elementwise(OpKind::gelu, 64, 256);
    single.computing_in(settings_.dtype);
    const std::size_t index = operations_.size();
    operations_.push_back(std::move(single));
    items_.push_back({kind, std::to_string(settings_.launches) + " in a row", [this, index, replayed] {
                        const SingleOperation& operation = operations_[index];
                        BenchRow row =
                            row_of(operation,
                                   stopwatch_->time_in_a_row(
                                       operation, static_cast<std::size_t>(settings_.launches), replayed));
                        row.rate = row.share_of_peak = 0;
                        return row;
                      }});
  }

  void make_stopwatch() {
    sim::Bytes largest;
    for (const SingleOperation& single : operations_) largest = std::max(largest, operands_size(single));
    // Operands rotate through twice the last cache's size, so that they come from memory, as a model's
    // weights do; large operands have one copy.
    const sim::Bytes rotation{std::max<std::int64_t>(2 * hardware_.last_level_cache.value, 64 << 20)};
    const sim::Bytes memory = std::max(rotation, largest);
    if (memory > device_->available())
      throw DoesNotFit("the largest operation of this benchmark takes " + sim::format(memory) + ", " +
                       device_->name() + " has " + sim::format(device_->available()) + " of memory");
    stopwatch_.emplace(*device_, memory, rotation, stored_type(settings_.dtype),
                       SampleLength{settings_.seconds, 1000});
  }

  BenchRow row_of(const SingleOperation& single, const Timing& timing) const {
    const sim::Work work = single.work();
    const sim::Price price = sim::price(work, single.operation(), single.bound_variables(), hardware_,
                                        calibration_, nullptr, stopwatch_->working_set());
    BenchRow row;
    row.dtype = settings_.dtype;
    row.median = {timing.median};
    row.least = {timing.least};
    row.flops = work.flops;
    row.bytes = work.memory();
    const sim::DType arithmetic = single.operation().dtype;
    const bool has_peak = hardware_.has_peak_for(arithmetic);
    row.by_arithmetic = has_peak && sim::info(single.operation().kind).arithmetic.tensor_cores &&
                        row.flops / hardware_.peak_for(arithmetic) > row.bytes / hardware_.memory_bandwidth;
    set_rate(row, arithmetic);
    row.predicted = price.seconds;
    row.provenance = price.provenance;
    return row;
  }

  void set_rate(BenchRow& row, sim::DType arithmetic) const {
    row.rate =
        (row.by_arithmetic ? row.flops.value : static_cast<double>(row.bytes.value)) / row.median.value;
    const double peak =
        row.by_arithmetic ? hardware_.peak_for(arithmetic).value : hardware_.memory_bandwidth.value;
    row.share_of_peak = peak > 0 ? row.rate / peak : 0;
  }

  // A token of a whole model with random weights: the time does not depend on their values.
  BenchRow decode() {
    sim::Scenario scenario;
    const ModelSource model = open_model(settings_.decode_model);
    scenario.model = model.model;
    scenario.hardware = hardware_;
    scenario.implementation = sim::load_implementation_preset("ridgepoint");
    scenario.workload.task = sim::Task::generate;
    scenario.workload.dtype = settings_.dtype;
    scenario.workload.weights_dtype = settings_.decode_weights;
    if (settings_.decode_weights == sim::DType::int4)
      scenario.workload.weights_group = quantisation_group(sim::DType::int4, 0);
    scenario.workload.batch_size = settings_.decode_batch;
    scenario.workload.prompt_length = settings_.decode_prompt;
    scenario.workload.max_new_tokens = settings_.decode_tokens;
    GenerateSettings run;
    run.device = settings_.device;
    run.ignore_eos = true;
    run.replay = device_->can_replay();
    for (std::int64_t i = 0; i < settings_.decode_prompt; ++i)
      run.prompt.push_back(static_cast<std::int32_t>((7919 * i + 13) % model.model.vocab_size));
    stopwatch_.reset();  // its memory is the model's now; decoding comes last
    const sim::Report measured = generate(scenario, model, run, {}, stop_).report;
    const sim::Report predicted = sim::predict(scenario, calibration_);
    std::vector<double> durations;
    for (std::size_t i = 1; i < measured.tokens.size(); ++i)
      durations.push_back(measured.tokens[i].duration.value);
    BenchRow row;
    row.dtype = settings_.dtype;
    if (durations.empty()) return row;  // stopped before
    row.median = {sim::quantile(durations, 0.5)};
    row.least = {*std::min_element(durations.begin(), durations.end())};
    row.share_of_peak = sim::mbu(measured);
    row.rate = row.share_of_peak * hardware_.memory_bandwidth.value;
    row.bytes = {static_cast<std::int64_t>(row.rate * row.median.value)};
    row.predicted = sim::tpot(predicted).value_or(sim::Seconds{});
    row.provenance = calibration_ != nullptr ? sim::Provenance::calibrated : sim::Provenance::datasheet;
    return row;
  }

  const BenchSettings& settings_;
  const sim::Hardware& hardware_;
  const sim::Calibration* calibration_;
  const EventSink& sink_;
  const std::stop_token& stop_;
  std::unique_ptr<Device> device_;
  std::vector<SingleOperation> operations_;
  std::optional<Stopwatch> stopwatch_;
  std::vector<Item> items_;
};

}  // namespace

std::string_view name(BenchKind kind) {
  for (const auto& [known, text] : kNames)
    if (known == kind) return text;
  return {};
}

std::optional<BenchKind> bench_kind_from_name(std::string_view text) {
  for (const auto& [kind, known] : kNames)
    if (known == text) return kind;
  return std::nullopt;
}

const std::vector<BenchKind>& all_bench_kinds() {
  static const std::vector<BenchKind> kinds = [] {
    std::vector<BenchKind> all;
    for (const auto& [kind, text] : kNames) all.push_back(kind);
    return all;
  }();
  return kinds;
}

BenchSettings default_bench_settings(DeviceChoice::Kind kind) {
  BenchSettings s;
  if (kind == DeviceChoice::Kind::cpu) {
    s.gemms = {{256, 768, 768}, {1024, 3072, 768}, {1, 3072, 768}};
    s.attentions = {{1, 512, 12, 12, 64}, {1, 1024, 9, 3, 64}};
    s.norms = {{1024, 768}, {8192, 768}};
    s.copies = {{16 << 20}, {256 << 20}};
    s.decode_model = "tiny-llama";
    return s;
  }
  s.dtype = sim::DType::bf16;
  s.gemms = {
      {4096, 4096, 4096}, {8192, 8192, 8192}, {16384, 6144, 4096}, {16384, 28672, 4096}, {1, 14336, 4096}};
  s.attentions = {{16, 1024, 32, 8, 64}, {4, 4096, 32, 8, 128}, {1, 16384, 32, 8, 128}};
  s.norms = {{16384, 4096}, {64, 4096}};
  s.copies = {{64 << 20}, {std::int64_t{4} << 30}};
  s.decode_model = "llama-3.2-1b";
  s.decode_prompt = 512;
  s.decode_tokens = 64;
  return s;
}

std::vector<BenchRow> bench(const BenchSettings& settings, const sim::Hardware& hardware,
                            const sim::Calibration* calibration, const EventSink& sink,
                            const std::stop_token& stop) {
  return Bench(settings, hardware, calibration, sink, stop).run();
}

}  // namespace runtime
