// What leaves the desktop: panels as files, read back by others' rules.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "app/gui/desktop.h"
#include "app/gui/figures/text.h"
#include "app/gui/figures/trace.h"
#include "runtime/error.h"
#include "sim/cost/calibration_preset.h"
#include "sim/cost/predict.h"
#include "sim/csv.h"
#include "sim/report/metrics.h"
#include "tests/gui/null_desktop.h"
#include "tests/support/catch.h"

using namespace app::gui;

namespace {

sim::Scenario pipelined() {
  sim::Scenario s = tests::small_scenario();
  s.strategy.pipeline_parallel = 4;
  s.workload.global_batch_size = 32;
  return s;
}

// Every element is closed by its name, and no text holds a bare < or &: XML 1.0, section 2.1.
bool is_well_formed(std::string_view xml) {
  std::vector<std::string> open;
  for (std::size_t at = 0; at < xml.size();) {
    if (xml[at] == '&') {
      const auto end = xml.find(';', at);
      const std::string_view entity = xml.substr(at + 1, end == xml.npos ? 0 : end - at - 1);
      if (entity != "amp" && entity != "lt" && entity != "gt" && entity != "quot") return false;
      at = end;
    } else if (xml[at] == '<') {
      const auto end = xml.find('>', at);
      if (end == xml.npos) return false;
      const std::string_view tag = xml.substr(at + 1, end - at - 1);
      if (tag.find('<') != tag.npos) return false;
      const auto name = std::string(tag.substr(0, tag.find_first_of(" \n")));
      if (tag.starts_with('/')) {
        if (open.empty() || "/" + open.back() != name) return false;
        open.pop_back();
      } else if (!tag.ends_with('/')) {
        open.push_back(name);
      }
      at = end + 1;
    } else {
      ++at;
    }
  }
  return open.empty();
}

void see(tests::NullDesktop& desktop, const PanelEntry& panel) {
  desktop.shell().view().maximised = panel.id;
  desktop.settle_studies();
}

}  // namespace

TEST_CASE("a panel's CSV is read back by RFC 4180, with the very numbers of the report") {
  tests::NullDesktop desktop(pipelined());
  const sim::Report report = sim::predict(desktop.shell().document().scenario());
  std::string csv = desktop.shell().exported("memory", ExportFormat::csv);
  // The first figure: bars of what is live at the peak, the prediction first.
  REQUIRE(csv.starts_with("# Memory at the peak\n"));
  csv = csv.substr(csv.find('\n') + 1, csv.find("\n#") - csv.find('\n') - 1);
  const sim::CsvTable table = sim::csv_from_text(csv, "memory.csv");
  CHECK(table.header.front() == "of");
  CHECK(table.header.back() == "sum_bytes");
  REQUIRE(!table.rows.empty());
  CHECK(table.rows.front().front() == "predicted");
  CHECK(std::stoll(table.rows.front().back()) == sim::peak_memory(report).value);
}

TEST_CASE("a curve's CSV holds what is in sight, and no more") {
  Figure figure{"t",
                FigurePlot{{"x", Measure::seconds}, {"y"}, {{"a", 0, Mark::line, {{1, 1}, {2, 4}, {3, 9}}}}}};
  std::get<FigurePlot>(figure.data).x.seen = FigureRange{1.5, 2.5};
  CHECK(to_csv({&figure, 1}) == "curve,x_seconds,y\na,2,4\n");
  FigureTimeline lanes{
      {"stage 0"}, {{0, "F 0", "forward", 0, 0, 1}, {0, "F 1", "forward", 0, 2, 3}}, FigureRange{1.5, 9}};
  const Figure timeline{"t", lanes};
  CHECK(to_csv({&timeline, 1}) == "row,kind,name,start_seconds,duration_seconds\nstage 0,forward,F 1,2,1\n");
}

TEST_CASE("cells survive CSV, TSV and Markdown whatever stands in them") {
  const Figure figure{
      "t", FigureTable{{{"name"}, {"size", Measure::bytes}},
                       {{std::string("a,\"b\"|c\td\ne"), 1024.0}, {std::string("x"), std::monostate{}}}}};
  const sim::CsvTable csv = sim::csv_from_text(to_csv({&figure, 1}), "t");
  CHECK(csv.rows == std::vector<std::vector<std::string>>{{"a,\"b\"|c\td\ne", "1024"}, {"x", ""}});
  CHECK(to_tsv({&figure, 1}) == "name\tsize_bytes\na,\"b\"|c d e\t1024\nx\t\n");
  CHECK(to_markdown({&figure, 1}) ==
        "| name | size |\n| --- | ---: |\n| a,\"b\"\\|c\td e | 1.00 KiB |\n| x |  |\n");
}

TEST_CASE("every panel that shows figures writes them as well-formed SVG with its title as text") {
  tests::NullDesktop desktop(pipelined());
  std::size_t drawn = 0;
  for (const PanelEntry* panel : panels()) {
    if (!panel->of_prediction) continue;
    see(desktop, *panel);
    CAPTURE(panel->id);
    try {
      const std::string svg = desktop.shell().exported(panel->id, ExportFormat::svg);
      CHECK(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
      CHECK(is_well_formed(svg));
      CHECK(svg.find(std::string(">") + panel->title + "</text>") != svg.npos);
      CHECK(svg.find("nan") == svg.npos);
      CHECK(svg.find("inf\"") == svg.npos);
      ++drawn;
    } catch (const runtime::InputError&) {
      // Words alone, or nothing before it is asked for.
      const std::set<std::string_view> without = {"explain", "scenario", "planner", "pins"};
      CHECK(without.count(panel->id) == 1);
    }
  }
  CHECK(drawn >= 8);
  CHECK_FALSE(is_well_formed("<a><b></a></b>"));
  CHECK_FALSE(is_well_formed("<a>1 & 2</a>"));
}

TEST_CASE("a step's trace has each pass once, passes of a stage do not overlap, and it ends with the step") {
  tests::NullDesktop desktop(pipelined());
  const auto trace = nlohmann::json::parse(desktop.shell().exported("pipeline", ExportFormat::trace));
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> threads;
  std::size_t names = 0;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") == "M") {
      names += event.at("name") == "thread_name";
      continue;
    }
    REQUIRE(event.at("ph") == "X");
    REQUIRE(event.at("dur").get<double>() >= 0);
    threads[{event.at("pid"), event.at("tid")}].emplace_back(event.at("ts"), event.at("dur"));
  }
  CHECK(names == 4);
  CHECK(threads.size() == 4);
  double end = 0;
  for (auto& [thread, spans] : threads) {
    // 32 sequences, 4 a micro-batch: 8 forward and 8 backward passes, and the optimizer.
    CHECK(spans.size() >= 16);
    std::sort(spans.begin(), spans.end());
    for (std::size_t i = 1; i < spans.size(); ++i)
      CHECK(spans[i - 1].first + spans[i - 1].second <= spans[i].first + 1e-6);
    end = std::max(end, spans.back().first + spans.back().second);
  }
  const auto calibration = sim::load_calibration_preset("h100-sxm");
  const sim::Report report = sim::predict(pipelined(), calibration ? &*calibration : nullptr);
  CHECK(std::abs(end * 1e-6 / (report.step_time - report.waiting_for_slowest).value - 1) < 0.01);
  const Figure table{"no timeline", FigureTable{}};
  CHECK(to_chrome_trace({&table, 1}).empty());
}

TEST_CASE("a page of a scenario needs no other file, and the scenario is read back from it") {
  tests::NullDesktop desktop(pipelined());
  for (const PanelEntry* panel : panels())
    if (panel->of_prediction) see(desktop, *panel);
  const std::string html = desktop.shell().exported("", ExportFormat::html);
  for (const char* other : {"src=", "href=", "@import", "url("}) CHECK(html.find(other) == html.npos);
  CHECK(html.find("ridgepoint predict --model gpt2-124m") != html.npos);
  for (const char* id : {"overview", "memory", "pipeline", "roofline", "sources", "again"})
    CHECK(html.find("<section id=\"" + std::string(id) + "\">") != html.npos);
  const std::string begin = "id=\"carried\">";
  const auto at = html.find(begin) + begin.size();
  const std::string json = html.substr(at, html.find("</script>", at) - at);
  CHECK(sim::scenario_from_json(json, "report.html") == desktop.shell().document().scenario());
}

TEST_CASE("tables are copied by a key, of the panel that was used last") {
  tests::NullDesktop desktop(pipelined());
  desktop.press(ImGuiMod_Shift | ImGuiKey_3);
  desktop.settle_studies();
  desktop.press(ImGuiMod_Ctrl | ImGuiMod_Shift | ImGuiKey_M);
  const std::string copied = ImGui::GetClipboardText();
  CHECK(copied.find("### Memory at the peak") != copied.npos);
  CHECK(copied.find("GiB") != copied.npos);
  desktop.press(ImGuiKey_Escape);
  ImGui::SetWindowFocus(window_name(*find_panel("overview")).c_str());
  desktop.frames(2);
  desktop.press(ImGuiMod_Ctrl | ImGuiMod_Alt | ImGuiKey_C);
  CHECK(std::string(ImGui::GetClipboardText()).find("Totals\nquantity\tpredicted") != copied.npos);
}

TEST_CASE("screenshot writes by its file's ending, and names the endings where it knows none") {
  const auto folder = std::filesystem::temp_directory_path() / "ridgepoint_export_test";
  std::filesystem::create_directories(folder);
  app::ScreenshotOptions options;
  options.scenario = pipelined();
  options.panel = "memory";
  const auto begins = [&](const char* file) {
    app::write_screenshot(options, folder / file);
    std::ifstream in(folder / file, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {}).substr(0, 20);
  };
  CHECK(begins("a.svg").starts_with("<svg"));
  CHECK(begins("a.csv").starts_with("# Memory at the peak"));
  CHECK(begins("a.md").starts_with("### Memory at the"));
  CHECK(begins("a.html").starts_with("<!DOCTYPE html>"));
  CHECK_THROWS_WITH(app::write_screenshot(options, folder / "a.pdf"), contains(".svg") && contains(".pdf"));
  CHECK_THROWS_WITH(app::write_screenshot(options, folder / "a.json"), contains("timeline"));
  options.panel = "pipeline";
  CHECK(begins("a.json").starts_with("{\"displayTimeUnit\""));
  std::filesystem::remove_all(folder);
}
