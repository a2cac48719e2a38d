// ridgepoint bench: kernels and decoding timed alone, each beside its prediction.
#include "runtime/bench.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/cli/command.h"
#include "app/cli/event_output.h"
#include "app/cli/flags.h"
#include "app/cli/interrupt.h"
#include "app/cli/ranks.h"
#include "app/cli/scenario_flags.h"
#include "app/cli/text_table.h"
#include "runtime/collectives_bench.h"
#include "runtime/this_machine.h"
#include "sim/format.h"
#include "sim/scenario/preset.h"

namespace app::cli {

namespace {

using Json = nlohmann::ordered_json;

struct BenchFlags {
  std::vector<std::string> kinds;
  std::optional<std::string> device, dtype, model, weights;
  std::vector<std::string> gemms, attentions, norms, copies;
  std::optional<std::int64_t> launches, batch, prompt, tokens;
  std::optional<double> seconds;
  std::optional<std::int64_t> ranks, largest_mib;
  int threads = 0;
  bool deterministic = false;
  EventFlags events;
  Format format = Format::text;
};

// "4096x6144x4096" as so many numbers. Throws UsageError naming the flag.
std::vector<std::int64_t> sizes_of(const std::string& text, const std::string& flag, std::size_t count,
                                   const char* form) {
  std::vector<std::int64_t> sizes;
  std::size_t at = 0;
  while (at <= text.size()) {
    const std::size_t end = std::min(text.find('x', at), text.size());
    std::int64_t value = 0;
    const auto [rest, error] = std::from_chars(text.data() + at, text.data() + end, value);
    if (error != std::errc() || rest != text.data() + end || value <= 0) break;
    sizes.push_back(value);
    at = end + 1;
  }
  if (at <= text.size() || sizes.size() != count)
    throw UsageError(fmt::format("{} is {}, each at least 1, not \"{}\"", flag, form, text));
  return sizes;
}

runtime::BenchSettings settings_of(const BenchFlags& flags) {
  const runtime::DeviceChoice device = device_of(flags.device);
  runtime::BenchSettings s = runtime::default_bench_settings(device.kind);
  s.device = device;
  s.device.threads = flags.threads;
  s.device.deterministic = flags.deterministic;
  for (const std::string& word : flags.kinds) {
    const auto kind = runtime::bench_kind_from_name(word);
    if (!kind) {
      std::string all;
      for (const runtime::BenchKind known : runtime::all_bench_kinds())
        all.append(all.empty() ? "" : ", ").append(runtime::name(known));
      throw UsageError(fmt::format("bench measures {}, not \"{}\"", all, word));
    }
    s.kinds.push_back(*kind);
  }
  if (flags.dtype) {
    const auto dtype = sim::from_name<sim::DType>(*flags.dtype);
    if (!dtype)
      throw UsageError(fmt::format("--dtype is fp32, tf32, bf16, fp16 or fp8, not \"{}\"", *flags.dtype));
    s.dtype = *dtype;
  }
  const auto each = [](const std::vector<std::string>& texts, auto& sizes, const auto& add) {
    if (!texts.empty()) sizes.clear();
    for (const std::string& text : texts) add(text);
  };
  each(flags.gemms, s.gemms, [&](const std::string& text) {
    const auto n = sizes_of(text, "--gemm", 3, "MxNxK");
    s.gemms.push_back({n[0], n[1], n[2]});
  });
  each(flags.attentions, s.attentions, [&](const std::string& text) {
    const auto n = sizes_of(text, "--attention", 5, "batch x tokens x heads x key-value heads x head size");
    if (n[2] % n[3] != 0)
      throw UsageError(
          fmt::format("--attention: {} heads are no multiple of {} key-value heads", n[2], n[3]));
    s.attentions.push_back({n[0], n[1], n[2], n[3], n[4]});
  });
  each(flags.norms, s.norms, [&](const std::string& text) {
    const auto n = sizes_of(text, "--norm", 2, "rows x columns");
    s.norms.push_back({n[0], n[1]});
  });
  each(flags.copies, s.copies,
       [&](const std::string& text) { s.copies.push_back({sizes_of(text, "--copy", 1, "MiB")[0] << 20}); });
  s.launches = flags.launches.value_or(s.launches);
  s.seconds = flags.seconds.value_or(s.seconds);
  s.decode_model = flags.model.value_or(s.decode_model);
  if (flags.weights) {
    s.decode_weights = sim::from_name<sim::DType>(*flags.weights);
    if (!s.decode_weights)
      throw UsageError(fmt::format("--weights-dtype is int8, fp8 or int4, not \"{}\"", *flags.weights));
  }
  s.decode_batch = flags.batch.value_or(s.decode_batch);
  s.decode_prompt = flags.prompt.value_or(s.decode_prompt);
  s.decode_tokens = flags.tokens.value_or(s.decode_tokens);
  const auto at_least = [](std::int64_t least, std::int64_t value, const char* flag) {
    if (value < least) throw UsageError(fmt::format("{} is at least {}, not {}", flag, least, value));
  };
  at_least(1, s.launches, "--launches");
  at_least(1, s.decode_batch, "--batch-size");
  at_least(1, s.decode_prompt, "--prompt-length");
  at_least(2, s.decode_tokens, "--max-new-tokens");
  return s;
}

std::string rate_text(const runtime::BenchRow& row) {
  if (row.rate <= 0) return "";
  return row.by_arithmetic ? sim::format(sim::FlopsPerSecond{row.rate})
                           : sim::format(sim::BytesPerSecond{row.rate});
}

TextTable table_of(const std::vector<runtime::BenchRow>& rows) {
  using Align = TextTable::Align;
  TextTable table{{{"what", Align::left},
                   {"size", Align::left},
                   {"type", Align::left},
                   {"median"},
                   {"least"},
                   {"reached"},
                   {"of peak"},
                   {"predicted"},
                   {"pred. / meas."},
                   {"known from", Align::left}},
                  {}};
  for (const runtime::BenchRow& row : rows)
    table.rows.push_back({std::string(runtime::name(row.kind)), row.size, std::string(sim::name(row.dtype)),
                          sim::format(row.median), sim::format(row.least), rate_text(row),
                          row.share_of_peak > 0 ? sim::format_percent(row.share_of_peak) : "",
                          sim::format(row.predicted), fmt::format("{:.2f}", row.predicted / row.median),
                          std::string(sim::name(row.provenance))});
  return table;
}

Json json_of(const runtime::BenchRow& row) {
  return {{"what", runtime::name(row.kind)},
          {"size", row.size},
          {"dtype", sim::name(row.dtype)},
          {"median_seconds", row.median.value},
          {"least_seconds", row.least.value},
          {"flops", row.flops.value},
          {"memory_bytes", row.bytes.value},
          {"bound_by", row.by_arithmetic ? "compute" : "memory"},
          {"rate_per_s", row.rate},
          {"share_of_peak", row.share_of_peak},
          {"predicted_seconds", row.predicted.value},
          {"provenance", sim::name(row.provenance)}};
}

std::string csv_of(const std::vector<runtime::BenchRow>& rows) {
  std::string text;
  for (const runtime::BenchRow& row : rows) {
    const Json json = json_of(row);
    std::string header, line;
    for (const auto& [key, value] : json.items()) {
      if (!header.empty()) header += ',', line += ',';
      header += key;
      line += value.dump();
    }
    text += (text.empty() ? header + "\n" : "") + line + "\n";
  }
  return text;
}

void print(const std::vector<runtime::BenchRow>& rows, const sim::Hardware& hardware, sim::DType dtype,
           Format format) {
  switch (format) {
    case Format::json: {
      Json json = {{"schema_version", 1}, {"hardware", hardware.display_name}, {"rows", Json::array()}};
      for (const runtime::BenchRow& row : rows) json["rows"].push_back(json_of(row));
      fmt::print("{}\n", json.dump(2));
      break;
    }
    case Format::csv:
      fmt::print("{}", csv_of(rows));
      break;
    case Format::markdown:
      fmt::print("{}", table_of(rows).markdown());
      break;
    case Format::text:
      fmt::print("{}: at most {} in {} and {} from memory, {}\n\n{}", hardware.display_name,
                 hardware.has_peak_for(dtype) ? sim::format(hardware.peak_for(dtype)) : "?", sim::name(dtype),
                 sim::format(hardware.memory_bandwidth),
                 hardware.name == "this-machine" ? "as measured" : "by its datasheet", table_of(rows).text());
  }
}

std::string bandwidth(double bytes_per_second) {
  return fmt::format("{:.2f}", bytes_per_second / 1e9);
}

void print(const std::vector<runtime::CollectiveRow>& rows, int ranks, Format format) {
  using Align = TextTable::Align;
  TextTable table{{{"collective", Align::left}, {"size"}, {"time"}, {"algorithm GB/s"}, {"bus GB/s"}}, {}};
  Json json = {{"schema_version", 1}, {"ranks", ranks}, {"rows", Json::array()}};
  std::string csv = "collective,bytes,seconds,algorithm_gb_per_s,bus_gb_per_s\n";
  for (const runtime::CollectiveRow& row : rows) {
    table.rows.push_back({std::string(sim::name(row.kind)), sim::format(sim::Bytes{row.bytes}),
                          sim::format(sim::Seconds{row.seconds}), bandwidth(row.algorithm_bandwidth),
                          bandwidth(row.bus_bandwidth)});
    json["rows"].push_back({{"collective", sim::name(row.kind)},
                            {"bytes", row.bytes},
                            {"seconds", row.seconds},
                            {"algorithm_gb_per_s", row.algorithm_bandwidth / 1e9},
                            {"bus_gb_per_s", row.bus_bandwidth / 1e9}});
    csv += fmt::format("{},{},{},{},{}\n", sim::name(row.kind), row.bytes, row.seconds,
                       row.algorithm_bandwidth / 1e9, row.bus_bandwidth / 1e9);
  }
  switch (format) {
    case Format::json:
      return fmt::print("{}\n", json.dump(2));
    case Format::csv:
      return fmt::print("{}", csv);
    case Format::markdown:
      return fmt::print("{}", table.markdown());
    case Format::text:
      return fmt::print("{} ranks of this machine\n\n{}", ranks, table.text());
  }
}

// Times collectives over that many ranks. This process starts them where nothing else has.
ExitCode bench_collectives(const BenchFlags& flags) {
  const RankOfJob job = rank_of_job();
  const auto ranks = static_cast<int>(*flags.ranks);
  if (*flags.ranks < 2 || *flags.ranks > kMostRanks)
    throw UsageError(fmt::format("--collectives is over 2 to {} ranks, not {}", kMostRanks, *flags.ranks));
  const InterruptSignals interrupt;
  if (job.size == 1) return start_ranks(ranks, interrupt);
  if (job.size != ranks)
    throw UsageError(fmt::format("--collectives {}: {} ranks were started", ranks, job.size));
  runtime::DeviceChoice device;
  return among_ranks(job, device, [&](runtime::Communicator& communicator) {
    const std::vector<runtime::CollectiveRow> rows = runtime::time_collectives(
        communicator, flags.largest_mib.value_or(64) << 20, flags.seconds.value_or(0.3));
    if (job.is_first()) print(rows, ranks, flags.format);
    return ExitCode::fine;
  });
}

ExitCode bench(const BenchFlags& flags) {
  if (flags.ranks) return bench_collectives(flags);
  const runtime::BenchSettings settings = settings_of(flags);
  const InterruptSignals interrupt;
  EventOutput events(flags.events);
  sim::Hardware hardware;
  std::optional<sim::Calibration> calibration;
  if (settings.device.kind == runtime::DeviceChoice::Kind::cuda) {
    hardware = hardware_of_gpu(settings.device.ordinal);
    calibration = calibration_of_runs(hardware);
  } else {
    calibration = runtime::this_machine(events.sink(), interrupt.stop());
    hardware = calibration->hardware;
    if (!interrupt.arrived()) calibration->slowdown = note_slowdown(*calibration, events.progress());
  }
  if (interrupt.arrived()) return ExitCode::interrupted;
  const std::vector<runtime::BenchRow> rows =
      runtime::bench(settings, hardware, pointer_to(calibration), events.sink(), interrupt.stop());
  if (!flags.events.stream) print(rows, hardware, settings.dtype, flags.format);
  return interrupt.arrived() ? ExitCode::interrupted : ExitCode::fine;
}

}  // namespace

void add_bench(CLI::App& program, Invocation& invocation) {
  const auto flags = std::make_shared<BenchFlags>();
  CLI::App* command = program.add_subcommand(
      "bench", describe("Time kernels and decoding on this machine, each beside its prediction.",
                        {"ridgepoint bench", "ridgepoint bench --collectives 4",
                         "ridgepoint bench gemm attention --format md",
                         "ridgepoint bench gemm --gemm 1024x4096x4096 --gemm 1x4096x4096",
                         "ridgepoint bench --device cuda --dtype fp8 gemm",
                         "ridgepoint bench --device cuda launch graph-launch",
                         "ridgepoint bench --device cuda decode --model llama-3.1-8b --weights-dtype int4"}));
  command->add_option(
      "WHAT", flags->kinds,
      "gemm, attention, norm, copy, launch, graph-launch, decode; without one: all that the device has");
  command->add_option("--device", flags->device, "cpu (default), or cuda: the first GPU, cuda:1 the second")
      ->type_name("cpu|cuda|cuda:N");
  command
      ->add_option("--dtype", flags->dtype,
                   "fp32, tf32, bf16, fp16, fp8 (default: fp32 on a CPU, bf16 on a GPU)")
      ->type_name("TYPE");
  command->add_option("--collectives", flags->ranks, "collectives alone, over so many ranks of this machine")
      ->type_name("RANKS");
  command->add_option("--threads", flags->threads, "of the CPU; 0: all cores")->capture_default_str();
  command->add_flag("--deterministic", flags->deterministic,
                    "on a GPU: the library's first algorithm for each product, not the fastest of several");
  command->add_option("--seconds", flags->seconds, "of timing for each row (default 0.3)");
  constexpr const char* kSizes = "Sizes";
  const auto sizes = [&](const char* flag, std::vector<std::string>& texts, const char* type,
                         const char* help) {
    command->add_option(flag, texts, help)->type_name(type)->group(kSizes);
  };
  sizes("--gemm", flags->gemms, "MxNxK", "a product of M rows with a weight of (N, K); may be given again");
  sizes("--attention", flags->attentions, "BxTxHxGxD",
        "sequences, tokens, heads, key-value heads, head size");
  sizes("--norm", flags->norms, "RxC", "rows and columns of an RMSNorm");
  add_count(*command, "--largest-mib", flags->largest_mib, "of collectives, from 1 KiB on (default 64)")
      ->group(kSizes);
  sizes("--copy", flags->copies, "MiB", "bytes to copy");
  add_count(*command, "--launches", flags->launches, "operations in a row")->group(kSizes);
  command->add_option("--model", flags->model, "what decodes (default: tiny-llama, llama-3.2-1b on a GPU)")
      ->type_name("PRESET|DIR|GGUF")
      ->group(kSizes);
  command->add_option("--weights-dtype", flags->weights, "how decoding's weights are stored: int8, fp8, int4")
      ->type_name("TYPE")
      ->group(kSizes);
  add_count(*command, "--batch-size", flags->batch, "sequences that decode at a time")->group(kSizes);
  add_count(*command, "--prompt-length", flags->prompt, "tokens before the first new one")->group(kSizes);
  add_count(*command, "--max-new-tokens", flags->tokens, "tokens to decode")->group(kSizes);
  flags->events.add_to(*command);
  add_format(*command, flags->format, {Format::text, Format::json, Format::csv, Format::markdown});
  command->callback([flags, &invocation] {
    invocation.stream = flags->events.stream;
    invocation.run = [flags] { return bench(*flags); };
  });
}

}  // namespace app::cli
