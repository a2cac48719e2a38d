#include "runtime/generate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <optional>

#include "runtime/error.h"
#include "runtime/gpu_state.h"
#include "runtime/measured.h"
#include "runtime/run.h"
#include "sim/quantile.h"

namespace runtime {
namespace {

using Clock = std::chrono::steady_clock;

sim::Scenario with_prompt_length(sim::Scenario scenario, std::size_t length) {
  scenario.workload.prompt_length = static_cast<std::int64_t>(length);
  return scenario;
}

void check_prompt(const std::vector<std::int32_t>& prompt, const sim::Model& model) {
  if (prompt.empty()) throw InputError("the prompt is empty; it must have at least one token");
  for (const std::int32_t token : prompt)
    if (token < 0 || token >= model.vocab_size)
      throw InputError("prompt token " + std::to_string(token) + " is not in the vocabulary of " +
                       model.name + " (0 to " + std::to_string(model.vocab_size - 1) + ")");
}

void check_read(const sim::Workload& workload, const GenerateSettings& settings, const sim::Model& model) {
  if (settings.read.empty()) return;
  if (std::ssize(settings.read) < workload.max_new_tokens)
    throw InputError("the text that is read has " + std::to_string(settings.read.size()) +
                     " tokens behind the prompt, and " + std::to_string(workload.max_new_tokens) +
                     " are to be read");
  for (const std::int32_t token : settings.read)
    if (token < 0 || token >= model.vocab_size)
      throw InputError("token " + std::to_string(token) +
                       " of the text that is read is not in the vocabulary of " + model.name + " (0 to " +
                       std::to_string(model.vocab_size - 1) + ")");
}

// The negative logarithm of a token's probability, in nats.
double surprise_of(std::int32_t token, const std::vector<float>& logits) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - highest);
  return std::log(sum) + highest - logits[static_cast<std::size_t>(token)];
}

// Where tokens are replayed, the prompt and the first tokens are timed operation by operation.
constexpr std::size_t kTimedBeforeReplay = 4;

// How long one of the executor's rows took, in each section that ran it.
struct RowSamples {
  double start = 0;
  std::vector<double> durations;
  std::size_t fused_into = SectionTiming::kAlone;
};

class Generator {
 public:
  Generator(Run& run, const ModelSource& model, const GenerateSettings& settings, const EventSink& sink)
      : settings_(settings),
        model_(model),
        sink_(run.communicator().rank() == 0 ? sink : EventSink()),
        run_(run),
        samples_(run_.executor().rows().size()) {
    const sim::Plan& plan = run_.plan();
    tokens_ = plan.find(sim::buffer_names::tokens);
    positions_ = plan.find(sim::buffer_names::positions);
    next_tokens_ = plan.find(sim::buffer_names::next_tokens);
    logits_ = plan.find(sim::buffer_names::logits);
    batch_ = static_cast<std::size_t>(plan.scenario.workload.batch_size);
    sequences_.assign(batch_, settings.prompt);
    finished_.assign(batch_, false);
    generation_.tokens.resize(batch_);
    if (model.tokenizer) decoder_.emplace(*model.tokenizer);
    // Tokens of a text that is read come from the host: the device cannot pass them on by itself.
    if (settings.replay && settings.read.empty() && run_.communicator().size() == 1 &&
        run_.device().can_replay())
      timed_sections_ = kTimedBeforeReplay;
  }

  // `first`: the run has no parameters yet. They are filled after the event that tells of the beginning.
  Generation generate(const std::stop_token& stop, bool first) {
    sim::Report& report = generation_.report;
    report.source = run_.source(settings_.seed);
    report.source.slowdown = settings_.slowdown;
    emit(sim::BeginEvent{report.source, run_.plan().scenario.workload.max_new_tokens});
    if (first) run_.fill_parameters(model_, settings_.seed);

    const std::size_t sections = run_.executor().program().sections.size();
    const Clock::time_point begin = Clock::now();
    GpuMonitor monitor(run_.device().pci_bus_id());
    double last = 0, telling = 0;  // of tokens, and how likely those of a text that is read were
    std::size_t section = 0;
    // All ranks end after the same token: the one after which any of them was asked to stop.
    const auto stopped = [&] { return run_.communicator().any(stop.stop_requested()); };
    for (; section < sections && !all_finished() && !stopped(); ++section) {
      run_section(section, seconds_since(begin));
      if (section == 0) keep_first_logits();
      std::vector<std::int32_t> next = tokens_of(section);
      const double now = seconds_since(begin);
      std::optional<double> surprise;
      if (!settings_.read.empty()) {
        std::ranges::fill(next, settings_.read[section]);
        surprise = surprise_of(settings_.read[section], logits_now());
      }
      accept_tokens(next, section, now - last, section + 1 == sections, surprise);
      for (const sim::DeviceSample& sample : monitor.take()) emit(sample);
      // A listener may take a while. This counts as the generation's time only if the next token is at work.
      last = queued_ > 0 ? now : seconds_since(begin);
      telling += last - now;
    }
    if (queued_ > 0) run_.executor().end_queue();
    report.step_time = report.step_low = report.step_high = {last - telling};
    if (section < sections && !all_finished())
      report.message =
          "interrupted after " + std::to_string(section) + " of " + std::to_string(sections) + " tokens";
    send_rows(std::min(section, timed_sections_));
    emit(sim::EndEvent{report.step_time, report.step_low, report.step_high, report.message});
    return std::move(generation_);
  }

 private:
  static double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  void emit(const sim::Event& event) {
    sim::apply(generation_.report, event);
    if (sink_) sink_(event);
  }

  bool all_finished() const {
    return std::all_of(finished_.begin(), finished_.end(), [](bool finished) { return finished; });
  }

  // The new tokens of each sequence, as many as the section's actions take, and the place where they begin.
  void fill_inputs(std::size_t section) {
    const sim::Program& program = run_.executor().program();
    const sim::Variables& v = program.actions.at(program.sections.at(section).begin).variables;
    const auto query_length = static_cast<std::size_t>(v.query_length);
    host_tokens_.clear();
    for (const std::vector<std::int32_t>& sequence : sequences_)
      host_tokens_.insert(host_tokens_.end(), sequence.end() - static_cast<std::ptrdiff_t>(query_length),
                          sequence.end());
    if (run_.holds(tokens_)) run_.write(tokens_, std::span<const std::int32_t>(host_tokens_));
    if (positions_ == sim::kNoBuffer || !run_.holds(positions_)) return;
    const std::vector<std::int32_t> positions(batch_,
                                              static_cast<std::int32_t>(v.kv_length - v.query_length));
    run_.write(positions_, std::span<const std::int32_t>(positions));
  }

  // Whether the device passes tokens on to this section: it is then at work while the one before is read.
  bool is_queued(std::size_t section) {
    return section >= timed_sections_ && positions_ != sim::kNoBuffer && run_.executor().can_queue(section);
  }
  void queue(std::size_t section, const RunSettings& run_settings) {
    Executor& executor = run_.executor();
    if (queued_ == 0) {
      fill_inputs(section);
      executor.begin_queue(run_settings,
                           {executor.instance(tokens_).data(), executor.instance(positions_).data(),
                            executor.instance(next_tokens_).data(), static_cast<std::int64_t>(batch_)});
      executor.queue(section);
      queued_ = section + 1;
    }
    if (queued_ < executor.program().sections.size() && is_queued(queued_)) executor.queue(queued_++);
  }

  void run_section(std::size_t section, double begin) {
    RunSettings run_settings;
    run_settings.sampling = {.temperature = settings_.temperature,
                             .top_k = settings_.top_k,
                             .top_p = settings_.top_p,
                             .seed = settings_.seed};
    run_settings.sampling_step = static_cast<std::int64_t>(section);
    run_settings.vocabulary = run_.vocabulary();
    run_settings.sampled_vocabulary = run_.plan().scenario.model.vocab_size;
    if (is_queued(section)) return queue(section, run_settings);
    fill_inputs(section);
    if (section >= timed_sections_) {
      run_.executor().run_whole(section, run_settings);
      return;
    }
    const SectionTiming timing = run_.executor().run(section, run_settings);
    for (const double stamp : run_.executor().stamps().first(run_.executor().stamps().size() - 1))
      stamps_.push_back(begin + stamp);
    for (std::size_t r = 0; r < samples_.size(); ++r) {
      if (timing.count[r] == 0) continue;
      if (samples_[r].durations.empty()) samples_[r].start = begin + timing.start[r];
      samples_[r].durations.push_back(timing.duration[r]);
      samples_[r].fused_into = timing.fused_into[r];
    }
  }

  // The logits of sequence 0 as the last section left them.
  std::vector<float> logits_now() const {
    std::vector<float> logits(static_cast<std::size_t>(run_.plan().scenario.model.vocab_size));
    run_.read(logits_, std::span(logits));
    return logits;
  }

  // Keeps the last pipeline stage's logits on rank 0.
  void keep_first_logits() {
    std::vector<float> logits;
    if (run_.holds(logits_)) {
      logits.resize(static_cast<std::size_t>(run_.plan().scenario.model.vocab_size));
      run_.read(logits_, std::span(logits));
    }
    if (run_.plan().programs.size() > 1)
      for (const std::vector<std::byte>& bytes :
           run_.communicator().gather_to_first(std::as_bytes(std::span(logits)))) {
        if (bytes.empty()) continue;
        logits.resize(bytes.size() / sizeof(float));
        std::memcpy(logits.data(), bytes.data(), bytes.size());
      }
    generation_.first_logits = std::move(logits);
  }

  std::vector<std::int32_t> tokens_of(std::size_t section) {
    std::vector<std::int32_t> next(batch_);
    if (section < queued_)
      run_.executor().read_queued(next);
    else
      run_.read(next_tokens_, std::span(next));
    return next;
  }

  void accept_tokens(const std::vector<std::int32_t>& next, std::size_t index, double seconds, bool last,
                     std::optional<double> surprise) {
    for (std::size_t b = 0; b < batch_; ++b) {
      sequences_[b].push_back(next[b]);  // a finished sequence runs along with the batch
      if (finished_[b]) continue;
      generation_.tokens[b].push_back(next[b]);
      finished_[b] = !settings_.ignore_eos && settings_.read.empty() && model_.tokenizer &&
                     model_.tokenizer->is_eos(next[b]);
      if (b == 0)
        emit(sim::TokenResult{
            static_cast<std::int64_t>(index), next[0], text_of(next[0], last), {seconds}, surprise});
    }
  }

  std::string text_of(std::int32_t token, bool last) {
    if (!decoder_ || token >= model_.tokenizer->vocab_size()) return {};
    if (finished_[0]) return decoder_->finish();  // an end-of-sequence token is no text
    std::string text = decoder_->push(token);
    if (last) text += decoder_->finish();
    return text;
  }

  void send_rows(std::size_t sections) {
    std::vector<sim::Row> rows = rows_with_work(run_.plan(), run_.executor(), sections);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const std::vector<double>& durations = samples_[r].durations;
      if (durations.empty()) continue;
      double sum = 0;
      for (const double duration : durations) sum += duration;
      const double times = static_cast<double>(durations.size());
      rows[r].start = {samples_[r].start};
      rows[r].duration = {sum};
      rows[r].low = {std::min(sum, sim::quantile(durations, 0.1) * times)};
      rows[r].high = {std::max(sum, sim::quantile(durations, 0.9) * times)};
      if (const std::size_t into = samples_[r].fused_into; into != SectionTiming::kAlone)
        rows[r].fused_into = rows[into].id;
    }
    set_exposed(rows);
    for (std::size_t r = 0; r < rows.size(); ++r)
      if (!samples_[r].durations.empty()) emit(rows[r]);
    sim::Report memory;
    run_.add_memory(memory, stamps_);
    for (const sim::MemoryLine& line : memory.memory) emit(line);
    for (const sim::MemoryTimePoint& point : memory.memory_timeline) emit(point);
  }

  const GenerateSettings& settings_;
  const ModelSource& model_;
  const EventSink sink_;
  Run& run_;
  std::vector<RowSamples> samples_;
  std::vector<double> stamps_;  // of every operation so far, from the beginning of the generation
  Generation generation_;
  std::optional<StreamDecoder> decoder_;
  sim::BufferId tokens_, positions_, next_tokens_, logits_;
  std::size_t batch_ = 1;
  std::size_t timed_sections_ = static_cast<std::size_t>(-1);  // the others run whole
  std::size_t queued_ = 0;                                     // end of the sections that were; 0: none
  std::vector<std::vector<std::int32_t>> sequences_;           // prompt and new tokens
  std::vector<bool> finished_;
  std::vector<std::int32_t> host_tokens_;
};

}  // namespace

Generation generate(const sim::Scenario& scenario, const ModelSource& model, const GenerateSettings& settings,
                    const EventSink& sink, std::stop_token stop) {
  Communicator alone;
  return generate(scenario, model, settings, alone, sink, stop);
}

Generation generate(const sim::Scenario& scenario, const ModelSource& model, const GenerateSettings& settings,
                    Communicator& communicator, const EventSink& sink, std::stop_token stop) {
  return std::move(
      generate_repeatedly(1, scenario, model, settings, communicator, sink, std::move(stop)).front());
}

std::vector<Generation> generate_repeatedly(std::int64_t times, const sim::Scenario& scenario,
                                            const ModelSource& model, const GenerateSettings& settings,
                                            Communicator& communicator, const EventSink& sink,
                                            std::stop_token stop) {
  check_prompt(settings.prompt, model.model);
  check_read(scenario.workload, settings, model.model);
  if (!settings.read.empty() && communicator.size() > 1)
    throw InputError("a text is read by one process: a strategy of one device does");
  Run run(with_prompt_length(scenario, settings.prompt.size()), open_device(settings.device), communicator);
  std::vector<Generation> generations;
  do {
    Generator generator(run, model, settings, sink);
    generations.push_back(generator.generate(stop, generations.empty()));
  } while (std::ssize(generations) < times && !communicator.any(stop.stop_requested()));
  return generations;
}

}  // namespace runtime
