#include "sim/report/compare.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <utility>

#include "sim/csv.h"
#include "sim/format.h"
#include "sim/report/metrics.h"
#include "sim/report/report_json.h"

namespace sim {
namespace {

constexpr int kComparisonSchemaVersion = 1;

// One row for each operation and phase. With several ranks it is the slowest's, for which the others wait.
std::map<std::pair<Phase, std::string>, Row> by_operation(const Report& report) {
  std::map<std::pair<Phase, std::string>, Row> rows;
  for (const Row& row : report.rows) {
    const auto [place, is_new] = rows.try_emplace({row.phase, row.id}, row);
    if (!is_new && row.duration > place->second.duration) place->second = row;
  }
  return rows;
}

using Key = std::pair<Phase, std::string>;

// Operations whose work another kernel did in either report: the key of each, and the row to add it to.
std::map<Key, Row> fused_rows(const std::map<Key, Row>& a, const std::map<Key, Row>& b) {
  std::map<Key, Row> fused;
  for (const auto* const rows : {&a, &b})
    for (const auto& [key, row] : *rows)
      if (!row.fused_into.empty()) fused.emplace(key, row);
  return fused;
}

// Adds each of these operations to the one that did its work, where the report has both.
void add_up(std::map<Key, Row>& rows, const std::map<Key, Row>& fused) {
  for (const auto& [key, how] : fused) {
    const auto part = rows.find(key), whole = rows.find({key.first, how.fused_into});
    if (part == rows.end() || whole == rows.end()) continue;
    Row& sum = whole->second;
    const Row& more = part->second;
    sum.duration += more.duration;
    sum.low += more.low;
    sum.high += more.high;
    sum.flops += more.flops;
    sum.model_flops += more.model_flops;
    sum.memory += more.memory;
    sum.network += more.network;
    rows.erase(part);
  }
}

Seconds longest(const ComparedRow& row) {
  const Seconds a = row.a ? row.a->duration : Seconds{}, b = row.b ? row.b->duration : Seconds{};
  return std::max(a, b);
}

// The labels are "predicted" and "measured", or "a" and "b" for two predictions.
std::pair<std::string, std::string> labels(const Comparison& c) {
  if (c.a.source.kind == c.b.source.kind) return {"a", "b"};
  return {std::string(name(c.a.source.kind)), std::string(name(c.b.source.kind))};
}

// A quantity of the whole report. These lines stand under the rows.
struct Total {
  std::string name;
  double a = 0, b = 0;
  std::string text_a, text_b;  // with units
};

std::vector<Total> totals(const Comparison& c) {
  const bool train = c.a.source.scenario.workload.task == Task::train;
  std::vector<Total> all;
  const auto seconds = [&all](const std::string& what, Seconds a, Seconds b) {
    all.push_back({what, a.value, b.value, format(a), format(b)});
  };
  const auto rows_sum = [](const Report& r) {
    Seconds sum;
    for (const auto& [key, row] : by_operation(r)) sum += row.duration;
    return sum;
  };
  seconds("all operations", rows_sum(c.a), rows_sum(c.b));
  seconds(train ? "step" : "generation", step_time(c.a), step_time(c.b));
  if (const auto a = ttft(c.a), b = ttft(c.b); a && b) seconds("time to first token", *a, *b);
  if (const auto a = tpot(c.a), b = tpot(c.b); a && b) seconds("time per later token", *a, *b);
  const double rate_a = tokens_per_second(c.a), rate_b = tokens_per_second(c.b);
  all.push_back({"tokens/s", rate_a, rate_b, fixed(rate_a, 1), fixed(rate_b, 1)});
  const Bytes peak_a = peak_memory(c.a), peak_b = peak_memory(c.b);
  all.push_back({"peak memory", static_cast<double>(peak_a.value), static_cast<double>(peak_b.value),
                 format(peak_a), format(peak_b)});
  return all;
}

std::string ratio_text(double a, double b) {
  return a > 0 ? fixed(b / a, 2) : "-";
}

std::string joined_text(const Comparison& c) {
  const auto [a, b] = labels(c);
  return std::to_string(c.joined) + " operations joined, " + std::to_string(c.only_a) + " only " + a + ", " +
         std::to_string(c.only_b) + " only " + b;
}

// The unit in which the longest row has up to four digits before the point. Decimals go down to a hundredth
// of a microsecond, a microsecond or a millisecond.
struct Unit {
  std::string_view name;
  double seconds;
  int decimals;
};
Unit table_unit(const Comparison& c) {
  const double most = c.rows.empty() ? 0 : longest(c.rows.front()).value;
  if (most >= 10) return {"s", 1, 3};
  if (most >= 10e-3) return {"ms", 1e-3, 3};
  return {kMicroseconds, 1e-6, 2};
}

using Cells = std::vector<std::string>;

// The header, one line for each operation, and the totals, as cells.
struct Table {
  Cells header;
  std::vector<Cells> rows, totals;
};

Table table_of(const Comparison& c) {
  const auto [a, b] = labels(c);
  const Unit unit = table_unit(c);
  const auto duration = [&unit](const std::optional<Row>& row) {
    return row ? fixed(row->duration.value / unit.seconds, unit.decimals) : std::string("-");
  };
  Table table;
  const auto in_unit = [&](const std::string& of) { return sentence(of, " ", unit.name); };
  table.header = {"phase", "operation", "count", in_unit(a), in_unit(b), b + "/" + a, "bound by"};
  for (const ComparedRow& row : c.rows) {
    const Row& any = row.a ? *row.a : *row.b;
    const auto ratio = row.ratio();
    table.rows.push_back({std::string(name(row.phase)), row.title(), std::to_string(any.count),
                          duration(row.a), duration(row.b), ratio ? fixed(*ratio, 2) : "-",
                          std::string(name(any.bound))});
  }
  for (const Total& t : totals(c))
    table.totals.push_back({"total", t.name, "", t.text_a, t.text_b, ratio_text(t.a, t.b), ""});
  return table;
}

Json summary(const Report& r) {
  Json json{{"kind", name(r.source.kind)},
            {"device", r.source.device},
            {"step_seconds", step_time(r).value},
            {"tokens_per_s", tokens_per_second(r)},
            {"peak_memory_bytes", peak_memory(r).value}};
  if (const auto t = ttft(r)) json["ttft_seconds"] = t->value;
  if (const auto t = tpot(r)) json["tpot_seconds"] = t->value;
  return json;
}

}  // namespace

std::optional<double> ComparedRow::ratio() const {
  if (!a || !b || !(a->duration.value > 0)) return std::nullopt;
  return b->duration / a->duration;
}

std::string ComparedRow::title() const {
  std::string text = id;
  for (const Row& part : fused) text += " + " + std::string(name(part.kind));
  return text;
}

Comparison compare(const Report& a, const Report& b) {
  Comparison c;
  c.a = a;
  c.b = b;
  auto rows_a = by_operation(a);
  auto rows_b = by_operation(b);
  const auto fused = fused_rows(rows_a, rows_b);
  add_up(rows_a, fused);
  add_up(rows_b, fused);
  const auto fused_with = [&fused](const Key& key) {
    std::vector<Row> parts;
    for (const auto& [of, row] : fused)
      if (of.first == key.first && row.fused_into == key.second) parts.push_back(row);
    return parts;
  };
  for (auto& [key, row] : rows_a) {
    ComparedRow compared{key.second, key.first, std::move(row), std::nullopt, fused_with(key)};
    const std::size_t operations = 1 + compared.fused.size();
    if (const auto other = rows_b.find(key); other != rows_b.end()) {
      compared.b = std::move(other->second);
      rows_b.erase(other);
      c.joined += operations;
    } else {
      c.only_a += operations;
    }
    c.rows.push_back(std::move(compared));
  }
  for (auto& [key, row] : rows_b) {
    c.rows.push_back({key.second, key.first, std::nullopt, std::move(row), fused_with(key)});
    c.only_b += 1 + c.rows.back().fused.size();
  }
  std::ranges::stable_sort(c.rows, std::greater<>{}, longest);
  return c;
}

std::string to_json(const Comparison& c) {
  Json rows = Json::array();
  for (const ComparedRow& row : c.rows) {
    const auto ratio = row.ratio();
    rows.push_back({{"phase", name(row.phase)},
                    {"id", row.id},
                    {"ratio", ratio ? Json(*ratio) : Json()},
                    {"a", row.a ? FieldWriter::object_of(*row.a) : Json()},
                    {"b", row.b ? FieldWriter::object_of(*row.b) : Json()}});
    for (const Row& part : row.fused) rows.back()["fused"].push_back(part.id);
  }
  const Json json{{"schema_version", kComparisonSchemaVersion},
                  {"joined", c.joined},
                  {"only_a", c.only_a},
                  {"only_b", c.only_b},
                  {"a", summary(c.a)},
                  {"b", summary(c.b)},
                  {"rows", std::move(rows)}};
  return written(json, 2);
}

std::string to_csv(const Comparison& c) {
  const auto [a, b] = labels(c);
  CsvTable table{.header = {"phase", "operation", "kind", "count", a + "_us", b + "_us", "ratio",
                            a + "_bound", b + "_bound"},
                 .rows = {}};
  const auto duration = [](const std::optional<Row>& row) {
    return row ? fixed(row->duration.value * 1e6, 3) : std::string();
  };
  const auto bound = [](const std::optional<Row>& row) {
    return row ? std::string(name(row->bound)) : std::string();
  };
  for (const ComparedRow& row : c.rows) {
    const Row& any = row.a ? *row.a : *row.b;
    const auto ratio = row.ratio();
    table.rows.push_back({std::string(name(row.phase)), row.title(), std::string(name(any.kind)),
                          std::to_string(any.count), duration(row.a), duration(row.b),
                          ratio ? fixed(*ratio, 4) : "", bound(row.a), bound(row.b)});
  }
  return to_text(table);
}

std::string to_markdown(const Comparison& c) {
  const Table table = table_of(c);
  const auto line = [](const Cells& cells) {
    std::string text = "|";
    for (const std::string& cell : cells) text += " " + cell + " |";
    return text + "\n";
  };
  std::string text = line(table.header) + "|---|---|--:|--:|--:|--:|---|\n";
  for (const Cells& row : table.rows) text += line(row);
  for (const Cells& row : table.totals) text += line(row);
  return text + "\n" + joined_text(c) + ".\n";
}

std::string to_text(const Comparison& c) {
  const Table table = table_of(c);
  constexpr std::array<bool, 7> kRight{false, false, true, true, true, true, false};
  std::array<std::size_t, kRight.size()> width{};
  const auto widen = [&width](const Cells& cells) {
    for (std::size_t i = 0; i < cells.size(); ++i) width[i] = std::max(width[i], columns_of(cells[i]));
  };
  widen(table.header);
  for (const Cells& row : table.rows) widen(row);
  for (const Cells& row : table.totals) widen(row);

  const auto line = [&](const Cells& cells) {
    std::string text;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string space(width[i] - columns_of(cells[i]), ' ');
      text += (i ? "  " : "") + (kRight[i] ? space + cells[i] : cells[i] + space);
    }
    return text.erase(text.find_last_not_of(' ') + 1) + "\n";
  };
  const std::string header = line(table.header);
  const std::string rule(columns_of(header) - 1, '-');
  std::string text = header + rule + "\n";
  for (const Cells& row : table.rows) text += line(row);
  text += rule + "\n";
  for (const Cells& row : table.totals) text += line(row);
  return text + "\n" + joined_text(c) + ".\n";
}

}  // namespace sim
