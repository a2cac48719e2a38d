// ridgepoint calibrate: what this machine's kernels reach, measured.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "app/cli/command.h"
#include "app/cli/event_output.h"
#include "app/cli/flags.h"
#include "app/cli/interrupt.h"
#include "app/cli/ranks.h"
#include "app/cli/scenario_flags.h"
#include "app/cli/text_table.h"
#include "runtime/gpu_calibration.h"
#include "runtime/measured.h"
#include "runtime/this_machine.h"
#include "sim/format.h"
#include "sim/scenario/preset.h"
#include "sim/validate/refit_rows.h"

namespace app::cli {

namespace {

struct CalibrateFlags {
  std::optional<std::string> device;
  std::optional<std::string> refit, hardware;
  int threads = 0;
  std::optional<int> ranks;
  EventFlags events;
  Format format = Format::text;
};

std::string calibration_text(const sim::Calibration& calibration) {
  std::string out =
      fmt::format("{}, measured {} with {}\n\n", calibration.device, calibration.date, calibration.software);
  for (const auto& [dtype, peak] : calibration.hardware.peak)
    out += fmt::format("  {} arithmetic     {}\n", sim::name(dtype), sim::format(peak));
  out += fmt::format("  memory bandwidth    {}\n", sim::format(calibration.hardware.memory_bandwidth));
  out += fmt::format("  memory              {}\n", sim::format(calibration.hardware.memory));
  out += fmt::format("  launch              {}\n\n", sim::format(calibration.launch));
  if (calibration.cores_used_by_others >= 0.1)
    out +=
        fmt::format("  Other programs kept {:.1f} cores busy meanwhile: a quiet machine may do better.\n\n",
                    calibration.cores_used_by_others);

  if (const auto& load = calibration.load) {
    out += fmt::format("  largest product     {} alone, {} after {} without a pause ({} of it)\n",
                       sim::format(load->burst), sim::format(load->sustained), sim::format(load->lasted),
                       sim::format_percent(load->sustained.value / load->burst.value));
    if (load->sm_clock_mhz > 0)
      out += fmt::format("  under that load     {:.0f} MHz, {:.0f} W, {:.0f} °C{}\n", load->sm_clock_mhz,
                         load->power_w, load->temperature_c,
                         load->throttle.empty() ? "" : ", held back by: " + load->throttle);
    out += '\n';
  }

  struct Kind {
    std::size_t samples = 0;
    sim::Seconds shortest{1e30}, longest;
  };
  std::map<std::string_view, Kind> kinds;
  for (const sim::KernelSample& sample : calibration.samples) {
    Kind& kind = kinds[sim::name(sample.kind)];
    ++kind.samples;
    kind.shortest = std::min(kind.shortest, sample.median);
    kind.longest = std::max(kind.longest, sample.median);
  }
  for (const sim::CollectiveSample& sample : calibration.collectives) {
    Kind& kind = kinds[sim::name(sample.kind)];
    ++kind.samples;
    kind.shortest = std::min(kind.shortest, sample.median);
    kind.longest = std::max(kind.longest, sample.median);
  }
  TextTable table{{{"kernel", TextTable::Align::left}, {"samples"}, {"shortest"}, {"longest"}}, {}};
  for (const auto& [name, kind] : kinds)
    table.rows.push_back({std::string(name), fmt::format("{}", kind.samples), sim::format(kind.shortest),
                          sim::format(kind.longest)});
  return out + table.text() +
         fmt::format(
             "\n  Left out and predicted from the others, half of the samples are off by less than {}, nine "
             "in "
             "ten by less than {}.\n",
             sim::format_percent(calibration.residual.median), sim::format_percent(calibration.residual.p90));
}

void tell(const CalibrateFlags& flags, const sim::Calibration& calibration) {
  if (flags.format == Format::json)
    fmt::print("{}\n", sim::to_json(calibration));
  else if (!flags.events.stream)
    fmt::print("{}", calibration_text(calibration));
}

// Runs as one of the ranks. This process starts them where nothing else has.
ExitCode calibrate_ranks(const CalibrateFlags& flags) {
  if (*flags.ranks < 2 || *flags.ranks > kMostRanks)
    throw UsageError(fmt::format("--ranks is 2 to {}, not {}", kMostRanks, *flags.ranks));
  const InterruptSignals interrupt;
  const RankOfJob job = rank_of_job();
  if (job.size == 1) return start_ranks(*flags.ranks, interrupt);
  if (job.size != *flags.ranks)
    throw UsageError(fmt::format("--ranks {}: {} ranks were started", *flags.ranks, job.size));
  EventOutput events(flags.events);
  runtime::DeviceChoice device{.threads = flags.threads};
  return among_ranks(job, device, [&](runtime::Communicator& communicator) {
    const sim::Calibration calibration =
        runtime::machine_of_ranks(communicator, device.threads, true, events.sink(), interrupt.stop());
    if (interrupt.arrived()) return ExitCode::interrupted;
    if (job.is_first()) tell(flags, calibration);
    return ExitCode::fine;
  });
}

std::string refit_text(const sim::Refit& refit) {
  using Align = TextTable::Align;
  TextTable table{
      {{"table", Align::left}, {"software", Align::left}, {"rows"}, {"factor"}, {"off by"}, {"now"}}, {}};
  for (const sim::TableShift& shift : refit.shifts)
    table.rows.push_back({shift.what, shift.software, fmt::format("{}", shift.rows),
                          fmt::format("{:.3f}", shift.factor), sim::format_percent(shift.median_before),
                          sim::format_percent(shift.median)});
  return table.text() + "\n  \"now\": each row predicted by the factor of all others, in the median.\n";
}

// Refits a preset whose GPU was measured by others: its tables are scaled to rows that the user measured.
ExitCode calibrate_preset(const CalibrateFlags& flags) {
  if (!flags.hardware) throw UsageError("--refit needs --hardware: the preset that the rows are of");
  const InterruptSignals interrupt;
  const std::string& file = *flags.refit;
  const sim::Hardware hardware = sim::load_hardware_preset(*flags.hardware);
  const sim::Refit refit =
      sim::refit(sim::csv_from_text(read_file(file), file), std::filesystem::path(file).filename().string(),
                 hardware.name, runtime::utc_now(), [&](std::size_t) { return !interrupt.arrived(); });
  if (interrupt.arrived()) return ExitCode::interrupted;
  const std::filesystem::path kept = runtime::keep_refit(refit);
  fmt::print("{}", flags.format == Format::json ? sim::to_json(refit) : refit_text(refit));
  EventOutput(flags.events)
      .progress()
      .note("kept in " + kept.string() + "; without that file it is as it ships");
  return ExitCode::fine;
}

ExitCode calibrate(const CalibrateFlags& flags) {
  if (flags.refit) return calibrate_preset(flags);
  if (flags.hardware) throw UsageError("--hardware goes with --refit; --device says what is measured");
  if (flags.ranks) return calibrate_ranks(flags);
  const InterruptSignals interrupt;
  EventOutput events(flags.events);
  const runtime::DeviceChoice device = device_of(flags.device);
  const bool on_gpu = device.kind == runtime::DeviceChoice::Kind::cuda;
  sim::Calibration calibration;
  std::filesystem::path file;
  if (on_gpu) {
    const sim::Hardware hardware = hardware_of_gpu(device.ordinal);
    file = runtime::gpu_calibration_file(hardware.name);
    calibration = runtime::calibrate_this_gpu(device, hardware, events.sink(), interrupt.stop());
  } else {
    calibration = runtime::calibrate_this_machine(events.sink(), interrupt.stop(), flags.threads);
    file = runtime::this_machine_file();  // for the same number of threads
  }
  if (interrupt.arrived()) return ExitCode::interrupted;
  tell(flags, calibration);
  events.progress().note("kept in " + file.string());
  return ExitCode::fine;
}

}  // namespace

void add_calibrate(CLI::App& program, Invocation& invocation) {
  const auto flags = std::make_shared<CalibrateFlags>();
  CLI::App* command = program.add_subcommand(
      "calibrate", describe("Measure what this machine's kernels reach; predictions for it then use that.",
                            {"ridgepoint calibrate", "ridgepoint calibrate --threads 1 --format json",
                             "ridgepoint calibrate --ranks 2", "ridgepoint calibrate --device cuda",
                             "ridgepoint calibrate --hardware h100-sxm --refit measured.csv"}));
  command->add_option("--device", flags->device, "cpu (default), or cuda: the first GPU, cuda:1 the second")
      ->type_name("cpu|cuda|cuda:N");
  command->add_option("--threads", flags->threads, "0: all cores")->capture_default_str();
  command->add_option(
      "--ranks", flags->ranks,
      "as it is for each of so many ranks on their shares of the cores, and their collectives");
  command
      ->add_option("--refit", flags->refit,
                   "set a preset's tables to measurements of your own: kernels, products or collectives")
      ->type_name("TABLE.csv");
  command->add_option("--hardware", flags->hardware, "the preset that --refit is of")->type_name("NAME");
  flags->events.add_to(*command);
  add_format(*command, flags->format, {Format::text, Format::json});
  command->callback([flags, &invocation] {
    invocation.stream = flags->events.stream;
    invocation.run = [flags] { return calibrate(*flags); };
  });
}

}  // namespace app::cli
