// ridgepoint generate: tokens from a model on this machine.
#include "runtime/generate.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/cli/chat.h"
#include "app/cli/command.h"
#include "app/cli/event_output.h"
#include "app/cli/flags.h"
#include "app/cli/generated_text.h"
#include "app/cli/interrupt.h"
#include "app/cli/ranks.h"
#include "app/cli/report_output.h"
#include "app/cli/scenario_flags.h"
#include "runtime/error.h"
#include "sim/cost/predict.h"
#include "sim/format.h"
#include "sim/report/metrics.h"

namespace app::cli {

namespace {

struct GenerateFlags {
  ScenarioFlags scenario;
  runtime::GenerateSettings settings;
  std::optional<std::string> prompt, prompt_tokens;
  std::string read;  // a file of text
  bool chat = false;
  EventFlags events;
  Format format = Format::text;
};

void add_settings(CLI::App& command, GenerateFlags& flags) {
  constexpr const char* kGroup = "Run";
  command.add_option("--prompt", flags.prompt, "text to continue")->type_name("TEXT")->group(kGroup);
  command.add_option("--prompt-tokens", flags.prompt_tokens, "the same as token ids")
      ->type_name("1,2,3")
      ->group(kGroup);
  command
      .add_option(
          "--read", flags.read,
          "text to read in place of writing one: as many tokens as --max-new-tokens, or all; tells the "
          "perplexity")
      ->type_name("FILE")
      ->group(kGroup);
  command.add_flag("--chat", flags.chat, "put the prompt into the model's chat template")->group(kGroup);
  command.add_option("--temperature", flags.settings.temperature, "0: always the likeliest token")
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--top-k", flags.settings.top_k, "sample among the k likeliest; 0: all")
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--top-p", flags.settings.top_p, "sample among the likeliest that add up to p")
      ->capture_default_str()
      ->group(kGroup);
  command.add_flag("--ignore-eos", flags.settings.ignore_eos, "go on behind the end of the text")
      ->group(kGroup);
  command.add_option("--seed", flags.settings.seed, "of sampling")->capture_default_str()->group(kGroup);
  command.add_option("--threads", flags.settings.device.threads, "0: all cores")
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_flag(
          "--cuda-graphs,!--no-cuda-graphs", flags.settings.replay,
          "on a GPU: replay tokens after the first few as one CUDA graph (the default; --no-cuda-graphs: "
          "time every operation of every token)")
      ->group(kGroup);
  command
      .add_flag("--deterministic", flags.settings.device.deterministic,
                "on a GPU: the same bits in every run, perhaps slower")
      ->group(kGroup);
}

void check(const runtime::GenerateSettings& settings) {
  if (!(settings.temperature >= 0)) throw UsageError("--temperature is 0 (greedy) or more");
  if (settings.top_k < 0) throw UsageError("--top-k is 0 (all tokens) or more");
  if (!(settings.top_p > 0 && settings.top_p <= 1)) throw UsageError("--top-p lies above 0 and is at most 1");
}

std::vector<std::int32_t> prompt_of(const GenerateFlags& flags, const runtime::ModelSource& source) {
  if (flags.prompt && flags.prompt_tokens)
    throw UsageError("--prompt and --prompt-tokens exclude each other");
  std::vector<std::int32_t> prompt;
  if (flags.prompt_tokens) {
    prompt = parse_token_ids(*flags.prompt_tokens, "--prompt-tokens");
  } else if (!flags.prompt) {
    throw UsageError("--prompt TEXT, or --prompt-tokens 1,2,3, says what to continue");
  } else if (!source.tokenizer) {
    throw UsageError(
        fmt::format("--prompt: {} comes without a tokenizer; give --prompt-tokens 1,2,3", source.origin));
  } else {
    prompt = flags.chat ? chat_prompt(*source.tokenizer, *flags.prompt)
                        : source.tokenizer->encode(*flags.prompt, true);
  }
  if (prompt.empty()) throw UsageError("the prompt is empty: a model continues at least one token");
  const auto beyond = std::find_if(prompt.begin(), prompt.end(),
                                   [&](std::int32_t id) { return id >= source.model.vocab_size; });
  if (beyond != prompt.end())
    throw runtime::InputError(fmt::format("the prompt has token id {}, but the vocabulary of {} ends at {}",
                                          *beyond, source.model.name, source.model.vocab_size - 1));
  return prompt;
}

// The first token is the prompt. The others are read.
void read_text(const GenerateFlags& flags, const runtime::ModelSource& source,
               runtime::GenerateSettings& settings, sim::Workload& workload) {
  if (flags.prompt || flags.prompt_tokens || flags.chat)
    throw UsageError("--read: a text is read or a prompt continued, one of the two");
  if (!source.tokenizer)
    throw UsageError(
        fmt::format("--read: {} comes without a tokenizer; a pretrained model has one", source.origin));
  const std::vector<std::int32_t> tokens = source.tokenizer->encode(read_file(flags.read), true);
  if (tokens.size() < 2) throw runtime::InputError(flags.read + ": has less than two tokens to read");
  settings.prompt = {tokens.front()};
  settings.read.assign(tokens.begin() + 1, tokens.end());
  if (!flags.scenario.typed("workload.max_new_tokens")) workload.max_new_tokens = std::ssize(settings.read);
}

std::string text_of(const runtime::ModelSource& source, const std::vector<std::int32_t>& tokens) {
  return source.tokenizer ? source.tokenizer->decode(tokens) : std::string();
}

// The keys tokens and text hold the first sequence. With more than one, sequences holds all of them.
std::string generation_json(const runtime::ModelSource& source, const std::vector<std::int32_t>& prompt,
                            const runtime::Generation& generation) {
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(report_json(generation.report));
  nlohmann::ordered_json result = {{"schema_version", json["schema_version"]},
                                   {"model", source.model.name},
                                   {"prompt_tokens", prompt},
                                   {"tokens", generation.tokens.front()}};
  if (const auto read = sim::perplexity(generation.report)) result["perplexity"] = *read;
  // Bytes that are not UTF-8 (a character cut by the last token) become U+FFFD, since JSON needs UTF-8.
  if (source.tokenizer) result["text"] = text_of(source, generation.tokens.front());
  if (generation.tokens.size() > 1) result["sequences"] = generation.tokens;
  result["metrics"] = std::move(json["metrics"]);
  result["report"] = std::move(json["report"]);
  return result.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
}

std::string speed_line(const sim::Report& report) {
  std::string line = fmt::format("{} tokens/s", sim::format_short(sim::tokens_per_second(report)));
  if (const auto ttft = sim::ttft(report)) line += fmt::format(", first token after {}", sim::format(*ttft));
  if (const auto read = sim::perplexity(report))
    return fmt::format("perplexity {:.3f} over {} tokens, {}", *read, report.tokens.size(), line);
  if (const auto tpot = sim::tpot(report)) line += fmt::format(", then {} each", sim::format(*tpot));
  return line;
}

// Prints the text of sequence 0 as it comes, or its ids where the model has no tokenizer.
class TokenPrinter {
 public:
  explicit TokenPrinter(bool has_text) : has_text_(has_text) {}
  void print(const sim::Event& event) const {
    const auto* token = std::get_if<sim::TokenResult>(&event);
    if (token == nullptr) return;
    print_generated(has_text_ ? token->text
                              : fmt::format("{}{}", token->index == 0 ? "" : " ", token->token));
  }

 private:
  bool has_text_;
};

ExitCode generate(const GenerateFlags& flags) {
  check(flags.settings);
  const InterruptSignals interrupt;
  const RankOfJob job = rank_of_job();
  ResolvedScenario resolved = resolve_for_run(flags.scenario, sim::Task::generate);
  sim::Strategy& strategy = resolved.scenario.strategy;
  if (strategy.devices() == 1) strategy.tensor_parallel = job.size;  // sequences are not divided
  settle_degrees(strategy, job);
  const int ranks = strategy.devices();
  const bool starts_ranks = ranks > 1 && job.size == 1;
  EventFlags event_flags = flags.events;
  if (starts_ranks || !job.is_first()) event_flags.record.clear();  // only the first rank records
  EventOutput events(event_flags);
  runtime::GenerateSettings settings = on_device(flags.settings, flags.scenario);
  if (flags.read.empty())
    settings.prompt = prompt_of(flags, resolved.source);
  else
    read_text(flags, resolved.source, settings, resolved.scenario.workload);
  resolved.scenario.workload.prompt_length = static_cast<std::int64_t>(settings.prompt.size());
  place_here(resolved, settings.device, job.is_first() ? events.sink() : runtime::EventSink(),
             interrupt.stop());
  if (interrupt.arrived()) return ExitCode::interrupted;
  if (starts_ranks) return start_ranks(ranks, interrupt);
  const bool on_cpu = ranks == 1 && settings.device.kind == runtime::DeviceChoice::Kind::cpu;
  if (on_cpu)
    settings.slowdown = resolved.calibration->slowdown =
        note_slowdown(*resolved.calibration, events.progress());

  const bool prints_text = !flags.events.stream && flags.format == Format::text;
  const TokenPrinter printer(resolved.source.tokenizer.has_value());
  const runtime::EventSink sink = [&](const sim::Event& event) {
    events.write(event);
    if (prints_text) printer.print(event);
  };
  std::optional<runtime::WatchedRun> watched;
  if (on_cpu)
    watched.emplace(*resolved.calibration, settings.slowdown,
                    sim::predict(resolved.scenario, &*resolved.calibration), sink);
  runtime::Generation generation;
  if (job.size > 1) {
    const ExitCode code = among_ranks(job, settings.device, [&](runtime::Communicator& communicator) {
      generation = runtime::generate(resolved.scenario, resolved.source, settings, communicator, sink,
                                     interrupt.stop());
      return interrupt.arrived() ? ExitCode::interrupted : ExitCode::fine;
    });
    if (!job.is_first() || (code != ExitCode::fine && code != ExitCode::interrupted)) return code;
  } else {
    generation = runtime::generate(resolved.scenario, resolved.source, settings,
                                   watched ? watched->sink() : sink, interrupt.stop());
    if (watched) take_pace(*watched, generation.report, *resolved.calibration, events.progress());
  }

  if (prints_text) {
    print_generated("\n");
    for (std::size_t i = 1; i < generation.tokens.size(); ++i)
      print_generated((resolved.source.tokenizer ? text_of(resolved.source, generation.tokens[i])
                                                 : fmt::format("{}", fmt::join(generation.tokens[i], " "))) +
                      "\n");
    events.progress().note(speed_line(generation.report));
  } else if (!flags.events.stream) {
    fmt::print("{}", generation_json(resolved.source, settings.prompt, generation));
  }
  return interrupt.arrived() ? ExitCode::interrupted : ExitCode::fine;
}

}  // namespace

void add_generate(CLI::App& program, Invocation& invocation) {
  const auto flags = std::make_shared<GenerateFlags>();
  CLI::App* command = program.add_subcommand(
      "generate",
      describe(
          "Continue a prompt here, token by token, and measure every operation.",
          {"ridgepoint generate --model smollm2-135m-instruct --prompt \"The ridge point of a roofline is\"",
           "ridgepoint generate --model smollm2-135m-instruct --chat --prompt \"Why is decoding slow?\"",
           "ridgepoint generate --model smollm2-135m-instruct --read my_text.txt --weights-dtype int4",
           "ridgepoint generate --model model.gguf --prompt \"Once\" --temperature 0.8 --top-k 40 --seed 7",
           "ridgepoint generate --model ./hugging_face_folder --prompt-tokens 1,2,3 --max-new-tokens 24 "
           "--format json",
           "ridgepoint generate --model smollm2-135m-instruct --prompt \"a\" --no-kv-cache --stream"}));
  flags->scenario.add_to(*command);
  add_settings(*command, *flags);
  flags->events.add_to(*command);
  add_format(*command, flags->format, {Format::text, Format::json});
  command->callback([flags, &invocation] {
    invocation.stream = flags->events.stream;
    invocation.run = [flags] { return generate(*flags); };
  });
}

}  // namespace app::cli
