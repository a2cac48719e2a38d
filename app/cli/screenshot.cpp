// ridgepoint screenshot: the desktop, or one panel, as a picture or as data, without a display.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <charconv>
#include <memory>

#include "app/cli/command.h"
#include "app/cli/event_output.h"
#include "app/cli/interrupt.h"
#include "app/cli/report_output.h"
#include "app/cli/scenario_flags.h"
#include "app/gui/desktop.h"
#include "runtime/error.h"
#include "sim/scenario/fields.h"

namespace app::cli {

namespace {

constexpr int kSmallest = 64, kLargest = 16384;  // pixels a side; the latter is what OpenGL promises

struct ScreenshotFlags {
  ScenarioFlags scenario;
  ScreenshotOptions options;
  std::vector<std::string> measured, tables;
  std::string out = "ridgepoint.png";
};

void set_size(ScreenshotOptions& options, const std::string& text) {
  const char* const end = text.data() + text.size();
  const auto [cross, bad_width] = std::from_chars(text.data(), end, options.width);
  if (bad_width == std::errc() && cross != end && *cross == 'x') {
    const auto [rest, bad_height] = std::from_chars(cross + 1, end, options.height);
    const auto in_range = [](int side) { return side >= kSmallest && side <= kLargest; };
    if (bad_height == std::errc() && rest == end && in_range(options.width) && in_range(options.height))
      return;
  }
  throw UsageError(
      fmt::format("--size is WIDTHxHEIGHT in pixels, {} to {} each, not \"{}\"", kSmallest, kLargest, text));
}

// Finds a field by its path, its name, or its flag: "workload.seq_len", "seq_len", "seq-len".
std::string field_path(const std::string& flag, const std::string& words) {
  for (const sim::AnyField& field : sim::all_fields())
    if (!field.label.empty() && (words == field.path() || words == field.name || words == field.flag))
      return field.path();
  throw UsageError(
      fmt::format("{} is a field of a scenario, as seq_len or strategy.recompute, not \"{}\"", flag, words));
}

// The events of a run, from its beginning.
std::vector<sim::Event> events_of_run(const std::string& file) {
  std::vector<sim::Event> events = read_events(file);
  if (events.empty() || !std::holds_alternative<sim::BeginEvent>(events.front()))
    throw runtime::InputError(file + " does not begin with the event of a run's beginning, \"begin\"");
  return events;
}

ExitCode screenshot(const ScreenshotFlags& flags) {
  const InterruptSignals interrupt;
  EventOutput events({});
  ScreenshotOptions options = flags.options;
  const std::vector<std::string> panels = panel_names();
  if (!options.panel.empty() && std::find(panels.begin(), panels.end(), options.panel) == panels.end())
    throw UsageError(fmt::format("--panel is one of {}, not \"{}\"", fmt::join(panels, ", "), options.panel));
  options.tables.assign(flags.tables.begin(), flags.tables.end());
  for (const std::string& file : flags.measured) options.measured.push_back(events_of_run(file));
  const bool says_scenario = flags.scenario.model || flags.scenario.scenario;
  if (says_scenario)
    options.scenario = resolve_for_prediction(flags.scenario, events.sink(), interrupt.stop()).scenario;
  else
    options.scenario = options.measured.empty()
                           ? default_scenario()
                           : std::get<sim::BeginEvent>(options.measured.front().front()).source.scenario;
  write_screenshot(options, flags.out);
  fmt::print("{}\n", flags.out);
  return ExitCode::fine;
}

}  // namespace

void add_screenshot(CLI::App& program, Invocation& invocation) {
  const auto flags = std::make_shared<ScreenshotFlags>();
  CLI::App* command = program.add_subcommand(
      "screenshot",
      describe(
          "Draw the desktop, or one panel, into a picture, or write what it shows as data; no display is "
          "needed.",
          {"ridgepoint screenshot --out desktop.png --size 1920x1080 --theme light",
           "ridgepoint screenshot --panel memory --model llama-3.1-8b --seq-len 8k --out memory.png",
           "ridgepoint screenshot --panel pipeline --scenario scenario.json --out trace.json    for Perfetto",
           "ridgepoint screenshot --panel memory --model llama-3.1-8b --out memory.svg          or .csv, "
           ".tsv, .md",
           "ridgepoint screenshot --panel sweep --model llama-3.1-8b --sweep seq_len --sweep-by recompute "
           "--out sweep.svg",
           "ridgepoint screenshot --panel compare --measured out/train.measured.json --out compare.png"}));
  flags->scenario.add_to(*command);
  constexpr const char* kGroup = "Picture";
  command
      ->add_option("--panel", flags->options.panel,
                   fmt::format("{} (default: the whole desktop)", fmt::join(panel_names(), ", ")))
      ->type_name("NAME")
      ->group(kGroup);
  command
      ->add_option_function<std::string>(
          "--size", [flags](const std::string& text) { set_size(flags->options, text); },
          fmt::format("pixels (default {}x{})", flags->options.width, flags->options.height))
      ->type_name("WxH")
      ->group(kGroup);
  command->add_option("--scale", flags->options.scale, "of fonts and lines")
      ->capture_default_str()
      ->check(CLI::Range(0.5, 4.0))
      ->group(kGroup);
  command
      ->add_option_function<std::string>(
          "--theme",
          [flags](const std::string& text) {
            const auto theme = theme_called(text);
            if (!theme)
              throw UsageError(
                  fmt::format("--theme is one of {}, not \"{}\"", fmt::join(kThemeNames, ", "), text));
            flags->options.theme = *theme;
          },
          "default dark")
      ->type_name(fmt::format("{}", fmt::join(kThemeNames, "|")))
      ->group(kGroup);
  command
      ->add_option_function<std::string>(
          "--sweep", [flags](const std::string& text) { flags->options.sweep = field_path("--sweep", text); },
          "the field that the sweep panel changes: seq_len, data_parallel, ...")
      ->type_name("FIELD")
      ->group(kGroup);
  command
      ->add_option_function<std::string>(
          "--sweep-by",
          [flags](const std::string& text) { flags->options.sweep_by = field_path("--sweep-by", text); },
          "a curve for each value of this field: recompute, zero_stage, ...")
      ->type_name("FIELD")
      ->group(kGroup);
  command->add_option("--measured", flags->measured, "reports or event files of runs to show")
      ->type_name("FILE")
      ->group(kGroup);
  command->add_option("--table", flags->tables, "tables of measurements for the validation panel")
      ->type_name("FILE.csv")
      ->check(CLI::ExistingFile)
      ->group(kGroup);
  command
      ->add_option(
          "--out", flags->out,
          fmt::format("the picture, or what is shown as data: {}", fmt::join(picture_endings(), ", ")))
      ->capture_default_str()
      ->type_name("FILE")
      ->group(kGroup);
  command->callback([flags, &invocation] { invocation.run = [flags] { return screenshot(*flags); }; });
}

}  // namespace app::cli
