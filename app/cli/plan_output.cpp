#include "app/cli/plan_output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "app/cli/predict_command.h"
#include "app/cli/text_table.h"
#include "sim/cost/predict.h"
#include "sim/format.h"
#include "sim/planner/explain.h"

namespace app::cli {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kPlanSchemaVersion = 1;
constexpr double kMillisecond = 1e-3;
constexpr std::string_view kUnknown = "-";

// A field of a candidate. It has a text for people, and a value for programs under a key that bears its unit.
struct Cell {
  std::string key, header, text;
  Json value;
  // Whether tables for people show it even if all candidates agree, or do not even mention it in that case.
  enum class Mention { if_they_differ, always, never_alike } mention = Mention::if_they_differ;
};
using Row = std::vector<Cell>;

Cell number(std::string key, std::string header, std::int64_t n) {
  return {std::move(key), std::move(header), sim::format_count(n), n};
}
Cell word(std::string key, std::string header, std::string_view text) {
  return {std::move(key), std::move(header), std::string(text), text};
}
Cell measure(std::string key, std::string header, std::string text, double value) {
  return {std::move(key), std::move(header), std::move(text), value, Cell::Mention::always};
}

// Marks a field that is rarely searched.
Cell rare(Cell cell) {
  cell.mention = Cell::Mention::never_alike;
  return cell;
}

std::string_view yes_or_no(bool yes) {
  return yes ? "yes" : "no";
}

// All searches have the same columns, whether or not a price is known.
Cell rate(const char* key, const char* header, bool known, double value) {
  if (known) return measure(key, header, fmt::format("{:.4g}", value), value);
  return {key, header, std::string(kUnknown), {}, Cell::Mention::never_alike};
}

void add_rates(Row& row, const PlanSearch& search, double usd, double kwh) {
  row.push_back(rate("usd_per_million_tokens", "$/Mtok", !search.rates.price.empty(), usd));
  row.push_back(rate("kwh_per_million_tokens", "kWh/Mtok", search.rates.watts > 0, kwh));
}

Row row_of(const PlanSearch& search, const TrainingSearch& of, const sim::Candidate& c) {
  const sim::Scenario scenario = sim::candidate(of.space, c.index);
  const sim::Strategy& s = scenario.strategy;
  const sim::Workload& w = scenario.workload;
  std::string recompute(name(s.recompute));
  if (s.recompute == sim::Recompute::full && s.recompute_interval > 1)
    recompute += fmt::format(" every {}", s.recompute_interval);
  Row row = {
      number("devices", "GPUs", c.devices),
      number("data_parallel", "dp", s.data_parallel),
      number("tensor_parallel", "tp", s.tensor_parallel),
      word("sequence_parallel", "sp", yes_or_no(s.sequence_parallel)),
      number("context_parallel", "cp", s.context_parallel),
      number("expert_parallel", "ep", s.expert_parallel),
      rare(number("expert_tensor_parallel", "etp", s.expert_tensor_parallel)),
      number("pipeline_parallel", "pp", s.pipeline_parallel),
      number("virtual_pipeline", "vpp", s.virtual_pipeline),
      word("schedule", "schedule", s.schedule),
      number("zero_stage", "ZeRO", s.zero_stage),
      number("shard_group", "shards", s.shard_group),
      number("micro_batch_size", "micro", w.micro_batch_size),
      number("global_batch_size", "batch", w.global_batch_size),
      word("recompute", "recompute", recompute),
      rare(word("offload_optimizer", "host optimizer", yes_or_no(s.offload_optimizer))),
      rare(word("offload_activations", "host activations", yes_or_no(s.offload_activations))),
      rare(word("context_parallel_comm", "cp by", name(s.context_parallel_comm))),
      rare(word("rank_order", "ranks", s.rank_order)),
      rare(number("prefetch", "prefetch", s.prefetch)),
      rare(number("gradient_bucket_bytes", "bucket", s.gradient_bucket)),
      measure("step_s", "step", sim::format(c.step), c.step.value),
      measure("tokens_per_second", "tokens/s", sim::format_short(c.tokens_per_second), c.tokens_per_second),
      measure("memory_bytes", "memory", sim::format(c.memory), static_cast<double>(c.memory.value))};
  add_rates(row, search, c.usd_per_million_tokens, c.kwh_per_million_tokens);
  return row;
}

Row row_of(const PlanSearch& search, const ServingSearch& of, const sim::ServingCandidate& c) {
  const sim::ServingChoice choice = sim::candidate(of.space, c.index);
  const sim::Strategy& s = choice.scenario.strategy;
  const sim::Workload& w = choice.scenario.workload;
  Row row = {
      number("devices", "GPUs", c.devices),
      number("engines", "engines", c.devices / choice.devices_of_engine()),
      number("tensor_parallel", "tp", s.tensor_parallel),
      number("expert_parallel", "ep", s.expert_parallel),
      number("pipeline_parallel", "pp", s.pipeline_parallel),
      word("weights_dtype", "weights", name(w.weights_dtype.value_or(w.dtype))),
      word("kv_dtype", "KV", name(w.kv_dtype.value_or(w.dtype))),
      number("batch_size", of.traffic ? "at most" : "batch", choice.sequences),
      measure("ttft_ms", of.traffic ? "TTFT p90" : "TTFT", sim::format(c.ttft), c.ttft.value / kMillisecond),
      measure("tpot_ms", of.traffic ? "TPOT p90" : "TPOT", sim::format(c.tpot), c.tpot.value / kMillisecond),
      measure("tokens_per_second_per_user", "tokens/s/user",
              sim::format_short(c.tokens_per_second_per_user()), c.tokens_per_second_per_user()),
      measure("tokens_per_second_per_device", "tokens/s/GPU",
              sim::format_short(c.tokens_per_second_per_device()), c.tokens_per_second_per_device()),
      measure("tokens_per_second", "tokens/s", sim::format_short(c.tokens_per_second), c.tokens_per_second),
      measure("memory_bytes", "memory", sim::format(c.memory), static_cast<double>(c.memory.value))};
  if (of.traffic && choice.sequences == 0) {
    const auto at_most =
        std::find_if(row.begin(), row.end(), [](const Cell& cell) { return cell.key == "batch_size"; });
    row.erase(at_most);
  }
  add_rates(row, search, c.usd_per_million_tokens, c.kwh_per_million_tokens);
  return row;
}

struct Counts {
  std::int64_t candidates = 0, looked_at = 0, legal = 0, evaluated = 0, fitting = 0;
  std::vector<std::pair<std::string, std::int64_t>> refused;  // most first
};

// The output of a search of either kind.
struct Digest {
  Counts counts;
  std::string objective;
  std::vector<Row> best, front;
  std::vector<sim::Scenario> first_two;          // scenarios of training
  std::vector<std::int64_t> first_two_of_space;  // indices of serving
};

template <class Result>
Counts counts_of(std::int64_t candidates, const Result& r) {
  Counts counts{candidates,  r.looked_at, r.legal,
                r.evaluated, r.fitting,   {r.refused.begin(), r.refused.end()}};
  std::stable_sort(counts.refused.begin(), counts.refused.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return counts;
}

// The best, and the first other one with a different result. A tie would make a comparison worthless, so it
// is skipped.
template <class Candidates, class Differ>
std::vector<std::int64_t> winner_and_runner_up(const Candidates& best, Differ differ) {
  std::vector<std::int64_t> indices;
  if (best.empty()) return indices;
  indices.push_back(best.front().index);
  const auto other =
      std::find_if(best.begin(), best.end(), [&](const auto& c) { return differ(best.front(), c); });
  if (other != best.end()) indices.push_back(other->index);
  return indices;
}

Digest digest_of(const PlanSearch& search, const PlanFound& found) {
  Digest digest;
  if (const auto* r = std::get_if<sim::SearchResult>(&found)) {
    const auto& of = std::get<TrainingSearch>(search.of);
    digest.counts = counts_of(candidates(search), *r);
    digest.objective = name(of.objective);
    for (const sim::Candidate& c : r->best[of.objective]) digest.best.push_back(row_of(search, of, c));
    for (const sim::Candidate& c : r->front) digest.front.push_back(row_of(search, of, c));
    for (const std::int64_t index : winner_and_runner_up(
             r->best[of.objective], [](const auto&a, const auto&b) { return a.step != b.step; }))
      digest.first_two.push_back(sim::candidate(of.space, index));
  } else if (const auto* s = std::get_if<sim::ServingResult>(&found)) {
    const auto& of = std::get<ServingSearch>(search.of);
    digest.counts = counts_of(candidates(search), *s);
    digest.objective = name(of.objective);
    for (const sim::ServingCandidate& c : s->best[of.objective]) digest.best.push_back(row_of(search, of, c));
    for (const sim::ServingCandidate& c : s->front) digest.front.push_back(row_of(search, of, c));
    digest.first_two_of_space = winner_and_runner_up(
        s->best[of.objective], [](const auto& a, const auto& b) { return a.tpot != b.tpot; });
  }
  return digest;
}

// Rows as a table. Columns in which all rows agree become one line.
struct Table {
  TextTable table;
  std::string agreed;
};

Table table_of(std::span<const Row> rows) {
  Table out;
  if (rows.empty()) return out;
  std::vector<std::size_t> shown;
  for (std::size_t c = 0; c < rows[0].size(); ++c) {
    const bool agree =
        std::all_of(rows.begin(), rows.end(), [&](const Row& row) { return row[c].text == rows[0][c].text; });
    if (!agree || rows[0][c].mention == Cell::Mention::always)
      shown.push_back(c);
    else if (rows[0][c].mention != Cell::Mention::never_alike)
      out.agreed += (out.agreed.empty() ? "" : ", ") + rows[0][c].header + ' ' + rows[0][c].text;
  }
  out.table.columns.push_back({"#"});
  for (const std::size_t c : shown)
    out.table.columns.push_back(
        {rows[0][c].header, rows[0][c].value.is_string() ? TextTable::Align::left : TextTable::Align::right});
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::vector<std::string> cells{std::to_string(r + 1)};
    for (const std::size_t c : shown) cells.push_back(rows[r][c].text);
    out.table.rows.push_back(std::move(cells));
  }
  return out;
}

std::string predict_command(const PlanSearch& search, const ServingSearch& of, std::int64_t index) {
  const sim::ServingChoice choice = sim::candidate(of.space, index);
  const std::string text = predict_command(choice.scenario, named_by(search.typed));
  if (!of.traffic) return text;
  return text + fmt::format(" --requests-per-second {:.17g} --minutes {:g} --traffic-seed {}",
                            of.traffic->requests_per_second / choice.replicas(),
                            of.traffic->duration.value / 60, of.traffic->seed);
}

// How the winner and the runner-up spend their time.
struct Comparison {
  std::string sentence;
  std::vector<std::string> columns;
  struct Line {
    std::string part;
    std::vector<sim::Seconds> seconds;
  };
  std::vector<Line> lines;
};

constexpr sim::EnumArray<sim::CostKind, std::string_view> kKindNames = {"matrix products", "attention",
                                                                        "small kernels", "exchange", "host"};

Comparison comparison_of(const PlanSearch& search, const Digest& digest) {
  Comparison c;
  const sim::Calibration* const calibration = pointer_to(search.calibration);
  if (!digest.first_two.empty()) {
    const sim::Explanation e = sim::explain(digest.first_two, calibration);
    c.sentence = e.sentence;
    c.columns = {"the first", "the second"};
    c.columns.resize(digest.first_two.size());
    for (const sim::SpendingRow& row : e.rows) c.lines.push_back({std::string(name(row.part)), row.seconds});
    c.lines.push_back({"step", e.step});
    return c;
  }
  if (digest.first_two_of_space.empty()) return c;
  const auto& of = std::get<ServingSearch>(search.of);
  std::vector<sim::ServingSpending> spent;
  for (const std::int64_t index : digest.first_two_of_space)
    spent.push_back(sim::spending(of.space, of.traffic, of.constraints, index, calibration));
  const auto add_lines = [&](const char* of_what, auto breakdown) {
    for (const sim::CostKind kind : sim::kAll<sim::CostKind>) {
      Comparison::Line line{fmt::format("{}: {}", of_what, kKindNames[kind]), {}};
      for (const sim::ServingSpending& s : spent) line.seconds.push_back(breakdown(s).parts[kind].expected);
      c.lines.push_back(std::move(line));
    }
    Comparison::Line whole{of_what, {}};
    for (const sim::ServingSpending& s : spent) whole.seconds.push_back(breakdown(s).total());
    c.lines.push_back(std::move(whole));
  };
  add_lines("first token", [](const sim::ServingSpending& s) { return s.first_token; });
  add_lines("later token", [](const sim::ServingSpending& s) { return s.later_token; });
  constexpr std::array<const char*, 2> kWhich = {"the first", "the second"};
  for (std::size_t i = 0; i < spent.size(); ++i)
    c.columns.push_back(fmt::format("{} ({} at a time)", kWhich[i], spent[i].sequences));
  // The largest part of a later token, since a user waits mostly for those.
  const auto& parts = spent[0].later_token.parts;
  const auto largest = std::max_element(parts.begin(), parts.end(),
                                        [](const auto& a, const auto& b) { return a.expected < b.expected; });
  c.sentence = fmt::format("Most of the first's time a later token is {}, {} of {}.",
                           kKindNames[static_cast<std::size_t>(largest - parts.begin())],
                           sim::format(largest->expected), sim::format(spent[0].later_token.total()));
  return c;
}

std::string winner_command(const PlanSearch& search, const Digest& digest) {
  if (!digest.first_two.empty()) return predict_command(digest.first_two.front(), named_by(search.typed));
  if (!digest.first_two_of_space.empty())
    return predict_command(search, std::get<ServingSearch>(search.of), digest.first_two_of_space.front());
  return {};
}

std::string headline(const PlanSearch& search) {
  const sim::Scenario& s = search.base;
  const sim::Workload& w = s.workload;
  const std::string& hardware = s.hardware.display_name.empty() ? s.hardware.name : s.hardware.display_name;
  if (const auto* training = std::get_if<TrainingSearch>(&search.of))
    return fmt::format("{} on {} {}: training in steps of {} sequences of {} tokens, {}, {}", s.model.name,
                       fmt::join(training->space.devices, " or "), hardware,
                       fmt::join(training->space.global_batch_size, " or "), sim::format_count(w.seq_len),
                       name(w.dtype), s.implementation.name);
  const auto& serving = std::get<ServingSearch>(search.of);
  std::string load = "batches";
  if (serving.traffic) load = fmt::format("{:g} requests a second", serving.traffic->requests_per_second);
  return fmt::format("{} on {} {}: {} of {} tokens after {}, {}, {}", s.model.name,
                     fmt::join(serving.space.devices, " or "), hardware, load,
                     sim::format_count(w.max_new_tokens), sim::format_count(w.prompt_length), name(w.dtype),
                     s.implementation.name);
}

std::string counts_text(const Counts& c) {
  std::string refused;
  for (const auto& [reason, n] : c.refused)
    refused += fmt::format("{}{} {}", refused.empty() ? "" : ", ", reason, sim::format_count(n));
  TextTable table{{{"", TextTable::Align::left}, {""}}, {}};
  table.rows = {{"candidates", sim::format_count(c.candidates)},
                {"looked at", sim::format_count(c.looked_at)},
                {"without contradiction, each once", sim::format_count(c.legal)},
                {"timed, or surely beaten", sim::format_count(c.evaluated)},
                {"keep to all constraints", sim::format_count(c.fitting)}};
  std::string text = table.text();
  text.erase(0, text.find('\n') + 1);  // the header is empty
  if (!refused.empty()) text += "  refused by " + refused + '\n';
  return text;
}

std::string section(const std::string& title, std::span<const Row> rows, bool markdown) {
  if (rows.empty()) return {};
  const Table t = table_of(rows);
  std::string text = fmt::format("\n{}{}\n{}", markdown ? "## " : "", title, markdown ? "\n" : "");
  text += markdown ? t.table.markdown() : t.table.text();
  if (!t.agreed.empty())
    text +=
        fmt::format("{}{}: {}\n", markdown ? "\n" : "  ", rows.size() == 1 ? "with" : "all with", t.agreed);
  return text;
}

std::string comparison_text(const Comparison& c, bool markdown) {
  if (c.lines.empty()) return {};
  TextTable table{{{"", TextTable::Align::left}}, {}};
  for (const std::string& column : c.columns) table.columns.push_back({column});
  for (const Comparison::Line& line : c.lines) {
    std::vector<std::string> cells{line.part};
    for (const sim::Seconds s : line.seconds) cells.push_back(sim::format(s));
    table.rows.push_back(std::move(cells));
  }
  return fmt::format("\n{}{}\n{}{}", markdown ? "## Why\n\n" : "", c.sentence, markdown ? "\n" : "",
                     markdown ? table.markdown() : table.text());
}

// The metrics of a whole run by the winner, where --tokens says how long it is.
std::vector<Metric> run_metrics(const PlanSearch& search, const Digest& digest, const RunCostFlags& flags) {
  if (!flags.tokens || digest.first_two.empty()) return {};
  return run_cost_metrics(sim::predict(digest.first_two.front(), pointer_to(search.calibration)), flags);
}

constexpr std::size_t kMostOfFront = 20;  // for people

std::string rates_text(const PlanSearch& search) {
  std::string text;
  if (!search.rates.price.empty())
    text += fmt::format("  ${:.2f} a device hour ({})\n", search.rates.usd_per_hour, search.rates.price);
  if (search.rates.watts > 0)
    text += fmt::format("  {:.0f} W a device with its share of node and site \"{}\"\n", search.rates.watts,
                        search.rates.site);
  return text;
}

std::string one_as_text(const PlanOutcome& outcome, const PlanFlags& flags, bool markdown) {
  const PlanSearch& search = outcome.searches.front();
  const Digest digest = digest_of(search, outcome.found.front());
  std::string text =
      (markdown ? "# " : "") + headline(search) + "\n\n" + counts_text(digest.counts) + rates_text(search);
  if (!outcome.complete) text += "\nStopped before the end: of what was looked at until then.\n";
  if (digest.best.empty()) return text;
  const bool estimates = !digest.first_two.empty();
  text += section(fmt::format("The best by {}{}", digest.objective,
                              estimates ? ", estimated (the first two are predicted in full below)" : ""),
                  digest.best, markdown);
  const std::span<const Row> front(digest.front.data(), std::min(kMostOfFront, digest.front.size()));
  text += section(front.size() < digest.front.size()
                      ? fmt::format("Pareto front, {} of {}", front.size(), digest.front.size())
                      : std::string("Pareto front"),
                  front, markdown);
  text += comparison_text(comparison_of(search, digest), markdown);
  TextTable run{{{"a run by the first", TextTable::Align::left}, {""}}, {}};
  for (const Metric& m : run_metrics(search, digest, flags.run)) run.rows.push_back({m.label, m.text});
  if (!run.rows.empty()) text += '\n' + (markdown ? run.markdown() : run.text());
  const std::string command = winner_command(search, digest);
  return text + (markdown ? fmt::format("\n    {}\n", command)
                          : fmt::format("\nThe first in full:\n  {}\n", command));
}

Json json_of(const Row& row) {
  Json json = Json::object();
  for (const Cell& cell : row) json[cell.key] = cell.value;
  return json;
}

Json json_of(const PlanSearch& search, const PlanFound& found, const PlanFlags& flags) {
  Json json = Json::object();
  for (const auto& [field, value] : search.variation) json["variation"][field] = value;
  if (!search.why_not.empty()) {
    json["why_not"] = search.why_not;
    return json;
  }
  const Digest d = digest_of(search, found);
  json["scenario"] = headline(search);
  Json refused = Json::object();
  for (const auto& [reason, n] : d.counts.refused) refused[reason] = n;
  json["candidates"] = d.counts.candidates;
  json["looked_at"] = d.counts.looked_at;
  json["legal"] = d.counts.legal;
  json["evaluated"] = d.counts.evaluated;
  json["fitting"] = d.counts.fitting;
  json["refused"] = std::move(refused);
  json["objective"] = d.objective;
  json["usd_per_device_hour"] = search.rates.price.empty() ? Json() : Json(search.rates.usd_per_hour);
  json["watts_per_device"] = search.rates.watts > 0 ? Json(search.rates.watts) : Json();
  json["best"] = Json::array();
  for (const Row& row : d.best) json["best"].push_back(json_of(row));
  json["front"] = Json::array();
  for (const Row& row : d.front) json["front"].push_back(json_of(row));
  if (d.best.empty()) return json;
  const Comparison c = comparison_of(search, d);
  json["why"]["sentence"] = c.sentence;
  for (const Comparison::Line& line : c.lines) {
    Json seconds = Json::array();
    for (const sim::Seconds s : line.seconds) seconds.push_back(s.value);
    json["why"]["seconds"][line.part] = std::move(seconds);
  }
  for (const Metric& m : run_metrics(search, d, flags.run))
    json["run"][m.key] = m.value ? Json(*m.value) : Json();
  json["predict"] = winner_command(search, d);
  return json;
}

std::string as_json(const PlanOutcome& outcome, const PlanFlags& flags, bool sweep) {
  Json json;
  json["schema_version"] = kPlanSchemaVersion;
  json["complete"] = outcome.complete;
  if (!sweep) {
    json.update(json_of(outcome.searches.front(), outcome.found.front(), flags));
    return json.dump(2) + "\n";
  }
  json["searches"] = Json::array();
  for (std::size_t i = 0; i < outcome.searches.size(); ++i)
    json["searches"].push_back(json_of(outcome.searches[i], outcome.found[i], flags));
  return json.dump(2) + "\n";
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string cell = "\"";
  for (const char c : text) cell += c == '"' ? std::string("\"\"") : std::string(1, c);
  return cell + '"';
}

std::string csv_value(const Json& value) {
  if (value.is_null()) return {};
  return csv_cell(value.is_string() ? value.get<std::string>() : value.dump());
}

// For one search: its best and its front, one line each. For a sweep: one line for each search's winner.
std::string as_csv(const PlanOutcome& outcome, bool sweep) {
  std::string text;
  std::vector<std::string> keys;
  std::vector<std::pair<std::string, Row>> lines;  // each row, and the text before it
  std::string before = "list,rank";
  if (!sweep) {
    const Digest d = digest_of(outcome.searches.front(), outcome.found.front());
    for (std::size_t i = 0; i < d.best.size(); ++i)
      lines.emplace_back(fmt::format("best,{}", i + 1), d.best[i]);
    for (std::size_t i = 0; i < d.front.size(); ++i)
      lines.emplace_back(fmt::format("front,{}", i + 1), d.front[i]);
  } else {
    before.clear();
    for (const auto& [field, ignored] : outcome.searches.front().variation) before += field + ',';
    before += "candidates,fitting,why_not";
    for (std::size_t i = 0; i < outcome.searches.size(); ++i) {
      const PlanSearch& search = outcome.searches[i];
      const Digest d = digest_of(search, outcome.found[i]);
      std::string head;
      for (const auto& [ignored, value] : search.variation) head += csv_cell(value) + ',';
      head += fmt::format("{},{},{}", d.counts.candidates, d.counts.fitting,
                          csv_cell(!search.why_not.empty() ? search.why_not
                                   : d.best.empty()        ? "nothing fits"
                                                           : ""));
      lines.emplace_back(std::move(head), d.best.empty() ? Row() : d.best.front());
    }
  }
  for (const auto& [ignored, row] : lines)
    for (const Cell& cell : row)
      if (std::find(keys.begin(), keys.end(), cell.key) == keys.end()) keys.push_back(cell.key);
  text = before;
  for (const std::string& key : keys) text += ',' + key;
  text += '\n';
  for (const auto& [head, row] : lines) {
    text += head;
    for (const std::string& key : keys) {
      const auto cell = std::find_if(row.begin(), row.end(), [&](const Cell& c) { return c.key == key; });
      text += ',';
      if (cell != row.end()) text += csv_value(cell->value);
    }
    text += '\n';
  }
  return text;
}

// A table of each search's winner.
std::string sweep_as_text(const PlanOutcome& outcome, bool markdown) {
  TextTable table;
  for (const auto& [field, ignored] : outcome.searches.front().variation)
    table.columns.push_back({field, TextTable::Align::left});
  std::vector<Digest> digests;
  std::vector<Row> winners;
  for (std::size_t i = 0; i < outcome.searches.size(); ++i) {
    digests.push_back(digest_of(outcome.searches[i], outcome.found[i]));
    if (!digests.back().best.empty()) winners.push_back(digests.back().best.front());
  }
  const Table best = table_of(winners);
  for (std::size_t c = 1; c < best.table.columns.size(); ++c) table.columns.push_back(best.table.columns[c]);
  table.columns.push_back({"fit"});
  table.columns.push_back({"of"});
  const std::size_t shown = winners.empty() ? 0 : best.table.columns.size() - 1;
  std::size_t winner = 0;
  std::string why_not;
  for (std::size_t i = 0; i < outcome.searches.size(); ++i) {
    const PlanSearch& search = outcome.searches[i];
    std::vector<std::string> cells;
    for (const auto& [ignored, value] : search.variation) cells.push_back(value);
    const bool any = !digests[i].best.empty();
    for (std::size_t c = 0; c < shown; ++c) cells.push_back(any ? best.table.rows[winner][c + 1] : "-");
    if (any) ++winner;
    cells.push_back(sim::format_count(digests[i].counts.fitting));
    cells.push_back(sim::format_count(digests[i].counts.candidates));
    table.rows.push_back(std::move(cells));
    if (!search.why_not.empty())
      why_not += fmt::format("  {}: {}\n", text_of(search.variation), search.why_not);
  }
  std::string text = markdown ? table.markdown() : table.text();
  if (!best.agreed.empty()) text += fmt::format("{}all with: {}\n", markdown ? "\n" : "  ", best.agreed);
  if (!outcome.complete) text += "\nStopped before the end: of what was looked at until then.\n";
  if (!why_not.empty()) text += "\nCannot be:\n" + why_not;
  return text;
}

}  // namespace

std::string plan_as(const PlanOutcome& outcome, const PlanFlags& flags) {
  const bool sweep = !flags.sweep.empty();
  switch (flags.format) {
    case Format::json:
      return as_json(outcome, flags, sweep);
    case Format::csv:
      return as_csv(outcome, sweep);
    case Format::markdown:
    case Format::text:
      break;
  }
  const bool markdown = flags.format == Format::markdown;
  return sweep ? sweep_as_text(outcome, markdown) : one_as_text(outcome, flags, markdown);
}

}  // namespace app::cli
