// ridgepoint measure: series of short runs here, each beside its prediction.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/cli/command.h"
#include "app/cli/event_output.h"
#include "app/cli/flags.h"
#include "app/cli/interrupt.h"
#include "app/cli/ranks.h"
#include "app/cli/scenario_flags.h"
#include "app/cli/text_table.h"
#include "runtime/gpu_calibration.h"
#include "runtime/measured_series.h"
#include "runtime/this_machine.h"
#include "sim/format.h"
#include "sim/quantile.h"
#include "sim/report/metrics.h"
#include "sim/report/step_parts.h"
#include "sim/scenario/preset.h"

namespace app::cli {

namespace {

struct MeasureFlags {
  std::string name;  // of a preset, or a file; empty: list them
  std::optional<std::string> device;
  double seconds = 1;
  std::string out;
  Format format = Format::text;
  bool stream = false;  // progress goes to stdout, and then the result in a line
};

struct MeasuredSeries {
  const sim::ScenarioSeries* series = nullptr;
  std::vector<runtime::SeriesRun> runs;  // one per point, in order; fewer if it was stopped
};

ExitCode list_series() {
  TextTable table{{{"series", TextTable::Align::left}, {"runs"}, {"what", TextTable::Align::left}}, {}};
  for (const std::string& name : sim::preset_names(sim::PresetKind::series)) {
    const sim::SeriesSet set = sim::load_series_preset(name);
    table.rows.push_back({name, fmt::format("{}", set.points()), set.title});
  }
  fmt::print("{}", table.text());
  return ExitCode::fine;
}

// Exponents of growth, over the runs of a series that could run.
struct Growth {
  std::optional<double> predicted_time, measured_time, predicted_memory, measured_memory;
};

Growth growth_of(const MeasuredSeries& measured) {
  std::vector<double> x, predicted, took, planned, held;
  for (std::size_t i = 0; i < measured.runs.size(); ++i) {
    const runtime::SeriesRun& run = measured.runs[i];
    if (!run.why_not.empty()) continue;
    x.push_back(measured.series->points[i].x);
    // For a generation this is the whole time, as its tokens grow both in number and in price.
    predicted.push_back(sim::step_time(run.predicted).value);
    took.push_back(sim::step_time(run.measured).value);
    planned.push_back(static_cast<double>(sim::working_memory(run.predicted).value));
    held.push_back(static_cast<double>(sim::working_memory(run.measured).value));
  }
  return {sim::power_of_growth(x, predicted), sim::power_of_growth(x, took), sim::power_of_growth(x, planned),
          sim::power_of_growth(x, held)};
}

// Says which runs are to blame where the exponents of time differ enough to show in a plot.
std::string why_apart(const MeasuredSeries& measured, const Growth& growth) {
  constexpr double kShows = 0.15;
  if (!growth.predicted_time || !growth.measured_time) return {};
  const double apart = std::abs(*growth.predicted_time - *growth.measured_time);
  if (apart <= kShows) return {};
  std::vector<std::string> each;
  for (std::size_t i = 0; i < measured.runs.size(); ++i) {
    const runtime::SeriesRun& run = measured.runs[i];
    if (run.why_not.empty())
      each.push_back(fmt::format("{:.2f} ({})", sim::step_time(run.measured) / sim::step_time(run.predicted),
                                 measured.series->points[i].at));
  }
  return fmt::format("  they are {:.2f} apart: whole runs took, of the predicted time, {}\n", apart,
                     fmt::join(each, ", "));
}

std::string power(std::optional<double> exponent) {
  return exponent ? fmt::format("{:.2f}", *exponent) : "";
}

// "12 / 15 %": predicted and measured.
std::string shares(const runtime::SeriesRun& run, sim::StepPart part) {
  return fmt::format("{:.1f} / {:.1f} %", 100 * sim::step_parts(run.predicted).share(part),
                     100 * sim::step_parts(run.measured).share(part));
}

std::string series_text(const MeasuredSeries& measured, bool markdown) {
  const sim::ScenarioSeries& series = *measured.series;
  const bool of_ranks = std::ranges::any_of(
      series.points, [](const sim::SeriesPoint& point) { return point.scenario.strategy.devices() > 1; });
  TextTable table{{{series.varied.empty() ? "run" : series.varied, TextTable::Align::left},
                   {"time of", TextTable::Align::left},
                   {"predicted"},
                   {"measured"},
                   {"pred/meas"},
                   {"memory predicted"},
                   {"measured"}},
                  {}};
  if (of_ranks) {
    table.columns.push_back({"bubble"});
    table.columns.push_back({"exposed communication"});
  }
  std::string reasons;
  for (std::size_t i = 0; i < measured.runs.size(); ++i) {
    const runtime::SeriesRun& run = measured.runs[i];
    const sim::SeriesPoint& point = series.points[i];
    const std::string at = point.at.empty() ? series.name : point.at;
    if (!run.why_not.empty()) {
      reasons += fmt::format("  {}: {}\n", at, run.why_not);
      continue;
    }
    const sim::Workload& workload = point.scenario.workload;
    const sim::Seconds predicted = runtime::judged_time(run.predicted),
                       took = runtime::judged_time(run.measured);
    const sim::Bytes planned = sim::planned_memory(run.predicted), held = sim::planned_memory(run.measured);
    table.rows.push_back({at,
                          workload.task == sim::Task::train ? "a step"
                          : workload.kv_cache               ? "a token"
                                                            : "the generation",
                          sim::format(predicted), sim::format(took), fmt::format("{:.2f}", predicted / took),
                          sim::format(planned), planned == held ? "equal" : sim::format(held)});
    if (!of_ranks) continue;
    table.rows.back().push_back(shares(run, sim::StepPart::bubble));
    table.rows.back().push_back(shares(run, sim::StepPart::network));
  }
  std::string text = markdown ? fmt::format("### {}\n\n{}", series.name, table.markdown())
                              : fmt::format("{}\n\n{}", series.name, table.text());
  text += reasons;
  if (!series.of_numbers || of_ranks) return text + "\n";  // degrees and stages are no sizes
  const Growth growth = growth_of(measured);
  if (growth.measured_time)
    text +=
        fmt::format("\n  grows as a power of {}: time predicted {}, measured {}; working memory {} and {}\n",
                    series.varied, power(growth.predicted_time), power(growth.measured_time),
                    power(growth.predicted_memory), power(growth.measured_memory)) +
        why_apart(measured, growth);
  if (series.claim) {
    const sim::GrowthClaim& claim = *series.claim;
    text +=
        fmt::format("  claim: {}{}{}{}{} ({})\n", claim.says, claim.time ? ", time " : "", power(claim.time),
                    claim.memory ? ", memory " : "", power(claim.memory), claim.source);
    if (!claim.why_apart.empty()) text += "  " + claim.why_apart + "\n";
  }
  return text + "\n";
}

std::string errors_line(const char* what, const runtime::ErrorsOf& errors) {
  if (errors.errors.empty()) return {};
  return fmt::format("  {:<16} {:>5}   median error {:>6}   nine in ten below {:>6}   in the 90 % band {}\n",
                     what, errors.errors.size(), sim::format_percent(errors.median()),
                     sim::format_percent(errors.p90()),
                     sim::format_percent(static_cast<double>(errors.inside_band) /
                                         static_cast<double>(errors.errors.size())));
}

// Differences of shares of the step, in percentage points.
std::string shares_line(const char* what, std::vector<double> apart) {
  if (apart.empty()) return {};
  for (double& points : apart) points = 100 * std::abs(points);
  return fmt::format(
      "  {:<24} predicted and measured share apart by {:.1f} points in the median, {:.1f} at most\n", what,
      sim::quantile(apart, 0.5), sim::quantile(apart, 1));
}

std::string repeats_line(const std::vector<double>& repeats) {
  if (repeats.empty()) return {};
  return fmt::format(
      "  {:<16} {:>5}   apart by {} in the median, the machine's pace taken out: noise that no prediction "
      "knows\n",
      "the same again", repeats.size(), sim::format_percent(sim::quantile(repeats, 0.5)));
}

std::string summary_text(const runtime::SeriesErrors& errors) {
  std::string text =
      errors_line("training steps", errors.steps) + errors_line("tokens", errors.tokens) +
      errors_line("operations", errors.operations) + repeats_line(errors.repeats) +
      shares_line("pipeline bubble", errors.bubbles) + shares_line("exposed communication", errors.exposed) +
      fmt::format("  planned memory equal to the byte in {} of {} runs\n", errors.memory_equal, errors.ran);
  if (errors.refused > 0) text += fmt::format("  {} did not run, for the reasons above\n", errors.refused);
  return text;
}

// A table of measurements that also holds their predictions (sim/validate/own_rows): a row for each run, then
// one for each of its operations.
constexpr std::string_view kCsvHeader =
    "what,series,at,operation,time_s,predicted_time_s,predicted_time_s_low,predicted_time_s_high,"
    "planned_memory_bytes,predicted_planned_memory_bytes,slower_arithmetic,slower_memory,why_not\n";

std::string csv(const sim::ScenarioSeries& series, const sim::SeriesPoint& point,
                const runtime::SeriesRun& run) {
  const auto quoted = [](const std::string& field) {
    std::string out = "\"";
    for (const char c : field) out += c == '"' ? std::string("\"\"") : std::string(1, c);
    return out + '"';
  };
  const sim::Workload& workload = point.scenario.workload;
  const char* const judged = workload.task == sim::Task::train ? "training steps"
                             : workload.kv_cache               ? "tokens"
                                                               : "generations";
  const std::string which = quoted(series.name) + "," + quoted(point.at) + ",";
  if (!run.why_not.empty()) return fmt::format("{},{},,,,,,,,,{}\n", judged, which, quoted(run.why_not));
  std::string text;
  for (const runtime::JudgedTime& time : runtime::judged_times(run)) {
    const bool operation = time.what == runtime::JudgedThing::operation;
    text += fmt::format("{},{}{},{:.6g},{:.6g},{:.6g},{:.6g},", operation ? "operations" : judged, which,
                        quoted(time.operation), time.measured.value, time.predicted.value, time.low.value,
                        time.high.value);
    if (operation)
      text += ",,,,\n";
    else
      text += fmt::format("{},{},{:.3f},{:.3f},\n", sim::planned_memory(run.measured).value,
                          sim::planned_memory(run.predicted).value, run.predicted.source.slowdown.arithmetic,
                          run.predicted.source.slowdown.memory);
  }
  return text;
}

nlohmann::ordered_json json_of(const runtime::ErrorsOf& errors) {
  return {{"count", errors.errors.size()},
          {"median_error", errors.median()},
          {"p90_error", errors.p90()},
          {"in_band", errors.inside_band}};
}

std::string json(const sim::SeriesSet& set, const std::vector<MeasuredSeries>& all,
                 const runtime::SeriesErrors& errors, int indent) {
  nlohmann::ordered_json out{
      {"schema_version", 1}, {"title", set.title}, {"series", nlohmann::ordered_json::array()}};
  for (const MeasuredSeries& measured : all) {
    nlohmann::ordered_json series{{"name", measured.series->name}, {"varied", measured.series->varied}};
    for (std::size_t i = 0; i < measured.runs.size(); ++i) {
      const runtime::SeriesRun& run = measured.runs[i];
      nlohmann::ordered_json row{{"at", measured.series->points[i].at}};
      if (run.why_not.empty()) {
        row["predicted_seconds"] = runtime::judged_time(run.predicted).value;
        row["measured_seconds"] = runtime::judged_time(run.measured).value;
        row["predicted_memory_bytes"] = sim::planned_memory(run.predicted).value;
        row["measured_memory_bytes"] = sim::planned_memory(run.measured).value;
      } else {
        row["why_not"] = run.why_not;
      }
      series["runs"].push_back(std::move(row));
    }
    if (measured.series->of_numbers) {
      const Growth growth = growth_of(measured);
      const auto put = [&](const char* key, std::optional<double> exponent) {
        if (exponent) series["growth"][key] = *exponent;
      };
      put("time_predicted", growth.predicted_time);
      put("time_measured", growth.measured_time);
      put("memory_predicted", growth.predicted_memory);
      put("memory_measured", growth.measured_memory);
      if (const auto& claim = measured.series->claim) {
        put("time_claimed", claim->time);
        put("memory_claimed", claim->memory);
      }
    }
    out["series"].push_back(std::move(series));
  }
  out["training_steps"] = json_of(errors.steps);
  out["tokens"] = json_of(errors.tokens);
  out["operations"] = json_of(errors.operations);
  if (!errors.repeats.empty())
    out["repeats"] = {{"count", errors.repeats.size()}, {"median_apart", sim::quantile(errors.repeats, 0.5)}};
  out["memory_equal"] = errors.memory_equal;
  out["ran"] = errors.ran;
  return out.dump(indent) + "\n";
}

// A preset's name comes first, as a file or folder of that name may be in the working directory.
sim::SeriesSet read_series(const std::string& name) {
  const bool is_path = name.find('/') != std::string::npos || name.ends_with(".json");
  if (!is_path && sim::find_preset(sim::PresetKind::series, name)) return sim::load_series_preset(name);
  if (is_path || std::filesystem::is_regular_file(name)) return sim::series_from_json(read_file(name), name);
  try {
    return sim::load_series_preset(name);
  } catch (const sim::PresetError& error) {
    throw UsageError(fmt::format(
        "SERIES: {}; a file of series is one whose path has a slash or ends in .json", error.what()));
  }
}

// The device of a series: all cores, a GPU, or a rank's share of the cores.
struct Here {
  sim::Calibration calibration;
  runtime::DeviceChoice device{};
  runtime::Communicator* among = nullptr;
  bool tells = true;  // the first rank, or the only one
};

ExitCode measure_points(const MeasureFlags& flags, const sim::SeriesSet& set, const Here& here,
                        EventOutput& events, const InterruptSignals& interrupt) {
  const std::size_t runs = set.points();
  if (here.tells && !flags.out.empty()) std::filesystem::create_directories(flags.out);
  const auto tell = [&](const std::string& text) {
    if (!here.tells) return;
    fmt::print("{}", text);
    std::fflush(stdout);  // finished results are useful before the rest is done
  };

  std::vector<MeasuredSeries> all;
  std::vector<runtime::SeriesRun> every;
  const auto begin = std::chrono::steady_clock::now();
  const Format format = flags.stream ? Format::json : flags.format;
  if (format == Format::csv) tell(std::string(kCsvHeader));
  // Ranks hear of a signal at different moments, yet must end after the same run.
  bool stopped = false;
  const auto asked_to_stop = [&] {
    stopped = stopped || runtime::Communicator::any_of(here.among, interrupt.arrived());
    return stopped;
  };
  for (const sim::ScenarioSeries& series : set.series) {
    if (asked_to_stop()) break;
    all.push_back({&series, {}});
    for (const sim::SeriesPoint& point : series.points) {
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
      const auto done = static_cast<double>(every.size());
      if (here.tells)
        events.write(
            sim::ProgressEvent{series.name + (point.at.empty() ? "" : ", " + point.at),
                               static_cast<std::int64_t>(every.size()),
                               static_cast<std::int64_t>(runs),
                               {done > 0 ? spent.count() / done * (static_cast<double>(runs) - done) : 0}});
      runtime::ShortRun like;
      like.device = here.device;
      like.among = here.among;
      runtime::SeriesRun run = runtime::run_of_series(point.scenario, here.calibration, {flags.seconds}, {},
                                                      interrupt.stop(), like);
      if (asked_to_stop()) break;  // a half measured run is not shown
      if (here.tells && !flags.out.empty() && run.why_not.empty()) {
        const std::string path = fmt::format("{}/{:03}", flags.out, every.size() + 1);
        write_file(path + ".predicted.json", sim::to_json(run.predicted) + '\n');
        write_file(path + ".measured.json", sim::to_json(run.measured) + '\n');
      }
      if (format == Format::csv) tell(csv(series, point, run));
      every.push_back(run);
      all.back().runs.push_back(std::move(run));
    }
    if (format == Format::text || format == Format::markdown)
      tell(series_text(all.back(), format == Format::markdown));
  }
  const runtime::SeriesErrors errors = runtime::errors_of(every);
  if (format == Format::json)
    tell(json(set, all, errors, flags.stream ? -1 : 2));
  else if (format != Format::csv)
    tell(summary_text(errors));
  return stopped ? ExitCode::interrupted : ExitCode::fine;
}

// Runs as one of the ranks. This process starts them where nothing else has.
ExitCode measure_among(const MeasureFlags& flags, const sim::SeriesSet& set, int ranks,
                       const InterruptSignals& interrupt) {
  const RankOfJob job = rank_of_job();
  if (job.size == 1) return start_ranks(ranks, interrupt);
  EventOutput events({.stream = flags.stream, .record = {}});
  runtime::DeviceChoice device;
  return among_ranks(job, device, [&](runtime::Communicator& communicator) {
    const Here here{
        runtime::machine_of_ranks(communicator, device.threads, false, events.sink(), interrupt.stop()),
        device, &communicator, job.is_first()};
    if (communicator.any(interrupt.arrived())) return ExitCode::interrupted;
    return measure_points(flags, set, here, events, interrupt);
  });
}

// The calibration that predictions of these runs use. It is measured first where there is none yet.
sim::Calibration calibration_here(const runtime::DeviceChoice& device, const runtime::EventSink& sink,
                                  const std::stop_token& stop) {
  if (device.kind == runtime::DeviceChoice::Kind::cpu) return runtime::this_machine(sink, stop);
  const sim::Hardware gpu = hardware_of_gpu(device.ordinal);
  if (auto known = calibration_of_runs(gpu)) return *std::move(known);
  return runtime::calibrate_this_gpu(device, gpu, sink, stop);
}

ExitCode measure(const MeasureFlags& flags) {
  if (flags.name.empty()) return list_series();
  const sim::SeriesSet set = read_series(flags.name);
  if (!(flags.seconds > 0)) throw UsageError(fmt::format("--seconds is above 0, not {}", flags.seconds));
  const InterruptSignals interrupt;
  int ranks = 1;
  for (const sim::ScenarioSeries& series : set.series)
    for (const sim::SeriesPoint& point : series.points)
      ranks = std::max(ranks, point.scenario.strategy.devices());
  if (ranks > kMostRanks)
    throw UsageError(
        fmt::format("{}: its runs are of up to {} ranks, not {}", flags.name, kMostRanks, ranks));
  const runtime::DeviceChoice device = device_of(flags.device);
  if (ranks > 1 && device.kind == runtime::DeviceChoice::Kind::cuda)
    throw UsageError(fmt::format(
        "--device cuda: runs of {} are of {} ranks, which are measured on the CPU alone", flags.name, ranks));
  if (ranks > 1) return measure_among(flags, set, ranks, interrupt);
  EventOutput events({.stream = flags.stream, .record = {}});
  const Here here{.calibration = calibration_here(device, events.sink(), interrupt.stop()), .device = device};
  if (interrupt.arrived()) return ExitCode::interrupted;
  return measure_points(flags, set, here, events, interrupt);
}

}  // namespace

void add_measure(CLI::App& program, Invocation& invocation) {
  const auto flags = std::make_shared<MeasureFlags>();
  CLI::App* command = program.add_subcommand(
      "measure", describe("Run series of short trainings and generations here, each beside its prediction.",
                          {"ridgepoint measure", "ridgepoint measure complexity",
                           "ridgepoint measure configurations --format csv", "ridgepoint measure ranks",
                           "ridgepoint measure gpu_configurations --device cuda",
                           "ridgepoint measure attention --seconds 3 --out attention_runs"}));
  command->add_option("SERIES", flags->name, "a preset's name or a file; without one they are listed");
  command->add_option("--device", flags->device, "cpu (default), or cuda: the first GPU, cuda:1 the second")
      ->type_name("cpu|cuda|cuda:N");
  command->add_option("--seconds", flags->seconds, "that a training is repeated for, at least five steps")
      ->capture_default_str();
  command->add_option("--out", flags->out, "folder for the reports of all runs")->type_name("DIR");
  command->add_flag("--stream", flags->stream,
                    "progress to stdout, an event a line (NDJSON), and then the result as a line of JSON");
  add_format(*command, flags->format, {Format::text, Format::json, Format::csv, Format::markdown});
  command->callback([flags, &invocation] {
    invocation.stream = flags->stream;
    invocation.run = [flags] { return measure(*flags); };
  });
}

}  // namespace app::cli
