// ridgepoint train: a training run on this machine.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <memory>

#include "app/cli/command.h"
#include "app/cli/event_output.h"
#include "app/cli/flags.h"
#include "app/cli/interrupt.h"
#include "app/cli/ranks.h"
#include "app/cli/report_output.h"
#include "app/cli/scenario_flags.h"
#include "sim/cost/predict.h"
#include "sim/format.h"
#include "sim/report/metrics.h"

namespace app::cli {

namespace {

struct TrainFlags {
  ScenarioFlags scenario;
  bool stochastic_rounding = false;
  runtime::TrainSettings settings;
  EventFlags events;
  Format format = Format::text;
};

void add_settings(CLI::App& command, runtime::TrainSettings& settings) {
  constexpr const char* kGroup = "Run";
  add_count(command, "--steps", settings.steps, "training steps")->group(kGroup);
  command.add_option("--lr", settings.learning_rate, "learning rate at its peak")
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_option_function<std::string>(
          "--lr-schedule",
          [&settings](const std::string& text) {
            if (text == "constant")
              settings.schedule = runtime::LearningRateSchedule::constant;
            else if (text == "cosine")
              settings.schedule = runtime::LearningRateSchedule::cosine;
            else
              throw UsageError(fmt::format("--lr-schedule is constant or cosine, not \"{}\"", text));
          },
          "how it falls (default cosine, to a tenth)")
      ->type_name("constant|cosine")
      ->group(kGroup);
  add_count(command, "--warmup-steps", settings.warmup_steps, "steps over which it rises from zero")
      ->group(kGroup);
  command.add_option("--weight-decay", settings.weight_decay, "of matrices")
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--beta1", settings.beta1, "AdamW, Lion")->capture_default_str()->group(kGroup);
  command.add_option("--beta2", settings.beta2, "AdamW, Lion")->capture_default_str()->group(kGroup);
  command.add_option("--eps", settings.eps, "AdamW")->capture_default_str()->group(kGroup);
  command.add_option("--grad-clip", settings.grad_clip, "largest gradient norm; 0: none")
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_option(
          "--dropout", settings.dropout,
          "on a GPU: probability of an element of the residual branches (and, with standard attention, of "
          "its probabilities) to be dropped")
      ->check(CLI::Range(0.0, 0.99))
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_option("--data", settings.data,
                  "text file, folder of them, or .bin of tokens (default: this machine's text)")
      ->type_name("PATH")
      ->group(kGroup);
  command
      .add_option_function<std::string>(
          "--data-order",
          [&settings](const std::string& text) {
            if (text == "shuffled")
              settings.data_order = runtime::DataOrder::shuffled;
            else if (text == "sequential")
              settings.data_order = runtime::DataOrder::sequential;
            else
              throw UsageError(fmt::format("--data-order is shuffled or sequential, not \"{}\"", text));
          },
          "which parts of the data a step sees (default shuffled)")
      ->type_name("shuffled|sequential")
      ->group(kGroup);
  command.add_option("--checkpoint", settings.checkpoint, "folder to keep the run in")
      ->type_name("DIR")
      ->group(kGroup);
  add_count(command, "--checkpoint-every", settings.checkpoint_every,
            "steps between checkpoints; 0: at the end")
      ->group(kGroup);
  command
      .add_option("--trace", settings.trace,
                  "file for when each action of the last step ran on every rank, for Perfetto")
      ->type_name("FILE.json")
      ->group(kGroup);
  command.add_flag("--resume", settings.resume, "continue from --checkpoint, exactly")->group(kGroup);
  command.add_option("--seed", settings.seed, "of weights and data order")
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--threads", settings.device.threads, "0: all cores")
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_flag("--cuda-graphs", settings.replay,
                "on a GPU: replay steps after the first few as one CUDA graph")
      ->group(kGroup);
  command
      .add_flag("--deterministic", settings.device.deterministic,
                "on a GPU: the same bits in every run, perhaps slower")
      ->group(kGroup);
}

void check(const runtime::TrainSettings& settings) {
  if (settings.steps < 1) throw UsageError(fmt::format("--steps is at least 1, not {}", settings.steps));
  if (settings.resume && settings.checkpoint.empty())
    throw UsageError("--resume continues what --checkpoint DIR holds; the folder is missing");
  if (settings.checkpoint_every > 0 && settings.checkpoint.empty())
    throw UsageError("--checkpoint-every needs --checkpoint DIR to write to");
}

// The measured step beside its prediction.
std::string beside_prediction(const ResolvedScenario& resolved, const sim::Report& measured) {
  sim::Scenario scenario = resolved.scenario;
  if (measured.expert_imbalance > 0) scenario.workload.expert_imbalance = measured.expert_imbalance;
  const sim::Report predicted = sim::predict(scenario, pointer_to(resolved.calibration));
  std::string text = fmt::format(
      "\n  step: predicted {}, measured {}, ratio {:.2f}\n", sim::format(sim::step_time(predicted)),
      sim::format(sim::step_time(measured)), sim::step_time(measured) / sim::step_time(predicted));
  if (measured.expert_imbalance > 0)
    text += fmt::format("  experts: the busiest rank had {:.2f} times the mean of rows, as predicted with\n",
                        measured.expert_imbalance);
  const int ranks = resolved.scenario.strategy.devices();
  if (ranks > 1 && resolved.calibration && resolved.calibration->collectives.empty())
    text += fmt::format(
        "  predicted as if each rank had the whole machine: ridgepoint calibrate --ranks {} measures what "
        "each "
        "has\n",
        ranks);
  return text;
}

ExitCode train(const TrainFlags& flags) {
  check(flags.settings);
  const InterruptSignals interrupt;
  const RankOfJob job = rank_of_job();
  ResolvedScenario resolved = resolve_for_run(flags.scenario, sim::Task::train);
  settle_degrees(resolved.scenario.strategy, job);
  const int ranks = resolved.scenario.strategy.devices();
  const bool starts_ranks = ranks > 1 && job.size == 1;
  EventFlags event_flags = flags.events;
  if (starts_ranks || !job.is_first()) event_flags.record.clear();  // only the first rank records
  EventOutput events(event_flags);
  runtime::TrainSettings settings = on_device(flags.settings, flags.scenario);
  sim::Implementation& implementation = resolved.scenario.implementation;
  implementation.dropout = implementation.dropout || settings.dropout > 0;
  if (flags.stochastic_rounding) implementation.master_weights = false;
  place_here(resolved, settings.device, job.is_first() ? events.sink() : runtime::EventSink(),
             interrupt.stop());
  if (interrupt.arrived()) return ExitCode::interrupted;
  settings.tell_timelines = flags.events.stream || !flags.events.record.empty();
  if (starts_ranks) return start_ranks(ranks, interrupt);
  std::optional<runtime::WatchedRun> watched;
  if (ranks == 1 && settings.device.kind == runtime::DeviceChoice::Kind::cpu) {
    settings.slowdown = resolved.calibration->slowdown =
        note_slowdown(*resolved.calibration, events.progress());
    watched.emplace(*resolved.calibration, settings.slowdown,
                    sim::predict(resolved.scenario, &*resolved.calibration), events.sink());
  }
  sim::Report report;
  if (job.size > 1) {
    const ExitCode code = among_ranks(job, settings.device, [&](runtime::Communicator& communicator) {
      report = runtime::train(resolved.scenario, resolved.source, settings, communicator, events.sink(),
                              interrupt.stop());
      return interrupt.arrived() ? ExitCode::interrupted : ExitCode::fine;
    });
    // This also appears on other machines' terminals.
    if (!job.is_first() && job.place == 0 && !report.message.empty()) to_stderr(report.message + "\n");
    if (!job.is_first() || (code != ExitCode::fine && code != ExitCode::interrupted)) return code;
  } else {
    report = runtime::train(resolved.scenario, resolved.source, settings,
                            watched ? watched->sink() : events.sink(), interrupt.stop());
    if (watched) take_pace(*watched, report, *resolved.calibration, events.progress());
  }
  if (!flags.events.stream) {
    fmt::print("{}", report_as(report, flags.format));
    if (flags.format == Format::text && !interrupt.arrived())
      fmt::print("{}", beside_prediction(resolved, report));
  }
  return interrupt.arrived() ? ExitCode::interrupted : ExitCode::fine;
}

}  // namespace

void add_train(CLI::App& program, Invocation& invocation) {
  const auto flags = std::make_shared<TrainFlags>();
  CLI::App* command = program.add_subcommand(
      "train",
      describe(
          "Train a model here, on real text, and measure every operation.",
          {"ridgepoint train --model tiny-llama --steps 100",
           "ridgepoint train --model gpt2-124m --seq-len 512 --micro-batch 4 --steps 20 --lr 6e-4",
           "ridgepoint train --model tiny-llama --tp 2 --dp 2 --zero 1",
           "ridgepoint train --model tiny-gpt --data my_notes/ --checkpoint my_run --checkpoint-every 50",
           "ridgepoint train --model tiny-gpt --checkpoint my_run --resume --steps 200",
           "ridgepoint train --model ./hugging_face_folder --data tokens.bin --data-order sequential "
           "--stream"}));
  flags->scenario.add_to(*command);
  add_settings(*command, flags->settings);
  command
      ->add_flag("--stochastic-rounding", flags->stochastic_rounding,
                 "in 16 bits: no fp32 copy of the weights, which are rounded up or down at random instead")
      ->group("Run");
  flags->events.add_to(*command);
  add_format(*command, flags->format, {Format::text, Format::json, Format::csv, Format::markdown});
  command->callback([flags, &invocation] {
    invocation.stream = flags->events.stream;
    invocation.run = [flags] { return train(*flags); };
  });
}

}  // namespace app::cli
