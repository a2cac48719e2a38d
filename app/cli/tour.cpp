#include "app/cli/tour.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "app/cli/command.h"
#include "app/cli/comparison_output.h"
#include "app/cli/event_output.h"
#include "app/cli/flags.h"
#include "app/cli/generated_text.h"
#include "app/cli/interrupt.h"
#include "app/cli/report_output.h"
#include "app/cli/scenario_flags.h"
#include "app/gui/desktop.h"
#include "runtime/generate.h"
#include "runtime/this_machine.h"
#include "runtime/watched_run.h"
#include "sim/cost/predict.h"
#include "sim/format.h"
#include "sim/report/metrics.h"
#include "sim/scenario/preset.h"

namespace app::cli {

namespace {

namespace fs = std::filesystem;

// Long enough to see the loss fall, short enough to watch.
constexpr sim::Seconds kTrainingTime{40};
constexpr std::int64_t kFewestSteps = 20, kMostSteps = 300;

constexpr const char* kTrainedModel = "gpt-10m";  // over bytes
constexpr float kLearningRate = 1e-3f;            // nanoGPT's for this shape
constexpr std::int64_t kWarmupSteps = 10;
constexpr const char* kTrainedPrompt = "def ";
constexpr std::int64_t kSampledTokens = 120;
constexpr float kSampleTemperature = 0.8f;

constexpr const char* kPretrainedModel = "smollm2-135m-instruct";
constexpr const char* kPretrainedPrompt =
    "A matrix product reads its operands from memory and multiplies them. On a roofline plot, the ridge "
    "point is";
constexpr std::int64_t kGeneratedTokens = 128;  // a second or two: long enough to be watched

class Tour {
 public:
  explicit Tour(const TourOptions& options) : options_(options), out_(options.out) {
    fs::create_directories(out_);
  }

  ExitCode run() {
    heading("1. What this machine reaches");
    measure_machine();
    if (interrupt_.arrived()) return ExitCode::interrupted;
    heading(fmt::format("2. Training {} on real text", kTrainedModel));
    train();
    if (interrupt_.arrived()) return ExitCode::interrupted;
    heading(fmt::format("3. Generating with the pretrained {}", kPretrainedModel));
    generate();
    if (interrupt_.arrived()) return ExitCode::interrupted;
    heading("4. Pictures of the desktop");
    draw();
    heading("In short");
    summarise();
    return ExitCode::fine;
  }

 private:
  using Clock = std::chrono::steady_clock;

  static void heading(const std::string& title) {
    fmt::print("\n{}\n{}\n\n", title, std::string(title.size(), '-'));
    std::fflush(stdout);
  }

  std::string path(const std::string& name) const { return (out_ / name).string(); }

  EventFlags recorded(const std::string& name) const {
    EventFlags flags;
    flags.record = path(name);
    return flags;
  }

  void measure_machine() {
    EventOutput events({});
    bool known = runtime::cached_this_machine().has_value();
    calibration_ = runtime::this_machine(events.sink(), interrupt_.stop());
    if (interrupt_.arrived()) return;
    // Other programs may have made the stored calibration too slow. Their effect now is found by the probes
    // before the runs.
    if (known && note_slowdown(calibration_, events.progress()).arithmetic < 1) {
      calibration_ = runtime::calibrate_this_machine(events.sink(), interrupt_.stop());
      if (interrupt_.arrived()) return;
      known = false;
    }
    if (calibration_.cores_used_by_others >= 0.1)
      fmt::print("Other programs kept {:.1f} cores busy meanwhile: it may do better than this.\n",
                 calibration_.cores_used_by_others);
    const sim::Hardware& hardware = calibration_.hardware;
    fmt::print("{} ({}): {} in fp32, {} from memory, {} of memory.\n", calibration_.device,
               known ? "measured " + calibration_.date : "measured just now",
               sim::format(hardware.peak_for(sim::DType::fp32)), sim::format(hardware.memory_bandwidth),
               sim::format(hardware.memory));
  }

  // Runs before each run, so that predictions are for the machine as it is now.
  void probe_machine() {
    EventOutput events({});
    calibration_.slowdown = note_slowdown(calibration_, events.progress());
  }

  sim::Scenario scenario_of(const sim::Model& model, sim::Task task) const {
    sim::Scenario scenario = default_scenario();
    scenario.model = model;
    scenario.hardware = calibration_.hardware;
    scenario.workload.task = task;
    return scenario;
  }

  void train() {
    const runtime::ModelSource source = runtime::open_model(kTrainedModel);
    const sim::Scenario scenario = scenario_of(source.model, sim::Task::train);
    probe_machine();
    sim::Report predicted = sim::predict(scenario, &calibration_);
    runtime::TrainSettings settings;
    settings.steps = options_.steps > 0
                         ? options_.steps
                         : std::clamp(static_cast<std::int64_t>(kTrainingTime / sim::step_time(predicted)),
                                      kFewestSteps, kMostSteps);
    settings.learning_rate = kLearningRate;
    settings.warmup_steps = std::min(kWarmupSteps, settings.steps / 2);
    settings.seed = options_.seed;
    settings.device.threads = options_.threads;
    settings.slowdown = calibration_.slowdown;
    settings.checkpoint = path("train.checkpoint");
    fmt::print("Predicted, before anything runs: {} a step, {} tokens/s, at most {} of memory.\n",
               sim::format(sim::step_time(predicted)), sim::format_short(sim::tokens_per_second(predicted)),
               sim::format(sim::peak_memory(predicted)));
    fmt::print("{} steps on this machine's text, beginning with weights drawn at random:\n", settings.steps);
    std::fflush(stdout);

    fs::remove_all(settings.checkpoint);  // an earlier tour left it
    sim::Report measured;
    {
      EventOutput events(recorded("train.events.ndjson"));
      runtime::WatchedRun watched(calibration_, settings.slowdown, predicted, events.sink());
      measured = runtime::train(scenario, source, settings, watched.sink(), interrupt_.stop());
      take_pace(watched, measured, calibration_, events.progress());
    }
    if (predict_again(scenario, settings.slowdown, predicted))
      fmt::print("Predicted for the machine as it was meanwhile: {} a step.\n",
                 sim::format(sim::step_time(predicted)));
    if (!measured.steps.empty())
      fmt::print("The loss fell from {:.2f} to {:.2f} nats a byte; guessing among 256 costs 5.55.\n",
                 measured.steps.front().loss, measured.steps.back().loss);
    keep("train", predicted, measured);
    if (!interrupt_.arrived()) sample_trained(settings.checkpoint, source);
  }

  // Predicts again if the run found the machine at another pace than `before`. Says whether it did.
  bool predict_again(const sim::Scenario& scenario, const sim::Slowdown& before,
                     sim::Report& predicted) const {
    if (calibration_.slowdown == before) return false;
    predicted = sim::predict(scenario, &calibration_);
    return true;
  }

  // Shows what the training taught the model.
  void sample_trained(const std::string& checkpoint, const runtime::ModelSource& trained) {
    runtime::ModelSource source = runtime::open_model(checkpoint);
    source.tokenizer = trained.tokenizer;
    fmt::print("\nWhat it now writes:\n\n");
    const Writing writing = continuing(kTrainedPrompt, kSampledTokens, kSampleTemperature, source);
    write(writing, source, [](const sim::Event& event) { print_token(event); });
  }

  void generate() {
    const std::vector<runtime::PretrainedModel> known = runtime::pretrained_models();
    const auto model = std::find_if(known.begin(), known.end(), [](const runtime::PretrainedModel& m) {
      return m.name == kPretrainedModel;
    });
    if (model == known.end() || !model->present) {
      fmt::print(
          "It is not on this machine, so this part of the tour is left out. scripts/fetch_model fetches it "
          "once\n"
          "(98 MB, then no network is needed); then take the tour again.\n");
      skipped_generation_ = true;
      return;
    }
    const runtime::ModelSource source = runtime::open_model(kPretrainedModel);
    probe_machine();
    const Writing writing = continuing(kPretrainedPrompt, kGeneratedTokens, 0, source);
    sim::Report predicted = sim::predict(writing.scenario, &calibration_);
    const auto tell = [&](const char* when) {
      fmt::print("{}: the first token after {}, {} tokens/s, {} of memory.\n", when,
                 sim::format(sim::ttft(predicted).value_or(sim::Seconds{})),
                 sim::format_short(sim::tokens_per_second(predicted)),
                 sim::format(sim::peak_memory(predicted)));
    };
    tell("Predicted");
    fmt::print("\n");
    sim::Report measured;
    {
      EventOutput events(recorded("generate.events.ndjson"));
      runtime::WatchedRun watched(calibration_, writing.settings.slowdown, predicted,
                                  [&](const sim::Event& event) {
                                    events.write(event);
                                    print_token(event);
                                  });
      measured = write(writing, source, watched.sink());
      take_pace(watched, measured, calibration_, events.progress());
    }
    if (predict_again(writing.scenario, writing.settings.slowdown, predicted)) {
      fmt::print("\n");
      tell("Predicted for the machine as it was meanwhile");
    }
    keep("generate", predicted, measured);
  }

  // A prompt, and the settings for the model that continues it.
  struct Writing {
    std::string prompt;
    sim::Scenario scenario;
    runtime::GenerateSettings settings;
  };

  Writing continuing(const std::string& prompt, std::int64_t tokens, float temperature,
                     const runtime::ModelSource& source) const {
    Writing writing{prompt, scenario_of(source.model, sim::Task::generate), {}};
    runtime::GenerateSettings& settings = writing.settings;
    settings.prompt = source.tokenizer->encode(prompt, true);
    settings.temperature = temperature;
    settings.seed = options_.seed;
    settings.device.threads = options_.threads;
    settings.slowdown = calibration_.slowdown;
    settings.ignore_eos = true;  // so that as many tokens come as were predicted
    writing.scenario.workload.prompt_length = static_cast<std::int64_t>(settings.prompt.size());
    writing.scenario.workload.max_new_tokens = tokens;
    return writing;
  }

  // Prints the prompt. `sink` receives what follows as it comes.
  sim::Report write(const Writing& writing, const runtime::ModelSource& source,
                    const runtime::EventSink& sink) {
    fmt::print("  {}", writing.prompt);
    std::fflush(stdout);
    sim::Report measured =
        runtime::generate(writing.scenario, source, writing.settings, sink, interrupt_.stop()).report;
    fmt::print("\n");
    std::fflush(stdout);
    return measured;
  }

  static void print_token(const sim::Event& event) {
    if (const auto* token = std::get_if<sim::TokenResult>(&event)) print_generated(token->text);
  }

  // Writes the files of one run and prints its table.
  void keep(const std::string& name, const sim::Report& predicted, const sim::Report& measured) {
    const sim::Comparison comparison = sim::compare(predicted, measured);
    write_file(path(name + ".predicted.json"), sim::to_json(predicted) + '\n');
    write_file(path(name + ".measured.json"), sim::to_json(measured) + '\n');
    for (const auto& [extension, format] :
         {std::pair{"json", Format::json}, std::pair{"csv", Format::csv}, std::pair{"md", Format::markdown}})
      write_file(path(fmt::format("{}.compared.{}", name, extension)), comparison_as(comparison, format));
    fmt::print("\n{}", comparison_as(comparison, Format::text));
    std::fflush(stdout);
    summaries_.push_back(fmt::format("{}: {}", name, comparison_summary(comparison)));
    measured_.push_back(measured);
  }

  void draw() {
    ScreenshotOptions options;
    options.scenario = measured_.front().source.scenario;
    for (const sim::Report& report : measured_) options.measured.push_back(sim::events_of(report));
    EventOutput events({});
    try {
      const std::vector<std::string> panels = panel_names();
      for (const std::string& panel : panels) {
        options.panel = panel;
        write_screenshot(options, path("panel." + panel + ".png"));
        ++pictures_;
      }
      options.panel.clear();
      for (const std::string_view name : kThemeNames) {
        options.theme = *theme_called(name);
        write_screenshot(options, path(fmt::format("desktop.{}.png", name)));
        ++pictures_;
      }
      fmt::print("{} pictures: every panel, and the whole desktop in every theme.\n", pictures_);
    } catch (const NoDisplay& e) {
      fmt::print("No pictures: {}\n", e.what());
    }
  }

  void summarise() const {
    for (const std::string& summary : summaries_) fmt::print("{}\n", summary);
    if (skipped_generation_)
      fmt::print("generate: left out, {} is not here; scripts/fetch_model fetches it\n\n", kPretrainedModel);
    const std::chrono::duration<double> spent = Clock::now() - begin_;
    fmt::print("Reports, tables, event streams{} are in {}/. The tour took {}.\n",
               pictures_ > 0 ? fmt::format(" and {} pictures", pictures_) : "", options_.out,
               sim::format(sim::Seconds{spent.count()}));
    fmt::print(
        "\nNext:\n"
        "  ./run                                                            the desktop\n"
        "  ./run predict --model llama-3.2-1b --hardware h100-sxm --seq-len 8k\n"
        "  ./run generate --model {} --chat --prompt \"Why is decoding slow?\"\n"
        "  ./run train --model tiny-llama --seq-len 256 --micro-batch 8 --steps 200\n",
        kPretrainedModel);
  }

  const TourOptions options_;
  const fs::path out_;
  const Clock::time_point begin_ = Clock::now();
  InterruptSignals interrupt_;
  sim::Calibration calibration_;
  std::vector<sim::Report> measured_;
  std::vector<std::string> summaries_;
  std::size_t pictures_ = 0;
  bool skipped_generation_ = false;
};

}  // namespace

ExitCode run_tour(const TourOptions& options) {
  return Tour(options).run();
}

void add_tour(CLI::App& program, Invocation& invocation) {
  const auto options = std::make_shared<TourOptions>();
  CLI::App* command = program.add_subcommand(
      "tour", describe("Train and generate here, beside predictions; reports and pictures go to out/.",
                       {"ridgepoint tour", "ridgepoint tour --steps 200 --out my_tour"}));
  command->add_option("--out", options->out, "folder for what the tour writes")
      ->capture_default_str()
      ->type_name("DIR");
  add_count(*command, "--steps", options->steps, "of training; 0: as many as fit 40 seconds");
  command->add_option("--seed", options->seed, "of weights, data order and sampling")->capture_default_str();
  command->add_option("--threads", options->threads, "0: all cores")->capture_default_str();
  command->callback([options, &invocation] { invocation.run = [options] { return run_tour(*options); }; });
}

}  // namespace app::cli
