#include "sim/report/compare.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>
#include <string>

#include "sim/format.h"
#include "tests/sim/random_report.h"
#include "tests/support/catch.h"

using sim::Comparison;
using sim::Report;

namespace {

sim::Row row(const std::string& id, sim::Phase phase, double seconds) {
  sim::Row r;
  r.id = id;
  r.phase = phase;
  r.count = 2;
  r.duration = {seconds};
  return r;
}

// One operation in both, one in each alone.
Comparison small_comparison() {
  Report predicted, measured;
  predicted.source.kind = sim::ReportKind::predicted;
  measured.source.kind = sim::ReportKind::measured;
  predicted.rows = {row("head", sim::Phase::forward, 2e-3), row("fused", sim::Phase::forward, 1e-3)};
  measured.rows = {row("head", sim::Phase::forward, 3e-3), row("head", sim::Phase::backward, 5e-3)};
  predicted.step_time = {4e-3};
  measured.step_time = {9e-3};
  return sim::compare(predicted, measured);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("rows are joined by phase and operation, and none is lost") {
  const Comparison c = small_comparison();
  CHECK(c.joined == 1);
  CHECK(c.only_a == 1);
  CHECK(c.only_b == 1);
  REQUIRE(c.rows.size() == 3);
  CHECK(c.rows[0].phase == sim::Phase::backward);
  CHECK_FALSE(c.rows[0].ratio().has_value());
  CHECK(c.rows[1].id == "head");
  CHECK(*c.rows[1].ratio() == Approx(1.5));
}

TEST_CASE("what one report's kernel did with another operation is compared with both of the other report's") {
  Report predicted, measured;
  predicted.source.kind = sim::ReportKind::predicted;
  measured.source.kind = sim::ReportKind::measured;
  predicted.rows = {row("up", sim::Phase::forward, 4e-3), row("gelu", sim::Phase::forward, 2e-3),
                    row("gelu", sim::Phase::recompute, 1e-3)};
  measured.rows = {row("up", sim::Phase::forward, 5e-3), row("gelu", sim::Phase::forward, 0)};
  measured.rows[1].kind = sim::OpKind::gelu;
  measured.rows[1].fused_into = "up";
  for (const bool swapped : {false, true}) {
    const Comparison c = swapped ? sim::compare(measured, predicted) : sim::compare(predicted, measured);
    CHECK(c.joined == 2);                         // both, in one row
    CHECK((swapped ? c.only_b : c.only_a) == 1);  // of the other phase
    REQUIRE(c.rows.size() == 2);
    CHECK(c.rows[0].id == "up");
    REQUIRE(c.rows[0].fused.size() == 1);
    CHECK(c.rows[0].fused[0].id == "gelu");
    CHECK(*c.rows[0].ratio() == Approx(swapped ? 6.0 / 5 : 5.0 / 6));
    CHECK(sim::to_text(c).find("up + gelu") != std::string::npos);
    CHECK(nlohmann::json::parse(sim::to_json(c))["rows"][0]["fused"][0] == "gelu");
    CHECK(c.rows[1].fused.empty());
  }
}

TEST_CASE("a report compared with itself joins everything at ratio 1") {
  std::mt19937_64 random(9);
  for (int i = 0; i < 100; ++i) {
    const Report report = random_report(random);
    std::set<std::pair<sim::Phase, std::string>> operations;
    for (const sim::Row& r : report.rows) operations.insert({r.phase, r.id});
    const Comparison c = sim::compare(report, report);
    CHECK(c.joined == operations.size());
    CHECK(c.only_a + c.only_b == 0);
    for (const sim::ComparedRow& r : c.rows) CHECK(*r.ratio() == 1);
  }
}

TEST_CASE("comparing the other way round inverts ratios and swaps what is alone") {
  std::mt19937_64 random(10);
  for (int i = 0; i < 100; ++i) {
    const Report a = random_report(random), b = random_report(random);
    const Comparison ab = sim::compare(a, b), ba = sim::compare(b, a);
    CHECK(ab.joined == ba.joined);
    CHECK(ab.only_a == ba.only_b);
    CHECK(ab.only_b == ba.only_a);
    CHECK(ab.joined + ab.only_a + ab.only_b == ab.rows.size());
    for (const sim::ComparedRow& r : ab.rows)
      for (const sim::ComparedRow& other : ba.rows)
        if (r.id == other.id && r.phase == other.phase && r.ratio())
          CHECK(*r.ratio() == Approx(1 / *other.ratio()));
  }
}

TEST_CASE("of several ranks the slowest is compared") {
  Report a, b;
  a.rows = {row("head", sim::Phase::forward, 1), row("head", sim::Phase::forward, 3)};
  a.rows[1].rank = 1;
  b.rows = {row("head", sim::Phase::forward, 6)};
  const Comparison c = sim::compare(a, b);
  CHECK(c.joined == 1);
  CHECK(*c.rows.at(0).ratio() == Approx(2));
}

TEST_CASE("the text table lines up, names its units and prints both counts") {
  const std::string text = sim::to_text(small_comparison());
  INFO(text);
  CHECK_THAT(text, contains("predicted µs") && contains("measured µs") && contains("measured/predicted"));
  CHECK_THAT(text, contains("1 operations joined, 1 only predicted, 1 only measured."));
  const auto lines = lines_of(text);
  const std::string_view header = lines.at(0);  // in which µ has two bytes
  const std::size_t end =
      sim::columns_of(header.substr(0, header.find("measured µs"))) + sim::columns_of("measured µs");
  for (std::size_t i = 2; i < 5; ++i) {
    CAPTURE(lines.at(i));
    CHECK(lines[i].at(end - 1) != ' ');
    CHECK(lines[i].at(end) == ' ');
  }
}

TEST_CASE("CSV has a cell for every column, also where an operation ran on one side alone") {
  const auto lines = lines_of(sim::to_csv(small_comparison()));
  REQUIRE(lines.size() == 4);
  for (const std::string& line : lines) CHECK(std::count(line.begin(), line.end(), ',') == 8);
  CHECK(lines[0] ==
        "phase,operation,kind,count,predicted_us,measured_us,ratio,predicted_bound,measured_bound");
  CHECK_THAT(lines[2], contains("forward,head,") && contains(",2000.000,3000.000,1.5000,"));
}

TEST_CASE("Markdown has a row an operation and a row a total") {
  const std::string text = sim::to_markdown(small_comparison());
  INFO(text);
  CHECK_THAT(text, contains("| forward | head | 2 | 2000.00 | 3000.00 | 1.50 |"));
  CHECK_THAT(text, contains("| total | step |") && contains("4.00 ms") && contains("2.25"));
}

TEST_CASE("a comparison's JSON holds the rows of both and null where there is none") {
  const auto json = nlohmann::json::parse(sim::to_json(small_comparison()));
  CHECK(json.at("schema_version") == 1);
  CHECK(json.at("joined") == 1);
  CHECK(json.at("rows").size() == 3);
  CHECK(json.at("rows")[0].at("a").is_null());
  CHECK(json.at("rows")[0].at("b").at("duration_seconds") == 5e-3);
  CHECK(json.at("a").at("step_seconds") == 4e-3);
}
