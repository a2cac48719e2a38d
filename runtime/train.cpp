#include "runtime/train.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numbers>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/checkpoint_lock.h"
#include "runtime/checkpoint_writer.h"
#include "runtime/error.h"
#include "runtime/gpu_state.h"
#include "runtime/hugging_face_config.h"
#include "runtime/loss_scale.h"
#include "runtime/measured.h"
#include "runtime/rank_trace.h"
#include "runtime/run.h"
#include "runtime/text/token_data.h"
#include "sim/economics/noise_scale.h"
#include "sim/plan/parameters.h"
#include "sim/quantile.h"

namespace runtime {
namespace {

using Clock = std::chrono::steady_clock;

// The first step pages memory in and warms caches up. It is reported, but statistics leave it out where there
// are other steps.
constexpr std::size_t kWarmUpSteps = 1;

// Where steps are replayed, the first ones are timed operation by operation.
constexpr std::size_t kTimedBeforeReplay = 4;

// A live view gets rows after the first step and then this often.
constexpr double kRowsEverySeconds = 2;
constexpr double kRanksEverySeconds = 0.5;
// There are many operations: a long run tells them less and less often, a tenth of its time apart.
constexpr double kOperationsEverySeconds = 2, kOperationsEveryShare = 0.1;
constexpr std::int64_t kStepsWithMemory = 4;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

float learning_rate(const TrainSettings& settings, std::int64_t step) {
  if (step <= settings.warmup_steps)
    return settings.learning_rate * static_cast<float>(step) / static_cast<float>(settings.warmup_steps);
  if (settings.schedule == LearningRateSchedule::constant) return settings.learning_rate;
  constexpr double kFloor = 0.1;  // of the peak
  const double done = static_cast<double>(step - settings.warmup_steps - 1);
  const double all =
      static_cast<double>(std::max<std::int64_t>(settings.steps - settings.warmup_steps - 1, 1));
  const double cosine = 0.5 * (1 + std::cos(std::numbers::pi * std::min(done / all, 1.0)));
  return static_cast<float>(settings.learning_rate * (kFloor + (1 - kFloor) * cosine));
}

void check(const TrainSettings& settings) {
  if (settings.resume && settings.checkpoint.empty())
    throw InputError("resuming needs a checkpoint folder to resume from");
  if (!settings.checkpoint.empty() && !settings.resume) require_checkpoint_folder(settings.checkpoint);
}

// What is measured, step after step, and the report that follows from it.
class Measurements {
 public:
  explicit Measurements(Run& run) : run_(run), work_(rows_with_work(run.plan(), run.executor(), 1)) {}

  void add(SectionTiming timing, double step_seconds) {
    timings_.push_back(std::move(timing));
    step_seconds_.push_back(step_seconds);
    stamps_.assign(run_.executor().stamps().begin(), run_.executor().stamps().end());
  }

  std::size_t timed_steps() const { return timings_.size(); }

  // Adds a step that was run whole.
  void add_whole(double step_seconds) { whole_seconds_.push_back(step_seconds); }

  // Rows have the median over the steps after warm-up, with the 10th and 90th percentile, and add up to
  // the median step; ledger and timeline follow. The step's time is that of whole steps where there are
  // any.
  void fill(sim::Report& report) const {
    if (timings_.empty()) return;
    const std::size_t first = std::min(kWarmUpSteps, timings_.size() - 1);
    const std::vector<double> steps(step_seconds_.begin() + static_cast<std::ptrdiff_t>(first),
                                    step_seconds_.end());
    std::vector<std::size_t> order(steps.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = first + i;
    const auto middle = order.begin() + static_cast<std::ptrdiff_t>((order.size() - 1) / 2);
    std::nth_element(order.begin(), middle, order.end(),
                     [&](std::size_t a, std::size_t b) { return step_seconds_[a] < step_seconds_[b]; });
    const SectionTiming& median = timings_[*middle];

    report.step_time = {step_seconds_[*middle]};
    report.step_low = {sim::quantile(steps, 0.1)};
    report.step_high = {sim::quantile(steps, 0.9)};
    if (!whole_seconds_.empty()) {
      report.step_time = {sim::quantile(whole_seconds_, 0.5)};
      report.step_low = {sim::quantile(whole_seconds_, 0.1)};
      report.step_high = {sim::quantile(whole_seconds_, 0.9)};
    }
    report.rows = work_;
    std::vector<std::vector<double>> durations(report.rows.size(), std::vector<double>(steps.size()));
    for (std::size_t r = 0; r < report.rows.size(); ++r) {
      for (std::size_t i = 0; i < steps.size(); ++i) durations[r][i] = timings_[first + i].duration[r];
      report.rows[r].start = {median.start[r]};
      report.rows[r].duration = {median.duration[r]};
      report.rows[r].low = {sim::quantile(durations[r], 0.1)};
      report.rows[r].high = {sim::quantile(durations[r], 0.9)};
      if (const std::size_t into = median.fused_into[r]; into != SectionTiming::kAlone)
        report.rows[r].fused_into = report.rows[into].id;
    }
    set_medians(report.rows, durations);
    set_exposed(report.rows);
    run_.add_memory(report, stamps_);
  }

 private:
  Run& run_;
  std::vector<sim::Row> work_;
  std::vector<SectionTiming> timings_;
  std::vector<double> step_seconds_, whole_seconds_;
  std::vector<double> stamps_;  // of the last step that was timed operation by operation
};

class Trainer {
 public:
  Trainer(Run& run, const ModelSource& model, const TrainSettings& settings, const EventSink& sink)
      : settings_(settings),
        model_(model),
        sink_(run.communicator().rank() == 0 ? sink : EventSink()),
        run_(run),
        measurements_(run_) {
    const sim::Scenario& scenario = run.plan().scenario;
    const sim::Workload& workload = scenario.workload;
    micro_batches_ = workload.global_batch_size / scenario.strategy.data_parallel / workload.micro_batch_size;
    tokens_per_micro_batch_ = static_cast<std::size_t>(workload.micro_batch_size * own_length());
    const sim::Plan& plan = run_.plan();
    tokens_ = plan.find(sim::buffer_names::tokens);
    targets_ = plan.find(sim::buffer_names::targets);
    for (std::int64_t m = 0; m < scenario.model.num_nextn_predict_layers; ++m)
      further_targets_.push_back(plan.find(sim::module_prefix(static_cast<std::size_t>(m)) + "targets"));
    losses_ = plan.find(sim::buffer_names::losses);
    norm_ = plan.find(sim::buffer_names::gradient_norm);
    first_squares_ = plan.find(sim::buffer_names::first_gradient_squares);
    overflow_ = plan.find(sim::buffer_names::gradient_overflow);
    if (settings.checkpoint.empty()) return;
    const std::filesystem::path origin = model.origin;
    writer_.emplace(settings.checkpoint,
                    std::filesystem::is_directory(origin) ? origin : std::filesystem::path(),
                    settings.checkpoint_shard);
  }

  sim::Report train(const std::stop_token& stop) {
    report_.source = run_.source(settings_.seed);
    report_.source.slowdown = settings_.slowdown;
    emit(sim::BeginEvent{report_.source, settings_.steps});
    const std::int64_t done = start();

    const Clock::time_point begin = Clock::now();
    GpuMonitor monitor(run_.device().pci_bus_id());
    double rows_sent = -kRowsEverySeconds;
    std::int64_t step = done;
    while (step < settings_.steps && !diverged_ && !stopped(stop)) {
      ++step;
      run_step(step, stop);
      if (writer_) tell_checkpoint(writer_->finished());
      if (tells_ranks_) tell_timelines(step, begin);
      tell_memory(step - done, begin);
      for (const sim::DeviceSample& sample : monitor.take()) emit(sample);
      const double now = seconds_between(begin, Clock::now());
      if (now - rows_sent >= kRowsEverySeconds && step < settings_.steps) {
        send_rows();
        rows_sent = seconds_between(begin, Clock::now());
      }
      if (settings_.checkpoint_every > 0 && step % settings_.checkpoint_every == 0) save(step);
    }
    if (step > saved_ && !diverged_) save(step);
    if (writer_) tell_checkpoint(writer_->finish());

    if (diverged_)
      report_.message =
          "the loss of step " + std::to_string(step) +
          (run_.communicator().size() > 1 ? ", of rank " + std::to_string(diverged_rank_) + "," : "") +
          " is no finite number: a smaller learning rate may help";
    else if (step < settings_.steps)
      report_.message =
          "interrupted after " + std::to_string(step) + " of " + std::to_string(settings_.steps) + " steps";
    if (settings_.tell_timelines && timed_ == step && told_ != step) tell_timelines(step, begin, true);
    send_rows_of_all();
    write_trace();
    send_timeline();  // once: its points add up in a stream, and the first step's times fit no other step
    emit(sim::EndEvent{.step_time = report_.step_time,
                       .step_low = report_.step_low,
                       .step_high = report_.step_high,
                       .message = report_.message,
                       .expert_imbalance = expert_imbalance()});
    return report_;
  }

 private:
  void emit(const sim::Event& event) {
    sim::apply(report_, event);
    if (sink_) sink_(event);
  }

  // Loads weights and data; returns the number of steps already done.
  std::int64_t start() {
    const sim::Workload& workload = run_.plan().scenario.workload;
    data_.emplace(TokenData::load(
        settings_.data.empty() ? default_training_text() : std::filesystem::path(settings_.data),
        model_.tokenizer ? &*model_.tokenizer : nullptr, run_.plan().scenario.model.vocab_size));
    const bool shuffled = settings_.data_order == DataOrder::shuffled;
    batches_.emplace(*data_, workload.global_batch_size, workload.seq_len,
                     shuffled ? std::optional(settings_.seed) : std::nullopt);
    if (!settings_.resume) {
      run_.fill_parameters(model_, settings_.seed);
      return 0;
    }
    const CheckpointState state = load_checkpoint(settings_.checkpoint, run_);
    if (state.seed != settings_.seed)
      throw InputError(settings_.checkpoint + ": the checkpoint's run has seed " +
                       std::to_string(state.seed) + "; resume with the same");
    saved_ = state.step;
    loss_scale_ = state.loss_scale;
    return state.step;
  }

  // All ranks end after the same step: the one in which any of them was asked to stop.
  bool stopped(const std::stop_token& stop) const {
    return run_.communicator().size() > 1 ? stopped_ : stop.stop_requested();
  }

  void run_step(std::int64_t step, const std::stop_token& stop) {
    const Clock::time_point begin = Clock::now();
    fill_inputs(step);
    RunSettings run_settings;
    run_settings.adamw = {.learning_rate = learning_rate(settings_, step),
                          .beta1 = settings_.beta1,
                          .beta2 = settings_.beta2,
                          .eps = settings_.eps,
                          .weight_decay = settings_.weight_decay,
                          .step = step - loss_scale_.skipped};
    run_settings.max_gradient_norm = settings_.grad_clip;
    run_settings.dropout = settings_.dropout;
    run_settings.dropout_seed = settings_.seed;
    run_settings.vocabulary = run_.vocabulary();
    run_settings.context = run_.context();
    if (scales_loss()) run_settings.loss_scale = loss_scale_.scale;
    const bool whole = runs_whole();
    SectionTiming timing;
    if (whole)
      run_.executor().run_whole(0, run_settings);
    else
      timing = run_.executor().run(0, run_settings);

    sim::StepResult result;
    result.step = step;
    result.loss = mean_loss(stop);
    result.grad_norm = gradient_norm();
    if (first_squares_ != sim::kNoBuffer) measure_noise(result, run_settings.loss_scale);
    if (scales_loss()) loss_scale_.update(overflowed());
    result.tokens = tokens_per_step();
    result.duration = {seconds_between(begin, Clock::now())};
    if (whole)
      measurements_.add_whole(result.duration.value);
    else
      measurements_.add(std::move(timing), result.duration.value);
    if (!whole) timed_ = step;
    duration_ = result.duration;
    emit(result);
    diverged_ = !std::isfinite(result.loss);
  }

  std::int64_t tokens_per_step() const {
    return run_.plan().scenario.workload.global_batch_size * run_.plan().scenario.workload.seq_len;
  }

  std::int64_t position_of(std::int64_t token, std::int64_t length) const {
    return run_.context().ranks == 1 ? token : run_.context().position(token, length);
  }

  // Tokens of a sequence that this rank has.
  std::int64_t own_length() const {
    return run_.plan().scenario.workload.seq_len / run_.plan().scenario.strategy.context_parallel;
  }

  // Row b of step i (from 0) is sequence i * B + b, where B is the global batch. The data-parallel ranks take
  // equal runs of rows in turn.
  void fill_inputs(std::int64_t step) {
    std::vector<std::int32_t>& tokens = host_tokens_;
    std::vector<std::int32_t>& targets = host_targets_;
    const auto all = static_cast<std::size_t>(tokens_per_step());
    tokens.resize(all);
    targets.resize(all);
    batches_->read(step - 1, tokens, targets);
    const std::int64_t before = run_.place().data * micro_batches_, length = own_length();
    const sim::Workload& workload = run_.plan().scenario.workload;
    std::vector<std::int32_t> own(tokens_per_micro_batch_);
    for (std::int64_t m = 0; m < micro_batches_; ++m) {
      const std::int64_t first_sequence = (before + m) * workload.micro_batch_size;
      const auto write = [&](sim::BufferId buffer, const std::vector<std::int32_t>& of) {
        if (buffer == sim::kNoBuffer || !run_.holds(buffer, static_cast<std::int32_t>(m))) return;
        for (std::size_t i = 0; i < own.size(); ++i) {
          const std::int64_t b = static_cast<std::int64_t>(i) / length,
                             t = static_cast<std::int64_t>(i) % length;
          own[i] =
              of[static_cast<std::size_t>((first_sequence + b) * workload.seq_len + position_of(t, length))];
        }
        run_.write(buffer, std::span<const std::int32_t>(own), 0, static_cast<std::int32_t>(m));
      };
      write(tokens_, tokens);
      write(targets_, targets);
      std::vector<std::int32_t> further = targets;
      for (const sim::BufferId buffer : further_targets_) {
        shift_sequences(further, workload.seq_len);
        write(buffer, further);
      }
    }
  }

  // Targets are the tokens one place further on; the last token of a sequence has none.
  static void shift_sequences(std::vector<std::int32_t>& targets, std::int64_t length) {
    constexpr std::int32_t kNoTarget = -1;
    const auto step = static_cast<std::size_t>(length);
    for (std::size_t begin = 0; begin < targets.size(); begin += step) {
      const auto first = targets.begin() + static_cast<std::ptrdiff_t>(begin);
      std::copy(first + 1, first + static_cast<std::ptrdiff_t>(step), first);
      targets[begin + step - 1] = kNoTarget;
    }
  }

  // Whether a step runs as one graph, whose actions are not timed one by one.
  bool runs_whole() const { return settings_.replay && measurements_.timed_steps() >= kTimedBeforeReplay; }

  // Rank 0's clock decides.
  bool wants_ranks_told() const {
    return settings_.tell_timelines && !runs_whole() && run_.communicator().rank() == 0 &&
           (!ranks_told_ || seconds_between(*ranks_told_, Clock::now()) >= kRanksEverySeconds);
  }

  void tell_timelines(std::int64_t step, Clock::time_point begin, bool last = false) {
    ranks_told_ = Clock::now();
    told_ = step;
    const std::vector<TracedOperation> operations = gather_trace(run_);
    for (const sim::RankTimelineEvent& timeline : rank_timelines(run_.plan(), actions_of(operations), step))
      emit(timeline);
    const double now = seconds_between(begin, Clock::now());
    if (!last && now < operations_told_ + std::max(kOperationsEverySeconds, kOperationsEveryShare * now))
      return;
    operations_told_ = now;
    for (const sim::OperationTimelineEvent& timeline :
         operation_timelines(run_.plan(), operations, step, duration_))
      emit(timeline);
  }

  std::vector<sim::MemoryTimePoint> memory_of_step(sim::Step step) {
    const std::span<const double> stamps = run_.executor().stamps();
    if (step == sim::Step::later) return measured_timeline(run_.plan(), run_.memory(), stamps);
    const sim::MemoryPlan first =
        sim::plan_memory(run_.plan(), run_.memory().program, sim::Addresses::none, step);
    return measured_timeline(run_.plan(), first, stamps);
  }

  // What is live while the first steps run, by the plan, at the times at which their operations ran.
  void tell_memory(std::int64_t step, Clock::time_point begin) {
    if (!settings_.tell_timelines || settings_.resume || step > kStepsWithMemory || timed_ != step) return;
    const double end = seconds_between(begin, Clock::now());
    emit(sim::StepMemoryEvent{step,
                              {std::max(0.0, end - duration_.value)},
                              duration_,
                              run_.device().in_use(),
                              memory_of_step(step == 1 ? sim::Step::first : sim::Step::later)});
  }

  // The mean over all ranks' tokens. What ranks must agree on after a step is sent along: whether one of them
  // was asked to stop, and whether they tell when their passes ran.
  double mean_loss(const std::stop_token& stop) {
    struct OfRank {
      double loss = 0, stop = 0, tell = 0;
    };
    OfRank own{.stop = stop.stop_requested() ? 1.0 : 0.0, .tell = wants_ranks_told() ? 1.0 : 0.0};
    // Tensor-parallel ranks have the same losses, so only the first of them adds its own.
    if (run_.place().tensor == 0) {
      host_losses_.resize(tokens_per_micro_batch_);
      for (std::int64_t m = 0; m < micro_batches_; ++m) {
        if (!run_.holds(losses_, static_cast<std::int32_t>(m))) continue;
        run_.read_values({losses_}, std::span(host_losses_), static_cast<std::int32_t>(m));
        for (const double loss : host_losses_) own.loss += loss;
      }
    }
    Communicator& communicator = run_.communicator();
    std::vector<OfRank> all(static_cast<std::size_t>(communicator.size()));
    const MutableBytes gathered = std::as_writable_bytes(std::span(all));
    const ConstBytes own_bytes = std::as_bytes(std::span(&own, 1));
    communicator.all_gather(communicator.everyone(), std::span(&gathered, 1), std::span(&own_bytes, 1),
                            sim::DType::fp64);
    double sum = 0;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      if (!std::isfinite(all[rank].loss) && std::isfinite(sum)) diverged_rank_ = rank;
      sum += all[rank].loss;
      stopped_ = stopped_ || all[rank].stop != 0;
    }
    tells_ranks_ = all.front().tell != 0;
    return sum / static_cast<double>(tokens_per_step());
  }

  // Whether the loss is scaled, as it is in fp16 (loss_scale.h).
  bool scales_loss() const { return overflow_ != sim::kNoBuffer; }
  bool overflowed() {
    float found = 0;
    run_.read(overflow_, std::span(&found, 1));
    return found != 0;
  }

  // The norm before clipping.
  double gradient_norm() {
    std::array<double, 2> sum_and_norm{};
    run_.read(norm_, std::span<double>(sum_and_norm));
    return sum_and_norm[1];
  }

  // The first micro-batch's gradient is of its part of the step's mean loss. Times the number of
  // micro-batches it is of the mean loss of its own tokens. The step's norm has no loss scale in it any more.
  void measure_noise(sim::StepResult& step, float loss_scale) {
    double squares = 0;
    run_.read(first_squares_, std::span(&squares, 1));
    const double whole =
        std::sqrt(squares) * static_cast<double>(micro_batches_) / (loss_scale > 0 ? loss_scale : 1);
    if (!std::isfinite(whole) || !std::isfinite(step.grad_norm)) return;
    step.micro_batch_grad_norm = whole;
    const sim::Workload& workload = run_.plan().scenario.workload;
    noise_.add(sim::noise_estimate(static_cast<double>(workload.micro_batch_size), whole * whole,
                                   static_cast<double>(workload.global_batch_size),
                                   step.grad_norm * step.grad_norm));
    step.noise_scale = noise_.noise_scale();
  }

  void save(std::int64_t step) {
    if (!writer_) return;
    writer_->save(run_, {.step = step,
                         .seed = settings_.seed,
                         .data_position = step * tokens_per_step(),
                         .loss_scale = loss_scale_});
    saved_ = step;
  }
  void tell_checkpoint(std::optional<std::int64_t> step) {
    if (step) emit(sim::CheckpointEvent{*step, settings_.checkpoint});
  }

  void send_rows() {
    sim::Report measured;
    measurements_.fill(measured);
    for (const sim::Row& row : measured.rows) emit(row);
    for (const sim::MemoryLine& line : measured.memory) emit(line);
    report_.step_time = measured.step_time;
    report_.step_low = measured.step_low;
    report_.step_high = measured.step_high;
  }

  // Sends rows and ledger of every rank, each with the rank's number.
  void send_rows_of_all() {
    Communicator& communicator = run_.communicator();
    if (communicator.size() == 1) return send_rows();
    sim::Report own;
    measurements_.fill(own);
    own.source = report_.source;
    for (sim::Row& row : own.rows) row.rank = communicator.rank();
    for (sim::MemoryLine& line : own.memory) line.rank = communicator.rank();
    const std::string text = sim::to_json(own, -1);
    const auto all = communicator.gather_to_first(std::as_bytes(std::span(text)));
    std::vector<sim::Row> rows;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      const std::string_view json(reinterpret_cast<const char*>(all[rank].data()), all[rank].size());
      const sim::Report of_rank = sim::report_from_json(json, "rank " + std::to_string(rank));
      rows.insert(rows.end(), of_rank.rows.begin(), of_rank.rows.end());
      for (const sim::MemoryLine& line : of_rank.memory) emit(line);
    }
    leave_waiting_out(rows);
    for (const sim::Row& row : rows) emit(row);
    report_.step_time = own.step_time;
    report_.step_low = own.step_low;
    report_.step_high = own.step_high;
  }

  // The mean over the ranks that have layers with experts.
  double expert_imbalance() {
    Communicator& communicator = run_.communicator();
    const double own = run_.executor().expert_imbalance();
    std::vector<double> all(static_cast<std::size_t>(communicator.size()));
    const MutableBytes gathered = std::as_writable_bytes(std::span(all));
    const ConstBytes own_bytes = std::as_bytes(std::span(&own, 1));
    communicator.all_gather(communicator.everyone(), std::span(&gathered, 1), std::span(&own_bytes, 1),
                            sim::DType::fp64);
    const auto known = std::count_if(all.begin(), all.end(), [](double d) { return d > 0; });
    return known > 0 ? std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(known) : 0;
  }

  void write_trace() {
    if (settings_.trace.empty()) return;
    const std::vector<TracedAction> actions = actions_of(gather_trace(run_));
    if (run_.communicator().rank() > 0) return;
    std::ofstream file(settings_.trace);
    if (!file) throw InputError(settings_.trace + ": the trace cannot be written there");
    file << to_chrome_trace(run_.plan(), actions) << '\n';
    if (!file.flush())
      throw DeviceError(settings_.trace + ": the trace could not be written; is the disk full?");
  }

  void send_timeline() {
    sim::Report measured;
    measurements_.fill(measured);
    for (const sim::MemoryTimePoint& point : measured.memory_timeline) emit(point);
  }

  const TrainSettings& settings_;
  const ModelSource& model_;
  const EventSink sink_;
  Run& run_;
  Measurements measurements_;
  std::optional<TokenData> data_;
  std::optional<BatchReader> batches_;  // of data_
  sim::Report report_;
  std::int64_t micro_batches_ = 1;
  std::optional<CheckpointWriter> writer_;
  std::int64_t saved_ = 0;  // the step of the last checkpoint, which may still be on its way to the disk
  bool diverged_ = false, stopped_ = false;
  bool tells_ranks_ = false;  // after the step at hand, on all ranks
  std::optional<Clock::time_point> ranks_told_;
  double operations_told_ = -kOperationsEverySeconds;  // since training began
  std::int64_t timed_ = 0, told_ = 0;                  // steps: the last timed one by one, the last told
  sim::Seconds duration_;                              // of the last step
  std::size_t diverged_rank_ = 0;
  std::size_t tokens_per_micro_batch_ = 0;
  sim::BufferId tokens_, targets_, losses_, norm_, first_squares_, overflow_;
  std::vector<sim::BufferId> further_targets_;  // of modules of multi-token prediction
  LossScale loss_scale_;
  sim::NoiseAverage noise_;  // of the steps of this run; begins anew where one is resumed
  std::vector<std::int32_t> host_tokens_, host_targets_;
  std::vector<double> host_losses_;
};

}  // namespace

sim::Report train(const sim::Scenario& scenario, const ModelSource& model, const TrainSettings& settings,
                  const EventSink& sink, std::stop_token stop) {
  Communicator alone;
  return train(scenario, model, settings, alone, sink, std::move(stop));
}

sim::Report train(const sim::Scenario& scenario, const ModelSource& model, const TrainSettings& settings,
                  Communicator& communicator, const EventSink& sink, std::stop_token stop) {
  check(settings);  // before memory is taken
  Run run(scenario, open_device(settings.device), communicator);
  return train(run, model, settings, sink, std::move(stop));
}

sim::Report train(Run& run, const ModelSource& model, const TrainSettings& settings, const EventSink& sink,
                  std::stop_token stop) {
  check(settings);
  if (!settings.checkpoint.empty())
    hugging_face_config(run.plan().scenario.model);  // throws now, not after the training
  std::optional<CheckpointLock> lock;
  if (!settings.checkpoint.empty() && run.communicator().rank() == 0) lock.emplace(settings.checkpoint);
  return Trainer(run, model, settings, sink).train(stop);
}

}  // namespace runtime
