#include "app/cli/report_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "app/cli/text_table.h"
#include "app/counted.h"
#include "runtime/error.h"
#include "sim/economics/batch_size.h"
#include "sim/format.h"
#include "sim/json_object.h"
#include "sim/plan/legality.h"
#include "sim/report/events.h"
#include "sim/report/metrics.h"
#include "sim/report/step_parts.h"
#include "sim/scenario/preset.h"

namespace app::cli {

namespace {

using Json = nlohmann::ordered_json;

// Operations that the text shows; the other formats have every one.
constexpr std::size_t kOperationsInText = 12;

bool is_training(const sim::Report& report) {
  return report.source.scenario.workload.task == sim::Task::train;
}

std::string key_of(sim::FlopsConvention convention) {
  switch (convention) {
    case sim::FlopsConvention::six_n:
      return "mfu_6n";
    case sim::FlopsConvention::six_n_full:
      return "mfu_6n_full_attention";
    case sim::FlopsConvention::six_n_causal:
      return "mfu_6n_causal_attention";
    case sim::FlopsConvention::torchtitan:
      return "mfu_torchtitan";
    case sim::FlopsConvention::all_parameters:
      return "mfu_all_parameters";
  }
  return "mfu";
}

Metric seconds(std::string key, std::string label, sim::Seconds value) {
  return {std::move(key), std::move(label), value.value, sim::format(value)};
}

// A fraction. It is 0 where the report lacks the numbers for it.
Metric fraction(std::string key, std::string label, double value) {
  if (!(value > 0)) return {std::move(key), std::move(label), std::nullopt, "unknown"};
  return {std::move(key), std::move(label), value, sim::format_percent(value)};
}

// The GPU driver's readings during the run, where there are any.
void add_device_metrics(std::vector<Metric>& metrics, const sim::Report& report) {
  const std::vector<sim::DeviceSample>& samples = report.device_samples;
  if (samples.empty()) return;
  double clock = 0, least_clock = samples.front().sm_clock_mhz, power = 0, temperature = 0, held_back = 0;
  for (const sim::DeviceSample& sample : samples) {
    clock += sample.sm_clock_mhz;
    least_clock = std::min(least_clock, sample.sm_clock_mhz);
    power += sample.power_w;
    temperature = std::max(temperature, sample.temperature_c);
    held_back += sample.throttle.empty() ? 0 : 1;
  }
  const auto count = static_cast<double>(samples.size());
  clock /= count;
  power /= count;
  held_back /= count;
  metrics.push_back(
      {"sm_clock_mhz", "clock, mean", clock,
       fmt::format("{:.0f} MHz, at least {:.0f}, of {} samples", clock, least_clock, samples.size())});
  metrics.push_back({"power_w", "power, mean", power, fmt::format("{:.0f} W", power)});
  metrics.push_back(
      {"temperature_c", "temperature, highest", temperature, fmt::format("{:.0f} °C", temperature)});
  metrics.push_back({"clock_held_back", "clock held back", held_back,
                     held_back > 0 ? fmt::format("{} of the time: {}", sim::format_percent(held_back),
                                                 std::find_if(samples.rbegin(), samples.rend(),
                                                              [](const sim::DeviceSample& sample) {
                                                                return !sample.throttle.empty();
                                                              })
                                                     ->throttle)
                                   : "never"});
}

// The size of the work: the model's parameters, and the FLOPs of all devices together and of each one.
void add_sizes(std::vector<Metric>& metrics, const sim::Report& report) {
  const sim::Scenario& scenario = report.source.scenario;
  const sim::ParameterCount count = sim::count_parameters(scenario.model);
  const auto parameters = [&](std::string key, std::string label, std::int64_t n) {
    metrics.push_back({std::move(key), std::move(label), static_cast<double>(n), sim::format_count(n)});
  };
  parameters("parameters", "parameters", count.total);
  if (count.active != count.total) parameters("active_parameters", "  that a token passes", count.active);
  parameters("non_embedding_parameters", "  without embedding tables", count.total - count.embedding);
  const sim::Flops whole = sim::executed_flops(report);
  if (!(whole.value > 0)) return;
  const char* const what = is_training(report) ? "FLOPs of the step" : "FLOPs of the generation";
  metrics.push_back({"flops", what, whole.value, sim::format(whole)});
  if (const int devices = scenario.strategy.devices(); devices > 1)
    metrics.push_back({"flops_per_device", "  of one device, the mean", whole.value / devices,
                       sim::format(sim::Flops{whole.value / devices})});
}

// The batch size that the gradient's noise asks for, where it was measured: from the last step with a norm.
void add_noise(std::vector<Metric>& metrics, const sim::Report& report) {
  const auto last = std::find_if(report.steps.rbegin(), report.steps.rend(),
                                 [](const sim::StepResult& step) { return step.micro_batch_grad_norm; });
  if (last == report.steps.rend()) return;
  const auto length = static_cast<double>(report.source.scenario.workload.seq_len);
  const auto batch = [&](double sequences) {
    return fmt::format("{} sequences, {} tokens", sim::format_short(sequences),
                       sim::format_short(sequences * length));
  };
  metrics.push_back({"noise_scale_sequences", "noise scale", last->noise_scale,
                     last->noise_scale ? fmt::format("{}: about the critical batch (McCandlish et al. 2018)",
                                                     batch(*last->noise_scale))
                                       : "unknown: noise hides the gradient over these steps"});
  const double by_loss = sim::critical_batch_by_loss(last->loss);
  metrics.push_back(
      {"critical_batch_by_loss_tokens", "critical batch by the loss", by_loss,
       fmt::format("{} by the fit of Kaplan et al. 2020 to WebText2", batch(by_loss / length))});
}

std::vector<Metric> metrics_of(const sim::Report& report, const std::vector<Metric>& further) {
  const sim::Scenario& scenario = report.source.scenario;
  std::vector<Metric> metrics;
  metrics.push_back(
      seconds("step_time_s", is_training(report) ? "step time" : "generation time", sim::step_time(report)));
  metrics.push_back(seconds("step_time_low_s", "  at best", report.step_low));
  metrics.push_back(seconds("step_time_high_s", "  at worst", report.step_high));
  const bool waits = is_training(report) && scenario.strategy.devices() > 1;
  if (waits && report.source.kind == sim::ReportKind::predicted)
    metrics.push_back({"waiting_for_slowest_s", "  waiting for the slowest", report.waiting_for_slowest.value,
                       report.waiting_for_slowest.value > 0
                           ? fmt::format("{}, {} of the step", sim::format(report.waiting_for_slowest),
                                         sim::format_percent(sim::waiting_share(report)))
                           : "never"});
  add_sizes(metrics, report);
  const double rate = sim::tokens_per_second(report);
  metrics.push_back({"tokens_per_s", "throughput", rate, sim::format_short(rate) + " tokens/s"});
  if (is_training(report)) {
    for (int i = 0; i < sim::kFlopsConventions; ++i) {
      const auto convention = static_cast<sim::FlopsConvention>(i);
      metrics.push_back(fraction(key_of(convention), fmt::format("MFU, {}", sim::name(convention)),
                                 sim::mfu(report, convention)));
    }
    metrics.push_back(fraction("hfu", "HFU", sim::hfu(report)));
  } else {
    if (const auto ttft = sim::ttft(report))
      metrics.push_back(seconds("ttft_s", "time to first token", *ttft));
    if (const auto tpot = sim::tpot(report))
      metrics.push_back(seconds("tpot_s", "time per output token", *tpot));
    metrics.push_back(fraction("mbu", "MBU", sim::mbu(report)));
  }
  const sim::Bytes peak = sim::peak_memory(report);
  metrics.push_back({"peak_memory_bytes", "peak memory", static_cast<double>(peak.value),
                     fmt::format("{} of {}", sim::format(peak), sim::format(scenario.hardware.memory))});
  metrics.push_back({"memory_capacity_bytes", "  capacity",
                     static_cast<double>(scenario.hardware.memory.value),
                     sim::format(scenario.hardware.memory)});
  if (const sim::Bytes host = sim::host_memory(report); host.value > 0)
    metrics.push_back({"host_memory_bytes", "host memory", static_cast<double>(host.value),
                       sim::format(host) + " for each device"});
  metrics.push_back({"fits", "fits", sim::fits(report) ? 1.0 : 0.0, sim::fits(report) ? "yes" : "no"});
  if (!report.steps.empty()) {
    metrics.push_back({"first_loss", "loss of the first step", report.steps.front().loss,
                       fmt::format("{:.4f}", report.steps.front().loss)});
    metrics.push_back({"last_loss", "loss of the last step", report.steps.back().loss,
                       fmt::format("{:.4f}", report.steps.back().loss)});
    add_noise(metrics, report);
  }
  add_device_metrics(metrics, report);
  metrics.insert(metrics.end(), further.begin(), further.end());
  return metrics;
}

// Each operation once: the mean over the ranks that have rows, one rank for each pipeline stage. Its bound is
// that of the rank where it takes longest.
struct MeanOfRanks {
  std::vector<sim::Row> rows;
  std::size_t ranks = 0;
};

MeanOfRanks mean_of_ranks(const sim::Report& report) {
  MeanOfRanks mean;
  std::set<std::int32_t> ranks;
  struct Known {
    std::size_t row;
    sim::Seconds longest;
  };
  std::map<std::pair<sim::Phase, std::string>, Known> known;
  for (const sim::Row& row : report.rows) {
    ranks.insert(row.rank);
    const auto [place, is_new] =
        known.try_emplace({row.phase, row.id}, Known{mean.rows.size(), row.duration});
    if (is_new) {
      mean.rows.push_back(row);
      continue;
    }
    sim::Row& sum = mean.rows[place->second.row];
    sum.count += row.count;
    sum.duration += row.duration;
    sum.flops += row.flops;
    sum.memory += row.memory;
    if (row.duration > place->second.longest) {
      place->second.longest = row.duration;
      sum.bound = row.bound;
      sum.provenance = row.provenance;
    }
  }
  mean.ranks = ranks.size();
  const auto count = static_cast<double>(mean.ranks);
  for (sim::Row& row : mean.rows) {
    row.count = std::llround(static_cast<double>(row.count) / count);
    row.duration = row.duration * (1 / count);
    row.flops.value /= count;
    row.memory.value = std::llround(static_cast<double>(row.memory.value) / count);
  }
  return mean;
}

std::vector<sim::Row> longest_first(std::vector<sim::Row> rows) {
  std::stable_sort(rows.begin(), rows.end(),
                   [](const sim::Row& a, const sim::Row& b) { return a.duration > b.duration; });
  return rows;
}

// The title with the epilogues of the kernel: "layer.mlp.up.forward + gelu".
std::string title_of(const sim::Row& row, const sim::Report& report) {
  std::string title = row.id;
  for (const sim::Row& other : report.rows)
    if (other.fused_into == row.id && other.phase == row.phase && other.rank == row.rank)
      title += " + " + std::string(sim::name(other.kind));
  return title;
}

// Shares refer to the step or the generation, as the shares of its parts do.
TextTable operations_table(const sim::Report& report, const MeanOfRanks& mean, std::size_t most) {
  using Align = TextTable::Align;
  const bool trains = report.source.scenario.workload.task == sim::Task::train;
  TextTable table{{{"operation", Align::left},
                   {"phase", Align::left},
                   {"count"},
                   {"time"},
                   {trains ? "of the step" : "of the generation"},
                   {"FLOPs"},
                   {"traffic"},
                   {"bound by", Align::left},
                   {"known from", Align::left}},
                  {}};
  const std::vector<sim::Row> rows = longest_first(mean.rows);
  const sim::Seconds whole = sim::step_parts(report).whole;
  for (const sim::Row& row : rows) {
    if (table.rows.size() == most) break;
    table.rows.push_back(
        {title_of(row, report), std::string(sim::name(row.phase)), sim::format_count(row.count),
         sim::format(row.duration), sim::format_percent(row.duration / whole), sim::format(row.flops),
         sim::format(row.memory), std::string(sim::name(row.bound)), std::string(sim::name(row.provenance))});
  }
  return table;
}

// Empty for a single rank.
std::string sentence_of_mean(const sim::Report& report, std::size_t ranks, std::string_view before) {
  if (ranks < 2) return {};
  const bool predicted = report.source.kind == sim::ReportKind::predicted;
  return fmt::format("{}Operations are of one rank, the mean of {} {}.\n", before, ranks,
                     predicted ? "stages" : "ranks");
}

TextTable ledger_table(const sim::Report& report) {
  TextTable table{{{"memory at the peak", TextTable::Align::left}, {"size"}, {"share"}}, {}};
  const sim::Bytes peak = sim::peak_memory(report);
  for (const sim::MemoryLine& line : sim::peak_ledger(report)) {
    if (line.bytes.value == 0) continue;
    table.rows.push_back(
        {line.category, sim::format(line.bytes),
         sim::format_percent(static_cast<double>(line.bytes.value) / static_cast<double>(peak.value))});
  }
  table.rows.push_back({"peak", sim::format(peak), sim::format_percent(1)});
  table.rows.push_back({"capacity", sim::format(report.source.scenario.hardware.memory), ""});
  return table;
}

std::string csv_number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : std::string();
}

std::string csv_text(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

std::vector<sim::Event> events_in(const std::string& content) {
  std::vector<sim::Event> events;
  std::size_t begin = 0;
  while (begin < content.size()) {
    const std::size_t end = std::min(content.find('\n', begin), content.size());
    const std::string_view line = std::string_view(content).substr(begin, end - begin);
    if (!line.empty()) events.push_back(sim::event_from_ndjson(line));
    begin = end + 1;
  }
  return events;
}

using ReportOrEvents = std::variant<sim::Report, std::vector<sim::Event>>;

ReportOrEvents report_or_events(const std::string& path) {
  const std::string content = read_file(path);
  if (sim::nested_too_deep(content)) sim::parse_json(content, path);  // this says where
  const Json json = Json::parse(content, nullptr, false);
  if (json.is_object() && json.contains("report")) return sim::report_from_json(json["report"].dump(), path);
  if (json.is_object() && !json.contains("event")) return sim::report_from_json(content, path);
  if (content.find("\"event\"") == std::string::npos) {
    sim::parse_json(content, path);  // says where it is not JSON
    throw runtime::InputError(path + " line 1: begins neither a report (JSON) nor a run's events (NDJSON)");
  }
  try {
    return events_in(content);
  } catch (const sim::PresetError& e) {
    throw runtime::InputError(path + ": " + e.what());
  }
}

Json remarks_json(const sim::Scenario& scenario) {
  Json remarks = Json::array();
  for (const sim::Problem& remark : sim::remarks(scenario))
    remarks.push_back({{"field", remark.field}, {"message", remark.message}});
  return remarks;
}

}  // namespace

std::string remarks_text(const sim::Scenario& scenario) {
  std::string text;
  for (const sim::Problem& remark : sim::remarks(scenario))
    text += fmt::format("\nRemark: {}: {}\n", remark.field, remark.message);
  return text;
}

std::string headline(const sim::Report& report) {
  const sim::Scenario& scenario = report.source.scenario;
  const sim::Workload& work = scenario.workload;
  std::string what;
  if (is_training(report)) {
    what = fmt::format("a training step of {} of {}", counted(work.global_batch_size, "sequence"),
                       counted(work.seq_len, "token"));
    if (work.micro_batch_size != work.global_batch_size)
      what += fmt::format(" in micro-batches of {}", sim::format_count(work.micro_batch_size));
  } else {
    what = fmt::format("{} after {}, {}, {} KV cache", counted(work.max_new_tokens, "new token"),
                       sim::format_count(work.prompt_length), counted(work.batch_size, "sequence"),
                       work.kv_cache ? "with" : "without");
  }
  const std::string& hardware = scenario.hardware.display_name;
  return fmt::format("{} on {} ({}): {}, {}, {}", scenario.model.name,
                     hardware.empty() ? scenario.hardware.name : hardware, sim::name(report.source.kind),
                     what, sim::name(work.dtype), scenario.implementation.name);
}

std::string report_text(const sim::Report& report, const std::vector<Metric>& further) {
  std::string out = headline(report) + "\n\n";
  std::size_t width = 0;
  const std::vector<Metric> metrics = metrics_of(report, further);
  for (const Metric& metric : metrics) width = std::max(width, metric.label.size());
  for (const Metric& metric : metrics)
    if (metric.key != "memory_capacity_bytes")
      out += fmt::format("  {:<{}}  {}\n", metric.label, width, metric.text);
  if (!report.rows.empty()) out += "\n  " + sim::bottleneck_sentence(report) + "\n";
  if (!report.memory.empty()) out += '\n' + ledger_table(report).text();
  if (!report.rows.empty()) {
    const MeanOfRanks mean = mean_of_ranks(report);
    out += '\n' + operations_table(report, mean, kOperationsInText).text();
    if (mean.rows.size() > kOperationsInText)
      out +=
          fmt::format("  and {} shorter ones (--format csv has all)\n", mean.rows.size() - kOperationsInText);
    out += sentence_of_mean(report, mean.ranks, "  ");
  }
  if (!report.message.empty()) out += '\n' + report.message + '\n';
  return out + remarks_text(report.source.scenario);
}

std::string report_json(const sim::Report& report, int indent, const std::vector<Metric>& further) {
  Json metrics = Json::object();
  for (const Metric& metric : metrics_of(report, further)) {
    if (metric.key == "fits")
      metrics[metric.key] = sim::fits(report);
    else if (metric.value)
      metrics[metric.key] = *metric.value;
    else
      metrics[metric.key] = nullptr;
  }
  if (!report.rows.empty()) metrics["bottleneck"] = sim::bottleneck_sentence(report);
  const Json envelope = {{"schema_version", sim::kReportSchemaVersion},
                         {"metrics", metrics},
                         {"remarks", remarks_json(report.source.scenario)},
                         {"report", Json::parse(sim::to_json(report))}};
  return envelope.dump(indent) + '\n';
}

std::string report_csv(const sim::Report& report) {
  std::string out =
      "operation,phase,rank,kind,count,duration_s,duration_low_s,duration_high_s,flops,model_flops,memory_"
      "bytes,"
      "network_bytes,bound,provenance\n";
  for (const sim::Row& row : longest_first(report.rows))
    out += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", csv_text(row.id), sim::name(row.phase),
                       row.rank, sim::name(row.kind), row.count, row.duration.value, row.low.value,
                       row.high.value, row.flops.value, row.model_flops.value, row.memory.value,
                       row.network.value, sim::name(row.bound), sim::name(row.provenance));
  return out;
}

std::string metrics_csv_header() {
  return "model,hardware,implementation,task,dtype,step_time_s,step_time_low_s,step_time_high_s,tokens_per_s,"
         "mfu_6n_full_attention,hfu,ttft_s,tpot_s,mbu,peak_memory_bytes,fits,why_not\n";
}

std::string metrics_csv_line(const sim::Report& report) {
  const sim::Scenario& scenario = report.source.scenario;
  const bool training = is_training(report);
  const auto optional_seconds = [](const std::optional<sim::Seconds>& t) {
    return t ? csv_number(t->value) : "";
  };
  return fmt::format(
      "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},\n", csv_text(scenario.model.name),
      csv_text(scenario.hardware.name), csv_text(scenario.implementation.name),
      sim::name(scenario.workload.task), sim::name(scenario.workload.dtype),
      csv_number(sim::step_time(report).value), csv_number(report.step_low.value),
      csv_number(report.step_high.value), csv_number(sim::tokens_per_second(report)),
      training ? csv_number(sim::mfu(report, sim::FlopsConvention::six_n_full)) : "",
      training ? csv_number(sim::hfu(report)) : "", training ? "" : optional_seconds(sim::ttft(report)),
      training ? "" : optional_seconds(sim::tpot(report)), training ? "" : csv_number(sim::mbu(report)),
      sim::peak_memory(report).value, sim::fits(report));
}

std::string metrics_csv_failure(const std::string& why_not) {
  const std::string header = metrics_csv_header();
  return std::string(static_cast<std::size_t>(std::count(header.begin(), header.end(), ',')), ',') +
         csv_text(why_not) + '\n';
}

std::string report_markdown(const sim::Report& report, const std::vector<Metric>& further) {
  TextTable totals{{{"quantity", TextTable::Align::left}, {"value"}}, {}};
  for (const Metric& metric : metrics_of(report, further))
    totals.rows.push_back({metric.label.substr(metric.label.find_first_not_of(' ')), metric.text});
  std::string out = headline(report) + "\n\n" + totals.markdown() + '\n';
  if (!report.memory.empty()) out += ledger_table(report).markdown() + '\n';
  const MeanOfRanks mean = mean_of_ranks(report);
  out += operations_table(report, mean, mean.rows.size()).markdown() +
         sentence_of_mean(report, mean.ranks, "\n");
  return out + remarks_text(report.source.scenario);
}

std::string report_as(const sim::Report& report, Format format, const std::vector<Metric>& further) {
  switch (format) {
    case Format::text:
      return report_text(report, further);
    case Format::json:
      return report_json(report, 2, further);
    case Format::csv:
      return report_csv(report);
    case Format::markdown:
      return report_markdown(report, further);
  }
  return {};
}

std::vector<sim::Event> read_events(const std::string& path) {
  const ReportOrEvents read = report_or_events(path);
  if (const auto* report = std::get_if<sim::Report>(&read)) return sim::events_of(*report);
  return std::get<std::vector<sim::Event>>(read);
}

sim::Report read_report(const std::string& path) {
  const ReportOrEvents read = report_or_events(path);
  if (const auto* report = std::get_if<sim::Report>(&read)) return *report;
  sim::Report report;
  for (const sim::Event& event : std::get<std::vector<sim::Event>>(read)) sim::apply(report, event);
  return report;
}

}  // namespace app::cli
