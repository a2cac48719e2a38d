// ridgepoint replay: a recorded run, as it happened.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <variant>

#include "app/cli/command.h"
#include "app/cli/event_output.h"
#include "app/cli/flags.h"
#include "app/cli/interrupt.h"
#include "app/cli/report_output.h"
#include "runtime/error.h"
#include "sim/report/events.h"

namespace app::cli {

namespace {

struct ReplayFlags {
  std::string file;
  double at_most = 0;  // seconds; 0: as long as the run took
  bool stream = false;
  Format format = Format::text;
};

// The time that an event says has passed since the one before it.
double seconds_of(const sim::Event& event) {
  if (const auto* step = std::get_if<sim::StepResult>(&event)) return step->duration.value;
  if (const auto* token = std::get_if<sim::TokenResult>(&event)) return token->duration.value;
  return 0;
}

ExitCode replay(const ReplayFlags& flags) {
  const InterruptSignals interrupt;
  std::vector<sim::Event> events = read_events(flags.file);
  if (events.empty() || !std::holds_alternative<sim::BeginEvent>(events.front()))
    throw runtime::InputError(flags.file + " does not begin with the event of a run's beginning, \"begin\"");
  std::get<sim::BeginEvent>(events.front()).source.kind = sim::ReportKind::recorded;
  double took = 0;
  for (const sim::Event& event : events) took += std::max(0.0, seconds_of(event));
  const double pace = flags.at_most > 0 && took > flags.at_most ? flags.at_most / took : 1;
  EventOutput output({.stream = flags.stream, .record = {}});
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  sim::Report report;
  for (const sim::Event& event : events) {
    const std::chrono::duration<double> passes(std::max(0.0, seconds_of(event)) * pace);
    wake.wait_for(lock, interrupt.stop(), passes, [] { return false; });
    if (interrupt.arrived()) return ExitCode::interrupted;
    output.write(event);
    sim::apply(report, event);
  }
  if (!flags.stream) fmt::print("{}", report_as(report, flags.format));
  return ExitCode::fine;
}

}  // namespace

void add_replay(CLI::App& program, Invocation& invocation) {
  const auto flags = std::make_shared<ReplayFlags>();
  CLI::App* command = program.add_subcommand(
      "replay",
      describe("Play a recorded run as it happened: its events, at its pace.",
               {"ridgepoint train --model tiny-llama --steps 100 --record run.ndjson",
                "ridgepoint replay run.ndjson --at-most 10", "ridgepoint replay run.ndjson --stream"}));
  command
      ->add_option("RECORDING", flags->file,
                   "a run's events (train --record, generate --record), or a report")
      ->required()
      ->type_name("FILE");
  command->add_option("--at-most", flags->at_most, "seconds that it may take; 0: as many as the run")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_flag("--stream", flags->stream,
                    "write what happens to stdout as it happens, an event a line (NDJSON)");
  add_format(*command, flags->format, {Format::text, Format::json, Format::csv, Format::markdown});
  command->callback([flags, &invocation] {
    invocation.stream = flags->stream;
    invocation.run = [flags] { return replay(*flags); };
  });
}

}  // namespace app::cli
